"""Bodies that attract each other: all pairs, a Python function for each body, energies by reductions, and a picture.

    x --pull--> a --kick--> v --drift--> x ...   x, v --energy--> wait     (leapfrog)

`--out FOLDER` writes nbody.png, with Matplotlib.
"""

import argparse
import math
import pathlib

import numpy as np

import stf

BODIES, STEPS, DT, SOFT = 512, 100, 0.01, 0.05


def start(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Places in a disk, and speeds on which it turns; the mass of all is 1."""
    random = np.random.default_rng(6)
    radius, angle = np.sqrt(random.uniform(0.05, 1, n)), random.uniform(0, 2 * np.pi, n)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle), random.normal(0, 0.02, n)], axis=1)
    speed = np.sqrt(radius**2 / (radius**2 + SOFT**2) ** 0.5)
    v = np.stack([-speed * np.sin(angle), speed * np.cos(angle), np.zeros(n)], axis=1)
    return x, v


def pull(i, x, a):
    """The acceleration of a body."""
    ax, ay, az = 0.0, 0.0, 0.0
    for j in range(x.shape[0]):
        dx, dy, dz = x[j, 0] - x[i, 0], x[j, 1] - x[i, 1], x[j, 2] - x[i, 2]
        r2 = dx * dx + dy * dy + dz * dz + SOFT * SOFT
        w = 1.0 / (r2 * math.sqrt(r2) * x.shape[0])
        ax, ay, az = ax + w * dx, ay + w * dy, az + w * dz
    a[i, 0], a[i, 1], a[i, 2] = ax, ay, az


def energy_of(i, x, v):
    """The kinetic energy of a body, and its part of the potential energy."""
    n = x.shape[0]
    kinetic = 0.5 * (v[i, 0] ** 2 + v[i, 1] ** 2 + v[i, 2] ** 2) / n
    potential = 0.0
    for j in range(i):
        r2 = (x[j, 0] - x[i, 0]) ** 2 + (x[j, 1] - x[i, 1]) ** 2 + (x[j, 2] - x[i, 2]) ** 2
        potential -= 1.0 / (n * n * math.sqrt(r2 + SOFT * SOFT))
    return kinetic, potential


def simulate(x0: np.ndarray, v0: np.ndarray, steps: int) -> tuple[np.ndarray, list[float]]:
    """The places after so many steps, and the energy before and after."""
    n = len(x0)
    energies = []
    with stf.context() as ctx:
        x, v, a = ctx.logical_data(x0.copy()), ctx.logical_data(v0.copy()), ctx.logical_data_empty((n, 3))
        kinetic, potential = ctx.logical_data_empty((), float), ctx.logical_data_empty((), float)

        def move(dt, target, other):
            def advance(i, k, other, target):
                target[i, k] += dt * other[i, k]

            ctx.parallel_for(target.shape, other.read(), target.rw())(advance)

        def measure():
            sums = kinetic.reduce(stf.reducer.sum), potential.reduce(stf.reducer.sum)
            ctx.parallel_for(stf.box(n), x.read(), v.read(), *sums)(energy_of)
            energies.append(ctx.wait(kinetic) + ctx.wait(potential))

        measure()
        ctx.parallel_for(stf.box(n), x.read(), a.write())(pull)
        for _ in range(steps):
            move(DT / 2, v, a)
            move(DT, x, v)
            ctx.parallel_for(stf.box(n), x.read(), a.write())(pull)
            move(DT / 2, v, a)
        measure()
        return x.numpy(), energies


def by_numpy(x: np.ndarray, v: np.ndarray, steps: int) -> np.ndarray:
    """The places, an array operation at a time."""

    def pulled(x: np.ndarray) -> np.ndarray:
        d = x[None] - x[:, None]
        return (d / ((d**2).sum(2) + SOFT**2)[..., None] ** 1.5).sum(1) / len(x)

    x, v, a = x.copy(), v.copy(), pulled(x)
    for _ in range(steps):
        v += DT / 2 * a
        x += DT * v
        a = pulled(x)
        v += DT / 2 * a
    return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="folder for the picture")
    out = parser.parse_args().out
    x, v = start(BODIES)
    assert np.allclose(simulate(x, v, 5)[0], by_numpy(x, v, 5), atol=1e-12)
    end, (before, after) = simulate(x, v, STEPS)
    print(f"{STEPS} steps of {BODIES} bodies: energy {before:.6f}, then {after:.6f}")
    assert abs(after - before) < 2e-3 * abs(before)
    if out is not None:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        out.mkdir(parents=True, exist_ok=True)
        figure, axes = pyplot.subplots(1, 2, figsize=(8, 4), sharex=True, sharey=True)
        for axis, places, title in zip(axes, (x, end), ("at first", f"after {STEPS} steps"), strict=True):
            axis.scatter(*places[:, :2].T, s=2)
            axis.set(title=title, aspect="equal")
        figure.savefig(out / "nbody.png", dpi=130)


if __name__ == "__main__":
    main()
