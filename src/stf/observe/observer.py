"""What the engine tells whoever listens: the base class of observers and their fan-out."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
import weakref
from collections.abc import Callable, Container, Sequence
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


class ThreadStack(threading.local):
    """What this thread has opened, the innermost last. What another thread closes stays till this one comes by."""

    def __init__(self) -> None:
        self.keys: list[Any] = []

    def leave(self, is_open: Container[Any], close: Callable[[], object]) -> list[Any]:
        """Close the innermost ones that are not open any more; return the others."""
        while self.keys and self.keys[-1] not in is_open:
            self.keys.pop()
            close()
        return self.keys


class Observers(Observer):
    """Pass every notification on to several observers.

    An observer that raises is logged with its traceback and detached: a defect of a listener must not
    stop the engine half-way through a task.
    """

    def __init__(self, *observers: Observer) -> None:
        self._let_listen(observers)

    def _let_listen(self, observers: tuple[Observer, ...]) -> None:
        self.observers = observers
        for name in _NOTIFICATIONS:
            setattr(self, name, _passing_on(self, name, [o for o in observers if _hears(o, name)]))

    def __len__(self) -> int:
        return len(self.observers)

    def __contains__(self, observer: object) -> bool:
        return any(mine is observer for mine in self.observers)

    def attach(self, observer: Observer) -> None:
        """Let `observer` listen from now on; attaching it twice is the same as once."""
        if observer not in self:
            self._let_listen((*self.observers, observer))

    def detach(self, observer: Observer) -> None:
        """Let `observer` no longer listen; one that doesn't listen is ignored."""
        self._let_listen(tuple(mine for mine in self.observers if mine is not observer))

    def _drop(self, observer: Observer) -> None:
        _log.exception("observer %r raised and no longer listens", observer)
        self.detach(observer)


def _passing_on(observers: Observers, name: str, hearing: list[Observer]) -> Callable[..., None]:
    """Return a function that passes a notification on to those who do something about it.

    It is made once, and not looked up for each: with three of them that is a microsecond for each task.
    """
    if not hearing:
        return nobody_hears
    mine = weakref.ref(observers)  # which holds what is returned

    def drop(number: int) -> None:
        known = mine()
        if known is not None:
            known._drop(hearing[number])

    return _maker_of(name, len(hearing))(drop, *[getattr(observer, name) for observer in hearing])


@functools.cache
def _maker_of(name: str, count: int) -> Callable[..., Callable[..., None]]:
    """Return what makes a function that passes a notification on to so many, whose text has a call of each.

    A loop over them with ``*arguments`` takes three times as long.
    """
    parameters = list(inspect.signature(getattr(Observer, name)).parameters.values())[1:]
    taken = ", ".join(f"{p.name}{'' if p.default is p.empty else f'={p.default!r}'}" for p in parameters)
    given = ", ".join(p.name for p in parameters)
    lines = [f"def make(drop, {', '.join(f'tell{i}' for i in range(count))}):", f" def {name}({taken}):"]
    for i in range(count):
        lines += ["  try:", f"   tell{i}({given})", "  except Exception:", f"   drop({i})"]
    namespace: dict[str, Any] = {}
    exec("\n".join([*lines, f" return {name}"]), namespace)
    maker: Callable[..., Callable[..., None]] = namespace["make"]
    return maker


def nobody_hears(*what: Any, **more: Any) -> None:
    """Do nothing."""


_NOTIFICATIONS = tuple(name for name in vars(Observer) if not name.startswith("_"))


def _hears(observer: Observer, name: str) -> bool:
    """Return whether an observer does something about a notification."""
    return getattr(getattr(observer, name), "__func__", None) is not getattr(Observer, name)
