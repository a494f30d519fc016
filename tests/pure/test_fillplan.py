"""How fills are planned: as rectangles of words, which a driver sets one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stf._drivers.fillplan import MAX_CALLS, plan_fill


def carry_out(plan, memory: np.ndarray, start: int) -> None:
    """Set rectangles as CUDA's cuMemsetD2D* would."""
    base = memory.ctypes.data
    for r in plan:
        word = np.frombuffer(r.value.to_bytes(r.unit, "little"), np.uint8)
        assert (base + start + r.offset) % r.unit == 0
        assert r.height == 1 or (r.pitch % r.unit == 0 and r.pitch >= r.width * r.unit)
        for row in range(r.height):
            first = start + r.offset + row * r.pitch
            memory[first : first + r.width * r.unit] = np.tile(word, r.width)


@st.composite
def arrays(draw):
    """A view with positive and negative steps, of elements of 1 to 16 bytes."""
    itemsize = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]))
    pattern = draw(st.binary(min_size=itemsize, max_size=itemsize))
    unit = draw(st.sampled_from([1, 2, 4]))
    if draw(st.booleans()) and itemsize % unit == 0:
        pattern = pattern[:unit] * (itemsize // unit)
    whole = np.zeros((draw(st.integers(1, 5)), draw(st.integers(1, 6)), draw(st.integers(1, 4))), f"V{itemsize}")
    index = tuple(slice(draw(st.integers(0, n)), None, draw(st.sampled_from([1, 2, -1, -2]))) for n in whole.shape)
    return whole, whole[index].transpose(draw(st.permutations(range(3)))), pattern


@settings(deadline=None, max_examples=300)
@given(arrays())
def test_every_element_is_set_and_nothing_else(case):
    whole, view, pattern = case
    memory = whole.view(np.uint8).reshape(-1)
    start = view.__array_interface__["data"][0] - memory.ctypes.data if view.size else 0
    address = memory.ctypes.data + start
    expected = whole.copy()
    shifted = expected.view(np.uint8).reshape(-1)[start:] if view.size else None
    if view.size:
        target = np.ndarray(view.shape, view.dtype, expected.data, start, view.strides)
        target[...] = np.frombuffer(pattern, view.dtype)[0]
    assert shifted is None or len(shifted)
    plan = plan_fill(view.shape, view.strides, pattern, (address & -address) & 7)
    assert plan is not None
    carry_out(plan, memory, start)
    assert memory.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "shape, strides, pattern, expected",
    [
        ((10,), (8,), bytes(8), [(0, 80, 1, 0, 80, 1)]),
        ((10,), (4,), b"abab", [(0, 40, 2, 0x6261, 20, 1)]),
        ((2, 5), (40, 8), b"aaaabbbb", [(0, 8, 4, 0x61616161, 1, 10), (4, 8, 4, 0x62626262, 1, 10)]),
        ((2, 5), (48, 8), b"abcdabcd", [(0, 48, 4, 0x64636261, 10, 2)]),
        ((), (), b"aaaabbbb", [(0, 4, 4, 0x61616161, 1, 1), (4, 4, 4, 0x62626262, 1, 1)]),
        ((0, 3), (24, 8), b"aaaabbbb", []),
    ],
)
def test_plans(shape, strides, pattern, expected):
    assert [tuple(r) for r in plan_fill(shape, strides, pattern, 8)] == expected


def test_an_address_or_steps_that_are_odd():
    assert {r.unit for r in plan_fill((10,), (8,), b"abcdabcd", 2)} == {2}
    assert {r.unit for r in plan_fill((10,), (9,), b"abcdabcd", 8)} == {1}


def test_too_many_calls_are_no_plan():
    shape, strides = (100, 100, 100), (32 * 101 * 101, 32 * 101, 32)
    assert MAX_CALLS < 100 * 100
    assert plan_fill(shape, strides, b"aaaabbbb", 8) is None
