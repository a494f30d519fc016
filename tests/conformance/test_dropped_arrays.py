"""Arrays whose data, or the tiles of them, their users have dropped while recordings use them."""

from __future__ import annotations

import collections
import contextlib
import gc
import sys
import threading
import time
from functools import partial

import numpy as np
import pytest
from helpers import add, content, increment, is_cuda, put, set_to, together

import stf
from stf._drivers import cpu


@stf.task
def reciprocal(x: stf.ReadWrite):
    if (x == 0).any():
        raise ZeroDivisionError("by zero")
    x[...] = 1 / x


@pytest.fixture(params=["NumPy's", "a device's"])
def X(ctx, request):
    """Eight elements of the user's."""
    if request.param == "NumPy's":
        return np.zeros(8)
    if not is_cuda(ctx):
        pytest.skip("the devices of this context are the CPU's")
    return pytest.importorskip("cupy").zeros(8)


@pytest.fixture
def switching():
    """Threads take turns all the time."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def tiles_of(ctx, lX, depth):
    """What lies side by side in a data: itself, its tiles, or theirs."""
    found = [lX]
    for extent in (4, 2)[:depth]:
        found = [tile for data in found for tile in data.tiles(extent)]
    return found


def recorded(ctx, X, depth):
    """A graph that increments an array, of which its user has dropped all data."""
    tiles = tiles_of(ctx, ctx.logical_data(X, name="X"), depth)
    g = ctx.task_graph()
    with g:
        for k, tile in enumerate(tiles):
            increment.on(ctx.devices[k % len(ctx.devices)])(tile)
    return g


@pytest.mark.parametrize("depth", [0, 1, 2], ids=["whole", "tiles", "tiles of tiles"])
def test_arrays_are_their_users_between_launches(ctx, X, depth):
    g = recorded(ctx, X, depth)
    for k in range(4):
        ctx.synchronize()  # STF_VALIDATE: the user may write from here on
        put(X, np.full(8, 10.0 * k))
        g.launch()
        g.launch()
        ctx.synchronize()
        assert content(X).tolist() == [10.0 * k + 2] * 8
    g.close()
    lX = ctx.logical_data(X)
    increment(lX)
    assert lX.numpy().tolist() == [33.0] * 8


@pytest.mark.parametrize("kept", ["tile", "whole"])
def test_arrays_are_the_context_s_as_long_as_their_users_hold_data(ctx, kept):
    X = np.zeros(8)
    lX = ctx.logical_data(X, name="X")
    tiles = list(lX.tiles(4))
    g = ctx.task_graph()
    with g:
        for tile in tiles:
            increment(tile)
    held = tiles[1] if kept == "tile" else lX
    del lX, tiles, tile
    g.launch()
    g.launch()
    ctx.synchronize()
    if kept == "tile":
        assert held.numpy().tolist() == [2.0] * 4
    else:
        with pytest.raises(stf.AccessError, match=r"is split into 2 tiles .*close\(\) the recorded graph"):
            held.numpy()
    del held
    gc.collect()
    ctx.synchronize()
    assert X.tolist() == [2.0] * 8
    X[:] = 10.0
    g.launch()
    ctx.synchronize()
    assert X.tolist() == [11.0] * 8


def test_an_array_whose_tiles_a_graph_uses_is_taken_as_it_is_when_it_is_registered_again(ctx, X):
    g = recorded(ctx, X, 1)
    g.launch()
    ctx.synchronize()
    put(X, np.full(8, 10.0))
    lX = ctx.logical_data(X)
    for use in (lX.numpy, lX.write_back, lX.release, partial(increment, lX), partial(lX.tiles, 4)):
        with pytest.raises(stf.AccessError, match=r"2 tiles .*close\(\) the recorded graph"):
            use()
    g.launch()
    g.close()
    assert lX.numpy().tolist() == [11.0] * 8
    del lX, use
    assert [tile.numpy().tolist() for tile in ctx.logical_data(X).tiles(4)] == [[11.0] * 4] * 2


def test_every_graph_of_tiles_comes_after_what_made_the_array_that_is_registered_again(ctx):
    if not is_cuda(ctx):
        pytest.skip("the devices of this context are the CPU's")
    cupy = pytest.importorskip("cupy")
    from cuda.bindings import driver

    n = 1 << 16
    with cupy.cuda.Device(ctx.devices[0].index):
        X, wrong, right = cupy.zeros(n), cupy.full(n, -1.0), cupy.full(n, 5.0)
        stream = cupy.cuda.Stream(non_blocking=True)
        graphs = []
        for tile in ctx.logical_data(X, name="X").tiles(n // 2):
            graphs.append(ctx.task_graph())
            with graphs[-1]:
                increment(tile)
        del tile
        ctx.synchronize()
        with stream:
            for source in [*[wrong] * 100, right]:  # which takes longer than the launches
                (code,) = driver.cuMemcpyDtoDAsync(X.data.ptr, source.data.ptr, X.nbytes, stream.ptr)
                assert int(code) == 0
            lX = ctx.logical_data(X)
            for g in reversed(graphs):
                g.launch()
                g.close()
        assert np.unique(lX.numpy()).tolist() == [6.0]


def test_a_part_of_an_array_whose_tiles_live_is_not_registered(ctx):
    X = np.zeros(8)
    tiles = list(ctx.logical_data(X, name="X").tiles(4))
    with pytest.raises(ValueError, match=r"overlaps that of .*'X'.*split into 2 tiles .*; .*drop them first"):
        ctx.logical_data(X[:2])
    g = ctx.task_graph()
    with g:
        increment(tiles[0])
    tiles.clear()
    with pytest.raises(ValueError, match=r"split into 1 tiles \('X\[0\]'\); .*close\(\) the recorded graph"):
        ctx.logical_data(X[4:])
    g.close()
    part = ctx.logical_data(X[:2])
    increment(part)
    assert part.numpy().tolist() == [1.0] * 2
    del part
    g = recorded(ctx, X, 0)
    with pytest.raises(ValueError, match=r"overlaps that of .*'X'.*which a recorded graph uses; .*close\(\)"):
        ctx.logical_data(X[:2])
    g.close()
    assert ctx.logical_data(X[:2]).numpy().tolist() == [1.0] * 2


@pytest.mark.parametrize("depth", [0, 1], ids=["whole", "tiles"])
@pytest.mark.parametrize("by", ["a body", "a replayed function"])
def test_a_part_is_registered_when_what_was_dropped_lets_go(ctx, by, depth):
    """Bodies on the host are waited for; of what is replayed no user has anything to close."""
    X = np.zeros(8)
    tiles = tiles_of(ctx, ctx.logical_data(X, name="X"), depth)
    go = threading.Event()

    @stf.task
    def slow(x: stf.ReadWrite):
        assert go.wait(60)
        x += 4

    if by == "a body":
        for tile in tiles:
            slow.on("host")(tile)
        del tile
        ctx.submit()
        threading.Timer(0.05, go.set).start()
    else:
        step = stf.replay(lambda: [increment(tile) for tile in tiles])
        for _ in range(4):
            step()
        assert "launched 3 times" in step.explain()
    tiles.clear()
    part = ctx.logical_data(X[:6])
    increment(part)
    assert part.numpy().tolist() == [5.0] * 6


@pytest.mark.parametrize("depth", [0, 1], ids=["whole", "tiles"])
@pytest.mark.parametrize("during", ["other tasks", "another recording"])
def test_an_array_is_taken_as_it_is_when_it_is_registered_again_meanwhile(ctx, depth, during):
    X, other = np.zeros(8), ctx.logical_data(np.zeros(2))
    g, h = recorded(ctx, X, depth), ctx.task_graph()
    g.launch()
    ctx.synchronize()
    X[:] = 10.0
    if during == "other tasks":  # which a graph context gathers
        increment(other)
        lX = ctx.logical_data(X)
    else:
        with h:
            increment(other)
            lX = ctx.logical_data(X)
            if not depth:
                increment(lX)
        if not depth:
            h.launch()
    g.launch()
    g.close()
    h.close()
    assert lX.numpy().tolist() == [12.0 if during == "another recording" and not depth else 11.0] * 8


@pytest.mark.parametrize("use", ["a task", "a wait", "tiles", "a release", "a graph", "a loop", "a scope"])
@pytest.mark.parametrize("home", ["an array", "none"])
@pytest.mark.parametrize("first", ["at once", "synchronize", "register"])
def test_replayed_functions_keep_nobody_from_what_tiles_were_cut_from(ctx, use, home, first):
    """No call can have tiles again that were dropped, so that what was recorded of them goes."""

    lX = ctx.logical_data(np.zeros(8), name="X") if home == "an array" else ctx.logical_data_zeros(8)

    @stf.replay
    def step(tiles):
        for tile in tiles:
            increment(tile)

    for k in range(2):
        tiles = list(lX.tiles(4))
        for _ in range(4):
            step(tiles)
        assert "launched 3 times" in step.explain()  # both times: what went was of no use to anybody
        tiles.clear()
        if first == "synchronize":
            ctx.synchronize()
        elif first == "register":
            ctx.logical_data(np.zeros(3))
        before = 5.0 * k + 4
        if use == "a task":
            increment(lX)
        elif use == "a wait":
            assert lX.numpy().tolist() == [before] * 8
            increment(lX)
        elif use == "tiles":
            for tile in lX.tiles(2):
                increment(tile)
            del tile
        elif use == "a release":
            increment(lX)
            lX.write_back() if home == "an array" else None
        else:
            blocks = {"a graph": ctx.task_graph, "a loop": lambda: ctx.repeat(1), "a scope": ctx.graph_scope}
            with blocks[use]() as block:
                increment(lX)
            if use == "a graph":
                block.launch()
                block.close()
        assert lX.numpy().tolist() == [before + 1] * 8
        assert not [data for data in ctx.engine.coherency.data.values() if data.parent is not None]


@pytest.mark.parametrize("how", ["close", "drop"])
@pytest.mark.parametrize("inside", [False, True], ids=["outside", "inside"])
def test_the_whole_is_used_again_when_the_graph_of_its_tiles_is_gone(ctx, how, inside):
    lX, other = ctx.logical_data(np.zeros(8)), ctx.logical_data(np.zeros(2))
    tiles = list(lX.tiles(4))
    g = ctx.task_graph()
    with g:
        increment(tiles[0])
    increment(tiles[1])
    tiles.clear()
    ctx.synchronize()
    g.launch()
    with ctx.graph_scope() if inside else contextlib.nullcontext():
        increment(other)
        if how == "close":
            g.close()
        del g
        increment(lX)
    assert lX.numpy().tolist() == [2.0] * 8


def test_sums_in_dropped_data_come_home(ctx):
    """What combines them is a body, which is submitted when somebody wants to see them."""

    @stf.task
    def count(x: stf.Accumulate[stf.reducer.sum], y: stf.Read):
        x += y

    X = np.zeros(4)
    lX, one = ctx.logical_data(X), ctx.logical_data_ones(4)
    g = ctx.task_graph()
    with g:
        increment(lX)
    count.on(ctx.devices[-1])(lX, one)
    del lX
    ctx.synchronize()
    assert X.tolist() == [1.0] * 4
    X[:] = 10.0
    g.launch()
    ctx.synchronize()
    assert X.tolist() == [11.0] * 4


@pytest.mark.parametrize("writes", [False, True])
def test_replayed_functions_that_write_nothing_back(ctx, writes):
    """They see in the array what the function would see that registers it."""
    found = []
    for wrap in (lambda body: body, stf.replay):

        class Arrays:
            X = np.zeros(4)

        X, ys = Arrays.X, []

        def body(total, arrays=Arrays):
            lX = ctx.logical_data(arrays.X, write_back=False)
            increment.on(ctx.devices[-1])(lX)
            add.on(ctx.devices[-1])(total, lX)

        step, total = wrap(body), ctx.logical_data_zeros(4)
        for k in range(5):
            step(total)
            ys.append(total.numpy().tolist())
            ctx.synchronize()
            if writes:
                X[:] = 10.0 * k
        found.append(ys)
    assert found[0] == found[1]


def test_data_that_a_replayed_function_returns_are_held_by_who_has_them(ctx):
    class Arrays:
        X = np.zeros(4)

    name, X, lY = "X", Arrays.X, ctx.logical_data_ones(4)

    @stf.replay
    def step(y):
        lX = ctx.logical_data(getattr(Arrays, name))  # which the code does not name, so that it is not compared
        add(lX, y)
        total = ctx.logical_data_zeros(4)
        add(total, lX)
        return lX, {"total": [total]}, y

    for k in range(6):
        lX, known, y = step(lY)
        assert y is lY and lX.numpy().tolist() == [10.0 * k + 1] * 4
        assert known["total"][0].numpy().tolist() == [10.0 * k + 1] * 4
        if k > 1:
            again, *_ = step(lY)
            assert again is lX and lX.numpy().tolist() == [10.0 * k + 2] * 4
            del again, _
        del lX, known, y
        ctx.synchronize()
        X[:] = 10.0 * (k + 1)
    assert "launched 9 times" in step.explain()


def test_a_tile_that_a_replayed_function_returns_lives(ctx):
    lX, lY = ctx.logical_data(np.arange(8.0)), ctx.logical_data(np.zeros(4))
    tiles = list(lX.tiles(4))

    class Held:
        tile = tiles[0]

    name = "tile"

    @stf.replay
    def step(y):
        add(y, getattr(Held, name))  # which the code does not name, so that it is not compared
        return getattr(Held, name)

    for _ in range(3):
        step(lY)
    Held.tile = None
    tiles.clear()
    tile = step(lY)
    with pytest.raises(stf.AccessError, match=r"split into .*drop them first"):
        lX.numpy()
    assert tile.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
    del tile
    step.close()
    assert lX.numpy().tolist() == list(range(8))


def test_what_replayed_functions_return_is_one_data_with_one_handle(ctx, lX):
    """Whichever function returns it, and where in a result."""
    Both = collections.namedtuple("Both", "one other")

    @stf.replay
    def make(x):
        made = x.empty_like()
        set_to(made, 1.0)
        add(made, x)
        return Both(made, [x, {"again": made}])

    @stf.replay
    def use(made):
        increment(made)
        return made, made

    for _ in range(5):
        result = make(lX)
        assert type(result) is Both and result.other[1]["again"] is result.one and result.other[0] is lX
        used, same = use(result.one)
        assert used is same is result.one
        del result, same
        ctx.synchronize()
        assert used.numpy().tolist() == [2.0] * 4
    make.close()
    use.close()
    assert used.numpy().tolist() == [2.0] * 4


def test_results_that_contain_themselves_are_kept_as_they_are(ctx, lX):
    @stf.replay
    def step(x):
        increment(x)
        found = [x]
        found.append(found)
        return found

    for k in range(4):
        found = step(lX)
        assert found[0] is lX and found[1][0] is lX and lX.numpy().tolist() == [k + 1.0] * 4


def test_what_a_closed_graph_is_launched_for_lets_go(ctx):
    """A replayed function launches it, and nobody else can any more."""
    X, lY = np.zeros(8), ctx.logical_data(np.zeros(8))
    lX = ctx.logical_data(X)
    g = ctx.task_graph()
    with g:
        increment(lX)

    @stf.replay
    def step(y):
        increment(y)
        g.launch()

    for _ in range(4):
        step(lY)
    assert "launched 3 times" in step.explain()
    g.close()
    del lX
    assert ctx.logical_data(X[:4]).numpy().tolist() == [4.0] * 4


def test_threads_that_register_parts_of_what_they_replayed(ctx, switching):
    def increment_once(x):
        increment(x)

    def work():
        for _ in range(5):
            X = np.zeros(8)
            step = stf.replay(increment_once)
            lX = ctx.logical_data(X)
            for _ in range(3):
                step(lX)
            del lX
            assert ctx.logical_data(X[2:6]).numpy().tolist() == [3.0] * 4

    together(*[work] * 3)


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_replayed_functions_are_a_part_of_a_scope(ctx, lX, calls):
    """Also as the first thing in it, whatever was called before."""

    @stf.replay
    def step(x):
        increment(x)

    for _ in range(calls):
        step(lX)
    with ctx.graph_scope():
        step(lX)
        step(lX)
    assert lX.numpy().tolist() == [calls + 2.0] * 4


@pytest.mark.parametrize("closes", [False, True])
def test_threads_that_replay_functions_of_tiles(ctx, switching, closes):
    """Each looks for what the others keep, too, and lets it go; and some close what they recorded themselves."""

    def work(is_closer):
        X = np.zeros(8)
        for k in range(10):
            lX = ctx.logical_data(X)
            step = stf.replay(lambda tiles: [increment(tile) for tile in tiles])
            tiles = list(lX.tiles(4))
            for _ in range(3):
                step(tiles)
            tiles.clear()
            if is_closer:
                step.close()
            increment(lX)
            assert lX.numpy().tolist() == [4.0 * (k + 1)] * 8
            del lX
            ctx.synchronize()

    together(*[partial(work, closes and index % 2 == 1) for index in range(4)])


def test_nothing_is_kept_of_dropped_tiles_without_a_wait(ctx):
    lX = ctx.logical_data(np.zeros(8))
    for k in range(1, 40):
        with ctx.graph_scope():
            for tile in lX.tiles(4):
                increment(tile)
            del tile
        assert lX.numpy().tolist() == [k] * 8
    engine = ctx.engine
    assert len(engine.coherency.data) == 1 and not engine.orphans and not engine.dropped_tiles


def test_what_a_failed_body_spoilt_is_as_its_user_leaves_it(ctx):
    """Once he knows: no handle is left that he could write to, or accept."""
    X = np.zeros(8)
    g = ctx.task_graph()
    with g:
        reciprocal.on("host")(ctx.logical_data(X, name="X"))
    with pytest.raises(stf.TaskFailedError, match="by zero"):
        g.launch()
        ctx.synchronize()
    X[:] = 4.0
    g.launch()
    ctx.synchronize()
    assert X.tolist() == [0.25] * 8
    X[:] = 0.0
    with pytest.raises(stf.TaskFailedError, match="by zero"):
        g.launch()
        ctx.synchronize()
    X[:] = 2.0
    assert ctx.logical_data(X).numpy().tolist() == [2.0] * 8


@pytest.mark.skipif(not stf.config.pure, reason="the compiled engine has no place where a test could wait")
def test_memory_is_registered_while_another_thread_gives_it_up(ctx, monkeypatch, switching):
    """The registry is told last: whoever registers the memory meanwhile still comes after its last write."""

    class Slow(dict):
        def get(self, key, default=None):
            if sys._getframe(1).f_code.co_name == "last_uses":
                time.sleep(0.002)
            return super().get(key, default)

        def pop(self, *args):
            found = super().pop(*args)
            time.sleep(0.003)
            return found

    ctx.engine.coherency.data = Slow(ctx.engine.coherency.data)
    copy = cpu.copy_strided
    monkeypatch.setattr(cpu, "copy_strided", lambda what: (time.sleep(0.01), copy(what)))

    def increment_once(x):
        increment(x)

    def work():
        for _ in range(40):
            X = np.zeros(8)
            step = stf.replay(increment_once)
            lX = ctx.logical_data(X)
            for _ in range(3):
                step(lX)
            del lX
            assert ctx.logical_data(X[2:6]).numpy().tolist() == [3.0] * 4

    together(*[work] * 3)
