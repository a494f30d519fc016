"""``ctx.launch``: a body for each thread of a hierarchy, compiled for the place where it runs."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from stf._engine.access import Access
from stf._support.arguments import name_of, sequence
from stf._support.call_sites import site_text
from stf.kernels import loops
from stf.kernels.builders import (
    KernelBuilder,
    accessed,
    compile_now,
    default_of,
    expected,
    is_number,
    must_take,
    submit_kernel,
)
from stf.kernels.captured import Captured
from stf.kernels.gpu_threads import submit_threads
from stf.kernels.hierarchy import Hierarchy, con, par
from stf.kernels.loop_tasks import LoopTask
from stf.kernels.reductions import Reduction
from stf.kernels.thread_code import thread_code
from stf.kernels.thread_groups import BarrierTask, MemoryTask, OnCpu, widths_on_cpu
from stf.places.partition import Part
from stf.tasks.task import ContextCore
from stf.tasks.undeclared import refuse_undeclared

__all__ = ["Launch", "launch"]

DEFAULT = par(con())


def launch(
    context: ContextCore,
    *arguments: Any,
    args: Any = (),
    name: str | None = None,
    symbol: str | None = None,
) -> Launch:
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
        ``lX.rw()``. A grid's places share the groups of the outermost level.
    args : sequence, optional
        Further arguments of the body: numbers, tuples of numbers, parameters of a graph.
    name, symbol : str, optional
        What pictures and messages call the task; the body's name by default.

    Returns
    -------
    Launch
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
    rest = list(arguments)
    hierarchy = rest.pop(0) if rest and isinstance(rest[0], Hierarchy) else DEFAULT
    place = rest.pop(0) if rest and not isinstance(rest[0], Access | Reduction) else None
    builder = Launch(context, hierarchy, None, rest, sequence("args", args), name_of(name, symbol))
    return builder if place is None else builder.on(place)


class Launch(KernelBuilder):
    """A builder of a task that runs a body for each thread of a hierarchy: call it with the body."""

    what = "launch"

    def __init__(self, context: ContextCore, hierarchy: Hierarchy, outer: Part | None, *arguments: Any) -> None:
        if any(isinstance(item, Reduction) for item in arguments[0]):
            raise TypeError("launch takes no reductions; add up in memory of the groups, or use parallel_for")
        super().__init__(context, *arguments)
        self.hierarchy = hierarchy
        self.outer = outer  # the ranks in the outermost level, of a place of a grid

    def whole(self, places: int) -> Part:
        width = self.hierarchy.levels[0].width or max(places, self.task.context._driver.max_workers)
        self.hierarchy = Hierarchy((self.hierarchy.levels[0]._replace(width=width), *self.hierarchy.levels[1:]))
        return Part((range(width),))

    def for_part(self, part: Part, arguments: list[Any]) -> Launch:
        return Launch(self.task.context, self.hierarchy, part, arguments, self.extra, self.task.symbol)

    def submit(self, body: types.FunctionType) -> None:
        task, code = self.task, body.__code__
        where = f"the body of launch at {site_text(code, 0)}"
        data = [item for item in self.arguments if not accessed(item).data.core.token]
        must_take(body, 1 + len(data) + len(self.extra), "the hierarchy", where)
        refuse_undeclared(body, task)
        if task.context.engine.places[task.where].enqueues:
            submit_threads(task, body, self.hierarchy, self.outer, data, self.extra, where)
            return
        captured = Captured(body, where)
        threads = thread_code(body, self.hierarchy, captured, OnCpu, where)
        hierarchy = widths_on_cpu(self.hierarchy, task.context._driver.max_workers, bool(threads.barriers))
        widths = [int(level.width or 0) for level in hierarchy.levels]
        outer = Part((range(widths[0]),)) if self.outer is None else self.outer
        if 0 in threads.barriers and outer.size < widths[0]:
            raise TypeError(f"{where} waits at level 0, whose threads are at several places; wait at a level inside")
        part = Part((*outer, *map(range, widths[1:])))
        values = [loops.jitted(value) for value in captured.values]
        memory = [loops.ArrayType(np.dtype(np.uint8), 2, "C", False) for level in hierarchy.levels if level.nbytes]
        arrays = [expected(item) for item in data]
        given = (*self.extra, *widths, *values)
        around = Captured(threads.fn, where)
        after = len(data) + len(self.extra) + len(widths)
        last = [*map(default_of, (*self.extra, *widths)), *memory, *map(default_of, values)]
        if threads.barriers:
            numbers = [i for i, item in enumerate(data) if is_number(item)]
            types_of_data = [kind.dtype.type(0) if i in numbers else kind for i, kind in enumerate(arrays)]
            thread = loops.thread_for(threads.fn, around)
            compile_now(thread, [*[0] * len(widths), *types_of_data, *last], where)
            run: Any = BarrierTask(thread.call, part, threads.barriers, numbers)
        else:
            kinds = tuple("value" if is_number(item) else "array" for item in data)
            strided = any(getattr(axis, "axis", axis).step != 1 for axis in outer)
            form = loops.Form(len(widths), (None, *[0] * len(widths[1:])), kinds, len(last), strided=strided)
            loop = loops.loop_for(threads.fn, around, form)
            compile_now(loop, [*[0, 0, 1] * len(widths), *arrays, *last], where)
            run = LoopTask(loop, part, [], len(data), ()).with_driver(task.context._driver)
        submit_kernel(task, MemoryTask(run, hierarchy, after) if memory else run, given)
