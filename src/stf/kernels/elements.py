"""What runs for each element of an index space: loops at a CPU, kernels at a GPU."""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from stf import config
from stf.kernels import loops
from stf.kernels.body_arguments import BodySignature, default_of, expected, is_returned, must_suit, must_take
from stf.kernels.body_checks import must_contribute, must_draw_once, must_store
from stf.kernels.bounds import Explanation
from stf.kernels.cpp_bodies import cpp_text, function_of_lambda
from stf.kernels.gpu_tasks import GpuLaunches, plan_loop
from stf.kernels.index_spaces import IndexSpace
from stf.kernels.loop_tasks import LoopTask, Target, compile_now, is_cut_along_first
from stf.kernels.nest import Axis
from stf.kernels.plans import CpuBody
from stf.kernels.reductions import Reduction
from stf.places.partition import Part
from stf.tasks.annotated_bodies import must_use_as_annotated

__all__ = ["Elements"]

KNOWN_STARTS = range(3)  # that loops are compiled for


class Elements:
    """What `parallel_for` makes of a body, and an index space, for a `KernelBuilder`."""

    what = "parallel_for"

    def function_of(self, body: Any) -> types.FunctionType:
        """Return the function that a body is, or that stands for a lambda of C++; TypeError if it is neither."""
        if isinstance(body, str):
            return function_of_lambda(body)
        raise TypeError(f"parallel_for takes a Python function, or a C++ lambda as text, got {type(body).__name__}")

    def whole(self, builder: Any) -> Part:
        """Return what is cut into parts for the places of a grid."""
        part: Part = builder.over.part
        return part

    def part(self, space: IndexSpace, part: Part) -> IndexSpace:
        """Return what one place runs over."""
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
            must_use_as_annotated(body, arrays, ndim)
            first = ndim + len(given)
            must_draw_once(body, body.__code__.co_varnames[first : first + space.randoms], where)
        elif space.randoms:
            raise TypeError(f"{where} is C++, which has no generators of stf.Random; write the body in Python")

    def holds_for(self, task: Any, over: IndexSpace) -> None:
        """Return None: a plan holds for whichever task has such a space."""

    def kernel(self, task: Any, space: IndexSpace, signature: BodySignature) -> GpuLaunches:
        """Return the body as a kernel for a GPU; TypeError with its line if it cannot be compiled."""
        return plan_loop(task, signature, space)

    def loop(self, task: Any, space: IndexSpace, signature: BodySignature) -> CpuBody:
        """Return the body as a loop for a CPU; TypeError with its line if it cannot be compiled."""
        if signature.in_cpp is not None:
            raise TypeError(
                f"{signature.where} is C++, which runs on CUDA devices alone, and its place is {task.place_name}; "
                "write it in Python, which runs on both"
            )
        must_suit(signature)
        return CpuBody(loop_task(signature, space), signature)


def loop_task(signature: BodySignature, space: IndexSpace) -> LoopTask:
    """Return the body as a compiled loop for a CPU."""
    items, part, captured, results = signature.items, space.part, signature.captured, signature.results
    targets = [Target(i, item.op, item.accumulates) for i, item in enumerate(items) if isinstance(item, Reduction)]
    nest = signature.nest(axes_of(part), space.ndim, space.coordinates, space.randoms)
    loop = loops.loop_for(signature.body, captured, nest)
    parameters = () if space.coordinates is None else (space.parameters,)
    last: list[Any] = [*signature.extra, *map(loops.jitted, captured.values)]
    views = space.views or (None,) * len(items)
    given = [expected(item, view and view[0]) for item, view in zip(items, views, strict=True) if not is_returned(item)]
    arguments = [*[0, 0, 1] * len(part), *given, *map(default_of, last), *parameters]
    for result in results:
        arguments += [np.zeros((), result.dtype)[()], result.partials]
    compile_now(loop, [*arguments, *([0] if results else [])], signature.where)
    explanation = None
    if config.validate:
        around = captured.names, captured.values
        explanation = Explanation(signature.body, signature.kinds, *around, space.coordinates, space.parameters)
    return LoopTask(loop, part, targets, len(items), parameters, explanation, space.views)


def axes_of(part: Part) -> tuple[Axis, ...]:
    """Return the loops over a part: of one box that is cut along its first axis, where the others begin is known."""
    strided = any(getattr(axis, "axis", axis).step != 1 for axis in part)  # of tiles: the axis that they tile
    if not is_cut_along_first(part):
        return (Axis(None, None, strided),) * len(part)
    least = None if strided or part[0].start < 0 else min(part[0].start, 2)
    starts = [axis.start if axis.start in KNOWN_STARTS else None for axis in part[1:]]
    return (Axis(None, least, strided), *[Axis(start, None, strided) for start in starts])
