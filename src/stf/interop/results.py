"""What may be stored in an array: one rule for every library, for what a body returns, for fills and for copies.

It is what NumPy's ``y[...] = value`` does without loss: dtypes that cast safely, shapes that broadcast. Numbers of
Python have no dtype, so they take that of the array, in lists too; integers must be in its range. So do single floating
numbers of a library, since NumPy's are Python's own as well. Everything else is refused, also where NumPy would wrap,
round or drop a mask.

Copies from one logical data to another may round, since the user chose both dtypes: `converts`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stf.interop.dtypes import dtype_of, is_narrow

__all__ = [
    "check_number",
    "check_result",
    "check_value",
    "converts",
    "holds",
    "is_too_large",
    "kind_of_number",
    "must_have_no_mask",
    "surely_holds",
]

NUMBERS = {bool: "b", int: "i", float: "f", complex: "c"}  # float64 and complex128 of NumPy are some of these
TAKERS = {"b": "?biufcO", "i": "iufcO", "f": "fcO", "c": "cO"}  # kinds of dtypes that take them; V: ml_dtypes' floats


def check_result(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], task: str, position: int) -> None:
    """Raise unless a result can be stored in an array of a shape and a dtype without loss.

    Raises
    ------
    TypeError
        Its dtype does not cast safely.
    OverflowError
        It is a number of Python that the dtype does not hold.
    ValueError
        Its shape does not broadcast.
    """
    check_value(value, dtype, f"result {position} of task '{task}'", shape)


def check_value(value: Any, dtype: np.dtype[Any], label: str, shape: tuple[int, ...] | None = None) -> None:
    """Raise as `check_result` unless an array of a dtype, and of a shape if it is given, takes a value without loss."""
    kind = kind_of_number(value)
    if kind is not None:
        check_number(value, kind, dtype, label)
        return
    if type(value) is not np.ndarray:
        must_have_no_mask(value, label)
    if isinstance(value, (list, tuple)):
        numbers = np.asarray(value)
        if (
            numbers.dtype.kind == "f" and dtype.kind in "iu"
        ):  # NumPy rounds large integers, which it finds beside others
            numbers = np.asarray(value, object)
        if shape is not None:
            check_shape(numbers.shape, shape, label)
        check_numbers(numbers, dtype, label)
        return
    given = getattr(value, "dtype", None)
    given = np.asarray(value).dtype if given is None else dtype_of(given)
    extents = tuple(getattr(value, "shape", ()))
    if shape is not None:
        check_shape(extents, shape, label)
    if not holds(dtype, given, extents):
        raise TypeError(
            f"{label} has dtype {given}, its data has {dtype}, which does not hold all of its values; convert it with "
            "astype (with to, if it is a tensor)"
        )


def must_have_no_mask(value: Any, label: str) -> None:
    """Raise TypeError for a masked array, or a list with some: arrays would get what is under the mask."""
    parts = value if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        raise TypeError(
            f"{label} has a mask, which its data cannot have; give x.filled(value), or x.data and x.mask as data of "
            "their own"
        )


def check_numbers(numbers: np.ndarray[Any, Any], dtype: np.dtype[Any], label: str) -> None:
    """Raise unless a dtype takes all numbers of a list, which NumPy has made an array of."""
    kind = numbers.dtype.kind
    if numbers.size == 0 or kind == "O" or kind not in "biufc":
        for one in numbers.flat:
            check_value(one, dtype, label)
        return
    if kind == "c":
        finite = numbers[np.isfinite(numbers)]
        chosen = [finite[np.argmax(np.abs(part))] for part in (finite.real, finite.imag)] if finite.size else []
        chosen = chosen or [numbers.flat[0]]
    elif kind == "f":
        finite = numbers[np.isfinite(numbers)]
        chosen = [finite[np.argmax(np.abs(finite))] if finite.size else numbers.flat[0]]
    else:
        chosen = [numbers.min(), numbers.max()]
    for one in chosen:
        check_number(one.item(), "i" if kind == "u" else kind, dtype, label)


def kind_of_number(value: Any) -> str | None:
    """Return which number of Python's a value is, as dtypes call it; None for what is none."""
    return next((kind for number, kind in NUMBERS.items() if isinstance(value, number)), None)


