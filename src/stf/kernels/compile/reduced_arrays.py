"""Arrays that kernels reduce into, as numba-cuda sees them: reading gives the neutral element, writing combines.

So ``h[i] += 1`` adds 1 to what all threads have added, by an atomic operation, and ``h[i] = max(h[i], x)`` is right,
too. The body is the one that a CPU runs on a copy of its own.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from numba.cuda import cgutils, extending, models, types
from numba.cuda import jit as cuda_jit

from stf.kernels.compile.python import intrinsics

__all__ = ["maker_of", "whole"]


class Reduced(types.Type):  # type: ignore[misc]
    """The type of such an array."""

    def __init__(self, array: Any, operation: str, neutral: Any) -> None:
        super().__init__(f"Reduced({array}, {operation}, {neutral})")
        self.array = array
        self.operation = operation
        self.neutral = neutral


@extending.register_model(Reduced)
class ReducedModel(models.StructModel):  # type: ignore[misc]
    """It is made of the array."""

    def __init__(self, manager: Any, kind: Reduced) -> None:
        super().__init__(manager, kind, [("array", kind.array)])


@functools.lru_cache(maxsize=None, typed=True)
def maker_of(operation: str, neutral: Any) -> Any:
    """A function for kernels that makes such an array of an array; `operation` is one of ``numba.cuda.atomic``."""

    @extending.intrinsic
    def reduced(context: Any, array: Any) -> Any:
        kind = Reduced(array, operation, neutral)

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            made = cgutils.create_struct_proxy(kind)(context, builder)
            made.array = args[0]
            return made._getvalue()

        return kind(array), code

    return reduced


@extending.intrinsic
def whole(context: Any, reduced: Any) -> Any:
    """The array that it is made of."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.create_struct_proxy(reduced)(context, builder, value=args[0]).array

    return reduced.array(reduced), code


@extending.overload(operator.getitem)
def get_item(reduced: Any, index: Any) -> Any:
    """Reading: the neutral element."""
    if not isinstance(reduced, Reduced):
        return None
    neutral = reduced.neutral

    def implementation(reduced: Any, index: Any) -> Any:
        return neutral

    return implementation


@extending.overload(operator.setitem)
def set_item(reduced: Any, index: Any, value: Any) -> Any:
    """Writing: combine."""
    if not isinstance(reduced, Reduced):
        return None
    combine = combining(reduced.operation)

    def implementation(reduced: Any, index: Any, value: Any) -> Any:
        combine(whole(reduced), index, value)

    return implementation


@functools.cache
def combining(operation: str) -> Any:
    """A function for kernels that combines an item of an array with a value."""
    scope = {"cuda": intrinsics()}
    exec(f"def combine(array, index, value):\n    cuda.atomic.{operation}(array, index, value)\n", scope)
    return cuda_jit(device=True)(scope["combine"])


@extending.overload_attribute(Reduced, "size")
def size_of(reduced: Any) -> Any:
    """The number of elements."""

    def implementation(reduced: Any) -> Any:
        return whole(reduced).size

    return implementation


@extending.overload_attribute(Reduced, "shape")
def shape_of(reduced: Any) -> Any:
    """The extents."""

    def implementation(reduced: Any) -> Any:
        return whole(reduced).shape

    return implementation


@extending.overload_attribute(Reduced, "ndim")
def ndim_of(reduced: Any) -> Any:
    """The number of axes."""

    def implementation(reduced: Any) -> Any:
        return whole(reduced).ndim

    return implementation


@extending.overload(len)
def length_of(reduced: Any) -> Any:
    """The first extent."""
    if not isinstance(reduced, Reduced):
        return None

    def implementation(reduced: Any) -> Any:
        return len(whole(reduced))

    return implementation
