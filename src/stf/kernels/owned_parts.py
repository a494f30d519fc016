"""Loops over partitioned data: each place of the grid runs over the elements that it owns, on its part alone.

A loop on a grid is cut among the places. A task for each place that uses the whole would follow the one before, since
both write the same data, and bring the whole each time. With data that are partitioned over the same grid, each task
uses its part, and the tasks run side by side.

The loop over a part counts from 0, as the part's array does. That is the same loop only if the body uses its indices
for nothing but its own element, ``x[i, j]``, in partitioned arrays. So the body's code is asked (`uses_own_elements`);
a body that does more, such as ``x[i] = i`` or ``x[i - 1]``, runs on the whole, one place after the other. Arrays that
begin at the first element of the whole, in memory that a part does not have, were tried on paper: then any index is
allowed, and one that leaves the part reads what is not its own, which nobody would notice.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from stf._engine.access import AFFINE, WRITE, Access
from stf._support.code_facts import Step, facts_of
from stf.kernels.body_arguments import accessed, is_returned
from stf.kernels.index_spaces import IndexSpace
from stf.kernels.reductions import Reduction
from stf.places.partition import Part, part_of, positions_of

__all__ = ["loops_over_parts", "uses_own_elements"]

VERBS = {1: "read", 2: "write", 3: "rw"}


def loops_over_parts(builder: Any, body: FunctionType) -> list[tuple[Any, IndexSpace, list[Any]]] | None:
    """Return what each place runs over, and its arguments; None for a loop that is no loop over parts."""
    space, grid = builder.over, builder.grid
    if not isinstance(space, IndexSpace) or space.coordinates is not None:
        return None
    given = [item for item in builder.arguments if is_partitioned(item)]
    if not given or not all(suits(item, given[0].data, grid, space) for item in given):
        return None
    if not uses_own_elements(body, space.ndim, builder.arguments):
        return None
    found = []
    chosen = builder.partition or grid.partition
    parts = given[0].data.parts.ravel()
    for part, where, place in zip(parts, positions_of(grid.dims), grid.places, strict=True):
        box = [within(own, axis) for own, axis in zip(part.region, space.part, strict=True)]
        if any(axis is None for axis in box):
            return None
        mine = Part(axis for axis in box if axis is not None)
        if chosen is not None and part_of(chosen, space.part, where, grid.dims) != global_part(part.region, mine):
            return None
        if not mine.size:
            continue
        if mine.size < part.size and any(item.mode == WRITE for item in given):
            return None  # what lies around would be lost
        found.append((place, space._replace(part=mine), [of_part(item, part) for item in builder.arguments]))
    return found or None


def is_partitioned(item: Any) -> bool:
    """Return whether an argument is an access to partitioned data."""
    return isinstance(item, Access) and hasattr(item.data, "parts") and hasattr(item.data, "grid")


def suits(item: Any, first: Any, grid: Any, space: IndexSpace) -> bool:
    """Return whether partitioned data lie on the grid of a loop, and all alike."""
    data = item.data
    if item.place != AFFINE or data.ndim != space.ndim or data.shape != first.shape:
        return False
    if any(axis.step != 1 or axis.start < 0 or axis.stop > n for axis, n in zip(space.part, data.shape, strict=True)):
        return False
    same = data.grid.places == grid.places and data.grid.dims == grid.dims
    pairs = zip(data.parts.ravel(), first.parts.ravel(), strict=True)
    return same and all(one.region == other.region for one, other in pairs)


def within(own: Any, axis: range) -> range | None:
    """Return which elements of a part's axis are in the axis of a loop, counted in the part; None if that is no range.

    Both run upwards, and the loop's axis has all elements between its ends.
    """
    if not isinstance(own, range):
        return range(len(own)) if all(i in axis for i in own) else None
    first = max(0, -(-(axis.start - own.start) // own.step))
    last = min(len(own), -(-(axis.stop - own.start) // own.step))
    return range(first, max(first, last))


def global_part(region: Part, mine: Part) -> Part:
    """Return a piece of a part as a part of the whole."""
    pairs = zip(region, mine, strict=True)
    return Part(own[axis.start : axis.stop] if isinstance(own, range) else own for own, axis in pairs)


def of_part(item: Any, part: Any) -> Any:
    """Return an argument of the loop over one part."""
    if not is_partitioned(item):
        return item
    twin = item.data.parts[part.position]
    return getattr(twin, VERBS[item.mode])()


# -- what a body does with its indices ------------------------------------------------------------------------------


def uses_own_elements(body: FunctionType, ndim: int, arguments: tuple[Any, ...]) -> bool:
    """Return whether a body uses its indices, and its partitioned arrays, for their own elements alone.

    Such a body does the same on each part, with indices that begin at 0.
    """
    code = body.__code__
    facts = facts_of(code)
    items = [item for item in arguments if not accessed(item).data.core.token and not is_returned(item)]
    if code.co_posonlyargcount or code.co_kwonlyargcount or len(facts.parameters) < ndim + len(items):
        return False
    indices = facts.parameters[:ndim]
    arrays = {name for name, item in zip(facts.parameters[ndim:], items, strict=False) if is_partitioned(item)}
    watched = {*indices, *arrays}
    if watched & set(code.co_cellvars) or any(item for item in items if isinstance(item, Reduction)):
        return False
    return Watch(indices, arrays).allows(facts.steps)


class Watch:
    """Looks at what becomes of the values of some variables.

    Parameters
    ----------
    indices : tuple of str
        The parameters that are indices, in order.
    arrays : set of str
        Those that are arrays.
    """

    def __init__(self, indices: tuple[str, ...], arrays: set[str]) -> None:
        self.indices, self.arrays = indices, arrays
        self.is_allowed: set[int] = set()

    def allows(self, steps: tuple[Step, ...]) -> bool:
        """Return whether all values of these variables are used for own elements."""
        watched = {*self.indices, *self.arrays}
        for step in steps:
            if step.does in ("store", "delete") and step.of == "local" and step.name in watched:
                return False
            for position, part in enumerate(step.parts):
                if step.does == "copy" or not self.is_watched(part.original):
                    continue
                if not self.is_own(step, position):
                    return False
                self.is_allowed.add(id(part.original))
        loads = [step for step in steps if step.is_load("local") and step.name in watched]
        return all(id(step) in self.is_allowed for step in loads)

    def is_watched(self, step: Step) -> bool:
        """Return whether a value is one of these variables, or a tuple of indices."""
        if step.is_load("local"):
            return step.name in self.indices or step.name in self.arrays
        return step.does == "build" and any(self.is_watched(part.original) for part in step.parts)

    def is_own(self, step: Step, position: int) -> bool:
        """Return whether a step takes a watched value for an own element: ``x[i]``, or the tuple in ``x[i, j]``."""
        if step.does == "build":
            return self.is_index(step)
        if step.of != "item" or step.does not in ("load", "store"):
            return False
        container, index = step.parts[-2].original, step.parts[-1]
        is_array = container.is_load("local") and container.name in self.arrays
        return is_array and self.is_index(index) and position >= len(step.parts) - 2

    def is_index(self, step: Step) -> bool:
        """Return whether a value is the index of the body's own element."""
        found = step.original
        parts = [part.original for part in found.parts] if found.does == "build" and found.of == "tuple" else [found]
        if found.does == "build" and len(self.indices) == 1:
            return False
        names = tuple(part.name if part.is_load("local") else None for part in parts)
        return names == self.indices