def holds(dtype: np.dtype[Any], given: np.dtype[Any], extents: tuple[int, ...] = ()) -> bool:
    """Return whether a dtype takes an array of another without loss, or one floating number, which may be rounded."""
    if not extents and given.kind in "fcV":
        return converts(dtype, given)
    return given == dtype or bool(np.can_cast(given, dtype, "safe"))


def converts(dtype: np.dtype[Any], given: np.dtype[Any]) -> bool:
    """Return whether a dtype takes values of another of the same kind or a lower one, which may be rounded.

    The floats of ml_dtypes count as floats; NumPy would take them for any kind, and drop imaginary parts.
    """
    if given == dtype:
        return True
    source, target = (np.dtype(np.float16) if is_narrow(kind) else kind for kind in (given, dtype))
    return bool(np.can_cast(source, target, "same_kind"))


def check_number(value: Any, kind: str, dtype: np.dtype[Any], label: str) -> None:
    """Raise unless a dtype takes a number of Python."""
    is_narrow = dtype.kind == "V"
    if dtype.kind not in TAKERS[kind] and not (is_narrow and kind in "bif"):
        raise TypeError(
            f"{label} is the {type(value).__name__} {value!r}, its data has dtype {dtype}; convert it, for example by "
            f"{'round' if dtype.kind in 'iu' and kind == 'f' else f'np.{dtype}'}(...)"
        )
    if kind == "i" and dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise OverflowError(
            f"{label} is {value}, and its data has dtype {dtype}, which goes from {np.iinfo(dtype).min} to "
            f"{np.iinfo(dtype).max}; use a wider dtype, or np.clip"
        )
    if kind in "ifc" and (is_narrow or dtype.kind in "fc") and is_too_large(value, dtype):
        raise OverflowError(f"{label} is {value}, which is infinite in its data's dtype {dtype}; use a wider dtype")


def is_too_large(value: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether a finite number is none in a floating dtype."""
    try:
        with np.errstate(over="ignore"):
            wide = np.complex128 if isinstance(value, complex) else np.float64
            stored = complex(np.asarray(value, wide).astype(dtype))
    except OverflowError:  # an integer of more than 1,000 bits
        return True
    return math.isfinite(abs(complex(value))) and not (math.isfinite(stored.real) and math.isfinite(stored.imag))


def surely_holds(dtype: np.dtype[Any], value: Any) -> bool:
    """Return whether a dtype takes a number for certain, at a glance; False says nothing."""
    kind, nbytes = dtype.kind, dtype.itemsize
    if type(value) is float:
        return kind == "f" and dtype.isbuiltin == 1 and (nbytes >= 8 or (nbytes == 4 and -3.4e38 < value < 3.4e38))
    if type(value) is int:
        return (kind == "i" and -1 << 8 * nbytes - 1 <= value < 1 << 8 * nbytes - 1) or (
            kind == "f" and nbytes >= 8 and -1e300 < value < 1e300
        )
    return False


def check_shape(given: tuple[int, ...], shape: tuple[int, ...], label: str) -> None:
    """Raise unless a shape broadcasts to that of the data; as in an assignment, leading ones count for nothing."""
    if given == shape:
        return
    extra = len(given) - len(shape)
    fits = all(size == 1 for size in given[:extra]) if extra > 0 else True
    pairs = zip(reversed(given), reversed(shape), strict=False)
    if not fits or any(mine not in (1, size) for mine, size in pairs):
        raise ValueError(f"{label} has shape {given}, which does not broadcast to the shape of its data, {shape}")
