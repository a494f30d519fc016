"""Bodies as kernels of a task on a GPU: the launch of one, and those that combine what it contributes."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from stf._engine.access import DataHandle
from stf.interop.memory import layout_for
from stf.kernels import gpu_loops
from stf.kernels.arguments import Kernel
from stf.kernels.body_arguments import BodySignature, accessed, expected, is_returned, kind_of
from stf.kernels.captured import Captured
from stf.kernels.compile.contributions import error_of
from stf.kernels.compile.reduced_arrays import ATOMIC
from stf.kernels.foreign_kernels import order_of
from stf.kernels.gpu_loops import argument, values_of
from stf.kernels.index_spaces import MAX_NDIM, IndexSpace
from stf.kernels.kernel_task import KernelTask
from stf.kernels.launching import Config
from stf.kernels.nest import ArrayType, Axis, KernelArgument, LoopNest
from stf.kernels.plans import LaunchPlan
from stf.kernels.reductions import Reduction
from stf.kernels.writers.numba_cuda import BLOCK

__all__ = [
    "GpuLaunches",
    "KernelInputs",
    "Launch",
    "Scratch",
    "array_of",
    "blocks_at_once",
    "inputs_of",
    "load",
    "plan_loop",
]

MOST_X, MOST_YZ = (1 << 31) - 1, 65535  # blocks along an axis of a grid
MAX_BLOCKS = 1024  # of a reduction, whose results depend on it and on the shape alone
HALF = BLOCK // 2  # threads, where more of them run at once: of kernels with many registers
ROWS, LARGE = 4, 1 << 22  # elements of a thread along the last axis but one, in boxes of so many elements
MOST_PRIVATE = 16384  # bytes of arrays of which each block has copies
ALONE = 1 << 12  # elements that one block reduces, so that nothing is left to combine
ONE_BLOCK = Config(1, BLOCK, 0)
OFTEN = 4  # elements of a block that contribute for each that it combines in the end
KNOWN_STARTS = range(3)  # that kernels are compiled for


class Launch(NamedTuple):
    """One launch of a kernel: the grid, the block, and the integers that say which part of the elements, or threads."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    bounds: list[int]

    @property
    def blocks(self) -> int:
        """Return the number of blocks of the grid."""
        return math.prod(self.grid)


class Scratch(NamedTuple):
    """Memory that a task has for itself, and whether it has to be 0."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_zero: bool = False


class KernelInputs(NamedTuple):
    """What a kernel gets for what a body takes and reads.

    Attributes
    ----------
    held : list of LogicalData
        The arrays around the body.
    arrays : list of ArrayType
        The data that the body has parameters for, then `held`.
    arguments : list of KernelArgument
        The further arguments of the body, then the variables around it.
    """

    held: list[Any]
    arrays: list[ArrayType]
    arguments: list[KernelArgument]


class GpuLaunches:
    """A compiled body, and the launches of a task that runs it.

    Attributes
    ----------
    kernel : Kernel
    launches : list of Launch
    inputs : KernelInputs
    constants : tuple
        Numbers that the kernel gets last.
    scratch : list of Scratch
    combine : Kernel or None
        The kernel that combines the results of blocks, which are in `scratch`.
    neutral : tuple
        Its numbers.
    numbers : tuple
        What the kernel gets now for `inputs.arguments`.
    """

    def __init__(
        self,
        kernel: Kernel,
        launches: list[Launch],
        inputs: KernelInputs,
        constants: tuple[Any, ...],
        scratch: list[Scratch],
        combine: Kernel | None = None,
        neutral: tuple[Any, ...] = (),
    ) -> None:
        self.kernel = kernel
        self.launches = launches
        self.held = inputs.held
        self.constants = constants
        self.scratch = scratch
        self.combine = combine
        self.neutral = neutral
        self.numbers = values_of(inputs.arguments)
        self.layouts = [layout_for(shape, dtype) for shape, dtype, _ in scratch]
        self.shapes = [Config(grid, block, 0) for grid, block, _ in launches]
        self.blocks = sum(launch.blocks for launch in launches)

    def planned(self, plan: LaunchPlan, arguments: tuple[Any, ...]) -> LaunchPlan:
        """Return the plan, which says the launch if that is all that the task does."""
        if len(self.launches) != 1 or self.held or self.scratch:
            return plan
        if any(accessed(item).data.core.token for item in arguments):
            return plan
        returned = [i for i, item in enumerate(arguments) if is_returned(item)]
        others = [i for i in range(len(arguments)) if i not in returned]
        if any(isinstance(arguments[i], Reduction) for i in others):
            return plan
        order = (*others, *returned) if returned else None
        return plan.launches(self.kernel, self.shapes[0], tuple(self.launches[0].bounds), self.constants, order)

    def submit(self, task: Any, items: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Submit a task of several launches, with these numbers of the body's."""
        held = [handle.read() for handle in self.held]
        returned = [item.access for item in items if is_returned(item)]
        others = [item for item in items if not is_returned(item)]
        scratch = [DataHandle(task.engine.new_data(layout)).write() for layout in self.layouts]
        if held or scratch:
            task.add_deps(*held, *scratch)
        with KernelTask(task) as chain:
            for item in others:
                if isinstance(item, Reduction) and not item.accumulates:
                    dtype = item.access.data.core.layout.dtype
                    fill(chain, item.access, item.op.neutral(dtype), task.context, "a reduction")
            for access, (_, _, is_zero) in zip(scratch, self.scratch, strict=True):
                if is_zero:
                    fill(chain, access, 0, task.context, "a barrier")
            given = (*map(accessed, others), *held, *(scratch or returned), *numbers, *self.constants)
            for shape, (_, _, bounds) in zip(self.shapes, self.launches, strict=True):
                chain.put(self.kernel, shape, (*bounds, *given))
            if self.combine is not None:
                chain.put(self.combine, ONE_BLOCK, (self.blocks, *scratch, *returned, *self.neutral))


