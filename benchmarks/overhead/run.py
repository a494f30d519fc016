"""What a task costs: stf, what it is made of, and its peers, on the same programs and in one run.

    python benchmarks/overhead/run.py
    python benchmarks/overhead/run.py --cases chain_data --only stf compiled --repeat 15 --json build/overhead.json

Every row is timed once per round, in turn, and so sees the same machine; the first round is a warm-up. A row's time is
the median over the rounds, and its ratio the median of the ratios to the baseline of the same round and the same case:
the empty compiled with-block. The collector is on, as it is for users. Nothing is throttled: the queue holds all tasks.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import pathlib
import statistics
import sys
import time

from cases import CASES, Case
from contenders import CORES, Contender, Missing
from contenders.dask_threads import DaskDelayed, DaskGet
from contenders.futures import ThreadPool
from contenders.raw import CompiledBlock, PythonCall
from contenders.ray_tasks import Ray
from contenders.sequential_task_flow import CpuBlocks, CpuCalls, RecorderBlocks, RecorderCalls
from report import print_table, show_machine

CONTENDERS: list[type[Contender]] = [
    PythonCall,
    CompiledBlock,
    RecorderBlocks,
    RecorderCalls,
    CpuBlocks,
    CpuCalls,
    ThreadPool,
    DaskGet,
    DaskDelayed,
    Ray,
]
BASELINE = CompiledBlock.name
RATIO_BUDGETS = {CpuBlocks.name: 5.0, CpuCalls.name: 15.0}
OWN_COST_BUDGET_US = {("two_accesses", RecorderBlocks.name): 0.4}  # over the baseline, which does the calls alone

UNFAIR = f"""Pairs that are not like for like:
- stf finds out which task follows which; concurrent.futures, Dask and Ray are told, and their time leaves that out.
- A with-block runs where it stands, on a CPU: its tasks are over when they are submitted. Function tasks, and the
  peers' tasks, are handed to workers ({CORES} of them, as many as there are cores).
- A Python call is no task: nobody orders it, and nothing could overlap.
- "engine alone" is stf on the backend that only writes down what it is told. The tasks are ordered, and never run;
  those of functions are made ready to run.
- concurrent.futures blocks a worker while a task waits for the ones before it.
- Dask gets the graph as a whole, and starts when it has all of it: its submission is the making of that graph.
- Ray's tasks run in other processes, which could be other machines.
- Slow peers get fewer tasks (column "tasks"); so dask.delayed looks better than it is, which costs more per task the
  longer a chain is.
