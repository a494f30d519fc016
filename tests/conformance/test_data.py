"""Logical data: what can be registered, and what the bodies see of it."""

from __future__ import annotations

import array
import copy
import ctypes
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest
from helpers import increment, is_read_only, move, queued

import stf
from stf._drivers.wrappers.wrapping import WrappingDriver
from stf.contexts.context import Context
from stf.devices.make import make_driver
from stf.devices.spec import parse_devices
from stf.values.reducers import Reducer

RNG = np.random.default_rng(7)

RECORD = np.dtype([("id", "i4"), ("pos", "f8", (3,)), ("tag", "S5")], align=True)


def structured():
    values = np.zeros(5, RECORD)
    values["id"], values["pos"], values["tag"] = np.arange(5), RNG.random((5, 3)), b"abc"
    return values


SOURCES = {
    "1-d": np.arange(7.0),
    "2-d C": RNG.random((3, 4)),
    "2-d Fortran": np.asfortranarray(RNG.random((3, 4))),
    "3-d permuted": RNG.random((2, 3, 4)).transpose(1, 2, 0),
    "strided": RNG.random((8, 10))[::2, 1::3],
    "negative strides": RNG.random((4, 5))[::-1, ::-2],
    "mixed strides": RNG.random((4, 5, 6))[1:, ::-1, ::2].transpose(2, 0, 1),
    "0-d": np.array(2.5),
    "empty": np.empty((0,)),
    "empty 2-d": np.empty((3, 0, 2), np.int32),
    "one element of many axes": np.ones((1, 1, 1, 1)),
    "6-d": RNG.random((2, 1, 3, 2, 1, 2)),
    "bool": RNG.random(9) > 0.5,
    "int8": np.arange(-4, 5, dtype=np.int8),
    "uint64": np.array([0, 2**63, 2**64 - 1], np.uint64),
    "float16": np.array([1.5, np.inf, -0.0], np.float16),
    "float32 with nan": np.array([np.nan, 1.0], np.float32),
    "longdouble": np.arange(3, dtype=np.longdouble),
    "complex64": RNG.random(4).astype(np.complex64) * 1j,
    "complex128 strided": (RNG.random((4, 4)) + 1j)[::2, ::-1],
    "datetime": np.array(["2020-01-01", "NaT"], "datetime64[s]"),
    "timedelta": np.array([1, -5], "timedelta64[ms]"),
    "bytes": np.array([b"ab", b"c"]),
    "text": np.array(["héllo", "x"]),
    "structured": structured(),
    "structured strided": structured()[::-2],
    "field of structured": structured()["pos"],
    "big endian": np.arange(4).astype(">i4"),
    "void": np.frombuffer(bytes(range(12)), "V3").copy(),
}


def same(a, b):
    if a.dtype.names:  # what lies between the fields is nobody's
        return a.dtype == b.dtype and a.shape == b.shape and str(a.tolist()) == str(b.tolist())
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == np.ascontiguousarray(b).tobytes()


@pytest.mark.parametrize("name", SOURCES)
def test_read_sees_the_values_everywhere(ctx, name):
    source = SOURCES[name]
    source = source.copy(order="K") if source.base is None else source
    lX = ctx.logical_data(source, write_back=False, readonly=True)
    assert (lX.shape, lX.dtype, lX.strides) == (source.shape, source.dtype, source.strides)
    assert (lX.ndim, lX.size, lX.nbytes) == (source.ndim, source.size, source.nbytes)
    for place in [stf.exec_place.host(), *ctx.devices]:
        lY = ctx.logical_data(np.empty_like(source))
        with ctx.task(place, lX.read(), lY.write()) as t:
            x, y = t.arrays()
            assert (x.shape, x.dtype) == (source.shape, source.dtype) and is_read_only(x)
            move(y, x)
        assert same(lY.numpy(), source)
    got = ctx.wait(lX)
    assert same(np.asarray(got, source.dtype), source)