def plan_loop(task: Any, signature: BodySignature, space: IndexSpace) -> GpuLaunches:
    """Compile a body that runs for each element of a space at a GPU, where a task that has not begun runs.

    Raises
    ------
    TypeError
        The body cannot be compiled, or takes what kernels cannot have.
    """
    where, results = signature.where, signature.results
    for item in signature.parameters:
        must_be_atomic(item, where)
    inputs = inputs_of(task.context, signature)
    coordinates = [] if space.coordinates is None else [argument("_stf_parameters", space.parameters, where)]
    neutral = [argument(f"_stf_neutral{i}", result.neutral, where) for i, result in enumerate(results)]
    boxes = [box for box in space.part.boxes() if all(map(len, box))] or [(range(0),) * len(space.part)]
    nest = nest_over(boxes, signature, space)
    rows = rows_of(boxes, bool(results or nest.private))
    launches = launches_over(boxes, nest, rows)
    rows = 0 if is_at_limit(launches) else rows
    targets = [array_of(result.item.access) for result in results]
    partials = targets if nest.alone else [result.partials for result in results]
    arguments = [*inputs.arguments, *coordinates, *neutral]
    kernel = gpu_loops.kernel_for(signature, nest, [*inputs.arrays, *partials], arguments, task.symbol, rows)
    load(kernel, task.context, task.where, where)
    if not results:  # where the code has another number of threads in it
        smaller = launches_over(boxes, nest, rows, HALF)
        at_once = [size * blocks_at_once(kernel, task, size) for size in (HALF, BLOCK)]  # larger ones have no more
        if at_once[0] > at_once[1] and not is_at_limit(smaller):
            launches = smaller
    combine, scratch = None, []
    if results and not nest.alone:
        combine = gpu_loops.combining_kernel(results, targets)
        load(combine, task.context, task.where, where)
        blocks = sum(launch.blocks for launch in launches)
        scratch = [Scratch((blocks,), kind.dtype) for kind in partials]
    constants = values_of([*coordinates, *neutral])
    return GpuLaunches(kernel, launches, inputs, constants, scratch, combine, values_of(neutral))


def nest_over(boxes: list[tuple[range, ...]], signature: BodySignature, space: IndexSpace) -> LoopNest:
    """Return the loops of a body over boxes."""
    nest = signature.nest(axes_of(boxes), space.ndim, space.coordinates, space.randoms)
    if signature.in_cpp is None:
        nest = nest._replace(private=private_in(signature, boxes))
    if len(boxes) > 1 or math.prod(map(len, boxes[0])) > ALONE:
        return nest
    return nest._replace(alone=tuple([result.item.accumulates for result in signature.results]))


def inputs_of(context: Any, signature: BodySignature) -> KernelInputs:
    """Register the arrays around a body; return what a kernel of it gets."""
    captured, where = signature.captured, signature.where
    held: list[Any] = []
    arguments = [argument(f"_stf_x{i}", value, where) for i, value in enumerate(signature.extra)]
    for name, value in zip(captured.variables, captured.values, strict=True):
        if type(value) is np.ndarray:
            arguments.append(KernelArgument(f"_stf_a{len(signature.parameters) + len(held)}", (), ()))
            held.append(context.logical_data(value))
        else:
            arguments.append(argument(name, value, where))
    accesses = [*map(accessed, signature.parameters), *[handle.read() for handle in held]]
    return KernelInputs(held, list(map(array_of, accesses)), arguments)


def axes_of(boxes: list[tuple[range, ...]]) -> tuple[Axis, ...]:
    """Return the loops over boxes; of one box the starts are known that kernels are compiled for."""
    known = KNOWN_STARTS if len(boxes) == 1 else ()
    strided = any(axis.step != 1 for box in boxes for axis in box)
    return tuple(Axis(axis.start if axis.start in known else None, None, strided) for axis in boxes[0])


