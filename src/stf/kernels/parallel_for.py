"""``ctx.parallel_for``: a body for each element of an index space, compiled for the place where it runs."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from stf._engine.access import Access
from stf._support.arguments import name_of, sequence
from stf._support.call_sites import site_text
from stf.kernels import gpu_tasks, loops
from stf.kernels.builders import (
    KernelBuilder,
    accessed,
    compile_now,
    default_of,
    expected,
    is_number,
    is_place,
    is_returned,
    must_take,
    submit_kernel,
)
from stf.kernels.captured import Captured
from stf.kernels.index_spaces import IndexSpace, space_of
from stf.kernels.loop_tasks import LoopTask, Target, is_cut_along_first
from stf.kernels.plans import key_of, plan_of, remember
from stf.kernels.reductions import Reduction, accumulator, scalar_operator
from stf.places.partition import Part, check_partition
from stf.places.places import Grid
from stf.tasks.bodies import submit_body
from stf.tasks.task import ContextCore
from stf.tasks.undeclared import refuse_undeclared

__all__ = ["ParallelFor", "parallel_for"]

KNOWN_STARTS = range(3)  # that loops are compiled for


def parallel_for(
    context: ContextCore,
    *arguments: Any,
    args: Any = (),
    name: str | None = None,
    symbol: str | None = None,
) -> ParallelFor:
    """Run a body for each element of an index space; call the result with the body, or use it as a decorator.

    The body is a Python function or a lambda, which Numba compiles for a CPU, and numba-cuda for a GPU. It gets the
    indices, then an array for each access (of a zero-dimensional one that is only read, the number), then `args`.
    Numbers that it reads from its closure or from global variables are arguments of the compiled kernel, as they are
    now: a new value compiles nothing (of a global variable, on a CPU).
    A zero-dimensional reduction has no parameter: the body returns what it contributes, a tuple for several.

    The elements are run in any order, and beside each other.

    Parameters
    ----------
    *arguments
        Perhaps a place, or a grid of places and a partition; the index space (a shape such as ``lX.shape``, a box of
        `stf.box`, or an object of a class with ``index_to_coords``); accesses, such as ``lX.rw()``, and reductions,
        ``lS.reduce(op)``. On a grid each place runs its part as a task of its own: parts that only read run beside
        each other, and parts that write the same data follow each other.
    args : sequence, optional
        Further arguments of the body: numbers, tuples of numbers, parameters of a graph.
    name, symbol : str, optional
        What pictures and messages call the task; the body's name by default.

    Returns
    -------
    ParallelFor
        A builder: call it with the body. ``.on(place)`` and ``.set_symbol(name)`` give it back.

    Raises
    ------
    TypeError
        The body takes another number of arguments, or cannot be compiled; the message shows its line.
    ImportError
        The compiler is not there; the message says how to install it.
    PlaceError
        A reduction into an array is at a GPU.

    Examples
    --------
    >>> import numpy as np, stf
    >>> X, Y, alpha = np.arange(4.0), np.ones(4), 2.0
    >>> with stf.context(devices="cpu") as ctx:
    ...     x, y, s = ctx.logical_data(X), ctx.logical_data(Y), ctx.logical_data_empty((), float)
    ...     @ctx.parallel_for(x.shape, x.read(), y.rw())
    ...     def axpy(i, x, y):
    ...         y[i] += alpha * x[i]
    ...     dot = ctx.parallel_for(x.shape, x.read(), y.read(), s.reduce(stf.reducer.sum))
    ...     _ = dot(lambda i, x, y: x[i] * y[i])
    ...     print(ctx.wait(s))
    34.0
    >>> Y
    array([1., 3., 5., 7.])
    """
    place: Any = None
    partition: Any = None
    rest = list(arguments)
    if rest and is_place(rest[0], rest[1:]):
        place = rest.pop(0)
    if rest and hasattr(rest[0], "apply"):
        partition = check_partition(rest.pop(0))
        if not isinstance(place, Grid):
            raise TypeError(f"a partition is for a grid of places, got {place!r}; say stf.exec_place.all_devices()")
    if not rest or isinstance(rest[0], Access | Reduction):
        raise TypeError("parallel_for needs an index space before the accesses: lX.shape, or stf.box(...)")
    space = space_of(rest.pop(0))
    builder = ParallelFor(context, space, rest, sequence("args", args), name_of(name, symbol), partition)
    return builder if place is None else builder.on(place)


class ParallelFor(KernelBuilder):
    """A builder of a task that runs a body for each element of an index space: call it with the body."""

    what = "parallel_for"

    def __init__(self, context: ContextCore, space: IndexSpace, *arguments: Any) -> None:
        super().__init__(context, *arguments)
        self.space = space

    def whole(self, places: int) -> Part:
        return self.space.part

    def for_part(self, part: Part, arguments: list[Any]) -> ParallelFor:
        return ParallelFor(self.task.context, self.space._replace(part=part), arguments, self.extra, self.task.symbol)

    def submit(self, body: types.FunctionType) -> None:
        task = self.task
        is_gpu = task.context.engine.places[task.where].enqueues
        key = key_of(body, self.arguments, self.extra, self.space, is_gpu, task.symbol if is_gpu else None)
        plan = plan_of(key)
        numbers = None if plan is None else plan.numbers(body, self.extra)
        items = self.arguments
        if any(accessed(item).data.core.token for item in items):
            items = [item for item in items if not accessed(item).data.core.token]
        if plan is not None and numbers is not None:
            refuse_undeclared(body, task)
            plan.submit(task, items, numbers)
            return
        where = f"the body of parallel_for at {site_text(body.__code__, 0)}"
        parameters = [item for item in items if not is_returned(item)]
        must_take(body, self.space.ndim + len(parameters) + len(self.extra), f"{self.space.ndim} indices", where)
        refuse_undeclared(body, task)
        captured = Captured(body, where)
        if is_gpu:
            loop, numbers = gpu_tasks.plan_loop(task, body, captured, self.space, items, self.extra, where)
            loop.submit(task, items, numbers)
            if not loop.held:
                remember(key, body, captured, loop.submit, False)
            return
        run = self.compiled(body, captured, items, parameters, where)

        def submit(task: Any, items: list[Any], numbers: tuple[Any, ...]) -> None:
            submit_body(task, run.with_driver(task.context._driver), numbers, "numpy")

        submit_kernel(task, run.with_driver(task.context._driver), (*self.extra, *map(loops.jitted, captured.values)))
        remember(key, body, captured, submit, True)

    def compiled(
        self, body: types.FunctionType, captured: Captured, items: list[Any], parameters: list[Any], where: str
    ) -> LoopTask:
        """The loop on a CPU."""
        targets = [Target(i, item.op, item.accumulates) for i, item in enumerate(items) if isinstance(item, Reduction)]
        returned = [target for target in targets if is_returned(items[target.position])]
        kinds = tuple("value" if is_number(item) else "array" for item in parameters)
        operators = tuple(scalar_operator(target.op) for target in returned)
        part = self.space.part
        strided = any(getattr(axis, "axis", axis).step != 1 for axis in part)  # of tiles: the axis that they tile
        form = loops.Form(self.space.ndim, known_starts(part), kinds, len(self.extra), operators, strided)
        loop = loops.loop_for(body, captured, form, self.space.coordinates)
        space_arguments = () if self.space.coordinates is None else (self.space.parameters,)
        results: list[Any] = []
        for target in returned:
            kind = accumulator(target.op, accessed(items[target.position]).data.core.layout.dtype)
            results += [np.zeros((), kind)[()], loops.ArrayType(kind, 1, "C", False)]
        bounds = [0, 0, 1] * len(part)
        arrays = [expected(item) for item in parameters]
        given = map(default_of, (*self.extra, *map(loops.jitted, captured.values)))
        last = [*space_arguments, *results, *([0] if results else [])]
        compile_now(loop, [*bounds, *arrays, *given, *last], where)
        return LoopTask(loop, part, targets, len(items), space_arguments)


def known_starts(part: Part) -> tuple[int | None, ...]:
    """Where the loops over the axes begin that are not cut, if that is compiled in."""
    if not is_cut_along_first(part):
        return (None,) * len(part)
    return (None, *[axis.start if axis.start in KNOWN_STARTS else None for axis in part[1:]])
