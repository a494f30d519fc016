"""The ends of contexts that nobody finalized: collected, left at exit, or inherited through a fork."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
import threading
import warnings
import weakref
from typing import Any

from stf._engine import claims
from stf._engine.host_waits import is_waited_for
from stf.errors import TaskStateError

live: dict[int, weakref.ref[Any]] = {}  # by id: what is finalized takes itself out
_resources: weakref.WeakSet[Any] = weakref.WeakSet()
_orphans: list[Any] = []
_unclosed: list[Any] = []
_unheard: list[Exception] = []  # the last failure that could only be logged
_phases: dict[str, Any] = {}  # of the cyclic collector, the last one last


def watch(context: Any) -> None:
    """Remember a context that must be finalized in the end; finalize those that a collection left."""
    live[id(context)] = weakref.ref(context)
    if (_orphans or _unclosed) and not is_waited_for(threading.get_ident()):
        _end_orphans()


def watch_resources(resources: Any) -> None:
    """Remember resources that must be closed at exit."""
    _resources.add(resources)


def forget(context: Any) -> None:
    """A context was finalized."""
    live.pop(id(context), None)


def collected(context: Any) -> None:
    """The last reference to an open context is gone: finalize it; later, in the cyclic collector or a worker."""
    try:
        warnings.warn(
            f"{context!r} was dropped without finalize(); use `with stf.context() as ctx`",
            ResourceWarning,
            stacklevel=3,
        )
    finally:
        if (
            _is_collecting()
            or context.engine.root.owns_thread(threading.get_ident())
            or is_waited_for(threading.get_ident())
        ):
            _orphans.append(context)
        else:
            _end(context)


def collected_resources(resources: Any) -> None:
    """The last reference to resources is gone: close them, after the contexts that went with them."""
    if _is_collecting() or is_waited_for(threading.get_ident()):
        _unclosed.append(resources)
    else:
        resources.stop()


def abandon_open(engine: Any) -> None:
    """End this thread's open tasks as failed: an exception has left their context, so that nobody will end them."""
    thread = threading.get_ident()
    for task in [] if claims.runs_body(engine, thread) else engine.opened():
        if task.thread == thread and task.state_name() == "open":
            task.abandon(TaskStateError(f"task {task.label()} ({task.call_site}) was open when its context was left"))


def _end_orphans() -> None:
    """Finalize the contexts, then close the resources, that a collection left."""
    while _orphans:
        _end(_orphans.pop())
    while _unclosed:
        _unclosed.pop().stop()


def _end(context: Any) -> None:
    """Finalize; what failed is logged, since nobody is there to catch it."""
    try:
        context._finish(False)
        context.check_errors()
    except Exception as error:
        logging.getLogger("stf").error("%r: %s", context, error)
        _unheard[:] = [error]


def _is_collecting() -> bool:
    """Return whether the cyclic collector is at work."""
    return next(reversed(_phases), "stop") == "start"


def _at_exit() -> None:
    for context in _unfinished():
        try:
            warnings.warn(f"{context!r} was open at exit; finalize it", ResourceWarning, stacklevel=1)
        except ResourceWarning as error:  # warnings are errors, and that must not cost the data
            logging.getLogger("stf").error("%s", error)
        _end(context)
    for resources in {*_unclosed, *_resources}:
        resources.stop()
    if _unheard and sys.orig_argv and not hasattr(sys, "ps1"):  # no session, and no program that embeds Python
        sys._stf_status = _Failed()  # type: ignore[attr-defined] # what `sys` holds goes last


class _Failed:
    """The end of a program whose tasks failed and which never waited for them: it exits with 1.

    Its status is settled before the functions that are called at exit, so this is left for the very last.
    """

    def __init__(self) -> None:
        self.streams = sys.stdout, sys.stderr

    def __del__(self, leave: Any = os._exit) -> None:
        try:
            for stream in self.streams:
                if stream is not None:
                    stream.flush()
        finally:
            leave(1)


def user_of(resources: Any) -> Any:
    """Return a context on these that nobody finalized; None if there is none."""
    return next((context for context in _unfinished() if context._resources is resources), None)


def _unfinished() -> set[Any]:
    """Return the contexts that nobody finalized."""
    living = [reference() for reference in list(live.values())]
    return {*_orphans, *(context for context in living if context is not None)}


def _after_fork() -> None:
    for context in _unfinished():
        context._abandon_after_fork()
    for resources in list(_resources):
        resources.forget_parent()
    live.clear()
    _orphans.clear()
    _unclosed.clear()
    _phases.clear()


# The collector calls these with a phase and its numbers, also in the middle of other libraries' C code. In a Python
# function handlers of signals would run, and the collector ignores what those raise, as Ctrl-C does. No Python code
# runs in methods of a dict; these two move a phase to its end.
gc.callbacks += [_phases.pop, _phases.__setitem__]
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
