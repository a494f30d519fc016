"""Logical data from registration to the end: write-back, release, tiles, freezes, copies."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from helpers import at, queued, set_to

import stf


@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n


def on_last(ctx):
    return add.on(ctx.devices[-1])


# -- write-back ------------------------------------------------------------------------------------------------------


def test_write_back_can_be_off_and_on(ctx):
    X, Y, Z = (np.zeros(2) for _ in range(3))
    off = ctx.logical_data(X, write_back=False)
    turned = ctx.logical_data(Y)
    assert turned.set_write_back(False) is turned
    on = ctx.logical_data(Z, write_back=False).set_write_back(True)
    for l in (off, turned, on):
        on_last(ctx)(l)
    ctx.finalize()
    assert Z.tolist() == [1, 1]
    if len(ctx.devices) > 1:  # on memory of its own, the user's array stays as it was
        assert X.tolist() == Y.tolist() == [0, 0]


def test_write_back_now(ctx, ctx_factory):
    X = np.zeros(2)
    lX = ctx.logical_data(X)
    on_last(ctx)(lX)
    lX.write_back()
    ctx.synchronize()
    assert X.tolist() == [1, 1]
    lX.write_back()
    on_last(ctx)(lX)
    assert lX.numpy().tolist() == [2, 2]
    assert ctx.statistics().write_backs["host"] == (0 if ctx_factory.shares_host else 1)


def test_write_back_returns_before_the_tasks_have_run(ctx):
    Y, go = np.zeros(2), threading.Event()
    lX, lY = ctx.logical_data(np.zeros(2)), ctx.logical_data(Y)

    @ctx.host_launch(lX.rw())
    def late(x):
        assert go.wait(20)
        x += 1

    ctx.copy(lX, lY)
    lY.write_back()
    go.set()
    ctx.wait(lY)
    assert Y.tolist() == [1, 1]


def test_write_back_of_what_fails_leaves_the_array_as_it_is(ctx):
    """What other tasks wrote on the way is not there either, where it was not written in place."""
    X, go = np.zeros(2), threading.Event()
    lX, lY = ctx.logical_data(X), ctx.logical_data(np.ones(2))

    def fails(x, y):
        go.wait(20)
        raise ZeroDivisionError

    ctx.host_launch(lX.read(), lY.rw())(fails)
    ctx.copy(lY, lX)
    lX.write_back()
    go.set()
    with pytest.raises(stf.TaskFailedError, match="ZeroDivisionError"):
        ctx.synchronize()
    assert X.tolist() == [0, 0]
    ctx.fill(lX, 3.0)
    lX.write_back()
    ctx.synchronize()
    assert X.tolist() == [3, 3]


def test_what_was_not_written_is_not_written_back(ctx):
    X = np.zeros(2)
    lX = ctx.logical_data(X)
    with ctx.task(ctx.devices[-1], lX.read()):
        pass
    ctx.finalize()
    assert ctx.statistics().write_backs["host"] == 0


# -- release ---------------------------------------------------------------------------------------------------------


def test_release_is_ordered_after_the_last_use(ctx):
    X = np.zeros(2)
    gate = threading.Event()
    lX = ctx.logical_data(X, name="X")
    ctx.task(queued(ctx, -1), lX.rw())(lambda x: (gate.wait(30), x.__iadd__(1), None)[-1])
    lX.release()
    lX.release()
    gate.set()
    ctx.synchronize()
    assert X.tolist() == [1, 1]
    with pytest.raises(
        stf.AccessError, match=r"logical data 'X' \(float64, shape \(2,\)\) was released; task 'add' cannot use it"
    ):
        add(lX)
    with pytest.raises(stf.AccessError, match="was released"):
        lX.numpy()
    with pytest.raises(stf.AccessError, match="was released"):
        ctx.freeze(lX)
    with pytest.raises(stf.AccessError, match="was released"):
        lX.write_back()
    with pytest.raises(stf.AccessError, match="was released"):
        lX.tiles(1)


def test_early_deletion_frees_and_writes_back(ctx):
    X = np.zeros(2)
    lX = ctx.logical_data(X)
    on_last(ctx)(lX)
    tmp = ctx.logical_data_zeros(1000)
    on_last(ctx)(tmp)
    del lX, tmp
    ctx.synchronize()
    ctx.token().numpy()
    ctx.synchronize()
    assert X.tolist() == [1, 1]
    statistics = ctx.statistics()
    assert sum(statistics.frees.values()) == sum(statistics.allocations.values())
    assert list(ctx.engine.coherency.data) == []


def test_deletion_while_a_task_is_queued(ctx):
    gate, seen = threading.Event(), []
    lX = ctx.logical_data_full(3, 4.0)

    @ctx.task(queued(ctx), lX.read())
    def look(x):
        assert gate.wait(30)
        seen.append(x.tolist())

    del lX
    gc.collect()
    gate.set()
    ctx.synchronize()
    assert seen == [[4.0] * 3]


@pytest.mark.not_captured("temporaries of a graph are there until it is launched")
def test_a_thousand_temporaries_leave_no_memory(ctx):
    total = ctx.logical_data_zeros(4)
    for i in range(300):
        tmp = ctx.logical_data_full(4, float(i))
        with ctx.task(ctx.devices[i % len(ctx.devices)], tmp.read(), total.rw()) as t:
            a, b = t.arrays()
            b += a
    del tmp
    assert total.numpy()[0] == sum(range(300))
    peak = sum(ctx.statistics().peak_bytes.values())
    assert peak < 100 * 32


@pytest.mark.at_once("copies are asked for by its launches")
def test_history_says_who_and_where(ctx):
    lX = ctx.logical_data(np.zeros(2), name="X")
    assert "written by its registration" in lX.history()
    on_last(ctx)(lX)
    ctx.wait(lX)
    text = lX.history()
    assert "logical data 'X' (float64, shape (2,)): written by task 'add' at test_data_life.py:" in text
    if len(ctx.devices) > 1:
        last = f"device({len(ctx.devices) - 1})"
        assert f"copied host -> {last} for task 'add' at test_data_life.py:" in text
        assert f"copied {last} -> host for task 'wait' at test_data_life.py:" in text


# -- tiles -----------------------------------------------------------------------------------------------------------


def test_tiles_split_and_join(ctx):
    X = np.arange(20.0).reshape(4, 5)
    want = X * 2
    lX = ctx.logical_data(X, name="X")
    tiles = lX.tiles((2, 2))
    assert tiles.shape == (2, 3) and tiles.dtype == object
    assert [t.shape for t in tiles[0]] == [(2, 2), (2, 2), (2, 1)]
    assert tiles[1, 2].name == "X[1,2]"
    with pytest.raises(
        stf.AccessError, match=r"'X' .* is split into 6 tiles .*; task 'add' must use those, or drop them"
    ):
        add(lX)

    @stf.task
    def double(x: stf.ReadWrite):
        x *= 2

    for i, tile in enumerate(tiles.flat):
        double.on(ctx.devices[i % len(ctx.devices)])(tile)
    del tile, tiles
    assert (lX.numpy() == want).all()
    add(lX)
    ctx.finalize()
    assert (want + 1 == X).all()


@pytest.mark.parametrize(
    "shape, tile", [((7,), (3,)), ((5, 6, 7), (2, 6, 3)), ((4,), (10,)), ((6, 1), (1, 1)), ((0, 3), (2, 2))]
)
def test_tiles_of_any_rank_and_ragged(ctx, shape, tile):
    X = np.zeros(shape)
    lX = ctx.logical_data(X)
    tiles = lX.tiles(tile)
    assert tiles.shape == tuple(-(-n // b) for n, b in zip(shape, tile, strict=True))
    for k, t in enumerate(tiles.flat):
        ctx.fill(t, k + 1)
    for t in tiles.flat:
        t.release()
    assert lX.numpy().shape == shape
    ctx.finalize()
    want = np.zeros(shape)
    for k, index in enumerate(np.ndindex(*tiles.shape)):
        want[tuple(slice(i * b, (i + 1) * b) for i, b in zip(index, tile, strict=True))] = k + 1
    assert (want == X).all()


def test_tiles_of_strided_fortran_and_shaped_data(ctx):
    F = np.asfortranarray(np.arange(24.0).reshape(4, 6))[:, ::-1]
    want = F + 1
    tiles = ctx.logical_data(F).tiles((3, 4))
    made = ctx.logical_data_full((4, 4), 2.0)
    parts = made.tiles((2, 4))
    for t in [*tiles.flat, *parts.flat]:
        on_last(ctx)(t)
    del t, tiles, parts
    assert made.numpy().tolist() == [[3.0] * 4] * 4
    ctx.finalize()
    assert (want == F).all()


def test_tiles_of_tiles(ctx):
    X = np.zeros((4, 4))
    tiles = ctx.logical_data(X).tiles((2, 4))
    inner = tiles[1, 0].tiles((1, 2))
    with pytest.raises(stf.AccessError, match="is split into 4 tiles"):
        add(tiles[1, 0])
    for t in inner.flat:
        on_last(ctx)(t, 5)
    add(tiles[0, 0])
    del t, inner
    add(tiles[1, 0])
    ctx.finalize()
    assert X.tolist() == [[1] * 4] * 2 + [[6] * 4] * 2


def test_unwritten_tiles_leave_the_parent_uninitialised(ctx):
    lX = ctx.logical_data_empty((4,), name="X")
    tiles = lX.tiles(2)
    with pytest.raises(stf.UninitializedDataError, match=r"'X\[1\]'"):
        tiles[1].numpy()
    ctx.fill(tiles[0], 1)
    del tiles
    with pytest.raises(stf.UninitializedDataError, match="'X'"):
        lX.numpy()
    tiles = lX.tiles(2)
    for t in tiles:
        ctx.fill(t, 2)
    del t, tiles
    assert lX.numpy().tolist() == [2] * 4


def test_tiles_keep_their_parent_alive(ctx):
    X = np.zeros(4)
    tiles = ctx.logical_data(X).tiles(2)
    gc.collect()
    for t in tiles:
        on_last(ctx)(t)
    ctx.finalize()
    assert X.tolist() == [1] * 4


def test_tile_rules(ctx):
    lX = ctx.logical_data(np.zeros((4, 4)), name="X")
    with pytest.raises(
        ValueError, match=r"has 2 axes, and tiles\(\) takes one positive integer for each, got 1: \(2,\)"
    ):
        lX.tiles(2)
    with pytest.raises(ValueError, match=r"got \(0, 1\); an axis that is not cut has its own extent: "):
        lX.tiles((0, 1))
    with pytest.raises(TypeError, match="a token has no tiles; use several tokens"):
        ctx.token().tiles(1)
    add(lX)
    tiles = lX.tiles((2, 2))
    for use in (lX.write_back, lX.release, lambda: ctx.freeze(lX), lambda: lX.tiles((1, 1)), lX.numpy):
        with pytest.raises(
            stf.AccessError, match=r"'X' .*(tiles of it live .*; drop them first|is split into 4 tiles)"
        ):
            use()
    del tiles
    lX.write_back()
    assert ctx.logical_data(np.zeros(()), name="s").tiles(()).shape == ()


def test_read_only_data_has_read_only_tiles(ctx):
    tiles = ctx.logical_data(np.zeros(4), readonly=True).tiles(2)
    assert tiles[0].readonly and tiles[1].numpy().tolist() == [0, 0]
    with pytest.raises(stf.AccessError, match="is read-only"):
        tiles[0].rw()


# -- freeze ----------------------------------------------------------------------------------------------------------


def test_freeze_for_reading(ctx):
    lX = ctx.logical_data(np.zeros(2), name="X")
    on_last(ctx)(lX)
    frozen = ctx.freeze(lX)
    assert frozen.get_access_mode() == stf.access_mode.read
    array = frozen.get()
    assert array.tolist() == [1, 1] and not array.flags.writeable
    assert frozen.get(stf.data_place.device(0)).tolist() == [1, 1]
    assert lX.numpy().tolist() == [1, 1]  # reads go on
    with pytest.raises(
        stf.AccessError, match="'X' .* is frozen for read; task 'add' cannot open it for rw before unfreeze"
    ):
        add(lX)
    with pytest.raises(stf.AccessError, match="frozen"):
        ctx.freeze(lX)
    frozen.unfreeze()
    add(lX)
    assert lX.numpy().tolist() == [2, 2]


@pytest.mark.parametrize("mode", ["read", "rw"])
def test_writers_of_other_threads_wait_until_unfreeze(ctx, mode):
    """The thread that froze the data would wait for itself."""
    lX, done = ctx.logical_data(np.zeros(2), name="X"), []

    def write():
        add(lX)
        done.append(lX.numpy().tolist())

    frozen = ctx.freeze(lX, mode)
    array = frozen.get()
    writer = threading.Thread(target=write)
    writer.start()
    writer.join(0.05)
    assert writer.is_alive() and done == [] and array.tolist() == [0, 0]
    with pytest.raises(stf.AccessError, match="is frozen"):
        add(lX)
    frozen.unfreeze()
    writer.join(30)
    assert not writer.is_alive() and done == [[1, 1]]


@pytest.mark.parametrize("mode", ["rw", stf.access_mode.rw])
def test_freeze_for_writing(ctx, mode):
    X = np.zeros(2)
    lX = ctx.logical_data(X, name="X")
    place = stf.data_place.device(len(ctx.devices) - 1)
    with ctx.freeze(lX, mode, place) as frozen:
        assert frozen.get_access_mode() == stf.access_mode.rw
        with at(frozen.get()):
            frozen.get()[:] = 4
            assert frozen.get(place).tolist() == [4, 4]
        with pytest.raises(stf.AccessError, match="'X' .* is frozen for rw; task 'wait' cannot open it for read"):
            lX.numpy()
        if len(ctx.devices) > 1:
            with pytest.raises(stf.PlaceError, match="is frozen for rw at data_place.device"):
                frozen.get(stf.data_place.host())
    add(lX)
    ctx.finalize()
    assert X.tolist() == [5, 5]


def test_a_loan_takes_streams_where_there_are_streams(ctx):
    lX = ctx.logical_data(np.zeros(3), name="X")
    frozen = ctx.freeze(lX)
    for use in (frozen.get, frozen.unfreeze):
        with pytest.raises(TypeError, match="a stream is an int, .*; got 'side'"):
            use(stream="side")
    if ctx.on_cuda:
        assert frozen.get(stream=0) is not None
    else:
        for use in (frozen.get, frozen.unfreeze):
            with pytest.raises(stf.PlaceError, match="this context runs on the CPU, .*; leave it out"):
                use(stream=7)
        with pytest.raises(stf.PlaceError, match="has no CUDA stream"):
            ctx.fence().__cuda_stream__()
    frozen.unfreeze()


def test_freeze_rules(ctx):
    lX = ctx.logical_data(np.zeros(2), readonly=True, name="X")
    with pytest.raises(stf.AccessError, match="'X' .* is read-only and cannot be frozen for writing"):
        ctx.freeze(lX, "rw")
    for mode in ("write", "rubbish", stf.access_mode.write):
        with pytest.raises(ValueError, match="freeze takes mode 'read' or 'rw', got"):
            ctx.freeze(lX, mode)
    frozen = ctx.freeze(lX)
    frozen.unfreeze()
    with pytest.raises(stf.TaskStateError, match="is not frozen; unfreeze was called twice"):
        frozen.unfreeze()
    with pytest.raises(stf.TaskStateError, match="is not frozen any more; freeze it again"):
        frozen.get()
    with pytest.raises(stf.UninitializedDataError, match="'E'"):
        ctx.freeze(ctx.logical_data_empty(3, name="E")).get()
    with pytest.raises(TypeError, match="logical data is needed, got ndarray"):
        ctx.freeze(np.zeros(2))
    token = ctx.token()
    with ctx.freeze(token) as frozen:
        assert frozen.get() is None
    assert lX.numpy().tolist() == [0, 0]


def test_frozen_data_stays_frozen_for_others_until_unfrozen(ctx):
    lX = ctx.logical_data(np.zeros(2), name="X")
    with ctx.freeze(lX, "read"):
        for use in (lX.release, lX.write_back, lambda: lX.tiles(1)):
            with pytest.raises(stf.AccessError, match="'X' .* cannot be .* while it is frozen; unfreeze it first"):
                use()


def test_freeze_left_open_does_not_cost_the_data(ctx):
    X = np.zeros(2)
    lX = ctx.logical_data(X)
    frozen = ctx.freeze(lX, "rw", stf.data_place.device(0))
    frozen.get()[:] = 3
    assert frozen.get().tolist() == [3, 3]  # who gives no stream has done what he does
    ctx.finalize()
    assert X.tolist() == [3, 3]
    with pytest.raises(stf.ContextClosedError):
        frozen.get()


# -- copy, fill, prefetch --------------------------------------------------------------------------------------------


def test_copy_and_fill(ctx):
    lX, lY = ctx.logical_data(np.arange(6.0).reshape(2, 3)), ctx.logical_data_empty((2, 3), np.float32)
    ctx.copy(lX, lY)
    ctx.fill(lX, -1)
    assert lY.numpy().tolist() == [[0, 1, 2], [3, 4, 5]] and (lX.numpy() == -1).all()
    ctx.copy(lX, lX)
    assert (lX.numpy() == -1).all()
    statistics = ctx.statistics()
    assert (statistics.tasks["copy"], statistics.tasks["fill"]) == (2, 1)


def test_copy_and_fill_refuse_what_does_not_fit(ctx):
    lX, lY, token = (
        ctx.logical_data(np.zeros(2), name="X"),
        ctx.logical_data(np.zeros(3), name="Y"),
        ctx.token(name="T"),
    )
    with pytest.raises(ValueError, match=r"cannot copy .*'X'.* to .*'Y'.*: the shapes \(2,\) and \(3,\) differ"):
        ctx.copy(lX, lY)
    with pytest.raises(TypeError, match="token 'T'"):
        ctx.copy(token, token)
    with pytest.raises(TypeError, match="token 'T'"):
        ctx.fill(token, 1)
    with pytest.raises(ValueError):
        ctx.fill(lX, "not a number")
    with pytest.raises(ValueError):
        ctx.fill(lX, [1, 2, 3])
    with pytest.raises(TypeError, match="logical data is needed, got ndarray"):
        ctx.fill(np.zeros(2), 1)
    with pytest.raises(TypeError, match="logical data is needed, got ndarray"):
        ctx.copy(np.zeros(2), lX)
    ctx.fill(lX, np.float32(2))
    assert lX.numpy().tolist() == [2, 2]


@pytest.mark.at_once("copies are made by its launches")
def test_prefetch_saves_the_copy_later(ctx, ctx_factory):
    lX = ctx.logical_data(np.zeros(2))
    last = len(ctx.devices) - 1
    ctx.prefetch(lX, stf.data_place.device(last))
    copies = ctx.statistics().total_copies
    assert copies == (0 if ctx_factory.shares_host else 1)
    with ctx.task(ctx.devices[last], lX.read()):
        pass
    ctx.prefetch(lX, stf.data_place.host())
    assert ctx.statistics().total_copies == copies
    with pytest.raises(stf.PlaceError):
        ctx.prefetch(lX, stf.data_place.device(17))
    with pytest.raises(TypeError, match="a data place is needed, got the execution place"):
        ctx.prefetch(lX, ctx.devices[0])


def test_tiles_of_tiles_join_when_the_last_outcome_was_known_before(ctx_factory):
    """The inner tile waits for its outcome; retiring it drops the outer one, which must go at once."""
    ctx = ctx_factory()
    X = np.zeros((4, 4))
    lX = ctx.logical_data(X, name="X")
    outer = lX.tiles((2, 4))
    inner = outer[1, 0].tiles((2, 2))

    @stf.task
    def one(x: stf.Write):
        x[...] = 1

    one.on(ctx.devices[-1])(inner[0, 1])
    del inner
    del outer
    ctx.fence().synchronize()
    with ctx.task(lX.rw()) as t:
        t[0][...] += 1
    assert lX.numpy().sum() == 4 + 16
    ctx.check_state()


# -- data that are filled where they are first used -----------------------------------------------------------------


@stf.task
def accumulate(x: stf.Accumulate[stf.reducer.sum]):
    x += 2


def by_task(ctx, l):
    on_last(ctx)(l)
    return 1


def by_block(ctx, l):
    with ctx.task(ctx.devices[-1], l.read()):
        pass
    return 0


def by_graph(ctx, l):
    with ctx.task_graph() as graph:
        on_last(ctx)(l)
    graph.launch()
    graph.launch()
    return 2


def by_replay(ctx, l):
    @stf.replay
    def step(x):
        on_last(ctx)(x)

    for _ in range(3):
        step(l)
    return 3


def by_graph_scope(ctx, l):
    with ctx.graph_scope():
        on_last(ctx)(l)
    return 1


def by_reduction(ctx, l):
    accumulate.on(ctx.devices[-1])(l)
    return 2


def by_prefetch(ctx, l):
    ctx.prefetch(l, stf.data_place.device(ctx.devices[-1].index))
    return 0


def by_other_data_of_a_graph(ctx, l):
    recorded = ctx.logical_data_zeros(4)
    with ctx.task_graph() as graph:
        on_last(ctx)(recorded)
    graph.launch({recorded: l})
    return 1


FIRST_USES = [
    by_task,
    by_block,
    by_graph,
    by_replay,
    by_graph_scope,
    by_reduction,
    by_prefetch,
    by_other_data_of_a_graph,
]


@pytest.mark.parametrize("use", FIRST_USES)
def test_filled_data_are_filled_where_they_are_first_used(ctx, use):
    lX = ctx.logical_data_full(4, 5.0, name="x")
    assert sum(ctx.statistics().allocations.values()) == 0 and "fill" not in ctx.statistics().tasks
    assert "made when it is used" in repr(lX) and "written by task 'fill' at test_data_life.py" in lX.history()
    more = use(ctx, lX)
    ctx.synchronize()
    assert sum(ctx.statistics().copies.values()) == 0 and ctx.statistics().tasks["fill"] == 1
    assert lX.numpy().tolist() == [5 + more] * 4


def test_filled_data_that_nobody_uses_take_no_memory(ctx):
    data = [ctx.logical_data_zeros(1 << 20) for _ in range(3)]
    set_to(data[2], 3.0)  # a pure write
    del data[0]
    ctx.synchronize()
    assert "fill" not in ctx.statistics().tasks
    assert sum(ctx.statistics().allocations.values()) == 1
    assert data[1].numpy()[0] == 3.0


def test_filled_data_that_the_host_uses(ctx):
    """Read, in tiles, frozen: on no device."""
    lX, lY, lZ = (ctx.logical_data_ones((4,)) for _ in range(3))
    assert lX.numpy().tolist() == [1.0] * 4 and ctx.wait(ctx.logical_data_full((), 7)) == 7
    tiles = lY.tiles(2)
    assert [tile.numpy().tolist() for tile in tiles] == [[1.0, 1.0]] * 2
    with ctx.freeze(lZ):
        pass
    used = {place: n for place, n in ctx.statistics().allocations.items() if n}
    assert used.keys() <= {"host"}
    del tiles
    on_last(ctx)(lY), on_last(ctx)(lZ)
    assert lY.numpy().tolist() == lZ.numpy().tolist() == [2.0] * 4


def test_what_is_filled_in_a_recording_is_filled_in_each_launch(ctx):
    total = ctx.logical_data_zeros(3)
    with ctx.task_graph() as graph:
        own = ctx.logical_data_ones(3)
        add(own)
        ctx.host_launch(own.read(), total.rw(), uses_cuda=False)(lambda own, total: np.add(total, own, out=total))
    for _ in range(3):
        graph.launch()
    assert total.numpy().tolist() == [6.0] * 3


# -- many tiles ------------------------------------------------------------------------------------------------------


def test_many_tiles_are_cut_without_a_collection(ctx):
    """Which would look at all of them; those of one shape share how they lie in memory."""
    collections = []
    lX = ctx.logical_data(np.arange(8002.0).reshape(4001, 2), name="X")
    thresholds = gc.get_threshold()
    gc.callbacks.append(lambda phase, info: collections.append(phase))
    gc.set_threshold(100)
    try:
        before = len(collections)
        tiles = lX.tiles((2, 1))
        during = len(collections) - before
    finally:
        gc.callbacks.pop()
        gc.set_threshold(*thresholds)
    assert during <= 8 and gc.isenabled()  # before and after it; hundreds if not
    assert len({id(tile.core.layout) for tile in tiles.flat}) == 4
    assert tiles[2000, 1].shape == (1, 1) and tiles[2000, 1].name == "X[2000,1]"
    assert tiles[1000, 1].numpy().tolist() == [[4001.0], [4003.0]]
