"""Conjugate gradients without a matrix, in which every step is a Python function for each element, and one loop.

    while rr > tol:   multiply --> product, pAp    advance --> x, r, new    turn --> p    rr = new

The loop is recorded once; the scalars never come to the host. Each kernel reads them as numbers.
"""

import numpy as np

import stf

N = 64  # points of the square along each side


def main() -> None:
    rhs = np.random.default_rng(8).standard_normal((N, N))
    add = stf.reducer.sum

    with stf.context() as ctx:
        r, p, x = ctx.logical_data(rhs.copy()), ctx.logical_data(rhs.copy()), ctx.logical_data_zeros((N, N))
        product = ctx.logical_data_empty((N, N))
        rr, new, pAp = (ctx.logical_data_empty((), float) for _ in range(3))

        def multiply(i, j, p, product):  # by the matrix of five points; zero on the boundary
            around = (p[i - 1, j] if i > 0 else 0.0) + (p[i + 1, j] if i < N - 1 else 0.0)
            around += (p[i, j - 1] if j > 0 else 0.0) + (p[i, j + 1] if j < N - 1 else 0.0)
            product[i, j] = 4 * p[i, j] - around
            return p[i, j] * product[i, j]

        def advance(i, j, rr, pAp, p, product, x, r):
            alpha = rr / pAp
            x[i, j] += alpha * p[i, j]
            r[i, j] -= alpha * product[i, j]
            return r[i, j] * r[i, j]

        def turn(i, j, new, rr, r, p):
            p[i, j] = r[i, j] + new / rr * p[i, j]

        ctx.parallel_for(r.shape, r.read(), rr.reduce(add))(lambda i, j, r: r[i, j] * r[i, j])
        with ctx.while_loop(rr > 1e-20, max_iterations=1000) as loop:
            ctx.parallel_for(p.shape, p.read(), product.write(), pAp.reduce(add))(multiply)
            of_x = (p.read(), product.read(), x.rw(), r.rw())
            ctx.parallel_for(x.shape, rr.read(), pAp.read(), *of_x, new.reduce(add))(advance)
            ctx.parallel_for(p.shape, new.read(), rr.read(), r.read(), p.rw())(turn)
            rr.assign(new)
        solution = x.numpy()

    print(f"converged after {loop.iterations} iterations")
    assert 50 < loop.iterations < 300
    padded = np.pad(solution, 1)
    around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    assert np.abs(4 * solution - around - rhs).max() < 1e-8


if __name__ == "__main__":
    main()
