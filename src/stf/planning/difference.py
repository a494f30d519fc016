"""`stf.diff`: run a program twice, and find the first task that computes something else."""

from __future__ import annotations

import contextlib
import inspect
import operator
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from stf import config
from stf._support.completion import Shown
from stf.contexts.context import context
from stf.errors import Error
from stf.planning.command import run_script
from stf.tasks import comparing
from stf.tasks.comparing import Run

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

__all__ = ["Difference", "add_options", "diff", "run"]

SETTINGS = ("devices", "hostile", "blocking", "validate", "cpu_workers", "memory_limit", "max_pending")
CONTEXT_NAMES = ("ctx", "context")


class Difference(Shown):
    """The first difference between two runs of a program; made by `stf.diff`.

    Attributes
    ----------
    kind : str
        ``"task"``: the outputs of a task differ, and its inputs agreed. ``"input"``: what a task reads differs, and no
        task has written it. ``"program"``: the runs have other tasks.
    task, line : str
        The task, and the line that submitted it.
    places : (str, str)
        Where it ran.
    number : int
        How many tasks the program submitted before.
    found : list
        For each data that differs: its name, how many elements differ, the position of the largest difference, the two
        values, and their distance in units of the last place.
    later : int
        How many tasks differ after it.

    Examples
    --------
    >>> def program(ctx):
    ...     x = ctx.logical_data_ones(3, name="x")
    ...     ctx.submit_task(half, x)
    >>> def half(x: stf.ReadWrite):
    ...     x /= 2 if stf.config.blocking else 2.0000000000000004
    >>> found = stf.diff(program, dict(devices="cpu"), dict(devices="cpu", blocking=True))
    >>> found.task, found.found[0].ulp
    ("'half'", 1.0)
    """

    _shown = ("found", "kind", "later", "line", "number", "places", "task")

    def __init__(self, kind: str, number: int, told: dict[str, Any], places: Any, found: Any, later: int) -> None:
        self.kind, self.number, self.found, self.later = kind, number, list(found), later
        self.task, self.line, self.places = told["task"], told["line"], places

    def __repr__(self) -> str:
        if self.kind == "program":
            return f"the programs differ: {self.found[0]}"
        what = f"task {self.task} ({self.line}), number {self.number}, at {self.places[0]} and at {self.places[1]}"
        if self.kind == "input":
            return f"{what}, reads what differs already, and no task has written: {', '.join(self.found)}"
        lines = [f"{what}, is the first whose outputs differ while its inputs agreed:"]
        for one in self.found:
            lines.append(
                f"  '{one.data}'{list(one.position)}: {one.one!r} and {one.other!r}, {one.ulp:.3g} ulp apart, the "
                f"largest of {one.differing} differences in {one.size} elements"
            )
        if self.later:
            lines.append(f"  {self.later} tasks after it differ, too")
        return "\n".join(lines)


def diff(
    program: Callable[..., Any],
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    *args: Any,
    rtol: float = 0.0,
    atol: float = 0.0,
    every: int = 1,
) -> Difference | None:
    """Run a program twice, and return the first task whose outputs differ while its inputs agreed.

    Each task's data are looked at before and after it, as with ``nan="error"``; replayed functions run as they are.
    Tasks of graphs, fills and copies are not looked at.

    Parameters
    ----------
    program : callable
        It gets a context if its first parameter is named ``ctx`` or ``context``, or if it takes one argument more than
        `*args`. Else it opens its own.
    a, b : mapping
        How the runs differ: `devices`, on which all contexts are then, and settings of `stf.config` such as `hostile`,
        the seed that shuffles what the rules leave open.
    *args
        Further arguments of the program.
    rtol, atol : float
        Values agree if they differ by at most ``atol + rtol * max(abs(a), abs(b))``. By default they are equal.
        Infinities and NaN agree with themselves alone.
    every : int
        Look at the data once in so many tasks, which is quicker for long programs with few data. The program runs three
        times then: once to see which task is the last to write which data, and twice to compare these. If they differ,
        it runs twice more, to look at each of the `every` tasks in which they began to. `later` counts only tasks that
        were looked at. The program must submit the same tasks each time.

    Returns
    -------
    Difference or None
        None if all tasks agree.

    Raises
    ------
    TypeError
        `program` is no function, or takes more arguments than `*args` and a context, or `a` or `b` has what is no
        setting, or `every` is no integer.
    ValueError
        `every` is not positive.

    Examples
    --------
    >>> def program(ctx):
    ...     x = ctx.logical_data_ones(3)
    ...     ctx.task(x.rw(), name="double")(lambda x: 2 * x)
    >>> print(stf.diff(program, dict(devices="cpu"), dict(devices="cpu:2", hostile=7)))
    None
    """
    if not callable(program):
        raise TypeError(f"stf.diff runs a function, got {program!r}")
    for options in a, b:
        must_be_settings(options)
    takes_context(program, args)
    interval = tasks_each(every)
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="stf-diff-") as folder:
        return compared(program, args, a, b, Path(folder), (rtol, atol), interval)


