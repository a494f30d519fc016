"""A conjugate gradient whose steps are replayed although nobody recorded them: ``stf.context(replay="auto")``.

    p --> q = A p --> p q --> alpha --> x, r --> r r --> beta --> p --> ... the same tasks in each step
                                                  |
                                                  +--> each tenth step: print the residual

The loop is written as without replay. stf finds that the same tasks come again, records them in the third step, and
launches the next ones as one task. The functions are `pure`: they do nothing but to write their data. The print waits
for its number; what is held then is submitted, and the next steps are replayed again.
"""

import numpy as np

import stf

N, STEPS = 400, 60


@stf.task(pure=True)
def apply_matrix(p: stf.Read, q: stf.Write):
    q[...] = 2.5 * p  # of a matrix with 2.5 on its diagonal and -1 beside it
    q[1:] -= p[:-1]
    q[:-1] -= p[1:]


@stf.task(pure=True)
def dot(x: stf.Read, y: stf.Read, s: stf.Write):
    s[...] = (x * y).sum()


@stf.task(pure=True)
def add(sign, alpha: stf.Read, x: stf.Read, y: stf.ReadWrite):
    y += sign * alpha * x


@stf.task(pure=True)
def go_on(beta: stf.Read, r: stf.Read, p: stf.ReadWrite):
    p[...] = r + beta * p


def main() -> None:
    with stf.context(replay="auto") as ctx:
        x, r, p = ctx.logical_data_zeros(N), ctx.logical_data_ones(N), ctx.logical_data_ones(N)
        q = ctx.logical_data_empty(N)
        rs, next_rs, pq, alpha, beta = (ctx.logical_data_empty(()) for _ in range(5))
        dot(r, r, rs)
        for step in range(STEPS):
            apply_matrix(p, q)
            dot(p, q, pq)
            alpha.assign(rs / pq)
            add(1.0, alpha, p, x)
            add(-1.0, alpha, q, r)
            dot(r, r, next_rs)
            beta.assign(next_rs / rs)
            go_on(beta, r, p)
            ctx.copy(next_rs, rs)
            if step % 10 == 9:
                print(f"step {step + 1}: residual {ctx.wait(rs) ** 0.5:.2e}")
        result, told = x.numpy(), ctx.explain()
    print(told)
    matrix = 2.5 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)
    assert np.allclose(matrix @ result, 1.0, atol=1e-8)
    if told.startswith("replay="):  # 2 of 60 steps are submitted before the window is known
        replayed, tasks = (int(word) for word in told.split()[1:4:2])
        assert replayed >= 0.75 * tasks, told


if __name__ == "__main__":
    main()
