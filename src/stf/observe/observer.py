"""What the engine tells whoever listens: the base class of observers and their fan-out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

_log = logging.getLogger("stf")


class ObservedAccess(Protocol):
    """One access of a task to one logical data, as observers see it."""

    data_id: int
    data_name: str
    mode: int  # bits: 1 read, 2 write; exactly 4: accumulate, which commutes with itself


class ObservedTask(Protocol):
    """A submitted task, as observers see it. Observers copy what they need and don't keep it."""

    id: int
    symbol: str | None
    kind: str  # task host_launch fill copy prefetch freeze unfreeze fence combine
    place_name: str
    device: int  # -1: the host
    accesses: Sequence[ObservedAccess]
    call_site: str
    runs_later: bool  # its body was queued, for a worker
    waits_for: Sequence[int]  # numbers of tasks, and with a minus sign of operations


class Operation(NamedTuple):
    """An internal operation.

    Attributes
    ----------
    kind
        "alloc", "copy", "free", "evict" or "write_back".
    source, target
        Names of data places, such as "host" or "device(1)".
    task_id
        The task that needed the operation, or 0.
    number
        Its own, which `Observer.ran` brings back.
    waits_for
        The numbers of the tasks, and with a minus sign of the operations, that it comes after.
    """

    kind: str
    data_id: int
    data_name: str
    source: str
    target: str
    nbytes: int
    task_id: int
    number: int
    waits_for: tuple[int, ...]


class Observer:
    """Base of everything that listens to the engine: every method does nothing.

    Override what you need. `began`, `ended`, `ran`, `failed` and `skipped` may come from a worker thread, in any order.
    All other methods are called one at a time, in program order.
    """

    def task(self, task: ObservedTask) -> None:
        """Note that `task` was submitted; `task` must not be kept."""

    def operation(self, operation: Operation) -> None:
        """Note an internal operation."""

    def began(self, task_id: int, name: str) -> None:
        """Note that this thread is about to run the body of a task that was queued."""

    def ended(self, task_id: int) -> None:
        """Note that the body of a task has returned, or was queued after all: this thread does nothing more of it."""

    def ran(
        self,
        task_id: int,
        name: str,
        device: int,
        worker: int,
        start_ns: int,
        end_ns: int,
        category: str,
        operation: int = 0,
    ) -> None:
        """Note when and where the body of a task (category "task") or a copy ("copy") really ran.

        A copy is the `operation` of that number, or a part of it; 0 where that is not known.
        With CUPTI, kernels and copies on a GPU are told too ("kernel"), with the task that submitted them, or 0.
        """

    def failed(self, task_id: int, description: str, raised_at: str) -> None:
        """Note that a task failed with an exception, such as "ValueError: no", and the line that raised it.

        `raised_at` is "file.py:12", or "" where Python knows no line.
        """

    def skipped(self, task_id: int, description: str) -> None:
        """Note that a task did not run, since another one had failed or it was cancelled, as `description` says."""

    def withdrawn(self, task_id: int) -> None:
        """Note that a task that was submitted could not begin after all: it is as if it had never been."""

    def section_begin(self, name: str) -> None:
        """Open a section; sections nest."""

    def section_end(self) -> None:
        """Close the innermost open section."""

    def data_removed(self, data_id: int) -> None:
        """Note that a logical data is gone; its id may come again for another one."""


class Observers(Observer):
    """Pass every notification on to several observers.

    An observer that raises is logged with its traceback and detached: a defect of a listener must not
    stop the engine half-way through a task.
    """

    def __init__(self, *observers: Observer) -> None:
        self._let_listen(observers)

    def _let_listen(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers
        self._hearing = {name: tuple(o for o in observers if _hears(o, name)) for name in _NOTIFICATIONS}

    def __len__(self) -> int:
        return len(self._observers)

    def __contains__(self, observer: object) -> bool:
        return any(mine is observer for mine in self._observers)

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Who listens."""
        return self._observers

    def attach(self, observer: Observer) -> None:
        """Let `observer` listen from now on; attaching it twice is the same as once."""
        if observer not in self:
            self._let_listen((*self._observers, observer))

    def detach(self, observer: Observer) -> None:
        """Let `observer` no longer listen; one that doesn't listen is ignored."""
        self._let_listen(tuple(mine for mine in self._observers if mine is not observer))

    def _drop(self, observer: Observer) -> None:
        _log.exception("observer %r raised and no longer listens", observer)
        self.detach(observer)


def _passed_on(name: str) -> Callable[..., None]:
    """Return the method of `Observers` that passes a notification on."""

    def tell(self: Observers, *what: Any, **more: Any) -> None:
        """Pass it on."""
        for observer in self._hearing[name]:
            try:
                getattr(observer, name)(*what, **more)
            except Exception:
                self._drop(observer)

    tell.__name__, tell.__qualname__ = name, f"Observers.{name}"
    return tell


_NOTIFICATIONS = tuple(name for name in vars(Observer) if not name.startswith("_"))
for _name in _NOTIFICATIONS:
    setattr(Observers, _name, _passed_on(_name))


def _hears(observer: Observer, name: str) -> bool:
    """Return whether an observer does something about a notification."""
    return getattr(getattr(observer, name), "__func__", None) is not getattr(Observer, name)
