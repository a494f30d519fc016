"""Bodies as kernels of a task on a GPU: the launch of one, and those that combine what it contributes."""

from __future__ import annotations

import math
import types
from typing import Any

import numpy as np

from stf.kernels import cpp_loops, gpu_loops
from stf.kernels.arguments import Kernel
from stf.kernels.body_arguments import accessed, expected, is_returned, kind_of
from stf.kernels.body_checks import must_not_fail
from stf.kernels.captured import Captured
from stf.kernels.compile.contributions import reason_in
from stf.kernels.compile.python import intrinsics
from stf.kernels.compile.reduced_arrays import ATOMIC
from stf.kernels.cpp_bodies import cpp_text
from stf.kernels.foreign_kernels import order_of
from stf.kernels.gpu_loops import BLOCK, Argument, argument
from stf.kernels.index_spaces import IndexSpace
from stf.kernels.kernel_task import KernelTask
from stf.kernels.launching import Config
from stf.kernels.loops import ArrayType, Form
from stf.kernels.plans import Plan
from stf.kernels.reductions import Reduction, accumulator, scalar_operator, taken_by
from stf.places.table import cuda_context_at

__all__ = ["GpuLaunches", "blocks_at_once", "plan_loop"]

MOST_X, MOST_YZ = (1 << 31) - 1, 65535  # blocks along an axis of a grid
MAX_BLOCKS = 1024  # of a reduction, whose results depend on it and on the shape alone
HALF = BLOCK // 2  # threads, where more of them run at once: of kernels with many registers
ROWS, LARGE = 4, 1 << 22  # elements of a thread along the last axis but one, in boxes of so many elements
KNOWN_STARTS = range(3)  # that kernels are compiled for


