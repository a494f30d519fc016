"""Functions over many data in one line: `stf.map` and `stf.reduce`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import numpy as np

from stf.errors import ContextMismatchError
from stf.tasks.decorators import map_tasks, task_in
from stf.tasks.new_data import results_of
from stf.values.containers import data_in

__all__ = ["map", "reduce"]


def map(fn: Any, *iterables: Iterable[Any], place: Any = None) -> list[Any]:
    """Call a task function once for each item, as the built-in ``map``, in the context of the data.

    Parameters
    ----------
    fn : callable
        A task function, or a function annotated as for `stf.task`.
    *iterables : iterable
        One for each argument of `fn`: data, containers of data, or other values. Tiles of several axes are taken in C
        order. The shortest says how many tasks there are.
    place : place, optional
        Where they run.

    Returns
    -------
    list
        What the calls return, in the order of the items: new data, containers of these, or handles of tasks.

    Raises
    ------
    TypeError
        There are no data among the items, `fn` is no function, or an item does not suit its parameter.
    ContextMismatchError
        Data belong to several contexts.

    Examples
    --------
    >>> @stf.task
    ... def square(x: stf.Read) -> stf.Like["x"]:
    ...     return x * x
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data(np.arange(6.0))
    ...     print([y.numpy().tolist() for y in stf.map(square, x.tiles(2))])
    [[0.0, 1.0], [4.0, 9.0], [16.0, 25.0]]
    """
    rows = list(zip(*[items_of(each) for each in iterables], strict=False))
    if not rows:
        return []
    return map_tasks(context_of(rows, "map"), fn, *zip(*rows, strict=True), place=place)


def reduce(fn: Any, data: Iterable[Any], *, place: Any = None) -> Any:
    """Combine data in pairs, and the results in pairs, until one is left: a tree of ``log2(n)`` levels.

    Neighbours are combined, and their order stays: ``fn`` must be associative, and need not be commutative. The tree
    depends on the number of data alone, so that the result has the same bits in each run.

    Parameters
    ----------
    fn : callable
        A task function of two data that returns new data, such as ``def add(a: stf.Read, b: stf.Read) ->
        stf.Like["a"]``, or a function annotated like this.
    data : iterable
        Data, or containers of data, that `fn` takes. Tiles of several axes are taken in C order.
    place : place, optional
        Where the tasks run.

    Returns
    -------
    LogicalData
        What `fn` returned last; of one data, this data itself.

    Raises
    ------
    TypeError
        `fn` returns no new data, or an item is none.
    ValueError
        There are no data.
    ContextMismatchError
        Data belong to several contexts.

    Examples
    --------
    >>> @stf.task
    ... def add(a: stf.Read, b: stf.Read) -> stf.Like["a"]:
    ...     return a + b
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     parts = [ctx.logical_data(np.full(2, float(i))) for i in range(5)]
    ...     print(stf.reduce(add, parts).numpy())
    [10. 10.]
    """
    left = list(items_of(data))
    if not left:
        raise ValueError("reduce combines data, and got none; give a list of at least one")
    context = context_of([(item,) for item in left], "reduce")
    function, _, _ = task_in(fn)
    name = function.symbol
    if results_of(inspect.unwrap(function.fn), name) is None:
        raise TypeError(
            f"reduce takes a function that returns new data, and '{name}' does not; annotate its result, for example "
            '-> stf.Like["a"]'
        )
    while len(left) > 1:
        last = left[len(left) // 2 * 2 :]
        left = map_tasks(context, fn, left[: len(left) - len(last) : 2], left[1::2], place=place) + last
    return left[0]


def items_of(items: Iterable[Any]) -> Iterable[Any]:
    """Return the items of an iterable; of tiles, each tile."""
    return items.ravel() if isinstance(items, np.ndarray) and items.dtype == object else items


def context_of(rows: list[tuple[Any, ...]], what: str) -> Any:
    """Return the context of the data among items."""
    found = {id(data.core.engine): data for data in data_in(rows)}
    if not found:
        raise TypeError(f"{what} takes data, and got none; register arrays with ctx.logical_data")
    if len(found) > 1:
        one, other = list(found.values())[:2]
        raise ContextMismatchError(
            f"{what} got {one.core.describe()} and {other.core.describe()} of different contexts"
        )
    return next(iter(found.values())).context
