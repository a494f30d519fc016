"""JAX arrays on the CPU, on every driver of the CPU: copies in, results out."""

from __future__ import annotations

import numpy as np
import pytest

import stf

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")


def test_an_array_is_read_where_it_lies_and_never_written(ctx):
    x = jnp.arange(5, dtype=jnp.float32)
    lX = ctx.logical_data(x, name="X")
    assert lX.readonly and lX.dtype == np.float32 and ctx.logical_data(x) is lX
    with ctx.task(lX.read()) as t:
        (a,) = t.numpy()
        assert a.tolist() == [0, 1, 2, 3, 4]
    if ctx.devices[0].kind == "device" and ctx._driver.shares_host:
        assert a.__array_interface__["data"][0] == x.unsafe_buffer_pointer()
    with pytest.raises(stf.AccessError, match="'X' .* is read-only"):
        ctx.task(lX.rw()).start()


def test_bfloat16(ctx):
    x = jnp.array([1.5, -2.0], jnp.bfloat16)
    lX, lY = ctx.logical_data(x), ctx.logical_data_empty(2, jnp.bfloat16)
    assert lX.dtype == lY.dtype == x.dtype

    @stf.task(arrays="jax")
    def double(x: stf.Read, y: stf.Write):
        assert x.dtype == jnp.bfloat16
        return 2 * x

    double.on(ctx.devices[-1])(lX, lY)
    assert lY.numpy().tolist() == [3, -4]


def test_results_are_stored(ctx):
    X = np.arange(6, dtype=np.float32).reshape(2, 3)
    lX, lS, lT = ctx.logical_data(X), ctx.logical_data_empty((), np.float32), ctx.logical_data_empty((3, 2), np.float32)

    @stf.task
    def scale(a, x: stf.ReadWrite[jax.Array]):
        assert isinstance(x, jax.Array)
        return x.at[0, 0].set(1) * a

    @stf.task(arrays="jax")
    @jax.jit
    def both(x: stf.Read, s: stf.Write, t: stf.Write):
        return x.sum(), x.T

    for place in ctx.devices:
        scale.on(place)(2, lX)
    both(lX, lS, lT)
    factor = 2 ** len(ctx.devices)
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    for _ in ctx.devices:
        expected[0, 0] = 1
        expected *= 2
    assert lX.numpy().tolist() == expected.tolist() and float(lS) == expected.sum()
    assert lT.numpy().tolist() == expected.T.tolist()
    ctx.finalize()
    assert X.tolist() == expected.tolist() and factor > 1


def test_each_body_sees_the_content_of_its_time(ctx):
    """Nothing that JAX keeps of an array outlives the task, though the memory is the same."""
    X, kept = np.zeros(3, np.float32), []
    lX = ctx.logical_data(X)

    @stf.task(arrays="jax")
    def look(x: stf.Read):
        kept.append(x)

    for i in range(4):
        look(lX)
        ctx.fill(lX, float(i + 1))
    ctx.synchronize()
    assert [np.asarray(x).tolist() for x in kept] == [[float(i)] * 3 for i in range(4)]


def test_blocks_may_read(ctx_factory):
    ctx = ctx_factory(arrays="jax")
    lX = ctx.logical_data(np.ones(3, np.float32), name="X")
    ctx.fill(lX, 4.0)
    lY = ctx.logical_data_ones(3, np.float32)
    ctx.copy(lX, lY)
    with ctx.task(lX.read(), ctx.token().rw(), lY.read()) as t:
        x, y = t.arrays()
        assert isinstance(x, jax.Array) and isinstance(t[0], jax.Array) and t[1] is None
        assert float((x + y).sum()) == 24
    with pytest.raises(TypeError, match="opens logical data 'X' for writing, and JAX arrays never change"):
        with ctx.task(lX.rw()) as t:
            t.arrays("jax")
    lX.accept()
    waited = ctx.wait(lX, arrays="jax")
    assert isinstance(waited, jax.Array) and waited.tolist() == [4, 4, 4]


