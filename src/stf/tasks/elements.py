"""Elements: whether those of logical data are of the type that an annotation asks for."""

from __future__ import annotations

from typing import Any

import numpy as np

from stf.values.containers import data_in

__all__ = ["wrong_elements"]


def wrong_elements(value: Any, element: Any) -> Any:
    """Return the first data in an argument whose elements are of another type, a dtype or an abstract one.

    None if all are.
    """
    for handle in data_in([value]):
        layout = handle.core.layout
        if layout.interface is None and not handle.core.token and not is_of(layout.dtype, element):
            return handle
    return None


def is_of(dtype: np.dtype[Any], element: Any) -> bool:
    """Return whether a dtype is the one that was asked for, or of an abstract type."""
    return np.issubdtype(dtype, element) if isinstance(element, type) else dtype == element
