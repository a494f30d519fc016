"""Threads of a hierarchy on a GPU: which of its threads each is, how groups wait, and where they share memory.

``con(8, par(4, con(32)))`` is a tree of groups, whatever the hardware has. All threads are numbered in the order of
their ranks, and blocks have so many of them one after the other (`Mapping`):

1. *Threads of a block*: those of the smallest group that waits or has memory, if they are at most 1,024 and divide
   those of the others; else the largest divisor of all. Groups of a warp fit in any; without others a block has 256.
2. *Barriers*: of the warp, with a mask, for groups whose size divides 32; the block's for groups that are a block;
   else a counter in the device's memory, to which each block adds one before it spins until all have. That needs all
   of these blocks on the device at once, which a cooperative launch guarantees; what does not fit is a ValueError.
3. *Memory*: shared for groups that lie in a block, if all of them fit in 48 KiB; else memory that comes with the
   launch.
4. *Widths that nobody gave*: inside, a usual block; outside, as many groups as the device runs at once of the kernel,
   which is compiled before that is known. So widths are arguments of the kernel, and what is compiled in are the
   sizes of the groups that wait or share memory.

Parts of a block that are more than a warp could wait at named barriers of the hardware, which Numba does not have:
such a level gets a block of its own instead, by the first rule.
"""

from __future__ import annotations

import ast
import math
import types
from typing import Any, NamedTuple

import numpy as np

from stf.kernels.arguments import Kernel
from stf.kernels.body_arguments import BodySignature
from stf.kernels.captured import Captured, around_key, linked_files
from stf.kernels.compile.python import intrinsics
from stf.kernels.gpu_loops import (
    INT64,
    described,
    device_function,
    dtype_of,
    function_in,
    if_unchanged,
    keys_of,
    scope_for,
    symbol_of,
    values_of,
)
from stf.kernels.gpu_tasks import GpuLaunches, Launch, Scratch, blocks_at_once, inputs_of, load
from stf.kernels.hierarchy import Hierarchy, hw_scope
from stf.kernels.loops import scope_of
from stf.kernels.nest import ArrayType, KernelArgument
from stf.kernels.thread_code import BARRIER, MEMORY, ThreadCode, items_of, name, thread_code
from stf.kernels.writers.numba_cuda import NOT_NEGATIVE
from stf.kernels.writers.writer import Lines

__all__ = ["BLOCKS_EACH", "USUAL", "concurrency_at", "plan_threads", "with_widths"]

FLOAT64 = np.dtype(np.float64)
WARP, MAX_THREADS = 32, 1024
SHARED_BYTES = 48 << 10  # of a block, without asking for more
WORD = 8  # bytes, of memory that groups share
USUAL = 256  # threads of a block
BLOCKS_EACH = 8  # of a multiprocessor, where no kernel says yet how many it runs
known: dict[Any, Kernel] = {}


class OnGpu:
    """Barriers and memory of a group in the code of a thread on a GPU."""

    has_barriers = True
    resumes = False

    @staticmethod
    def barrier(level: int) -> ast.stmt:
        """Call what waits."""
        return ast.Expr(ast.Call(name(f"_stf_wait{level}"), [name(f"{BARRIER}{level}")], []))

    @staticmethod
    def memory(level: int, group: ast.expr, dtype: np.dtype[Any], count: int) -> ast.expr:
        """Return the memory of the thread's group as an array, whichever group that is."""
        return items_of(name(f"{MEMORY}{level}"), dtype, count)


class Mapping(NamedTuple):
    """How a hierarchy lies on a device.

    Attributes
    ----------
    threads : int
        Of a block.
    sizes : tuple of int
        Threads of a group of each level.
    barriers : tuple of str
        For each level ``"block"``, ``"warp"`` or ``"device"``, or ``""`` if none of its groups wait.
    shared : tuple of int
        For each level the words of a group's memory, if that is of a block.
    device : tuple of int
        The same, if that is of the device.
    """

    threads: int
    sizes: tuple[int, ...]
    barriers: tuple[str, ...]
    shared: tuple[int, ...]
    device: tuple[int, ...]


