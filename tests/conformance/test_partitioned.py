"""Partitioned data: parts with versions of their own, halos, the whole, and what is refused."""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
from typing import Any

import numpy as np
import pytest
from helpers import content, is_cuda, runs_kernels

import stf
from stf import con, data_place, mem, par

ROWS = stf.partition("blocked", None)


def composite(ctx: stf.Context, count: int = 2, part: Any = None) -> Any:
    """A composite place of so many members; a device may be there twice."""
    devices = list(ctx.devices)
    grid = stf.exec_place.grid([devices[i % len(devices)] for i in range(count)])
    return data_place.composite(grid, stf.partition("blocked") if part is None else part)


@pytest.fixture
def X() -> np.ndarray:
    return np.arange(10.0)


@pytest.fixture
def x(ctx: stf.Context, X: np.ndarray) -> Any:
    return ctx.logical_data(X, data_place=composite(ctx), name="X")


def add(ctx: stf.Context, data: Any, value: float, place: Any = None) -> None:
    def body(a: Any) -> None:
        a += value

    ctx.task(data.exec_place if place is None else place, data.rw())(body)


def halo_of(ctx: stf.Context, part: Any, **options: Any) -> Any:
    """What a read with a halo gets, as data."""
    access = part.read(**options)
    out = ctx.logical_data_empty(access.data.shape, access.data.dtype)

    def body(a: Any, o: Any) -> None:
        o[...] = a

    ctx.task(part.exec_place, access, out.write())(body)
    return out


# -- parts and the whole -------------------------------------------------------------------------------------------


def test_parts_are_data_at_home_on_their_places(ctx, x):
    assert isinstance(x, stf.PartitionedData)
    assert x.parts.shape == x.grid.dims == (2,)
    first, second = x.parts
    assert isinstance(second, stf.DataPart)
    assert second.whole.core is x.core
    assert (second.position, second.region, second.shape) == ((1,), stf.box[5:10], (5,))
    assert second.exec_place == x.grid[1]
    assert first.name == "X.parts[0]"
    assert "partitioned over (2,) by partition('blocked')" in repr(x)


def test_tasks_on_parts_and_on_the_whole_see_each_other(ctx, x, X):
    expected = X.copy()
    for step in range(3):
        for p in range(2):
            add(ctx, x.parts[p], p + step)
        expected += np.repeat([0.0, 1.0], 5) + step
        assert ctx.wait(x).tolist() == expected.tolist()
        add(ctx, x, 10, ctx.devices[-1])
        expected += 10
        assert ctx.wait(x.parts[1]).tolist() == expected[5:].tolist()
    add(ctx, x.parts[0], 1)
    expected[:5] += 1
    ctx.finalize()
    assert X.tolist() == expected.tolist()


def test_what_overwrites_needs_no_copy(ctx, x):
    ctx.synchronize()
    before = sum(ctx.statistics().copies.values())
    for part in x.parts:
        ctx.fill(part, 3.0)
    ctx.synchronize()
    assert sum(ctx.statistics().copies.values()) == before
    assert ctx.wait(x).tolist() == [3.0] * 10


@pytest.mark.parametrize("part", [stf.partition("cyclic"), stf.partition(("block_cyclic", 3)), stf.null_partition])
@pytest.mark.parametrize("strided", [False, True])
def test_any_partition_and_any_strides(ctx, part, strided):
    home = np.arange(20.0)[::2] if strided else np.arange(10.0)
    expected = home.copy()
    x = ctx.logical_data(home, data_place=composite(ctx, 3, part))
    for p in range(3):
        add(ctx, x.parts[p], p + 1)
        expected[x.parts[p].region.indices()] += p + 1
    ctx.finalize()
    assert home.tolist() == expected.tolist()


def test_parts_of_two_axes(ctx):
    home = np.asfortranarray(np.arange(20.0).reshape(4, 5))
    expected = home.copy()
    grid = stf.exec_place.grid([ctx.devices[i % len(ctx.devices)] for i in range(4)], (2, 2))
    x = ctx.logical_data(home, data_place=data_place.composite(grid, stf.partition("blocked", "cyclic")))
    assert x.parts.shape == (2, 2)
    add(ctx, x.parts[1, 0], 5)
    expected[2:, ::2] += 5
    assert ctx.wait(x).tolist() == expected.tolist()
    assert ctx.wait(x.parts[1, 0]).tolist() == expected[2:, ::2].tolist()


def test_empty_parts(ctx):
    home = np.arange(2.0)
    x = ctx.logical_data(home, data_place=composite(ctx, 4))
    for part in x.parts:
        add(ctx, part, 1)
    assert ctx.wait(x.parts[3]).shape == (0,)
    ctx.finalize()
    assert home.tolist() == [1.0, 2.0]


def test_a_users_partition_places_data(ctx):
    class Ends:
        """The ends of an axis for the first place, the middle for the second."""

        def apply(self, shape: Any, position: Any, grid_dims: Any) -> Any:
            n = shape[0] if isinstance(shape, tuple) else shape
            return range(0, n, n - 1) if position in (0, (0,)) else range(1, n - 1)

        def get_executor(self, coords: Any, dims: Any, grid_dims: Any) -> Any:
            return (0 if coords[0] in (0, dims[0] - 1) else 1,)

    home = np.arange(6.0)
    x = ctx.logical_data(home, data_place=composite(ctx, 2, Ends()))
    add(ctx, x.parts[0], 10)
    assert ctx.wait(x).tolist() == [10.0, 1.0, 2.0, 3.0, 4.0, 15.0]


