"""Fills and copies as steps of a loop: what their bodies do, without Python where arrays have no gaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from stf._drivers.base import address_of
from stf._port.native import (
    COPY,
    FILL,
    PYTHON_NS,
    Address,
    NativeBody,
    NativeCall,
    NotThisTimeError,
    Number,
    block_of,
    python_call,
)
from stf.interop.dtypes import dtype_of

__all__ = ["native_copy", "native_fill", "native_fill_with_number"]

MEMORY_NS = 0.05  # of a byte that is written


def native_fill(fill: Any, args: tuple[Any, ...]) -> NativeBody:
    """Return the steps of the body `fill`, which puts a value into an array."""
    target, value = args
    if not is_plain(target) or np.ndim(value):
        return NativeBody([[python_call(fill, args)]], PYTHON_NS + MEMORY_NS * target.nbytes)
    return NativeBody([[fill_call(target, np.asarray(value, target.dtype))]], MEMORY_NS * target.nbytes)


def native_fill_with_number(fill: Any, must_hold: Any, args: tuple[Any, ...]) -> NativeBody:
    """Return the steps of a fill whose value is a parameter; `must_hold` raises for a value that it does not take."""
    target, value = args
    if not is_plain(target) or target.itemsize > 8:
        return NativeBody([[python_call(fill, args)]], PYTHON_NS + MEMORY_NS * target.nbytes)
    dtype = target.dtype
    wanted = type(value)

    def packed(value: Any) -> int:
        try:
            if type(value) is not wanted:
                raise NotThisTimeError
            must_hold(value, np.asarray(value), dtype_of(dtype))
            return words_of(np.asarray(value, dtype))[0]
        except (TypeError, ValueError, OverflowError):  # played, it says so
            raise NotThisTimeError from None

    call = fill_call(target, np.asarray(value, dtype))
    return NativeBody([[call._replace(numbers=(Number(4, 1, packed),))]], MEMORY_NS * target.nbytes)


def fill_call(target: Any, content: np.ndarray) -> NativeCall:
    """Return the step that fills an array without gaps."""
    slots = [0, address_of(target), target.size, target.itemsize, *words_of(content)]
    return NativeCall(FILL, slots, addresses=(Address(1, 0),))


def words_of(content: np.ndarray) -> list[int]:
    """Return the bytes of a number in words of 8."""
    text = content.tobytes()
    return [int.from_bytes(text[i : i + 8].ljust(8, b"\0"), "little", signed=True) for i in range(0, len(text), 8)]


def native_copy(copy: Any, args: tuple[Any, ...]) -> NativeBody:
    """Return the steps of the body `copy`: the first half of the arrays are copied to the others."""
    half = len(args) // 2
    nbytes = sum(array.nbytes for array in args[half:])
    calls = []
    for i, (source, target) in enumerate(zip(args[:half], args[half:], strict=True)):
        block = block_of(target.shape, target.strides, source.strides, target.itemsize)
        if source.dtype != target.dtype or target.dtype.hasobject or block is None:
            return NativeBody([[python_call(copy, args)]], PYTHON_NS + MEMORY_NS * nbytes)
        slots = [0, address_of(target), address_of(source), *block]
        calls.append(NativeCall(COPY, slots, addresses=(Address(1, half + i), Address(2, i))))
    return NativeBody([[call] for call in calls], MEMORY_NS * nbytes / half)


def is_plain(array: Any) -> bool:
    """Return whether an array has no gaps, and elements that a step can fill: of so many bytes, and aligned."""
    whole = array.flags.c_contiguous or array.flags.f_contiguous
    return bool(whole and array.flags.aligned and array.itemsize in (1, 2, 4, 8, 16) and not array.dtype.hasobject)
