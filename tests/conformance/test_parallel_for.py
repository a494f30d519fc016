"""``ctx.parallel_for``: a body for each element of an index space."""

from __future__ import annotations

import collections
import itertools
import math
import os

import numpy as np
import pytest
from helpers import QUICK, is_cuda, runs_kernels
from hypothesis import given, settings
from hypothesis import strategies as st

import stf
from stf.kernels import loops
from stf.kernels.loop_tasks import LoopTask, cut
from stf.places.partition import Part, part_of

pytest.importorskip("numba")
if QUICK and (stf.config.pure or os.environ.get("STF_TEST_DEVICES")):
    pytest.skip("it is the same uncompiled, and on the host of a GPU; make test-all shows it", allow_module_level=True)

FACTOR = 3.0
TABLE = np.array([10.0, 20.0])
Pair = collections.namedtuple("Pair", "scale shift")


def doubled(value):
    return 2 * value


def scaled(value):
    return FACTOR * doubled(value)


# -- index spaces --------------------------------------------------------------------------------------------------------


def test_each_element_of_a_shape_is_run(ctx, loop):
    X, Y = np.arange(10.0), np.ones(10)
    x, y = ctx.logical_data(X), ctx.logical_data(Y)

    @loop(x.shape, x.read(), y.rw())
    def axpy(i, x, y):
        y[i] += 2.0 * x[i]

    assert y.numpy().tolist() == (2.0 * X + 1.0).tolist()
    assert axpy.result() is None and axpy.body.__name__ == "axpy"  # a decorator returns the handle


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_boxes_of_extents_and_of_bounds(ctx, loop, ndim):
    shape = (7, 6, 5, 4)[:ndim]
    x = ctx.logical_data_zeros(shape, np.int64)
    bounds = tuple(slice(1, n - 1) for n in shape)
    bodies = [
        lambda i, x: add_to(x, (i,)),
        lambda i, j, x: add_to(x, (i, j)),
        lambda i, j, k, x: add_to(x, (i, j, k)),
        lambda i, j, k, m, x: add_to(x, (i, j, k, m)),
    ]
    loop(stf.box(*shape), x.rw())(bodies[ndim - 1])
    loop(stf.box[bounds], x.rw())(bodies[ndim - 1])
    expected = np.ones(shape, np.int64)
    expected[bounds] += 1
    assert (x.numpy() == expected).all()


def add_to(x, where):
    x[where] += 1


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5, 2)])
def test_empty_spaces_run_nothing(ctx, loop, shape):
    x = ctx.logical_data(np.zeros(3))
    total = ctx.logical_data_empty((), float)
    loop(stf.box(*shape), x.rw())([None, nothing_1, nothing_2, nothing_3][len(shape)])
    loop((0,), total.reduce(stf.reducer.sum))(lambda i: 1.0)
    assert x.numpy().tolist() == [0, 0, 0] and ctx.wait(total) == 0.0


def nothing_1(i, x):
    x[0] = 1


def nothing_2(i, j, x):
    x[0] = 1


def nothing_3(i, j, k, x):
    x[0] = 1


class Diagonal:
    """The elements of a diagonal of a matrix."""

    ndim = 2

    def __init__(self, size, below):
        self.size, self.parameters = size, (below,)

    @staticmethod
    def index_to_coords(index, below):
        return index + below, index


def test_boxes_with_steps(ctx, loop):
    x = ctx.logical_data_zeros((9, 8), np.int64)
    total = ctx.logical_data_empty((), np.int64)
    loop(stf.box[0:9:2, 1:8:3], x.rw(), total.reduce(stf.reducer.sum))(lambda i, j, x: mark_one(x, (i, j)))
    expected = np.zeros((9, 8), np.int64)
    expected[0:9:2, 1:8:3] = 1
    assert (x.numpy() == expected).all() and ctx.wait(total) == expected.sum()


def mark_one(x, where):
    x[where] += 1
    return 1


def test_a_space_of_the_users_own(ctx, loop):
    x = ctx.logical_data_zeros((5, 5), np.int64)
    loop(Diagonal(4, 1), x.rw())(lambda i, j, x: add_to(x, (i, j)))
    assert (x.numpy() == np.eye(5, k=-1)).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.integers(1, 9),
    st.sampled_from([stf.blocked_partition(), stf.tiled_partition(3), stf.cyclic_partition()]),
    st.integers(1, 4),
)
def test_pieces_have_each_element_once(extents, count, partition, places):
    for position in range(places):
        part = part_of(partition, tuple(extents), position, places)
        pieces = cut([tuple(box) for box in part.boxes() if all(map(len, box))], count)
        found = [where for piece in pieces for where in itertools.product(*piece)]
        assert len(found) == part.size and sorted(found) == sorted(itertools.product(*part))


