"""Arrays whose data, or the tiles of them, their users have dropped while recordings use them."""

from __future__ import annotations

import gc
from functools import partial

import numpy as np
import pytest
from helpers import content, increment, is_cuda, put

import stf


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
    tiles = ctx.logical_data(X, name="X").tiles(4)
    with pytest.raises(ValueError, match=r"overlaps that of .*'X'.*split into 2 tiles; .*drop those"):
        ctx.logical_data(X[:2])
    del tiles
    part = ctx.logical_data(X[:2])
    increment(part)
    assert part.numpy().tolist() == [1.0] * 2
    del part
    g = recorded(ctx, X, 0)
    with pytest.raises(ValueError, match=r"overlaps that of .*'X'.*which a recorded graph .*uses; .*close\(\)"):
        ctx.logical_data(X[:2])
    g.close()
    assert ctx.logical_data(X[:2]).numpy().tolist() == [1.0] * 2


@pytest.mark.parametrize("use", ["a task", "a wait", "tiles", "a release", "a graph", "a loop", "a scope"])
@pytest.mark.parametrize("home", ["an array", "none"])
def test_replayed_functions_keep_nobody_from_what_tiles_were_cut_from(ctx, use, home):
    """No call can have tiles again that were dropped, so that what was recorded of them goes."""

    lX = ctx.logical_data(np.zeros(8), name="X") if home == "an array" else ctx.logical_data_zeros(8)
    for k in range(2):

        @stf.replay
        def step(tiles):
            for tile in tiles:
                increment(tile)

        tiles = list(lX.tiles(4))
        for _ in range(4):
            step(tiles)
        assert "launched 3 times" in step.explain()
        tiles.clear()
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
