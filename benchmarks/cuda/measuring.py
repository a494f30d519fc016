"""How run.py measures: costs, the raw driver in turn with them, and the rows of the table with their budgets."""

from __future__ import annotations

import ctypes
import functools
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
BURST, EMPTY, N, REPEAT, LAUNCHES, ROW = 400, 1000, 10_000, 7, 200, 8  # bursts of kernels, and of tasks without any
SHORT = 300  # tasks of two waits and a record each, which the submit thread's ring has room for
RECORD_US = 0.135  # of the host that the budgets were set on
ONE = (1, 1)
PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry touch(.param .u64 p) { ret; }
.visible .entry touch4(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) { ret; }
"""


# -- the raw driver --------------------------------------------------------------------------------------------------


def build_raw(program: Path, *options: str) -> None:
    compiler = shutil.which("nvcc") or shutil.which("cc")
    if compiler is None:
        sys.exit("neither nvcc nor cc is there to build raw.c with")
    subprocess.run([compiler, "-O2", *options, str(HERE / "raw.c"), "-o", str(program), "-lcuda"], check=True)


def load_raw() -> ctypes.CDLL:
    """raw.c as a library, so that its calls and ours can be measured in turn."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "raw.so"
        build_raw(program, "-shared", *(("-Xcompiler", "-fPIC") if shutil.which("nvcc") else ("-fPIC",)))
        library = ctypes.CDLL(str(program))
    library.raw_graph_launch.restype = library.raw_captures.restype = ctypes.c_double
    library.raw_open()
    return library


