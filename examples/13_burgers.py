"""Burgers' equation, u_t + u u_x = nu u_xx, by implicit steps: Newton's iteration in a loop over time, both recorded.

    repeat:   old = u --> while change > tol:   Jacobian --> solve --> u, change

Nothing of it comes back to Python before the end: one launch where a GPU can decide about both loops. The tridiagonal
system is solved by parallel cyclic reduction (R. W. Hockney, J. ACM 12, 1965), which is array arithmetic.
"""

from typing import Any

import numpy as np

import stf

N, STEPS, DT, NU = 128, 25, 0.01, 0.02
H = 1.0 / (N + 1)


def shifted(v: Any, k: int) -> Any:
    """`v`, moved by `k` places; zeros come in."""
    moved = 0 * v
    if k > 0:
        moved[k:] = v[:-k]
    else:
        moved[:k] = v[-k:]
    return moved


def solve_tridiagonal(lower: Any, diagonal: Any, upper: Any, rhs: Any) -> Any:
    """Each equation gets rid of its neighbours, at distance 1, 2, 4, …, until it stands alone."""
    k = 1
    while k < N:
        before, after = shifted(diagonal, k) + (shifted(diagonal, k) == 0), shifted(diagonal, -k)
        after = after + (after == 0)  # beyond the ends there is nothing: 1 u = 0
        alpha, gamma = -lower / before, -upper / after
        diagonal = diagonal + alpha * shifted(upper, k) + gamma * shifted(lower, -k)
        rhs = rhs + alpha * shifted(rhs, k) + gamma * shifted(rhs, -k)
        lower, upper = alpha * shifted(lower, k), gamma * shifted(upper, -k)
        k *= 2
    return rhs / diagonal


def residual_and_jacobian(u: Any, old: Any) -> tuple[Any, Any, Any, Any]:
    """Of the implicit step, with u = 0 at both ends: the residual, and the three diagonals of its derivative."""
    left, right = shifted(u, 1), shifted(u, -1)
    slope = (right - left) / (2 * H)
    residual = u - old + DT * (u * slope - NU * (right - 2 * u + left) / H**2)
    lower = DT * (-u / (2 * H) - NU / H**2)
    upper = DT * (u / (2 * H) - NU / H**2)
    lower[0] = upper[-1] = 0
    return residual, lower, 1 + DT * (slope + 2 * NU / H**2), upper


@stf.task
def keep(u: stf.Read, old: stf.Write) -> None:
    old[...] = u


@stf.task
def newton(u: stf.ReadWrite, old: stf.Read, change: stf.Write) -> None:
    residual, lower, diagonal, upper = residual_and_jacobian(u, old)
    delta = solve_tridiagonal(lower, diagonal, upper, residual)
    u -= delta
    change[...] = (delta * delta).sum()


def by_hand(u: np.ndarray) -> tuple[np.ndarray, int]:
    """The same with dense matrices; also the iterations of the last step."""
    iterations = 0
    for _ in range(STEPS):
        old, iterations = u, 0
        while True:
            residual, lower, diagonal, upper = residual_and_jacobian(u, old)
            delta = np.linalg.solve(np.diag(lower[1:], -1) + np.diag(diagonal) + np.diag(upper[:-1], 1), residual)
            u, iterations = u - delta, iterations + 1
            if delta @ delta < 1e-16:
                break
    return u, iterations


def main() -> None:
    start = np.sin(2 * np.pi * H * np.arange(1, N + 1))
    field = start.copy()
    with stf.context() as ctx:
        u, old = ctx.logical_data(field), ctx.logical_data_empty(N)
        change = ctx.logical_data_empty(())
        with ctx.repeat(STEPS):
            keep(u, old)
            with ctx.while_loop(max_iterations=20) as loop:
                newton(u, old, change)
                loop.continue_while(change >= 1e-16)
        iterations = loop.iterations

    expected, expected_iterations = by_hand(start)
    print(f"{STEPS} steps; Newton took {iterations} iterations in the last one")
    assert np.allclose(field, expected, atol=1e-7)
    assert iterations == expected_iterations


if __name__ == "__main__":
    main()
