"""Data made of several arrays do what data of one array do."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse
from helpers import address, csr_of, is_cuda, queued

import stf
from stf.data import composite


class Pair(NamedTuple):
    """An object with neither shape nor dtype."""

    left: object
    right: object


@pytest.fixture(autouse=True)
def interfaces():
    """What a test registers is gone after it."""
    before = dict(composite.interfaces)
    stf.register_data_interface(
        scipy.sparse.csr_array,
        flatten=lambda a: (a.data, a.indices, a.indptr),
        unflatten=lambda a, parts: csr_of(a.shape, parts),
    )
    stf.register_data_interface(Pair, flatten=tuple, unflatten=lambda a, parts: Pair(*parts))
    yield
    composite.interfaces.clear()
    composite.interfaces.update(before)


@pytest.fixture
def csr():
    return scipy.sparse.csr_array(np.array([[1.0, 0, 2], [0, 0, 3]]))


@stf.task
def scale(a: stf.ReadWrite, k):
    a.data *= k


@stf.task
def broken(a: stf.ReadWrite):
    a.data += 100
    raise RuntimeError("no luck")


def test_addresses_of_accesses_beside_several_arrays(ctx, csr):
    lA, lX = ctx.logical_data(csr), ctx.logical_data(np.arange(4.0))
    with ctx.task(lA.read(), lX.read(), name="low") as t:
        assert t.get_arg(1) == t.get_arg(-1) == address(t[1])
        with pytest.raises(
            TypeError, match=r"access 0 of task 'low' is to data made of several arrays.* t\[0\] is the obj"
        ):
            t.get_arg(0)
        if is_cuda(ctx):
            pointers = [memory.__cuda_array_interface__["data"][0] for memory in t.args_cai()]
            assert pointers == [address(x) for x in (t[0].data, t[0].indices, t[0].indptr, t[1])]
            assert t.get_arg_cai(1).__cuda_array_interface__["data"][0] == pointers[-1]
    for ended in (lambda: t.stream, t.args_cai, lambda: t.get_arg(1)):
        with pytest.raises(stf.TaskStateError, match="'low', which has ended"):
            ended()


def test_an_access_instead_of_data_of_several_arrays(ctx, csr):
    lA = ctx.logical_data(csr)
    scale(lA.rw(), 2)
    with pytest.raises(
        TypeError, match="parameter 'a' of task 'scale' is opened for more than .* <read access to <logical"
    ):
        scale(lA.read(), 2)
    assert lA.numpy().data.tolist() == [2, 4, 6]


# -- properties ------------------------------------------------------------------------------------------------------


def test_names_shape_and_dtype(ctx, csr):
    lA = ctx.logical_data(csr)
    assert lA.symbol is None and [part.name for part in lA.parts] == [f"csr_array.{i}" for i in range(3)]
    assert lA.set_symbol("A") is lA and lA.symbol == lA.name == "A"
    assert [part.symbol for part in lA.parts] == ["A.0", "A.1", "A.2"]
    assert repr(lA) == "<logical data 'A' of csr_array, 3 arrays>"
    assert lA.shape == (2, 3) and lA.dtype == np.float64
    with pytest.raises(TypeError, match="a name is text, got 3"):
        lA.set_symbol(3)
    pair = ctx.logical_data(Pair(np.zeros(2), np.zeros(3)))
    for name in ("shape", "dtype"):
        with pytest.raises(AttributeError, match=name):
            getattr(pair, name)


def test_read_only_and_write_back(ctx_factory, csr):
    ctx = ctx_factory()
    lA = ctx.logical_data(csr)
    frozen = ctx.logical_data(csr.copy(), readonly=True)
    assert not lA.readonly and frozen.readonly
    assert lA.set_write_back(False) is lA
    scale.on(ctx.devices[-1])(lA, 2)
    empty = lA.empty_like(name="E")
    with pytest.raises(ValueError, match="'E.0' .* was made from a shape; there is no array to write back to"):
        empty.set_write_back(True)
    mixed = composite.CompositeData(csr, [lA.parts[0], empty.parts[1]], lA.unflatten, None)
    with pytest.raises(ValueError, match="'E.1' .* was made from a shape"):
        mixed.set_write_back(True)
    assert not lA.parts[0].core.write_back
    ctx.finalize()
    assert csr.data.tolist() == ([2, 4, 6] if ctx_factory.shares_host else [1, 2, 3])


def test_empty_like_and_copy(ctx, csr):
    lA = ctx.logical_data(csr, name="A")
    lB = lA.empty_like(name="B")
    assert [part.name for part in lB.parts] == ["B.0", "B.1", "B.2"] and lB.shape == (2, 3)
    with pytest.raises(stf.UninitializedDataError, match="'B.0' .* is read by task 'scale' before anything wrote it"):
        scale(lB, 2)
    scale.on(ctx.devices[-1])(lA, 3)
    ctx.copy(lA, lB)
    scale(lA, 2)
    assert lB.numpy().toarray().tolist() == [[3, 0, 6], [0, 0, 9]]
    assert lA.numpy().data.tolist() == [6, 12, 18]
    assert ctx.statistics().tasks["copy"] == 1


def test_copies_that_cannot_be(ctx, csr):
    lA, lX = ctx.logical_data(csr, name="A"), ctx.logical_data(np.zeros(3), name="X")
    lD = ctx.logical_data(scipy.sparse.csr_array(np.eye(3)), name="D")
    with pytest.raises(ValueError, match=r"cannot copy <.*'A' of csr_array.*their parts differ, float64 \(3,\), int"):
        ctx.copy(lA, lD)
    for source, target in ((lA, lX), (lX, lA)):
        with pytest.raises(TypeError, match=r"only one is made of several arrays; copy its parts \(.parts\)"):
            ctx.copy(source, target)
    with pytest.raises(TypeError, match=r"fill takes data of one array, got <.*'A'.*>; fill a part of it, as in ctx"):
        ctx.fill(lA, 0)
    ctx.fill(lA.parts[0], 5)
    assert lA.numpy().data.tolist() == [5, 5, 5]


def test_what_it_is_not(ctx, csr):
    lA = ctx.logical_data(csr, name="A")
    for use in (float, int, complex, bool, len, list, np.asarray, lambda a: a + 1, lambda a: a[0], lambda a: 2 * a):
        with pytest.raises(TypeError, match=r"<.*'A' of csr_array.*> is neither a number nor an array: open it in a"):
            use(lA)
    with pytest.raises(TypeError, match="cannot be accumulated into"):
        lA.accumulate(stf.reducer.sum)


class Couple(stf.CompositeData):
    """A class of a program's own, which bodies may name."""