@pytest.mark.parametrize("name", SOURCES)
def test_write_comes_back_through_every_layout(ctx, name):
    """Overwrite on the last device, read on another, and find it in the user's array."""
    source = SOURCES[name]
    base = source.base if source.base is not None and isinstance(source.base, np.ndarray) else source
    target = base.copy(order="K")
    if base is not source:
        offset = source.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        address = target.__array_interface__["data"][0] + offset
        target = stf.view(address, source.shape, source.dtype, source.strides, owner=target)
    assert same(target, source)
    expected, found = np.empty_like(source), np.empty_like(source)
    expected[...] = np.roll(np.ascontiguousarray(source), 1).reshape(source.shape)
    lX, lY, lZ = ctx.logical_data(target), ctx.logical_data(expected), ctx.logical_data(found)
    with ctx.task(ctx.devices[-1], lX.rw(), lY.read()) as t:
        move(*t.arrays())
    with ctx.task(ctx.devices[0], lZ.write(), lX.read()) as t:
        move(*t.arrays())
    assert same(lZ.numpy(), expected)
    ctx.finalize()
    assert same(target, expected)


def test_strided_write_back_leaves_the_gaps_alone(ctx):
    X = np.zeros((4, 6))
    lX = ctx.logical_data(X[::2, ::3])
    ctx.fill(lX, 5)
    ctx.finalize()
    assert X.sum() == 20 and (X[::2, ::3] == 5).all()


def test_replicas_keep_the_axis_order_of_the_source(ctx_factory):
    ctx = ctx_factory()
    if ctx_factory.shares_host:
        return
    for source, axis in (
        (np.zeros((3, 4)), 1),
        (np.asfortranarray(np.zeros((3, 4))), 0),
        (np.zeros((6, 8))[::2, ::2], 1),
    ):
        lX = ctx.logical_data(source)
        with ctx.task(ctx.devices[-1], lX.read()) as t:
            x = t.arrays()[0]
            assert x.strides[axis] == x.itemsize and x.strides[1 - axis] == x.itemsize * x.shape[axis]


def test_broadcast_source_is_read_like_any_other(ctx):
    lX = ctx.logical_data(np.broadcast_to(np.arange(3.0), (4, 3)))
    assert lX.readonly and lX.strides == (0, 8)
    lY = ctx.logical_data_empty((4, 3))
    with ctx.task(ctx.devices[-1], lX.read(), lY.write()) as t:
        x, y = t.arrays()
        y[...] = x
    assert lY.numpy().tolist() == [[0, 1, 2]] * 4


# -- other libraries' objects ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(range(10)),
        lambda: array.array("d", [1, 2, 3]),
        lambda: memoryview(bytearray(12)).cast("i"),
        lambda: memoryview(bytearray(12)).cast("B", (3, 4)),
        lambda: memoryview(bytearray(12))[::-2],
        lambda: (ctypes.c_float * 5)(1, 2, 3, 4, 5),
    ],
)
def test_buffers_are_not_copied(ctx, make):
    obj = make()
    before = np.array(obj)
    lX = ctx.logical_data(obj)
    assert not lX.readonly and lX.shape == before.shape and lX.dtype == np.asarray(obj).dtype
    with ctx.task(ctx.devices[-1], lX.rw()) as t:
        t.arrays()[0][...] += 1
    ctx.finalize()
    assert (np.asarray(obj) == before + 1).all()


@pytest.mark.parametrize(
    "make", [lambda: bytes(range(4)), lambda: memoryview(b"abcd"), lambda: np.frombuffer(b"abcd", "i1")]
)
def test_read_only_sources_may_only_be_read(ctx, make):
    lX = ctx.logical_data(make(), name="R")
    assert lX.readonly
    assert len(ctx.wait(lX)) == 4
    for verb in (lX.write, lX.rw, lambda: lX.accumulate(stf.reducer.sum)):
        with pytest.raises(stf.AccessError, match=r"logical data 'R' .* is read-only and cannot be opened for"):
            verb()


def test_readonly_is_a_choice(ctx):
    X = np.zeros(3)
    lX = ctx.logical_data(X, readonly=True)
    with pytest.raises(stf.AccessError):
        lX.rw()
    assert lX.readonly and ctx.wait(lX).tolist() == [0, 0, 0]


class Capsule:
    """An array that shows itself through DLPack only."""

    def __init__(self, array, old=False):
        self.array = array
        self.old = old

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        if self.old and set(options) - {"stream"}:
            raise TypeError("an exporter from before 2024")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("old", [False, True])
