"""Indices out of bounds, told by name: where a compiled loop found one (``STF_VALIDATE``), its body runs uncompiled.

Compilers say no more than that there was one. So the elements of the piece run one after the other, on copies of the
arrays, which know their names; the first index that is out of bounds is told.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["Explanation"]

PATIENCE_S = 2.0  # for elements that run uncompiled


@dataclasses.dataclass(eq=False)
class Explanation:
    """Finds the index that is out of bounds.

    Attributes
    ----------
    body : function
        Takes indices, arrays, then further arguments.
    kinds : tuple of str
        What the body gets for each array; see `Form`.
    names, values : list
        The variables around the body: of its closure, then global ones.
    coordinates : callable or None
        A user's function from the number of an element, and further arguments, to its indices.
    parameters : tuple
        These arguments.
    """

    body: types.FunctionType
    kinds: tuple[str, ...]
    names: list[str]
    values: list[Any]
    coordinates: Callable[..., Any] | None = None
    parameters: tuple[Any, ...] = ()

    def of(self, error: IndexError, box: tuple[range, ...], arrays: list[Any], extra: tuple[Any, ...]) -> IndexError:
        """Return the error with a name and an index; the one that is given where none is found."""
        count = len(extra) - len(self.names)
        body = self.body_with(extra[count:])
        code = body.__code__
        ndim = code.co_argcount - count - len(arrays)
        given: list[Any] = []
        for name, array, kind in zip(code.co_varnames[ndim:], arrays, self.kinds, strict=False):
            given.append(array[()] if kind == "value" else named(array, name))
        end = time.monotonic() + PATIENCE_S
        try:
            with np.errstate(all="ignore"):
                for indices in itertools.product(*box):
                    if self.coordinates is not None:
                        at = self.coordinates(*indices, *self.parameters)
                        indices = at if isinstance(at, tuple) else (at,)
                    body(*indices, *given, *extra[:count])
                    if time.monotonic() > end:
                        break
        except OutOfBoundsError as found:
            line = line_in(found, code)
            return IndexError(f"{found} (line {line}), in the element {indices if len(indices) > 1 else indices[0]}")
        except Exception:  # it does not run uncompiled
            return error
        return error

    def body_with(self, numbers: tuple[Any, ...]) -> types.FunctionType:
        """Return the body, with the variables around it as they were when it was submitted."""
        values = [v if isinstance(v, types.FunctionType) else n for v, n in zip(self.values, numbers, strict=True)]
        free = len(self.body.__code__.co_freevars)
        cells = tuple(types.CellType(value) for value in values[:free])
        around = {
            **self.body.__globals__,
            "_stf_numpy": np,
            **dict(zip(self.names[free:], values[free:], strict=True)),
        }
        return types.FunctionType(self.body.__code__, around, self.body.__name__, None, cells or None)


class OutOfBoundsError(Exception):
    """An index is out of bounds."""


class NamedArray(np.ndarray[Any, Any]):
    """An array that says its name when an index is out of bounds."""

    _stf_name = ""

    def __array_finalize__(self, source: Any) -> None:
        self._stf_name = getattr(source, "_stf_name", "")

    def __getitem__(self, index: Any) -> Any:
        self._check(index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index)
        super().__setitem__(index, value)

    def _check(self, index: Any) -> None:
        """Raise OutOfBoundsError for an integer that is none of an axis."""
        for number, extent in zip(index if isinstance(index, tuple) else (index,), self.shape, strict=False):
            if isinstance(number, int | np.integer) and not -extent <= number < extent:
                text = ", ".join(map(str, index)) if isinstance(index, tuple) else index
                raise OutOfBoundsError(f"index {text} is out of bounds for '{self._stf_name}' of shape {self.shape}")


def named(array: Any, name: str) -> NamedArray:
    """Return a copy of an array."""
    found = array.copy().view(NamedArray)
    found._stf_name = name
    return found  # type: ignore[no-any-return]


def line_in(error: BaseException, code: types.CodeType) -> int:
    """Return the line of a function in which an error came up, there or in a function that it called."""
    trace, line = error.__traceback__, code.co_firstlineno
    while trace is not None:
        line = trace.tb_lineno if trace.tb_frame.f_code is code else line
        trace = trace.tb_next
    return line