def test_what_is_no_index_space_is_refused(ctx):
    x = ctx.logical_data(np.zeros(3))
    for space, error in [((1, 2, 3, 4, 5), ValueError), ((), ValueError), ((-1,), ValueError), ((2.5,), TypeError)]:
        with pytest.raises(error):
            ctx.parallel_for(space, x.rw())
    with pytest.raises(TypeError, match="needs an index space before the accesses"):
        ctx.parallel_for(x.rw())
    with pytest.raises(TypeError, match=r"got an array of type ndarray; register it"):
        ctx.parallel_for((3,), np.zeros(3))


# -- arrays and values ---------------------------------------------------------------------------------------------------


def some(names, thorough):
    """Parameters, of which the `thorough` ones take too long for each run of the tests."""
    return [*names, *[pytest.param(name, marks=pytest.mark.thorough) for name in thorough]]


@pytest.mark.parametrize(
    "dtype", some(["f8", "i1"], ["f4", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16", "?"])
)
@pytest.mark.parametrize("layout", some(["C", "reversed"], ["F", "strided"]))
def test_arrays_of_every_type_and_layout(ctx, loop, dtype, layout):
    whole = np.zeros((8, 12), dtype, order="F" if layout == "F" else "C")
    array = {"strided": whole[::2, ::3], "reversed": whole[::-1, ::-1]}.get(layout, whole)
    array[...] = np.arange(array.size).reshape(array.shape) % 2
    x, y = ctx.logical_data(array), ctx.logical_data_empty(array.shape, dtype)

    @loop(x.shape, x.read(), y.write())
    def copy(i, j, x, y):
        y[i, j] = x[i, j]

    assert (y.numpy() == array).all()


def test_zero_dimensional_data_that_are_read_are_numbers(ctx, loop):
    x, a, b = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.array(2.0)), ctx.logical_data(np.array(0.0))
    loop(x.shape, x.rw(), a.read())(lambda i, x, a: add_value(x, i, a + 1.0))
    loop((1,), b.rw())(lambda i, b: add_value(b, (), 5.0))
    assert x.numpy().tolist() == [3, 3, 3] and float(b) == 5.0


def add_value(x, where, value):
    x[where] += value


def test_tokens_have_no_parameter(ctx, loop):
    x, token = ctx.logical_data(np.zeros(3)), ctx.token()
    loop(x.shape, token.rw(), x.rw())(lambda i, x: add_value(x, i, 1.0))
    assert x.numpy().tolist() == [1, 1, 1]


def test_further_arguments(ctx, loop):
    x = ctx.logical_data(np.zeros(3))
    loop(x.shape, x.rw(), args=(2.0, (1, 4), Pair(3.0, 0.5)))(
        lambda i, x, a, t, pair: add_value(x, i, a + t[1] + pair.scale * pair.shift)
    )
    assert x.numpy().tolist() == [7.5, 7.5, 7.5]


def test_a_new_value_of_a_captured_number_compiles_nothing(ctx, loop):
    global FACTOR
    x = ctx.logical_data(np.zeros(3))

    def add_of(value):
        def body(i, x):
            x[i] += value * FACTOR

        return body

    loop(x.shape, x.rw())(add_of(1.0))
    ctx.synchronize()
    before = len(loops.loops), sum(len(known.call.signatures) for known in loops.loops.values())
    try:
        for value in (5.0, 7.0):
            FACTOR = value
            loop(x.shape, x.rw())(add_of(value))
        assert x.numpy().tolist() == [3.0 + 25.0 + 49.0] * 3
    finally:
        FACTOR = 3.0
    assert (len(loops.loops), sum(len(known.call.signatures) for known in loops.loops.values())) == before


ZERO, TEN = 0.0, 10.0  # read in another order than that of their names


def test_several_variables_around_a_body(ctx, loop):
    global TEN
    x, y, a = ctx.logical_data_zeros(3), 100.0, 1000.0
    loop(x.shape, x.rw())(lambda i, x: add_value(x, i, ZERO + TEN * FACTOR - y / a))
    assert x.numpy().tolist() == [30.0 - 0.1] * 3
    try:
        TEN = 20.0
        loop(x.shape, x.rw())(lambda i, x: add_value(x, i, ZERO + TEN * FACTOR - y / a))
    finally:
        TEN = 10.0
    assert np.allclose(x.numpy(), 29.9 + 59.9)


def test_a_comprehension_reads_a_global_variable(ctx, loop):
    global TEN
    if is_cuda(ctx) and runs_kernels(ctx):
        pytest.skip("numba-cuda has no lists")
    x = ctx.logical_data_zeros(3)
    try:
        for TEN in (10.0, 20.0):
            loop(x.shape, x.rw())(lambda i, x: add_value(x, i, sum([TEN * k for k in range(3)])))
    finally:
        TEN = 10.0
    assert x.numpy().tolist() == [90.0] * 3


def test_numbers_are_those_of_the_call(ctx, loop):
    x = ctx.logical_data(np.zeros(1))
    for value in range(5):
        loop(x.shape, x.rw())(lambda i, x: add_value(x, i, value))
    value = 100.0
    assert x.numpy().tolist() == [10.0]


def test_functions_and_small_arrays_around_a_body(ctx, loop):
    x = ctx.logical_data(np.zeros(2))
    own = np.array([1.0, 2.0])

    def inner(value):
        return value + 0.5

    loop(x.shape, x.rw())(lambda i, x: add_value(x, i, scaled(inner(own[i])) + TABLE[i]))
    own[:] = 100.0
    assert x.numpy().tolist() == [3 * 2 * 1.5 + 10, 3 * 2 * 2.5 + 20]


def test_a_function_that_changed_is_compiled_anew(ctx, loop):
    global FACTOR
    x = ctx.logical_data(np.zeros(1))
    try:
        for value in (1.0, 4.0):
            FACTOR = value
            loop(x.shape, x.rw())(lambda i, x: add_value(x, i, scaled(1.0)))
        assert x.numpy().tolist() == [2.0 + 8.0]
    finally:
        FACTOR = 3.0


def test_functions_of_the_closure_are_those_of_the_call(ctx, loop):
    x = ctx.logical_data(np.zeros(2))
    weight = 2.0

    def first(value):
        return weight * value

    def second(value):
        return value - 1.0

    helper = first

    def body(i, x):
        x[i] += helper(10.0) * (i + offset)

    offset = 0
    for changes in range(6):
        if changes == 2:
            weight = 5.0
        elif changes == 4:
            helper, offset = second, 1
        loop(x.shape, x.rw())(body)
    assert x.numpy().tolist() == [2 * 9.0, 2 * 20.0 + 2 * 50.0 + 2 * 18.0]


# -- reductions ----------------------------------------------------------------------------------------------------------

OPERATORS = {
    "sum": np.add,
    "product": np.multiply,
    "minval": np.minimum,
    "maxval": np.maximum,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


@pytest.mark.parametrize("name", some(["sum", "minval"], [name for name in OPERATORS if name not in ("sum", "minval")]))
@pytest.mark.parametrize("dtype", some(["i4"], ["i1", "u8", "f4", "f8"]))
def test_reductions_by_every_operator(ctx, loop, name, dtype):
    if name.startswith("bitwise") and dtype.startswith("f"):
        pytest.skip("not defined for floating-point numbers")
    values = (np.arange(1, 40) * 7 % 5 + 1).astype(dtype)
    x, result = ctx.logical_data(values), ctx.logical_data_empty((), dtype)
    loop(x.shape, x.read(), result.reduce(getattr(stf.reducer, name)))(lambda i, x: x[i])
    expected = OPERATORS[name].reduce(values, dtype=bool if name.startswith("logical") else dtype)
    assert ctx.wait(result) == pytest.approx(np.asarray(expected).astype(dtype)[()], rel=1e-6)


def test_several_reductions_in_one_loop(ctx, loop):
    values = np.linspace(-3.0, 2.0, 1000)
    x = ctx.logical_data(values)
    total, least, most = (ctx.logical_data_empty((), float) for _ in range(3))
    loop(
        x.shape,
        x.read(),
        total.reduce(stf.reducer.sum),
        least.reduce(stf.reducer.minval),
        most.reduce(stf.reducer.maxval),
    )(lambda i, x: (x[i] * x[i], x[i], x[i]))
    assert ctx.wait(total) == pytest.approx(math.fsum(values * values), rel=1e-14)
    assert (ctx.wait(least), ctx.wait(most)) == (-3.0, 2.0)


def test_a_sum_is_within_its_bound(ctx, loop):
    """Within n times the rounding of the sum of magnitudes (Higham, Accuracy and Stability, 4.2)."""
    values = np.random.default_rng(0).normal(size=300_000)
    x, total = ctx.logical_data(values), ctx.logical_data_empty((), float)
    loop(x.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, x: x[i])
    bound = values.size * np.finfo(float).eps / 2 * np.abs(values).sum()
    assert abs(ctx.wait(total) - math.fsum(values)) <= bound


def test_a_reduction_does_not_depend_on_the_workers(monkeypatch):
    values = np.random.default_rng(1).normal(size=400_000)
    found = set()
    for workers in (1, 2, 3):
        monkeypatch.setattr(stf.config, "cpu_workers", workers)
        with stf.context(devices="cpu") as ctx:
            x, total = ctx.logical_data(values), ctx.logical_data_empty((), float)
            for _ in range(3):
                ctx.parallel_for(x.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, x: x[i])
                found.add(ctx.wait(total))
    assert len(found) == 1


def test_a_small_loop_is_one_call_once_it_was_measured(monkeypatch):
    cut_up, whole = [], LoopTask.run
    monkeypatch.setattr(LoopTask, "run", lambda self, *rest: cut_up.append(self.size) or whole(self, *rest))
    with stf.context(devices="cpu:2") as ctx:
        x, y = ctx.logical_data(np.zeros(64)), ctx.logical_data(np.zeros(4_000_000))
        for data in (x, y):
            for _ in range(50):  # a loaded machine may take the first times for long ones
                ctx.parallel_for(data.shape, data.rw())(lambda i, x: add_value(x, i, 1.0))
                ctx.synchronize()
        assert cut_up.count(64) < 50 and cut_up.count(4_000_000) >= 40  # short pieces are doubted a few times
        assert (x.numpy() == 50).all() and (y.numpy() == 50).all()


def test_a_reduction_goes_on_from_what_is_there(ctx, loop):
    x, total = ctx.logical_data(np.ones(5)), ctx.logical_data(np.array(10.0))
    loop(x.shape, x.read(), total.reduce(stf.reducer.sum, accumulate=True))(lambda i, x: x[i])
    assert ctx.wait(total) == 15.0
    loop(x.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, x: x[i])
    assert ctx.wait(total) == 5.0


def test_a_reduction_cannot_go_on_from_nothing(ctx, loop):
    x, total = ctx.logical_data(np.ones(5)), ctx.logical_data_empty((), float)
    with pytest.raises(stf.UninitializedDataError):
        loop(x.shape, x.read(), total.reduce(stf.reducer.sum, accumulate=True))(lambda i, x: x[i])


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_reductions_into_arrays(ctx, loop, size):
    values = np.random.default_rng(2).random(size)
    x, bins = ctx.logical_data(values), ctx.logical_data_empty((8,), np.int64)

    def histogram(i, x, bins):
        bins[int(x[i] * 8)] += 1

    expected = np.histogram(values, 8, (0, 1))[0]
    loop(x.shape, x.read(), bins.reduce(stf.reducer.sum))(histogram)
    assert (bins.numpy() == expected).all()
    loop(x.shape, x.read(), bins.reduce(stf.reducer.sum, accumulate=True))(histogram)
    assert (bins.numpy() == 2 * expected).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64])
