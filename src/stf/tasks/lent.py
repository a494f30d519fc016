"""Data that bodies were given to submit tasks with (`stf.Data`).

Such a parameter is no access: the task that has it comes neither before nor after others that use the data. What its
body submits comes after all that was submitted until then. So somebody who waits for the data must wait for these
bodies first, and for those that they have given the data to: else the wait would be submitted before what it is to
see. Known are the tasks, by engine and number of the data, so that nothing is kept alive.
"""

from __future__ import annotations

from typing import Any

from stf.errors import CaptureError
from stf.tasks import handles
from stf.values.containers import data_in

__all__ = ["BORROWERS", "data_lent", "lend", "settle"]

MANY = 64  # borrowers of one data, among which those that are done are looked for
BORROWERS: dict[tuple[int, int], list[Any]] = {}  # the tasks that were given data, and were not seen to be done


def data_lent(parameters: Any, values: Any) -> list[Any]:
    """Return the data in arguments for parameters of `stf.Data`."""
    pairs = zip(parameters, values, strict=False)
    return list(data_in([value for parameter, value in pairs if parameter.takes_data]))


def lend(task: Any, found: list[Any]) -> None:
    """Remember that a task, whose place is known, may submit tasks on data.

    Raises
    ------
    TypeError
        It runs on a device, in the call that submits it.
    CaptureError
        It is recorded: it would submit the same tasks on the same data in each launch.
    """
    engine = task.engine
    if engine.places[task.where].enqueues:
        raise TypeError(
            f"task {task.label()} has a parameter of stf.Data, and runs on {task.place_name}: a body that submits "
            "tasks runs on the host; call it with .on('host')"
        )
    if engine.scope.records and not engine.scope.runs_once:
        raise CaptureError(
            f"task {task.label()} ({task.call_site}) has a parameter of stf.Data inside of {engine.scope.description}: "
            "what its body submits is no part of that; submit it outside"
        )
    for data in found:
        known = BORROWERS.setdefault((id(engine), data.core.id), [])
        if len(known) >= MANY:
            known[:] = [other for other in known if not handles.is_done(other)]
        known.append(task)


def settle(data: Any) -> None:
    """Wait until no body that is to run, or runs, may submit tasks on data."""
    key = id(data.core.engine), data.core.id
    while known := BORROWERS.get(key):
        task = known.pop()
        if task.state == handles.ENDED:
            handles.wait(task, None, "a wait for what is submitted by the body")
    BORROWERS.pop(key, None)