def tasks_each(every: Any) -> int:
    """Return `every` as a number; TypeError or ValueError if it is none."""
    if isinstance(every, bool) or not hasattr(every, "__index__"):
        raise TypeError(f"every is a number of tasks, got {every!r}")
    if operator.index(every) < 1:
        raise ValueError(f"every is a positive number of tasks, got {every!r}; 1 looks at each task")
    return operator.index(every)


def compared(
    program: Any,
    args: tuple[Any, ...],
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    folder: Path,
    tolerances: tuple[float, float],
    every: int,
) -> Difference | None:
    """Run a program as `diff` says, and return the first difference."""

    def both(looked: Collection[int] | None) -> Run:
        once(program, args, a, Run(folder, True, a.get("devices"), looked=looked))
        return once(program, args, b, Run(folder, False, b.get("devices"), *tolerances, looked=looked))

    if every == 1:
        return first_difference(both(None))
    known = once(program, args, a, Run(folder, True, a.get("devices"), looked=()))
    coarse = both(last_writers(known.tasks, every))
    found = first_difference(coarse)
    if found is None or found.kind == "program":
        return found
    differ = [number for number, told in enumerate(coarse.tasks) if told.get("found")]
    first = min([found.number, *differ]) // every * every
    for path in folder.glob("*.npy"):
        path.unlink()
    return first_difference(both(range(first, first + every))) or found