def test_many_elements_meet_in_few_bins(ctx, loop, dtype):
    count, size = 1 << 17, 5  # as many elements that a GPU's blocks have copies of the bins
    values = np.random.default_rng(3).integers(0, size, count)
    x, bins = ctx.logical_data(values), ctx.logical_data_full(size, 7, dtype)
    first = ctx.logical_data_full(size, count, np.int64)

    def histogram(i, x, bins, first):
        bins[x[i] - bins.size] += 1  # negative indices count from the end of the bins, not of a copy's room
        first[x[i]] = min(first[x[i]], i)

    where = loop(x.shape, x.read(), bins.reduce(stf.reducer.sum), first.reduce(stf.reducer.minval))
    where(histogram)
    expected = np.bincount(values, minlength=size)
    assert bins.numpy().tolist() == expected.tolist()
    assert first.numpy().tolist() == [np.flatnonzero(values == one)[0] for one in range(size)]
    added = bins.reduce(stf.reducer.sum, accumulate=True), first.reduce(stf.reducer.minval, accumulate=True)
    loop(x.shape, x.read(), *added)(histogram)
    assert bins.numpy().tolist() == (2 * expected).tolist()


class Hypotenuse:
    """An operator of the user's own."""

    @staticmethod
    def init_op(dst):
        return 0.0

    @staticmethod
    def apply_op(dst, src):
        return (dst * dst + src * src) ** 0.5