def test_frozen_data_are_copies(ctx_factory):
    ctx = ctx_factory(arrays="jax")
    lX = ctx.logical_data(np.ones(3, np.float32))
    for value in (1.0, 2.0):
        ctx.fill(lX, value)
        with ctx.freeze(lX) as frozen:
            x = frozen.get()
        assert isinstance(x, jax.Array) and x.tolist() == [value] * 3


def test_what_cannot_be_stored(ctx):
    lX = ctx.logical_data(np.zeros(3, np.float32), name="X")

    with pytest.warns(RuntimeWarning, match="computes something from 'x' and drops it"):

        @stf.task(arrays="jax")
        def nothing(x: stf.ReadWrite):
            x + 1

    @stf.task(arrays="jax")
    def shape(x: stf.ReadWrite):
        return x[:2]

    @stf.task(arrays="jax")
    def kind(x: stf.ReadWrite):
        return x.astype(int)

    @stf.task(arrays="jax")
    def same(x: stf.ReadWrite):
        return x

    same(lX)
    assert lX.numpy().tolist() == [0, 0, 0]
    cases = (
        (nothing, "task 'nothing' returned None, and JAX arrays never change; return the content"),
        (shape, r"result 0 of task 'shape' has shape \(2,\), which does not broadcast to the shape"),
        (kind, "result 0 of task 'kind' has dtype int32, its data has float32, which does not hold all of"),
    )
    for task, message in cases:
        task(lX)
        with pytest.raises(stf.TaskFailedError, match=message):
            lX.numpy()
        lX.accept()


def test_elements_that_jax_would_narrow_are_refused(ctx):
    if jax.config.jax_enable_x64:
        pytest.skip("JAX keeps elements of 64 bits here")
    lX = ctx.logical_data(np.zeros(3), name="X")

    @stf.task(arrays="jax")
    def f(x: stf.ReadWrite):
        return x

    with pytest.raises(stf.TaskFailedError, match="JAX makes float32 of float64; jax.config.update"):
        f(lX)
        lX.numpy()
    lX.accept()


def test_reductions_with_jax(ctx):
    lS = ctx.logical_data(np.zeros((), np.float32))

    @stf.task(arrays="jax")
    def add(x: stf.Read, s: stf.Accumulate[stf.reducer.sum]):
        return s + x.sum()

    for i in range(6):
        add.on(i % len(ctx.devices))(ctx.logical_data(np.full(4, i, np.float32)), lS)
    assert float(lS) == 60


def test_containers_are_read(ctx):
    parts = [ctx.logical_data(np.full(2, i, np.float32)) for i in range(3)]
    lS = ctx.logical_data_empty(2, np.float32)

    @stf.task(arrays="jax")
    def total(parts: stf.Read, s: stf.Write):
        assert all(isinstance(p, jax.Array) for p in parts)
        return sum(parts)

    total(parts, lS)
    assert lS.numpy().tolist() == [3, 3]

    @stf.task(arrays="jax")
    def write(parts: stf.ReadWrite):
        return parts

    with pytest.raises(
        TypeError, match="parameter .parts. of task .write. holds several data, and JAX arrays are written by"
    ):
        write(parts)


@pytest.mark.parametrize("kind, value", [(np.float32, 0.5), (np.float32, 3), (np.int8, 7), (np.int16, 300)])
def test_a_number_is_of_any_width_that_holds_it(ctx, kind, value):
    lS = ctx.logical_data(np.zeros((), kind))

    @stf.task(arrays="jax")
    def give(x: stf.Write):
        return value

    give(lS)
    assert lS.numpy() == value


@pytest.mark.parametrize("kind, value", [(np.int8, np.int64(300)), (np.int32, 0.5)])
def test_a_number_that_the_data_does_not_hold_is_an_error(ctx, kind, value):
    lS = ctx.logical_data(np.zeros((), kind))

    @stf.task(arrays="jax")
    def give(x: stf.Write):
        return value

    give(lS)
    with pytest.raises(stf.TaskFailedError, match="convert it"):
        lS.numpy()
    ctx.fill(lS, 0)
