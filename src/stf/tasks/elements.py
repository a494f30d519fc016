"""Elements: whether those of logical data are of the type that an annotation asks for."""

from __future__ import annotations

from typing import Any

import numpy as np

from stf.tasks.annotations import element_of
from stf.values.containers import data_in

__all__ = ["must_have_elements", "wrong_elements"]


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


def must_have_elements(task: Any, index: int, dtype: Any) -> None:
    """Raise TypeError unless the elements of an access of a task are of a dtype."""
    first, count = (index, 1) if task.groups is None else task.groups[index][:2]
    element = element_of(dtype)
    element = np.dtype(dtype) if element is None else element
    for access in task.accesses[first : first + count]:
        wrong = wrong_elements(access, element)
        if wrong is not None:
            raise TypeError(
                f"task {task.label()}: access {index} was asked for with elements of type "
                f"{getattr(element, '__name__', element)}, and is {wrong.core.describe()}"
            )