def test_a_part_may_be_used_elsewhere(ctx, x):
    add(ctx, x.parts[1], 1, ctx.devices[0])
    add(ctx, x.parts[1], 1, stf.exec_place.host())
    assert ctx.wait(x).tolist() == [*range(5), *range(7, 12)]


def test_the_same_array_again_is_the_same_data(ctx, x, X):
    again = ctx.logical_data(X, data_place=composite(ctx))
    assert again.core is x.core
    assert isinstance(ctx.logical_data(X), stf.PartitionedData)
    with pytest.raises(stf.PlaceError, match="partitioned already"):
        ctx.logical_data(X, data_place=composite(ctx, 3))


def test_data_that_are_dropped_are_written_back_at_the_end(ctx, X):
    x = ctx.logical_data(X, data_place=composite(ctx))
    add(ctx, x.parts[1], 1)
    del x
    gc.collect()
    ctx.finalize()
    assert X.tolist() == [*range(5), *range(6, 11)]


def test_write_back_and_release(ctx, x, X):
    add(ctx, x.parts[0], 1)
    x.write_back()
    ctx.wait(x)
    assert X[0] == 1
    add(ctx, x.parts[0], 1)
    x.release()
    ctx.synchronize()
    assert X[0] == 2
    with pytest.raises(stf.AccessError, match="was released"):
        add(ctx, x.parts[0], 1)


def test_arrays_that_are_not_written_back(ctx, X):
    x = ctx.logical_data(X, data_place=composite(ctx), write_back=False)
    add(ctx, x.parts[0], 1)
    assert ctx.wait(x.parts[0])[0] == 1
    ctx.finalize()
    assert X[0] == 0


def test_readonly_parts(ctx, X):
    x = ctx.logical_data(X, data_place=composite(ctx), readonly=True)
    with pytest.raises(stf.AccessError, match="read-only"):
        x.parts[0].rw()
    assert ctx.wait(halo_of(ctx, x.parts[0], halo=1)).tolist() == [*range(6)]


def test_ready_asks_the_newest_content(ctx, x):
    assert x.ready()
    add(ctx, x.parts[0], 1)
    ctx.wait(x.parts[0])
    assert x.ready()