@pytest.mark.parametrize("own", [Hypotenuse, stf.reducer.define(0.0, lambda a, b: (a * a + b * b) ** 0.5)])
def test_operators_of_the_users_own(ctx, loop, own):
    x, norm = ctx.logical_data(np.array([3.0, 4.0, 12.0])), ctx.logical_data_empty((), float)
    loop(x.shape, x.read(), norm.reduce(own))(lambda i, x: x[i])
    assert ctx.wait(norm) == pytest.approx(13.0)


# -- grids ---------------------------------------------------------------------------------------------------------------


class ByHand:
    """A user's partition: every second row."""

    @staticmethod
    def apply(shape, position, grid_dims):
        rows, *others = shape
        number = position if isinstance(position, int) else position[0]
        places = grid_dims if isinstance(grid_dims, int) else grid_dims[0]
        return (range(rows.start + number, rows.stop, places), *others)

    @staticmethod
    def get_executor(coords, dims, grid_dims):
        return (coords[0] % grid_dims[0],)


PARTITIONS = [
    *some([None, stf.cyclic_partition()], [stf.blocked_partition(), stf.tiled_partition(3), ByHand()]),
]


@pytest.fixture(params=some(["cpu:3"], ["cpu"]))
def several(request):
    """A context with several CPU devices, or one, and a grid of its places."""
    with stf.context(devices=request.param) as ctx:
        yield ctx, stf.exec_place.grid([*ctx.devices, stf.exec_place.host()])


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("shape", some([(13,), (7, 5)], [(2, 3, 4), (1, 4)]))
def test_a_grid_runs_each_element_once(several, partition, shape):
    ctx, grid = several
    x, y = ctx.logical_data_zeros(shape, np.int64), ctx.logical_data_empty(shape, np.int64)
    total = ctx.logical_data_empty((), np.int64)
    places = (grid,) if partition is None else (grid, partition)
    bodies = {
        1: lambda i, x, y: mark(x, y, (i,)),
        2: lambda i, j, x, y: mark(x, y, (i, j)),
        3: lambda i, j, k, x, y: mark(x, y, (i, j, k)),
    }
    ctx.parallel_for(*places, x.shape, x.rw(), y.write(), total.reduce(stf.reducer.sum))(bodies[len(shape)])
    assert (x.numpy() == 1).all() and (y.numpy() == 5).all()
    assert ctx.wait(total) == math.prod(shape)


