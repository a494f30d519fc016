"""The tiled factorization of ``examples/gp``: a task per tile operation, BLAS with one thread, tasks on all cores."""

from __future__ import annotations

import _blas as blas
import numpy as np
from gp.benchmark import factor_tiled

__all__ = ["NAME", "factorize", "storage"]

NAME = "stf, tiled"


def storage(order: int) -> np.ndarray:
    """Return where this rival likes its matrix: row-major, rows a little apart."""
    return blas.empty_matrix(order, order)


def factorize(matrix: np.ndarray, tile: int) -> None:
    """Replace the lower triangle by L. The context is made, and finalized, in here."""
    factor_tiled(matrix, tile, "cpu")
