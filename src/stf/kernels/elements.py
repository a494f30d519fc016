"""What runs for each element of an index space: loops at a CPU, kernels at a GPU."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from stf import config
from stf.kernels import gpu_tasks, loops
from stf.kernels.body_arguments import accessed, default_of, expected, is_returned, kind_of, must_suit, must_take
from stf.kernels.body_checks import must_contribute, must_store
from stf.kernels.bounds import Explanation
from stf.kernels.captured import Captured
from stf.kernels.cpp_bodies import cpp_text, function_of_lambda
from stf.kernels.index_spaces import IndexSpace
from stf.kernels.loop_tasks import LoopTask, Target, compile_now, is_cut_along_first, submit_kernel
from stf.kernels.plans import Plan
from stf.kernels.reductions import Reduction, accumulator, scalar_operator, taken_by
from stf.places.partition import Part

__all__ = ["Elements"]

KNOWN_STARTS = range(3)  # that loops are compiled for


class Elements:
    """What `parallel_for` makes of a body, and an index space, for a `KernelBuilder`."""

    what = "parallel_for"

    def function_of(self, body: Any) -> types.FunctionType:
        """The function that a body is, or that stands for a lambda of C++; TypeError if it is neither."""
        if isinstance(body, str):
            return function_of_lambda(body)
        raise TypeError(f"parallel_for takes a Python function, or a C++ lambda as text, got {type(body).__name__}")

    def whole(self, builder: Any) -> Part:
        """What is cut into parts for the places of a grid."""
        part: Part = builder.over.part
        return part

    def part(self, space: IndexSpace, part: Part) -> IndexSpace:
        """What one place runs over."""
        return space._replace(part=part)

    def check(self, builder: Any, body: types.FunctionType, items: tuple[Any, ...], where: str) -> None:
        """Raise TypeError unless the body takes what it gets."""
        space, ndim = builder.over, builder.over.ndim
        in_cpp = cpp_text(body) is not None
        if in_cpp and space.coordinates is not None:
            raise TypeError(
                f"{where} is C++, and its index space is a class of Python's; write the body in Python, too"
            )
        parameters = sum(in_cpp or not is_returned(item) for item in items)
        must_take(body, ndim + parameters + len(builder.extra), f"{ndim} indices", where)
        if not in_cpp:
            must_contribute(body, sum(map(is_returned, items)), where)
            given = [item for item in items if not is_returned(item)]
            arrays = tuple(None if isinstance(item, Reduction) else item for item in given)
            must_store(body, ndim, arrays, where, space.part.size <= 1)

    def plan(
        self, builder: Any, body: types.FunctionType, captured: Captured, items: tuple[Any, ...], where: str
    ) -> tuple[Plan, tuple[Any, ...]]:
        """The plan, and the numbers that the kernel gets now.

        Raises
        ------
        TypeError
            The body cannot be compiled; the message shows its line.
        """
        task, space, extra = builder.task, builder.over, builder.extra
        if task.context.engine.places[task.where].enqueues:
            launches, numbers = gpu_tasks.plan_loop(task, body, captured, space, items, extra, where)
            plan = Plan(task, body, space, builder.arguments, extra, launches.submit_chain)
            return launches.planned(plan, builder.arguments), numbers
        if cpp_text(body) is not None:
            raise TypeError(
                f"{where} is C++, which runs on CUDA devices alone, and its place is {task.place_name}; write it in "
                "Python, which runs on both"
            )
        must_suit(captured, extra, where)
        run = loop_task(body, captured, space, items, extra, where)

        def submit(task: Any, items: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
            submit_kernel(task, run.at(task.context._driver), numbers)

        numbers = (*extra, *map(loops.jitted, captured.values))
        return Plan(task, body, space, builder.arguments, extra, submit), numbers


def loop_task(
    body: types.FunctionType,
    captured: Captured,
    space: IndexSpace,
    items: tuple[Any, ...],
    extra: tuple[Any, ...],
    where: str,
) -> LoopTask:
    """The body as a compiled loop for a CPU."""
    targets = [Target(i, item.op, item.accumulates) for i, item in enumerate(items) if isinstance(item, Reduction)]
    returned = [target for target in targets if is_returned(items[target.position])]
    parameters = [item for item in items if not is_returned(item)]
    kinds = tuple(map(kind_of, parameters))
    operators = tuple(scalar_operator(target.op) for target in returned)
    own = [accessed(items[target.position]).data.core.layout.dtype for target in returned]
    dtypes = [accumulator(target.op, dtype) for target, dtype in zip(returned, own, strict=True)]
    part = space.part
    strided = any(getattr(axis, "axis", axis).step != 1 for axis in part)  # of tiles: the axis that they tile
    least = None if strided or not is_cut_along_first(part) or part[0].start < 0 else min(part[0].start, 2)
    contributed = tuple(taken_by(target.op, *two) for target, *two in zip(returned, dtypes, own, strict=True))
    form = loops.Form(space.ndim, known_starts(part), kinds, len(extra), operators, contributed, strided, least)
    loop = loops.loop_for(body, captured, form, space.coordinates)
    space_arguments = () if space.coordinates is None else (space.parameters,)
    results: list[Any] = []
    for dtype in dtypes:
        results += [np.zeros((), dtype)[()], loops.ArrayType(dtype, 1, "C", False)]
    bounds = [0, 0, 1] * len(part)
    arrays = [expected(item) for item in parameters]
    given = map(default_of, (*extra, *map(loops.jitted, captured.values)))
    last = [*space_arguments, *results, *([0] if results else [])]
    compile_now(loop, [*bounds, *arrays, *given, *last], where)
    explanation = None
    if config.validate:
        around = captured.names, captured.values
        explanation = Explanation(body, kinds, *around, space.coordinates, space.parameters)
    return LoopTask(loop, part, targets, len(items), space_arguments, explanation)


def known_starts(part: Part) -> tuple[int | None, ...]:
    """Where the loops over the axes begin that are not cut, if that is compiled in."""
    if not is_cut_along_first(part):
        return (None,) * len(part)
    return (None, *[axis.start if axis.start in KNOWN_STARTS else None for axis in part[1:]])