def test_dlpack_on_the_cpu_is_not_copied(ctx, old):
    X = np.arange(12.0).reshape(3, 4)
    lX = ctx.logical_data(Capsule(X[:, ::2], old))
    assert lX.shape == (3, 2) and lX.strides == (32, 16) and not lX.readonly
    with ctx.task(ctx.devices[-1], lX.rw()) as t:
        t.arrays()[0][...] = -1
    ctx.finalize()
    assert (X[:, ::2] == -1).all() and X[0, 1] == 1


def test_dlpack_and_numpy_of_the_same_memory_are_the_same_data(ctx):
    X = np.zeros(4)
    assert ctx.logical_data(X) is ctx.logical_data(Capsule(X))


def test_dlpack_read_only(ctx):
    X = np.arange(4)
    X.flags.writeable = False
    lX = ctx.logical_data(Capsule(X))
    assert lX.readonly and ctx.wait(lX).tolist() == [0, 1, 2, 3]


def test_view_of_raw_memory(ctx):
    X = np.arange(12, dtype=np.int32).reshape(3, 4)
    address = X.ctypes.data
    lX = ctx.logical_data(stf.view(address, (3, 2), np.int32, (16, 8), owner=X, data_place=stf.data_place.host()))
    assert lX.strides == (16, 8)
    ctx.fill(lX, 0)
    ctx.finalize()
    assert X.tolist() == [[0, 1, 0, 3], [0, 5, 0, 7], [0, 9, 0, 11]]


def test_view_keeps_its_owner(ctx):
    class Owner:
        def __init__(self):
            self.array = np.ones(3)

    owner = Owner()
    alive = weakref.ref(owner)
    lX = ctx.logical_data(stf.view(owner.array.ctypes.data, 3, "f8", owner=owner))
    del owner
    gc.collect()
    assert alive() is not None and ctx.wait(lX).tolist() == [1, 1, 1]
    lX.release()
    ctx.synchronize()
    del lX
    gc.collect()
    assert alive() is None


def test_view_by_default_is_packed():
    X = np.arange(6.0)
    assert stf.view(X.ctypes.data, (2, 3), float, owner=X).tolist() == X.reshape(2, 3).tolist()
    assert stf.view(X.ctypes.data, (), float, owner=X) == 0
    assert stf.view(X.ctypes.data + 40, 3, float, (-16,), owner=X).tolist() == [5, 3, 1]


def test_registered_object_is_kept_alive(ctx):
    lX = ctx.logical_data(np.arange(100000.0))
    gc.collect()
    assert ctx.wait(lX)[-1] == 99999


# -- identity and overlap --------------------------------------------------------------------------------------------


def test_same_memory_is_the_same_data(ctx):
    X = np.zeros((4, 4))
    lX = ctx.logical_data(X)
    assert ctx.logical_data(X) is lX and ctx.logical_data(X[:]) is lX
    with pytest.raises(ValueError, match="overlaps"):
        ctx.logical_data(X.T)
    with pytest.raises(ValueError, match="overlaps"):
        ctx.logical_data(X.view(np.int64))


def test_overlap_names_both_and_costs_nothing(ctx):
    X = np.zeros(10)
    lX = ctx.logical_data(X[:6], name="left")
    with pytest.raises(
        ValueError, match=r"the memory of right \(float64, shape \(5,\)\) overlaps that of logical data 'left'.*tiles"
    ):
        ctx.logical_data(X[5:], name="right")
    touching = ctx.logical_data(X[6:])
    ctx.fill(lX, 1)
    ctx.fill(touching, 2)
    ctx.finalize()
    assert X.tolist() == [1] * 6 + [2] * 4


def test_interleaved_columns_do_not_overlap(ctx):
    X = np.zeros((4, 6))
    columns = [ctx.logical_data(X[:, k::3]) for k in range(3)]
    rows = np.zeros((6, 4))
    more = [ctx.logical_data(rows[k::2, ::-1]) for k in range(2)]
    for k, l in enumerate(columns + more):
        ctx.fill(l, k + 1)
    ctx.finalize()
    assert X[0].tolist() == [1, 2, 3] * 2 and rows[:, 0].tolist() == [4, 5] * 3


def test_overlap_of_interleaved_columns_is_found(ctx):
    X = np.zeros((4, 6))
    keep = ctx.logical_data(X[:, ::2])
    with pytest.raises(ValueError, match="overlaps"):
        ctx.logical_data(X[:, ::3])
    assert keep.shape == (4, 3)