def test_memory_that_runs_out(ctx_factory):
    limit = 4096
    ctx = ctx_factory(memory_limit=limit)
    if len(ctx.devices) < 2:
        pytest.skip("one CPU device has the memory of the host, which has no limit")
    home = np.zeros(limit // 2, np.int32)
    with pytest.raises(stf.OutOfMemoryError):
        ctx.logical_data(home, data_place=composite(ctx, 1, stf.partition("blocked")))
    small = home[: limit // 8]
    x = ctx.logical_data(small, data_place=composite(ctx, 1, stf.partition("blocked")))
    others = [ctx.logical_data_zeros(limit // 16, np.int32) for _ in range(6)]
    for other in others:
        add(ctx, other, 1, ctx.devices[0])
        add(ctx, x.parts[0], 1)
    assert ctx.wait(x).tolist() == [6] * len(small)
    assert all((ctx.wait(other) == 1).all() for other in others)


@pytest.mark.parametrize(
    "part", [stf.partition("blocked"), stf.partition("cyclic"), stf.partition(("block_cyclic", 2))]
)
def test_the_whole_at_its_composite_place(ctx, part):
    """As one array over the parts where they lie, on CUDA; gathered elsewhere."""
    home = np.arange(10.0)
    x = ctx.logical_data(home, data_place=composite(ctx, 3, part))
    expected = home.copy()
    for step in range(3):
        add(ctx, x.parts[step], 1)
        expected[x.parts[step].region.indices()] += 1

        def body(a: Any) -> None:
            a *= 2

        ctx.task(x.grid[step], x.rw(x.data_place))(body)
        expected *= 2
        assert ctx.wait(x.parts[1]).tolist() == expected[x.parts[1].region.indices()].tolist()
    found = ctx.logical_data_empty(10, float)

    def keep(a: Any, b: Any) -> None:
        b[...] = a

    ctx.task(x.read(x.data_place), found.write())(keep)
    assert ctx.wait(found).tolist() == expected.tolist()

    def ones(a: Any) -> None:
        a[...] = 1

    ctx.task(x.write(x.data_place))(ones)
    assert ctx.wait(x).tolist() == [1.0] * 10
    for accesses in [(x.rw(x.data_place), x.parts[0].read()), (x.read(x.data_place), x.parts[0].rw())]:
        with pytest.raises(stf.AccessError, match="use either"):
            ctx.task(*accesses)(lambda a, b: None)


def test_nothing_is_copied_for_the_whole_at_its_place(ctx):
    if not ctx.on_cuda or len(ctx.devices) < 2:
        pytest.skip("emulated devices have memories of their own")
    if ctx.engine.gathering is not None:
        pytest.skip("copies are counted when they are made")
    x = ctx.logical_data(np.zeros(12), data_place=composite(ctx, 4))
    for part in x.parts:
        ctx.fill(part, 1.0)
    ctx.synchronize()
    before = sum(ctx.statistics().copies.values())
    for k, part in enumerate(x.parts):
        add(ctx, part, k)
        ctx.task(x.grid[0], x.rw(x.data_place))(lambda a: a + 1)
    ctx.synchronize()
    assert sum(ctx.statistics().copies.values()) == before
    assert ctx.wait(x).tolist() == np.repeat([5.0, 6.0, 7.0, 8.0], 3).tolist()


def test_parts_are_filled_where_they_lie(ctx):
    if len(ctx.devices) < 2 or ctx.engine.gathering is not None:
        pytest.skip("copies between devices are counted when they are made")
    x = ctx.logical_data(np.zeros((4, 3)), data_place=composite(ctx, 2, ROWS))
    y = ctx.logical_data_ones((2, 3))
    ctx.fill(x.parts[1], 2.0)
    ctx.copy(x.parts[1], x.parts[0])
    ctx.fill(x, np.arange(4.0)[:, None])
    ctx.copy(y, x.parts[1])
    ctx.prefetch(x, x.data_place)
    ctx.synchronize()
    assert between_devices(ctx) <= 1
    assert ctx.wait(x).tolist() == [[0.0] * 3, [1.0] * 3, [1.0] * 3, [1.0] * 3]
    with pytest.raises(stf.PlaceError, match="several memories"):
        ctx.prefetch(y, x.data_place)
    with pytest.raises(ValueError, match="broadcasts"):
        ctx.fill(x, np.zeros(5))


def test_a_failed_task_on_the_whole_poisons_the_parts(ctx, x):
    def fails(a: Any) -> None:
        raise RuntimeError("no")

    with contextlib.suppress(stf.TaskFailedError, RuntimeError):
        ctx.task(x.grid[0], x.rw(x.data_place))(fails)
        ctx.synchronize()
    for part in x.parts:
        with pytest.raises(stf.TaskFailedError):
            ctx.wait(part)
    for part in x.parts:
        ctx.fill(part, 2.0)
    add(ctx, x, 1, x.grid[0])
    assert ctx.wait(x).tolist() == [3.0] * 10


def test_any_number_of_places_gives_the_same_bits(ctx):
    start = np.sin(np.arange(64.0)).reshape(16, 4)
    found = []
    for count in range(1, 9):
        home = start.copy()
        x = ctx.logical_data(home, data_place=composite(ctx, count, ROWS))
        y = ctx.logical_data(np.zeros_like(home), data_place=composite(ctx, count, ROWS))
        for _ in range(3):
            for old, new in zip(x.parts, y.parts, strict=True):

                def step(a: Any, b: Any, first: bool = old.position == (0,)) -> None:
                    rows = a[1:] if not first else a
                    b[...] = rows[: len(b)] * 1.1 + 0.3
                    b[1 if first else 0 :] += a[: len(b) - 1 if first else len(b)] * 0.7

                ctx.task(old.exec_place, old.read(halo=(1, 0)), new.write())(step)
            x, y = y, x
        found.append(ctx.wait(x).tobytes())
    assert len(set(found)) == 1


# -- waiting for each other ----------------------------------------------------------------------------------------


def test_the_whole_is_refused_while_this_thread_has_a_part_open(ctx, x):
    with ctx.task(x.parts[0].rw()):
        with pytest.raises(stf.TaskStateError, match="end (that task|it) first"), ctx.task(x.read()):
            pass
        with pytest.raises(stf.TaskStateError, match="end (that task|it) first"), ctx.task(x.parts[1].read(halo=1)):
            pass
    with ctx.task(x.rw()):
        with pytest.raises(stf.TaskStateError, match="end (that task|it) first"), ctx.task(x.parts[0].read()):
            pass
        with pytest.raises(stf.TaskStateError, match="end (that task|it) first"), ctx.task(x.parts[0].read(halo=1)):
            pass
    if ctx.engine.gathering is None:  # else what was gathered has to be launched between both
        with ctx.task(x.read()), ctx.task(x.parts[0].read()):
            pass


@pytest.mark.at_once("the thread would wait for a task that is gathered")
def test_the_whole_waits_for_a_part_that_another_thread_has_open(ctx, x):
    opened, go_on, found = threading.Event(), threading.Event(), []

    def hold() -> None:
        with ctx.task("host", x.parts[0].rw()) as t:
            opened.set()
            go_on.wait()
            t[0][...] = 7.0

    holder = threading.Thread(target=hold)
    holder.start()
    opened.wait()
    reader = threading.Thread(target=lambda: found.append(ctx.wait(x)))
    reader.start()
    reader.join(0.05)
    assert reader.is_alive()
    go_on.set()
    holder.join()
    reader.join()
    assert found[0].tolist() == [7.0] * 5 + [5.0, 6.0, 7.0, 8.0, 9.0]


def test_a_task_uses_the_whole_or_a_part(ctx, x):
    for accesses in [(x.rw(), x.parts[0].read()), (x.parts[0].rw(), x.read())]:
        with pytest.raises(stf.AccessError, match="is a part of the other"):
            ctx.task(*accesses)(lambda a, b: None)


@pytest.mark.at_once("loans are outside of what is gathered")
def test_loans(ctx, x):
    add(ctx, x.parts[0], 1)
    with ctx.freeze(x, "rw") as lent:
        array = lent.get()
        assert array[0] == 1
        array[5] = 50.0
        with pytest.raises(stf.AccessError, match="is frozen for rw"):
            add(ctx, x.parts[0], 1)
        with pytest.raises(stf.AccessError, match="is frozen"):
            ctx.freeze(x.parts[0])
    assert ctx.wait(x.parts[1])[0] == 50
    with ctx.freeze(x.parts[1], "rw") as lent:
        lent.get()[1] = 60.0
        with pytest.raises(stf.AccessError, match="is frozen for rw"):
            add(ctx, x, 1, ctx.devices[0])
    assert ctx.wait(x).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 50.0, 60.0, 7.0, 8.0, 9.0]


# -- halos ---------------------------------------------------------------------------------------------------------


def test_a_halo_has_the_neighbours_edges(ctx):
    home = np.arange(12.0)
    x = ctx.logical_data(home, data_place=composite(ctx, 3))
    for p in range(3):
        add(ctx, x.parts[p], 100 * p)
    now = np.arange(12.0) + np.repeat([0.0, 100.0, 200.0], 4)
    for p, rows in enumerate([range(5), range(3, 9), range(7, 12)]):
        assert ctx.wait(halo_of(ctx, x.parts[p], halo=1)).tolist() == now[rows].tolist()
    assert ctx.wait(halo_of(ctx, x.parts[1], halo=2)).tolist() == now[2:10].tolist()
    around = np.concatenate([now[-1:], now[:5]])
    assert ctx.wait(halo_of(ctx, x.parts[0], halo=1, halo_mode="periodic")).tolist() == around.tolist()
    add(ctx, x.parts[0], 1)
    now[:4] += 1
    assert ctx.wait(halo_of(ctx, x.parts[1], halo=1)).tolist() == now[3:9].tolist()
    ctx.fill(x, 5.0)
    assert ctx.wait(halo_of(ctx, x.parts[1], halo=2)).tolist() == [5.0] * 8


def test_a_reader_of_a_halo_keeps_what_it_was_given(ctx):
    """A neighbour is overwritten, and the part too, before the reader has run."""
    x = ctx.logical_data(np.zeros(9), data_place=composite(ctx, 3))
    outs = []
    for step in range(20):
        outs.append(halo_of(ctx, x.parts[1], halo=1))
        for p in range(3):
            add(ctx, x.parts[p], 1)
        assert step >= 0
    for step, out in enumerate(outs):
        assert ctx.wait(out).tolist() == [step] * 5


def test_corners(ctx):
    home = np.arange(36.0).reshape(6, 6)
    grid = stf.exec_place.grid([ctx.devices[i % len(ctx.devices)] for i in range(4)], (2, 2))
    x = ctx.logical_data(home, data_place=data_place.composite(grid, stf.partition("blocked", "blocked")))
    assert ctx.wait(halo_of(ctx, x.parts[1, 1], halo=1)).tolist() == home[2:, 2:].tolist()
    assert ctx.wait(halo_of(ctx, x.parts[0, 1], halo=(0, 2))).tolist() == home[:3, 1:].tolist()
    wrapped = np.pad(home, 1, mode="wrap")
    assert ctx.wait(halo_of(ctx, x.parts[0, 0], halo=1, halo_mode="periodic")).tolist() == wrapped[:5, :5].tolist()


@pytest.mark.at_once("copies are counted when they are made")
def test_a_stencil_makes_two_copies_a_neighbour_and_step(ctx):
    if len(ctx.devices) < 2:
        pytest.skip("one device copies nothing to another")
    home, rows = np.arange(24.0) ** 2, len(ctx.devices)
    place = data_place.composite(ctx.devices, stf.partition("blocked"))
    old, new = ctx.logical_data(home, data_place=place), ctx.logical_data(home.copy(), data_place=place)
    expected = home.copy()

    def step(a: Any, b: Any) -> None:
        b[...] = a[: len(b)] + a[-len(b) :]

    def run() -> None:
        nonlocal old, new, expected
        for before, after in zip(old.parts, new.parts, strict=True):
            ctx.task(before.exec_place, before.read(halo=1), after.write())(step)
        old, new = new, old
        sums = np.zeros_like(expected)
        for part in old.parts:
            start, stop = part.region[0].start, part.region[0].stop
            a = expected[max(start - 1, 0) : stop + 1]
            sums[start:stop] = a[: stop - start] + a[-(stop - start) :]
        expected = sums

    run()
    run()
    ctx.synchronize()
    steps, before = 5, between_devices(ctx)
    for _ in range(steps):
        run()
    ctx.synchronize()
    copies = 0 if ctx.on_cuda else 2 * (rows - 1) * steps  # on CUDA a neighbour's row is read where it lies
    assert between_devices(ctx) - before == copies
    assert ctx.wait(old).tolist() == expected.tolist()


def between_devices(ctx: stf.Context) -> int:
    """How many copies there were between different devices."""
    return sum(n for (one, other), n in ctx.statistics().copies.items() if one != other and "host" not in (one, other))


def test_a_halo_is_not_copied_again_if_nothing_was_written(ctx):
    x = ctx.logical_data(np.arange(8.0), data_place=composite(ctx))
    halo_of(ctx, x.parts[0], halo=1)
    ctx.synchronize()
    tasks = ctx.statistics().kinds["exchange"] if hasattr(ctx.statistics(), "kinds") else None
    for _ in range(3):
        assert ctx.wait(halo_of(ctx, x.parts[0], halo=1)).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    if tasks is not None:
        assert ctx.statistics().kinds["exchange"] == tasks


def test_what_no_halo_is_for(ctx, x):
    part = x.parts[0]
    for verb in (part.write, part.rw):
        with pytest.raises(stf.AccessError, match="halos are read"):
            verb(halo=1)
    with pytest.raises(ValueError, match="part 0 of 'X' has 5 rows .* a halo of 6 .* at most 1 places"):
        part.read(halo=6)
    with pytest.raises(ValueError, match="one for each of 1 axes"):
        part.read(halo=(1, 1))
    with pytest.raises(ValueError, match="not negative"):
        part.read(halo=-1)
    with pytest.raises(TypeError, match="an integer"):
        part.read(halo=1.5)
    with pytest.raises(ValueError, match="periodic"):
        part.read(halo=1, halo_mode="mirror")
    with pytest.raises(stf.PlaceError, match="where it lies"):
        part.read(data_place.host(), halo=1)
    cyclic = ctx.logical_data(np.zeros(8), data_place=composite(ctx, 2, stf.partition("cyclic")))
    with pytest.raises(ValueError, match="a halo needs blocks"):
        cyclic.parts[0].read(halo=1)
    if not ctx.on_cuda:  # there a part keeps its memory
        with ctx.task(part.rw()), pytest.raises((stf.TaskStateError, stf.AccessError)):
            part.read(halo=1)
    for accesses in [(part.read(halo=1), x.parts[1].rw()), (part.rw(), part.read(halo=1))]:
        with pytest.raises(stf.AccessError, match="write"):
            ctx.task(*accesses)(lambda a, b: None)


# -- what else uses parts ------------------------------------------------------------------------------------------


def test_fill_copy_and_prefetch(ctx, x):
    y = ctx.logical_data(np.zeros(10), data_place=composite(ctx))
    plain = ctx.logical_data(np.zeros(10))
    ctx.fill(x, 4.0)
    ctx.copy(x, y)
    ctx.copy(y, plain)
    add(ctx, y.parts[1], 1)
    ctx.copy(y.parts[1], x.parts[0])
    ctx.prefetch(x.parts[0], data_place.host())
    ctx.prefetch(y, data_place.device(ctx.devices[0].index))
    assert ctx.wait(plain).tolist() == [4.0] * 10
    assert ctx.wait(x).tolist() == [5.0] * 5 + [4.0] * 5
    assert ctx.wait(y).tolist() == [4.0] * 5 + [5.0] * 5


def test_a_recorded_graph_uses_parts_and_halos(ctx):
    home = np.arange(8.0)
    x, y = (ctx.logical_data(a, data_place=composite(ctx)) for a in (home, home.copy()))
    for part in (*x.parts, *y.parts):
        add(ctx, part, 0)
        part.read(halo=1)
    graph = ctx.task_graph()

    def smooth(a: Any, b: Any) -> None:
        b[...] = a[: len(b)] + a[-len(b) :]

    with graph:
        for old, new in ((x, y), (y, x)):
            for before, after in zip(old.parts, new.parts, strict=True):
                ctx.task(before.exec_place, before.read(halo=1), after.write())(smooth)
    expected = home.copy()
    for launch in range(3):
        graph.launch()
        for _ in range(2):
            expected = np.concatenate([expected[:4] + expected[1:5], expected[3:7] + expected[4:]])
        if launch == 1:
            add(ctx, x, 1, ctx.devices[0])
            expected = expected + 1
    assert ctx.wait(x).tolist() == expected.tolist()
    graph.close()


def test_a_recording_writes_the_whole_or_its_parts(ctx, x):
    add(ctx, x.parts[0], 1)
    ctx.wait(x)
    with pytest.raises(stf.AccessError, match="use only the parts there"), ctx.task_graph():
        add(ctx, x.parts[0], 1)
        ctx.task(ctx.devices[0], x.read())(lambda a: None)
    with pytest.raises(stf.AccessError, match="use only the parts there"), ctx.task_graph():
        add(ctx, x, 1, ctx.devices[0])
        ctx.task(ctx.devices[0], x.parts[1].read())(lambda a: None)
    assert ctx.wait(x)[0] == 1


def test_a_recording_needs_parts_that_have_content(ctx, x):
    with pytest.raises((stf.TaskStateError, stf.UninitializedDataError), match="before"), ctx.task_graph():
        add(ctx, x.parts[0], 1)
    add(ctx, x.parts[0], 1)
    assert ctx.wait(x)[0] == 1


def test_no_other_data_stand_for_parts(ctx, x):
    add(ctx, x.parts[0], 1)
    with ctx.task_graph() as graph:
        add(ctx, x.parts[0], 1)
    with pytest.raises(ValueError, match="no other data can stand for it"):
        graph.launch({x.parts[0]: ctx.logical_data(np.zeros(5))})
    graph.close()


def test_what_parts_are_not_for(ctx, x):
    part = x.parts[0]
    with pytest.raises(stf.AccessError, match="cannot be accumulated into"):
        ctx.task(part.accumulate(stf.reducer.sum))(lambda a: None)
    for data in (x, part):
        with pytest.raises(stf.AccessError, match="parts|tiles"):
            data.tiles(2)
    with pytest.raises((stf.AccessError, TypeError)):
        ctx.event(x.write())
    for refused in (part.release, part.write_back):
        with pytest.raises((stf.AccessError, ValueError), match="the whole"):
            refused()
    with pytest.raises(ValueError, match="the whole"):
        part.set_write_back(False)


@pytest.mark.at_once("a body that raises is not gathered")
def test_poison_is_by_part(ctx, x):
    if is_cuda(ctx):
        pytest.skip("a body there raises in the call")

    def fail(a: Any) -> None:
        a[0] = 77.0
        raise ZeroDivisionError

    ctx.task(x.parts[1].exec_place, x.parts[1].rw())(fail)
    with pytest.raises(stf.TaskFailedError, match=r"X\.parts\[1\]"):
        ctx.wait(x.parts[1])
    assert ctx.wait(x.parts[0]).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    with pytest.raises(stf.TaskFailedError):
        ctx.wait(x)
    with pytest.raises(stf.TaskFailedError):
        ctx.wait(halo_of(ctx, x.parts[0], halo=1))
    x.accept()
    assert ctx.wait(x)[5] == 77
    ctx.task(ctx.devices[0], x.rw())(fail)
    with pytest.raises(stf.TaskFailedError):
        ctx.wait(x.parts[0])
    x.accept()
    assert ctx.wait(x.parts[0])[0] == 77
    assert ctx.wait(x.parts[1])[0] == 77
    assert "X.parts[0]" in x.history()


@pytest.mark.at_once("copies are counted when they are made")
def test_a_loop_runs_on_each_part_alone(ctx, x):
    if not runs_kernels(ctx):
        pytest.skip("no kernels there")
    y = ctx.logical_data(np.zeros(10), data_place=composite(ctx))
    for part in (*x.parts, *y.parts):
        ctx.task(part.exec_place, part.read())(lambda a: None)
    ctx.synchronize()
    before = dict(ctx.statistics().copies)
    for _ in range(4):

        @ctx.parallel_for(x.grid, x.shape, x.read(), y.rw())
        def axpy(i, x, y):
            y[i] += 2.0 * x[i]

    ctx.synchronize()
    assert dict(ctx.statistics().copies) == before
    assert ctx.wait(y).tolist() == (8.0 * np.arange(10)).tolist()


def test_loops_over_parts_with_halos(ctx):
    if not runs_kernels(ctx):
        pytest.skip("no kernels there")
    home = np.arange(12.0)
    x = ctx.logical_data(home, data_place=composite(ctx, 3))
    y = ctx.logical_data(np.zeros(12), data_place=composite(ctx, 3))
    for old, new in zip(x.parts, y.parts, strict=True):
        first = 0 if old.position == (0,) else 1
        over = stf.box[1 - first : len(new.region[0]) - (1 if old.position == (2,) else 0)]

        def smooth(i: int, a: Any, b: Any) -> None:
            b[i] = a[i + first - 1] + a[i + first + 1]

        ctx.fill(new, 0.0)
        ctx.parallel_for(old.exec_place, over, old.read(halo=1), new.rw())(smooth)
    expected = np.zeros(12)
    expected[1:-1] = home[:-2] + home[2:]
    assert ctx.wait(y).tolist() == expected.tolist()


@pytest.mark.parametrize(
    "part", [stf.partition("blocked"), stf.partition("cyclic"), stf.partition(("block_cyclic", 3))]
)
def test_loops_that_look_beyond_their_element_run_on_the_whole(ctx, part):
    if not runs_kernels(ctx):
        pytest.skip("no kernels there")
    home = np.arange(10.0)
    x = ctx.logical_data(home, data_place=composite(ctx, 2, part))
    y = ctx.logical_data(np.zeros(10), data_place=composite(ctx, 2, part))

    @ctx.parallel_for(x.grid, y.shape, x.read(), y.write())
    def shift(i, x, y):
        y[i] = x[9 - i] + i

    assert ctx.wait(y).tolist() == [9.0] * 10
    total = ctx.logical_data_empty((), np.float64)
    ctx.parallel_for(x.grid, y.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, x: x[i])
    assert ctx.wait(total) == 45

    @ctx.parallel_for(x.grid, stf.box[2:7], x.rw())
    def double(i, x):
        x[i] = 2 * x[i]

    expected = np.arange(10.0)
    expected[2:7] *= 2
    assert ctx.wait(x).tolist() == expected.tolist()


# -- loops, and launches, that run beside each other -----------------------------------------------------------------


@pytest.fixture
def kernels(ctx: stf.Context) -> stf.Context:
    """The context, if it runs kernels."""
    if not runs_kernels(ctx):
        pytest.skip("no kernels there")
    return ctx


def is_on_one_gpu(ctx: stf.Context, data: Any) -> bool:
    """Whether parts lie on a single GPU, where no memory is mapped: then loops run on the whole."""
    return is_cuda(ctx) and len({*data.grid.places}) == 1


def parts_written_by(name: str, data: Any) -> int:
    """How many parts a task of that name has written last, each by itself."""
    return sum(f"written by task '{name}'" in part.history() for part in data.parts.ravel())


@pytest.mark.at_once("copies are counted when they are made")
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_stencil_runs_side_by_side_and_copies_edges_alone(kernels, count):
    ctx, n = kernels, 24
    place = composite(ctx, count)
    x, y = (ctx.logical_data(np.arange(float(n)), data_place=place) for _ in range(2))
    parts = [*x.parts, *y.parts]
    for part in parts:
        ctx.task(part.exec_place, part.read(halo=1))(lambda a: None)
    for part in parts:
        ctx.task(part.exec_place, part.rw())(lambda a: None)
    ctx.synchronize()
    first = sum(ctx.statistics().copies.values())
    expected, steps = np.arange(float(n)), 4
    for step in range(steps):

        @ctx.parallel_for(x.grid, stf.box[1 : n - 1], x.read(), y.rw())
        def smooth(i, x, y):
            y[i] = x[i - 1] + 2 * x[i] + x[1 + i] + i

        assert parts_written_by("smooth", y) == count or is_on_one_gpu(ctx, x)
        x, y = y, x
        before = expected
        expected = before.copy() if step else np.arange(float(n))
        expected[1:-1] = before[:-2] + 2 * before[1:-1] + before[2:] + np.arange(1, n - 1)
    ctx.synchronize()
    if not is_cuda(ctx):
        made = sum(ctx.statistics().copies.values()) - first
        edges = sum(a != b for a, b in itertools.pairwise(part.exec_place for part in x.parts))
        assert made == steps * 2 * edges
    assert ctx.wait(x)[1:-1].tolist() == expected[1:-1].tolist()


def test_a_stencil_of_two_axes(kernels):
    ctx, rng = kernels, np.random.default_rng(1)
    devices = list(ctx.devices)
    grid = stf.exec_place.grid([devices[i % len(devices)] for i in range(4)], (2, 2))
    place, A = data_place.composite(grid, stf.partition("blocked", "blocked")), rng.random((13, 11))
    x = ctx.logical_data(A.copy(), data_place=place)
    y = ctx.logical_data(np.zeros(A.shape), data_place=place)

    @ctx.parallel_for(grid, stf.box[1:12, 2:10], x.read(), y.rw())
    def mix(i, j, x, y):
        y[i, j] = x[i - 1, j + 1] + 2 * x[i + 1, j] + 4 * x[i, j - 2] + 8 * x[i, j]

    assert parts_written_by("mix", y) == 4
    expected = np.zeros(A.shape)
    expected[1:12, 2:10] = A[:11, 3:11] + 2 * A[2:, 2:10] + 4 * A[1:12, :8] + 8 * A[1:12, 2:10]
    assert np.array_equal(ctx.wait(y), expected)


@pytest.mark.parametrize("look", ["last", "other way", "table", "own index"])
def test_bodies_that_read_anywhere_run_side_by_side(kernels, look):
    ctx, n = kernels, 12
    place, home = composite(ctx, 3), np.arange(12.0) ** 2
    x, y = ctx.logical_data(home.copy(), data_place=place), ctx.logical_data(np.zeros(n), data_place=place)
    table = ctx.logical_data(np.array([7, 3, 5, 0, 1, 2, 11, 10, 9, 8, 6, 4]))
    expected = {
        "last": np.roll(home, 1),
        "other way": home[::-1],
        "table": home[table.numpy()],
        "own index": home + np.arange(n),
    }

    def last(i, x, t, y):
        y[i] = x[i - 1]  # of 0 the last, as in Python

    def other_way(i, x, t, y):
        y[i] = x[x.size - 1 - i]

    def by_table(i, x, t, y):
        y[i] = x[t[i]]

    def own_index(i, x, t, y):
        y[i] = x[i] + i

    body = {"last": last, "other way": other_way, "table": by_table, "own index": own_index}[look]
    ctx.parallel_for(x.grid, y.shape, x.read(), table.read(), y.write())(body)
    assert parts_written_by(body.__name__, y) == 3
    assert ctx.wait(y).tolist() == expected[look].tolist()


def test_bodies_that_write_elsewhere_follow_each_other(kernels):
    ctx, n = kernels, 12
    x = ctx.logical_data(np.arange(float(n)), data_place=composite(ctx, 3))
    y = ctx.logical_data(np.zeros(n), data_place=composite(ctx, 3))

    @ctx.parallel_for(x.grid, y.shape, x.read(), y.rw())
    def turned(i, x, y):
        y[y.size - 1 - i] = x[i]

    assert parts_written_by("turned", y) == 0
    assert ctx.wait(y).tolist() == np.arange(float(n))[::-1].tolist()

    def mixed(i, p, x):
        x[i] += p[0]

    with pytest.raises(stf.AccessError):
        ctx.parallel_for(x.grid, x.shape, x.parts[0].read(), x.rw())(mixed)


def test_a_recorded_stencil_reads_halos(kernels):
    ctx, n = kernels, 16
    place = composite(ctx, 4)
    x, y = (ctx.logical_data(np.arange(float(n)), data_place=place) for _ in range(2))
    if is_on_one_gpu(ctx, x):
        pytest.skip("parts on one GPU have no address in common, and a recording cuts no whole")
    for data in (x, y):
        for part in data.parts:
            ctx.task(part.exec_place, part.rw())(lambda a: None)
            ctx.task(part.exec_place, part.read(halo=1))(lambda a: None)

    def step(x, y):
        ctx.parallel_for(x.grid, stf.box[1 : n - 1], x.read(), y.rw())(smooth_into)

    def smooth_into(i, x, y):
        y[i] = (x[i - 1] + x[i + 1]) / 2 + i

    with ctx.task_graph() as graph:
        step(x, y)
        step(y, x)
    for _ in range(3):
        graph.launch()
    a, b = np.arange(float(n)), np.arange(float(n))
    for _ in range(6):
        b[1:-1] = (a[:-2] + a[2:]) / 2 + np.arange(1, n - 1)
        a, b = b, a
    assert ctx.wait(x).tolist() == a.tolist()
    graph.close()


def test_threads_on_each_part(kernels):
    ctx, home = kernels, np.arange(22.0)
    x = ctx.logical_data(home.copy(), data_place=composite(ctx, 4))
    sums = ctx.logical_data(np.zeros(4), data_place=composite(ctx, 4))

    @ctx.launch(par(2, con(8, mem(64))), x.grid, x.parts.rw(), sums.parts.write())
    def add_up(th, x, sums):
        mine = th.storage(1, np.float64)
        mine[th.rank(1)] = 0
        if th.rank(0) == 0:
            for i in range(th.rank(1), x.size, th.size(1)):
                mine[th.rank(1)] += x[i]
                x[i] += i
        th.sync(1)
        if th.rank() == 0:
            sums[0] = 0
            for i in range(8):
                sums[0] += mine[i]

    assert len(add_up) == 4
    assert parts_written_by("add_up", x) == parts_written_by("add_up", sums) == 4
    blocks = [np.arange(len(part.region[0])) + part.region[0].start for part in x.parts]
    assert ctx.wait(sums).tolist() == [block.sum() for block in blocks]
    assert ctx.wait(x).tolist() == np.concatenate([2.0 * block - block[0] for block in blocks]).tolist()

    @ctx.launch(par(2), x.parts.read(halo=1), sums.parts.rw())
    def count(th, x, sums):
        if th.rank() == 0:
            sums[0] = x.size

    assert ctx.wait(sums).tolist() == [len(block) + (1 if k in (0, 3) else 2) for k, block in enumerate(blocks)]


def test_launches_over_parts_refuse_what_each_place_would_overwrite(kernels):
    ctx = kernels
    x, z = ctx.logical_data(np.zeros(8), data_place=composite(ctx, 2)), ctx.logical_data(np.zeros(8))
    other = ctx.logical_data(np.zeros(8), data_place=composite(ctx, 3))
    with pytest.raises(stf.AccessError, match="over what the others have written"):
        ctx.launch(par(2), x.parts.read(), z.write())
    for place in (0, other.grid):
        with pytest.raises(stf.PlaceError, match="where these lie"):
            ctx.launch(par(2), place, x.parts.read())
    with pytest.raises(stf.PlaceError, match="different places"):
        ctx.launch(par(2), x.parts.read(), other.parts.rw())
    with pytest.raises(TypeError, match="takes no partition"):
        ctx.launch(par(2), x.grid, stf.blocked_partition(), x.parts.read())
    with pytest.raises(TypeError, match="takes accesses last"):
        ctx.parallel_for(x.shape, x.parts.rw())
    with pytest.raises(TypeError):
        ctx.task(x.parts.rw())


@pytest.mark.parametrize("n", [1, 3])
def test_launches_over_parts_of_which_some_are_empty(kernels, n):
    ctx = kernels
    x = ctx.logical_data(np.zeros(n), data_place=composite(ctx, 4))

    @ctx.launch(par(2), x.parts.rw())
    def one(th, x):
        for i in range(th.rank(), x.size, th.size()):
            x[i] += 1

    assert ctx.wait(x).tolist() == [1.0] * n


# -- places --------------------------------------------------------------------------------------------------------


def test_composite_places(ctx, x):
    place = x._pieces.place
    assert place == composite(ctx)
    assert hash(place) == hash(composite(ctx))
    assert place != composite(ctx, 3)
    assert "data_place.composite" in repr(place)
    assert x.data_place == place
    with pytest.raises(stf.PlaceError, match="lies at .* use that"):
        x.read(composite(ctx, 3))
    with pytest.raises(stf.PlaceError, match="several memories"):
        ctx.logical_data_zeros(10).read(place)
    with pytest.raises(ValueError, match=r"2 axes, and shape \(10,\) has 1"):
        ctx.logical_data(np.zeros(10), data_place=composite(ctx, 2, ROWS))
    with pytest.raises(TypeError, match="a grid of places"):
        data_place.composite(ctx.devices[0], ROWS)
    with pytest.raises(stf.PlaceError, match="neither"):
        data_place.composite(stf.exec_place.grid([stf.exec_place.current_device()]))
    with pytest.raises(stf.PlaceError, match="not in this context"):
        ctx.logical_data(np.zeros(10), data_place=data_place.composite(stf.exec_place.grid([77, 78])))
    grid = stf.exec_place.grid([ctx.devices[0]] * 2, partition=stf.partition("blocked"))
    assert ctx.logical_data(np.zeros(4), data_place=grid.affine_data_place).parts.shape == (2,)
    assert stf.exec_place.grid([ctx.devices[0]], partition=ROWS).affine_data_place == ctx.devices[0].affine_data_place


def test_a_composite_place_with_the_host(ctx):
    mixed = stf.exec_place.grid(["host", ctx.devices[0]])
    if ctx.on_cuda:
        with pytest.raises(stf.PlaceError, match="the host beside devices"):
            ctx.logical_data(np.zeros(4), data_place=data_place.composite(mixed))
    else:
        x = ctx.logical_data(np.zeros(4), data_place=data_place.composite(mixed))
        add(ctx, x.parts[0], 1)
        assert ctx.wait(x).tolist() == [1.0, 1.0, 0.0, 0.0]


def test_each_element_has_one_owner(ctx):
    class Both:
        def apply(self, shape: Any, position: Any, grid_dims: Any) -> Any:
            return range(*shape)

        def get_executor(self, coords: Any, dims: Any, grid_dims: Any) -> Any:
            return (0,)

    with pytest.raises(ValueError, match="each element belongs to one place"):
        ctx.logical_data(np.zeros(4), data_place=composite(ctx, 2, Both()))


def test_replicated_data_are_everywhere(ctx):
    home = np.arange(4.0)
    place = data_place.replicated(ctx.devices)
    x = ctx.logical_data(home, data_place=place)
    assert content(ctx.wait(x)).tolist() == [0.0, 1.0, 2.0, 3.0]
    valid = {replica.place for replica in x.core.version.replicas if replica.state}
    assert len(valid) == len({0, *(ctx.engine.places[1 + i].memory for i in range(len(ctx.devices)))})
    add(ctx, x, 1, ctx.devices[-1])
    ctx.prefetch(x, place)
    assert ctx.wait(x)[0] == 1
    with pytest.raises(TypeError, match="a grid of places"):
        data_place.replicated(0)
