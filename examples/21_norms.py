"""Dot product and norms by reductions: one loop over two arrays gives four numbers, as scalars of Python.

x, y --> measure --> dot, one, two, most        x, y --> ctx.wait
"""

import math

import numpy as np

import stf

N = 1_000_003


def main() -> None:
    random = np.random.default_rng(5)
    X, Y = random.standard_normal(N), random.standard_normal(N)
    with stf.context() as ctx:
        x, y = ctx.logical_data(X), ctx.logical_data(Y)
        dot, one, two, most = (ctx.logical_data_empty((), float) for _ in range(4))
        add, largest = stf.reducer.sum, stf.reducer.maxval

        @ctx.parallel_for(
            *(x.shape, x.read(), y.read()),
            *(dot.reduce(add), one.reduce(add), two.reduce(add), most.reduce(largest)),
        )
        def measure(i, x, y):
            return x[i] * y[i], abs(x[i]), x[i] * x[i], abs(x[i])

        found = [ctx.wait(dot), ctx.wait(one), math.sqrt(ctx.wait(two)), ctx.wait(most)]

    exact = [math.fsum(X * Y), math.fsum(abs(X)), math.sqrt(math.fsum(X * X)), abs(X).max()]
    print("dot {:.6f}, norms: one {:.6f}, two {:.6f}, largest {:.6f}".format(*found))
    # a sum of n numbers in blocks is off by much less than n ulp of the sum of their sizes (Higham, section 4.2)
    for ours, right, size in zip(found, exact, [math.fsum(abs(X * Y)), *exact[1:]], strict=True):
        assert abs(ours - right) <= 1e-12 * size


if __name__ == "__main__":
    main()
