"""Parameters of task functions: what their annotations say, and whether data have the elements that these ask for."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import numpy as np

from stf._engine.access import Access
from stf.tasks.annotations import element_of, injected_kind, resolve_annotation
from stf.values.containers import data_in, items_of

__all__ = ["is_access", "mode_of_accesses", "modes_in", "must_have_elements", "read_annotation", "wrong_elements"]

KINDS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
}


def modes_in(fn: Any) -> list[int]:
    """Return the access mode of each parameter; none, if the function takes its task, and may write by way of that."""
    known = [read_annotation(fn, *item) for item in inspect.signature(fn).parameters.items()]
    return [] if any(kind == "task" for _, kind, *_ in known) else [mode for _, _, mode, *_ in known]


def read_annotation(
    fn: Any, name: str, parameter: inspect.Parameter
) -> tuple[str, str, int, Any, str | None, bool, Any]:
    """Name, kind, access mode, operator, library, whether None does as well, and type of the elements.

    Without a mode the last says whether it takes data as they are.
    """
    kind = KINDS.get(parameter.kind, "plain")
    annotation = parameter.annotation
    while isinstance(annotation, str):  # twice, where a string is also postponed
        annotation = resolve_annotation(fn, annotation)
    injected = injected_kind(annotation)
    if injected is not None:
        return name, injected, 0, None, None, False, None
    kinds_of_union = typing.get_args(annotation) if typing.get_origin(annotation) is typing.Union else ()
    modes = [part for part in kinds_of_union if hasattr(part, "_stf_mode")]
    annotation = modes[0] if len(modes) == 1 else annotation
    optional = parameter.default is None or type(None) in kinds_of_union or getattr(annotation, "optional", False)
    mode = getattr(annotation, "_stf_mode", 0)
    if not mode:
        return name, kind, 0, None, None, False, getattr(annotation, "_stf_data", None)
    op, library, element = [getattr(annotation, field, None) for field in ("op", "library", "element")]
    if mode == 4 and op is None:
        raise TypeError(
            f"parameter '{name}' of task '{fn.__name__}' needs an operator: stf.Accumulate[stf.reducer.sum]"
        )
    return name, kind, mode, op, library, optional, element


def is_access(value: Any) -> bool:
    """Return whether an argument says how data are used, of one array or of several."""
    return isinstance(value, Access) or (hasattr(value, "expand") and hasattr(value, "rebuild"))


def mode_of_accesses(value: Any, parameter: Any) -> tuple[int, Any]:
    """How accesses that are the argument of a parameter without an annotation use data, and by which operator."""
    given = items_of(value) if parameter.kind in ("*", "**") else [value]
    mode, op = 0, None
    for access in given if not parameter.mode else ():
        if is_access(access):
            mode, op = mode | access.mode, getattr(access, "op", None)
    return mode, op


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
