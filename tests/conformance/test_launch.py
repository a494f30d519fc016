"""``ctx.launch``: a body for each thread of a hierarchy."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from helpers import QUICK, is_cuda, runs_kernels

import stf
from stf import con, hw_scope, mem, par

pytest.importorskip("numba")
if QUICK and (stf.config.pure or os.environ.get("STF_TEST_DEVICES")):
    pytest.skip("it is the same uncompiled, and on the host of a GPU; make test-all shows it", allow_module_level=True)

FACTOR = 3.0
SHAPES = {
    "par(5)": (par(5), (5,)),
    "con(4)": (con(4), (4,)),
    "par(3, con(4))": (par(3, con(4)), (3, 4)),
    "con[3](par(2))": (con[3](par(2)), (3, 2)),
    "par(2, par(3, con(4)))": (par(2, par(3, con(4))), (2, 3, 4)),
    "con(2, con[3](con(2)))": (con(2, con[3](con(2))), (2, 3, 2)),
}


@pytest.fixture(params=["cpu", "cpu:3"])
def several(request):
    """A context and a grid of three of its places."""
    ctx = stf.context(devices=request.param)
    places = [stf.exec_place.device(i % len(ctx.devices)) for i in range(3)]
    with ctx:
        yield ctx, stf.exec_place.grid(places)


def doubled(value):
    return 2 * value


# -- the guide's samples -------------------------------------------------------------------------------------------------


def test_axpy_of_the_guide(ctx, threads):
    X, Y, alpha = np.arange(3000.0), np.ones(3000), 3.0
    x, y = ctx.logical_data(X), ctx.logical_data(Y)

    @threads(par(1024), x.read(), y.rw())
    def axpy(th, x, y):
        for i in range(th.rank(), x.size, th.size()):
            y[i] += alpha * x[i]

    assert (y.numpy() == 3.0 * X + 1.0).all()
    assert axpy.done() and axpy.body.__name__ == "axpy"


@pytest.mark.parametrize("spec", ["con()", "par(128)", "par[128]()", "par(8, con[16]())", "con(16, mem(64))"])
def test_hierarchies_of_the_guide(ctx, threads, spec):
    hierarchy = eval(spec)
    assert repr(hierarchy) == spec
    count = ctx.logical_data_zeros((), np.int64)

    @threads(hierarchy, count.rw())
    def count_threads(th, count):
        if th.rank() == 0:
            count[()] = th.size()

    expected = math.prod(level.width or 0 for level in hierarchy.levels)
    assert ctx.wait(count) == expected or not expected


def test_scopes_of_the_guide(ctx, threads):
    found = ctx.logical_data_zeros(4, np.int64)

    @threads(par(hw_scope.device | hw_scope.block, par[128](hw_scope.thread)), found.write())
    def look(th, found):
        if th.rank() == 0:
            found[0] = th.get_scope(0)
            found[1] = th.get_scope(1) == hw_scope.thread
            found[2] = th.static_with(1)
            found[3] = stf.hw_scope.all == th.inner().get_scope(0)

    assert found.numpy().tolist() == [6, 1, 128, 0]


def test_inner_of_the_guide(ctx, threads):
    sizes = ctx.logical_data_zeros((128, 2), np.int64)

    @threads(con[128](con()), sizes.write())
    def look(th, sizes):
        ti = th.inner()
        ti.sync()
        th.inner().sync()
        if ti.rank() == 0:
            sizes[th.rank(0), 0] = ti.size() * th.size(0) == th.size()
            sizes[th.rank(0), 1] = th.rank() // ti.size()

    assert sizes.numpy().tolist() == [[1, i] for i in range(128)]


# -- ranks ---------------------------------------------------------------------------------------------------------------


def put(seen, row, column, value):
    seen[row, column] = value


def note_ranks(th, seen):
    put(seen, th.rank(), 0, th.rank())
    for i in range(th.depth()):
        put(seen, th.rank(), 1 + i, th.rank(i))
    put(seen, th.rank(), 4, th.size())


def note_behind_barriers_0(th, seen):
    for i in range(th.depth()):
        th.sync(0)
        put(seen, th.rank(), 1 + i, th.rank(i))
    put(seen, th.rank(), 0, th.rank())
    put(seen, th.rank(), 4, th.size())


def note_behind_barriers_1(th, seen):
    for i in range(th.depth()):
        th.sync(1)
        put(seen, th.rank(), 1 + i, th.rank(i))
    put(seen, th.rank(), 0, th.rank())
    put(seen, th.rank(), 4, th.size())


def note_behind_barriers_2(th, seen):
    for i in range(th.depth()):
        th.sync(2)
        put(seen, th.rank(), 1 + i, th.rank(i))
    put(seen, th.rank(), 0, th.rank())
    put(seen, th.rank(), 4, th.size())


WAITING = [note_behind_barriers_0, note_behind_barriers_1, note_behind_barriers_2]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_each_thread_has_its_ranks(ctx, threads, name, waits):
    hierarchy, widths = SHAPES[name]
    level = next((i for i, one in enumerate(hierarchy.levels) if one.is_synchronizable), None)
    if waits and level is None:
        pytest.skip("its threads cannot wait")
    seen = ctx.logical_data_full((math.prod(widths), 5), -1, np.int64)
    threads(hierarchy, seen.write())(WAITING[level] if waits else note_ranks)
    found = seen.numpy()
    assert found[:, 0].tolist() == list(range(math.prod(widths)))
    for i in range(len(widths)):
        assert found[:, 1 + i].tolist() == np.indices(widths)[i].ravel().tolist()
    assert (found[:, 4] == math.prod(widths)).all()


def test_the_default_hierarchy_and_automatic_widths(ctx, threads):
    sizes = ctx.logical_data_zeros(3, np.int64)

    @threads(sizes.write())
    def look(th, sizes):
        th.sync(1)
        if th.rank() == 0:
            sizes[0], sizes[1], sizes[2] = th.depth(), th.size(0), th.size(1)

    depth, outer, inner = sizes.numpy()
    assert depth == 2 and outer >= 1 and inner > 1


# -- barriers and memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [np.float64, *[pytest.param(d, marks=pytest.mark.thorough) for d in (np.int32, np.complex128)]]
)
def test_a_sum_in_the_memory_of_groups(ctx, threads, dtype):
    X = np.arange(1000).astype(dtype)
    x, sums = ctx.logical_data(X), ctx.logical_data_zeros(4, dtype)

    @threads(par(4, con(16, mem(16 * 16))), x.read(), sums.write())
    def add_up(th, x, sums):
        mine = th.storage(1, dtype)
        me = th.rank(1)
        total = x[0] * 0
        for i in range(th.rank(), x.size, th.size()):
            total += x[i]
        mine[me] = total
        th.sync(1)
        step = th.size(1) // 2
        while step > 0:
            if me < step:
                mine[me] += mine[me + step]
            th.sync(1)
            step //= 2
        if me == 0:
            sums[th.rank(0)] = mine[0]

    assert sums.numpy().sum() == X.sum()


def test_a_scan_over_all_threads(ctx, threads):
    X = np.random.default_rng(0).integers(0, 9, 64)
    x = ctx.logical_data(X.copy())

    @threads(con(8, par(8)), x.rw())
    def scan(th, x):
        step = 1
        me = th.rank()
        while step < th.size():
            before = x[me - step] if me >= step else 0
            th.sync()
            x[me] += before
            th.sync()
            step *= 2

    assert x.numpy().tolist() == np.cumsum(X).tolist()


def test_memory_is_one_for_each_group_of_a_level(ctx, threads):
    out = ctx.logical_data_zeros((2, 3), np.int64)

    @threads(con(2, mem(8), con(3, mem(16))), out.write())
    def look(th, out):
        shared, own = th.storage(0, np.int64), th.inner().storage(0, "float64")
        if th.rank() == 0:
            shared[0] = 7
        if th.rank(1) == 0:
            own[1] = 10.0 * th.rank(0)
        th.sync(0)
        out[th.rank(0), th.rank(1)] = shared[0] + own[1] + th.get_mem(1) + own.size

    assert out.numpy().tolist() == [[25] * 3, [35] * 3]


def test_memory_without_barriers(ctx, threads):
    out = ctx.logical_data_zeros(3, float)

    @threads(par(3, mem(8)), out.write())
    def look(th, out):
        whole = th.storage(0, float)  # one for all threads of the outermost level
        whole[0] = 1.0
        out[th.rank()] = whole[0]

    assert out.numpy().tolist() == [1.0] * 3


# -- values around -------------------------------------------------------------------------------------------------------


def test_captured_numbers_helpers_and_args(ctx, threads):
    for shift in (1.0, 2.0):
        x = ctx.logical_data(np.zeros(5))

        @threads(par(5), x.rw(), args=(10.0, (1, 2)), name="add")
        def add(th, x, offset, pair):
            x[th.rank()] = doubled(shift) + FACTOR + offset + pair[1]

        assert x.numpy().tolist() == [2 * shift + 15.0] * 5


def test_numbers_of_zero_dimensional_data(ctx, threads):
    x, y = ctx.logical_data(np.array(3.0)), ctx.logical_data(np.zeros(4))

    @threads(con(4), x.read(), y.write())
    def fill(th, x, y):
        th.sync()
        y[th.rank()] = x * 2

    threads(par(4), x.read(), y.rw())(fill_more)
    assert y.numpy().tolist() == [9.0] * 4


def fill_more(th, x, y):
    y[th.rank()] += x


def test_in_a_graph_with_a_parameter(ctx, threads):
    x = ctx.logical_data(np.zeros(4))
    graph = ctx.task_graph()
    alpha = graph.param("alpha", 1.0)
    with graph:

        @threads(con(4), x.rw(), args=(alpha,))
        def add(th, x, alpha):
            th.sync()
            x[th.rank()] += alpha

    graph.launch()
    graph.launch(alpha=10.0)
    assert x.numpy().tolist() == [11.0] * 4


@pytest.mark.parametrize("partition", [None, stf.cyclic_partition(), stf.tiled_partition(2)])
def test_a_grid_shares_the_outermost_groups(several, partition):
    ctx, grid = several
    if partition is not None:
        grid = grid.with_partition(partition)
    seen = ctx.logical_data_zeros((7, 2), np.int64)

    @ctx.launch(par(7, con(2)), grid, seen.rw())
    def count(th, seen):
        th.sync(1)
        seen[th.rank(0), th.rank(1)] += 1 + th.size()

    assert seen.numpy().tolist() == [[15, 15]] * 7
    with pytest.raises(TypeError, match="waits at level 0"):
        ctx.launch(con(7), grid, seen.rw())(wait_for_all)
    with pytest.raises(TypeError, match=r"shares mem\(16\) at level 0, whose threads are at several places"):
        ctx.launch(par(7, mem(16), con(2)), grid, seen.rw())(share_with_all)


def wait_for_all(th, seen):
    th.sync()


def share_with_all(th, seen):
    seen[th.rank(0), th.rank(1)] = th.storage(0, np.int64).size


def test_a_second_submission_compiles_nothing(ctx, threads):
    x = ctx.logical_data(np.zeros(4))
    from stf.kernels import loops

    threads(par(4), x.rw())(bump)
    known = len(loops.loops)
    for width in (2, 3):
        threads(par(width), x.rw())(bump)
    assert len(loops.loops) == known
    assert x.numpy().tolist() == [3.0, 3.0, 2.0, 1.0]


def bump(th, x):
    x[th.rank()] += 1


# -- mistakes ------------------------------------------------------------------------------------------------------------


def test_hierarchies_that_are_none():
    with pytest.raises(ValueError, match="at least 1"):
        par(0)
    with pytest.raises(ValueError, match="up to 3 levels"):
        par(con(par(con())))
    with pytest.raises(TypeError, match="one width"):
        par(2, 3)
    with pytest.raises(TypeError, match="has its width"):
        par[2](3)
    with pytest.raises(TypeError, match="takes a width"):
        con("8")
    with pytest.raises(ValueError, match="number of bytes"):
        mem(-1)


@pytest.mark.parametrize("spec", ["con()", "con(con(3))", "con(con())", "con(par(2, con(5)))", "con(hw_scope.thread)"])
def test_all_threads_of_an_automatic_width_meet(ctx, threads, spec):
    x, found = ctx.logical_data_zeros(1 << 20, np.int32), ctx.logical_data_zeros(2, np.int64)

    @threads(eval(spec, vars(stf)), x.rw(), found.write())
    def count(th, x, found):
        x[th.rank()] = 1
        th.sync()
        if th.rank() == 0:
            found[0] = th.size()
            found[1] = 0
            for i in range(th.size()):
                found[1] += x[i]

    size, met = found.numpy()
    assert size == met > 0
    if is_cuda(ctx) and runs_kernels(ctx):
        assert size <= 1024 if "thread" in spec else size > 10_000


def sync_of_par(th, x):
    th.sync()


def inner_of_one(th, x):
    th.inner().rank()


def given_away(th, x):
    doubled(th)


def level_2(th, x):
    x[0] = th.rank(2)


def no_memory(th, x):
    th.storage(0, np.float64)[0] = 1


def no_method(th, x):
    x[0] = th.thread()


def no_name(th, x):
    x[0] = undefined_name  # noqa: F821


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (sync_of_par, "level 0 is par"),
        (inner_of_one, r"inner\(\)"),
        (given_away, "by its methods alone"),
        (level_2, "levels 0 to 0"),
        (no_memory, r"say mem\(8\)"),
        (no_method, "no 'thread'"),
        (no_name, "undefined_name"),
        (lambda th, x: None, "written with def"),
        (eval("lambda th, x: None"), "source is not there"),
    ],
)
def test_mistakes_in_a_body_name_its_line(ctx, threads, body, message):
    x = ctx.logical_data(np.zeros(4))
    with pytest.raises((TypeError, NameError), match=message) as caught:
        threads(par(4), x.rw())(body)
    if "source" not in message:
        assert os.path.basename(__file__) in str(caught.value)
    threads(par(4), x.rw())(bump)
    assert x.numpy().tolist() == [1.0] * 4


@pytest.mark.parametrize("width", [1, 4])
def test_a_tree_over_a_static_width(ctx, threads, width):
    sums = ctx.logical_data(np.zeros(6))

    @threads(par[6](con[width](mem(8 * width))), sums.rw())
    def tree(th, sums):
        mine = th.storage(1, np.float64)
        mine[th.rank(1)] = 1.0
        half = th.size(1) // 2
        while half > 0:
            th.sync(1)
            if th.rank(1) < half:
                mine[th.rank(1)] += mine[th.rank(1) + half]
            half //= 2
        if th.rank(1) == 0:
            sums[th.rank(0)] = mine[0]

    assert sums.numpy().tolist() == [width] * 6


def test_memory_that_the_machine_has_not_is_told_at_once():
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.zeros(4))

        def body(th, x):
            x[th.rank()] = th.storage(0, np.float64)[0]

        with pytest.raises(ValueError, match=r"the groups of con\(4, mem\(\d+\)\) need \d+ bytes of memory in all"):
            ctx.launch(con(4, mem(1 << 60)), x.rw())(body)


def test_wrong_arguments(ctx, threads):
    x = ctx.logical_data(np.zeros(4))
    with pytest.raises(TypeError, match="takes 2 arguments and gets 3: the hierarchy"):
        threads(par(4), x.rw(), x.rw())(bump)
    with pytest.raises(TypeError, match="no reductions"):
        ctx.launch(par(4), ctx.logical_data_empty((), float).reduce(stf.reducer.sum))


def test_threads_that_come_to_different_barriers(ctx, threads):
    if is_cuda(ctx) and runs_kernels(ctx):
        pytest.skip("a GPU does not notice")
    x = ctx.logical_data(np.zeros(4))

    @threads(con(4), x.rw())
    def some_wait(th, x):
        if th.rank() < 3:
            th.sync()

    with pytest.raises(stf.TaskFailedError, match=r"3 of 4 threads wait at sync\(0\)"):
        ctx.wait(x)


def test_threads_that_wait_for_each_other_must_run_at_once(ctx, threads):
    """On a GPU; a CPU runs them in turn."""
    if not (is_cuda(ctx) and runs_kernels(ctx)):
        pytest.skip("a CPU has room for any number of threads")
    x = ctx.logical_data_zeros(4)

    def body(th, x):
        th.sync()
        x[0] = 1.0

    with pytest.raises(ValueError, match=r"threads that wait for each other, and .* runs \d+ of them at once"):
        threads(con(1 << 24), x.rw())(body)
    threads(con(1 << 12), x.rw())(body)
    assert x.numpy()[0] == 1.0
