"""The heat equation on several devices that exchange only the rows at their borders.

    step k:      step(0)      step(1)      step(2)        each slab of rows on its device
                /  |   \\     /   |   \\     /  |
              U0  F0,L0 ----  F1,L1 ----  F2,L2 ...       first and last row of each slab: the halo
                \\  |   /     \\   |   /     \\  |
    step k+1:    step(0)      step(1)      step(2)

A slab stays where it is; its neighbours read the two rows that `publish` copies out of it, so those are all
that travels. A slab may be a step ahead of another one: there is no barrier between the steps.
"""

import numpy as np

import stf

ROWS, COLUMNS, SLABS, STEPS, COEFFICIENT = 240, 200, 6, 50, 0.2


def laplacian(u: np.ndarray) -> np.ndarray:
    """Return the five-point Laplacian of all but the outermost points."""
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]


@stf.task
def step(u: stf.ReadWrite, above: stf.Read, below: stf.Read) -> None:
    """Advance a slab by one explicit Euler step; its first and last column are kept."""
    u[:, 1:-1] += COEFFICIENT * laplacian(np.concatenate((above, u, below)))


@stf.task
def publish(u: stf.Read, first: stf.Write, last: stf.Write) -> None:
    """Copy the rows that the neighbours need."""
    first[...] = u[:1]
    last[...] = u[-1:]


def solve(U: np.ndarray, steps: int) -> tuple[int, int]:
    """Advance `U` in place, between a border of zeros above and below; return the numbers of devices and copies."""
    with stf.context() as ctx:
        slabs = ctx.logical_data(U, name="U").tiles((ROWS // SLABS, COLUMNS))[:, 0]
        border = ctx.logical_data_zeros((1, COLUMNS), name="border")
        first = [ctx.logical_data_empty((1, COLUMNS), np.float64, name=f"F{i}") for i in range(SLABS)]
        last = [ctx.logical_data_empty((1, COLUMNS), np.float64, name=f"L{i}") for i in range(SLABS)]
        # Neighbouring slabs share a device where there are fewer devices than slabs.
        places = [ctx.devices[i * len(ctx.devices) // SLABS] for i in range(SLABS)]
        for _ in range(steps):
            for i in range(SLABS):
                publish.on(places[i])(slabs[i], first[i], last[i])
            for i in range(SLABS):
                above = last[i - 1] if i > 0 else border
                below = first[i + 1] if i < SLABS - 1 else border
                step.on(places[i])(slabs[i], above, below)
    return len(ctx.devices), ctx.statistics().total_copies


def solve_reference(U: np.ndarray, steps: int) -> None:
    """The same with NumPy, on the whole plate."""
    for _ in range(steps):
        U[:, 1:-1] += COEFFICIENT * laplacian(np.pad(U, ((1, 1), (0, 0))))


def main() -> None:
    U = np.zeros((ROWS, COLUMNS))
    U[110:130, 90:110] = 100.0  # across the border of two slabs
    expected = U.copy()
    devices, copies = solve(U, STEPS)
    solve_reference(expected, STEPS)
    np.testing.assert_allclose(U, expected, rtol=1e-12, atol=1e-12)
    # Two rows per step and border between devices, and once the slabs and the border of zeros.
    assert copies <= 2 * STEPS * (devices - 1) + 2 * SLABS + devices, copies
    print(f"{copies} copies on {devices} devices; the warmest point has {U.max():.2f}")


if __name__ == "__main__":
    main()
