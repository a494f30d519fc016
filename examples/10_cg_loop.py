"""Conjugate gradients to convergence in one loop: its condition and its scalars are logical data.

    while rr > tol:   multiply --Ap--> dot --pAp--> alpha = rr / pAp --> x, r --> dot --new--> beta = new / rr --> p

The body is recorded once and submitted as one task, however often it runs: no line of Python per iteration, and the
program never waits for a number.
"""

import numpy as np

import stf

BANDS = ((1, 1.0), (20, 0.5))  # of the matrix: how far from its diagonal, and minus what


@stf.task
def multiply(p: stf.Read, product: stf.Write) -> None:
    product[...] = 4 * p
    for k, weight in BANDS:
        product[k:] -= weight * p[:-k]
        product[:-k] -= weight * p[k:]


@stf.task
def dot(a: stf.Read, b: stf.Read, result: stf.Write) -> None:
    result[...] = (a * b).sum()


@stf.task
def axpy(alpha: stf.Read, x: stf.Read, y: stf.ReadWrite, sign: float = 1.0) -> None:
    y += sign * alpha * x


@stf.task
def turn(beta: stf.Read, r: stf.Read, p: stf.ReadWrite) -> None:
    p *= beta
    p += r


def main() -> None:
    n = 400
    matrix = 4 * np.eye(n) - sum(weight * (np.eye(n, k=k) + np.eye(n, k=-k)) for k, weight in BANDS)
    rhs = np.sin(np.arange(n))

    with stf.context() as ctx:
        r, p = ctx.logical_data(rhs.copy()), ctx.logical_data(rhs.copy())
        x, product = ctx.logical_data_zeros(n), ctx.logical_data_empty(n)
        rr, new, pAp, alpha, beta = (ctx.logical_data_zeros(()) for _ in range(5))
        dot(r, r, rr)
        with ctx.while_loop(rr > 1e-20, max_iterations=1000) as loop:
            multiply(p, product)
            dot(p, product, pAp)
            alpha.assign(rr / pAp)
            axpy(alpha, p, x)
            axpy(alpha, product, r, -1.0)
            dot(r, r, new)
            beta.assign(new / rr)
            rr.assign(new)
            turn(beta, r, p)
        solution = x.numpy()

    print(f"converged after {loop.iterations} iterations")
    assert 5 < loop.iterations < 200
    assert np.abs(matrix @ solution - rhs).max() < 1e-8


if __name__ == "__main__":
    main()
