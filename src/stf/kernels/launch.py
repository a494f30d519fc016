"""``ctx.launch``: a body for each thread of a hierarchy, compiled for the place where it runs."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from stf import config
from stf._engine.access import WRITE, Access
from stf._support.arguments import name_of
from stf.errors import AccessError, PlaceError
from stf.kernels import loops
from stf.kernels.body_arguments import BodySignature, default_of, expected, is_number, must_suit, must_take
from stf.kernels.body_checks import must_contribute, must_store
from stf.kernels.bounds import Explanation
from stf.kernels.builders import KernelBuilder, make_builder, refuse_access
from stf.kernels.captured import Captured
from stf.kernels.gpu_tasks import GpuLaunches
from stf.kernels.gpu_threads import BLOCKS_EACH, USUAL, concurrency_at, plan_threads, with_widths
from stf.kernels.group_tasks import grouped_task
from stf.kernels.hierarchy import Hierarchy, con, par
from stf.kernels.loop_tasks import LoopTask, compile_now
from stf.kernels.nest import ArrayType, Axis, LoopNest
from stf.kernels.plans import CpuBody
from stf.kernels.reductions import Reduction
from stf.kernels.thread_code import thread_code
from stf.kernels.thread_groups import BarrierTask, MemoryTask, OnCpu, widths_on_cpu
from stf.places.partition import Part, is_partition
from stf.places.places import Grid, partition_on
from stf.places.table import place_code_of_task
from stf.tasks.after import accesses_after
from stf.tasks.annotated_bodies import must_use_as_annotated
from stf.tasks.group import Tasks
from stf.tasks.not_accesses import refuse_data
from stf.tasks.task import ContextCore

__all__ = ["launch"]

DEFAULT = par(con())


def launch(
    context: ContextCore,
    *arguments: Any,
    args: Any = (),
    name: str | None = None,
    symbol: str | None = None,
    after: Any = None,
) -> KernelBuilder | PartLaunch:
    """Run a body for each thread of a hierarchy; call the result with the body, or use it as a decorator.

    The body is a Python function, which Numba compiles for a CPU, and numba-cuda for a GPU. It gets the hierarchy, then
    an array for each access (of a zero-dimensional one that is only read, the number), then `args`. Numbers that it
    reads from its closure or from global variables are arguments of the compiled kernel, as they are now.

    The hierarchy ``th`` counts levels from 0, the outermost, and has these methods:

    - ``th.rank()``, ``th.size()``: of the thread among all; ``th.rank(i)``, ``th.size(i)``: in level `i`;
    - ``th.sync(i=0)``: wait for all threads with the same ranks in the levels before `i`, which is a level of `con`;
    - ``th.storage(i, dtype)``: an array over the memory of the thread's group at level `i`, whose content is arbitrary;
    - ``th.inner()``: the hierarchy without its outermost level;
    - ``th.depth()``, ``th.get_scope(i)``, ``th.get_mem(i)``, ``th.is_synchronizable(i)``: what the levels are;
      ``th.static_with(i)``: the width of a level that is compiled in, else 0.

    Parameters
    ----------
    *arguments
        Perhaps a hierarchy, ``par(con())`` by default; perhaps a place, or a grid of places; accesses, such as
        ``lX.rw()``. A grid's places share the groups of the outermost level, and follow each other where they write
        the same data. With ``lX.parts.rw()``, each place that has a part of partitioned data runs the hierarchy once,
        on its own part: all ranks and indices count from 0 there, and the places run side by side. Other data are only
        read then.
    args : sequence, optional
        Further arguments of the body: numbers, tuples of numbers, parameters of a graph.
    name, symbol : str, optional
        The task's name in pictures and messages; the body's name by default.
    after : Event or sequence of Event, optional
        Events of `Context.event` that it comes after.

    Returns
    -------
    KernelBuilder, or PartLaunch over parts
        A builder: call it with the body. ``.on(place)`` and ``.set_symbol(name)`` give it back.

    Raises
    ------
    TypeError
        The body takes another number of arguments, waits at a level of `par`, or cannot be compiled; the message shows
        its line.
    ImportError
        The compiler is not there; the message says how to install it.
    ValueError
        The device cannot hold such groups.
    PlaceError
        The context does not have that place, or parts of data lie elsewhere.
    UninitializedDataError, AccessError, ContextMismatchError, ContextClosedError
        Its data cannot be used so; a launch over parts would write data that are none. These come when the task begins.

    Examples
    --------
    >>> import numpy as np, stf
    >>> from stf import con, mem, par
    >>> X = np.arange(100.0)
    >>> with stf.context(devices="cpu") as ctx:
    ...     x, sums = ctx.logical_data(X), ctx.logical_data_zeros(2, float)
    ...     @ctx.launch(par(2, con(8, mem(64))), x.read(), sums.write())
    ...     def add_up(th, x, sums):
    ...         mine = th.storage(1, np.float64)
    ...         mine[th.rank(1)] = 0
    ...         for i in range(th.rank(), x.size, th.size()):
    ...             mine[th.rank(1)] += x[i]
    ...         th.sync(1)
    ...         if th.rank(1) == 0:
    ...             sums[th.rank(0)] = mine.sum()
    ...     print(sums.numpy().sum())
    4950.0
    """
    rest = [*arguments, *(() if after is None else accesses_after(after))]
    hierarchy = rest.pop(0) if rest and isinstance(rest[0], Hierarchy) else DEFAULT
    place = rest.pop(0) if rest and not (isinstance(rest[0], Access | Reduction) or is_of_parts(rest[0])) else None
    refuse_data("launch", place)
    if callable(place):
        refuse_access("launch", place)
    if any(isinstance(item, Reduction) for item in rest):
        raise TypeError("launch takes no reductions; add up in memory of the groups, or use parallel_for")
    partition = partition_on(place, rest.pop(0)) if place is not None and rest and is_partition(rest[0]) else None
    if any(map(is_of_parts, rest)):
        if partition is not None:
            raise TypeError(f"launch over parts takes no partition, got {partition!r}; the data are cut already")
        return PartLaunch(context, hierarchy, place, rest, args, name_of(name, symbol))
    builder = make_builder(context, THREADS, hierarchy, tuple(rest), args, name_of(name, symbol))
    builder.partition = partition
    return builder if place is None else builder.on(place)


def is_of_parts(item: Any) -> bool:
    """Return whether an argument is an access to each part of some data."""
    return isinstance(getattr(item, "accesses", None), list) and hasattr(item, "parts")


class PartLaunch:
    """A builder of launches over the parts of data, one for each place; call it with the body."""

    def __init__(
        self, context: ContextCore, hierarchy: Hierarchy, where: Any, items: list[Any], args: Any, name: str | None
    ) -> None:
        given = [item for item in items if is_of_parts(item)]
        first = given[0]
        self.places = [part.exec_place for part in first.parts]
        if where is not None:
            self.on(where)
        for item in given[1:]:
            if [part.exec_place for part in item.parts] != self.places:
                raise PlaceError(f"launch over parts gets {first!r} and {item!r}, which lie at different places")
        for item in items:
            if isinstance(item, Access) and item.mode & WRITE and not item.data.core.token:
                raise AccessError(
                    f"launch over parts writes {item.data.core.describe()}, and so would each place, over what the "
                    "others have written; pass parts of partitioned data, or launch at one place"
                )
        self.builders: list[KernelBuilder] = []
        for number, place in enumerate(self.places):
            is_empty = all(0 in item.parts[number].shape for item in given)
            if is_empty and (self.builders or number + 1 < len(self.places)):
                continue
            accesses = [item.accesses[number] if is_of_parts(item) else item for item in items]
            builder = make_builder(context, THREADS, hierarchy, tuple(accesses), args, name)
            builder.task.warns_if_unused = not self.builders
            self.builders.append(builder.on(place))
        if len(self.builders) > 1:
            for builder in self.builders:
                builder.task.kind = "part"

    def __repr__(self) -> str:
        return f"<launch over {len(self.places)} parts>"

    def on(self, place: Any) -> PartLaunch:
        """Say at which grid it runs, which is that of the parts; return the builder."""
        if not isinstance(place, Grid) or list(place.places) != self.places:
            raise PlaceError(f"launch over parts runs where these lie, {self.places!r}, got {place!r}; leave it out")
        return self

    def set_symbol(self, symbol: str) -> PartLaunch:
        """Name the tasks; return the builder."""
        for builder in self.builders:
            builder.set_symbol(symbol)
        return self

    def __call__(self, body: Any) -> Any:
        """Submit a task for each part with the body; return their handle."""
        tasks = [builder(body) for builder in self.builders]
        return tasks[0] if len(tasks) == 1 else Tasks(tasks)


class Threads:
    """What `launch` makes of a body, and a hierarchy, for a `KernelBuilder`."""

    what = "launch"

    def function_of(self, body: Any) -> types.FunctionType:
        """TypeError: other bodies than functions have no kernel."""
        raise TypeError(f"launch takes a Python function, got {type(body).__name__}")

    def whole(self, builder: Any) -> Part:
        """Return what is cut into parts for the places of a grid.

        The outermost level, which has a width from now on.
        """
        context, hierarchy = builder.task.context, builder.over
        if hierarchy.levels[0].width is None:
            root = context.engine.root
            places = [context.engine.place(place_code_of_task(context, place)) for place in builder.grid.places]
            gpus = [root.kernels.at(place.number).multiprocessors() for place in places if place.enqueues]
            if gpus:
                hierarchy = with_widths(hierarchy, sum(gpus) * BLOCKS_EACH, USUAL)
            else:
                first, *inner = hierarchy.levels
                width = max(len(places), root.max_workers())
                hierarchy = Hierarchy((first._replace(width=width), *inner))
            builder.over = hierarchy
        return Part((range(hierarchy.levels[0].width or 0),))

    def part(self, hierarchy: Hierarchy, part: Part) -> Hierarchy:
        """Return what one place runs."""
        return hierarchy._replace(outer=part)

    def check(self, builder: Any, body: types.FunctionType, items: tuple[Any, ...], where: str) -> None:
        """Raise TypeError unless the body takes what it gets."""
        must_take(body, 1 + len(items) + len(builder.extra), "the hierarchy", where)
        must_contribute(body, 0, where)
        must_store(body, 1, items, where)
        must_use_as_annotated(body, items, 1)

    def holds_for(self, task: Any, hierarchy: Hierarchy) -> Any:
        """Return whether a plan holds for a task, as a function; None if it does for any with such a hierarchy."""
        if None not in [level.width for level in hierarchy.levels]:
            return None
        concurrency = concurrency_at(task)
        return lambda task: concurrency_at(task) == concurrency

    def kernel(self, task: Any, hierarchy: Hierarchy, signature: BodySignature) -> GpuLaunches:
        """Return the body as a kernel for a GPU; TypeError with its line if it cannot be compiled."""
        return plan_threads(task, signature, hierarchy)

    def loop(self, task: Any, hierarchy: Hierarchy, signature: BodySignature) -> CpuBody:
        """Return the body as threads of a CPU; TypeError with its line if it cannot be compiled."""
        must_suit(signature)
        return thread_task(signature, hierarchy, concurrency_at(task))


THREADS = Threads()


def thread_task(signature: BodySignature, given: Hierarchy, workers: int) -> CpuBody:
    """Return the body as threads of a CPU."""
    items, where = signature.items, signature.where
    threads = thread_code(signature.body, given, signature.captured, OnCpu, where)
    hierarchy = widths_on_cpu(given, workers, bool(threads.barriers))
    widths = tuple(int(level.width or 0) for level in hierarchy.levels)
    outer = threads.outer(hierarchy, where)
    part = Part((*outer, *map(range, widths[1:])))
    values = [loops.jitted(value) for value in signature.captured.values]
    memory = [ArrayType(np.dtype(np.uint8), 2, "C", False) for level in hierarchy.levels if level.nbytes]
    arrays = [expected(item) for item in items]
    around = Captured(threads.fn, where)
    others = [*map(default_of, (*signature.extra, *widths))], memory, [*map(default_of, values)]
    last = [value for part in others for value in part]
    run: Any
    position = len(items) + len(signature.extra) + len(widths)
    if threads.barriers:
        numbers = [i for i, item in enumerate(items) if is_number(item)]
        types_of_data = [kind.dtype.type(0) if i in numbers else kind for i, kind in enumerate(arrays)]
        run = grouped_task(threads, hierarchy, part, arrays, numbers, others, around, where)
        if run is not None:
            return CpuBody(run, signature, widths)
        thread = loops.thread_for(threads.fn, around)
        compile_now(thread, [*[0] * len(widths), *types_of_data, *last], where)
        run = BarrierTask(thread.call, part, threads.barriers, numbers)
    else:
        strided = any(getattr(axis, "axis", axis).step != 1 for axis in outer)
        axes = (Axis(None, None, strided), *[Axis(0, None, strided)] * len(widths[1:]))
        loop = loops.loop_for(threads.fn, around, LoopNest(axes, len(widths), signature.kinds, len(last)))
        compile_now(loop, [*[0, 0, 1] * len(widths), *arrays, *last], where)
        explanation = Explanation(threads.fn, signature.kinds, [], []) if config.validate else None
        run = LoopTask(loop, part, [], len(items), (), explanation)
    if memory:
        run = MemoryTask(run, hierarchy, position)
    return CpuBody(run, signature, widths)