def mark(x, y, where):
    x[where] += 1
    y[where] = 5
    return 1


@pytest.mark.parametrize("partition", [stf.blocked_partition(), stf.tiled_partition(2), stf.cyclic_partition()])
def test_a_grid_keeps_the_steps_of_a_space(several, partition):
    ctx, grid = several
    x = ctx.logical_data_zeros((20,), np.int64)
    builder = ctx.parallel_for(grid, partition, stf.box[1:20:3], x.rw())
    builder(lambda i, x: add_value(x, i, 1))
    assert np.flatnonzero(x.numpy() == 1).tolist() == list(range(1, 20, 3)) and x.numpy().sum() == 7
    with pytest.raises(stf.TaskStateError):
        builder(lambda i, x: add_value(x, i, 1))


def test_a_partition_needs_a_grid(ctx):
    x = ctx.logical_data(np.zeros(3))
    with pytest.raises(TypeError, match="a partition is for a grid of places"):
        ctx.parallel_for(stf.exec_place.host(), stf.blocked_partition(), x.shape, x.rw())


# -- mistakes ------------------------------------------------------------------------------------------------------------


def test_the_number_of_arguments_is_checked_before_anything_is_compiled(ctx, loop):
    x, total = ctx.logical_data(np.zeros((2, 3))), ctx.logical_data_empty((), float)
    before = len(loops.loops)
    for body in (lambda i, x: None, lambda i, j, k, x: None):
        with pytest.raises(TypeError, match=r"gets 3: 2 indices, then the arrays"):
            loop(x.shape, x.rw())(body)
    with pytest.raises(TypeError, match="gets 3"):
        loop(x.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, j, x, total: x[i, j])
    with pytest.raises(TypeError, match="name each"):
        loop(x.shape, x.rw())(lambda *everything: None)
    assert len(loops.loops) == before
    ctx.check_state()