def test_empty_arrays_never_overlap(ctx):
    X = np.zeros(4)
    lX, empty = ctx.logical_data(X), ctx.logical_data(X[2:2])
    with ctx.task(empty.rw(), lX.rw()) as t:
        assert t.arrays()[0].shape == (0,)


def test_memory_may_be_registered_again_after_release(ctx):
    X = np.zeros(4)
    for i in range(5):
        lX = ctx.logical_data(X if i % 2 else X[:])
        with ctx.task(ctx.devices[-1], lX.rw()) as t:
            t.arrays()[0][:] += 1
        if i % 2:
            lX.release()
        del lX
    lX = ctx.logical_data(X)
    assert ctx.wait(lX).tolist() == [5] * 4


@pytest.mark.at_once("no body runs yet")
def test_registering_again_sees_what_a_queued_task_writes(ctx_factory):
    """The first data's write-back is still in flight when its memory is registered again."""
    import threading

    ctx = ctx_factory()
    X = np.zeros(4)
    gate = threading.Event()

    @stf.task
    def late(x: stf.ReadWrite):
        assert gate.wait(30)
        x += 1

    late.on(queued(ctx, -1))(ctx.logical_data(X))  # the handle is gone at once
    threading.Timer(0.01, gate.set).start()
    lX = ctx.logical_data(X[:])
    with ctx.task("host", lX.rw()) as t:
        t.arrays()[0][:] *= 10
    ctx.finalize()
    assert X.tolist() == [10] * 4


@pytest.mark.at_once("no body runs yet")
def test_registering_again_waits_for_the_write_back(ctx_factory, monkeypatch):
    """With one worker, busy: the copy home has not run when the memory is registered again."""
    import threading

    monkeypatch.setattr(stf.config, "cpu_workers", 1)
    ctx = ctx_factory()
    X = np.zeros(4)
    gate, started = threading.Event(), threading.Event()
    lX, other = ctx.logical_data(X), ctx.logical_data(np.zeros(1))
    with ctx.task(ctx.devices[-1], lX.rw()) as t:
        t.arrays()[0][:] = 3

    @ctx.host_launch(other.rw())
    def block(_):
        started.set()
        assert gate.wait(30)

    assert started.wait(30)
    lX.release()
    threading.Timer(0.01, gate.set).start()
    again = ctx.logical_data(X)
    with ctx.task("host", again.read()) as t:
        assert t.arrays()[0].tolist() == [3] * 4


# -- data made from a shape ------------------------------------------------------------------------------------------


def test_empty_takes_no_memory_before_its_first_use(ctx):
    lX = ctx.logical_data_empty((1000, 1000), np.float32, name="big")
    assert sum(ctx.statistics().allocations.values()) == 0
    assert (lX.shape, lX.dtype, lX.nbytes, lX.name) == ((1000, 1000), np.float32, 4000000, "big")
    assert ctx.logical_data_empty(3).dtype == np.float64 and ctx.logical_data_empty(np.int64(3)).shape == (3,)
    ctx.fill(lX, 1)
    ctx.synchronize()
    assert sum(ctx.statistics().allocations.values()) == 1


def test_full_zeros_ones(ctx):
    assert ctx.logical_data_full((2, 2), 7).dtype == np.asarray(7).dtype
    assert ctx.logical_data_full(3, 2.5, np.float32).numpy().tolist() == [2.5] * 3
    assert ctx.logical_data_zeros((2,), np.int8).numpy().dtype == np.int8
    assert ctx.logical_data_ones((), np.complex64).numpy() == 1
    assert ctx.logical_data_full((2,), True).dtype == bool
    where = stf.data_place.device(0)
    lX = ctx.logical_data_full(2, 1, where=where, exec_place=stf.exec_place.device(0), name="F")
    assert lX.name == "F" and lX.numpy().tolist() == [1, 1]
    assert ctx.statistics().tasks["fill"] == 4  # of those that somebody used


def test_empty_like_keeps_layout_but_no_gaps(ctx):
    lX = ctx.logical_data(np.asfortranarray(np.zeros((4, 6)))[::2])
    lY = lX.empty_like(name="Y")
    assert (lY.shape, lY.dtype, lY.name, lY.strides) == ((2, 6), np.float64, "Y", (8, 16))
    with pytest.raises(stf.UninitializedDataError):
        lY.numpy()
    ctx.copy(lX, lY)
    assert lY.numpy().shape == (2, 6)


