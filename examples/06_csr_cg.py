"""Conjugate gradients on a sparse matrix: a format of one's own as a logical data.

    A --read--> multiply --Ap--> dot --pAp--> advance --x, r--> dot --rr--> turn --p--> multiply ...
    p --read------^               ^              ^                            ^
                                  p            p, Ap, rr                    r, rr of the step before

Two functions teach stf what a SciPy CSR matrix is: the arrays it is made of, and how to make one of such
arrays. From then on it is registered, copied to where a task needs it, and handed to the body like any array.
The scalars of the method are logical data too, so the tasks of an iteration are submitted without waiting for
a number; only every tenth one, the host looks at the residual.
"""

import numpy as np
import scipy.sparse

import stf

stf.register_data_interface(
    scipy.sparse.csr_matrix,
    flatten=lambda matrix: (matrix.data, matrix.indices, matrix.indptr),
    unflatten=lambda matrix, arrays: scipy.sparse.csr_matrix(tuple(arrays), matrix.shape, copy=False),
)


@stf.task
def multiply(matrix: stf.Read, p: stf.Read, product: stf.Write) -> None:
    product[...] = matrix @ p


@stf.task
def dot(a: stf.Read, b: stf.Read, result: stf.Write) -> None:
    result[...] = a @ b


@stf.task
def advance(
    x: stf.ReadWrite, r: stf.ReadWrite, p: stf.Read, product: stf.Read, rr: stf.Read, curvature: stf.Read
) -> None:
    alpha = rr / curvature
    x += alpha * p
    r -= alpha * product


@stf.task
def turn(p: stf.ReadWrite, r: stf.Read, rr: stf.ReadWrite, rr_next: stf.Read) -> None:
    p *= rr_next / rr
    p += r
    rr[...] = rr_next


def poisson(n: int) -> scipy.sparse.csr_matrix:
    """Return the five-point Laplacian of an n by n grid."""
    line = scipy.sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    one = scipy.sparse.eye_array(n)
    return scipy.sparse.csr_matrix(scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line))


def solve(A: scipy.sparse.csr_matrix, B: np.ndarray, tolerance: float = 1e-10) -> tuple[np.ndarray, int]:
    """Return the solution of A x = B and the number of iterations."""
    X = np.zeros_like(B)
    with stf.context(devices="cpu") as ctx:
        matrix, x = ctx.logical_data(A, name="A", readonly=True), ctx.logical_data(X, name="x")
        r, p = ctx.logical_data(B.copy(), name="r"), ctx.logical_data(B.copy(), name="p")
        product = ctx.logical_data_empty(B.shape, B.dtype, name="Ap")
        rr, rr_next, curvature = (ctx.logical_data_empty((), np.float64, name=name) for name in ("rr", "rr'", "pAp"))
        dot(r, r, rr)
        goal = tolerance**2 * float(rr)
        for iteration in range(1, 10 * B.size):
            multiply(matrix, p, product)
            dot(p, product, curvature)
            advance(x, r, p, product, rr, curvature)
            dot(r, r, rr_next)
            turn(p, r, rr, rr_next)
            if iteration % 10 == 0 and float(rr) <= goal:
                break
    return X, iteration


def main() -> None:
    A = poisson(40)
    B = np.random.default_rng(0).random(A.shape[0])
    X, iterations = solve(A, B)
    residual = np.linalg.norm(A @ X - B) / np.linalg.norm(B)
    assert residual < 1e-9, residual
    print(f"{A.shape[0]} unknowns, {A.nnz} entries: {iterations} iterations, residual {residual:.1e}")


if __name__ == "__main__":
    main()