def test_what_cannot_be_compiled_names_the_line(ctx, loop):
    x = ctx.logical_data(np.zeros(3))
    with pytest.raises(TypeError, match=r"(?s)cannot be compiled.*has_no_such_thing"):

        @loop(x.shape, x.rw())
        def body(i, x):
            x[i] = x[i].has_no_such_thing

    loop(x.shape, x.rw())(lambda i, x: add_value(x, i, 1.0))
    assert x.numpy().tolist() == [1, 1, 1]


def test_a_type_that_the_compiler_has_not_is_named(ctx, loop):
    x = ctx.logical_data(np.zeros(3, np.float16))
    if is_cuda(ctx) and runs_kernels(ctx):
        pytest.skip("numba-cuda has this type")
    with pytest.raises(TypeError, match="knows no float16 on a CPU"):
        loop(x.shape, x.rw())(lambda i, x: add_value(x, i, 1.0))


def test_arithmetic_of_float16_on_a_gpu(ctx, loop):
    """Which numba-cuda has in CUDA C++, to be linked with."""
    if not (is_cuda(ctx) and runs_kernels(ctx)):
        pytest.skip("Numba knows no float16 on a CPU")
    x, y = ctx.logical_data(np.arange(100, dtype=np.float16)), ctx.logical_data_empty(100, np.float16)
    loop(x.shape, x.read(), y.write())(lambda i, x, y: add_values(y, i, x))
    assert (y.numpy() == x.numpy() * x.numpy() + x.numpy()).all()


def add_values(y, i, x):
    y[i] = x[i] * x[i] + x[i]


def test_arrays_that_are_only_read_cannot_be_written_to(ctx, loop):
    x = ctx.logical_data(np.zeros(3))
    with pytest.raises(TypeError, match="(?i)readonly|only reads"):

        @loop(x.shape, x.read())
        def body(i, x):
            x[i] = 1.0


@pytest.mark.parametrize("shape", some([(3, 1201, 1203)], [(2051, 2053), (2, 3, 5, 140_000), (1 << 20, 5)]))
def test_each_index_of_a_large_box_once(ctx, loop, shape):
    x = ctx.logical_data_zeros(shape, np.int64)
    bodies = {
        2: lambda i, j, x: add_value(x, (i, j), 1 + i * 3 + j),
        3: lambda i, j, k, x: add_value(x, (i, j, k), 1 + i * 3 + j + k),
        4: lambda i, j, k, m, x: add_value(x, (i, j, k, m), 1 + i * 3 + j + k + m),
    }
    loop(x.shape, x.rw())(bodies[len(shape)])
    first, *others = np.indices(shape, sparse=True)
    assert np.array_equal(x.numpy(), 1 + first * 3 + sum(others))


def test_an_operator_of_arrays_alone_is_refused(ctx, loop):
    own = stf.Reducer("own", lambda dtype: 0, lambda a, b, out: np.add(a, b, out=out))
    x, total = ctx.logical_data(np.ones(3)), ctx.logical_data_empty((), float)
    with pytest.raises(TypeError, match="give it of_scalars="):
        loop(x.shape, x.read(), total.reduce(own))(lambda i, x: x[i])


def test_data_and_large_arrays_around_a_body_are_refused(ctx, loop):
    x, other = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.ones(3))
    with pytest.raises((TypeError, stf.AccessError), match="without an access"):
        loop(x.shape, x.rw())(lambda i, x: add_value(x, i, other[i]))
    large = np.zeros(1 << 20)
    with pytest.raises(TypeError, match="register it"):
        loop(x.shape, x.rw())(lambda i, x: add_value(x, i, large[i]))
    registered = np.ones(3)
    _data = ctx.logical_data(registered)
    with pytest.raises(stf.AccessError, match="uses the array of"):
        loop(x.shape, x.rw())(lambda i, x: add_value(x, i, registered[i]))


def test_a_body_that_raises_fails_its_task(ctx, loop):
    x = ctx.logical_data(np.zeros(100_000))

    def body(i, x):
        if i == 77_777:
            raise ValueError("an element")
        x[i] = 1.0

    if is_cuda(ctx) and runs_kernels(ctx):
        with pytest.raises(TypeError, match="raise or assert"):
            loop(x.shape, x.rw())(body)
        return
    with pytest.raises(stf.TaskFailedError, match="an element"):
        loop(x.shape, x.rw())(body)
        x.numpy()
    x.accept()


def count_at(i, h, offset):
    h[i + offset] += 1


