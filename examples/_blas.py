"""Double-precision BLAS and LAPACK on NumPy tiles, with the GIL released.

SciPy's own wrappers (``scipy.linalg.blas``, ``scipy.linalg.lapack``) hold the GIL while they compute, so
tasks that call them never overlap. This module takes the addresses of the same routines from
``scipy.linalg.cython_blas`` and ``cython_lapack``, where SciPy publishes them for Cython users, and calls
them through ctypes, which releases the GIL around a foreign call.

Every function works in place on tiles with a unit stride along one axis, rows (C order) or columns (Fortran
order), with any leading dimension: a tile of a larger matrix is used where it lies. BLAS reads columns; a
row-major matrix is its transpose there, so a row-major output is computed as the transposed problem and
nothing is copied.

Example
-------
>>> import numpy as np
>>> a = np.array([[4.0, 2.0], [2.0, 3.0]])
>>> potrf(a)
>>> bool(np.allclose(np.tril(a) @ np.tril(a).T, [[4, 2], [2, 3]]))
True
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

__all__ = [
    "blas_threads",
    "core_count",
    "empty_matrix",
    "gemm",
    "gemv",
    "potrf",
    "syrk",
    "thread_control",
    "trsm",
    "trsv",
]

_FLOAT64 = np.dtype(np.float64)


def potrf(a: np.ndarray) -> None:
    """Factor the symmetric positive definite `a` as L Lᵀ, in place.

    Only the lower triangle is read and written. Raises `numpy.linalg.LinAlgError` where `a` is not positive definite.
    """
    if a.shape[0] != a.shape[1]:
        raise ValueError(f"potrf needs a square tile, got shape {a.shape}")
    pointer, leading, by_rows = _matrix(a, "a", output=True)
    info = ctypes.c_int(0)
    # The lower triangle by rows is the upper one by columns: there A = Uᵀ U with U = Lᵀ.
    _dpotrf(b"U" if by_rows else b"L", _int(a.shape[0]), pointer, _int(leading), ctypes.byref(info))
    if info.value > 0:
        raise np.linalg.LinAlgError(
            f"tile of shape {a.shape} is not positive definite: its leading minor of order {info.value} is not"
            f" (LAPACK dpotrf, info = {info.value}); add to the diagonal, or check the covariance"
        )
    if info.value < 0:
        raise ValueError(f"LAPACK dpotrf refused its argument {-info.value} for a tile of shape {a.shape}")


def trsm(triangle: np.ndarray, b: np.ndarray, *, side: str = "left", transposed: bool = False) -> None:
    """Solve with a lower triangle, in place: ``b = L⁻¹ b`` (left) or ``b = b L⁻¹`` (right).

    Where `transposed`, Lᵀ stands for L.
    """
    rows, columns = b.shape
    order = {"left": rows, "right": columns}[side]
    if triangle.shape != (order, order):
        raise ValueError(
            f"trsm on the {side} of {b.shape} needs a triangle of shape {(order, order)}, got {triangle.shape}"
        )
    b_pointer, b_leading, b_by_rows = _matrix(b, "b", output=True)
    pointer, leading, by_rows = _matrix(triangle, "triangle")
    if b_by_rows:  # the transposed problem: the other side, the other triangle
        side = "right" if side == "left" else "left"
        rows, columns = columns, rows
        transposed = not transposed
    # BLAS sees a row-major L as an upper triangle that holds Lᵀ.
    uplo, transa = (b"U", not transposed) if by_rows else (b"L", transposed)
    _dtrsm(
        side[0].upper().encode(), uplo, b"T" if transa else b"N", b"N", _int(rows), _int(columns), _double(1.0),
        pointer, _int(leading), b_pointer, _int(b_leading),
    )  # fmt: skip


def syrk(a: np.ndarray, c: np.ndarray, *, alpha: float = 1.0, beta: float = 1.0) -> None:
    """Update the lower triangle of `c`: ``c = alpha a aᵀ + beta c``."""
    n, k = a.shape
    if c.shape != (n, n):
        raise ValueError(f"syrk of {a.shape} needs an output of shape {(n, n)}, got {c.shape}")
    c_pointer, c_leading, c_by_rows = _matrix(c, "c", output=True)
    pointer, leading, by_rows = _matrix(a, "a")
    _dsyrk(
        b"U" if c_by_rows else b"L", b"T" if by_rows else b"N", _int(n), _int(k), _double(alpha),
        pointer, _int(leading), _double(beta), c_pointer, _int(c_leading),
    )  # fmt: skip


def gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray, *, alpha: float = 1.0, beta: float = 1.0) -> None:
    """Multiply and add, in place: ``c = alpha a b + beta c``. Pass ``b.T`` for the transposed product."""
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k or c.shape != (m, n):
        raise ValueError(f"gemm of {a.shape} and {b.shape} does not fit an output of shape {c.shape}")
    c_pointer, c_leading, c_by_rows = _matrix(c, "c", output=True)
    if c_by_rows:  # cᵀ = alpha bᵀ aᵀ + beta cᵀ
        a, b, m, n = b.T, a.T, n, m
    a_pointer, a_leading, a_by_rows = _matrix(a, "a")
    b_pointer, b_leading, b_by_rows = _matrix(b, "b")
    _dgemm(
        b"T" if a_by_rows else b"N", b"T" if b_by_rows else b"N", _int(m), _int(n), _int(k), _double(alpha),
        a_pointer, _int(a_leading), b_pointer, _int(b_leading), _double(beta), c_pointer, _int(c_leading),
    )  # fmt: skip


def gemv(a: np.ndarray, x: np.ndarray, y: np.ndarray, *, alpha: float = 1.0, beta: float = 1.0) -> None:
    """Multiply a matrix and a vector, in place: ``y = alpha a x + beta y``."""
    if x.shape != a.shape[1:] or y.shape != a.shape[:1]:
        raise ValueError(f"gemv of {a.shape} and {x.shape} does not fit an output of shape {y.shape}")
    pointer, leading, by_rows = _matrix(a, "a")
    x_pointer, x_step = _vector(x, "x")
    y_pointer, y_step = _vector(y, "y", output=True)
    rows, columns = reversed(a.shape) if by_rows else a.shape
    _dgemv(
        b"T" if by_rows else b"N", _int(rows), _int(columns), _double(alpha), pointer, _int(leading),
        x_pointer, _int(x_step), _double(beta), y_pointer, _int(y_step),
    )  # fmt: skip


def trsv(triangle: np.ndarray, x: np.ndarray, *, transposed: bool = False) -> None:
    """Solve a lower triangular system, in place: ``x = L⁻¹ x``, or ``x = L⁻ᵀ x`` where `transposed`."""
    if triangle.shape != (x.size, x.size):
        raise ValueError(f"trsv of a vector of {x.size} needs a triangle of that order, got {triangle.shape}")
    pointer, leading, by_rows = _matrix(triangle, "triangle")
    x_pointer, x_step = _vector(x, "x", output=True)
    uplo, trans = (b"U", not transposed) if by_rows else (b"L", transposed)
    _dtrsv(uplo, b"T" if trans else b"N", b"N", _int(x.size), pointer, _int(leading), x_pointer, _int(x_step))


def empty_matrix(rows: int, columns: int) -> np.ndarray:
    """Return an uninitialized row-major matrix whose rows lie apart by a little more than `columns`.

    Where rows are a large power of two apart, the rows of one tile fall into the same few cache sets: at 8,192 columns
    a product of tiles of 512 runs at 64 GFLOP/s, and at 68 with eight columns of padding.
    """
    return np.empty((rows, columns + 8 - columns % 8))[:, :columns]


@contextlib.contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Let SciPy's BLAS use `count` threads inside the block.

    With one thread a call computes where it was made, which is what tasks want: the parallelism is theirs.
    """
    control = thread_control()
    if control is None:
        yield
        return
    get, set_ = control
    before = get()
    set_(count)
    try:
        yield
    finally:
        set_(before)


