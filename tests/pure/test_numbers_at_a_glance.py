"""Numbers that data are filled with: what is taken at a glance is what all checks together take."""

import math

import numpy as np
import pytest

import stf
from stf.data import filling
from stf.interop.results import surely_holds

FLOATS = [
    0.0,
    -0.0,
    1.5,
    -3.25,
    3.3e38,
    3.5e38,
    -3.5e38,
    1e300,
    65504.0,
    70000.0,
    math.inf,
    -math.inf,
    math.nan,
    5e-324,
]
INTEGERS = [0, 1, -1, 127, 128, -128, -129, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, -(2**63)]
OTHERS = [True, False, 10**400, -(10**400), np.float64(2.5), np.int8(3), 1 + 2j]
DTYPES = ["?", "i1", "u1", "i2", "i4", ">i4", "u4", "i8", "u8", "f2", "f4", ">f4", "f8", ">f8", "g", "c8", "c16"]


def outcome(value, data):
    """Return what data would be filled with, or which error it is."""
    try:
        found = filling.content_of(value, data)
    except (TypeError, ValueError, OverflowError) as error:
        return type(error), str(error)
    return found.dtype, found.shape, found.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_checks_say_the_same(dtype, monkeypatch):
    taken = 0
    with stf.context(devices="cpu") as ctx:
        data = ctx.logical_data_empty(3, np.dtype(dtype))
        for value in [*FLOATS, *INTEGERS, *OTHERS]:
            is_taken = surely_holds(data.dtype, value)
            at_a_glance = outcome(value, data)
            with monkeypatch.context() as patch:
                patch.setattr(filling, "surely_holds", lambda *_: False)
                assert outcome(value, data) == at_a_glance, (dtype, value)
            assert not is_taken or at_a_glance[0] == data.dtype
            taken += is_taken
    assert taken or np.dtype(dtype).kind in "?buc" or dtype in ("f2", ">f4", ">f8")


def test_copies_check_what_they_did():
    with stf.context(devices="cpu") as ctx, stf.context(devices="cpu") as other:
        x, y = ctx.logical_data(np.arange(3.0)), ctx.logical_data_empty(3)
        small = ctx.logical_data_empty(3, np.float32)
        with pytest.raises(ValueError, match="the shapes .* differ"):
            ctx.copy(x, ctx.logical_data_empty(4))
        with pytest.raises(TypeError, match="without loss"):
            ctx.copy(x, ctx.logical_data_empty(3, np.int64))
        with pytest.raises(TypeError, match="no content"):
            ctx.copy(x, ctx.token())
        with pytest.raises(TypeError, match="logical data is needed"):
            ctx.copy(np.zeros(3), y)
        with pytest.raises(stf.ContextMismatchError):
            ctx.copy(x, other.logical_data_empty(3))
        ctx.copy(x, y)
        ctx.copy(x, small)
        assert y.numpy().tolist() == small.numpy().tolist() == [0.0, 1.0, 2.0]
