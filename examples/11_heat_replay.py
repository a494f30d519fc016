"""The heat equation by replay: a time step is recorded when it is called again, and launched from then on.

    u --read--> step --v--> step --u     called a thousand times: Python runs twice, then there are only launches

The time step is a number, so each launch may give another one; nothing is recorded anew for that.
"""

import numpy as np

import stf


@stf.task
def step(u: stf.Read, v: stf.Write, dt: float) -> None:
    v[...] = u
    v[1:-1] += dt * (u[2:] - 2 * u[1:-1] + u[:-2])


@stf.replay
def two_steps(u: stf.LogicalData, v: stf.LogicalData, dt: float) -> None:
    step(u, v, dt)
    step(v, u, dt)


def by_hand(u: np.ndarray, dts: list[float]) -> np.ndarray:
    for dt in dts:
        for _ in range(2):
            u = u + dt * np.concatenate([[0], u[2:] - 2 * u[1:-1] + u[:-2], [0]])
    return u


def main() -> None:
    start = np.exp(-(np.linspace(-3, 3, 256) ** 2))
    field = start.copy()
    dts = [0.4 / (1 + k / 100) for k in range(200)]

    with stf.context() as ctx:
        u, v = ctx.logical_data(field), ctx.logical_data_empty(256)
        for dt in dts:
            two_steps(u, v, dt)
        print(two_steps.explain())

    assert np.allclose(field, by_hand(start, dts))
    two_steps.close()


if __name__ == "__main__":
    main()
