"""`stf.task`: a function whose calls are tasks."""

from __future__ import annotations

from typing import Any

from stf._support.arguments import name_of, truth
from stf.interop.libraries import check_library
from stf.tasks.functions import TaskFunction

__all__ = ["task"]


def task(
    fn: Any = None,
    *,
    arrays: str | None = None,
    name: str | None = None,
    symbol: str | None = None,
    uses_cuda: bool = True,
) -> Any:
    """Make a function whose calls are tasks.

    Parameters
    ----------
    fn : callable
        A function whose parameters are annotated `stf.Read`, `stf.Write`, `stf.ReadWrite` or
        ``stf.Accumulate[op]`` where they take logical data (or lists, tuples, dicts or dataclasses of it). Others take
        plain values, or accesses such as ``x.read()``. ``stf.Read[torch.Tensor]`` says which arrays the function gets,
        ``stf.Read[np.float32]`` which elements they must have. A parameter annotated `stf.Stream` or `stf.Task` is
        injected.
    arrays : str, optional
        Library of the arrays that the function gets.
    name, symbol : str, optional
        What pictures and messages call the tasks; the function's name by default.
    uses_cuda : bool, optional
        Whether the function, on the host, may call CUDA, or a library that does; see `Context.host_launch`.

    Returns
    -------
    TaskFunction
        Call it with logical data; ``.on(place_or_data)`` and ``.named(name)`` give variants.

    Examples
    --------
    >>> import numpy as np, stf
    >>> @stf.task
    ... def axpy(alpha, x: stf.Read, y: stf.ReadWrite):
    ...     y += alpha * x
    >>> X, Y = np.ones(4), np.zeros(4)
    >>> with stf.context(devices="cpu") as ctx:
    ...     axpy(2.0, ctx.logical_data(X), ctx.logical_data(Y))
    >>> Y
    array([2., 2., 2., 2.])
    """
    in_graphs, name = not truth("uses_cuda", uses_cuda), name_of(name, symbol)
    if arrays is not None:
        check_library(arrays)
    if fn is None:
        return lambda function: TaskFunction(function, name, arrays, in_graphs=in_graphs)
    return TaskFunction(fn, name, arrays, in_graphs=in_graphs)
