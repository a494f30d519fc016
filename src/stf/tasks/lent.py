"""Data that bodies were given to submit tasks with (`stf.Data`).

Such a parameter is no access: the task that has it comes neither before nor after others that use the data. What its
body submits comes after all that was submitted until then. So somebody who reads the data outside of tasks must wait
for these bodies first, and for those that they have given the data to: else the read would be submitted before what it
is to see. `settle` waits for them; `checks.must_be_settled` calls it for everybody who reads.

A whole, its parts, their forms with margins and its tiles count as one: they share their content. So the tasks are
known by engine and by the number of the whole. They are forgotten when somebody has waited, and when the context ends.

A handle is done when its body is over, and the bodies that this has submitted which take data themselves. So a task
that is submitted after ``result()`` comes after all that they submit. `handles.nest` keeps these.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Iterable, Iterator
from typing import Any

from stf._engine import claims, host_waits
from stf._engine.access import DataHandle
from stf._engine.task import ENDED  # type: ignore[attr-defined]  # of the .pxd
from stf.errors import CaptureError
from stf.tasks import handles
from stf.values.containers import data_in, is_container, items_of

__all__ = ["BORROWERS", "borrowers_of", "data_lent", "forget", "is_lent", "lend", "settle", "settle_all"]

MANY = 64  # borrowers of one whole, among which those that are done are looked for
BORROWERS: dict[Any, dict[int, Borrowers]] = {}  # by engine and whole: tasks that were not seen to be done
CALLS = (types.FunctionType, types.MethodType, functools.partial)
WHAT = "a wait for what is submitted by the body"
lock = threading.RLock()


class Borrowers(list[Any]):
    """Tasks that were given data of one whole."""

    limit = MANY


def data_lent(parameters: Any, values: Any) -> list[Any]:
    """Return the data in arguments for parameters of `stf.Data`, and those that functions among other arguments use.

    Raises
    ------
    TypeError
        An argument can be read only once, such as a generator.
    """
    found: list[Any] = []
    for parameter, value in zip(parameters, values, strict=False):
        if parameter.takes_data:
            if isinstance(value, Iterator):
                raise TypeError(
                    f"parameter '{parameter.name}' is annotated stf.Data and got {type(value).__name__}, whose items "
                    "can be read only once; pass a list of them"
                )
            found += data_within([value], set())
        elif parameter.mode == 0 and isinstance(value, CALLS):
            found += data_within([value], set())
    return found


def data_within(values: Iterable[Any], seen: set[int]) -> Iterator[Any]:
    """Return data in values, in what these contain, in attributes of the user's objects, and in functions."""
    for value in values:
        if isinstance(value, DataHandle):
            yield value
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if is_container(value):
            yield from data_within(items_of(value), seen)
        elif isinstance(value, CALLS):
            yield from data_within(used_by(value), seen)
        elif is_of_user(value):
            yield from data_within(list(vars(value).values()), seen)
        else:
            yield from data_in([value])


def used_by(function: Any) -> list[Any]:
    """Return what a function uses beside its arguments; of global variables, data and containers alone."""
    if isinstance(function, functools.partial):
        return [function.func, *function.args, *function.keywords.values()]
    if isinstance(function, types.MethodType):
        return [function.__self__, function.__func__]
    found = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty
            found.append(cell.cell_contents)
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    return found + [value for value in named if isinstance(value, DataHandle) or is_container(value)]


def is_of_user(value: Any) -> bool:
    """Return whether a value is an object with attributes, of a class of the user's."""
    if isinstance(value, (type, types.ModuleType)) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.partition(".")[0] != "stf"


