"""Execution places, data places and grids."""

from __future__ import annotations

import logging
import threading
import weakref

import numpy as np
import pytest
from helpers import address, content, put

import stf
from stf import data_place, exec_place
from stf.devices.make import default_device_count


def used(ctx):
    return {k for k, n in ctx.statistics().tasks_by_place.items() if n}


def touch(ctx, *args):
    with ctx.task(*args, ctx.logical_data(np.zeros(1)).rw()) as t:
        return t.exec_place


def test_equality_and_hash_by_value():
    assert exec_place.device(1) == exec_place.device(1) != exec_place.device(0) != exec_place.host()
    assert len({exec_place.device(0), exec_place.device(0), exec_place.host(), exec_place.host()}) == 2
    assert data_place.device(1) == data_place.device(1) != data_place.host() != data_place.managed()
    assert len({data_place.device(0), data_place.device(0), data_place.affine()}) == 2
    assert exec_place.device(0) != data_place.device(0)
    assert exec_place.n_devices(2) == exec_place.n_devices(2) and hash(exec_place.n_devices(2)) == hash(
        exec_place.n_devices(2)
    )
    assert exec_place.n_devices(4) != exec_place.n_devices(4).reshape(2, 2)


def test_reprs_can_be_typed_back():
    places = [
        exec_place.device(3),
        exec_place.host(),
        exec_place.current_device(),
        data_place.device(2),
        data_place.affine(),
    ]
    for place in places:
        assert eval(repr(place)) == place
    grid = exec_place.grid([0, "host"], (2, 1))
    assert eval(repr(grid)) == grid


def test_affine_data_places():
    assert exec_place.device(2).affine_data_place == data_place.device(2)
    assert exec_place.host().affine_data_place == data_place.host()
    assert exec_place.n_devices(1).affine_data_place == data_place.device(0)
    with pytest.raises(
        stf.PlaceError, match="has several memories; ask one of its places, or give a data place per access"
    ):
        exec_place.n_devices(2).affine_data_place


def test_grids():
    grid = exec_place.grid([exec_place.device(i) for i in range(6)], dims=(2, 3))
    assert grid.size == len(grid) == 6 and grid.dims == grid.get_dims() == (2, 3) and grid.get_dim(1) == 3
    assert grid[1, 2] == grid[5] == grid[-1] == grid[-1, -1] == exec_place.device(5)
    assert grid.reshape(3, 2)[1, 0] == grid.reshape((3, 2))[1, 0] == exec_place.device(2)
    assert list(grid.reshape(-1)) == list(grid) == list(grid.reshape(3, -1))
    one = exec_place.device(1)
    assert (
        one.size == 1
        and one[0] == one
        and list(one) == [one]
        and one.reshape(1, 1).dims == (1, 1)
        and one.get_dims() == (1,)
    )
    assert exec_place.grid([0, "host", exec_place.device(1)])[1] == exec_place.host()
    for wrong, error in (
        (lambda: exec_place.grid([]), "a grid needs at least one place, got none"),
        (lambda: grid.reshape(4, 2), r"a grid of shape \(4, 2\) has 8 places, got 6; make them equal"),
        (lambda: exec_place.n_devices(0), "a grid needs at least one place"),
        (lambda: exec_place.grid([grid, 0]), "the members of a grid are single places, got exec_place.grid"),
    ):
        with pytest.raises(stf.PlaceError, match=error):
            wrong()
    assert grid.reshape(np.int64(6)).dims == (6,) and one.reshape(-1).dims == (1,)
    for extents, kind in (((-2, -3), ValueError), ((True, 6), TypeError), ((2.0, 3), TypeError)):
        with pytest.raises(kind, match="negative|an int or a tuple of int is needed"):
            grid.reshape(*extents)
    for index in ((2, 0), (0, 3), (0, 0, 0)):
        with pytest.raises(IndexError, match="a grid of shape"):
            grid[index]
    with pytest.raises(IndexError, match="is one place; got index 1"):
        one[1]