def thread_control():
    """Return SciPy's BLAS thread count as a pair (get, set), or None where this BLAS has no such switch that we know.

    SciPy's wheels carry an OpenBLAS of their own, under prefixed names; looking the names up through the
    extension module finds that one, and not NumPy's.
    """
    library = ctypes.CDLL(cython_blas.__file__)
    for name in ("scipy_openblas_{}_num_threads", "openblas_{}_num_threads", "MKL_{}_Num_Threads"):
        with contextlib.suppress(AttributeError):
            if name.startswith("MKL"):
                return library.MKL_Get_Max_Threads, library.MKL_Set_Num_Threads
            return getattr(library, name.format("get")), getattr(library, name.format("set"))
    return None


def core_count() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _matrix(a: np.ndarray, name: str, output: bool = False) -> tuple[int, int, bool]:
    """Return address, leading dimension and whether rows (not columns) are contiguous."""
    if a.dtype != _FLOAT64 or a.ndim != 2:
        raise TypeError(f"{name} must be a float64 matrix, got {a.dtype} with {a.ndim} axes")
    if output and not a.flags.writeable:
        raise ValueError(f"{name} is written in place and is read-only")
    (rows, columns), (down, across) = a.shape, a.strides
    if (across == 8 or columns == 1) and down % 8 == 0 and (down >= 8 * columns or rows == 1):
        return a.__array_interface__["data"][0], max(down // 8, columns, 1), True
    if (down == 8 or rows == 1) and across % 8 == 0 and (across >= 8 * rows or columns == 1):
        return a.__array_interface__["data"][0], max(across // 8, rows, 1), False
    raise ValueError(f"{name} needs contiguous rows or columns, got strides {a.strides} for shape {a.shape}")


def _vector(x: np.ndarray, name: str, output: bool = False) -> tuple[int, int]:
    if x.dtype != _FLOAT64 or x.ndim != 1:
        raise TypeError(f"{name} must be a float64 vector, got {x.dtype} with {x.ndim} axes")
    if output and not x.flags.writeable:
        raise ValueError(f"{name} is written in place and is read-only")
    step = x.strides[0] if x.size > 1 else 8
    if step <= 0 or step % 8:
        raise ValueError(f"{name} needs a positive stride of whole elements, got {step} bytes")
    return x.__array_interface__["data"][0], step // 8


def _int(value: int):
    return ctypes.byref(ctypes.c_int(value))


def _double(value: float):
    return ctypes.byref(ctypes.c_double(value))


def _routine(module, name: str, signature: str):
    """Return the routine behind a capsule of SciPy.

    `signature` has c, i, d for the scalars char*, int* and double*, and p for an array.
    """
    capsule = module.__pyx_capi__[name]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    declared = get_name(capsule)
    if declared.count(b"int *") != signature.count("i"):
        raise ImportError(
            f"SciPy's {name} is not the 32-bit integer interface that this module calls: {declared.decode()}"
        )
    kinds = {"c": ctypes.c_char_p, "i": ctypes.c_void_p, "d": ctypes.c_void_p, "p": ctypes.c_void_p}
    return ctypes.CFUNCTYPE(None, *(kinds[letter] for letter in signature))(get_pointer(capsule, declared))


_dpotrf = _routine(cython_lapack, "dpotrf", "cipii")
_dtrsm = _routine(cython_blas, "dtrsm", "cccciidpipi")
_dsyrk = _routine(cython_blas, "dsyrk", "cciidpidpi")
_dgemm = _routine(cython_blas, "dgemm", "cciiidpipidpi")
_dgemv = _routine(cython_blas, "dgemv", "ciidpipidpi")
_dtrsv = _routine(cython_blas, "dtrsv", "cccipipi")
