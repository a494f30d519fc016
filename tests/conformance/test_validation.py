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


def test_a_body_that_raises_leaves_the_array_as_it_was(ctx):
    A, B, C = np.arange(4.0), np.arange(4.0), np.arange(4.0)
    lA, lB, lC = ctx.logical_data(A), ctx.logical_data(B), ctx.logical_data(C)
    with pytest.raises(ValueError, match="meant"), ctx.task("host", lA.write()):
        raise ValueError("meant")
    with pytest.raises(ValueError, match="meant"), ctx.task("host", lB.write()) as t:
        t.arrays()[0][1] = 7
        raise ValueError("meant")

    def fail(c):
        raise ValueError("meant")

    ctx.host_launch(lC.write(), fn=fail)
    with pytest.raises(stf.TaskFailedError, match="meant"):
        lC.numpy()
    with pytest.raises(stf.TaskFailedError):
        lB.numpy()
    with pytest.raises(stf.TaskFailedError):
        lA.numpy()
    ctx.finalize()
    assert A.tolist() == [0, 1, 2, 3] and B.tolist() == [0, 7, 2, 3] and C.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("kind", "value"), [("u1", 0xA5), ("i1", -91), ("u2", 0xA5A5)])
def test_a_few_bytes_may_be_the_filler(ctx, kind, value):
    lX = ctx.logical_data_empty(1, kind)
    with ctx.task("host", lX.write()) as t:
        t.arrays()[0][...] = value
    assert lX.numpy()[0] == value
    lX = ctx.logical_data_empty(16, kind)
    with pytest.raises(stf.AccessError, match="untouched"), ctx.task("host", lX.write()):
        pass
    lX.accept()
    assert ctx.logical_data_empty(3, np.dtype([])).shape == (3,)


def test_the_array_is_the_users_when_the_release_returns(ctx):
    n = 1 << 20
    A = np.zeros(n)

    @stf.task
    def one(a: stf.ReadWrite):
        a[...] = 1

    lA = ctx.logical_data(A)
    one.on(ctx.devices[-1])(lA)
    lA.release()
    assert A.flags.writeable and A[0] == A[-1] == 1
    A[:] = 100
    ctx.finalize()
    assert np.unique(A).tolist() == [100]


def test_a_task_that_an_exception_leaves_open_leaves_the_array_as_it_was(ctx_factory):
    X = np.arange(4.0)
    with pytest.raises(KeyError), ctx_factory() as ctx:
        t = ctx.task("host", ctx.logical_data(X).write())
        t.start()
        raise KeyError
    assert X.tolist() == [0, 1, 2, 3]


@pytest.mark.at_once("no body runs yet")
def test_a_release_does_not_wait_for_ever(ctx_factory, monkeypatch):
    """What it waits for may be waiting for who releases."""
    import threading

    monkeypatch.setattr(stf.config, "cpu_workers", 1)
    ctx = ctx_factory()
    X, gate = np.zeros(4), threading.Event()
    lX, other = ctx.logical_data(X), ctx.logical_data(np.zeros(1))
    with ctx.task(ctx.devices[-1], lX.rw()) as t:
        t.arrays()[0][:] = 3

    @ctx.host_launch(other.rw())
    def block(_):
        assert gate.wait(30)

    lX.release()
    assert not gate.is_set()
    gate.set()
    ctx.finalize()
    assert X.tolist() == [3] * 4


class Model:
    """Holds memory where nobody looks for registered arrays."""

    def __init__(self):
        self.memory = memoryview(bytearray(64))

    def array(self):
        return np.frombuffer(self.memory, np.float64)


@pytest.mark.at_once("only bodies that run at once are watched")
@pytest.mark.parametrize("form", ["function", "host_launch", "with-block"])
def test_a_registered_array_that_a_body_changes_undeclared_is_told(ctx, form):
    model, later = Model(), Model()
    lX = ctx.logical_data(model.array(), name="X")
    lY, lZ = ctx.logical_data_zeros(4), ctx.logical_data(later.array())

    def body(y):
        y += 1
        model.array()[0] += 3

    def call():
        if form == "function":
            stf.task(body)(lY.rw())
        elif form == "host_launch":
            ctx.host_launch(lY.rw())(body)
        else:
            with ctx.task("host", lY.rw()) as t:
                body(*t.arrays())
        ctx.synchronize()

    with pytest.raises(stf.Error, match="changed the array of logical data 'X' .*did not declare; pass the data"):
        call()
    lY.accept()
    lX.release()
    call()  # it is nobody's now
    with ctx.task("host", lZ.rw()) as t:
        t.arrays()[0][:] = 1
    for _ in range(20):  # side by side with what may change it
        ctx.host_launch(lZ.rw())(lambda z: np.add(z, 1, z))
        ctx.host_launch(lY.rw())(lambda y: None)
    ctx.finalize()
    assert later.array().tolist() == [21.0] * 8