def test_bad_numbers():
    for make in (exec_place.device, data_place.device):
        with pytest.raises(stf.PlaceError, match="a device number is not negative, got -1"):
            make(-1)
        for wrong in (1.0, "0", None, True):
            with pytest.raises(TypeError, match="a device number is an integer, got"):
                make(wrong)
        assert make(np.int32(2)) == make(2)


def test_devices_of_other_libraries(ctx):
    class Device:
        device_id = 0

    class CupyDevice:
        id = 0

    CupyDevice.__name__ = "Device"
    for thing in (Device(), CupyDevice(), np.int64(0)):
        assert touch(ctx, thing) == exec_place.device(0)


def test_default_place(ctx):
    assert touch(ctx) == exec_place.device(0)
    assert touch(ctx, exec_place.current_device()) == exec_place.device(0)
    assert touch(ctx, exec_place.n_devices(1)) == exec_place.device(0)


def test_with_place(ctx):
    last = ctx.devices[-1]

    @stf.task
    def f(x: stf.ReadWrite):
        x += 1

    lX = ctx.logical_data(np.zeros(1))
    with last:
        assert touch(ctx) == last
        with exec_place.host():
            assert touch(ctx) == exec_place.host()
            f(lX)
            assert touch(ctx, 0) == exec_place.device(0)
        assert touch(ctx) == last and touch(ctx, exec_place.current_device()) == last
        seen = []
        other = threading.Thread(target=lambda: seen.append(touch(ctx)))
        other.start()
        other.join()
        assert seen == [exec_place.device(0)]  # of another thread
        lX.release()
    assert touch(ctx) == exec_place.device(0)


def test_with_place_ends_when_its_block_raises(ctx):
    with pytest.raises(ZeroDivisionError), exec_place.host():
        1 / 0
    assert touch(ctx) == exec_place.device(0)


def test_place_outside_the_context_is_named_with_those_inside(ctx):
    n = len(ctx.devices)
    for use in (lambda: touch(ctx, n), lambda: touch(ctx, exec_place.device(n))):
        with pytest.raises(
            stf.PlaceError, match=rf"exec_place.device\({n}\) is not in this context; it has exec_place.device\(0\)"
        ):
            use()
    with exec_place.device(n), pytest.raises(stf.PlaceError, match="is not in this context"):
        touch(ctx)
    with pytest.raises(stf.PlaceError, match="runs on 4 places, and .* has no data place; give it one"):
        touch(ctx, exec_place.n_devices(4))
    assert touch(ctx) == exec_place.device(0)


def test_all_devices(ctx):
    with ctx:
        assert list(exec_place.all_devices()) == list(ctx.devices)
    assert exec_place.all_devices().size == default_device_count()


def test_tasks_land_on_every_place_of_a_grid(ctx):
    for place in ctx.devices:
        assert touch(ctx, place) == place
    assert used(ctx) == {f"device({i})" for i in range(len(ctx.devices))}


@stf.task
def add_one(x: stf.ReadWrite):
    x += 1


def test_a_function_at_a_place_is_made_once(ctx):
    """By number and by place; the same function serves other contexts, which know their own places."""
    last = len(ctx.devices) - 1
    here = add_one.on(last)
    assert here is add_one.on(last) is add_one.on(exec_place.device(last)) is not add_one.on("host")
    assert here.named("other").on(last).symbol == "other" and here.symbol == "add_one"
    lX = ctx.logical_data(np.zeros(3))
    for place, name in [(last, f"device({last})"), ("host", "host"), (exec_place.host(), "host"), (0, "device(0)")]:
        before = ctx.statistics().tasks_by_place[name]
        add_one.on(place)(lX)
        assert ctx.statistics().tasks_by_place[name] == before + 1
    assert lX.numpy().tolist() == [4.0] * 3
    for wrong in (True, 1.0, last + 1, -1, "devices"):  # of which some equal what is known
        with pytest.raises((TypeError, ValueError)):
            add_one.on(wrong)(lX)
    with stf.context(devices="cpu") as other:
        lY = other.logical_data(np.zeros(3))
        add_one.on(0)(lY)
        assert lY.numpy().tolist() == [1.0] * 3
        with pytest.raises(stf.PlaceError):
            add_one.on(1)(lY)
    add_one.symbol = "renamed"
    assert add_one.on(last).symbol == "renamed" and add_one.on("host").symbol == "renamed"
    add_one.symbol = "add_one"