def test_a_body_may_name_a_class_of_such_data(ctx):
    kind, seen = Couple, []
    x = ctx.logical_data(np.zeros(3), name="x")
    ctx.task(x.rw())(lambda a: seen.append(isinstance(a, (kind, Couple))))
    ctx.synchronize()
    assert seen == [False]


def test_an_object_of_no_arrays_is_refused(ctx):
    stf.register_data_interface(Pair, flatten=lambda a: np.zeros(2), unflatten=lambda a, parts: a)
    with pytest.raises(
        TypeError, match=r"flatten of Pair gives a sequence of arrays, got ndarray; .* tuple: \(array,\)"
    ):
        ctx.logical_data(Pair(1, 2))
    stf.register_data_interface(Pair, flatten=lambda a: (), unflatten=lambda a, parts: a)
    with pytest.raises(ValueError, match="flatten of Pair gave no arrays; give at least one"):
        ctx.logical_data(Pair(1, 2))


# -- waiting and moving ----------------------------------------------------------------------------------------------


@pytest.mark.at_once("no body runs yet")
def test_wait_is_one_task_at_a_place(ctx, csr):
    lA, other = ctx.logical_data(csr), ctx.logical_data(np.zeros(1))
    gate = threading.Event()

    @stf.task
    def hold(x: stf.ReadWrite):
        assert gate.wait(60)

    hold.on(queued(ctx))(other)  # which wait does not wait for
    scale.on(ctx.devices[-1])(lA, 2)
    for place in (None, stf.data_place.host(), stf.data_place.device(0)):
        got = ctx.wait(lA, data_place=place)
        assert isinstance(got, scipy.sparse.csr_array) and got.data.tolist() == [2, 4, 6]
        got.data[:] = 0  # a copy
    assert ctx.statistics().tasks["wait"] == 3
    gate.set()
    scalars = ctx.logical_data(Pair(np.array(2.0), np.arange(3)))
    left, right = ctx.wait(scalars)
    assert isinstance(left, np.ndarray) and left.shape == () and left == 2 and right.tolist() == [0, 1, 2]


def test_wait_inside_a_body_is_refused(ctx, csr):
    lA = ctx.logical_data(csr)
    with ctx.task(lA.read()), pytest.raises(stf.TaskStateError, match="wait inside task"):
        lA.numpy()


