"""Element types as NumPy, torch, ml_dtypes and DLPack call them.

NumPy has no bfloat16 and no float8; `ml_dtypes` adds them, and JAX, CuPy and cuda.core use those too. They lie in
memory as unsigned integers of their size, the *carrier*, where a library or protocol does not know them.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

PLAIN = frozenset(
    {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    }
)
# DLDataTypeCode of dlpack.h, version 1.3
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
NARROW_CODES = {
    "bfloat16": 4,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
NARROW = frozenset(NARROW_CODES)
KINDS = {code: kind for kind, code in CODES.items()}
NAMES = {code: name for name, code in NARROW_CODES.items()}


def dtype_of(kind: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of what a user calls an element type: NumPy's, torch's, JAX's, ml_dtypes', or a name.

    Raises
    ------
    ImportError
        It is one that NumPy has only with ml_dtypes.
    TypeError
        It is none, or one of torch that has no counterpart.
    """
    if isinstance(kind, np.dtype):
        found = kind
    elif isinstance(kind, str):
        found = narrow(kind) if kind in NARROW else np.dtype(kind)
    elif type(kind).__module__ == "torch":
        found = dtype_of_torch(kind)
    else:
        found = np.dtype(kind)
    return found if found.itemsize else np.empty(0, found).dtype  # text of no length has the one that NumPy gives it


def narrow(name: str) -> np.dtype[Any]:
    """Return a dtype that ml_dtypes adds to NumPy."""
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(f"{name} is a type that NumPy has only with ml_dtypes: pip install ml_dtypes") from error
    return np.dtype(getattr(ml_dtypes, name))


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of ml_dtypes' floats, which many libraries do not know."""
    if dtype.kind not in "Vf" or dtype.isbuiltin == 1:  # of NumPy itself; its name would have to be made
        return False
    return dtype.name in NARROW


def carrier(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Unsigned integers of the same size for a narrow dtype, else the dtype itself."""
    return np.dtype(f"u{dtype.itemsize}") if is_narrow(dtype) else dtype


@functools.cache
def dtype_of_torch(kind: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of a ``torch.dtype``."""
    name = str(kind).removeprefix("torch.")
    if name in NARROW:
        return narrow(name)
    if name in PLAIN:
        return np.dtype(name)
    raise TypeError(f"logical data cannot have elements of {kind}; convert the tensor, or view it as torch.uint8")


@functools.cache
def torch_dtype(dtype: np.dtype[Any]) -> tuple[Any, np.dtype[Any]]:
    """Return the ``torch.dtype`` of a NumPy dtype, and the dtype under which torch takes over such memory."""
    kind = getattr(sys.modules["torch"], dtype.name, None) if dtype.name in PLAIN | NARROW else None
    if kind is None or not dtype.isnative:
        raise TypeError(f"torch has no tensors of {dtype}; use NumPy or CuPy arrays, or register another view of it")
    return kind, carrier(dtype)


def dlpack_code(dtype: np.dtype[Any]) -> tuple[int, int]:
    """(type code, bits) of a dtype in DLPack; BufferError if it has none."""
    code = NARROW_CODES.get(dtype.name) if is_narrow(dtype) else CODES.get(dtype.kind)
    if code is None or not dtype.isnative:
        raise BufferError(f"DLPack cannot say what {dtype} is; use the array interface, or a view of it")
    return code, 8 * dtype.itemsize


def dtype_of_dlpack(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    """Return the NumPy dtype that DLPack describes."""
    if lanes == 1 and code in NAMES and bits == (16 if code == 4 else 8):
        return narrow(NAMES[code])
    if lanes == 1 and code in KINDS and bits % 8 == 0 and bits > 0:
        return np.dtype(np.bool_ if KINDS[code] == "b" else f"{KINDS[code]}{bits // 8}")
    raise TypeError(f"logical data cannot have elements of DLPack's type (code {code}, {bits} bits, {lanes} lanes)")
