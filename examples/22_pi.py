"""Pi by Monte Carlo: each index makes its own random point, and a reduction counts those in the quarter of a circle.

    (nothing) --> throw --hits--> wait

The random numbers are a function of the index (splitmix64), so that the result is the same on every device and for any
number of workers.
"""

import math

import numpy as np

import stf

POINTS = 4_000_000
GOLDEN, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
S27, S30, S31, S11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11)


def random(counter):
    """A number in [0, 1) for a 64-bit counter. Steele, Lea, Flood: Fast splittable pseudorandom number generators."""
    z = np.uint64(counter) * GOLDEN
    z = (z ^ (z >> S30)) * FIRST
    z = (z ^ (z >> S27)) * SECOND
    return float((z ^ (z >> S31)) >> S11) * 2.0**-53


def main() -> None:
    with stf.context() as ctx:
        hits = ctx.logical_data_empty((), np.int64)

        @ctx.parallel_for(stf.box(POINTS), hits.reduce(stf.reducer.sum))
        def throw(i):
            x, y = random(2 * i + 1), random(2 * i + 2)
            return 1 if x * x + y * y < 1.0 else 0

        count = ctx.wait(hits)

    estimate = 4 * count / POINTS
    deviation = 4 * math.sqrt(math.pi / 4 * (1 - math.pi / 4) / POINTS)
    print(f"pi is about {estimate:.5f}, {(estimate - math.pi) / deviation:+.2f} standard deviations off")
    assert count == by_numpy(POINTS)
    assert abs(estimate - math.pi) < 4 * deviation


def by_numpy(points: int) -> int:
    """The same count."""
    x, y = (uniform(np.arange(k, 2 * points + 1, 2, dtype=np.uint64)) for k in (1, 2))
    return int(np.count_nonzero(x * x + y * y < 1.0))


def uniform(counters: np.ndarray) -> np.ndarray:
    z = counters * GOLDEN
    z = (z ^ (z >> S30)) * FIRST
    z = (z ^ (z >> S27)) * SECOND
    return ((z ^ (z >> S31)) >> S11) * 2.0**-53


if __name__ == "__main__":
    main()
