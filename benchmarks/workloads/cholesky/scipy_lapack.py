"""``scipy.linalg.cholesky``: LAPACK's dpotrf on BLAS's own threads, one for each core."""

from __future__ import annotations

import _blas as blas
import numpy as np
import scipy.linalg

__all__ = ["NAME", "factorize", "storage"]

NAME = "SciPy"


def storage(order: int) -> np.ndarray:
    """Return where this rival likes its matrix: column-major, so that it is factored in place."""
    return np.empty((order, order), order="F")


def factorize(matrix: np.ndarray, tile: int) -> None:
    """Replace the lower triangle by L; `tile` is the others' affair."""
    with blas.blas_threads(blas.core_count()):
        scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