"""


@dataclasses.dataclass
class Row:
    """One contender on one case: seconds per task of each round, submission and all."""

    case: str
    contender: str
    kind: str
    tasks: int
    submit_s: list[float] = dataclasses.field(default_factory=list)
    total_s: list[float] = dataclasses.field(default_factory=list)
    ratio: float | None = None
    own_us: float | None = None

    @property
    def submit_us(self) -> float:
        return statistics.median(self.submit_s) * 1e6

    @property
    def total_us(self) -> float:
        return statistics.median(self.total_s) * 1e6

    def compare(self, baseline: Row) -> None:
        pairs = list(zip(self.total_s, baseline.total_s, strict=True))
        self.ratio = statistics.median(own / other for own, other in pairs)
        self.own_us = statistics.median(own - other for own, other in pairs) * 1e6

    def verdict(self) -> tuple[str, bool | None]:
        """Return the budget as text, and whether it is kept; None where there is none."""
        if self.contender in RATIO_BUDGETS and self.ratio is not None:
            most = RATIO_BUDGETS[self.contender]
            return f"≤ {most:g} ×", self.ratio <= most
        if (self.case, self.contender) in OWN_COST_BUDGET_US and self.own_us is not None:
            most = OWN_COST_BUDGET_US[self.case, self.contender]
            return f"own {self.own_us:.2f} < {most:g} µs", self.own_us < most
        return "", None


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    show_machine()
    contenders, missing = assemble(options.only)
    cases = [case for case in CASES if not options.cases or case.id in options.cases]
    try:
        rows = measure(cases, contenders, options.tasks, options.repeat)
    finally:
        for contender in contenders:
            contender.close()
    show(rows, missing)
    if options.json is not None:
        save(rows, options.json)
    if options.plot is not None:
        from chart import draw_overhead

        draw_overhead(rows, RATIO_BUDGETS, options.plot)
        print(f"picture: {options.plot}")
    return int(options.check and any(row.verdict()[1] is False for row in rows))


def assemble(only: list[str]) -> tuple[list[Contender], list[str]]:
    """Make the contenders; what is not installed is left out and said."""
    found, missing = [], []
    for kind in CONTENDERS:
        if only and not any(word in kind.name or word == kind.kind for word in only):
            continue
        try:
            found.append(kind())
        except Missing as reason:
            missing.append(f"{kind.name} is left out: {reason}")
    return found, missing


def measure(cases: list[Case], contenders: list[Contender], tasks: int, repeat: int) -> list[Row]:
    """Time every row once per round."""
    rows = [
        (case, contender, Row(case.id, contender.name, contender.kind, case.count(min(tasks, contender.most))))
        for case in cases
        for contender in contenders
    ]
    for turn in range(repeat + 1):
        for case, contender, row in rows:
            submit_s, total_s = time_once(case, contender, row.tasks)
            if turn > 0:
                row.submit_s.append(submit_s / row.tasks)
                row.total_s.append(total_s / row.tasks)
    for row in (row for *_, row in rows):
        for baseline in (row for *_, row in rows):
            if baseline.contender == BASELINE and baseline.case == row.case:
                row.compare(baseline)
    return [row for *_, row in rows]


def time_once(case: Case, contender: Contender, count: int) -> tuple[float, float]:
    program = contender.prepare(case, count)
    gc.collect()
    try:
        start = time.perf_counter()
        program.submit()
        submitted = time.perf_counter()
        program.finish()
        return submitted - start, time.perf_counter() - start
    finally:
        program.close()


def show(rows: list[Row], missing: list[str]) -> None:
    lines = []
    for row in rows:
        budget, kept = row.verdict()
        lines.append(
            (
                row.case,
                row.contender,
                f"{row.tasks:,}",
                f"{row.submit_us:.2f}",
                f"{row.total_us:.2f}",
                "" if row.ratio is None else f"{row.ratio:.1f}",
                budget,
                {True: "ok", False: "MISSED", None: ""}[kept],
            )
        )
    print_table(("case", "what", "tasks", "submit µs", "total µs", "× baseline", "budget", ""), lines, "llrrrrll")
    print(f'\nbaseline: "{BASELINE}" of the same case; rounds: {len(rows[0].total_s) if rows else 0}')
    print(UNFAIR)
    print("\n".join(missing))


def save(rows: list[Row], path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    result = []
    for row in rows:
        budget, kept = row.verdict()
        result.append(
            dataclasses.asdict(row)
            | {"submit_us": row.submit_us, "total_us": row.total_us, "budget": budget, "is_kept": kept}
        )
    path.write_text(json.dumps({"baseline": BASELINE, "cores": CORES, "rows": result}, indent=1))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--tasks", type=int, default=10_000, help="tasks per program (default: 10,000)")
    add("--repeat", type=int, default=7, help="rounds after the warm-up (default: 7)")
    add("--cases", nargs="*", default=[], choices=[case.id for case in CASES], help="only these")
    add("--only", nargs="*", default=[], help="only contenders with one of these words in their names")
    add("--plot", type=pathlib.Path, help="write the picture here (PNG)")
    add("--json", type=pathlib.Path, help="write the rows here")
    add("--check", action="store_true", help="exit with 1 if a budget is missed")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
