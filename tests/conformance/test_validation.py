"""Programs that are right are right under ``STF_VALIDATE=1`` too."""

from __future__ import annotations

import numpy as np
import pytest

import stf


@pytest.fixture(autouse=True)
def _validate(monkeypatch):
    monkeypatch.setattr(stf.config, "validate", True)


def test_what_lies_between_the_fields_of_records_is_nobodys(ctx):
    kind = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8], "itemsize": 24})
    X = np.zeros(16, kind)[::2]
    X["b"] = np.arange(8)
    lX = ctx.logical_data(X)
    for _ in range(3):
        with ctx.task("host", lX.read()) as t:
            (x,) = t.arrays()
            assert x["b"].sum() == 28


def test_a_view_of_a_registered_array_is_registered(ctx):
    X = np.zeros(4)
    ctx.logical_data(X).release()
    lX = ctx.logical_data(X)
    empty, part = X[2:2], X[:]
    assert not part.flags.writeable
    with ctx.task("host", ctx.logical_data(empty).rw(), lX.rw()) as t:
        t.arrays()[1][:] += 1
    assert ctx.logical_data(part) is lX
    lX.release()
    with ctx.task("host", ctx.logical_data(X).rw()) as t:
        t.arrays()[0][:] += 1
    ctx.finalize()
    assert X.tolist() == [2.0] * 4 and X.flags.writeable


def test_buffers_that_numpy_cannot_make_writeable_again(ctx):
    buffer = bytearray(12)
    with ctx.task("host", ctx.logical_data(memoryview(buffer)[::-2]).rw()) as t:
        t.arrays()[0][:] += 1
    ctx.finalize()
    assert list(buffer) == [0, 1] * 6


class Tensor:
    """Owns memory, and has no buffer to offer."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize("make", [lambda x: np.asarray(Tensor(x)), lambda x: np.asarray(Tensor(x))[:], np.from_dlpack])
def test_memory_of_other_libraries(ctx, make):
    X = np.zeros(4)
    view = make(X)
    if not view.flags.writeable:  # as older NumPy has it
        pytest.skip("from_dlpack gives read-only arrays")
    with ctx.task("host", ctx.logical_data(view).rw()) as t:
        t.arrays()[0][:] += 1
    ctx.finalize()
    assert X.tolist() == [1.0] * 4 and view.flags.writeable