def test_scalars_are_data(ctx):
    lS = ctx.logical_data(2.0, name="s")

    @stf.task
    def double(s: stf.ReadWrite):
        s *= 2

    double(lS)
    double(lS)
    assert float(lS) == 8 and lS.shape == ()


def test_tokens_order_and_carry_nothing(ctx):
    token = ctx.token(name="done")
    assert (token.is_token, token.shape, token.dtype, token.nbytes, token.size, token.ndim) == (
        True,
        None,
        None,
        0,
        0,
        0,
    )
    order = []
    with ctx.task(token.read()) as t:  # valid at once
        assert t.arrays() == () and t[0] is None and len(t) == 1
    ctx.task(token.rw())(lambda: order.append(1))
    ctx.task(ctx.devices[-1], token.rw())(lambda: order.append(2))
    ctx.host_launch(token.read())(lambda: order.append(3))
    ctx.synchronize()
    assert order == [1, 2, 3]
    assert sum(ctx.statistics().allocations.values()) == 0
    assert repr(token) == "<stf token 'done'>"


def test_names(ctx):
    lX = ctx.logical_data(np.zeros(2), name="X")
    assert lX.name == lX.symbol == "X" and lX.set_symbol("Y") is lX and lX.name == "Y"
    assert ctx.logical_data(np.zeros(2), symbol="S").name == "S"
    assert "'Y' float64 (2,), valid on host" in repr(lX)
    assert lX.context is ctx
    assert hash(lX) == hash(lX) and lX in {lX} and lX == lX and lX != ctx.token()


# -- what is not allowed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        np.asarray,
        lambda l: np.add(l, 1),
        lambda l: np.ones(2) + l,
        lambda l: l + 1,
        lambda l: 1 - l,
        lambda l: l * 2,
        lambda l: l @ l,
        lambda l: -l,
        lambda l: l[0],
        lambda l: list(l),
        len,
        bool,
        lambda l: l.__setitem__(0, 1),
    ],
)
def test_data_is_no_array(ctx, use):
    lX = ctx.logical_data(np.zeros(2), name="X")
    with pytest.raises(TypeError) as caught:
        use(lX)
    assert "'X'" in str(caught.value) or "LogicalData" in str(caught.value)


def test_hint_of_what_is_no_array(ctx):
    lX = ctx.logical_data(np.zeros(2), name="X")
    for use in (np.asarray, lambda l: l + 1, lambda l: l[0]):
        with pytest.raises(
            TypeError, match=r"'X' is not an array: open it in a task \(lX.read\(\), lX.rw\(\)\), or wait for"
        ):
            use(lX)


@pytest.mark.parametrize("way", ["task", "repeat", "if", "graph", "scope"])
def test_data_whose_tiles_were_dropped_are_whole_in_recordings(ctx, way):
    x = ctx.logical_data(np.zeros(8), name="x")
    tiles = x.tiles(4)
    increment(tiles[0])
    del tiles
    if way == "task":
        increment(x)
    elif way == "repeat":
        with ctx.repeat(1):
            increment(x)
    elif way == "if":
        with ctx.if_(ctx.logical_data_full((), 1.0) > 0):
            increment(x)
    elif way == "graph":
        g = ctx.task_graph()
        with g:
            increment(x)
        g.launch()
    else:
        with ctx.graph_scope():
            increment(x)
    assert x.numpy().tolist() == [2.0] * 4 + [1.0] * 4


def test_copies_of_what_users_hold(ctx):
    """A shallow copy is the data itself; others are refused with what to do."""
    x = ctx.logical_data(np.arange(3.0), name="X")
    assert copy.copy(x) is x and copy.copy([x])[0] is x
    gc.collect()
    assert x.numpy().tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="'X' .* is not copied with what holds it; use lX.empty_like"):
        copy.deepcopy({"a": x})
    with pytest.raises(TypeError, match=r"'X' .* belongs to a context of this process; pickle lX.numpy\(\)"):
        pickle.dumps(x)
    token = ctx.token(name="T")
    assert token.empty_like(symbol="U").is_token and token.empty_like(symbol="U").name == "U"