def lend(task: Any, found: list[Any]) -> None:
    """Remember that a task may submit tasks on data; it is on the host, or on a device whose place may be chosen yet.

    Raises
    ------
    TypeError
        It runs on a device, in the call that submits it.
    CaptureError
        It is recorded: it would submit the same tasks on the same data in each launch.
    """
    engine = task.engine
    place = engine.places[task.where if task.where >= 0 else 1]  # any device, where one is to be chosen
    if place.enqueues:
        raise TypeError(
            f"task {task.label()} has a parameter of stf.Data, and runs on {place.name}: a body that submits "
            "tasks runs on the host; call it with .on('host')"
        )
    if engine.scope.records and not engine.scope.runs_once:
        raise CaptureError(
            f"task {task.label()} ({task.call_site}) has a parameter of stf.Data inside of {engine.scope.description}: "
            "what its body submits is no part of that; submit it outside"
        )
    around = host_waits.RUNNING.get(threading.get_ident())
    if around is not None and not isinstance(around, host_waits.Callback):
        handles.nest(around, task)
    with lock:
        borrowers = BORROWERS.setdefault(engine, {})
        for number in {whole_of(data.core).id for data in found}:
            known = borrowers.setdefault(number, Borrowers())
            if len(known) >= known.limit:
                known[:] = [other for other in known if not handles.has_run(other)]
                known.limit = max(MANY, 2 * len(known))
            known.append(task)


def whole_of(core: Any) -> Any:
    """Return the data that others are a part or a tile of; those that are neither, themselves."""
    while True:
        around = core.parent if core.linked is None or core.linked.whole is None else core.linked.whole
        if around is None or around is core:
            return core
        core = around


def borrowers_of(core: Any) -> list[Any]:
    """Return the tasks that may still submit tasks on data, or on what these are a part of, or a whole."""
    engine, number = core.engine, whole_of(core).id
    left = [task for task in BORROWERS.get(engine, {}).get(number, ()) if not handles.is_done(task)]
    kept = set(left)
    with lock:
        borrowers = BORROWERS.get(engine, {})
        known = borrowers.get(number, Borrowers())
        known[:] = [task for task in known if task in kept or not handles.has_run(task)]
        if not known:
            borrowers.pop(number, None)
        if not borrowers:
            BORROWERS.pop(engine, None)
    return [task for task in left if is_submitted(task)]


def is_submitted(task: Any) -> bool:
    """Return whether a task was submitted; another thread may be about to, or its call may have failed."""
    return bool(task.is_held or task.state == ENDED)


def is_lent(data: Any) -> bool:
    """Return whether a body that is to run, or runs, may submit tasks on data."""
    return bool(BORROWERS) and bool(borrowers_of(data.core))


def settle(data: Any) -> None:
    """Wait until no body that is to run, or runs, may submit tasks on data.

    A body waits for no other one: what it submits has its place already. Nor does anybody for data that are frozen:
    nobody writes them, and bodies that want to wait for `unfreeze` themselves.
    """
    core = data.core
    if is_in_body(core.engine) or core.version.frozen:
        return
    while waited := borrowers_of(core):
        for task in waited:
            handles.wait(task, None, WHAT)


def settle_all(engine: Any, timeout_s: float = -1.0) -> bool:
    """Wait until no body may submit tasks on data that it was given; False if the time ran out."""
    if engine not in BORROWERS or is_in_body(engine):
        return True
    end = handles.end_after(timeout_s)
    while left := [
        task
        for known in list(BORROWERS.get(engine, {}).values())
        for task in list(known)
        if not handles.is_done(task) and is_submitted(task)
    ]:
        for task in left:
            if not handles.wait_for_all(task, end):
                return False
    return True


def is_in_body(engine: Any) -> bool:
    """Return whether this thread runs a body, and no callback."""
    thread = threading.get_ident()
    around = host_waits.RUNNING.get(thread)
    if around is not None:
        return not isinstance(around, host_waits.Callback)
    return bool(claims.runs_body(engine, thread))


def forget(engine: Any) -> None:
    """Forget the tasks of a context that has ended."""
    with lock:
        if BORROWERS.pop(engine, None) is not None:
            handles.forget_nested(engine)
