"""A 2-D stencil: two substances that diffuse and react (Gray and Scott), a Python function for each cell, and a picture.

    u, v --step--> u', v' --step--> u, v ...   (5-point stencil, periodic)

`--out FOLDER` writes reaction.png, with Matplotlib.
"""

import argparse
import pathlib

import numpy as np

import stf

N, STEPS = 192, 3000
FEED, KILL, DU, DV = 0.0545, 0.062, 0.16, 0.08  # J. E. Pearson, Complex Patterns in a Simple System, Science 261 (1993)


def start(n: int) -> tuple[np.ndarray, np.ndarray]:
    """One substance everywhere, and spots of the other."""
    u, v = np.ones((n, n)), np.zeros((n, n))
    for i, j in np.random.default_rng(4).integers(0, n - 8, (30, 2)):
        u[i : i + 8, j : j + 8], v[i : i + 8, j : j + 8] = 0.5, 0.25
    return u, v


def react(n: int, steps: int) -> np.ndarray:
    """How much of the second substance is where after so many steps."""
    with stf.context() as ctx:
        u, v = (ctx.logical_data(array) for array in start(n))
        new_u, new_v = ctx.logical_data_empty((n, n)), ctx.logical_data_empty((n, n))

        def spread(i, j, u):
            up, down = i - 1 if i > 0 else n - 1, i + 1 if i < n - 1 else 0
            left, right = j - 1 if j > 0 else n - 1, j + 1 if j < n - 1 else 0
            return u[up, j] + u[down, j] + u[i, left] + u[i, right] - 4 * u[i, j]

        def step(i, j, u, v, new_u, new_v):
            a, b = u[i, j], v[i, j]
            new_u[i, j] = a + DU * spread(i, j, u) - a * b * b + FEED * (1 - a)
            new_v[i, j] = b + DV * spread(i, j, v) + a * b * b - (FEED + KILL) * b

        for _ in range(steps // 2):
            ctx.parallel_for(u.shape, u.read(), v.read(), new_u.write(), new_v.write())(step)
            ctx.parallel_for(u.shape, new_u.read(), new_v.read(), u.write(), v.write())(step)
        return v.numpy()


def by_numpy(n: int, steps: int) -> np.ndarray:
    """The same, an array operation at a time."""
    u, v = start(n)

    def spread(x: np.ndarray) -> np.ndarray:
        return np.roll(x, 1, 0) + np.roll(x, -1, 0) + np.roll(x, 1, 1) + np.roll(x, -1, 1) - 4 * x

    for _ in range(steps):
        reaction = u * v * v
        u, v = u + DU * spread(u) - reaction + FEED * (1 - u), v + DV * spread(v) + reaction - (FEED + KILL) * v
    return v


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="folder for the picture")
    out = parser.parse_args().out
    assert np.allclose(react(96, 100), by_numpy(96, 100), rtol=1e-9)
    v = react(N, STEPS)
    assert 0.1 < v.mean() < 0.3
    print(f"{STEPS} steps of {N} x {N} cells: {v.mean():.3f} of the second substance on average, {v.max():.3f} at most")
    if out is not None:
        from matplotlib import image

        out.mkdir(parents=True, exist_ok=True)
        image.imsave(out / "reaction.png", v, cmap="viridis")


if __name__ == "__main__":
    main()
