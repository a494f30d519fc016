"""Arrays of memory that holds no values, as plans have it: a shape, a dtype, and an error for who asks for a value.

Bodies of tasks get them and are not run. The body of a with-block is run where it stands: it may write into such an
array, cut it, and compute with it, and the result is one too. What would need a value raises `PlanError`: a branch, a
number, an array of NumPy's.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from stf._port.remote_arrays import Sized
from stf._support.call_sites import line_of
from stf.errors import PlanError, no_value


class UnknownArray(NDArrayOperatorsMixin, Sized):
    """The array of logical data whose values nobody has computed; operators are ufuncs, as NumPy's."""

    __array_priority__ = 1000.0

    def __init__(self, name: str, shape: tuple[int, ...], dtype: Any) -> None:
        self._name, self.shape, self.dtype = name, tuple(shape), dtype

    @property
    def T(self) -> UnknownArray:
        """The transposed array."""
        return self._like(self.shape[::-1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> UnknownArray:
        return self._like(np.broadcast_to(np.empty((), np.uint8), self.shape)[index].shape)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write what is not kept."""

    def fill(self, value: Any) -> None:
        """Write what is not kept."""

    def reshape(self, *shape: Any) -> UnknownArray:
        """Return the array in another shape."""
        return self._like(np.broadcast_to(np.empty((), np.uint8), self.shape).reshape(*shape).shape)

    def astype(self, dtype: Any) -> UnknownArray:
        """Return the array with another dtype."""
        return UnknownArray(self._name, self.shape, np.dtype(dtype))

    view = astype  # of the same size

    def _like(self, shape: tuple[int, ...]) -> UnknownArray:
        return UnknownArray(self._name, shape, self.dtype)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise PlanError(no_value(self._name, line_of(sys._getframe())))

    copy = item = tolist = tobytes = __array__ = __array_function__ = __dlpack__ = _refuse
    __bool__ = __float__ = __int__ = __index__ = __complex__ = __iter__ = __contains__ = _refuse
    sum = mean = max = min = any = all = dot = _refuse
    ctypes = property(_refuse)  # there is no address

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Return an unknown result; into arrays of NumPy's nothing is written, so that is refused."""
        out = options.get("out") or ()
        if method != "__call__" or any(type(array) is not UnknownArray for array in out):
            self._refuse()
        return out[0] if out else self._result(*inputs)

    def _result(self, *operands: Any) -> UnknownArray:
        shape = np.broadcast_shapes(
            *(np.shape(one) if type(one) is not UnknownArray else one.shape for one in operands)
        )
        return self._like(shape)

    __eq__, __ne__, __hash__ = object.__eq__, object.__ne__, object.__hash__
    __rmatmul__ = __divmod__ = __rdivmod__ = None  # type: ignore[assignment]  # of no shape that is known, or of two

    def __matmul__(self, other: Any) -> UnknownArray:
        return self._like((*self.shape[:-1], *other.shape[1:]))

    def __repr__(self) -> str:
        return f"<array of '{self._name}' without values, shape {self.shape}, {self.dtype}>"


def view_without_values(replica: Any, given: dict[str, Any]) -> Any:
    """Return the array of a replica of which no values are known, or one of the value that was given for its data."""
    layout = replica.layout
    name = replica.data.name or replica.data.label()
    if name in given:
        return np.full(layout.shape, given[name], layout.dtype)
    return UnknownArray(name, layout.shape, layout.dtype)
