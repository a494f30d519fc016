"""What type checkers say of a program: the lines that end in ``# error`` are wrong, and no others.

Nobody runs this.
"""

import asyncio
import concurrent.futures
from typing import Annotated, Any, assert_type

import numpy as np

import stf


class Tensor:
    """As torch's, for machines without torch."""

    def backward(self) -> None: ...


@stf.task
def axpy(a: float, x: stf.Read, y: stf.ReadWrite) -> None:
    assert x.shape == y.shape
    y += a * x
    x.smun()  # error


@stf.task(arrays="torch", name="step")
def step(loss: stf.Read[Tensor], n: int = 1) -> None:
    loss.backward()
    loss.forward()  # error


@stf.task
def add(x: stf.Read, total: stf.Accumulate[stf.reducer.sum], s: stf.Stream | None = None) -> Any:
    return x


@stf.task
def scale(s: float, a: stf.Read) -> Annotated[stf.Result, stf.Like["a"]]:
    return s * a


@stf.task(pure=True)
def gemm(a: stf.Read, b: stf.Read) -> Annotated[stf.Result, stf.New["(m,k),(k,n)->(m,n)"]]:
    return a @ b


@stf.task
def total_of(a: stf.Read) -> Annotated[stf.Result, stf.New[lambda a: (), np.float64]]:
    return float(a.sum())


@stf.task
def shapeless(a: stf.Read) -> Annotated[stf.Result, stf.New]:
    return "no array"  # error


@stf.task
def halves(a: stf.Read) -> tuple[Annotated[stf.Result, stf.Like["a"]], Annotated[stf.Result, stf.Like["a"]]]:
    return a / 2, a / 2


@stf.task
def stored(a: stf.Read, b: stf.Write) -> np.ndarray[Any, Any]:
    assert isinstance(a, np.ndarray)
    return a


@stf.task
def unsaid(a: stf.Read, b: stf.Write):  # type: ignore[no-untyped-def]
    return a


@stf.replay
def iterate(x: stf.LogicalData, n: int) -> stf.LogicalData:
    axpy(2.0, x, x)
    return x


@stf.replay(static=("n",))
def repeat(x: stf.LogicalData, n: int) -> None: ...


class Solver:
    @stf.task
    def step(self, a: float, x: stf.ReadWrite) -> None:
        x *= a

    @stf.task
    def stepped(self, x: stf.Read) -> Annotated[stf.Result, stf.Like["x"]]:
        return 2 * x


async def wait_for(handle: stf.Task, x: stf.LogicalData) -> None:
    await asyncio.gather(handle, handle)
    assert_type(await handle, None)
    assert_type(await x, np.ndarray[Any, Any])
    await asyncio.wait_for(handle, 1.0)


with stf.context(devices="cpu") as ctx:
    x = ctx.logical_data(np.zeros(3))
    y = ctx.logical_data_zeros(3)
    assert_type(x, stf.LogicalData)
    assert_type(x.numpy(), np.ndarray[Any, Any])
    axpy(2.0, x, y)
    axpy(2.0, x=x, y=y)
    axpy(2.0, x)  # error
    axpy(2.0, x, y, y)  # error
    axpy("2", x, y)  # error
    axpy(2.0, x, z=y)  # error
    axpy.on(1)(2.0, x, y)
    axpy.on(1)(2.0, x)  # error
    axpy.onn(1)  # error
    axpy.named("first")(2.0, x, y)
    step(x)
    step(x, n="1")  # error
    add(x, y)
    assert_type(iterate(x, 2), stf.LogicalData)
    iterate(x)  # error
    repeat(x, n=2)
    repeat(x, m=2)  # error
    print(iterate.explain())
    handle = axpy(2.0, x, y)
    assert_type(handle, stf.Task)
    for one in concurrent.futures.as_completed([handle, axpy(3.0, x, y)], timeout=1.0):
        print(one.done(), one.exception())
        one.start()  # error
    done, rest = concurrent.futures.wait([handle, handle], return_when=concurrent.futures.FIRST_COMPLETED)
    print(len(done) + len(rest))
    handle.add_done_callback(lambda task: print(task.label()))
    handle.cancl()  # error
    solver = Solver()
    assert_type(solver.step(2.0, x), stf.Task)
    solver.step.on(1)(2.0, x).result()
    solver.step(x)  # error
    assert_type(solver.stepped(x), stf.LogicalData)
    solver.stepped.on(1)(x).numpy()
    solver.stepped()  # error
    c = gemm(scale(2.0, x), b=y)
    assert_type(c, stf.LogicalData)
    assert_type(scale.on(1).named("s").with_priority(1)(2.0, c), stf.LogicalData)
    assert_type(total_of(c).numpy(), np.ndarray[Any, Any])
    first, second = halves(c)
    assert_type(second, stf.LogicalData)
    c.result()  # error
    scale("2", x)  # error
    scale(2.0)  # error
    halves(c).numpy()  # error
    assert_type(stored(x, y), stf.Task)
    assert_type(unsaid(x, y), stf.Task)
    assert_type(add(x, y), stf.Task)
    solver.step("2", x)  # error
    Solver.step(solver, 2.0, x)
    row = ctx.logical_data_zeros(6).tiles(2)
    blocks = ctx.logical_data_zeros((4, 4)).tiles((2, 2))
    assert_type(row[0], stf.LogicalData)
    assert_type(blocks[0, 1], stf.LogicalData)
    for tile in row:
        axpy(1.0, tile, tile)
        tile.nmpy()  # error
    for line in blocks:
        for tile in line:
            tile.numpy()
    for tile in blocks.ravel():
        tile.numpy()
    print(blocks.shape, blocks[0][1].shape, blocks[:1][0][0].shape)
    with blocks as pieces:
        pieces[0, 0].rw().mood  # error
    assert_type(ctx.wait(x), np.ndarray[Any, Any])
    x.numpy().sum()
    x.nmpy()  # error
    x.read().mode
    ctx.wait(x).sum()
    ctx.wait()  # error
    ctx.wiat(x)  # error
    ctx.logical_data(x=1)  # error
    ctx.host_launch(x.read())(lambda v: None)
    ctx.host_launch(x.read(), name=3)(lambda v: None)  # error
    ctx.check_errors(1, 2)  # error
    with ctx.task(x.rw(), name="block") as t:
        t.arrays()
        t.numpy()[0].sum()
        t.arays()  # error
    g = ctx.task_graph()
    g.launch(5)  # error
    with g:
        axpy(1.0, x, y)
    g.launch()
    g.lunch()  # error
    s = ctx.logical_data(0.0)
    with ctx.while_loop(s < 3) as loop:
        s.assign(s + 1)
    print(loop.iterations, float(s))
    p = g.param("a", 1.0)
    axpy(p, x, y)
    total = ctx.logical_data_zeros(())
    total.accumulate(stf.reducer.max)
    again: stf.LogicalData = total.empty_like(symbol="again")
    wrong: int = again.name  # error
