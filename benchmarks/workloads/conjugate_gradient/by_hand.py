"""Conjugate gradient with SciPy's, or CuPy's, sparse product on one device."""

from __future__ import annotations

from typing import Any

from matrix import Csr


def run(xp: Any, matrix: Csr, b: Any, steps: int) -> Any:
    """Return the solution after so many steps."""
    if xp.__name__ == "numpy":
        from scipy import sparse
    else:
        from cupyx.scipy import sparse
    n = b.size
    a = sparse.csr_matrix((xp.asarray(matrix.values), xp.asarray(matrix.columns), xp.asarray(matrix.starts)), (n, n))
    x, r = xp.zeros(n), xp.array(b)
    p, rr = r.copy(), r @ r
    for _ in range(steps):
        q = a @ p
        alpha = rr / (p @ q)
        x += alpha * p
        r -= alpha * q
        before, rr = rr, r @ r
        p = r + rr / before * p
    return x
