"""Builders of tasks whose body is a kernel written in Python: what `parallel_for` and `launch` have in common."""

from __future__ import annotations

import inspect
import types
from typing import Any

import numpy as np

from stf._engine.access import Access
from stf._engine.task import make_access_like
from stf._support.arguments import name_of
from stf.kernels import loops
from stf.kernels.reductions import Reduction
from stf.places.partition import Part, blocked_partition, part_of, positions_of
from stf.places.places import ExecPlace, Grid
from stf.places.table import place_code_of_task
from stf.tasks.bodies import submit_body
from stf.tasks.task import ContextCore
from stf.values.params import Param

__all__ = [
    *("KernelBuilder", "accessed", "compile_now", "default_of", "expected", "is_number", "is_place", "is_returned"),
    *("must_take", "submit_kernel"),
]

READ, WRITE = 1, 2


class KernelBuilder:
    """A builder of a task that runs a body for each index, or thread: call it with the body."""

    what = "a kernel"

    def __init__(
        self,
        context: ContextCore,
        arguments: list[Any],
        extra: tuple[Any, ...],
        name: str | None,
        partition: Any = None,
    ) -> None:
        for item in arguments:
            if not isinstance(item, Access | Reduction):
                raise TypeError(f"{self.what} takes accesses last, got {item!r}; say lX.read() or such")
        self.arguments = arguments
        self.extra = extra
        self.partition = partition
        self.grid: Grid | None = None
        self.task: Any = context.make_task_at(tuple(map(accessed, arguments)), name)
        self.task.find_site_outside()
        self.task.warns_if_unused = True

    def on(self, place: Any) -> Any:
        """Say where it runs, a grid too; return the builder."""
        self.grid = place if isinstance(place, Grid) else None
        if self.grid is None:
            self.task.where = place_code_of_task(self.task.context, place)
        return self

    def set_symbol(self, symbol: str) -> Any:
        """Name the task; return the builder."""
        self.task.symbol = name_of(symbol)
        return self

    def __call__(self, body: Any) -> Any:
        """Submit the task with its body, which is given back."""
        task = self.task
        task.must_be_new(self.what)
        task.warns_if_unused = False
        if not isinstance(body, types.FunctionType):
            raise TypeError(f"{self.what} takes a Python function, got {type(body).__name__}")
        if task.symbol is None:
            task.symbol = self.what if body.__name__ == "<lambda>" else body.__name__
        if self.grid is not None:
            for part in self.on_each_place(self.grid):
                part(body)
            return body
        self.submit(body)
        return body

    def on_each_place(self, grid: Grid) -> list[Any]:
        """A builder for the part of each place that has one; later ones go on from what the first have written."""
        partition = self.partition or grid.partition or blocked_partition()
        positions = zip(positions_of(grid.dims), grid.places, strict=True)
        parts = [(part_of(partition, self.whole(len(grid)), where, grid.dims), place) for where, place in positions]
        found: list[Any] = []
        for number, (part, place) in enumerate([item for item in parts if item[0].size] or parts[:1]):
            own = self.for_part(part, [continued(item) for item in self.arguments] if number else self.arguments)
            own.task.warns_if_unused = False
            if number == 0:
                own.task = self.task  # so that this builder, too, has run its body
            found.append(own.on(place))
        return found

    def whole(self, places: int) -> Part:
        """What is cut into parts for so many places."""
        raise NotImplementedError

    def for_part(self, part: Part, arguments: list[Any]) -> Any:
        """A builder for one part."""
        raise NotImplementedError

    def submit(self, body: types.FunctionType) -> None:
        """Submit the task at its place."""
        raise NotImplementedError


def is_place(value: Any, rest: list[Any]) -> bool:
    """Whether the first argument says where it runs: an integer does before an index space."""
    if isinstance(value, ExecPlace | str):
        return True
    if isinstance(value, Access | Reduction | Part | tuple | list) or hasattr(value, "index_to_coords"):
        return False
    return not isinstance(value, int) or (bool(rest) and not isinstance(rest[0], Access | Reduction))


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


def must_take(body: types.FunctionType, count: int, first: str, where: str) -> None:
    """Raise TypeError unless a body takes so many arguments."""
    code = body.__code__
    if code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise TypeError(f"{where} takes *args, **kwargs or keyword-only arguments, which kernels have not; name each")
    if code.co_argcount != count:
        raise TypeError(
            f"{where} takes {code.co_argcount} arguments and gets {count}: {first}, then the arrays of the "
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


def default_of(value: Any) -> Any:
    """The number that a parameter of a graph is by default; else the value."""
    return value.default if isinstance(value, Param) else value


def submit_kernel(task: Any, run: Any, given: tuple[Any, ...]) -> None:
    """Submit a compiled body with its further arguments."""
    for value in given:
        if isinstance(value, Param):
            value.must_be_recorded()
    submit_body(task, run, given, "numpy")


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
