"""The parts of the regression, without tasks."""

import io

import numpy as np
import pytest
from gp import model
from gp.progress import Progress
from gp.series import read_series


def test_mauna_loa():
    series = read_series()
    assert len(series) == 2225
    assert series.missing == 59
    assert series.years[0] == 1958 + 87 / 365  # 29 March
    assert series.values[0] == 316.1
    assert series.values[-1] == 371.5
    before, after = series.split(2000.0)
    assert before.years[-1] < 2000.0 <= after.years[0]
    assert len(before) + len(after) == len(series)


@pytest.mark.parametrize(
    ("date", "year"),
    [("20000701", 2000 + 182 / 366), ("2001-01-01T12:00:00", 2001.0), ("1999.25", 1999.25)],
)
def test_dates(tmp_path, date, year):
    rows = [f"{date},1.5"] + [f"{1900 + i},2" for i in range(8)]
    (tmp_path / "a.csv").write_text("\n".join(["date,co2", *rows]), encoding="utf-8")
    series = read_series(tmp_path / "a.csv")
    assert series.years[-1] == pytest.approx(year)
    assert series.values[-1] == 1.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("date,co2\n" + "yesterday,1\n" * 9, "line 2: 'yesterday' is no date"),
        ("date,co2\n1990,1\n", "has 1 values"),
        ("day,co2\n1990,1\n", "no column 'date'; its columns are day, co2"),
        ("date,co2\n1990,one\n", "could not convert"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_series(tmp_path / "a.csv")


def test_covariance_is_the_sum_of_the_four_parts():
    h = model.BOOK
    matrix = model.covariance(np.array([0.0, 0.5]), np.array([0.0, 2.0]), h)
    assert matrix[0, 0] == pytest.approx(h.variance)
    distance = 1.5
    expected = (
        66.0**2 * np.exp(-(distance**2) / (2 * 67.0**2))
        + 2.4**2 * np.exp(-(distance**2) / (2 * 90.0**2) - 2 * np.sin(np.pi * distance) ** 2 / 1.3**2)
        + 0.66**2 * (1 + distance**2 / (2 * 0.78 * 1.2**2)) ** -0.78
        + 0.18**2 * np.exp(-(distance**2) / (2 * (1.6 / 12) ** 2))
    )
    assert matrix[1, 1] == pytest.approx(expected)


def test_scaled_model_is_the_same_in_another_unit():
    times = np.linspace(0.0, 3.0, 7)
    np.testing.assert_allclose(
        model.covariance(times, times, model.BOOK.scaled(10.0)),
        100.0 * model.covariance(times, times, model.BOOK),
    )


def test_fit_raises_the_likelihood():
    series = read_series()

    def likelihood(h, size=150):
        chosen = np.sort(np.random.default_rng(0).permutation(len(series))[:size])
        matrix = model.covariance(series.years[chosen], series.years[chosen], h)
        lower = np.linalg.cholesky(matrix + h.noise**2 * np.eye(size))
        whitened = np.linalg.solve(lower, series.values[chosen] - series.mean)
        return model.log_marginal_likelihood(whitened, lower.diagonal())

    fitted = model.fit(series, model.BOOK, size=150)
    assert likelihood(fitted) > likelihood(model.BOOK) + 5.0


def test_progress_appears_when_work_is_long():
    quiet, loud = io.StringIO(), io.StringIO()
    with Progress("work", delay_s=1000.0, file=quiet) as progress:
        progress.advance(0.5)
    assert quiet.getvalue() == ""
    with Progress("work", delay_s=0.0, file=loud) as progress:
        progress.advance(0.25)
    assert "work [########......................]  25%" in loud.getvalue()