def test_validation_names_an_index_that_is_out_of_bounds(monkeypatch):
    monkeypatch.setattr(stf.config, "validate", True)
    shift = 2
    with stf.context(devices="cpu:2") as ctx:
        x, y = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.zeros((2, 3)))
        h, s = ctx.logical_data_empty(4), ctx.logical_data_empty(())
        ctx.parallel_for((4,), x.rw())(lambda i, x: add_value(x, i + shift, 1.0))
        ctx.parallel_for(y.shape, y.read(), s.reduce(stf.reducer.sum))(lambda i, j, y: y[i, j + 2])
        ctx.parallel_for((4,), h.reduce(stf.reducer.sum), args=(3,))(count_at)
        shift = 0  # as it was when the task was submitted
        for data, message in (
            (x, r"index 3 is out of bounds for 'x' of shape \(3,\) \(line \d+\), in the element 1"),
            (s, r"index 0, 3 is out of bounds for 'y' of shape \(2, 3\) \(line \d+\), in the element \(0, 1\)"),
            (h, r"index 4 is out of bounds for 'h' of shape \(4,\)"),
        ):
            with pytest.raises(stf.TaskFailedError, match=message):
                ctx.wait(data)
            data.accept()


def test_validation_of_a_grid_that_writes(monkeypatch):
    monkeypatch.setattr(stf.config, "validate", True)
    with stf.context(devices="cpu:2") as ctx:
        x = ctx.logical_data_empty(8)

        def number(i, x):
            x[i] = i

        ctx.parallel_for(ctx.devices, x.shape, x.write())(number)
        assert x.numpy().tolist() == list(range(8))


def test_a_builder_runs_one_body(ctx, loop):
    x = ctx.logical_data(np.zeros(3))
    builder = loop(x.shape, x.rw()).set_symbol("named")
    builder(lambda i, x: add_value(x, i, 1.0))
    with pytest.raises(stf.TaskStateError):
        builder(lambda i, x: add_value(x, i, 1.0))
    assert x.numpy().tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="takes a Python function"):
        loop(x.shape, x.rw())(np.sin)


# -- the samples of the C++ guide ----------------------------------------------------------------------------------------


def test_guide_one_dimension(ctx, loop):
    A = np.zeros(128, np.int32)
    lA = ctx.logical_data(A)

    @loop(lA.shape, lA.write())
    def odd(i, a):
        a[i] = 2 * i + 1

    assert (lA.numpy() == 2 * np.arange(128) + 1).all()


def test_guide_two_dimensions_and_data_of_different_shapes(ctx, loop):
    n = 16
    y0 = np.random.default_rng(3).random((n, n))
    lx, ly = ctx.logical_data(np.zeros((2 * n, 2 * n))), ctx.logical_data(np.zeros((n, n)))

    @loop(lx.shape, lx.write())
    def fill(i, j, x):
        x[i, j] = 0.1

    @loop(ly.shape, lx.read(), ly.write())
    def gather(i, j, x, y):
        y[i, j] = y0[i, j]
        for ii in range(2):
            for jj in range(2):
                y[i, j] += x[2 * i + ii, 2 * j + jj]

    assert np.allclose(ly.numpy(), y0 + 0.4, rtol=1e-14)


@pytest.mark.parametrize(
    "space, expected",
    [
        (stf.box(2, 3), [*itertools.product(range(2), range(3))]),
        (stf.box((5, 8), (2, 4)), [*itertools.product(range(5, 8), range(2, 4))]),
    ],
    ids=["extents", "bounds"],
)
def test_guide_boxes(ctx, loop, space, expected):
    seen = ctx.logical_data_zeros((10, 10), np.int64)
    loop(space, seen.rw())(lambda i, j, seen: add_value(seen, (i, j), 1))
    assert [tuple(where) for where in np.argwhere(seen.numpy() == 1)] == expected


def test_guide_box_of_one_dimension(ctx, loop):
    seen = ctx.logical_data_zeros((4,), np.int64)
    loop(stf.box(4), seen.rw())(lambda i, seen: add_value(seen, i, i))
    assert seen.numpy().tolist() == [0, 1, 2, 3]


def test_guide_dot_product(ctx, loop):
    X, Y = np.arange(100.0), np.linspace(0.0, 1.0, 100)
    lX, lY, lsum = ctx.logical_data(X), ctx.logical_data(Y), ctx.logical_data_empty((), float)
    loop(lY.shape, lX.read(), lY.read(), lsum.reduce(stf.reducer.sum))(lambda i, x, y: x[i] * y[i])
    result = ctx.wait(lsum)
    assert isinstance(result, float) and result == pytest.approx(X @ Y, rel=1e-14)