def test_a_tile_is_a_part_of_its_data_whatever_is_written_back(ctx_factory):
    X = np.zeros(4)
    ctx = ctx_factory()
    lX = ctx.logical_data(X, name="X")
    tiles = lX.tiles(2)
    with pytest.raises(
        ValueError, match=r"'X\[1\]' .* is a tile: its content is part of logical data 'X'.*; set it there"
    ):
        tiles[1].set_write_back(False)
    tiles[1].set_write_back(True)
    for tile in tiles:
        ctx.fill(tile, 1.0)
    del tiles, tile
    lX.set_write_back(False)
    assert lX.numpy().tolist() == [1] * 4


def test_what_can_unfreeze_is_kept(ctx):
    x = ctx.logical_data(np.zeros(3), name="X")
    with pytest.warns(ResourceWarning, match="'X' .* was frozen, and what can unfreeze it is gone"):
        ctx.freeze(x).get()
        gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("is_used", [False, True])
def test_who_waits_for_data_hears_that_nobody_can_unfreeze_them(ctx, is_used):
    x = ctx.logical_data(np.zeros(3), name="X")
    lent, told = ctx.freeze(x), []
    if is_used:
        lent.get()

    def write():
        try:
            ctx.fill(x, 1.0)
        except stf.AccessError as error:
            told.append(str(error))

    writer = threading.Thread(target=write)
    writer.start()
    writer.join(0.1)
    assert writer.is_alive()
    del lent
    gc.collect()
    writer.join(30)
    assert not writer.is_alive()
    if is_used:
        assert "is frozen for read" in told[0] and "what ctx.freeze returned is gone: keep it until then" in told[0]
        with pytest.raises(stf.AccessError, match="is gone: keep it until then"):
            ctx.fill(x, 2.0)
    assert x.numpy().tolist() == [0.0 if is_used else 1.0] * 3


def test_a_loan_ends_with_a_frozen_that_nobody_used(ctx):
    x = ctx.logical_data(np.zeros(3), name="X")
    for mode in ("read", "rw"):
        ctx.freeze(x, mode)
        gc.collect()
        ctx.fill(x, 1.0)
        assert x.numpy().tolist() == [1] * 3


def test_bodies_on_the_host_run_on_no_device(ctx):
    x = ctx.logical_data(np.zeros(3))
    with pytest.raises(stf.PlaceError, match="host_launch runs on the host, got exec_place.device"):
        ctx.host_launch(ctx.devices[0], x.rw())
    ctx.host_launch(stf.exec_place.host(), x.rw())(lambda x: x.fill(1))
    assert x.numpy().tolist() == [1] * 3


def test_a_fill_takes_the_value_that_there_is(ctx):
    """Also behind a task that takes its time: the array is the caller's afterwards."""

    @stf.task
    def slow(x: stf.Write):
        x[...] = 0

    for make in (lambda: np.full(4, 7.0), lambda: np.array(7.0), lambda: np.full(4, 7, np.int16)):
        value = make()
        lX = ctx.logical_data_empty(4)
        slow(lX)
        ctx.fill(lX, value)
        lY = ctx.logical_data_full(4, value)
        value[...] = -1
        assert lX.numpy().tolist() == [7] * 4 and lY.numpy().tolist() == [7] * 4


def test_zeros_and_ones_of_any_dtype_are_those_of_numpy():
    record = np.dtype([("a", "S3"), ("b", "f4"), ("c", "U2")])
    with stf.context(devices="cpu") as ctx:
        for kind in ("S3", "U3", "V4", record, "?", "c8", "f2", ">i4"):
            assert (ctx.logical_data_zeros(3, kind).numpy() == np.zeros(3, kind)).all(), kind
        for kind in ("?", "c8", "f2", ">i4", record):
            assert (ctx.logical_data_ones(3, kind).numpy() == np.ones(3, kind)).all(), kind


@pytest.mark.parametrize("kind", ["U", "S", "V"])
def test_text_of_no_length_has_that_of_numpy(ctx, kind):
    lX = ctx.logical_data_zeros(3, kind)
    assert lX.dtype == lX.numpy().dtype == np.zeros(3, kind).dtype
    assert lX.numpy().tolist() == np.zeros(3, kind).tolist()


