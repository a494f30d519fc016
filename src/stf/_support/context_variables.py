"""The context variables of who submits work, which its bodies are to see on whatever thread they run.

`numpy.errstate` and `decimal.localcontext` are such variables. A worker has none of its own, so where its user has none
either, which costs a few nanoseconds to know, there is nothing to do.
"""

from __future__ import annotations

import contextvars
from typing import Any

import cython


def variables_here() -> Any:
    """Return the context variables of this thread, as they are now; None if it has none."""
    if cython.compiled:
        return stf_variables()  # type: ignore[name-defined]
    variables = contextvars.copy_context()
    return variables if len(variables) else None


def may_have_variables() -> bool:
    """Return False where this thread has no context variables, which takes a nanosecond."""
    if cython.compiled:
        return stf_has_context()  # type: ignore[name-defined, no-any-return]
    return len(contextvars.copy_context()) > 0