class GpuLaunches:
    """A compiled body, and the launches of a task that runs it.

    Attributes
    ----------
    kernel : Kernel
    launches : list of (tuple, tuple, list)
        Grid, block, and the integers that say which part of the elements, or threads.
    constants : tuple
        Numbers that the kernel gets last.
    held : list of LogicalData
        Arrays of the body's closure.
    scratch : list of (tuple, dtype, bool)
        Shape and type of memory that the task has for itself, and whether it has to be 0.
    combine, neutral
        The kernel that combines the results of blocks, which are in `scratch`, and its numbers.
    """

    def __init__(
        self,
        kernel: Kernel,
        launches: list[Any],
        constants: tuple[Any, ...],
        held: list[Any],
        scratch: list[Any],
        combine: Kernel | None = None,
        neutral: tuple[Any, ...] = (),
    ) -> None:
        self.kernel = kernel
        self.launches = launches
        self.constants = constants
        self.held = held
        self.scratch = scratch
        self.combine = combine
        self.neutral = neutral

    def planned(self, plan: Plan, arguments: tuple[Any, ...]) -> Plan:
        """The plan, which says the launch if that is all that the task does."""
        if len(self.launches) != 1 or self.held or self.scratch:
            return plan
        if any(isinstance(item, Reduction) or item.data.core.token for item in arguments):
            return plan
        grid, block, numbers = self.launches[0]
        return plan.launches(self.kernel, Config(grid, block, 0), tuple(numbers), self.constants)

    def submit_chain(self, task: Any, items: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Submit a task of several launches, with these numbers of the body's."""
        context = task.context
        numbers = (*numbers, *self.constants)
        returned = [item.access for item in items if is_returned(item)]
        held = [handle.read() for handle in self.held]
        accesses = [*[accessed(item) for item in items if not is_returned(item)], *held]
        scratch = [context.logical_data_empty(shape, dtype).write() for shape, dtype, _ in self.scratch]
        for access in (*held, *scratch):
            task.add_deps(access)
        with KernelTask(task) as chain:
            for item in items:
                if isinstance(item, Reduction) and not item.accumulates and not is_returned(item):
                    dtype = item.access.data.core.layout.dtype
                    fill(chain, item.access, item.op.neutral(dtype), context, "a reduction")
            for access, (_, _, is_zero) in zip(scratch, self.scratch, strict=True):
                if is_zero:
                    fill(chain, access, 0, context, "a barrier")
            first = 0
            for grid, block, bounds in self.launches:
                base = [first] if returned else []
                chain.launch(self.kernel, grid, block, (*bounds, *base, *accesses, *scratch, *numbers))
                first += blocks_of(grid)
            if returned:
                chain.launch(self.combine, 1, BLOCK, (first, *scratch, *returned, *self.neutral))


def blocks_of(grid: int | tuple[int, ...]) -> int:
    """How many blocks a grid has."""
    return grid if isinstance(grid, int) else math.prod(grid)


def plan_loop(
    task: Any,
    body: types.FunctionType,
    captured: Captured,
    space: IndexSpace,
    items: tuple[Any, ...],
    extra: tuple[Any, ...],
    where: str,
) -> tuple[GpuLaunches, tuple[Any, ...]]:
    """Compile a body that runs for each element of a space at a GPU.

    Parameters
    ----------
    task : Task
        Which has not begun.
    body : function
        Takes the indices, what `items` give, and `extra`.
    captured : Captured
        The variables around the body.
    space : IndexSpace
    items : list of Access or Reduction
    extra : tuple
        Further arguments.
    where : str
        What messages call the body.

    Returns
    -------
    launches : GpuLaunches
    numbers : tuple
        The numbers of `extra` and of the variables around the body.

    Raises
    ------
    TypeError
        The body cannot be compiled, or takes what kernels cannot have.
    """
    must_not_fail(body, where)
    in_cpp = cpp_text(body)
    if in_cpp is None:
        intrinsics()  # which may not be there
    context = task.context
    returned = [item for item in items if is_returned(item)]
    parameters = [item for item in items if not is_returned(item)]
    operators = tuple(scalar_operator(item.op) for item in returned)
    free = list(zip(captured.variables, captured.values, strict=True))
    held = [context.logical_data(value) for _, value in free if type(value) is np.ndarray]
    own = [argument(f"_stf_x{i}", value, where) for i, value in enumerate(extra)]
    position = len(parameters)
    for name, value in free:
        if type(value) is np.ndarray:
            own.append(Argument(f"_stf_a{position}", (), ()))
            position += 1
        else:
            own.append(argument(name, value, where))
    dtypes = [item.access.data.core.layout.dtype for item in returned]
    partials = [accumulator(item.op, dtype) for item, dtype in zip(returned, dtypes, strict=True)]
    neutral = [np.asarray(item.op.neutral(kind), kind)[()] for item, kind in zip(returned, partials, strict=True)]
    constant = [] if space.coordinates is None else [argument("_stf_parameters", space.parameters, where)]
    constant += [argument(f"_stf_neutral{i}", value, where) for i, value in enumerate(neutral)]
    boxes = [box for box in space.part.boxes() if all(map(len, box))] or [(range(0),) * len(space.part)]
    known = len(boxes) == 1
    starts = tuple(axis.start if known and axis.start in KNOWN_STARTS else None for axis in boxes[0])
    strided = any(axis.step != 1 for box in boxes for axis in box)
    for item in parameters:
        must_be_atomic(item, where)
    contributed = tuple(taken_by(item.op, *two) for item, *two in zip(returned, partials, dtypes, strict=True))
    form = Form(space.ndim, starts, tuple(map(kind_of, parameters)), len(extra), operators, contributed, strided)
    results = [ArrayType(kind, 1, "C", False) for kind in partials]
    accesses = [accessed(item) for item in parameters] + [handle.read() for handle in held]
    arrays = [array_of(access) for access in accesses] + results
    rows = 0 if returned else ROWS if min(math.prod(map(len, box)) for box in boxes) >= LARGE and len(starts) > 1 else 1
    launches = [(*grid_of(box, rows), bounds_of(form, box)) for box in boxes]
    if is_at_limit(launches):
        rows = 0
    arguments = [*own, *constant]
    if in_cpp is None:
        kernel = gpu_loops.kernel_for(body, captured, form, space.coordinates, arrays, arguments, task.symbol, rows)
    else:
        order, reducers = tuple(map(is_returned, items)), tuple(item.op for item in returned)
        kernel = cpp_loops.kernel_for(in_cpp, form, order, reducers, arrays, arguments, task.symbol, rows, where)
    load(kernel, context, task.where, where)
    if not returned:  # where the code has another number of threads in it
        smaller = [(*grid_of(box, rows, HALF), bounds_of(form, box)) for box in boxes]
        if threads_at_once(kernel, task, HALF) > threads_at_once(kernel, task, BLOCK) and not is_at_limit(smaller):
            launches = smaller
    constants = tuple(value for one in constant for value in one.values)
    blocks = sum(blocks_of(grid) for grid, _, _ in launches)
    scratch = [((blocks,), kind, False) for kind in partials]
    combine, start = None, tuple(value for one in constant[len(constant) - len(neutral) :] for value in one.values)
    if returned:
        combine = combining(returned, operators, results)
        load(combine, context, task.where, where)
    found = GpuLaunches(kernel, launches, constants, held, scratch, combine, start)
    return found, tuple(value for one in own for value in one.values)


def must_be_atomic(item: Any, where: str) -> None:
    """Raise TypeError for an array that a GPU cannot reduce into."""
    if not isinstance(item, Reduction):
        return
    dtype = item.access.data.core.layout.dtype
    kinds = "iu" if item.op.name.startswith("bitwise") else "iuf"
    if kind_of(item) not in ATOMIC or dtype.kind not in kinds or dtype.itemsize not in (4, 8):
        raise TypeError(
            f"{where} reduces into an array of {dtype} by {item.op!r}, which a GPU cannot do; it has sum, minval, "
            "maxval and the bitwise operators, of 4 and 8 bytes; use another dtype, or say .on('host')"
        )


def fill(chain: Any, access: Any, value: Any, context: Any, where: str) -> None:
    """Launch a kernel that fills an array with a number."""
    shape = access.data.core.layout.shape
    if len(shape) > len(FILLS):
        raise TypeError(f"{where} reduces into an array of {len(shape)} axes; a GPU takes up to {len(FILLS)}")
    body, kind = FILLS[len(shape) - 1], array_of(access)._replace(readonly=False)
    number = argument("_stf_x0", kind.dtype.type(value), where)
    form = Form(len(shape), (0,) * len(shape), ("array",), 1)
    kernel = gpu_loops.kernel_for(body, Captured(body, where), form, None, [kind], [number], "fill", 0)
    load(kernel, context, chain.task.where, where)
    grid, block = grid_of(tuple(map(range, shape)), 1)
    chain.launch(kernel, grid, block, (*shape, access, *number.values))


def fill_1(i: int, array: Any, value: Any) -> None:
    """Overwrite an element."""
    array[i] = value


def fill_2(i: int, j: int, array: Any, value: Any) -> None:
    """Overwrite an element."""
    array[i, j] = value


def fill_3(i: int, j: int, k: int, array: Any, value: Any) -> None:
    """Overwrite an element."""
    array[i, j, k] = value


def fill_4(i: int, j: int, k: int, m: int, array: Any, value: Any) -> None:
    """Overwrite an element."""
    array[i, j, k, m] = value


FILLS: tuple[Any, ...] = (fill_1, fill_2, fill_3, fill_4)


def combining(returned: list[Reduction], operators: tuple[Any, ...], results: list[ArrayType]) -> Any:
    """The kernel that combines the results of blocks into the data of reductions."""
    targets = [array_of(item.access) for item in returned]
    return gpu_loops.combining_kernel(operators, tuple(item.accumulates for item in returned), results, targets)


def array_of(access: Any) -> ArrayType:
    """The type of the array that a kernel gets."""
    kind = expected(access)
    return kind._replace(order=order_of(access) if kind.ndim else "C")


def load(kernel: Any, context: Any, place: int, where: str) -> None:
    """Compile and load a kernel; TypeError with the user's line where that fails."""
    try:
        kernel.function_at(context, place)
    except (NotImplementedError, SyntaxError) as error:
        raise TypeError(f"{where} cannot be compiled: {error}") from None
    except Exception as error:
        reason = reason_in(str(error))
        if reason is None and not type(error).__module__.startswith("numba"):
            raise
        raise TypeError(f"{where} cannot be compiled: {reason or error}") from None


def blocks_at_once(kernel: Kernel, task: Any, threads: int) -> int:
    """How many blocks of so many threads run at once where a task runs."""
    context = task.context
    ordinal, function = context.engine.places[task.where].ordinal, kernel.function_at(context, task.where)
    return int(context._driver.blocks_at_once(function, threads, ordinal, cuda_context_at(context, task.where)))


def threads_at_once(kernel: Kernel, task: Any, threads: int) -> int:
    """The occupancy: how many threads of such blocks run at once. Blocks of more than `BLOCK` have no more."""
    return threads * blocks_at_once(kernel, task, threads)


def is_at_limit(launches: list[Any]) -> bool:
    """Whether a grid is as large along y or z as any may be, so that it may not have all elements."""
    return any(max([*grid, 1, 1][1:]) == MOST_YZ for grid, _, _ in launches)


def bounds_of(form: Form, box: tuple[range, ...]) -> list[int]:
    """The arguments that say the box; see `gpu_loops.bounds_of`."""
    found = []
    for start, axis in zip(form.starts, box, strict=True):
        found += [axis.start] if start is None else []
        found += [len(axis)] + ([axis.step] if form.strided else [])
    return found


def grid_of(box: tuple[range, ...], rows: int, size: int = BLOCK) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The grid and the block for the elements of a box, whose last axis is along x; see `gpu_loops.kernel_for`."""
    sizes = [len(axis) for axis in box]
    along = [max(sizes[-1], 1)]
    if len(sizes) > 1:
        along.append(max(sizes[-2], 1))
    if len(sizes) > 2:
        along.append(max(math.prod(sizes[:-2]), 1))
    wide = size if len(sizes) == 1 else min(size if rows > 1 else 32, 1 << (along[0] - 1).bit_length())
    block = [wide] if len(sizes) == 1 else [wide, size // wide]
    if len(sizes) > 1 and rows:  # fewer threads where the second axis is short
        block[1] = min(block[1], 1 << (along[1] - 1).bit_length())
    threads = [*block, 1][: len(along)]
    each = [1, max(rows, 1), 1]
    grid = [-(-extent // (width * more)) for extent, width, more in zip(along, threads, each, strict=False)]
    if grid[0] > MOST_X:
        raise ValueError(f"the last axis of an index space has at most {MOST_X * threads[0]} elements, got {along[0]}")
    limits = [MOST_X, MOST_YZ, MOST_YZ]
    room = MAX_BLOCKS
    for axis in range(len(grid)):
        grid[axis] = min(grid[axis], limits[axis])
        if rows == 0:
            grid[axis] = min(grid[axis], max(room, 1))
            room //= grid[axis]
    return tuple(grid), tuple(threads)
