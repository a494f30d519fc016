"""Jacobi's iteration to convergence in one loop: a Poisson problem on a square, whose boundary is held at 0 and 1.

    while change > tol:   sweep u --> v    sweep v --> u    change = max |u - v|

The loop is recorded once; on a GPU the device itself decides when to stop, and Python runs no line per iteration.
"""

import numpy as np

import stf


@stf.task
def sweep(u: stf.Read, v: stf.ReadWrite) -> None:
    v[1:-1, 1:-1] = (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4


@stf.task
def compare(u: stf.Read, v: stf.Read, change: stf.Write) -> None:
    change[...] = abs(u - v).max()


def main() -> None:
    n, tolerance = 34, 1e-9
    plate = np.zeros((n, n))
    plate[0] = 1.0

    with stf.context() as ctx:
        u, v = ctx.logical_data(plate.copy()), ctx.logical_data(plate.copy())
        change = ctx.logical_data_full((), np.inf)
        with ctx.while_loop(change > tolerance, max_iterations=10_000) as loop:
            sweep(u, v)
            sweep(v, u)
            compare(u, v, change)
        solution = u.numpy()

    print(f"converged after {2 * loop.iterations} sweeps")
    assert 500 < loop.iterations < 5000
    inner = solution[1:-1, 1:-1]
    around = solution[:-2, 1:-1] + solution[2:, 1:-1] + solution[1:-1, :-2] + solution[1:-1, 2:]
    assert np.abs(4 * inner - around).max() < 10 * tolerance
    assert np.allclose(solution, solution[:, ::-1])  # the problem is symmetric from left to right
    assert abs(solution[1:-1, 1:-1].mean() - mean_of_series(n)) < 2e-3


def mean_of_series(n: int) -> float:
    """The mean of the exact solution at the same points (separation of variables)."""
    points = np.linspace(0, 1, n)[1:-1]
    x, y = np.meshgrid(points, 1 - points)
    odd = np.arange(1, 400, 2)[:, None, None]
    decay = np.exp(-odd * np.pi * (1 - y)) * (1 - np.exp(-2 * odd * np.pi * y)) / (1 - np.exp(-2 * odd * np.pi))
    return float((4 / (np.pi * odd) * np.sin(odd * np.pi * x) * decay).sum(axis=0).mean())


if __name__ == "__main__":
    main()