class Sum:
    """The guide's own operator."""

    @staticmethod
    def init_op(dst):
        return 0

    @staticmethod
    def apply_op(dst, src):
        return dst + src


def test_guide_sum_as_an_operator_of_ones_own(ctx, loop):
    x, total = ctx.logical_data(np.arange(50)), ctx.logical_data_empty((), np.int64)
    loop(x.shape, x.read(), total.reduce(Sum))(lambda i, x: x[i])
    assert ctx.wait(total) == 1225


# -- recorded ------------------------------------------------------------------------------------------------------------


def test_a_graph_runs_it_at_each_launch_with_parameters(ctx, loop):
    x = ctx.logical_data(np.zeros(3))
    g = ctx.task_graph()
    a = g.param("a", 1.0)
    with g:
        loop(x.shape, x.rw(), args=(a,))(lambda i, x, a: add_value(x, i, a))
    g.launch()
    g.launch(a=10.0)
    assert x.numpy().tolist() == [11, 11, 11]


def test_a_replayed_function_sees_the_numbers_of_each_call(ctx, loop):
    x, total = ctx.logical_data(np.arange(3.0)), ctx.logical_data_empty((), float)

    @stf.replay
    def step(x, total, factor):
        loop(x.shape, x.rw())(lambda i, x: add_value(x, i, factor))
        loop(x.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, x: x[i])

    expected = np.arange(3.0)
    for factor in (1.0, 2.0, 3.0, 4.0):
        step(x, total, factor)
        expected += factor
        assert ctx.wait(total) == expected.sum()


def test_it_runs_in_loops_and_branches(ctx, loop):
    x, total = ctx.logical_data(np.ones(4)), ctx.logical_data(np.array(0.0))
    with ctx.while_loop(total < 20.0):
        loop(x.shape, x.rw())(lambda i, x: add_value(x, i, 1.0))
        loop(x.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, x: x[i])
    assert ctx.wait(total) == 20.0


def test_boxes_say_what_they_are():
    assert stf.box(2, 3) == stf.box((2, 3)) == Part((range(2), range(3)))
    assert stf.box((5, 8), (2, 4)) == stf.box[5:8, 2:4] == Part((range(5, 8), range(2, 4)))
    assert stf.box(4) == stf.box[0:4] and repr(stf.box) == "stf.box"
    with pytest.raises(ValueError, match="1 to 4 axes"):
        stf.box(1, 2, 3, 4, 5)


# -- kept on disk --------------------------------------------------------------------------------------------------------

KEPT = """
import os
import numpy as np, stf
from numba.core import compiler

compiled = []
run_pipeline = compiler.compile_extra
compiler.compile_extra = lambda *args, **options: (compiled.append(args[2].__name__), run_pipeline(*args, **options))[1]
SHIFTS = {shifts}
FACTOR = float(os.environ["FACTOR"])

def helper(value):
    return {helper}

with stf.context(devices="cpu") as ctx:
    x, total = ctx.logical_data(np.arange(4.0)), ctx.logical_data_empty((), float)

    @ctx.parallel_for(x.shape, x.rw())
    def shift(i, x):
        x[i] += FACTOR * helper(SHIFTS[0])

    ctx.parallel_for(x.shape, x.read(), total.reduce(stf.reducer.sum))(lambda i, x: np.sqrt(x[i] * x[i]))
    print(ctx.wait(total), compiled.count("_stf_loop"))
"""


@pytest.mark.thorough
def test_a_second_process_compiles_nothing(run_python, tmp_path):
    def run(factor, shifts="(1.0, 2.0)", helper="2 * value"):
        done = run_python(
            KEPT.format(shifts=shifts, helper=helper), FACTOR=factor, STF_CACHE_DIR=str(tmp_path / "cache")
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert run("1") == ["14.0", "2"]
    assert run("1") == ["14.0", "0"]
    assert run("3") == ["30.0", "0"]  # a number is an argument
    assert run("1", shifts="(5.0,)") == ["46.0", "1"]  # what is compiled in is not
    assert run("1", helper="3 * value") == ["18.0", "1"]
    assert run("1") == ["14.0", "0"]


def test_a_constant_that_changed_is_compiled_anew(ctx, loop):
    global SHIFTS
    x = ctx.logical_data(np.zeros(1))
    for value in (1.0, 5.0):
        SHIFTS = (value, 2.0)
        loop(x.shape, x.rw())(lambda i, x: add_value(x, i, SHIFTS[0]))
    assert x.numpy().tolist() == [6.0]


SHIFTS = (0.0, 0.0)
