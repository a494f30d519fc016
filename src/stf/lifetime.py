"""The ends of contexts that nobody finalized: collected, left at exit, or inherited through a fork."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import threading
import warnings
import weakref
from typing import Any

from stf._engine.waits import is_waited_for

_live: weakref.WeakSet[Any] = weakref.WeakSet()
_orphans: list[Any] = []
_collecting = [False]


def watch(context: Any) -> None:
    """Remember a context that must be finalized in the end; finalize those that a collection left."""
    _live.add(context)
    while _orphans and not is_waited_for(threading.get_ident()):
        _end(_orphans.pop())


def forget(context: Any) -> None:
    """A context was finalized."""
    _live.discard(context)


def collected(context: Any) -> None:
    """The last reference to an open context is gone: finalize it; later, in the cyclic collector or a worker."""
    try:
        warnings.warn(
            f"{context!r} was dropped without finalize(); use `with stf.context() as ctx`",
            ResourceWarning,
            stacklevel=3,
        )
    finally:
        if _collecting[0] or context._driver.owns_thread(threading.get_ident()) or is_waited_for(threading.get_ident()):
            _orphans.append(context)
        else:
            _end(context)


def _end(context: Any) -> None:
    """Finalize; what failed is logged, since nobody is there to catch it."""
    context._finish()
    try:
        context.check_errors()
    except Exception as error:
        logging.getLogger("stf").error("%r: %s", context, error)


def _on_collection(phase: str, info: dict[str, int]) -> None:
    _collecting[0] = phase == "start"


def _at_exit() -> None:
    for context in {*_orphans, *_live}:
        try:
            warnings.warn(f"{context!r} was open at exit; finalize it", ResourceWarning, stacklevel=1)
        except ResourceWarning as error:  # warnings are errors, and that must not cost the data
            logging.getLogger("stf").error("%s", error)
        _end(context)


def _after_fork() -> None:
    for context in list(_live):
        context.abandon_after_fork()
    _live.clear()
    _orphans.clear()
    _collecting[0] = False


gc.callbacks.append(_on_collection)
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