def private_in(signature: BodySignature, boxes: list[tuple[range, ...]]) -> tuple[tuple[int, int], ...]:
    """Return the arrays that are reduced into, and room for each, if each block is to have copies in shared memory.

    Where many elements meet in few, a block combines its own first: few atomic operations wait for each other then.
    Kernels are compiled for a room, which is a power of two, and not for each size.
    """
    reduced = [(i, item) for i, item in enumerate(signature.parameters) if isinstance(item, Reduction)]
    layouts = [item.access.data.core.layout for _, item in reduced]
    if not reduced or any(len(layout.shape) != 1 for layout in layouts):
        return ()
    rooms = [1 << (max(layout.shape[0], 1) - 1).bit_length() for layout in layouts]
    if sum(room * layout.itemsize for room, layout in zip(rooms, layouts, strict=True)) > MOST_PRIVATE:
        return ()
    elements = sum(math.prod(map(len, box)) for box in boxes)
    if elements < OFTEN * MAX_BLOCKS * sum(rooms):
        return ()
    return tuple([(i, room) for (i, _), room in zip(reduced, rooms, strict=True)])


def rows_of(boxes: list[tuple[range, ...]], reduces: bool) -> int:
    """Return how many elements along the last axis but one a thread has; see `gpu_loops.kernel_for`."""
    if reduces:
        return 0
    return ROWS if len(boxes[0]) > 1 and min(math.prod(map(len, box)) for box in boxes) >= LARGE else 1


def launches_over(boxes: list[tuple[range, ...]], nest: LoopNest, rows: int, size: int = BLOCK) -> list[Launch]:
    """Return a launch for each box, in blocks of `size` threads; one that reduces gets where its results begin.

    Where a block is to have all elements there is one block.
    """
    found: list[Launch] = []
    for box in boxes:
        given = {"_stf_base": sum(launch.blocks for launch in found)}
        for i, axis in enumerate(box):
            given |= {f"_stf_start{i}": axis.start, f"_stf_n{i}": len(axis), f"_stf_step{i}": axis.step}
        grid, block = grid_of(box, rows, size)
        found.append(Launch((1,) * len(grid) if nest.alone else grid, block, [given[name] for name in nest.bounds]))
    return found


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
    if len(shape) > MAX_NDIM:
        raise TypeError(f"{where} reduces into an array of {len(shape)} axes; a GPU takes up to {MAX_NDIM}")
    body, value = fill_body(len(shape)), access.data.core.layout.dtype.type(value)
    signature = BodySignature(body, Captured(body, where), (access,), (value,), where)
    inputs = inputs_of(context, signature)
    nest = signature.nest((Axis(0),) * len(shape), len(shape))
    kernel = gpu_loops.kernel_for(signature, nest, inputs.arrays, inputs.arguments, "fill", 0)
    load(kernel, context, chain.task.where, where)
    grid, block = grid_of(tuple(map(range, shape)), 1)
    chain.launch(kernel, grid, block, (*shape, access, *values_of(inputs.arguments)))


@functools.cache
def fill_body(ndim: int) -> Any:
    """Return a body that overwrites an element."""
    indices = ", ".join(f"i{axis}" for axis in range(ndim))
    namespace: dict[str, Any] = {}
    exec(f"def fill({indices}, array, value):\n    array[{indices}] = value", namespace)
    return namespace["fill"]


def array_of(access: Any) -> ArrayType:
    """Return the type of the array that a kernel gets."""
    kind = expected(access)
    return kind._replace(order=order_of(access) if kind.ndim else "C")


def load(kernel: Any, context: Any, place: int, where: str) -> None:
    """Compile and load a kernel; TypeError with the user's line where that fails."""
    try:
        kernel.function_at(context, place)
    except (NotImplementedError, SyntaxError) as error:
        raise TypeError(f"{where} cannot be compiled: {error}") from None
    except Exception as error:
        raise error_of(error, where) from None


def blocks_at_once(kernel: Kernel, task: Any, threads: int) -> int:
    """Return how many blocks of so many threads run at once where a task runs."""
    function = kernel.function_at(task.context, task.where)
    return int(task.engine.root.kernels.at(task.where).blocks_at_once(function, threads))


def is_at_limit(launches: list[Launch]) -> bool:
    """Return whether a grid is as large along y or z as any may be, so that it may not have all elements."""
    return any(MOST_YZ in grid[1:] for grid, _, _ in launches)


def grid_of(box: tuple[range, ...], rows: int, size: int = BLOCK) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the grid and the block for the elements of a box, whose last axis is along x.

    See `gpu_loops.kernel_for`.
    """
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
