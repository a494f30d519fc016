"""A time series read from a CSV file."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import pathlib

import numpy as np

__all__ = ["MAUNA_LOA", "Series", "read_series"]

MAUNA_LOA = pathlib.Path(__file__).parents[1] / "data" / "co2_weekly_mauna_loa.csv"


@dataclasses.dataclass(frozen=True)
class Series:
    """Values over time: `years` is decimal (1958.25 is the end of March 1958), sorted, and has no gaps in `values`."""

    years: np.ndarray
    values: np.ndarray
    label: str
    missing: int = 0

    def __len__(self) -> int:
        return self.years.size

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    def split(self, year: float) -> tuple[Series, Series]:
        """Return what lies before `year` and what does not."""
        before = self.years < year
        return tuple(dataclasses.replace(self, years=self.years[m], values=self.values[m]) for m in (before, ~before))


def read_series(path=MAUNA_LOA, date_column: str = "date", value_column: str = "co2") -> Series:
    """Read two columns of a CSV file with a header; rows without a value are gaps.

    Dates may be 19580329, 1958-03-29 (a time after it is ignored) or a decimal year, 1958.24.
    """
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        for column in (date_column, value_column):
            if column not in (reader.fieldnames or ()):
                raise ValueError(
                    f"{path} has no column {column!r}; its columns are {', '.join(reader.fieldnames or ('none',))}"
                )
        rows = [(row[date_column], (row[value_column] or "").strip()) for row in reader]
    points = sorted(
        (_decimal_year(date, path, line), float(value))
        for line, (date, value) in enumerate(rows, start=2)
        if value.lower() not in ("", "na", "nan")
    )
    if len(points) < 8:
        raise ValueError(f"{path} has {len(points)} values in column {value_column!r}; a regression needs at least 8")
    years, values = np.array(points).T
    is_mauna_loa = pathlib.Path(path).resolve() == MAUNA_LOA
    label = "atmospheric CO₂ at Mauna Loa (ppmv)" if is_mauna_loa else value_column
    return Series(years.copy(), values.copy(), label, missing=len(rows) - len(points))


def _decimal_year(text: str, path, line: int) -> float:
    text = text.strip()
    try:
        if text.isdigit() and len(text) == 8:
            text = f"{text[:4]}-{text[4:6]}-{text[6:]}"
        if "-" not in text:
            return float(text)
        day = datetime.date.fromisoformat(text[:10])
    except ValueError:
        raise ValueError(
            f"{path}, line {line}: {text!r} is no date; write 19580329, 1958-03-29 or a decimal year"
        ) from None
    start = datetime.date(day.year, 1, 1)
    return day.year + (day - start).days / (datetime.date(day.year + 1, 1, 1) - start).days
