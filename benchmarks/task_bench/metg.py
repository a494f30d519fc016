"""The minimum effective task granularity: how small tasks may be, for a runner to reach half of the kernel's peak rate.

Granularity is wall time times cores over tasks. Efficiency is the time that the same iterations take in one call on each
core, over the time of the run. Both are measured in turn, and their ratio is taken in each turn, so that other work on
the machine slows both of them down. The CPU time of this process says what a task costs, whatever else runs.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from kernel import must_be

__all__ = ["HALF", "Curve", "Point", "measure"]

HALF = 0.5
LONGEST_US, BEGIN_US = 64_000.0, 256.0  # of a body, over the cores
LONGEST_S = 2.0  # of a run


@dataclasses.dataclass
class Point:
    """One size of the kernel, on one runner."""

    iterations: int
    steps: int
    tasks: int
    seconds: float
    granularity_us: float
    efficiency: float
    beside_us: float  # the CPU time of a task, without that of its kernel


@dataclasses.dataclass
class Curve:
    """The points of a runner on a pattern, by granularity, and what they say."""

    pattern: str
    runner: str
    kind: str
    points: list[Point]
    note: str = ""

    @property
    def metg_us(self) -> float:
        """The smallest granularity of a half, between two points by logarithm; infinite if no point reaches it."""
        first = next((i for i, point in enumerate(self.points) if point.efficiency >= HALF), None)
        if first is None:
            return math.inf
        if first == 0:
            return self.points[0].granularity_us
        a, b = self.points[first - 1], self.points[first]
        part = (HALF - a.efficiency) / (b.efficiency - a.efficiency)
        return a.granularity_us * (b.granularity_us / a.granularity_us) ** part

    @property
    def beside_us(self) -> float:
        """The CPU time that a task costs beside its kernel, among the smallest tasks; NaN if that is in other processes."""
        return statistics.median(point.beside_us for point in self.points[:3])


def measure(
    runner: Any, peak_s: Callable[[int], float], cores: int, budget_s: float, repeat: int, floor: float = 0.25
) -> Curve:
    """Measure a curve: double the iterations up to an efficient size, and halve them down to less than `floor`.

    Parameters
    ----------
    runner
        What runs the graph.
    peak_s
        The seconds that so many iterations take without tasks.
    cores
        By which wall time is multiplied; a GPU is one.
    budget_s
        About how many seconds a run takes.
    repeat
        How many runs make a point.
    """
    enough = 1 << 24  # threads take some hundred us to begin
    rate = max(enough / peak_s(enough) for _ in range(3)) / cores  # iterations a second, of one core
    check(runner, 16)
    body_us = BEGIN_US
    points = [point(runner, peak_s, cores, budget_s, repeat, rate, body_us)]
    while points[-1].efficiency < HALF and body_us < LONGEST_US and points[-1].seconds < LONGEST_S:
        body_us *= 2
        points.append(point(runner, peak_s, cores, budget_s, repeat, rate, body_us))
    body_us = BEGIN_US
    while min(each.efficiency for each in points) >= floor and points[-1].iterations > 1:
        body_us /= 2
        points.append(point(runner, peak_s, cores, budget_s, repeat, rate, body_us))
    points.sort(key=lambda each: each.iterations)
    return Curve(runner.graph.pattern, runner.name, runner.kind, points, runner.note())


def point(runner, peak_s, cores, budget_s, repeat, rate, body_us) -> Point:
    """Measure one size: bodies of about so many microseconds."""
    graph = runner.graph
    iterations = max(round(body_us * 1e-6 * rate), 1)
    steps = graph.first + 2 * graph.period
    for _ in range(3):  # the first runs of a size may compile, plan, or wake threads
        each = timed(runner, steps, iterations) / graph.count(steps)
        steps = graph.steps_for(min(int(budget_s / each), runner.most))
    tasks = graph.count(steps)
    times, ratios, beside = [], [], []
    for _ in range(repeat):
        before = time.process_time()
        seconds = timed(runner, steps, iterations)
        between = time.process_time()
        times.append(seconds)
        ratios.append(peak_s(tasks * iterations) / seconds)
        beside.append(2 * between - before - time.process_time())
    must_be(graph, steps, iterations, runner.rows(), runner.name)
    granularity = statistics.median(times) * cores / tasks * 1e6
    cost = statistics.median(beside) / tasks * 1e6 if runner.is_here else math.nan
    return Point(iterations, steps, tasks, statistics.median(times), granularity, statistics.median(ratios), cost)


def timed(runner: Any, steps: int, iterations: int) -> float:
    """Return the seconds of a run."""
    start = time.perf_counter()
    runner.run(steps, iterations)
    return time.perf_counter() - start


def check(runner: Any, iterations: int) -> None:
    """Run short graphs of several lengths, which also compiles and records what is kept, and look at their outputs."""
    graph = runner.graph
    for periods in (2, 4, 3):
        steps = graph.first + periods * graph.period
        runner.run(steps, iterations)
        must_be(graph, steps, iterations, runner.rows(), runner.name)
