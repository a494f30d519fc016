"""Loans: data that are frozen, and the tasks that need them meanwhile."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]

from stf._engine import host_waits
from stf._engine.access import MODE_NAMES, Data
from stf._engine.versions import Version
from stf.errors import AccessError

if not cython.compiled:
    from stf._support.sync import PyThread_get_thread_ident


def waits_for_end(engine: EngineState, task: TaskCore, data: Data, version: Version, mode):
    """Return True where a task waits for the end of a loan of another thread's; else raise AccessError."""
    thread = PyThread_get_thread_ident()
    holds_nothing = version.frozen_by not in (0, thread) and not host_waits.is_waited_for(thread)
    if holds_nothing and (not engine.scope.records or engine.scope.runs_once):
        return True
    gone = "" if version.frozen_by else ", and what ctx.freeze returned is gone: keep it until then"
    raise AccessError(
        f"{data.describe()} is frozen for {MODE_NAMES[version.frozen]}; task {task.label()} cannot open it for "
        f"{mode} before unfreeze{gone}"
    )
