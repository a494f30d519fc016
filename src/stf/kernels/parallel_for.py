"""``ctx.parallel_for``: a body for each element of an index space, compiled for the place where it runs."""

from __future__ import annotations

import inspect
import types
from typing import Any

import numpy as np

from stf._engine.access import Access
from stf._engine.task import make_access_like
from stf._support.arguments import name_of, sequence
from stf._support.call_sites import site_text
from stf.errors import PlaceError
from stf.kernels import loops
from stf.kernels.captured import Captured
from stf.kernels.index_spaces import IndexSpace, space_of
from stf.kernels.loop_tasks import LoopTask, Target, is_cut_along_first
from stf.kernels.reductions import Reduction, accumulator, scalar_operator
from stf.places.partition import Part, blocked_partition, check_partition, part_of, positions_of
from stf.places.places import ExecPlace, Grid
from stf.places.table import place_code_of_task
from stf.tasks.bodies import submit_body
from stf.tasks.task import ContextCore
from stf.tasks.undeclared import refuse_undeclared
from stf.values.params import Param

__all__ = ["ParallelFor", "parallel_for"]

READ, WRITE = 1, 2
KNOWN_STARTS = range(3)  # that loops are compiled for


def parallel_for(
    context: ContextCore,
    *arguments: Any,
    args: Any = (),
    name: str | None = None,
    symbol: str | None = None,
) -> ParallelFor:
    """Run a body for each element of an index space; call the result with the body, or use it as a decorator.

    The body is a Python function or a lambda, which Numba compiles. It gets the indices, then an array for each access
    (of a zero-dimensional one that is only read, the number), then `args`. Numbers that it reads from its closure or
    from global variables are arguments of the compiled kernel, as they are now: a new value compiles nothing.
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
    PlaceError
        The place is no CPU.

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
    for item in rest:
        if not isinstance(item, Access | Reduction):
            raise TypeError(f"parallel_for takes accesses after the index space, got {item!r}; say lX.read() or such")
    builder = ParallelFor(context, space, rest, sequence("args", args), name_of(name, symbol), partition)
    return builder if place is None else builder.on(place)


def is_place(value: Any, rest: list[Any]) -> bool:
    """Whether the first argument says where it runs: an integer does before an index space."""
    if isinstance(value, ExecPlace | str):
        return True
    if isinstance(value, Part | tuple | list) or hasattr(value, "index_to_coords"):
        return False
    return not isinstance(value, int) or (bool(rest) and not isinstance(rest[0], Access | Reduction))


class ParallelFor:
    """A builder of a task that runs a body for each element of an index space: call it with the body."""

    def __init__(
        self,
        context: ContextCore,
        space: IndexSpace,
        arguments: list[Any],
        extra: tuple[Any, ...],
        name: str | None,
        partition: Any = None,
    ) -> None:
        self.space = space
        self.arguments = arguments
        self.extra = extra
        self.partition = partition
        self.grid: Grid | None = None
        self.task: Any = context.make_task_at(tuple(map(accessed, arguments)), name)
        self.task.find_site_outside()
        self.task.warns_if_unused = True

    def on(self, place: Any) -> ParallelFor:
        """Say where it runs, a grid too; return the builder."""
        self.grid = place if isinstance(place, Grid) else None
        if self.grid is None:
            self.task.where = place_code_of_task(self.task.context, place)
        return self

    def set_symbol(self, symbol: str) -> ParallelFor:
        """Name the task; return the builder."""
        self.task.symbol = name_of(symbol)
        return self

    def __call__(self, body: Any) -> Any:
        """Submit the task with its body, which is given back."""
        task = self.task
        task.must_be_new("parallel_for")
        task.warns_if_unused = False
        if not isinstance(body, types.FunctionType):
            raise TypeError(f"parallel_for takes a Python function, got {type(body).__name__}")
        if task.symbol is None:
            task.symbol = "parallel_for" if body.__name__ == "<lambda>" else body.__name__
        if self.grid is not None:
            for part in self._parts(self.grid):
                part(body)
            return body
        if task.context.engine.places[task.where].enqueues:
            raise PlaceError(f"parallel_for '{task.symbol}' runs on a CPU; say .on('host'), or write a kernel")
        self._submit(body)
        return body

    def _parts(self, grid: Grid) -> list[ParallelFor]:
        """A builder for the part of each place that has one; later ones go on from what the first have written."""
        partition = self.partition or grid.partition or blocked_partition()
        positions = zip(positions_of(grid.dims), grid.places, strict=True)
        parts = [(part_of(partition, self.space.part, where, grid.dims), place) for where, place in positions]
        found: list[ParallelFor] = []
        for part, place in [item for item in parts if item[0].size] or parts[:1]:
            arguments = [continued(item) for item in self.arguments] if found else self.arguments
            space = self.space._replace(part=part)
            own = ParallelFor(self.task.context, space, arguments, self.extra, self.task.symbol)
            own.task.warns_if_unused = False
            if not found:
                own.task = self.task  # so that this builder, too, has run its body
            found.append(own.on(place))
        return found

    def _submit(self, body: types.FunctionType) -> None:
        task, code = self.task, body.__code__
        where = f"the body of parallel_for at {site_text(code, 0)}"
        data = [item for item in self.arguments if not accessed(item).data.core.token]
        parameters = [item for item in data if not is_returned(item)]
        must_take(body, self.space.ndim + len(parameters) + len(self.extra), self.space.ndim, where)
        refuse_undeclared(body, task)
        captured = Captured(body, where)
        targets = [Target(i, item.op, item.accumulates) for i, item in enumerate(data) if isinstance(item, Reduction)]
        returned = [target for target in targets if is_returned(data[target.position])]
        kinds = tuple("value" if is_number(item) else "array" for item in parameters)
        operators = tuple(scalar_operator(target.op) for target in returned)
        part = self.space.part
        strided = any(getattr(axis, "axis", axis).step != 1 for axis in part)  # of tiles: the axis that they tile
        form = loops.Form(self.space.ndim, known_starts(part), kinds, len(self.extra), operators, strided)
        loop = loops.loop_for(body, captured, form, self.space.coordinates)
        values = [loops.jitted(value) for value in captured.values]
        space_arguments = () if self.space.coordinates is None else (self.space.parameters,)
        results: list[Any] = []
        for target in returned:
            kind = accumulator(target.op, accessed(data[target.position]).data.core.layout.dtype)
            results += [np.zeros((), kind)[()], loops.ArrayType(kind, 1, "C", False)]
        known = [value.default if isinstance(value, Param) else value for value in (*self.extra, *values)]
        bounds = [0, 0, 1] * len(part)
        arrays = [expected(item) for item in parameters]
        compile_now(loop, [*bounds, *arrays, *known, *space_arguments, *results, *([0] if results else [])], where)
        run = LoopTask(loop, part, targets, len(data), space_arguments, task.context._driver)
        for value in (*self.extra, *values):
            if isinstance(value, Param):
                value.must_be_recorded()
        submit_body(task, run, (*self.extra, *values), "numpy")


def known_starts(part: Part) -> tuple[int | None, ...]:
    """Where the loops over the axes begin that are not cut, if that is compiled in."""
    if not is_cut_along_first(part):
        return (None,) * len(part)
    return (None, *[axis.start if axis.start in KNOWN_STARTS else None for axis in part[1:]])


def continued(item: Any) -> Any:
    """An argument of a part that comes after others: it goes on from what they have written."""
    if isinstance(item, Reduction):
        return Reduction(make_access_like(item.access, READ | WRITE), item.op, True)
    return make_access_like(item, READ | WRITE) if item.mode == WRITE else item


def accessed(item: Any) -> Any:
    """The access of an argument."""
    return item.access if isinstance(item, Reduction) else item


def is_returned(item: Any) -> bool:
    """Whether a body returns what it contributes to an argument."""
    return isinstance(item, Reduction) and item.access.data.core.layout.shape == ()


def is_number(item: Any) -> bool:
    """Whether a body gets the number that an argument holds."""
    return isinstance(item, Access) and item.data.core.layout.shape == () and item.mode == READ


def must_take(body: types.FunctionType, count: int, ndim: int, where: str) -> None:
    """Raise TypeError unless a body takes so many arguments."""
    code = body.__code__
    if code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise TypeError(f"{where} takes *args, **kwargs or keyword-only arguments, which kernels have not; name each")
    if code.co_argcount != count:
        raise TypeError(
            f"{where} takes {code.co_argcount} arguments and gets {count}: {ndim} indices, then the arrays of the "
            "accesses (scalars that are reduced into have none), then args="
        )


def expected(item: Any) -> Any:
    """The type of the array that a body will get."""
    access = accessed(item)
    layout = access.data.core.layout
    if layout.interface is not None:
        raise TypeError(f"parallel_for takes arrays, and {access.data.core.describe()} is none; pass its arrays")
    shape, itemsize = layout.shape, layout.itemsize
    orders = {"C": reversed(range(len(shape))), "F": iter(range(len(shape)))}
    for order, axes in orders.items():
        step, fits = itemsize, True
        for axis in axes:
            fits = fits and (layout.strides[axis] == step or shape[axis] == 1)
            step *= shape[axis]
        if fits or not layout.nbytes:
            return loops.ArrayType(np.dtype(layout.dtype), len(shape), order, access.mode == READ)
    return loops.ArrayType(np.dtype(layout.dtype), len(shape), "A", access.mode == READ)


def compile_now(loop: loops.Loop, arguments: list[Any], where: str) -> None:
    """Compile a loop for the types of its arguments; TypeError with the user's line where that fails."""
    key = tuple([a if type(a) is loops.ArrayType else loops.kind_of(a) for a in arguments])
    if key in loop.known:
        return
    try:
        loop.call.compile(loops.types_of(arguments))
        loop.known.add(key)
    except NotImplementedError as error:
        raise TypeError(f"{where} cannot be compiled: Numba knows no {error} on a CPU; use another dtype") from None
    except Exception as error:
        if not type(error).__module__.startswith("numba"):
            raise
        raise TypeError(f"{where} cannot be compiled: {error}") from None
