"""The context variables that travel with a body: the error states of NumPy, and the context of `decimal`.

No other context variable can be pickled. A body that reads one itself is refused for that, as for a lock.
"""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np

NUMPY, DECIMAL = "numpy.ufunc.extobj", "decimal_context"


def carried(variables: Any) -> tuple[Any, Any, Any] | None:
    """Return what travels of context variables: NumPy's error states, what it calls for them, `decimal`'s context."""
    known = {variable.name: variable for variable in variables}
    numbers = variables.get(known[DECIMAL]) if DECIMAL in known else None
    if NUMPY not in known:
        return None if numbers is None else (None, None, numbers)
    inner = variables.copy()  # since who runs a body may be within these variables
    return inner.run(np.geterr), inner.run(np.geterrcall), numbers


def run_within(fn: Any, surroundings: tuple[Any, Any, Any], run: Any, *rest: Any) -> None:
    """Run a body with the variables that came with it."""
    errors, called, numbers = surroundings
    with np.errstate(**errors or {}, call=called), decimal.localcontext(numbers):
        run(fn, *rest)
