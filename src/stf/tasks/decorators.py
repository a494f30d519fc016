"""`stf.task`: a function whose calls are tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from stf._support.arguments import name_of, truth
from stf.interop.arrays import library_named
from stf.tasks.after import accesses_after
from stf.tasks.functions import BoundTaskFunction, TaskFunction
from stf.tasks.task import ContextCore, Task, body_of

__all__ = ["submit_task", "task"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def task(
    fn: Callable[_P, _R],
    *,
    arrays: str | None = None,
    name: str | None = None,
    symbol: str | None = None,
    uses_cuda: bool = True,
    pure: bool = False,
) -> TaskFunction[_P, _R]: ...


@overload
def task(
    fn: None = None,
    *,
    arrays: str | None = None,
    name: str | None = None,
    symbol: str | None = None,
    uses_cuda: bool = True,
    pure: bool = False,
) -> Callable[[Callable[_P, _R]], TaskFunction[_P, _R]]: ...


def task(
    fn: Any = None,
    *,
    arrays: str | None = None,
    name: str | None = None,
    symbol: str | None = None,
    uses_cuda: bool = True,
    pure: bool = False,
) -> Any:
    """Make a function whose calls are tasks.

    Parameters
    ----------
    fn : callable
        A function whose parameters are annotated `stf.Read`, `stf.Write`, `stf.ReadWrite` or
        ``stf.Accumulate[op]`` where they take logical data (or lists, tuples, dicts or dataclasses of it). Others take
        plain values, or accesses such as ``x.read()``. ``stf.Read[torch.Tensor]`` says which arrays the function gets,
        ``stf.Read[np.float32]`` which elements they must have. A parameter annotated `stf.Stream` or `stf.Task` is
        injected. The handle of a task that has a body stands for that.
    arrays : str, optional
        Library of the arrays that the function gets.
    name, symbol : str, optional
        The tasks' name in pictures and messages; the function's name by default.
    uses_cuda : bool, optional
        Whether the function, on the host, may call CUDA, or a library that does; see `Context.host_launch`.
    pure : bool, optional
        Promise that calls with the same data and arguments do the same, and that the function does nothing but to write
        its data: it prints nothing, counts nothing and draws no random numbers of its own. Then a context with
        ``replay="auto"`` may launch windows of such tasks as one graph, without a call of the function. The numbers and
        strings that it reads of its closure and of global variables are compared.

    Returns
    -------
    TaskFunction
        Call it with logical data; ``.on(place_or_data)`` and ``.named(name)`` give variants.

    Raises
    ------
    TypeError
        `fn` is no ordinary function, or its result would be lost: it neither uses a parameter that it is to
        write nor returns a value. A call raises it for an array in the place of logical data.
    ValueError
        `arrays` is no library that stf knows.
    UninitializedDataError
        A call reads data that nobody has written.
    AccessError
        A call writes data that are read-only, or whose memory another live context uses; or its data are split into
        tiles, or released.
    ContextMismatchError
        A call uses data of several contexts.
    ContextClosedError
        A call uses data of a context that was finalized.

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
    is_pure = truth("pure", pure)
    if arrays is not None:
        library_named(arrays)
    if fn is None:
        return lambda function: TaskFunction(body_of(function), name, arrays, in_graphs=in_graphs, pure=is_pure)
    return TaskFunction(body_of(fn), name, arrays, in_graphs=in_graphs, pure=is_pure)


def submit_task(
    context: ContextCore,
    fn: Any,
    *args: Any,
    place: Any = None,
    name: str | None = None,
    symbol: str | None = None,
    after: Any = None,
) -> Task:
    """Submit ``fn(*args)`` as a task, as calling ``stf.task(fn)`` would; return its handle, or the new data it returns.

    Parameters
    ----------
    fn : callable
        A function annotated as for `stf.task`, or one made by it; the handle of a task that has a body stands for that.
    *args
        Its arguments; accesses, such as ``x.read()``, for parameters without an annotation.
    place : place, optional
        Where it runs.
    name, symbol : str, optional
        The task's name in pictures and messages.
    after : Event or sequence of Event, optional
        Events of `Context.event` that it comes after.

    Raises
    ------
    TypeError
        `fn` is no function, an argument is missing, or an array is given in the place of logical data.
    PlaceError
        The context does not have that place.
    UninitializedDataError
        Nobody has written data that are read.
    AccessError
        Its data are split into tiles or released, or another live context uses memory that it writes.
    ContextMismatchError
        Data belong to another context.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> def add(a, x: stf.Read, y: stf.ReadWrite):
    ...     y += a * x
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x, y = ctx.logical_data_ones(3), ctx.logical_data_zeros(3)
    ...     ctx.submit_task(add, 2.0, x, y, place=1)
    ...     print(y.numpy())
    [2. 2. 2.]
    """
    function, bound, named = task_in(fn)
    chosen = name_of(name, symbol)
    function = function if chosen is None else function.named(chosen)
    function = function.on(place) if place is not None else function
    task = context.make_task_at(() if after is None else accesses_after(after), None)
    task.find_site_outside()
    return function.call(context, task, [*bound, *args], dict(named))


def map_tasks(context: ContextCore, fn: Any, *iterables: Any, place: Any = None) -> list[Task]:
    """Submit ``fn`` once for each item, as the built-in ``map`` calls a function, and return the handles.

    Parameters
    ----------
    fn : callable
        A task function, or a function annotated as for `stf.task`.
    *iterables : iterable
        One for each argument of `fn`: data or other values. The shortest says how many tasks there are.
    place : place, optional
        Where they run.

    Returns
    -------
    list of Task
        The handles, in the order of the items.

    Raises
    ------
    TypeError
        `fn` is no function, or an item does not suit its parameter; what was submitted before runs.

    Examples
    --------
    >>> @stf.task
    ... def scale(x: stf.ReadWrite, factor):
    ...     x *= factor
    >>> with stf.context(devices="cpu") as ctx:
    ...     data = [ctx.logical_data_ones(2) for _ in range(3)]
    ...     handles = ctx.map(scale, data, [1.0, 2.0, 3.0])
    ...     print(len(handles), [x.numpy().tolist() for x in data])
    3 [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    """
    function, bound, named = task_in(fn)
    fixed = functools.partial(function, *bound, **named) if named else function
    given = () if named else bound
    return [submit_task(context, fixed, *given, *items, place=place) for items in zip(*iterables, strict=False)]


def task_in(fn: Any) -> tuple[TaskFunction[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return the task function in what is called as one, and the arguments that it has: of methods, and `partial`s."""
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    inner: Any = body_of(fn)
    while True:
        if isinstance(inner, functools.partial):
            inner, args, named = body_of(inner.func), (*inner.args, *args), {**inner.keywords, **named}
        elif isinstance(inner, BoundTaskFunction):
            inner, args = inner.function, (inner.instance, *args)
        else:
            break
    if isinstance(inner, TaskFunction):
        return inner, args, named
    return TaskFunction(functools.partial(inner, *args, **named) if args or named else inner), (), {}
