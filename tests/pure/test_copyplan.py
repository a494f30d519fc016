"""Plans of strided copies, done byte by byte beside NumPy."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stf._drivers import copyplan

SIZE = 11**4 * 8  # bytes: four axes of at most eleven elements


def cut(rng, memory, shape, itemsize):
    """An array of bytes of this shape somewhere in `memory`: axes in any order, with gaps, in either direction."""
    whole = [n * rng.choice([1, 1, 2]) + rng.choice([0, 0, 1]) for n in shape]
    order = rng.sample(range(len(shape)), len(shape))
    array = memory[: int(np.prod(whole)) * itemsize].reshape([whole[i] for i in order] + [itemsize])
    array = array.transpose([order.index(i) for i in range(len(shape))] + [len(shape)])
    for axis, n in enumerate(shape):
        step = rng.choice([1, 1, 1, -1]) * (2 if whole[axis] >= 2 * n else 1)
        taken = np.arange(whole[axis])[::step][:n]
        first, last = int(taken[0]), int(taken[-1])
        end = last + (1 if step > 0 else -1)
        array = array[(slice(None),) * axis + (slice(first, end if end >= 0 else None, step),)]
    return array


def start_of(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize("seed", range(200))
def test_a_plan_copies_each_element_once(seed):
    rng = random.Random(seed)
    shape = [rng.randint(1, 5) for _ in range(rng.randint(1, 4))]
    itemsize = rng.choice([1, 4, 8])
    memories = [np.zeros(SIZE, np.uint8), np.random.default_rng(seed).integers(0, 255, SIZE, np.uint8)]
    target, source = (cut(rng, memory, shape, itemsize) for memory in memories)
    assert target.shape == source.shape == (*shape, itemsize)
    expected = source.copy()
    untouched = memories[0].copy()
    plan = copyplan.plan_copy(tuple(shape), target.strides[:-1], source.strides[:-1], itemsize)
    bases = start_of(target) - start_of(memories[0]), start_of(source) - start_of(memories[1])
    for at, of in plan.offsets:
        for j in range(plan.slices.extent):
            for i in range(plan.rows.extent):
                to = bases[0] + at + i * plan.rows.target + j * plan.slices.target
                start = bases[1] + of + i * plan.rows.source + j * plan.slices.source
                memories[0][to : to + plan.width] = memories[1][start : start + plan.width]
    assert (target == expected).all()
    target[...] = 0
    assert (memories[0] == untouched).all()


def test_long_plans_are_not_kept():
    """An array against its direction takes a call per element, and as much memory for its plan."""
    copyplan.plans.clear()
    n = 2 * copyplan.KEPT_CALLS
    assert len(copyplan.plan_copy((n,), (8,), (-8,), 8).offsets) == n and not copyplan.plans
    plan = copyplan.plan_copy((10, n), (8 * n, 8), (16 * n, 8), 8)
    assert copyplan.plan_copy((10, n), (8 * n, 8), (16 * n, 8), 8) is plan and len(copyplan.plans) == 1
