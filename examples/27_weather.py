"""A warm bubble that rises through air: a 2-D atmosphere in the manner of miniWeather, beside the same in NumPy.

    state --faces--> fluxes --update--> state'      three stages a step, along x, then along z, then in turn

The compressible Euler equations by finite volumes of fourth order, as differences from air at rest (M. Norman,
miniWeather, 2020). A Python function for each face, and for each cell. `--out FOLDER` writes weather.png, with Matplotlib.
"""

import argparse
import pathlib
import time

import numpy as np

import stf

DENSITY, MOMENTUM_X, MOMENTUM_Z, HEAT = range(4)  # what there is of in each cell; HEAT is density times temperature
LENGTH, HEIGHT = 20_000.0, 10_000.0  # m
GRAVITY, CP, RD, P0, THETA0 = 9.8, 1004.0, 287.0, 1e5, 300.0  # m/s2, J/(kg K), J/(kg K), Pa, K
GAMMA = CP / (CP - RD)
C0 = (RD / P0 ** (RD / CP)) ** GAMMA  # pressure = C0 (density x potential temperature)^GAMMA
SOUND, SMOOTH = 450.0, 0.05  # m/s, and how much fourth differences are damped


def at_rest(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Density, density times potential temperature, and pressure at a height."""
    pressure = P0 * (1 - GRAVITY * z / (CP * THETA0)) ** (CP / RD)
    heat = (pressure / C0) ** (1 / GAMMA)
    return heat / THETA0, heat, pressure


def bubble(nz: int, nx: int) -> np.ndarray:
    """Air that is up to 3 K warmer within 2 km of a point 2 km above the ground."""
    x, z = (np.arange(nx) + 0.5) * LENGTH / nx, (np.arange(nz)[:, None] + 0.5) * HEIGHT / nz
    distance = np.hypot((x - LENGTH / 2) / 2000, (z - 2000) / 2000)
    state = np.zeros((4, nz, nx))
    state[HEAT] = np.where(distance <= 1, 3 * np.cos(np.pi / 2 * distance) ** 2, 0) * at_rest(z)[0]
    return state


def simulate(state: np.ndarray, steps: int) -> np.ndarray:
    """The state after so many steps, by stf."""
    _, nz, nx = state.shape
    dx, dz = LENGTH / nx, HEIGHT / nz
    dt = 1.5 * min(dx, dz) / SOUND
    cells, walls = at_rest((np.arange(nz) + 0.5) * dz), at_rest(np.arange(nz + 1) * dz)

    def middle(a, b, c, d):  # at a face, of the means of four cells
        return (7 * (b + c) - a - d) / 12

    def third(a, b, c, d):
        return 3 * (b - c) - a + d

    def along_x(k, i, state, density0, heat0, flux):
        a, b, c, d = (i - 2) % nx, (i - 1) % nx, i % nx, (i + 1) % nx
        density = middle(state[0, k, a], state[0, k, b], state[0, k, c], state[0, k, d]) + density0[k]
        u = middle(state[1, k, a], state[1, k, b], state[1, k, c], state[1, k, d]) / density
        w = middle(state[2, k, a], state[2, k, b], state[2, k, c], state[2, k, d]) / density
        heat = middle(state[3, k, a], state[3, k, b], state[3, k, c], state[3, k, d]) + heat0[k]
        flux[0, k, i], flux[1, k, i] = density * u, density * u * u + C0 * heat**GAMMA
        flux[2, k, i], flux[3, k, i] = density * u * w, u * heat
        for q in range(4):
            rough = third(state[q, k, a], state[q, k, b], state[q, k, c], state[q, k, d])
            flux[q, k, i] += SMOOTH * dx / (16 * dt) * rough

    def along_z(k, i, state, density0, heat0, pressure0, flux):
        a, b, c, d = max(k - 2, 0), max(k - 1, 0), min(k, nz - 1), min(k + 1, nz - 1)
        is_wall = k in (0, nz)
        density = middle(state[0, a, i], state[0, b, i], state[0, c, i], state[0, d, i]) + density0[k]
        u = middle(state[1, a, i], state[1, b, i], state[1, c, i], state[1, d, i]) / density
        below, above = state[2, a, i] if k >= 2 else 0.0, state[2, d, i] if k <= nz - 2 else 0.0
        first, second = state[2, b, i] if k >= 1 else 0.0, state[2, c, i] if k <= nz - 1 else 0.0
        w = 0.0 if is_wall else middle(below, first, second, above) / density
        heat = middle(state[3, a, i], state[3, b, i], state[3, c, i], state[3, d, i]) + heat0[k]
        damped = SMOOTH * dz / (16 * dt)
        rough = 0.0 if is_wall else third(state[0, a, i], state[0, b, i], state[0, c, i], state[0, d, i])
        flux[0, k, i] = density * w + damped * rough
        rough = third(state[1, a, i], state[1, b, i], state[1, c, i], state[1, d, i])
        flux[1, k, i] = density * w * u + damped * rough
        flux[2, k, i] = density * w * w + C0 * heat**GAMMA - pressure0[k] + damped * third(below, first, second, above)
        rough = third(state[3, a, i], state[3, b, i], state[3, c, i], state[3, d, i])
        flux[3, k, i] = w * heat + damped * rough

    with stf.context() as ctx:
        now, first, second, spare = (ctx.logical_data(a) for a in (state.copy(), *np.zeros((3, *state.shape))))
        flux_x, flux_z = ctx.logical_data_empty((4, nz, nx + 1)), ctx.logical_data_empty((4, nz + 1, nx))
        in_cells = [ctx.logical_data(a).read() for a in cells[:2]]
        at_walls = [ctx.logical_data(a).read() for a in walls]

        def stage_x(base, old, new, part):
            ctx.parallel_for(stf.box(nz, nx + 1), old.read(), *in_cells, flux_x.write())(along_x)

            @ctx.parallel_for(base.shape, base.read(), flux_x.read(), new.write())
            def update_x(q, k, i, base, flux, new):
                new[q, k, i] = base[q, k, i] - part * dt / dx * (flux[q, k, i + 1] - flux[q, k, i])

        def stage_z(base, old, new, part):
            ctx.parallel_for(stf.box(nz + 1, nx), old.read(), *at_walls, flux_z.write())(along_z)

            @ctx.parallel_for(base.shape, base.read(), old.read(), flux_z.read(), new.write())
            def update_z(q, k, i, base, old, flux, new):
                weight = GRAVITY * old[DENSITY, k, i] if q == MOMENTUM_Z else 0.0
                new[q, k, i] = base[q, k, i] - part * dt * ((flux[q, k + 1, i] - flux[q, k, i]) / dz + weight)

        for step in range(steps):
            for stage in (stage_x, stage_z) if step % 2 == 0 else (stage_z, stage_x):
                stage(now, now, first, 1 / 3)
                stage(now, first, second, 1 / 2)
                stage(now, second, spare, 1.0)
                now, spare = spare, now
        return now.numpy()


def by_numpy(state: np.ndarray, steps: int) -> np.ndarray:
    """The same, an array operation at a time."""
    _, nz, nx = state.shape
    dx, dz = LENGTH / nx, HEIGHT / nz
    dt = 1.5 * min(dx, dz) / SOUND
    cells = [a[:, None] for a in at_rest((np.arange(nz) + 0.5) * dz)]
    walls = [a[:, None] for a in at_rest(np.arange(nz + 1) * dz)]

    def at_faces(padded: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
        count = padded.shape[axis] - 3
        a, b, c, d = (np.take(padded, range(n, n + count), axis) for n in range(4))
        return (7 * (b + c) - a - d) / 12, 3 * (b - c) - a + d

    def tendency_x(q: np.ndarray) -> np.ndarray:
        mean, rough = at_faces(np.pad(q, ((0, 0), (0, 0), (2, 2)), "wrap"), 2)
        density, heat = mean[0] + cells[0], mean[3] + cells[1]
        u, w = mean[1] / density, mean[2] / density
        flux = np.stack([density * u, density * u * u + C0 * heat**GAMMA, density * u * w, u * heat])
        return -np.diff(flux + SMOOTH * dx / (16 * dt) * rough, axis=2) / dx

    def tendency_z(q: np.ndarray) -> np.ndarray:
        padded = np.pad(q, ((0, 0), (2, 2), (0, 0)), "edge")
        padded[2, :2] = padded[2, -2:] = 0
        mean, rough = at_faces(padded, 1)
        density, heat = mean[0] + walls[0], mean[3] + walls[1]
        u, w = mean[1] / density, mean[2] / density
        w[[0, -1]] = rough[0][[0, -1]] = 0
        flux = np.stack([density * w, density * w * u, density * w * w + C0 * heat**GAMMA - walls[2], w * heat])
        change = -np.diff(flux + SMOOTH * dz / (16 * dt) * rough, axis=1) / dz
        change[2] -= GRAVITY * q[0]
        return change

    for step in range(steps):
        for tendency in (tendency_x, tendency_z) if step % 2 == 0 else (tendency_z, tendency_x):
            half = state + dt / 3 * tendency(state)
            half = state + dt / 2 * tendency(half)
            state = state + dt * tendency(half)
    return state


def warmth(state: np.ndarray) -> np.ndarray:
    """How much warmer than at rest the air is, in K of potential temperature."""
    nz = state.shape[1]
    density, heat, _ = (a[:, None] for a in at_rest((np.arange(nz) + 0.5) * HEIGHT / nz))
    return (state[HEAT] + heat) / (state[DENSITY] + density) - THETA0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="folder for the picture")
    parser.add_argument("--cells", type=int, default=40, help="along the height; twice as many along the length")
    parser.add_argument("--seconds", type=float, default=400, help="of the bubble")
    options = parser.parse_args()
    state = bubble(options.cells, 2 * options.cells)
    assert np.allclose(simulate(state, 10), by_numpy(state, 10), rtol=1e-9, atol=1e-9)
    steps = round(options.seconds / (1.5 * HEIGHT / options.cells / SOUND))
    start = time.perf_counter()
    end = simulate(state, steps)
    taken = time.perf_counter() - start
    middle = (np.arange(options.cells) + 0.5) * HEIGHT / options.cells
    heights = [np.average(middle, weights=warmth(one).clip(0).sum(axis=1)) for one in (state, end)]
    print(f"{steps} steps of {state.shape[1]} x {state.shape[2]} cells in {taken:.1f} s")
    print(f"the warm air rose from {heights[0]:.0f} m to {heights[1]:.0f} m in {options.seconds:.0f} s")
    assert heights[1] > heights[0] + (100 if options.seconds >= 200 else 0)
    assert abs(end[DENSITY].sum() - state[DENSITY].sum()) < 1e-9 * at_rest(middle)[0].sum() * state.shape[2]
    assert np.allclose(end[DENSITY], end[DENSITY, :, ::-1], atol=1e-6)  # as at first, left and right are alike
    if options.out is not None:
        draw(warmth(end), warmth(by_numpy(state, steps)), options.out)


def draw(ours: np.ndarray, numpys: np.ndarray, out: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    out.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3), sharey=True, layout="constrained")
    for axis, field, title in zip(axes, (ours, numpys), ("stf", "NumPy"), strict=True):
        shown = axis.imshow(field, origin="lower", extent=(0, LENGTH / 1000, 0, HEIGHT / 1000), cmap="inferno", vmin=0)
        axis.set(title=title, xlabel="km")
    axes[0].set_ylabel("km")
    figure.colorbar(shown, ax=axes, label="K warmer")
    figure.savefig(out / "weather.png", dpi=130)


if __name__ == "__main__":
    main()
