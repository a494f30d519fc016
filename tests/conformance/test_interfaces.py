"""Objects made of several arrays, and data of any format."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import scipy.sparse
from helpers import DeviceCsr, csr_of, is_cuda, queued

import stf
from stf.data import composite as registered
from stf.observe import Observer


@pytest.fixture(autouse=True)
def own_interfaces():
    """What a test registers is gone after it."""
    before = dict(registered.interfaces)
    yield
    registered.interfaces.clear()
    registered.interfaces.update(before)


# -- flatten and unflatten: two lines for CSR ------------------------------------------------------------------------


@pytest.fixture
def csr():
    stf.register_data_interface(
        scipy.sparse.csr_array,
        flatten=lambda a: (a.data, a.indices, a.indptr),
        unflatten=lambda a, parts: csr_of(a.shape, parts),
    )
    return scipy.sparse.csr_array(np.array([[1.0, 0, 2], [0, 0, 3]]))


@stf.task
def multiply(a: stf.Read, x: stf.Read, y: stf.Write):
    y[:] = a @ x


@stf.task
def scale(a: stf.ReadWrite, k):
    a.data *= k


def test_csr_in_function_tasks(ctx, csr):
    lA, lX = ctx.logical_data(csr, name="A"), ctx.logical_data(np.ones(3))
    lY = ctx.logical_data_empty(2)
    scale.on(ctx.devices[-1])(lA, 2)
    multiply.on(ctx.devices[0])(lA, lX, lY)
    assert lY.numpy().tolist() == [6, 6]
    assert (lA.numpy().toarray() == [[2, 0, 4], [0, 0, 6]]).all() and ctx.wait(lA).shape == (2, 3)
    assert (
        lA.name == "A" and lA.context is ctx and lA.nbytes == csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes
    )
    assert "3 arrays" in repr(lA)
    ctx.finalize()
    assert csr.data.tolist() == [2, 4, 6]


def test_csr_in_every_other_form(ctx, csr):
    lA = ctx.logical_data(csr)
    token = ctx.token()
    with ctx.task(token.rw(), lA.rw(), ctx.devices[-1]) as t:
        assert len(t) == 2
        (a,) = t.arrays()
        assert isinstance(a, DeviceCsr if is_cuda(ctx) else scipy.sparse.csr_array) and t[1].shape == (2, 3)
        a.data += 1
    ctx.task(lA.rw(), token.rw())(lambda a: a.data.__imul__(10) is None or None)
    seen = []
    ctx.host_launch(lA.read(), token.rw())(lambda a: seen.append(a.toarray().tolist()))
    with ctx.task().add_deps(lA.read(), token.read()) as t:
        assert t.arrays()[0].shape == (2, 3)
    ctx.synchronize()
    assert seen == [[[20, 0, 30], [0, 0, 40]]]
    lA.write_back()
    assert csr.data.tolist() == [20, 30, 40]
    lA.release()
    with pytest.raises(stf.AccessError, match="was released"):
        scale(lA, 1)


def test_csr_in_containers_and_on(ctx, csr):
    @stf.task
    def both(pair: stf.ReadWrite, a: stf.Read):
        pair[0].data[:] += a.data
        pair[1][:] = 7

    lA, lB, lX = ctx.logical_data(csr), ctx.logical_data(csr.copy()), ctx.logical_data(np.zeros(2))
    both.on(lB)([lA, lX], lB)
    assert lA.numpy().data.tolist() == [2, 4, 6] and lX.numpy().tolist() == [7, 7]


def test_shared_parts_are_the_same_data(ctx, csr):
    other = scipy.sparse.csr_array((csr.data * 2, csr.indices, csr.indptr), csr.shape, copy=False)
    lA, lB = ctx.logical_data(csr), ctx.logical_data(other)
    assert lA.parts[1] is lB.parts[1] and lA.parts[0] is not lB.parts[0]

    @stf.task
    def add(a: stf.ReadWrite, b: stf.Read):
        a.data += b.data

    add(lA, lB)  # which writes and reads the indices
    assert lA.numpy().data.tolist() == [3, 6, 9]


def test_composite_without_mode_or_access_is_refused(ctx, csr):
    lA, lX = ctx.logical_data(csr), ctx.logical_data(np.zeros(2))

    @stf.task
    def f(x: stf.ReadWrite, a):
        pass

    @stf.task
    def g(a: stf.Accumulate[stf.reducer.sum]):
        pass

    @stf.task
    def h(x: stf.ReadWrite):
        return lA

    with pytest.raises(TypeError, match="parameter 'a' of task 'f' has no access mode"):
        f(lX, lA)
    with pytest.raises(TypeError, match="csr_array.* cannot be accumulated into"):
        g(lA)
    with pytest.raises(stf.AccessError, match="uses logical data 'lA' without an access"):
        h(lX)
    with pytest.raises(TypeError, match="a task takes accesses"):
        ctx.task(lA)
    assert lA.numpy().data.tolist() == [1, 2, 3]


def test_read_only_composite(ctx, csr):
    csr.data.flags.writeable = False
    lA = ctx.logical_data(csr)
    with pytest.raises(stf.AccessError, match=r"'csr_array.0' .* is read-only"):
        lA.rw()
    lX = ctx.logical_data_empty(3, csr.data.dtype)
    with ctx.task(lA.read(), lX.write()) as t:
        a, x = t.arrays()
        x[...] = a.data
    assert lX.numpy().tolist() == csr.data.tolist()


# -- the full form ---------------------------------------------------------------------------------------------------


class Ragged:
    """A list of rows."""

    def __init__(self, rows):
        self.rows = [np.array(r, float) for r in rows]


class RaggedInterface:
    """Instances are lists of arrays; the registered object is the one at home."""

    made = 0
    fail = None

    def __init__(self, obj):
        self.obj = obj

    def allocate(self, place):
        assert isinstance(place, stf.DataPlace)
        if type(self).fail is not None:
            raise type(self).fail
        type(self).made += 1
        return Ragged([np.full(len(r), np.nan) for r in self.obj.rows])

    def copy(self, target, source):
        for to, of in zip(target.rows, source.rows, strict=True):
            to[:] = of

    def view(self, instance):
        return instance.rows

    def to_host(self, instance):
        return [r.tolist() for r in instance.rows]

    def nbytes(self, obj):
        return sum(r.nbytes for r in obj.rows)


@pytest.fixture
def ragged():
    RaggedInterface.made, RaggedInterface.fail = 0, None
    stf.register_data_interface(Ragged, interface=RaggedInterface)
    return Ragged([[1, 2], [], [3]])


@stf.task
def bump(rows: stf.ReadWrite):
    for r in rows:
        r += 1


def test_full_interface_moves_and_comes_home(ctx_factory, ragged):
    ctx = ctx_factory()
    l = ctx.logical_data(ragged, name="R")
    for place in [*ctx.devices, "host", *ctx.devices]:
        bump.on(place)(l)
    n = 2 * len(ctx.devices) + 1
    assert ctx.wait(l) == [[1 + n, 2 + n], [], [3 + n]] and l.nbytes == 24
    with ctx.task(ctx.devices[-1], l.read()) as t:
        assert t[0][2].tolist() == [3 + n]
    assert RaggedInterface.made == (0 if ctx_factory.shares_host else len(ctx.devices))
    bump(l)
    ctx.finalize()
    assert ragged.rows[0].tolist() == [2 + n, 3 + n]


def test_full_interface_of_a_subclass_and_early_release(ctx, ragged):
    class Special(Ragged):
        pass

    obj = Special([[5]])
    l = ctx.logical_data(obj)
    bump.on(ctx.devices[-1])(l)
    del l
    gc.collect()
    ctx.synchronize()
    ctx.token().numpy()
    ctx.synchronize()
    assert obj.rows[0].tolist() == [6]


@pytest.mark.at_once("its entries are brought by its launches")
def test_allocation_of_an_interface_may_fail(ctx_factory, ragged):
    if ctx_factory.shares_host:
        return
    ctx = ctx_factory()
    l = ctx.logical_data(ragged, name="R")
    RaggedInterface.fail = RuntimeError("no such format here")
    with pytest.raises(RuntimeError, match="no such format here"):
        bump(l)
    RaggedInterface.fail = MemoryError("full")
    with pytest.raises(stf.OutOfMemoryError, match="'R'"):
        bump(l)
    ctx.check_state()
    RaggedInterface.fail = None
    bump(l)
    assert ctx.wait(l)[2] == [4]


@pytest.mark.at_once("its entries are brought by its launches")
def test_an_interface_that_allocates_nothing(ctx_factory, ragged):
    if ctx_factory.shares_host:
        return

    class Lazy(RaggedInterface):
        def allocate(self, place):
            return None

    ctx = ctx_factory()
    stf.register_data_interface(Ragged, interface=Lazy)
    lazy = ctx.logical_data(Ragged([[1]]), name="L")
    with pytest.raises(stf.OutOfMemoryError, match="'L'") as caught:
        bump(lazy)
    assert "allocate(data_place.device(0)) of Lazy returned None" in str(caught.value.__cause__)
    bump.on("host")(lazy)
    assert ctx.wait(lazy) == [[2]]


def test_an_interface_may_not_call_stf(ctx_factory, ragged):
    if ctx_factory.shares_host:
        return
    ctx = ctx_factory()
    l, other = ctx.logical_data(ragged), ctx.logical_data(np.zeros(1))

    class Nosy(RaggedInterface):
        def allocate(self, place):
            with ctx.task(other.read()):
                pass

    stf.register_data_interface(Ragged, interface=Nosy)
    nosy = ctx.logical_data(Ragged([[1]]))
    with pytest.raises(stf.TaskStateError, match="stf was called from a finalizer that ran inside stf; call it later"):
        bump(nosy)
    ctx.check_state()
    bump(l)
    assert ctx.wait(l)[2] == [4] and other.numpy().tolist() == [0]


def test_a_failing_copy_of_an_interface_poisons(ctx_factory, ragged):
    if ctx_factory.shares_host:
        return
    ctx = ctx_factory()

    class Broken(RaggedInterface):
        def copy(self, target, source):
            raise RuntimeError("the wire broke")

    stf.register_data_interface(Ragged, interface=Broken)
    l = ctx.logical_data(Ragged([[1]]), name="R", write_back=False)
    bump(l)
    with pytest.raises((stf.TaskFailedError, RuntimeError), match="the wire broke"):
        ctx.synchronize()
    ctx._driver.errors.clear()


def test_a_copy_of_poisoned_content_names_the_data(ctx_factory, ragged):
    ctx = ctx_factory()
    l = ctx.logical_data(ragged, name="R", write_back=False)
    gate = threading.Event()

    @stf.task
    def broken(rows: stf.ReadWrite):
        assert gate.wait(60)
        raise RuntimeError("no more rows")

    class Starter(Observer):
        def task(self, task):
            if task.symbol == "look":  # which has begun, copy and all
                gate.set()

    ctx.engine.observe(Starter())
    broken.on(queued(ctx))(l)
    with (
        pytest.raises(
            stf.TaskFailedError, match=r"^task 'look' reads logical data 'R' \(object, shape \(\)\), which is"
        ),
        ctx.task(ctx.devices[-1], l.read(), name="look"),
    ):
        raise AssertionError("the body must not run")
    ctx.check_errors()


def test_registration_of_interfaces_is_checked():
    for wrong in ({}, {"flatten": tuple}, {"flatten": tuple, "unflatten": tuple, "interface": object}):
        with pytest.raises(TypeError, match="takes flatten= and unflatten=, or interface=; got both or neither"):
            stf.register_data_interface(Ragged, **wrong)
