"""A function of the user's that chooses places: what it sees, and what it says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from stf._engine.access import MODE_NAMES, DataHandle
from stf._support.call_sites import file_text
from stf.errors import PlaceError
from stf.places.places import ExecPlace
from stf.places.table import known_devices, place_code, place_of_code

if TYPE_CHECKING:
    from stf.placement.choices import Row

__all__ = ["AccessView", "Candidate", "TaskView", "ask", "name_of"]


class Asking(threading.local):
    """How many functions of users choose a place in this thread: what they read is no part of what is recorded."""

    depth = 0


asking = Asking()


class Candidate(NamedTuple):
    """A place that a task may go to, and what is estimated of it there.

    Attributes
    ----------
    place : ExecPlace
    free_s : float
        When the place is done with what it was given, in seconds of the model's time.
    move_s : float
        How long the copies of what is missing there would take.
    move_bytes : int
        How many bytes that is.
    evict_bytes : int
        How many bytes would be evicted.
    run_s : float or None
        The mean duration of such tasks there; None where too few were measured.
    finish_s : float
        When the task would end.
    """

    place: ExecPlace
    free_s: float
    move_s: float
    move_bytes: int
    evict_bytes: int
    run_s: float | None
    finish_s: float


class AccessView(NamedTuple):
    """An access of a task: the data, how they are used, and where they are valid.

    `mode` is ``"read"``, ``"write"``, ``"rw"`` or ``"accumulate"``.
    """

    data: DataHandle
    mode: str
    nbytes: int
    places: list[ExecPlace]


class TaskView(NamedTuple):
    """A task that is to be placed: its name, the line that submitted it, and its accesses."""

    symbol: str | None
    call_site: str
    accesses: list[AccessView]


def ask(function: Callable[..., Any], task: Any, context: Any, rows: list[Row]) -> int:
    """Return the number of the place that a function of the user's chooses; raise PlaceError if it does not."""
    places = [Candidate(place_of_code(context, row.number), *row[1:]) for row in rows]
    about = f"for task {task.label()} ({task.call_site})"
    asking.depth += 1
    try:
        answer = function(view_of(task, context), places)
    except Exception as error:
        raise PlaceError(f"{name_of(function)} raised {type(error).__name__} {about}, which did not begin") from error
    finally:
        asking.depth -= 1
    number = number_of(context, answer, len(rows))
    if number is None:
        raise PlaceError(
            f"{name_of(function)} returned {answer!r} {about}, which did not begin; it returns one of "
            f"{known_devices(context)}, or a device number"
        )
    return number


def number_of(context: Any, answer: Any, count: int) -> int | None:
    """Return the engine's number of what a function chose; None if it is no device of the context."""
    place = answer.place if isinstance(answer, Candidate) else answer
    if isinstance(place, DataHandle) or place is None:
        return None
    try:
        number = place_code(context, place)
    except (TypeError, PlaceError):
        return None
    return number if 1 <= number <= count else None


def view_of(task: Any, context: Any) -> TaskView:
    """Return what a function of the user's sees of a task."""
    accesses = []
    for access in task.accesses:
        data = access.data
        layout = data.core.layout
        valid = [replica.place for replica in data.core.version.replicas if replica.state]
        places = [place_of_code(context, number) for number in sorted(valid)]
        accesses.append(AccessView(data, MODE_NAMES[access.mode], 0 if layout is None else layout.nbytes, places))
    return TaskView(task.symbol, task.call_site, accesses)


def name_of(function: Callable[..., Any]) -> str:
    """Return what messages call a function of the user's: its name, file and line."""
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"choose function '{name}'" + (f" ({file_text(code.co_filename)}:{code.co_firstlineno})" if code else "")
