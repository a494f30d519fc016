"""NumPy's functions of numbers that numba-cuda lacks, for the code of kernels: by ``math``, or NVIDIA's libdevice."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from stf.kernels.compile.python import intrinsics

__all__ = ["in_kernels"]
intrinsics()
from numba.cuda import libdevice  # noqa: E402


def clip(value: Any, low: Any, high: Any) -> Any:
    """Return a number, but no less than `low` and no more than `high`."""
    return min(max(value, low), high)


def sign(value: Any) -> float:
    """-1, 0 or 1 as a float; a NaN is one."""
    if value > 0:
        return 1.0
    if value < 0:
        return -1.0
    return value * 1.0


def logaddexp(one: Any, other: Any) -> Any:
    """Return the logarithm of a sum of exponentials."""
    return max(one, other) + math.log1p(math.exp(-abs(one - other)))


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.absolute: lambda x: abs(x),
    np.add: lambda x, y: x + y,
    np.cbrt: lambda x: libdevice.cbrt(x),
    np.ceil: lambda x: libdevice.ceil(x),
    np.clip: clip,
    np.copysign: lambda x, y: math.copysign(x, y),
    np.exp: lambda x: math.exp(x),
    np.exp2: lambda x: libdevice.exp2(x),
    np.expm1: lambda x: math.expm1(x),
    np.fabs: lambda x: math.fabs(x),
    np.float_power: lambda x, y: float(x) ** float(y),
    np.floor: lambda x: libdevice.floor(x),
    np.floor_divide: lambda x, y: x // y,
    np.fmod: lambda x, y: math.fmod(x, y),
    np.isfinite: lambda x: not math.isinf(x) and x == x,
    np.isinf: lambda x: math.isinf(x),
    np.log1p: lambda x: math.log1p(x),
    np.logaddexp: logaddexp,
    np.multiply: lambda x, y: x * y,
    np.negative: lambda x: -x,
    np.positive: lambda x: x,
    np.power: lambda x, y: x**y,
    np.reciprocal: lambda x: 1 / x,
    np.remainder: lambda x, y: x % y,
    np.rint: lambda x: libdevice.rint(x),
    np.sign: sign,
    np.signbit: lambda x: math.copysign(1.0, x) < 0,
    np.sqrt: lambda x: math.sqrt(x),
    np.square: lambda x: x * x,
    np.subtract: lambda x, y: x - y,
    np.trunc: lambda x: libdevice.trunc(x),
    np.where: lambda condition, x, y: x if condition else y,
}


class ScalarNumpy(types.ModuleType):
    """NumPy as kernels see it."""

    def __getattr__(self, name: str) -> Any:
        found = in_kernels(getattr(np, name))
        setattr(self, name, found)
        return found


NUMPY = ScalarNumpy("numpy")


def in_kernels(value: Any) -> Any:
    """NumPy, or a function of it, as kernels see it; other values as they are."""
    if value is np:
        return NUMPY
    try:
        function = FUNCTIONS.get(value)
    except TypeError:
        return value
    return value if function is None else compiled(function)


@functools.cache
def compiled(function: Callable[..., Any]) -> Any:
    """Return a function that kernels call."""
    from numba import cuda

    return cuda.jit(device=True)(function)