def plan_threads(task: Any, signature: BodySignature, hierarchy: Hierarchy) -> GpuLaunches:
    """Compile a body that runs for each thread of a hierarchy at a GPU, where a task that has not begun runs.

    Parameters
    ----------
    task : Task
    signature : BodySignature
    hierarchy : Hierarchy

    Raises
    ------
    TypeError
        The body cannot be compiled, or takes what kernels cannot have.
    ValueError
        The device cannot hold such groups.
    """
    where = signature.where
    threads = thread_code(signature.body, hierarchy, signature.captured, OnGpu, where)
    is_automatic = hierarchy.levels[0].width is None
    whole = with_widths(hierarchy, concurrency_at(task) * BLOCKS_EACH, USUAL)
    files = linked_files(signature.body, *signature.extra)
    mapping = mapping_of(whole, threads.barriers, is_automatic, where, bool(files))
    inputs = inputs_of(task.context, signature)
    memory = [ArrayType(dtype, len(shape), "C", False) for shape, dtype, _ in scratch_of(whole, mapping)]
    kernel = kernel_of(threads, signature, mapping, [*inputs.arrays, *memory], inputs.arguments, task.symbol, files)
    load(kernel, task.context, task.where, where)
    at_once = blocks_at_once(kernel, task, mapping.threads)
    if at_once == 0:
        raise ValueError(f"{where} needs more registers or shared memory than a block of {mapping.threads} threads has")
    if is_automatic:  # as many threads as the device runs of this kernel
        whole = with_widths(hierarchy, at_once, mapping.threads)
        mapping = mapping_of(whole, threads.barriers, is_automatic, where, bool(files))
    widths = tuple(int(level.width or 0) for level in whole.levels)
    part = threads.outer(whole, where)
    launches = []
    for (axis,) in part.boxes():
        count = len(axis) * mapping.sizes[0] // widths[0]
        blocks = -(-count // mapping.threads)
        if kernel.cooperative and blocks > at_once:
            place = task.context.engine.places[task.where]
            raise ValueError(
                f"{where} has {count} threads that wait for each other, and {place.name} runs "
                f"{at_once * mapping.threads} of them at once; give the level that waits a smaller width, or none"
            )
        if count:
            launches.append(Launch((blocks,), (mapping.threads,), [axis.start, axis.step, count]))
    return GpuLaunches(kernel, launches, inputs, widths, scratch_of(whole, mapping))


def concurrency_at(task: Any) -> int:
    """Return a CPU's workers, or a GPU's multiprocessors, where a task runs."""
    root, place = task.engine.root, task.engine.places[task.where]
    return int(root.kernels.at(task.where).multiprocessors() if place.enqueues else root.max_workers())


def scratch_of(hierarchy: Hierarchy, mapping: Mapping) -> list[Scratch]:
    """Return the memory of groups, and the counters at which they wait, in the device's memory."""
    levels = range(hierarchy.depth)
    found = [Scratch((hierarchy.groups(i), mapping.device[i]), FLOAT64) for i in levels if mapping.device[i]]
    return found + [Scratch((hierarchy.groups(i),), INT64, True) for i in levels if mapping.barriers[i] == "device"]


def with_widths(hierarchy: Hierarchy, blocks: int, threads: int) -> Hierarchy:
    """Return a width for each level that has none: of a block inside, and outside of so many blocks of so many threads.

    Outside it is all of these blocks, or one of them for `hw_scope.thread`.
    """
    first, *inner = [level.width for level in hierarchy.levels]
    if inner and inner[-1] is None:
        inner[-1] = max(USUAL // math.prod(width or 1 for width in inner[:-1]), 1)
    inside = [width or 1 for width in inner]
    each = math.prod(inside)
    if hierarchy.levels[0].scope == hw_scope.thread:
        blocks = 1
    step = threads // math.gcd(threads, each)  # so that the last block is full
    return hierarchy.with_widths((first or max(blocks * threads // each // step, 1) * step, *inside))


def mapping_of(
    hierarchy: Hierarchy, barriers: frozenset[int], is_automatic: bool, where: str, together: bool = False
) -> Mapping:
    """Return how a hierarchy lies on a device; with `is_automatic` its outermost level is several blocks, however many.

    With `together` the body calls what all threads of a block call together: the innermost groups are blocks then.

    Raises
    ------
    TypeError
        The innermost level has no groups that are blocks, which the body needs.
    ValueError
        A level of threads of a block has more than a block can have.
    """
    levels = range(hierarchy.depth)
    widths = [int(level.width or 0) for level in hierarchy.levels]
    sizes = tuple(math.prod(widths[level:]) for level in levels)
    must_be_blocks(hierarchy, sizes, where)
    of_device = 0 if is_automatic and hierarchy.levels[0].scope != hw_scope.thread else -1
    grouped = [sizes[i] for i in levels if i != of_device and (i in barriers or hierarchy.levels[i].nbytes)]
    if together and (not hierarchy.levels[-1].is_synchronizable or of_device == levels[-1] or sizes[-1] > MAX_THREADS):
        raise TypeError(
            f"{where} calls functions that the threads of a block call together, so the innermost level has to be one "
            f"of groups: con(n), with at most {MAX_THREADS} threads"
        )
    threads = sizes[-1] if together else threads_for(grouped)
    kinds = [("device" if i == of_device else wait_of(sizes[i], threads)) if i in barriers else "" for i in levels]
    shared, others = memory_of(hierarchy, sizes, threads, of_device)
    return Mapping(threads, sizes, tuple(kinds), shared, others)


def memory_of(
    hierarchy: Hierarchy, sizes: tuple[int, ...], threads: int, of_device: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return how many words each level has in shared memory of blocks of so many threads, and how many elsewhere."""
    levels = range(hierarchy.depth)
    words = [-(-level.nbytes // (2 * WORD)) * 2 for level in hierarchy.levels]
    shared = [words[i] if i != of_device and sizes[i] <= threads and threads % sizes[i] == 0 else 0 for i in levels]
    if sum(words[i] * (threads // sizes[i]) for i in levels if shared[i]) * WORD > SHARED_BYTES:
        shared = [0] * len(words)
    return tuple(shared), tuple(0 if s else w for s, w in zip(shared, words, strict=True))


def must_be_blocks(hierarchy: Hierarchy, sizes: tuple[int, ...], where: str) -> None:
    """Raise ValueError for a level of threads of a block that has more than a block can have."""
    for number, level in enumerate(hierarchy.levels):
        if level.scope == hw_scope.thread and sizes[number] > MAX_THREADS:
            raise ValueError(
                f"{where}: level {number} has {sizes[number]} threads in a group; hw_scope.thread allows those of a "
                f"block, which are {MAX_THREADS} at most"
            )


def wait_of(size: int, threads: int) -> str:
    """Return how the threads of a group wait, where a block has so many."""
    return "warp" if is_of_warp(size) else "block" if size == threads else "device"


def threads_for(sizes: list[int]) -> int:
    """Return the threads of a block, for groups of these sizes: the smallest that fits, if it divides the others."""
    of_blocks = [size for size in sizes if not is_of_warp(size)]
    if not of_blocks:
        return USUAL
    least = min(of_blocks)
    if least <= MAX_THREADS and not any(size % least for size in of_blocks):
        return least
    whole = math.gcd(*of_blocks)
    return max(n for n in range(1, MAX_THREADS + 1) if whole % n == 0)


def is_of_warp(size: int) -> bool:
    """Return whether groups of so many threads lie in warps."""
    return size <= WARP and WARP % size == 0


def kernel_of(
    threads: ThreadCode,
    signature: BodySignature,
    mapping: Mapping,
    arrays: list[ArrayType],
    arguments: list[KernelArgument],
    symbol: str,
    files: tuple[str, ...],
) -> Kernel:
    """Return the kernel of a body: it finds out which thread it is, and calls it. Code in `files` is linked with it."""
    around = Captured(threads.fn, signature.where)
    how = (mapping._replace(sizes=()), ratios(mapping), signature.kinds, tuple(arrays), symbol)
    key: Any = (threads.fn.__code__, around_key(around), keys_of(arguments), *how)
    found = known.get(key)
    if found is not None:
        return found
    text = thread_text(mapping, signature, len(arrays), arguments)
    captured, given = around.without_values(), [one._replace(values=()) for one in arguments]
    code, around_it = threads.fn.__code__, threads.fn.__globals__

    def scope() -> dict[str, Any]:
        """Return the global variables of the kernel, and keep no array alive."""
        found = scope_for(given)
        waits = {
            f"_stf_wait{i}": waiting_for(kind, mapping.sizes[i]) for i, kind in enumerate(mapping.barriers) if kind
        }
        of_body = {**scope_of(types.FunctionType(code, around_it), captured, device_function), **found, **waits}
        found["_stf_body"] = intrinsics().jit(device=True)(types.FunctionType(code, of_body, symbol_of(symbol)))
        return found

    numbers = [*map(dtype_of, values_of(arguments)), *[INT64] * len(mapping.sizes)]
    parameters = [*[INT64] * 3, *arrays, *numbers]
    make = if_unchanged(
        function_in(scope, f"<kernel of {threads.fn.__name__}>"), lambda: (around_key(captured), keys_of(given))
    )
    found = described(make, text, parameters, symbol_of(symbol), key, signature.body, files, mapping.threads)
    found.cooperative = "device" in mapping.barriers
    if found.loop_body is not None:
        found.loop_body.waits = bool({"block", "device"}.intersection(mapping.barriers))
    known[key] = found
    return found


def ratios(mapping: Mapping) -> tuple[int, ...]:
    """Return what of the sizes of groups is compiled in: of those that wait, or share memory, in a block."""
    kept = zip(mapping.sizes, mapping.barriers, mapping.shared, strict=True)
    return tuple(size if wait == "warp" or words else 0 for size, wait, words in kept)


def thread_text(mapping: Mapping, signature: BodySignature, count: int, arguments: list[KernelArgument]) -> str:
    """Return the text of the kernel of `count` arrays: those of the body, then memory, then counters of barriers."""
    levels, lines = range(len(mapping.sizes)), Lines()
    widths = [f"_stf_width{i}" for i in levels]
    of_barriers = iter(range(count - mapping.barriers.count("device"), count))
    of_memory = iter(range(count - mapping.barriers.count("device") - sum(map(bool, mapping.device)), count))
    memory, barriers = [], []
    numbers = [name for one in arguments for name in one.names]
    parameters = ["_stf_first", "_stf_step", "_stf_count", *[f"_stf_a{i}" for i in range(count)], *numbers, *widths]
    lines.open(f"def _stf_kernel({', '.join(parameters)}):")
    lines.put("_stf_t = _stf_cuda.threadIdx.x")
    lines.put(f"_stf_g = (_stf_cuda.blockIdx.x * {mapping.threads} + _stf_t) & {NOT_NEGATIVE}")
    for i in levels:
        if mapping.shared[i]:
            shape = f"({mapping.threads // mapping.sizes[i]}, {mapping.shared[i]})"
            lines.put(f"{MEMORY}{i} = _stf_cuda.shared.array({shape}, _stf_numpy.float64)")
            memory.append(f"{MEMORY}{i}[_stf_t // {mapping.sizes[i]}]")
        elif mapping.device[i]:
            memory.append(f"_stf_a{next(of_memory)}[{group_of(i)}]")
        if mapping.barriers[i] == "device":
            blocks = f"({' * '.join(widths[i:])}) // {mapping.threads}"
            barriers.append(f"(_stf_a{next(of_barriers)}, {group_of(i)}, {blocks})")
        elif mapping.barriers[i]:
            barriers.append("0")
    lines.open("if _stf_g < _stf_count:")
    lines.put("_stf_left = _stf_g")
    for i in reversed(levels[1:]):
        lines.put(f"_stf_rank{i} = _stf_left % _stf_width{i}", f"_stf_left = _stf_left // _stf_width{i}")
    lines.put("_stf_rank0 = _stf_first + _stf_step * _stf_left")
    values = [f"_stf_a{i}[()]" if kind == "value" else f"_stf_a{i}" for i, kind in enumerate(signature.kinds)]
    texts, extras = [one.text for one in arguments], len(signature.extra)
    given = [*[f"_stf_rank{i}" for i in levels], *values, *texts[:extras], *widths, *memory, *barriers, *texts[extras:]]
    lines.put(f"_stf_body({', '.join(given)})")
    return lines.text


def group_of(level: int) -> str:
    """Return the number of a thread's group of a level, among all."""
    text = "0"
    for outer in range(level):
        text = f"({text} * _stf_width{outer} + _stf_rank{outer})"
    return text


def waiting_for(kind: str, size: int) -> Any:
    """Return a function for kernels by which the threads of a group wait for each other."""
    cuda = intrinsics()
    if kind == "block":

        def wait(barrier: Any) -> None:
            cuda.syncthreads()

    elif kind == "warp":
        lanes = (1 << size) - 1

        def wait(barrier: Any) -> None:
            first = cuda.threadIdx.x % WARP // size * size
            cuda.syncwarp(np.uint32(lanes) << np.uint32(first))

    else:

        def wait(barrier: Any) -> None:
            counters, group, blocks = barrier
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:
                cuda.threadfence()
                goal = (cuda.atomic.add(counters, group, 1) // blocks + 1) * blocks
                while cuda.atomic.add(counters, group, 0) < goal:
                    pass
                cuda.threadfence()
            cuda.syncthreads()

    return cuda.jit(device=True)(wait)
