"""What users of Python try first: asyncio, concurrent.futures, functools, methods."""

import asyncio
import concurrent.futures
import functools

import numpy as np
import pytest

import stf


@stf.task
def axpy(a, x: stf.Read, y: stf.ReadWrite):
    y += a * x


@stf.task
def square(x: stf.Read) -> stf.Like["x"]:  # noqa: F821
    return x * x


@stf.task
def combine(factor, a: stf.Read, b: stf.Read) -> stf.Like["a"]:  # noqa: F821
    return a + factor * b


class Model:
    factor = 3.0

    @stf.task
    def method(self, x: stf.Read, y: stf.ReadWrite):
        y += self.factor * x

    @staticmethod
    @stf.task
    def static(y: stf.ReadWrite):
        y += 1

    @classmethod
    @stf.task
    def of_class(cls, y: stf.ReadWrite):
        y += cls.factor

    def plain(self, x: stf.Read, y: stf.ReadWrite):
        y += self.factor * x


@pytest.fixture
def data(ctx):
    return ctx.logical_data(np.ones(2), write_back=False), ctx.logical_data(np.zeros(2), write_back=False)


def test_partial_functions(ctx, data):
    x, y = data
    functools.partial(axpy, 2.0)(x, y)
    functools.partial(axpy, a=2.0)(x=x, y=y)
    ctx.map(functools.partial(axpy, 2.0), [x], [y])
    ctx.map(functools.partial(functools.partial(axpy, 2.0), x), [y])
    ctx.submit_task(functools.partial(axpy, 2.0), x, y)
    stf.task(functools.partial(axpy.fn, 2.0))(x, y)
    np.testing.assert_array_equal(y.numpy(), 12.0)
    assert stf.task(functools.partial(axpy.fn, 2.0)).symbol == "axpy"
    found = stf.reduce(functools.partial(combine, 2.0), [x, x, x, x])
    np.testing.assert_array_equal(found.numpy(), 9.0)


def test_methods(ctx, data):
    x, y = data
    model = Model()
    model.method(x, y), Model.static(y), Model.of_class(y), stf.task(model.plain)(x, y)
    stf.map(model.method, [x], [y])
    functools.partial(model.method, x)(y)
    np.testing.assert_array_equal(y.numpy(), 5 * 3.0 + 1)


def test_what_is_a_task_already():
    for wrong in (axpy, functools.partial(axpy, 2.0)):
        with pytest.raises(TypeError, match="'axpy' is a task function already; call it"):
            stf.task(wrong)
    with pytest.raises(TypeError, match="write @classmethod above @stf.task"):
        stf.task(classmethod(lambda cls, x: None))


def test_asyncio(ctx, data):
    x, y = data

    async def main():
        np.testing.assert_array_equal(await asyncio.wait_for(square(x), 60), 1.0)
        assert await asyncio.wait_for(axpy(1.0, x, y), 60) is None
        for found in await asyncio.gather(square(x), square(y)):
            np.testing.assert_array_equal(found, 1.0)
        async with asyncio.timeout(60):
            np.testing.assert_array_equal(await asyncio.shield(square(x)), 1.0)
        np.testing.assert_array_equal(await asyncio.to_thread(square(x).numpy), 1.0)

    asyncio.run(main())


def test_an_asynchronous_context():
    async def main():
        async with stf.context(devices="cpu:2") as ctx:
            x = ctx.logical_data(np.full(2, 3.0))
            return await ctx.wait_async({"x": square(x)})

    np.testing.assert_array_equal(asyncio.run(main())["x"], 9.0)


def test_concurrent_futures(data):
    x, y = data
    handles = [axpy(1.0, x, y) for _ in range(3)]
    assert len(concurrent.futures.wait(handles).done) == 3
    assert set(concurrent.futures.as_completed(handles)) == set(handles)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        assert [found.numpy().tolist() for found in executor.map(square, [x, x])] == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("attempt", "remedy"),
    [
        (lambda found: found.result(), r"numpy\(\) waits"),
        (lambda found: found.done(), r"ready\(\) says"),
        (lambda found: concurrent.futures.wait([found]), r"there is stf\.as_completed"),
        (lambda found: list(concurrent.futures.as_completed([found])), r"there is stf\.as_completed"),
    ],
)
def test_data_are_no_futures(data, attempt, remedy):
    with pytest.raises(AttributeError, match=remedy):
        attempt(square(data[0]))
    assert not hasattr(data[0], "result")
