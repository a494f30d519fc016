"""Loops of tasks on one GPU, each a function of how many; `run.py` and `compare.py` time them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import stf

WIDTH = 32  # of a row of the stencil

Loop = Callable[[int], None]


@stf.task
def bump(x: stf.ReadWrite) -> None:
    x += 1


def chain(ctx: Any, data: Any) -> Loop:
    """Empty tasks on one data."""

    def run(n: int) -> None:
        for _ in range(n):
            with ctx.task(data.rw()):
                pass

    return run


def stencil(ctx: Any, steps: list[tuple[Any, ...]]) -> Loop:
    """Empty tasks that read three neighbours in one row and write one in the other."""

    def run(n: int) -> None:
        for a, b, c, d in steps[:n]:
            with ctx.task(a.read(), b.read(), c.read(), d.write()):
                pass

    return run


def stencil_steps(rows: list[list[Any]], count: int) -> Iterator[tuple[Any, ...]]:
    """Three reads and a write per point, between two rows in turn."""
    for i in range(count):
        step, column = divmod(i, WIDTH)
        a, b = rows[step & 1], rows[1 - (step & 1)]
        yield a[column - 1], a[column], a[(column + 1) % WIDTH], b[column]


def cupy_loops(ctx: Any, data: Any, target: Any, stream: Any) -> dict[str, Loop]:
    """One call of CuPy: in task functions and with-blocks on `data`, and by hand on `target` and an explicit stream."""

    def function_cupy(n: int) -> None:
        for _ in range(n):
            bump(data)

    def with_block_cupy(n: int) -> None:
        for _ in range(n):
            with ctx.task(data.rw()) as t:
                (x,) = t.cupy()
                x += 1

    def with_block_cupy_view(n: int) -> None:
        for _ in range(n):
            with ctx.task(data.rw()) as t:
                t.cupy()

    def cupy_by_hand(n: int) -> None:
        x = target
        for _ in range(n):
            with stream:
                x += 1

    def cupy_with_stream(n: int) -> None:
        for _ in range(n):
            with stream:
                pass

    loops = function_cupy, with_block_cupy, with_block_cupy_view, cupy_by_hand, cupy_with_stream
    return {loop.__name__: loop for loop in loops}