def test_wrong_places_are_refused_where_they_are_given(ctx):
    lX = ctx.logical_data(np.zeros(3))
    for wrong in (stf.exec_place.device(0), "host", 3.5, np.zeros(3)):
        with pytest.raises(TypeError, match="a data place is needed"):
            ctx.freeze(lX, "read", wrong)
        with pytest.raises(TypeError, match="a data place is needed"):
            ctx.logical_data_full(3, 1.0, where=wrong)
    with pytest.raises(stf.PlaceError):
        ctx.freeze(lX, "read", stf.data_place.device(99))
    ctx.freeze(lX).unfreeze()


@pytest.mark.parametrize(
    ("shape", "strides", "overlaps"),
    [
        ((4, 3), (8, 8), True),
        ((2, 3), (0, 8), True),
        ((2, 3), (8, 16), False),  # the axes take turns
        ((3, 2), (8, 16), True),
        ((2, 2), (12, 8), True),  # bytes of some are bytes of others
        ((3, 2), (16, -8), False),
        ((1, 4), (0, 8), False),
        ((0, 4), (0, 8), False),
    ],
)
def test_arrays_that_overlap_themselves(ctx, shape, strides, overlaps):
    base = np.zeros(16)
    first = base[1:]
    array = np.lib.stride_tricks.as_strided(first, shape, strides, writeable=True)
    if overlaps:
        with pytest.raises(
            ValueError, match=r"Z \(float64, shape .*\) overlaps itself: .* register a copy, or only to read"
        ):
            ctx.logical_data(array, name="Z")
        lZ = ctx.logical_data(array, readonly=True)
    else:
        lZ = ctx.logical_data(array)
        increment(lZ)
    assert lZ.numpy().tolist() == array.tolist() == np.full(shape, 0 if overlaps else 1).tolist()


def test_tiles_are_a_with_block(ctx):
    """At its end they are released and the data are whole, also where the block raises."""
    lX = ctx.logical_data(np.zeros((4, 4)))
    with lX.tiles((2, 2)) as tiles:
        increment(tiles[0, 1])
        increment(tiles[1, 0])
        row, tile = tiles[0], tiles[1, 1]
        tiles[0, 0].release()
    increment(lX)
    with pytest.raises(stf.AccessError, match="was released"):
        increment(tile)
    with pytest.raises(ZeroDivisionError), lX.tiles((2, 2)):
        raise ZeroDivisionError
    increment(lX)
    assert lX.numpy().tolist() == [[2, 2, 3, 3]] * 2 + [[3, 3, 2, 2]] * 2 and len(row) == 2


class Counting(WrappingDriver):
    """Counts the bodies that it is given."""

    called = 0

    def call(self, stream, body):
        self.called += 1
        return self.inner.call(stream, body)


@pytest.mark.parametrize("hostile", [None, 5])
def test_a_few_bytes_are_filled_without_a_worker(hostile, monkeypatch):
    """What is large, and what takes over memory that is in use, is filled by a worker; the values are the same."""
    monkeypatch.setattr(stf.config, "hostile", hostile)
    spec = parse_devices("cpu:2")
    driver = Counting(make_driver(spec))
    with Context(spec, driver=driver) as ctx:
        small = [ctx.logical_data_full(8, 3.0) if i % 2 else ctx.logical_data_zeros(8) for i in range(20)]
        for data in small:
            increment(data)
        assert [data.numpy().tolist() for data in small] == [[4.0] * 8 if i % 2 else [1.0] * 8 for i in range(20)]
        assert driver.called == 20
        large = ctx.logical_data_zeros(1 << 16)
        increment(large)
        assert large.numpy().min() == large.numpy().max() == 1.0
        assert driver.called == 22
        for _ in range(50):  # each takes over the memory of the one before, which is still written
            again = ctx.logical_data_zeros(8)
            increment(again)
            increment(again)
        assert again.numpy().tolist() == [2.0] * 8


def test_a_fill_that_fails_leaves_the_context_usable(monkeypatch):
    """The task did not begin, and the next one that uses the data fills them."""

    def without_memory(self, array):
        raise MemoryError("on purpose")

    with stf.context(devices="cpu:1") as ctx:
        data = ctx.logical_data_zeros(4)
        with monkeypatch.context() as patched:
            patched.setattr(Reducer, "fill", without_memory)
            with pytest.raises(MemoryError, match="on purpose"):
                increment(data)
        increment(data)
        assert data.numpy().tolist() == [1.0] * 4
