"""`stf.plan`: run a program on simulated devices, and say how long it would take, what it would move, and why it waits.

The engine below is the one that runs on GPUs, so the order of tasks, the copies and the evictions are those of a run.
Only the clock is made up: see `stf._drivers.simulated`. A plan keeps the program, so that `Plan.report` and
`Plan.compare` can run it again.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stf import config
from stf._support.completion import Shown
from stf.contexts.calibration import Calibration
from stf.contexts.context import context
from stf.contexts.next_uses import Foreseen, UseLog
from stf.contexts.planned import Rehearsal, rehearsing
from stf.devices.hardware import KINDS, Model
from stf.devices.spec import DeviceSpec, simulated
from stf.errors import PlanError
from stf.observe.units import format_bytes, format_duration, place_name
from stf.planning.schedule import CAUSES, Span, Step, idle_of, path_of, spread_of, steps_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Plan", "plan"]

CONTEXT_NAMES = ("ctx", "context")
SHOWN = 4  # functions that were guessed


class Plan(Shown, Foreseen):
    """What a program would do; made by `stf.plan`.

    Attributes
    ----------
    devices : str
        What was asked for.
    makespan : float
        From the first submission to the end of everything, in seconds.
    interval : (float, float)
        Between which seconds it lies, as far as the times of the tasks vary.
    tasks : int
        How many bodies were counted, fills among them.
    guessed, scaled : int
        How many of these had no time of their own: nothing was known of the function; or it was known for other sizes
        or another kind of device.
    peak : dict
        Most bytes of each device at a time.
    copies, bytes : dict
        How many copies, and of how many bytes, by (source, target).
    critical_path : list of Step
        What the end waited for, one after the other: (name, place, start_s, end_s).
    idle : dict
        For each device, for how many seconds it had nothing to do, by cause: ``"dependencies"`` on other tasks,
        ``"copies"``, ``"submission"`` by the host, and ``"end"``, when nothing was left for it.

    Examples
    --------
    >>> def program(ctx):
    ...     x = ctx.logical_data_zeros(1_000_000, name="x")
    ...     for i in range(4):
    ...         ctx.task(i % 2, x.rw(), name="step")(lambda x: x + 1)
    >>> found = stf.plan(program, devices="2xH200")
    >>> found.tasks, sum(found.copies.values())
    (5, 3)
    """

    _shown = [
        "bytes",
        "compare",
        "copies",
        "critical_path",
        "devices",
        "guessed",
        "idle",
        "interval",
        "makespan",
        "peak",
        "report",
        "scaled",
        "tasks",
        "uses",
    ]

    def __init__(self, run: Run, rehearsal: Rehearsal) -> None:
        driver, model = rehearsal.driver, run.model
        self._run, self._ran_on = run, driver
        self.devices = f"{run.spec.count}x{run.spec.kind}"
        self.makespan = float(driver.now)
        self.peak = {place_name(device): nbytes for device, nbytes in enumerate(driver.peak[1:])}
        counts = driver.copy_counts()
        self.copies = {(place_name(s), place_name(t)): count for (s, t), (count, _) in sorted(counts.items())}
        self.bytes = {(place_name(s), place_name(t)): nbytes for (s, t), (_, nbytes) in sorted(counts.items())}
        bodies = driver.body_counts()
        self.tasks = sum(bodies.values())
        self.guessed = sum(count for key, count in bodies.items() if key in model.guessed)
        self.scaled = sum(count for key, count in bodies.items() if key in model.scaled)

    @cached_property
    def _spans(self) -> list[Span]:
        return [Span(*span) for span in self._ran_on.spans()]

    @cached_property
    def _path(self) -> list[Any]:
        return path_of(self._spans)

    @cached_property
    def _uses(self) -> UseLog:
        uses: UseLog = self._run.rehearse(notes_uses=True).largest("it uses no data").engine.next_uses
        return uses

    @cached_property
    def critical_path(self) -> list[Step]:
        """What the end waited for, one after the other."""
        return steps_of(self._path)

    @cached_property
    def idle(self) -> dict[str, dict[str, float]]:
        """For how many seconds each device had nothing to do, by cause."""
        return idle_of(self._spans, self._run.spec.count, self.makespan)

    @property
    def interval(self) -> tuple[float, float]:
        """Between which seconds the makespan lies."""
        spread = 2 * spread_of(self._path, self._run.model.deviations, self._ran_on.kinds)
        return max(self.makespan - spread, 0.0), self.makespan + spread

    @property
    def efficiency(self) -> float:
        """Which part of the time the devices had something to do."""
        idle = sum(sum(causes.values()) for causes in self.idle.values())
        whole = self.makespan * self._run.spec.count
        return 1.0 - idle / whole if whole else 1.0

    def report(self, path: str | Path) -> Path:
        """Plan once more, and write the page that `Context.report` writes of a run.

        Parameters
        ----------
        path : str or Path
            Where to write.

        Raises
        ------
        PlanError
            The program opens no context.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> found = stf.plan(lambda ctx: ctx.fill(ctx.logical_data_empty(3), 1.0), devices="1xH200")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(found.report(pathlib.Path(folder) / "plan.html").name)
        plan.html
        """
        written: Path = self._run.rehearse(observe=True).largest("there is nothing to report").report(path)
        return written

    def uses(self) -> UseLog:
        """Plan once more, and return which data each task of the largest context uses: for ``stf.context(plan=...)``.

        Raises
        ------
        PlanError
            The program opens no context.

        Examples
        --------
        >>> @stf.task
        ... def scale(x: stf.ReadWrite):
        ...     x *= 2
        >>> def program(ctx):
        ...     parts = [ctx.logical_data_zeros(1000) for _ in range(4)]
        ...     for _ in range(3):
        ...         for part in parts:
        ...             scale(part)
        >>> found = stf.plan(program, devices="1xcpu")
        >>> len(found.uses().ends)
        16
        """
        return self._uses

    def compare(self, devices: Iterable[int] = (1, 2, 4, 8)) -> Comparison:
        """Plan for other numbers of devices of the same kind.

        Parameters
        ----------
        devices : sequence of int, optional
            How many.

        Returns
        -------
        Comparison
            A dictionary of plans by number of devices, which prints as a table.

        Examples
        --------
        >>> def program(ctx):
        ...     for i in range(8):
        ...         x = ctx.logical_data_zeros(1 << 20)
        ...         ctx.task(i % len(ctx.devices), x.rw(), name="step")(lambda x: x + 1)
        >>> plans = stf.plan(program, devices="2xH200").compare([1, 2])
        >>> plans[2].makespan < plans[1].makespan
        True
        """
        return Comparison({count: self._run.on(count).plan() for count in devices})

    def __repr__(self) -> str:
        low, high = self.interval
        lines = [
            f"stf.plan on {self.devices}: {format_s(self.makespan)} ({format_s(low)} to {format_s(high)}), "
            f"{self.tasks:,} tasks, devices busy {self.efficiency:.0%}"
        ]
        copied = sum(self.bytes.values())
        lines.append(f"  copies         {sum(self.copies.values()):,}, {format_bytes(copied)}")
        lines.append(f"  peak memory    {format_bytes(max(self.peak.values(), default=0))} on the fullest device")
        waits = {cause: sum(idle[cause] for idle in self.idle.values()) / len(self.idle) for cause in CAUSES}
        told = ", ".join(f"{cause} {format_s(waits[cause])}" for cause in CAUSES if waits[cause] > 0)
        lines.append(f"  idle, mean     {told or 'none'}")
        lines.append(f"  critical path  {described(self.critical_path)}")
        model = self._run.model
        for what, keys in (("guessed", model.guessed), ("scaled", model.scaled)):
            count = getattr(self, what)
            if count:
                names = sorted({name for name, _, _ in keys})
                more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
                lines.append(f"  {what:<14} the times of {count:,} tasks: {', '.join(names[:SHOWN])}{more}")
        if model.like is not None:
            lines.append(f"  model          like {model.like}")
        return "\n".join(lines)


class Comparison(dict[int, Plan]):
    """Plans by number of devices; it prints as a table."""

    def __repr__(self) -> str:
        if not self:
            return "no plans"
        first = self[min(self)]
        lines = ["devices    makespan   speed-up   busy     copies       copied        peak"]
        for count, found in sorted(self.items()):
            speedup = first.makespan / found.makespan if found.makespan else 1.0
            copied = format_bytes(sum(found.bytes.values()))
            peak = format_bytes(max(found.peak.values(), default=0))
            lines.append(
                f"{count:7} {format_s(found.makespan):>11} {speedup:10.2f} {found.efficiency:6.0%} "
                f"{sum(found.copies.values()):10,} {copied:>12} {peak:>11}"
            )
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Run:
    """A program and what it is planned on."""

    program: Callable[..., Any]
    args: tuple[Any, ...]
    spec: DeviceSpec
    calibration: Calibration
    like: str | None
    values: Mapping[str, Any]

    @cached_property
    def model(self) -> Model:
        """How long bodies and copies take."""
        known = self.calibration
        return Model(known.durations, known.links, known.submit_s, self.like)

    def rehearse(self, observe: bool = False, notes_uses: bool = False) -> Rehearsal:
        """Run the program on simulated devices."""
        with rehearsing(Rehearsal(self.spec, self.model, dict(self.values), observe, notes_uses)) as rehearsal:
            if takes_context(self.program):
                with context() as ctx:
                    self.program(ctx, *self.args)
            else:
                self.program(*self.args)
        return rehearsal

    def plan(self) -> Plan:
        """Return the plan."""
        return Plan(self, self.rehearse())

    def on(self, count: int) -> Run:
        """Return the same run on another number of devices."""
        capacity = (self.spec.capacity or (0,))[:1] * count
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, count=count, capacity=capacity))


def plan(
    program: Callable[..., Any],
    *args: Any,
    devices: str,
    memory: int | str | None = None,
    model: Calibration | str | Path | None = None,
    values: Mapping[str, Any] | None = None,
    workers: int | None = None,
) -> Plan:
    """Say how long a program would take on devices that need not be here, what it would copy, and what it waits for.

    The program runs on simulated devices: tasks are ordered, placed and given memory as in a run, and their bodies are
    counted instead of run. So it needs no GPU, and takes no longer than the submission of its tasks. Your arrays stay
    as they are.

    Parameters
    ----------
    program : callable
        ``program(ctx, *args)`` if its first parameter is called ``ctx`` or ``context``; else ``program(*args)``, whose
        own contexts are on the simulated devices, whatever they ask for.
    *args
        Further arguments of the program.
    devices : str
        A number and a kind, such as ``"8xH200"``; ``"2xcpu"`` stands for ``"cpu:2"``.
    memory : int or str, optional
        Bytes of each device, or text such as ``"80GB"``; as much as the kind has by default.
    model : Calibration, str or Path, optional
        The times of tasks and links, from `Context.calibrate`: as an object, or a file. ``"like:H100"`` lets the times
        of one kind stand for a kind that has none, in proportion to their peaks; ``"like:H100:times.json"`` those of a
        file. Without it, every time is a guess by the bytes of a task's data.
    values : mapping, optional
        Values of logical data that the program asks for, by name. A number fills the data.
    workers : int, optional
        Bodies that run on the host at a time; one a core by default.

    Returns
    -------
    Plan

    Raises
    ------
    PlanError
        The program asks for a value that `values` does not have, or the model has no times for such devices.
    OutOfMemoryError
        The data of a task do not fit into the memory of a device.
    ValueError
        `devices`, `memory` or `model` is malformed.
    TypeError
        `program` is not callable.

    Examples
    --------
    >>> @stf.task
    ... def scale(x: stf.ReadWrite):
    ...     x *= 2
    >>> def program(ctx, n):
    ...     for i in range(n):
    ...         scale.on(i % len(ctx.devices))(ctx.logical_data_zeros((1024, 1024)))
    >>> found = stf.plan(program, 64, devices="4xH200")
    >>> found.tasks, found.guessed, 0.0 < found.makespan < 1.0
    (128, 128, True)
    """
    if not callable(program):
        raise TypeError(f"plan takes a function, got {type(program).__name__}; python -m stf plan takes a script")
    calibration, like = parsed_model(model)
    spec = spec_of(devices, memory, calibration, like)
    if workers is not None:
        spec = dataclasses.replace(spec, workers=workers)
    return Run(program, args, spec, calibration, like, dict(values or {})).plan()


def takes_context(program: Callable[..., Any]) -> bool:
    """Return whether the first parameter of a program is a context."""
    try:
        parameters = list(inspect.signature(program).parameters)
    except (TypeError, ValueError):
        return False
    return bool(parameters) and parameters[0] in CONTEXT_NAMES


def parsed_model(model: Any) -> tuple[Calibration, str | None]:
    """Return the calibration of a model, and the kind that stands for others."""
    if model is None or isinstance(model, Calibration):
        return model or Calibration(), None
    text = str(model)
    if not text.startswith("like:"):
        return Calibration.load(model), None
    _, kind, path = [*text.split(":", 2), ""][:3]
    if kind not in KINDS:
        raise ValueError(
            f"model='like:KIND' names a kind that is known, got {kind!r}; kinds are {', '.join(sorted(KINDS))}"
        )
    return (Calibration.load(path) if path else Calibration()), kind


def spec_of(devices: Any, memory: Any, calibration: Calibration, like: str | None) -> DeviceSpec:
    """Return the devices of a plan; PlanError if nothing is known of their kind."""
    text = str(devices).removeprefix("sim:")
    kind = text.partition("x")[2]
    timed = calibration.kinds
    if kind and kind not in KINDS and kind not in timed and like is None:
        raise PlanError(
            f"nothing is known of devices of kind {kind!r}: kinds are {', '.join(sorted(KINDS))}; measure there with "
            "ctx.calibrate(path), or let another kind stand for it: model='like:H100'"
        )
    spec = simulated(text, "devices", {*KINDS, *timed, *([kind] if like else [])})
    if timed and spec.kind not in timed and like is None:
        raise PlanError(
            f"the model has times of {', '.join(timed)}, and none of {spec.kind}; measure there with "
            f"ctx.calibrate(path), or let them stand for it: model='like:{timed[0]}:PATH'"
        )
    nbytes = memory_bytes(memory)
    return spec if nbytes is None else dataclasses.replace(spec, capacity=(nbytes,) * spec.count)


def memory_bytes(memory: Any) -> int | None:
    """Return the bytes that ``80_000_000_000`` or ``"80GB"`` means; None for None."""
    if memory is None:
        return None
    try:
        return config.bytes_of(str(memory).strip())
    except ValueError:
        raise ValueError(f"memory is a number of bytes, or text such as '80GB' or '64GiB', got {memory!r}") from None


def described(path: list[Step]) -> str:
    """Return a critical path in a line: how many tasks and copies, and how much of it each kind of them is."""
    spent: dict[str, tuple[int, float]] = {}
    for step in path:
        count, seconds = spent.get(step.name, (0, 0.0))
        spent[step.name] = count + 1, seconds + step.end_s - step.start_s
    most = sorted(spent.items(), key=lambda item: -item[1][1])[:SHOWN]
    return ", ".join(f"{count} x {name} {format_s(seconds)}" for name, (count, seconds) in most) or "empty"


def format_s(seconds: float) -> str:
    """Return a number of seconds for people to read."""
    return format_duration(seconds * 1e9)
