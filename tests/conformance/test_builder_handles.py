"""Handles that builders return: of one task, and of the tasks of a loop over several places."""

import concurrent.futures
import functools
import queue

import numpy as np
import pytest
from helpers import runs_kernels

import stf


def double(x):
    x *= 2


def increase(i, x):
    x[i] += 1.0


def test_each_call_that_submits_a_task_returns_its_handle(ctx, loop):
    x, y = ctx.logical_data(np.ones(3)), ctx.logical_data_empty(3)
    graph = ctx.task_graph()
    with graph:
        ctx.task(x.rw())(double)
    made = [
        ctx.task(x.rw())(double),
        loop(x.shape, x.rw())(increase),
        ctx.host_launch(x.read())(lambda x: None),
        ctx.host_launch(x.read(), fn=lambda x: None),
        ctx.fill(y, 3.0),
        ctx.copy(x, y),
        ctx.prefetch(x, stf.data_place.device(0)),
        graph.launch(),
        graph.launch({x: y}),
    ]
    assert all(isinstance(handle, stf.Task) for handle in made)
    done, left = concurrent.futures.wait(made, timeout=30)
    assert done == set(made) and not left
    assert [handle.result() for handle in made] == [None] * len(made)
    assert x.numpy().tolist() == [6.0] * 3 and y.numpy().tolist() == [6.0] * 3


def test_a_handle_stands_for_its_body(ctx, loop):
    x = ctx.logical_data(np.ones(3))

    @ctx.task(x.rw())
    def twice(x):
        x *= 2

    @loop(x.shape, x.rw())
    def more(i, x):
        x[i] += 1.0

    ctx.task(x.rw())(twice)
    loop(x.shape, x.rw())(more)
    ctx.host_launch(x.rw())(twice)
    assert x.numpy().tolist() == [14.0] * 3
    array = np.ones(2)
    twice(array)  # the name stays that of a function
    assert array.tolist() == [2.0, 2.0]


def test_a_handle_stands_for_its_body_in_task_functions(ctx):
    x, y = ctx.logical_data(np.ones(3)), ctx.logical_data(np.ones(3))

    @ctx.task(x.rw())
    def twice(x: stf.ReadWrite, factor=2):
        x *= factor

    stf.task(twice)(y)
    stf.task(twice, name="other")(y, factor=3)
    stf.task(name="third")(twice)(y)
    ctx.submit_task(twice, y)
    ctx.submit_task(functools.partial(twice, factor=5), y)
    stf.map(twice, [y, x])
    assert x.numpy().tolist() == [4.0] * 3 and y.numpy().tolist() == [240.0] * 3

    with ctx.task(x.rw()) as bare:
        pass
    for wrong in (stf.task, lambda handle: ctx.submit_task(handle, y)):
        with pytest.raises(TypeError, match="keeps none; give the function itself"):
            wrong(bare)


def test_a_second_body_is_an_error(ctx):
    x = ctx.logical_data(np.ones(3))
    builder = ctx.task(x.rw())
    builder(double)
    with pytest.raises(stf.TaskStateError):
        builder(lambda x: None)
    assert x.numpy().tolist() == [2.0] * 3


def test_a_handle_without_a_body_is_none(ctx):
    x = ctx.logical_data(np.ones(3))
    with ctx.task(x.rw()) as task:
        pass
    with pytest.raises(TypeError, match="keeps none"):
        ctx.task(x.rw())(task)
    assert x.numpy().tolist() == [1.0] * 3


def test_a_launch_that_fails_says_so(ctx):
    x = ctx.logical_data(np.zeros(2))
    graph = ctx.task_graph()
    with graph:

        @ctx.host_launch(x.rw())
        def step(x):
            if x[0] >= 2:
                raise ArithmeticError("too much")
            x += 1

    handles = [graph.launch() for _ in range(3)]
    assert handles[0].result() is None and handles[1].exception() is None
    with pytest.raises(stf.TaskFailedError, match="too much"):
        handles[2].result()
    with pytest.raises(stf.TaskFailedError):
        x.numpy()


class TestOverAGrid:
    """A loop over several places is one handle of several tasks."""

    @pytest.fixture
    def work(self, ctx):
        if not runs_kernels(ctx):
            pytest.skip("the stand-in runs no kernels")
        grid = stf.exec_place.grid([ctx.devices[i % len(ctx.devices)] for i in range(3)])
        x = ctx.logical_data(np.zeros(9))
        return ctx.parallel_for(x.shape, x.rw(stf.data_place.device(0))).on(grid)(increase), x

    def test_it_is_done_when_all_are(self, work):
        handle, x = work
        assert len(handle) == 3 and handle.result(30) is None and handle.done()
        assert not handle.cancelled() and not handle.running() and handle.exception() is None
        assert handle.body is increase
        assert x.numpy().tolist() == [1.0] * 9

    def test_others_wait_for_it(self, ctx, work):
        handle, x = work
        other = ctx.fill(x, 5.0)
        told = queue.SimpleQueue()
        handle.add_done_callback(told.put)
        assert set(stf.as_completed([handle, other])) == {handle, other}
        assert not concurrent.futures.wait([handle, other], 30).not_done
        handle.result()
        assert told.get(timeout=30) is handle  # who waits may hear of it first

    def test_a_coroutine_waits_for_it(self, work):
        import asyncio

        async def main():
            return await work[0]

        assert asyncio.run(main()) is None

    def test_why_tells_of_each(self, ctx_factory):
        ctx = ctx_factory(observe=True)
        if not runs_kernels(ctx):
            pytest.skip("the stand-in runs no kernels")
        x = ctx.logical_data(np.zeros(9))
        grid = stf.exec_place.grid([ctx.devices[0]] * 2)
        handle = ctx.parallel_for(x.shape, x.rw(stf.data_place.device(0))).on(grid)(increase)
        handle.result()
        assert ctx.why(handle).count("increase") >= 2
