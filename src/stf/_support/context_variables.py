"""The context variables of who submits work, which its bodies are to see on whatever thread they run.

`numpy.errstate` and `decimal.localcontext` are such variables. A worker has none of its own, so where its user has none
either, which costs a few nanoseconds to know, there is nothing to do.
"""

from __future__ import annotations

import contextvars
import sys
from typing import Any

import cython


def variables_here() -> Any:
    """Return the context variables of this thread, as they are now; None if it has none."""
    if cython.compiled:
        return stf_variables()  # type: ignore[name-defined]
    variables = contextvars.copy_context()
    return variables if len(variables) else None


def has_own_state() -> bool:
    """Return False where nobody has left anything on this thread: context variables, thread-local values, a trace.

    It takes a nanosecond. Uncompiled, thread-local values are not seen.
    """
    if cython.compiled:
        return stf_has_own()  # type: ignore[name-defined, no-any-return]
    return len(contextvars.copy_context()) > 0 or sys.gettrace() is not None or sys.getprofile() is not None