class Host:
    """How much longer than on the host of the budgets a raw event record takes, while a row is measured."""

    def __init__(self) -> None:
        self.library = load_raw()
        self.samples: list[float] = []
        self.last = 1.0

    def look(self, count: int = 400) -> float:
        """Take a sample; return its factor."""
        self.library.raw_record(count // 2)  # as warm as what it is compared with
        start = time.perf_counter()
        self.library.raw_record(count)
        self.samples.append((time.perf_counter() - start) / count * 1e6)
        return max(self.samples[-1] / RECORD_US, 1.0)

    def clock(self) -> float:
        """The factor since the last call; that of the row before if nothing was measured since."""
        if self.samples:
            self.last = max(statistics.median(self.samples) / RECORD_US, 1.0)
            self.samples.clear()
        return self.last


@functools.cache
def host() -> Host:
    return Host()


def run_raw() -> dict[str, float]:
    """Compile and run raw.c; microseconds by case."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "raw"
        build_raw(program)
        lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines)}


class Cost(NamedTuple):
    """Microseconds per item: until the calls return, and until the device is done (NaN where that says nothing).

    `at_clock` is the submission of a burst over the host's factor directly behind it; NaN where bursts were not so timed.
    """

    submission: float
    total: float = math.nan
    at_clock: float = math.nan


def cost_of(work: Callable[[int], None], settle: Callable[[], None], n: int = N, burst: int = BURST) -> Cost:
    """Median cost per item of `work`, in bursts: a full launch queue is not what is measured."""
    return costs_of([work], settle, n, burst)[0]


def costs_of(
    works: list[Callable[[int], None]], settle: Callable[[], None], n: int = N, burst: int = BURST
) -> list[Cost]:
    """`cost_of` each, burst by burst in turn: what slows the host down for a while then slows all of them."""
    rounds = max(n // burst, 1)
    costs: list[list[Cost]] = [[] for _ in works]
    at_clock: list[list[float]] = [[] for _ in works]
    for repetition in range(REPEAT + 1):
        submission, total = [0.0] * len(works), [0.0] * len(works)
        for _ in range(rounds):
            spent = [0.0] * len(works)
            for i, work in enumerate(works):
                start = time.perf_counter()
                work(burst)
                spent[i] = time.perf_counter() - start
                settle()
                total[i] += time.perf_counter() - start
            factor = host().look()
            for i, seconds in enumerate(spent):
                submission[i] += seconds
                if repetition:
                    at_clock[i].append(seconds / burst * 1e6 / factor)
        if repetition:
            for i, found in enumerate(costs):
                found.append(Cost(submission[i] / (rounds * burst) * 1e6, total[i] / (rounds * burst) * 1e6))
    medians = [median_of(found) for found in costs]
    return [cost._replace(at_clock=statistics.median(scaled)) for cost, scaled in zip(medians, at_clock, strict=True)]


def median_of(costs: list[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def load_kernels() -> tuple[int, int]:
    """Two kernels that do nothing, as addresses of their functions."""
    from cuda.bindings import driver

    def done(result: tuple[Any, ...]) -> Any:
        assert result[0] == driver.CUresult.CUDA_SUCCESS, result[0]
        return result[1] if len(result) > 1 else None

    done(driver.cuInit(0))
    context = done(driver.cuDevicePrimaryCtxRetain(done(driver.cuDeviceGet(0))))
    done(driver.cuCtxSetCurrent(context))
    module = done(driver.cuModuleLoadData(PTX.encode() + b"\0"))
    touch, touch4 = (int(done(driver.cuModuleGetFunction(module, name))) for name in (b"touch", b"touch4"))
    return touch, touch4


# -- the table -------------------------------------------------------------------------------------------------------


def add(
    rows: list[dict[str, Any]],
    case: str,
    cost: Cost,
    beside: float | None = None,
    budget_us: float | None = None,
    budget_ratio: float | None = None,
    added: bool = False,
) -> None:
    """One row: the figure, what it stands beside, and its budget: in µs (beyond the raw case if `added`) or a ratio."""
    us, clock = cost.submission, host().clock()
    ratio = us / beside if beside else None
    row = {"case": case, "us": us, "total_us": cost.total, "beside": beside, "ratio": ratio, "host": clock}
    if budget_us is not None:
        base = beside if added and beside else 0.0
        row |= {
            "budget": f"<= {base + budget_us:.2f} us",
            "base_us": base,
            "budget_us": budget_us,
            "clock": clock,
            "at_clock": math.nan if base else cost.at_clock,
        }
    elif budget_ratio is not None:
        row |= {"budget": f"<= {budget_ratio:.3g} x", "kept": us <= budget_ratio * beside if beside else None}
    rows.append(row)


def judge(rows: list[dict[str, Any]]) -> None:
    """Say which budgets in µs are kept, as they are and for a host whose driver calls take longer.

    Burst by burst where these were timed so: hosts change their pace within a row, and two medians may be of two paces.
    """
    for row in rows:
        if "budget_us" in row:
            beyond = row["us"] - row["base_us"]
            row["kept"] = beyond <= row["budget_us"]
            if math.isnan(row["at_clock"]):
                row["kept_at_clock"] = beyond <= row["clock"] * row["budget_us"]
            else:
                row["kept_at_clock"] = row["at_clock"] <= row["budget_us"]


def verdict(row: dict[str, Any]) -> str:
    if row.get("kept") is None:
        return ""
    if row["kept"]:
        return "kept"
    if "clock" not in row:
        return "missed"
    scaled = "" if math.isnan(row["at_clock"]) else f" ({row['at_clock']:.2f})"
    return f"missed; x {row['clock']:.2f}{scaled}: {'kept' if row['kept_at_clock'] else 'missed'}"


def print_table(raw: dict[str, float], rows: list[dict[str, Any]]) -> None:
    print("raw driver (C):", ", ".join(f"{name} {value:.2f}" for name, value in raw.items()))
    print(f"{'case':28}{'stf':>10}{'total':>10}{'beside':>10}{'ratio':>8}  budget")
    for row in rows:
        figure = f"{row['us']:.3f}" if "us" in row else f"{row['gbps']:.1f} GB/s"
        total = f"{row['total_us']:.3f}" if not math.isnan(row.get("total_us", math.nan)) else ""
        beside = f"{row['beside']:.3f}" if row["beside"] else ""
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
        budget = row.get("budget", "")
        print(f"{row['case']:28}{figure:>10}{total:>10}{beside:>10}{ratio:>8}  {budget:14}{verdict(row)}".rstrip())
