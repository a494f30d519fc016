"""Memory that is registered in several live contexts: all may read it, and none may write it meanwhile.

A context orders only its own tasks, and keeps copies of its own. Where one writes what another has registered, the
other works on old content, and the write-back of one undoes that of the other. So registering memory that another
context has written is an error; if nobody has, all data there are read-only until they are alone again.
`AddressBook.must_be_alone` asks when somebody wants to write, so that data of one context cost nothing more.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from stf._engine import lifetime, retiring
from stf._engine.access import READ, shared
from stf.errors import AccessError, ContextClosedError

__all__ = ["look_elsewhere", "must_be_alone"]


def look_elsewhere(context: Any, entry: Any, core: Any) -> None:
    """See whether other contexts have the memory of data that was just registered.

    Raises
    ------
    AccessError
        One of them has written it.
    """
    for other in [reference() for reference in list(lifetime.live.values())]:
        if other is None or other is context:
            continue
        for ident in other.registry.overlapping(entry):
            rival = living(other, ident)
            if rival is None:
                wait_for_last(other, ident)
            elif is_written(rival):
                raise AccessError(description(core, rival, "writes"))
            elif not (is_readonly(context, core) and is_readonly(other, rival)):
                share(context, core, other, ident)
                share(other, rival, context, core.id)


def is_readonly(context: Any, core: Any) -> bool:
    """Return whether data may only be read, whoever else has them."""
    return core.readonly and core.id not in context.registry.shared


def share(context: Any, core: Any, other: Any, ident: int) -> None:
    """Let data be read-only as long as others, of another context, are there."""
    if not is_readonly(context, core):
        shared[0] = core.readonly = True
        context.registry.shared.setdefault(core.id, []).append((weakref.ref(other), ident))


def must_be_alone(registry: Any, core: Any) -> None:
    """Let data be writeable again, if no other context has their memory any more; else raise AccessError."""
    for reference, ident in registry.shared.get(core.id, ()):
        rival = living(reference(), ident)
        if rival is not None:
            raise AccessError(description(core, rival, "may read"))
    if registry.shared.pop(core.id, None) is not None:
        core.readonly = False


def living(context: Any, ident: int) -> Any:
    """Data of another context; None if they are given up, as what their user has dropped is now."""
    if context is None:
        return None
    try:
        context.engine.tails()  # who enters an engine gives up what was dropped
    except ContextClosedError:
        return None
    core = context.engine.coherency.data.get(ident)
    if core is not None and core.released:
        settle(context.engine, core)
        return None
    return core


def settle(engine: Any, core: Any) -> None:
    """Wait until it is known whether released data are poisoned, which their memory's next user comes after."""
    if engine.scope.thread == threading.get_ident():
        retiring.settle_beside(engine, core)
    else:
        engine.patiently(retiring.settle, [core])


def wait_for_last(context: Any, ident: int) -> None:
    """Wait for the last use of memory that another context has given up."""
    last = context.registry.last_use(ident)
    if last is not None and context.engine.closed is None:
        context.engine.wait_events(last, -1.0)


def is_written(core: Any) -> bool:
    """Return whether tasks write data, or have, or may in pieces."""
    version = core.version
    while version is not None:
        if version.wrote_code is not None or version.joined & ~READ or version.claims < 0 or version.accumulators:
            return True
        version = version.parent
    return bool(core.tiles)


def description(core: Any, rival: Any, what: str) -> str:
    """Return the error for who shares memory with another context."""
    return (
        f"the memory of {core.describe()} is that of {rival.span.describe()} in another live context, which {what} it; "
        "finalize that context or release its data first (lX.release()), or use one context for both"
    )