def last_writers(tasks: list[dict[str, Any]], every: int) -> set[int]:
    """Return which tasks are the last that write some data, in each interval of so many tasks.

    If what these write agrees, all data agree at the end of the interval.
    """
    last: dict[tuple[int, str], int] = {}
    for number, told in enumerate(tasks):
        for name in told.get("written", ()):
            last[number // every, name] = number
    return set(last.values())


def must_be_settings(options: Mapping[str, Any]) -> None:
    """Raise TypeError unless the options of a run are settings."""
    if not isinstance(options, Mapping):
        raise TypeError(f"stf.diff takes the options of a run as a dict, such as dict(devices='cpu'), got {options!r}")
    wrong = [name for name in options if name not in SETTINGS]
    if wrong:
        raise TypeError(f"stf.diff has no option {wrong[0]!r} of a run; it has {', '.join(SETTINGS)}")


def takes_context(program: Any, args: tuple[Any, ...]) -> bool:
    """Return whether a program is called with a context, before its arguments.

    Raises
    ------
    TypeError
        It takes more than that.
    """
    parameters = list(inspect.signature(program).parameters.values())
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = [one.name for one in positional if one.default is one.empty]
    is_named = bool(parameters) and parameters[0].name in CONTEXT_NAMES
    if len(required) > len(args) + 1:
        raise TypeError(
            f"stf.diff calls {getattr(program, '__name__', program)!r} with a context and the arguments that follow a "
            f"and b, {len(args)} now; it takes {len(required)}: {', '.join(required)}. Write stf.diff(program, a, b, "
            f"{', '.join(required[1:])})"
        )
    return is_named or len(required) == len(args) + 1


def once(program: Any, args: tuple[Any, ...], options: Mapping[str, Any], run: Run) -> Run:
    """Run a program, and note or compare what its tasks do."""
    with settings(options), watching(run):
        if takes_context(program, args):
            with context() as ctx:
                program(ctx, *args)
        else:
            program(*args)
    run.end()
    return run


@contextlib.contextmanager
def settings(options: Mapping[str, Any]) -> Iterator[None]:
    """Let settings be other ones."""
    before = {name: getattr(config, name) for name in options}
    try:
        for name, value in options.items():
            setattr(config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


@contextlib.contextmanager
def watching(run: Run) -> Iterator[None]:
    """Have the tasks of all contexts noted or compared that are opened meanwhile."""
    comparing.current.append(run)
    try:
        yield
    finally:
        comparing.current.remove(run)


def first_difference(run: Run) -> Difference | None:
    """Return the first difference between a run and the one before; None if there is none."""
    wrong: set[str] = set()  # data that differ since a task wrote them
    written: set[str] = set()
    first: Difference | None = None
    for number in range(max(len(run.before), len(run.tasks))):
        one, other = [tasks[number] if number < len(tasks) else {} for tasks in (run.before, run.tasks)]
        broken = difference_of_programs(number, one, other)
        if broken is not None:
            return first or broken
        found, reads = other.get("found", ()), inputs_that_differ(one, other)
        strange = [name for name in reads if name not in written]
        places = one["place"], other["place"]
        if first is not None:
            first.later += bool(found)
        elif strange:
            first = Difference("input", number, one, places, strange, 0)
        elif found and wrong.isdisjoint(reads):
            first = Difference("task", number, one, places, found, 0)
        now = set(one.get("written", ()))
        written |= now
        wrong = wrong - now | {item.data for item in found}
    return first


def difference_of_programs(number: int, one: dict[str, Any], other: dict[str, Any]) -> Difference | None:
    """Return how two runs differ in what they submitted, or in which tasks failed; an empty task is none."""
    names = [f"{told['task']} ({told['line']})" if told else "the end of the program" for told in (one, other)]
    if names[0] != names[1]:
        text = f"task number {number} is {names[0]} in one run, and {names[1]} in the other"
        return Difference("program", number, one or other, ("", ""), [text], 0)
    if one.get("failed") == other.get("failed"):
        return None
    how = ["failed" if told.get("failed") else "did not fail" for told in (one, other)]
    text = f"task number {number}, {names[0]}, {how[0]} in one run, and {how[1]} in the other"
    return Difference("program", number, one, (one["place"], other["place"]), [text], 0)


def inputs_that_differ(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of the data that a task read, and whose content was another one."""
    looks = zip(one.get("read", ()), other.get("read", ()), strict=False)
    return [before[0] for before, now in looks if before != now]


# -- the command ---------------------------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--a", default=None, metavar="DEVICES", help="devices of the first run, such as cpu")
    parser.add_argument("--b", default=None, metavar="DEVICES", help="devices of the second run, such as cuda:0")
    parser.add_argument("--seed-hostile", type=int, metavar="SEED", help="shuffle what the rules leave open, in run b")
    parser.add_argument("--rtol", type=float, default=0.0, help="relative tolerance")
    parser.add_argument("--atol", type=float, default=0.0, help="absolute tolerance")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="look at the data once in K tasks")
    parser.add_argument("--record", metavar="FOLDER", help="make the first run alone, and keep it")
    parser.add_argument("--against", metavar="FOLDER", help="make the second run alone, perhaps by other libraries")
    parser.add_argument("script", help="a Python file; its contexts are on the devices of the run")
    parser.add_argument("arguments", nargs="...", help="those of the script")


def run(options: argparse.Namespace) -> int:
    """Print the first difference; return the exit status: 0 if there is none, 1 if there is one, 2 for an error."""
    import tempfile
    from pathlib import Path

    one = {} if options.a is None else {"devices": options.a}
    other: dict[str, Any] = {} if options.b is None else {"devices": options.b}
    if options.seed_hostile is not None:
        other["hostile"] = options.seed_hostile
    given = (options.script, options.arguments)
    if options.every != 1 and (options.record or options.against):
        print("python -m stf diff: error: --every makes both runs; leave out --record and --against", file=sys.stderr)
        return 2
    tolerances = options.rtol, options.atol
    try:
        if options.record:
            Path(options.record).mkdir(parents=True, exist_ok=True)
            once(run_script, given, one, Run(Path(options.record), True, options.a))
            print(f"kept in {options.record}; compare with it by --against {options.record}")
            return 0
        if options.against:
            found = first_difference(
                once(run_script, given, other, Run(Path(options.against), False, options.b, *tolerances))
            )
        else:
            with tempfile.TemporaryDirectory(prefix="stf-diff-") as folder:
                found = compared(run_script, given, one, other, Path(folder), tolerances, tasks_each(options.every))
    except (Error, OSError, ValueError) as error:
        print(f"python -m stf diff: error: {error}", file=sys.stderr)
        return 2
    print("no task differs" if found is None else found)
    return 0 if found is None else 1
