"""Task-level reductions: accumulate(op)."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest
from helpers import library, queued, runs_kernels

import stf
from stf import reducer

R = reducer
CASES = [
    (R.sum, float, [1.5, 2, 3], 6.5),
    (R.sum, int, [1, 2, 3], 6),
    (R.product, float, [2, 3, 4], 24),
    (R.minval, float, [3, -1, 2], -1),
    (R.maxval, float, [3, -1, 2], 3),
    (R.minval, np.uint8, [30, 10, 20], 10),
    (R.maxval, np.int16, [-30, -10, -20], -10),
    (R.min, bool, [True, False, True], False),
    (R.max, bool, [False, False, True], True),
    (R.logical_and, bool, [True, True, False], False),
    (R.logical_and, int, [3, 4, 5], 1),
    (R.logical_or, float, [0, 0, 2], 1),
    (R.bitwise_and, np.uint8, [0b1110, 0b0111, 0b1111], 0b0110),
    (R.bitwise_or, np.int64, [1, 2, 8], 11),
    (R.bitwise_xor, np.int32, [5, 1, 8], 12),
    (R.bit_and, np.int8, [-1, 6, 7], 6),
    (R.bit_or, bool, [False, True, False], True),
    (R.bit_xor, bool, [True, True, True], True),
    (R.sum, complex, [1j, 2, 3], 5 + 1j),
    (R.sum, np.float16, [1, 2, 3], 6),
]


@pytest.mark.parametrize("op, dtype, values, want", CASES, ids=lambda c: getattr(c, "name", None))
def test_every_reducer(ctx, op, dtype, values, want):
    lX = ctx.logical_data_empty((2,), dtype)
    for i, value in enumerate(values):

        @ctx.task(ctx.devices[i % len(ctx.devices)], lX.accumulate(op))
        def put(x):
            op.combine(x, library(x).full(2, value, dtype), x)

    got = lX.numpy()
    assert got.dtype == dtype and got.tolist() == [want] * 2


def test_content_from_before_takes_part(ctx):
    lX = ctx.logical_data(np.array([10.0, 20.0]))
    found = [ctx.logical_data_empty(2) for _ in range(4)]
    for i in range(4):
        with ctx.task(ctx.devices[i % len(ctx.devices)], lX.accumulate(reducer.sum), found[i].write()) as t:
            x, y = t.arrays()
            y[...] = x
            x[:] += 1
    assert lX.numpy().tolist() == [14, 24]
    assert all(each.numpy()[0] in range(4) for each in found)  # the neutral element, or what others put


def test_own_reducers(ctx):
    hypot = reducer.define(0.0, np.hypot, "hypot")

    class Longest:
        @staticmethod
        def init_op(value):
            return -1

        @staticmethod
        def apply_op(a, b):
            return library(a).where(np.abs(b) > np.abs(a), b, a)

    class InPlace:
        @staticmethod
        def init_op(value):
            value[...] = 1

        @staticmethod
        def apply_op(a, b):
            a *= b

    for op, want in ((hypot, 5.0), (Longest, -4.0), (InPlace, -12.0)):
        lX = ctx.logical_data_empty((), float)
        for value in (3.0, -4.0):
            with ctx.task(lX.accumulate(op)) as t:
                x = t.arrays()[0]
                if op is hypot:
                    x[...] = np.hypot(x, value)
                elif op is Longest:
                    x[...] = Longest.apply_op(x, value)
                else:
                    x *= value
        assert float(lX) == want
    assert repr(hypot) == "stf.reducer.hypot"


def test_annotation_and_alias(ctx):
    @stf.task
    def count(x: stf.Read, total: stf.Accumulate[stf.reducer.sum]):
        total += x.sum()

    total = ctx.logical_data_zeros(())
    for k in range(6):
        count.on(ctx.devices[k % len(ctx.devices)])(ctx.logical_data(np.full(3, float(k))), total)
    with ctx.task(total.relaxed(reducer.sum)) as t:
        t.arrays()[0][...] += 0.5
    assert float(total) == 45.5


def test_accumulating_bodies_overlap(ctx_factory, monkeypatch):
    monkeypatch.setattr(stf.config, "cpu_workers", 2)
    ctx = ctx_factory()
    lX = ctx.logical_data_zeros((2,))
    ctx.synchronize()
    meet = threading.Barrier(2, timeout=30)
    for _ in range(2):

        @ctx.task(queued(ctx), lX.accumulate(reducer.sum))
        def body(x):
            meet.wait()
            x += 1

    assert lX.numpy().tolist() == [2, 2]
    assert ctx.statistics().tasks["combine"] == 1


def test_tasks_that_accumulate_may_be_open_together(ctx):
    lX = ctx.logical_data_zeros((2,))
    with ctx.task(lX.accumulate(reducer.sum)) as a, ctx.task(lX.accumulate(reducer.sum)) as b:
        a.arrays()[0][:] += 1
        b.arrays()[0][:] += 2
    assert lX.numpy().tolist() == [3, 3]


def test_another_operator_comes_after(ctx):
    lX = ctx.logical_data_full((2,), 3.0)
    for _ in range(2):
        ctx.task(lX.accumulate(reducer.sum))(lambda x: x.__iadd__(2) is None or None)
    for _ in range(2):
        ctx.task(lX.accumulate(reducer.product))(lambda x: x.__imul__(10) is None or None)
    assert lX.numpy().tolist() == [700, 700]


def test_a_pure_write_makes_partials_moot(ctx):
    lX = ctx.logical_data_full((2,), 3.0)
    ctx.task(lX.accumulate(reducer.sum))(lambda x: x.fill(100))
    ctx.fill(lX, 1)
    assert lX.numpy().tolist() == [1, 1]


def test_accumulated_data_are_written_back_and_released(ctx):
    X, Y = np.zeros(3), np.zeros(3)
    for array in (X, Y):
        l = ctx.logical_data(array)
        for i in range(5):
            ctx.task(ctx.devices[i % len(ctx.devices)], l.accumulate(reducer.sum))(
                lambda x: np.add(x, 1, out=x) is None or None
            )
        if array is X:
            l.release()
        del l
    ctx.finalize()
    assert X.tolist() == Y.tolist() == [5] * 3


def test_accumulate_of_both_kinds_at_once_is_refused(ctx):
    lX = ctx.logical_data_zeros((2,), name="X")
    with pytest.raises(
        stf.AccessError, match=r"task 't' both accumulates into and accesses logical data 'X'.*; do either"
    ):
        ctx.task(lX.accumulate(reducer.sum), lX.read(), name="t").start()
    with pytest.raises(stf.AccessError, match=r"task 't' accumulates into logical data 'X' .* with two operators"):
        ctx.task(lX.accumulate(reducer.sum), lX.accumulate(reducer.product), name="t").start()
    with ctx.task(lX.accumulate(reducer.sum), lX.accumulate(reducer.sum)) as t:
        t.arrays()[1][:] += 1
    for wrong in (np.add, "sum", None):
        with pytest.raises(TypeError, match="a reduction operator is needed, got .*; use stf.reducer.sum and the like"):
            lX.accumulate(wrong)
    assert lX.numpy().tolist() == [1, 1]


def test_a_failing_neutral_element_costs_nothing(ctx):
    def broken(a, b):
        raise AssertionError

    class Broken:
        init_op = staticmethod(lambda value: 1 / 0)
        apply_op = staticmethod(broken)

    lX = ctx.logical_data_full((2,), 3.0)
    with pytest.raises(ZeroDivisionError):
        ctx.task(lX.accumulate(Broken)).start()
    ctx.check_state()
    with ctx.task(lX.accumulate(reducer.sum)) as t:
        t.arrays()[0][:] += 1
    assert lX.numpy().tolist() == [4, 4]


def test_a_failing_combination_poisons(ctx):
    class Broken:
        init_op = staticmethod(lambda value: 0)
        apply_op = staticmethod(lambda a, b: 1 / 0)

    lX = ctx.logical_data_full((2,), 3.0, name="X")
    with ctx.task(lX.accumulate(Broken)) as t:
        t.arrays()[0][:] += 1
    with pytest.raises(stf.TaskFailedError, match="'X'.* is poisoned: .*ZeroDivisionError"):
        lX.numpy()
    ctx.fill(lX, 1)
    assert lX.numpy().tolist() == [1, 1]


def test_a_skipped_accumulation_counts_for_nothing_when_its_poison_is_accepted(ctx):
    @stf.task
    def broken(x: stf.Write):
        raise ValueError("no")

    @stf.task
    def add(x: stf.Read, s: stf.Accumulate[stf.reducer.sum]):
        s += x

    x = ctx.logical_data_empty(1000, name="x")
    s = ctx.logical_data_ones(1000, name="s")
    broken.on(queued(ctx))(x)
    add.on(queued(ctx))(x, s)
    with pytest.raises(stf.TaskFailedError):
        ctx.synchronize()
    s.accept()
    assert (s.numpy() == 1).all()


def test_a_token_cannot_be_accumulated_into(ctx):
    token = ctx.token(name="T")
    with pytest.raises(TypeError, match="token 'T' has no content to accumulate into; open it with rw"):
        token.accumulate(stf.reducer.sum)
    with ctx.task(token.rw()):
        pass


# -- tasks that are refused leave partial results alone -----------------------------------------------------------------


@pytest.mark.parametrize("why", ["conflict", "uninitialized", "frozen"])
def test_a_write_that_is_refused_keeps_what_was_accumulated(ctx, why):
    lS, lY = ctx.logical_data(np.full(2, 5.0), name="S"), ctx.logical_data_empty(2, name="Y")
    ctx.task(lS.accumulate(stf.reducer.sum))(lambda s: np.add(s, 3, out=s))
    if why == "uninitialized":
        with pytest.raises(stf.UninitializedDataError):
            ctx.task(lS.write(), lY.read())(lambda s, y: None)
    elif why == "frozen":
        ctx.fill(lY, 1)
        with ctx.freeze(lY), pytest.raises(stf.AccessError):
            ctx.task(lS.write(), lY.rw())(lambda s, y: None)
    else:
        with ctx.task(lY.write(), name="holder"), pytest.raises(stf.TaskStateError):
            ctx.task(lS.write(), lY.write())(lambda s, y: None)
    ctx.check_state()
    assert lS.numpy().tolist() == [8, 8]


def test_a_write_that_finds_no_memory_keeps_what_was_accumulated():
    with stf.context(devices="cpu:1", memory_limit=64) as ctx:
        lS, lBig = ctx.logical_data(np.full(2, 5.0), name="S"), ctx.logical_data_empty(16, name="Big")
        ctx.task(lS.accumulate(stf.reducer.sum))(lambda s: np.add(s, 3, out=s))
        with pytest.raises(stf.OutOfMemoryError):
            ctx.task(lS.write(), lBig.write())(lambda s, b: None)
        ctx.check_state()
        assert lS.numpy().tolist() == [8, 8]


def test_an_accumulation_that_finds_no_memory_leaves_the_data_usable(run_python):
    done = run_python(
        """
        with stf.context(devices="cpu:1", memory_limit=16) as ctx:
            lS = ctx.logical_data(np.ones(4), name="S")
            try:
                ctx.task(lS.accumulate(stf.reducer.sum))(lambda s: None)
            except stf.OutOfMemoryError:
                ctx.check_state()
                print(lS.numpy().tolist())
        """
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[1.0, 1.0, 1.0, 1.0]"), done.stderr


def test_open_accumulations_with_two_operators_do_not_mix(ctx):
    """They do not commute: the thread that holds one may not open the other."""
    lS = ctx.logical_data(np.full(2, 5.0), name="S")
    with ctx.task(lS.accumulate(stf.reducer.sum)) as t:
        with pytest.raises(stf.TaskStateError):
            ctx.task(lS.accumulate(stf.reducer.maxval))(lambda s: np.maximum(s, 4, out=s))
        t.arrays()[0][:] += 3
    assert lS.numpy().tolist() == [8, 8]


# -- in recordings -------------------------------------------------------------------------------------------------------


@stf.task
def count(x: stf.Read, total: stf.Accumulate[R.sum]):
    total += x


def repeated(ctx, x, total):
    with ctx.repeat(5):
        count(x, total)


def nested(ctx, x, total):
    with ctx.repeat(2):
        with ctx.repeat(2):
            count(x, total)
        with ctx.graph_scope():
            with ctx.if_(ctx.logical_data_full((), 1.0) > 2):
                count(x, total)
    count(x, total)


def looped(ctx, x, total):
    n = ctx.logical_data_zeros((), np.int64)
    with ctx.while_loop(n < 5):
        n.assign(n + 1)
        count(x, total)


def branched(ctx, x, total):
    for _ in range(5):
        with ctx.if_(ctx.logical_data_full((), 1.0) > 0):
            count(x, total)


def launched(ctx, x, total):
    g = ctx.task_graph()
    with g:
        count(x, total)
    for _ in range(3):
        g.launch()
    with ctx.graph_scope():
        g.launch()
        g.launch()


def launched_in_another(ctx, x, total):
    g, outer = ctx.task_graph(), ctx.task_graph()
    with g:
        count(x, total)
    with outer:
        g.launch()
        g.launch()
    outer.launch()
    count(x, total)
    outer.launch()


def launched_with_other_data(ctx, x, total):
    first = ctx.logical_data_empty(4)
    g = ctx.task_graph()
    with g:
        count(x, first)
    g.launch()
    for _ in range(5):
        g.launch({first: total})
    assert first.numpy().tolist() == x.numpy().tolist()


def replayed(ctx, x, total):
    step = stf.replay(lambda x, total: count(x, total))
    for _ in range(5):
        step(x, total)
    for _ in range(3):
        step(x, ctx.logical_data_empty(4))


@pytest.mark.parametrize(
    "program",
    [repeated, nested, looped, branched, launched, launched_in_another, launched_with_other_data, replayed],
    ids=lambda program: program.__name__,
)
@pytest.mark.parametrize("before", [None, 100.0])
def test_recorded_sums_add_to_what_a_launch_finds(ctx, program, before):
    """And to nothing where nobody wrote: a recording that was made before any content was there goes on from it."""
    x, total = ctx.logical_data(np.arange(4.0)), ctx.logical_data_empty(4)
    if before is not None:
        ctx.fill(total, before)
    program(ctx, x, total)
    assert total.numpy().tolist() == [(before or 0) + 5 * i for i in range(4)]


def test_a_recorded_sum_adds_to_what_was_written_after_the_recording(ctx):
    x, total = ctx.logical_data(np.arange(4.0)), ctx.logical_data_empty(4)
    g = ctx.task_graph()
    with g:
        with ctx.if_(ctx.logical_data_full((), 1.0) > 0):
            count(x, total)
        count(x, total)
    ctx.fill(total, 100.0)
    g.launch()
    assert total.numpy().tolist() == [100, 102, 104, 106]


def test_a_recorded_sum_adds_to_what_a_branch_wrote(ctx):
    x, flag, total = ctx.logical_data(np.arange(4.0)), ctx.logical_data_full((), 1.0), ctx.logical_data_empty(4)
    with ctx.repeat(3):
        with ctx.if_(flag > 0):
            ctx.fill(total, 100.0)
            flag.assign(0.0)
        count(x, total)
    assert total.numpy().tolist() == [100, 103, 106, 109]


def test_a_recorded_sum_that_is_overwritten_needs_no_content(ctx):
    x, total = ctx.logical_data(np.arange(4.0)), ctx.logical_data_empty(4)
    with ctx.repeat(2):
        count(x, total)
        ctx.fill(total, 3.0)
    assert total.numpy().tolist() == [3] * 4


def test_a_recording_that_is_given_up_gives_its_partial_results_back(ctx):
    x, total = ctx.logical_data(np.arange(4.0)), ctx.logical_data_zeros(4)
    for _ in range(2):
        with pytest.raises(KeyError):
            with ctx.repeat(2):
                count(x, total)
                raise KeyError
        ctx.check_state()
    count(x, total)
    assert total.numpy().tolist() == [0, 1, 2, 3]


def test_what_is_not_added_to_still_needs_content(ctx):
    x, total = ctx.logical_data(np.arange(4.0)), ctx.logical_data_empty(4)
    with pytest.raises(stf.UninitializedDataError, match="before anything wrote it"):
        with ctx.repeat(2):
            count(total, x)
    g = ctx.task_graph()
    with g:
        count(x, total)
        ctx.fill(total, 1.0)
    g.launch()
    assert total.numpy().tolist() == [1] * 4


def test_what_others_added_is_kept_when_one_fails(ctx):
    """accept() takes the content as it is: the sums of those that did not fail, and what the failed one wrote."""
    h = ctx.logical_data_full(2, 100.0, name="histogram")

    def count(k):
        def body(h):
            if k == 7:
                raise ValueError("a bad chunk")
            h += 1

        ctx.task(queued(ctx), h.accumulate(R.sum))(body)

    for k in range(10):
        count(k)
    for _ in range(2):
        with pytest.raises(stf.TaskFailedError, match="a bad chunk"):
            h.numpy()
    with contextlib.suppress(stf.TaskFailedError):
        ctx.synchronize()
    assert h.accept().numpy().tolist() == [109, 109]


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_operators_that_a_dtype_has_not(ctx, name):
    X = np.ones(3)
    lX = ctx.logical_data(X, name="X")
    with pytest.raises(
        TypeError, match=rf"'X' .* accumulated into with stf.reducer.{name}: that is not defined for float64"
    ):
        lX.accumulate(getattr(R, name))
    assert lX.numpy().tolist() == [1, 1, 1]  # and nothing is spoilt


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2fnuz", "float8_e5m2", "float8_e8m0fnu"])
def test_neutral_elements_of_types_without_infinity_or_zero(ctx, kind):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, kind))
    for op, want in ((R.minval, 0.5), (R.maxval, 4.0)):
        lX = ctx.logical_data(np.array([1.0, 2.0]).astype(dtype))
        for value in (0.5, 4.0):

            @ctx.host_launch(lX.accumulate(op))
            def contribute(x, op=op, value=value):
                combine = np.minimum if op is R.minval else np.maximum
                x[:1] = combine(x[:1], np.array([value]).astype(x.dtype))  # it may hold what the other one left

        content = [1.0, 2.0]
        content[0] = min(1.0, want) if op is R.minval else max(1.0, want)
        assert lX.numpy().astype(float).tolist() == content
    if kind == "float8_e8m0fnu":
        with pytest.raises(TypeError, match="reducer.sum: that is not defined for float8_e8m0fnu"):
            lX.accumulate(R.sum)


@pytest.mark.parametrize("kind", ["S3", "U3"])
def test_texts_have_no_sum(ctx, kind):
    lX = ctx.logical_data(np.array(["a", "b"], kind))
    with pytest.raises(TypeError, match="accumulated into with stf.reducer.sum: that is not defined for"):
        lX.accumulate(R.sum)
    assert lX.numpy().tolist() == np.array(["a", "b"], kind).tolist()


def test_results_stand_anywhere_among_the_arguments(ctx):
    if not runs_kernels(ctx):
        pytest.skip("no kernels here")
    x, y = ctx.logical_data(np.arange(10.0)), ctx.logical_data(np.arange(20.0, 30.0))
    first, last = ctx.logical_data(np.array(0.5)), ctx.logical_data_empty((), float)
    for _ in range(3):  # the second and third submission take the plan of the first
        ctx.parallel_for((10,), first.reduce(stf.reducer.sum), x.read())(lambda i, x: x[i])
        assert float(first.numpy()) == 45.0
        ctx.parallel_for((10,), x.read(), last.reduce(stf.reducer.maxval), y.read())(lambda i, x, y: x[i] + y[i])
        assert float(last.numpy()) == 38.0
        both = ctx.parallel_for(
            (10,), first.reduce(stf.reducer.sum, accumulate=True), x.read(), last.reduce(stf.reducer.minval), y.read()
        )
        both(lambda i, x, y: (x[i], y[i]))
        assert (float(first.numpy()), float(last.numpy())) == (90.0, 20.0)
    assert np.array_equal(x.numpy(), np.arange(10.0)) and np.array_equal(y.numpy(), np.arange(20.0, 30.0))