@pytest.mark.at_once("copies are made by its launches")
def test_prefetch_and_on(ctx_factory, csr):
    ctx = ctx_factory()
    lA, lX = ctx.logical_data(csr), ctx.logical_data(np.zeros(3))
    last = ctx.devices[-1]
    ctx.prefetch(lA, last.affine_data_place)
    copies = ctx.statistics().total_copies
    assert copies == (0 if ctx_factory.shares_host else 3) and ctx.statistics().tasks["prefetch"] == 1

    @stf.task
    def spread(a: stf.Read, x: stf.Write):
        x[:] = a.data

    spread.on(lA)(lA, lX)  # where it is: nothing is copied
    assert ctx.statistics().total_copies == copies
    assert ctx.statistics().tasks_by_place[f"device({last.index})"] == (1 if ctx_factory.shares_host else 2)
    assert lX.numpy().tolist() == [1, 2, 3]


# -- failure and description -----------------------------------------------------------------------------------------------


def test_history_and_accept(ctx, csr):
    lA = ctx.logical_data(csr, name="A")
    broken.on(queued(ctx))(lA)
    with pytest.raises(stf.TaskFailedError, match="'A.0' .* is poisoned: task 'broken'"):
        lA.numpy()
    lines = lA.history().splitlines()
    assert [line[: len("logical data 'A.0'")] for line in lines if line.startswith("logical")] == [
        f"logical data 'A.{i}'" for i in range(3)
    ]
    assert lA.history() == stf.why(lA) and lA.history().count("poisoned: task 'broken'") == 3
    assert "A.2" in lA._repr_html_()
    assert lA.accept() is lA
    assert lA.numpy().data.tolist() == [101, 102, 103] and "poisoned" not in lA.history()


# -- freeze ----------------------------------------------------------------------------------------------------------


def test_freeze_for_reading(ctx, csr):
    lA = ctx.logical_data(csr, name="A")
    scale.on(ctx.devices[-1])(lA, 2)
    with ctx.freeze(lA) as frozen:
        assert frozen.data is lA and frozen.get_access_mode() == stf.access_mode.read
        seen = frozen.get()
        assert isinstance(seen, scipy.sparse.csr_array) and seen.toarray().tolist() == [[2, 0, 4], [0, 0, 6]]
        assert not seen.data.flags.writeable
        assert frozen.get(ctx.devices[0].affine_data_place).data.tolist() == [2, 4, 6]
        assert lA.numpy().data.tolist() == [2, 4, 6]  # others may read
        with pytest.raises(stf.AccessError, match="'A.0' .* is frozen for read; task 'scale' cannot open it for rw"):
            scale(lA, 2)
    for use in (frozen.get, frozen.unfreeze):
        with pytest.raises(stf.TaskStateError, match="<.*'A' of csr_array.*> is not frozen any more; freeze it again"):
            use()
    scale(lA, 2)
    assert lA.numpy().data.tolist() == [4, 8, 12]


def test_freeze_for_writing(ctx, csr):
    lA = ctx.logical_data(csr)
    frozen = ctx.freeze(lA, "rw")
    frozen.get().data[:] = 7
    with pytest.raises(stf.AccessError, match="is frozen for rw"), ctx.task(lA.read()):
        pass
    frozen.unfreeze()
    scale.on(ctx.devices[-1])(lA, 2)
    assert lA.numpy().data.tolist() == [14, 14, 14]


@pytest.mark.not_captured("a with-block is part of the graph, which is launched before anything is frozen")
def test_all_parts_are_frozen_or_none(ctx, csr):
    lA = ctx.logical_data(csr, name="A")
    with ctx.task(lA.parts[2].rw(), name="busy"):
        with pytest.raises(stf.TaskStateError, match="'A.2' .* cannot be frozen while task 'busy' is open"):
            ctx.freeze(lA)
        with ctx.task(lA.parts[0].rw(), lA.parts[1].rw()):  # none stayed frozen
            pass
    with ctx.freeze(lA.parts[1]), pytest.raises(stf.AccessError, match="'A.1' .* cannot be frozen while it is frozen"):
        ctx.freeze(lA, "rw")
    with pytest.raises(ValueError, match="freeze takes mode 'read' or 'rw', got 'write'"):
        ctx.freeze(lA, "write")
    scale(lA, 2)
    assert lA.numpy().data.tolist() == [2, 4, 6]


def test_an_array_that_is_two_parts_is_frozen_once(ctx):
    X = np.arange(3.0)
    lP = ctx.logical_data(Pair(X, X))
    assert lP.parts[0] is lP.parts[1]
    with ctx.freeze(lP, "rw") as frozen:
        left, right = frozen.get()
        left += 1
        assert right.tolist() == [1, 2, 3]
    assert lP.numpy().right.tolist() == [1, 2, 3]


