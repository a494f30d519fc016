"""`context`: how it is opened, what it does, how it ends."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from helpers import ON_CUDA

import stf
import stf.compat.cuda_stf as cuda_stf
from stf.places import places


@pytest.mark.parametrize("use_graph", [False, True])
def test_tasks_run_in_the_order_of_their_data(use_graph: bool, work: Any) -> None:
    X, Y, Z = np.ones(16), np.full(16, 2.0), np.zeros(16)
    ctx = cuda_stf.context(use_graph=use_graph)
    lX, lY, lZ = (ctx.logical_data(a) for a in (X, Y, Z))
    with ctx.task(lX.rw()) as t, work(t) as (x,):
        x += 1
    with ctx.task(lX.read(), lY.rw()) as t, work(t) as (x, y):
        y += x
    with ctx.task(lX.read(), lZ.write()) as t, work(t) as (x, z):
        z[...] = 10 * x
    with ctx.task(lY.read(), lZ.rw(), symbol="last") as t, work(t) as (y, z):
        z += y
    ctx.finalize()
    assert (X[0], Y[0], Z[0]) == (2.0, 4.0, 24.0)


def test_finalize_may_be_called_again() -> None:
    ctx = cuda_stf.context()
    ctx.finalize()
    ctx.finalize()
    with cuda_stf.context() as ctx:
        ctx.finalize()


def test_a_call_after_finalize_is_refused() -> None:
    ctx = cuda_stf.context()
    lX = ctx.logical_data(np.zeros(3))
    ctx.finalize()
    for call in (ctx.fence, lambda: ctx.wait(lX), lambda: ctx.logical_data(np.zeros(2)), ctx.token):
        with pytest.raises(RuntimeError, match="context handle is NULL"):
            call()
    with pytest.raises(RuntimeError, match="finalized"):
        ctx.place_resources
    with pytest.raises(RuntimeError):
        ctx.task(lX.read()).start()


def test_a_context_that_is_dropped_says_so() -> None:
    X = np.zeros(3)
    ctx = cuda_stf.context()
    lX = ctx.logical_data_full((3,), 2.0)
    with pytest.warns(ResourceWarning, match="without an explicit finalize") as seen:
        del ctx
        gc.collect()
    assert len(seen) == 1  # stf's own warning would say the same
    del lX
    with pytest.warns(ResourceWarning, match="without an explicit finalize"):
        other = cuda_stf.stackable_context()
        other.logical_data(X)
        del other
        gc.collect()


def test_an_error_leaves_a_with_block_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), cuda_stf.context() as ctx:
        ctx.logical_data(np.zeros(3))
        1 / 0
    ctx.finalize()


def test_wait_returns_a_copy(ctx: Any, work: Any) -> None:
    X = np.arange(6.0).reshape(2, 3)
    lX = ctx.logical_data(X)
    with ctx.task(lX.rw()) as t, work(t) as (x,):
        x *= 2
    found = ctx.wait(lX)
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [[0, 2, 4], [6, 8, 10]]
    found[:] = -1
    assert ctx.wait(lX)[1, 2] == 10
    assert ctx.wait(ctx.logical_data_full((1,), 3, np.int32)).dtype == np.int32


def test_wait_is_of_data_of_the_context(ctx: Any) -> None:
    with pytest.raises(TypeError):
        ctx.wait(None)
    with pytest.raises(TypeError, match="logical_data"):
        ctx.wait(np.zeros(3))
    with cuda_stf.context() as other, pytest.raises(ValueError, match="different context"):
        ctx.wait(other.logical_data(np.zeros(3)))


def test_fence_is_a_stream_after_all_work(ctx: Any) -> None:
    lX = ctx.logical_data_full((4,), 1.0)
    seen: list[float] = []
    ctx.host_launch(lX.read(), fn=lambda x: seen.append(x.sum()))
    stream = ctx.fence()
    assert isinstance(stream, int)
    if ON_CUDA:
        from cuda.bindings import driver

        assert stream != 0
        assert int(driver.cuStreamSynchronize(stream)[0]) == 0
    assert seen == [4.0]


def test_a_host_function_gets_arrays_and_arguments(ctx: Any) -> None:
    lX, token = ctx.logical_data(np.arange(6.0).reshape(2, 3)), ctx.token()
    seen: list[Any] = []

    def look(x: Any, *more: Any) -> str:
        seen.append((type(x), x.shape, x.sum(), more))
        return "what it returns is nobody's"

    assert ctx.host_launch(lX.read(), token.rw(), fn=look, args=["a", 2], symbol="look") is None
    ctx.host_launch(lX.rw(), fn=lambda x: np.multiply(x, 2, out=x))
    ctx.host_launch(fn=lambda: seen.append("no data"))
    assert ctx.wait(lX).sum() == 30
    assert seen == [(np.ndarray, (2, 3), 15.0, ("a", 2)), "no data"]


def test_the_error_of_a_host_function_is_raised_as_it_was() -> None:
    ctx = cuda_stf.context()
    lX, lY = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.zeros(3))

    def broken(_: Any) -> None:
        raise KeyError("broken")

    ctx.host_launch(lX.read(), fn=broken)
    with pytest.raises(KeyError, match="broken") as caught:
        ctx.wait(lY)
    assert "test_contexts.py" in caught.value.__notes__[0]
    assert ctx.check_errors() is None
    assert ctx.wait(lY).tolist() == [0, 0, 0]
    ctx.host_launch(lX.read(), fn=broken)
    ctx.host_launch(lY.read(), fn=broken)
    with pytest.raises(KeyError):
        ctx.finalize()
    ctx.check_errors()  # the same error of the same line is one
    ctx.finalize()


def test_errors_are_told_one_by_one(ctx: Any) -> None:
    lX, lY = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.zeros(3))

    def one(_: Any) -> None:
        raise KeyError("one")

    def other(_: Any) -> None:
        raise OSError("other")

    ctx.host_launch(lX.read(), fn=one)
    ctx.host_launch(lX.read(), lY.read(), fn=lambda x, y: other(x))
    lZ = ctx.logical_data_full((1,), 1.0)
    told = set()
    for _ in range(2):
        with pytest.raises((KeyError, OSError)) as caught:
            ctx.wait(lZ)
        told.add(type(caught.value))
    assert told == {KeyError, OSError}
    assert ctx.wait(lZ).tolist() == [1.0]


def test_data_of_a_function_that_failed_are_not_taken_for_good(ctx: Any) -> None:
    lX = ctx.logical_data(np.zeros(3))

    def broken(x: Any) -> None:
        x[0] = 1
        raise ValueError("half done")

    ctx.host_launch(lX.rw(), fn=broken)
    for _ in range(2):
        with pytest.raises(ValueError, match="half done"):
            ctx.wait(lX)


def test_host_launch_takes_dependences(ctx: Any, stackable: Any) -> None:
    lX = ctx.logical_data(np.zeros(3))
    with pytest.raises(TypeError):
        ctx.host_launch(lX, fn=print)
    with pytest.raises(TypeError, match="stackable"):
        ctx.host_launch(stackable.logical_data(np.zeros(3)).read(), fn=print)
    with cuda_stf.context() as other, pytest.raises(ValueError, match="different context"):
        other.host_launch(lX.read(), fn=print)
    with pytest.raises(TypeError):
        ctx.host_launch(lX.read())


def test_a_borrowed_context_submits_and_does_not_end(work: Any) -> None:
    X = np.zeros(3)
    with cuda_stf.context() as ctx:
        lX = ctx.logical_data(X)
        borrowed = lX.borrow_ctx_handle()
        assert isinstance(borrowed, cuda_stf.context)
        with borrowed.task(lX.rw()) as t, work(t) as (x,):
            x += 1
        with pytest.raises(RuntimeError, match="cannot finalize borrowed context"):
            borrowed.finalize()
        entered = list(places.contexts())
        with borrowed:
            pass
        assert places.contexts() == entered
        assert borrowed.wait(lX).tolist() == [1, 1, 1]
        del borrowed
        gc.collect()
        assert ctx.wait(lX.empty_like().borrow_ctx_handle().logical_data_full((1,), 5)).tolist() == [5]
    assert X.tolist() == [1, 1, 1]


def test_contexts_share_resources() -> None:
    shared = cuda_stf.async_resources()
    for value in range(3):
        with cuda_stf.context(handle=shared, use_graph=bool(value % 2)) as ctx:
            assert ctx.wait(ctx.logical_data_full((2,), value)).tolist() == [value, value]
    assert "async_resources" in repr(shared)
    with pytest.raises(TypeError, match="async_resources"):
        cuda_stf.context(handle=3)


@pytest.mark.parametrize("stream", ["x", 2.5, object()])
def test_a_stream_is_an_int_or_has_the_protocol(stream: Any) -> None:
    with pytest.raises(TypeError):
        cuda_stf.context(stream=stream)


def test_a_stream_whose_protocol_is_malformed_is_refused() -> None:
    class Wrong:
        def __init__(self, answer: Any) -> None:
            self.answer = answer

        def __cuda_stream__(self) -> Any:
            return self.answer

    for answer in ((1, 5), (0, "5"), 5, ()):
        with pytest.raises(TypeError):
            cuda_stf.context(stream=Wrong(answer))


@pytest.mark.skipif(not ON_CUDA, reason="needs CUDA streams")
def test_a_context_on_a_stream_of_the_callers(work: Any) -> None:
    import cupy

    X = np.zeros(3)
    stream = cupy.cuda.Stream(non_blocking=True)
    ctx = cuda_stf.context(stream=stream.ptr)
    lX = ctx.logical_data(X)
    with ctx.task(lX.rw()) as t, work(t) as (x,):
        x += 1
    ctx.finalize()
    stream.synchronize()
    ctx.check_errors()
    assert X.tolist() == [1, 1, 1]


@pytest.mark.skipif(ON_CUDA, reason="there are CUDA streams")
def test_a_cpu_has_no_streams() -> None:
    with pytest.raises(stf.PlaceError):
        cuda_stf.context(stream=12345)


def test_streams_of_a_context(ctx: Any) -> None:
    resources = ctx.place_resources
    assert isinstance(resources, cuda_stf.exec_place_resources)
    assert ctx.place_resources is resources