def test_a_function_where_data_are_valid_keeps_them_not(ctx):
    lX = ctx.logical_data(np.zeros(3))
    add_one.on(ctx.devices[-1])(lX)
    before = ctx.statistics().tasks_by_place
    add_one.on(lX)(lX)
    after = ctx.statistics().tasks_by_place
    assert [name for name in after if after[name] != before[name]] == [f"device({len(ctx.devices) - 1})"]
    alive = weakref.ref(lX)
    del lX
    assert alive() is None


def test_idle_devices_are_told_at_finalize(ctx_factory, caplog):
    with caplog.at_level(logging.INFO, "stf"):
        with ctx_factory() as ctx:
            touch(ctx)
            touch(ctx)
    told = [r.message for r in caplog.records if "ran on device(0)" in r.message]
    n = ctx_factory.device_count
    assert told == ([] if n == 1 else [f"all 2 tasks ran on device(0) of {n}; use .on(place)"])


@pytest.mark.parametrize(
    "devices, error, message",
    [
        ("gpu", ValueError, "devices is 'cpu', 'cpu:N', 'cuda', .* got 'gpu'"),
        ("cpu:0", ValueError, "devices='cpu:N' needs at least one device, got 0; use 'cpu:1' or more"),
        ("cpu:x", ValueError, "devices is 'cpu'"),
        (3.5, TypeError, "devices is"),
    ],
)
def test_bad_devices(devices, error, message):
    with pytest.raises(error, match=message):
        stf.context(devices=devices)


def test_a_task_on_several_places(ctx):
    grid = exec_place.grid([ctx.devices[0], ctx.devices[-1]], (2, 1))
    where = data_place.device(ctx.devices[-1].index)
    lX, token = ctx.logical_data(np.zeros(4)), ctx.token()
    t = ctx.task(grid, lX.rw(where), token.rw(), name="several")
    with pytest.raises(stf.TaskStateError, match="streams on task 'several', which has not started"):
        t.streams
    with t:
        assert t.place == grid and len(t.streams) == 2
        (x,) = t.arrays()
        assert address(x) == t.get_arg(0)
        put(x, np.arange(4.0))
    with pytest.raises(stf.TaskStateError, match="has ended"):
        t.end()
    ctx.task(grid, lX.rw(where))(lambda x: put(x, content(x) + 1))
    with pytest.raises(ZeroDivisionError), ctx.task(grid, token.rw()):
        1 / 0
    token.accept()
    assert ctx.wait(lX).tolist() == [1, 2, 3, 4]
    t = ctx.task(lX.rw())
    with pytest.raises(stf.PlaceError, match="a task runs at one place, got a grid of 2"):
        t.set_exec_place(grid)
    with t:
        pass


def test_the_hardware_of_a_place(ctx):
    with ctx:
        host, device = stf.exec_place.host().attributes, ctx.devices[0].attributes
        assert (host.kind, host.multiprocessors) == ("cpu", 0)
        assert host.cores > 0
        if not ctx.on_cuda:
            assert device == host
        else:
            assert device.kind == "cuda"
            assert device.multiprocessors > 0
            assert device.warp_size == 32
            assert device.threads_per_block >= 512
            assert device.memory_bytes > 0
            assert device.shared_memory_per_multiprocessor >= device.shared_memory_per_block > 0
            assert device.architecture >= (3, 0)
            with pytest.raises(stf.PlaceError, match="not on this machine"):
                _ = stf.exec_place.device(77).attributes
        with pytest.raises(stf.PlaceError, match="no single device"):
            _ = stf.exec_place.auto().attributes