def test_what_stands_before_a_mistake_is_added(ctx, csr):
    lA, lX = ctx.logical_data(csr), ctx.logical_data(np.ones(3))
    task = ctx.task(lA.read())
    with pytest.raises(TypeError, match="add_deps takes accesses"):
        task.add_deps(lX.read(), "y")
    with task:
        assert len(task) == 2
        matrix, vector = task.arrays()
        assert matrix.shape == (2, 3) and vector.shape == (3,)


# -- graphs ----------------------------------------------------------------------------------------------------------


@stf.task
def scale_all(several: stf.ReadWrite, k):
    assert [a.shape for a in several] == [(2, several[0].shape[1])] * len(several)
    for a in several:
        a.data *= k


def test_other_data_of_several_arrays_in_a_launch(ctx, csr):
    """The body gets what the other data are, alone and in a list."""
    wider = scipy.sparse.csr_array((csr.data * 10, csr.indices, csr.indptr), (2, 5))
    lA, lB, lC = ctx.logical_data(csr), ctx.logical_data(wider), ctx.logical_data(csr * 100)
    shapes = []
    g = ctx.task_graph()
    with g:
        scale(lA, 2)
        scale_all([lA], 3)
        ctx.host_launch(lA.read())(lambda a: shapes.append(a.shape))
    for lOther in (lA, lB, lA, lC):
        g.launch({lA: lOther})
    assert lA.numpy().data.tolist() == [36, 72, 108]
    assert lB.numpy().data.tolist() == [60, 120, 180] and lB.numpy().shape == (2, 5)
    assert lC.numpy().data.tolist() == [600, 1200, 1800]
    ctx.synchronize()
    assert shapes == [(2, 3), (2, 5), (2, 3), (2, 3)]


def test_other_data_of_several_arrays_that_do_not_fit(ctx, csr):
    lA, lX = ctx.logical_data(csr), ctx.logical_data(np.ones(3))
    g = ctx.task_graph()
    with g:
        scale(lA, 2)
        ctx.fill(lX, 1)
    pair = ctx.logical_data(Pair(np.ones(3), np.ones(2)))
    for data in ({lA: lX}, {lX: lA}, {lA: pair}):
        with pytest.raises(ValueError, match="cannot stand for .*: give data made of the same arrays"):
            g.launch(data)
    longer = ctx.logical_data(scipy.sparse.csr_array(np.ones((2, 3))))
    with pytest.raises(ValueError, match="cannot stand for .*: give data of the same shape and dtype"):
        g.launch({lA: longer})
    g.launch()
    assert lA.numpy().data.tolist() == [2, 4, 6]


def test_wholes_of_the_same_arrays(ctx, csr):
    """What a whole is registered from, again or beside others, decides what stands for it, and for nothing else."""
    wider = scipy.sparse.csr_array((csr.data, csr.indices, csr.indptr), (2, 5))  # of the same arrays
    other = scipy.sparse.csr_array(np.array([[10.0, 0, 20, 0], [0, 0, 30, 0]]))
    shapes = []
    lA, lB, lC = (ctx.logical_data(a) for a in (csr, wider, other))
    with ctx.task_graph() as g:
        ctx.host_launch(lA.read())(lambda a: shapes.append((a.shape, a.data.tolist())))
    again = ctx.logical_data(csr)
    assert again is not lA
    for data in ({lA: lB}, {again: lC}, {lA: lC}, {}, {lA: lB}):
        g.launch(data)
        ctx.synchronize()  # they only read, and come in any order
    mine, others = [1, 2, 3], [10, 20, 30]
    assert shapes == [((2, 5), mine), ((2, 4), others), ((2, 4), others), ((2, 3), mine), ((2, 5), mine)]


def test_others_that_differ_in_what_wholes_share_are_refused(ctx):
    shared = np.ones(2)
    lA, lC = ctx.logical_data(Pair(shared, np.zeros(2))), ctx.logical_data(Pair(shared, np.zeros(2)))
    lB, lD = (ctx.logical_data(Pair(np.ones(2), np.ones(2))) for _ in range(2))
    with ctx.task_graph() as g:
        for data in (lA, lC):
            ctx.host_launch(data.read())(lambda pair: None)
    with pytest.raises(ValueError, match="is part of several data that others stand for, and these differ in it"):
        g.launch({lA: lB, lC: lD})
    g.launch()


def test_a_whole_that_is_dropped_while_a_body_works_on_it(ctx):
    """The body keeps the object, and not its data, which go home."""
    pair = Pair(np.zeros(2), np.zeros(2))
    lP = ctx.logical_data(pair)

    dropped = threading.Event()

    def body(p):
        dropped.wait(30)
        p.left[...] += 1

    ctx.host_launch(lP.rw())(body)
    del lP
    dropped.set()
    ctx.synchronize()
    assert pair.left.tolist() == [1, 1]
