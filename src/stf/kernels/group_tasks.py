"""Tasks of bodies of `launch` that are cut at their barriers, on a CPU."""

from __future__ import annotations

import logging
import types
from typing import Any

from stf.kernels import loops
from stf.kernels.captured import Captured, around_key
from stf.kernels.group_loops import CannotCutError, GroupBody, dtypes_of, is_builtin, without_barriers
from stf.kernels.hierarchy import Hierarchy
from stf.kernels.loop_tasks import LoopTask, compile_now, key_of
from stf.kernels.thread_code import ThreadCode
from stf.kernels.thread_groups import MemoryTask, must_fit, rooms_of
from stf.places.partition import Part

__all__ = ["grouped_task"]

log = logging.getLogger("stf")
cuts: dict[Any, types.FunctionType | None] = {}  # by the code of a thread, what it calls, and types


def grouped_task(
    threads: ThreadCode,
    hierarchy: Hierarchy,
    part: Part,
    arrays: list[Any],
    numbers: list[int],
    last: tuple[list[Any], list[Any], list[Any]],
    around: Captured,
    where: str,
) -> LoopTask | MemoryTask | None:
    """Return what runs the groups of a hierarchy, whose threads wait where all of them do; None for other bodies.

    Parameters
    ----------
    threads : ThreadCode
    hierarchy : Hierarchy
        With all widths.
    part : Part
        The ranks in the first level, and in the others.
    arrays : list of ArrayType
    numbers : list of int
        The arrays that are zero-dimensional, of which a thread gets the number.
    last : tuple of list
        Further arguments with the widths, the memory of each level that has some, and the variables around the body.
    around : Captured
        The global variables of the thread's code.
    where : str
        What messages call the body.
    """
    first = min(threads.barriers)
    fn = groups_of(threads, hierarchy, arrays, numbers, last, around)
    if fn is None:
        return None
    outside = max(first, 1)
    count = sum(level.nbytes > 0 for level in hierarchy.levels[:first])
    arguments = [*[0, 0, 1] * outside, *arrays, *last[0], *last[1][:count], *last[2]]
    loop = loops.thread_for(fn, Captured(fn, where))
    try:
        compile_now(loop, arguments, where)
    except Exception as error:  # the generator says what is wrong with the body, in its own lines
        log.debug("%s stays a generator: %s", where, error)
        return None
    groups = Part(tuple(part)[:first]) if first else Part((range(1),))
    run = LoopTask(loop, groups, [], len(arrays), ())
    rooms = rooms_of(hierarchy)
    must_fit([(number // max(hierarchy.groups(first), 1), nbytes) for number, nbytes in rooms[first:]], hierarchy)
    return MemoryTask(run, hierarchy, len(arrays) + len(last[0]), first) if count else run


def groups_of(
    threads: ThreadCode,
    hierarchy: Hierarchy,
    arrays: list[Any],
    numbers: list[int],
    last: tuple[list[Any], list[Any], list[Any]],
    around: Captured,
) -> types.FunctionType | None:
    """Return a function that runs groups; None if the body cannot be cut."""
    data = [kind.dtype.type(0) if i in numbers else kind for i, kind in enumerate(arrays)]
    given = [*[0] * len(hierarchy.levels), *data, *last[0], *last[1], *last[2]]
    key = threads.fn.__code__, around_key(around), tuple(numbers), key_of(given)
    known = cuts.get(key)
    if key not in cuts or (known is not None and known.__globals__ is not threads.fn.__globals__):
        try:
            cuts[key] = cut(threads, hierarchy, numbers, tuple(loops.types_of(given)))
        except CannotCutError as error:
            log.debug("'%s' stays a generator: %s", threads.fn.__name__, error)
            cuts[key] = None
    return cuts[key]


def cut(
    threads: ThreadCode, hierarchy: Hierarchy, numbers: list[int], arguments: tuple[Any, ...]
) -> types.FunctionType:
    """Return a function that runs groups of threads with arguments of such types; CannotCutError if there is none."""
    fn, tree = threads.fn, threads.tree
    depth = len(hierarchy.levels)
    named = [tree.args.args[depth + i].arg for i in numbers]
    arrays = {arg.arg for arg, kind in zip(tree.args.args, arguments, strict=True) if hasattr(kind, "ndim")}
    memory = [nbytes for _, nbytes in rooms_of(hierarchy)]
    body = GroupBody(tree, threads.barriers, memory, named, arrays, lambda known: is_builtin(known, fn))
    dtypes: dict[str, str] = {}
    if body.crossing:
        thread = defined(without_barriers(tree), fn)
        scope = loops.scope_of(thread, Captured(thread, "the body"), loops.jitted)
        try:
            dtypes = dtypes_of(types.FunctionType(thread.__code__, scope), arguments, body.crossing, loops.compiler())
        except CannotCutError:
            raise
        except Exception as error:  # whatever it is, the generator has it, too
            raise CannotCutError(str(error)) from None
    return defined(body.function(dtypes), fn)


def defined(module: Any, fn: types.FunctionType) -> types.FunctionType:
    """Return the function that syntax defines, in the module and the file of another one."""
    namespace: dict[str, Any] = {}
    exec(compile(module, fn.__code__.co_filename, "exec"), namespace)
    return types.FunctionType(namespace[fn.__name__].__code__, fn.__globals__, fn.__name__)
