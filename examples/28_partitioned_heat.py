"""Heat on a rod that lies on several devices: each has its part, and reads the edges of its neighbours.

    part 0 --> part 1 --> part 2 --> part 3 --> part 0      edges of old.parts, copied into the margins
       |          |          |          |
      step       step       step       step                 each on its device
       |          |          |          |
    part 0     part 1     part 2     part 3                 new.parts

The rod is a ring, so that each part has two neighbours. Each step copies two edges a part, and nothing else.
"""

import numpy as np

import stf

N, STEPS = 4096, 50


def heat(start: np.ndarray) -> np.ndarray:
    """Return the temperatures after some steps."""
    with stf.context(devices="cpu:4") as ctx:
        place = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
        old, new = (ctx.logical_data(start.copy(), data_place=place) for _ in range(2))
        for _ in range(STEPS):
            for a, b in zip(old.parts, new.parts, strict=True):

                @ctx.task(a.exec_place, a.read(halo=1, halo_mode="periodic"), b.write())
                def step(a, b):
                    b[:] = (a[:-2] + 2 * a[1:-1] + a[2:]) / 4

            old, new = new, old
        return old.numpy()


def main() -> None:
    """Compare with NumPy on one array."""
    start = np.where(np.arange(N) % 1024 < 512, 0.0, 100.0)
    expected = start
    for _ in range(STEPS):
        expected = (np.roll(expected, 1) + 2 * expected + np.roll(expected, -1)) / 4
    found = heat(start)
    assert np.array_equal(found, expected)
    print(f"after {STEPS} steps: from {found.min():.1f} to {found.max():.1f} degrees")


if __name__ == "__main__":
    main()
