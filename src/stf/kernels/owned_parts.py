"""Loops over partitioned data: each place of the grid runs over the elements that it owns, on its part alone.

A loop on a grid is cut among the places. A task for each place that uses the whole would follow the one before, since
both write the same data, and bring the whole each time. With data that are partitioned over the same grid, each task
uses its part, and the tasks run side by side.

The loop over a part counts from 0, as the part's array does. That is the same loop only if the body uses its indices
for nothing but its own element, ``x[i, j]``, in partitioned arrays. So the body's code is asked (`uses_own_elements`).

A body that does more, such as ``y[i] = x[i - 1] + i``, keeps the indices of the whole (`loops_beyond_parts`). What it
writes has to be its own element alone. Such an array is a part that is seen at the indices of the whole: its first
element has the address that makes ``y[i]`` right, and all elements but its own lie where nothing is. The code shows
that the body touches no other. What it reads is, in this order:

- a part with a halo, if all indices are ``i`` plus or minus a constant, and the loop stays inside of the whole;
- the whole: under one address where a driver maps it so, else as a copy of it.

A body that reads elsewhere what it writes, such as ``x[i] = x[i - 1]``, runs on the whole, one place after the other,
and so does one of parts that are no blocks. The same for all bodies was tried on paper: then an index that leaves the
part reads what is not its own, which nobody would notice.
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

__all__ = ["loops_beyond_parts", "loops_over_parts", "uses_own_elements"]

VERBS = {1: "read", 2: "write", 3: "rw"}
Uses = list[tuple[int, ...]]  # of an array: how far each is from the body's own element, along each axis


def loops_over_parts(builder: Any, body: FunctionType) -> list[tuple[Any, IndexSpace, list[Any]]] | None:
    """Return what each place runs over, and its arguments; None for a loop that is no loop over parts."""
    space, grid = builder.over, builder.grid
    if not isinstance(space, IndexSpace) or space.coordinates is not None:
        return None
    given = [item for item in builder.arguments if is_partitioned(item)]
    if not given or not all(suits(item, given[0].data, grid, space) for item in given):
        return None
    if any(hasattr(accessed(item).data, "whole") for item in builder.arguments) and mixes(builder.arguments):
        return None
    if not uses_own_elements(body, space.ndim, builder.arguments):
        return None
    boxes = boxes_over(builder, given)
    if boxes is None:
        return None
    found = []
    for place, part, mine in boxes:
        found.append((place, space._replace(part=mine), [of_part(item, part) for item in builder.arguments]))
    return found or None


def boxes_over(builder: Any, given: list[Any]) -> list[tuple[Any, Any, Part]] | None:
    """Return what each place of a loop runs over: the place, a part of data, and which of its elements.

    None if the data, or the loop, are cut otherwise.
    """
    space, grid = builder.over, builder.grid
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
        found.append((place, part, mine))
    return found


def loops_beyond_parts(builder: Any, body: FunctionType) -> list[tuple[Any, IndexSpace, list[Any]]] | None:
    """Return what each place runs over, at the indices of the whole, and its arguments; None if that cannot be.

    The body writes its own element alone, and reads what it likes.
    """
    space, task, items = builder.over, builder.task, builder.arguments
    if not isinstance(space, IndexSpace) or space.coordinates is not None or task.engine.watches:
        return None
    uses = uses_in(body, space.ndim, items)
    written = [item for item in items if isinstance(item, Access) and item.mode & WRITE]
    if uses is None or not writes_own_elements(builder, uses, written):
        return None
    boxes = boxes_over(builder, written)
    regions = [part.region for _, part, _ in boxes or ()]
    if boxes is None or not all(isinstance(own, range) and own.step == 1 for region in regions for own in region):
        return None
    near = halos_of(builder, uses, written[0].data)
    return None if near is None else loops_near(builder, boxes, near)


def loops_near(
    builder: Any, boxes: list[tuple[Any, Any, Any]], near: list[tuple[int, ...] | None]
) -> list[tuple[Any, IndexSpace, list[Any]]] | None:
    """Return what each place runs over, with halos of its arguments; None if a place does not see what it reads."""
    space, found = builder.over, []
    for place, part, mine in boxes:
        arrays = [seen_by(item, part, halo, builder.grid) for item, halo in zip(builder.arguments, near, strict=True)]
        if any(array is None for array in arrays):
            return None
        known = [array for array in arrays if array is not None]
        views = [view for one, view in known if not accessed(one).data.core.token]
        over = space._replace(part=global_part(part.region, mine), views=tuple(views) if any(views) else ())
        found.append((place, over, [one for one, _ in known]))
    return found or None


def writes_own_elements(builder: Any, uses: list[Uses | None], written: list[Any]) -> bool:
    """Return whether a body writes parts that lie on the grid, at its own element, and nothing else."""
    space, grid, items = builder.over, builder.grid, builder.arguments
    if not written or not all(map(is_partitioned, written)) or mixes(items):
        return False
    for item, offsets in zip(items, uses, strict=True):
        if isinstance(item, Reduction) and not is_returned(item):
            return False
        if item in written and (offsets is None or any(map(any, offsets))):
            return False
    return all(suits(item, written[0].data, grid, space) for item in written)


def halos_of(builder: Any, uses: list[Uses | None], whole: Any) -> list[tuple[int, ...] | None] | None:
    """Return for each argument the halo that the body reads, None where it reads the whole; None if that cannot be."""
    space, grid = builder.over, builder.grid
    records = builder.task.engine.scope.records
    found = []
    for item, offsets in zip(builder.arguments, uses, strict=True):
        is_near = is_partitioned(item) and suits(item, whole, grid, space)
        halo = halo_of(item, space, offsets) if is_near else None
        if halo is None and records and is_partitioned(item):
            return None  # the whole and parts do not go together in a recording
        found.append(halo)
    return found


def mixes(items: tuple[Any, ...]) -> bool:
    """Return whether some data are written, and are also read as another argument, or are part of such."""
    written = [item for item in items if not isinstance(item, Access) or item.mode & WRITE]
    cores = {id(accessed(item).data.core) for item in written}
    for item in items:
        whole = getattr(accessed(item).data, "whole", None)
        is_read = isinstance(item, Access) and not item.mode & WRITE
        if (is_read and id(item.data.core) in cores) or (whole is not None and id(whole.core) in cores):
            return True
    return False


def halo_of(item: Any, space: IndexSpace, offsets: Uses | None) -> tuple[int, ...] | None:
    """Return how far a body looks beyond a part, along each axis; None if that is not known, or not in a halo."""
    if offsets is None:
        return None
    widths = []
    for axis, (along, extent) in enumerate(zip(space.part, item.data.shape, strict=True)):
        steps = [offset[axis] for offset in offsets] or [0]
        if along and (along[0] + min(steps) < 0 or along[-1] + max(steps) >= extent):
            return None  # an index that may be negative counts from the end of the whole
        rows = [len(part.region[axis]) for part in item.data.parts.ravel()]
        width = max(map(abs, steps))
        is_divided = min(rows) < extent
        if is_divided and min(rows) < width:
            return None
        widths.append(width if is_divided else 0)
    return tuple(widths)


def seen_by(item: Any, part: Any, halo: tuple[int, ...] | None, grid: Any) -> tuple[Any, Any] | None:
    """Return an argument of the loop at one place, and how it is seen there; None if it cannot be.

    The second is None, or the shape of the whole and the index of the array's first element in it.
    """
    if not is_partitioned(item):
        return item, None
    if halo is None:
        shared = item.data.mapping_on(grid) if item.place == AFFINE else None
        return (item if shared is None else item.data.read(shared)), None
    seen: tuple[Any, Any] | None = item.data.parts[part.position].at_indices_of_whole(VERBS[item.mode], halo)
    return seen


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
    found = names_in(body, ndim, arguments)
    if found is None:
        return False
    indices, names = found
    items = {name: item for name, item in zip(names, arguments, strict=True) if name is not None}
    arrays = {name for name, item in items.items() if is_partitioned(item)}
    watched = {*indices, *arrays}
    if watched & {*body.__code__.co_cellvars} or any(isinstance(item, Reduction) for item in items.values()):
        return False

    steps, allowed = facts_of(body.__code__).steps, set()
    for step in steps:
        if step.does in ("store", "delete") and step.of == "local" and step.name in watched:
            return False
        for position, part in enumerate(step.parts):
            if step.does == "copy" or not is_one_of(watched, part.original):
                continue
            if not takes_own(step, position, indices, arrays):
                return False
            allowed.add(id(part.original))
    return all(id(step) in allowed for step in steps if step.is_load("local") and step.name in watched)


def is_one_of(watched: set[str], step: Step) -> bool:
    """Return whether a value is one of these variables, or a tuple of some."""
    if step.is_load("local"):
        return step.name in watched
    return step.does == "build" and any(is_one_of(watched, part.original) for part in step.parts)


def takes_own(step: Step, position: int, indices: tuple[str, ...], arrays: set[str]) -> bool:
    """Return whether a step takes an index or array for an own element: ``x[i]``, or the tuple in ``x[i, j]``."""
    own = (0,) * len(indices)
    if step.does == "build":
        return offset_in(step, indices) == own
    if step.of != "item" or step.does not in ("load", "store") or position < len(step.parts) - 2:
        return False
    container = step.parts[-2].original
    return container.is_load("local") and container.name in arrays and offset_in(step.parts[-1], indices) == own


def uses_in(body: FunctionType, ndim: int, arguments: tuple[Any, ...]) -> list[Uses | None] | None:
    """Return how far from its own element a body uses each argument, None where that is not known; None if none is."""
    found, facts = names_in(body, ndim, arguments), facts_of(body.__code__)
    if found is None or {*facts.parameters} & {*body.__code__.co_cellvars}:
        return None
    indices, names = found
    return [None if name is None else offsets_of(name, indices, facts.steps) for name in names]


def names_in(
    body: FunctionType, ndim: int, arguments: tuple[Any, ...]
) -> tuple[tuple[str, ...], list[str | None]] | None:
    """Return the indices of a body, and its name of each argument that it has a parameter for; None if that is none."""
    code, parameters = body.__code__, facts_of(body.__code__).parameters
    has_name = [not accessed(item).data.core.token and not is_returned(item) for item in arguments]
    if code.co_posonlyargcount or code.co_kwonlyargcount or len(parameters) < ndim + sum(has_name):
        return None
    names = iter(parameters[ndim:])
    return parameters[:ndim], [next(names) if has else None for has in has_name]


def offsets_of(name: str, indices: tuple[str, ...], steps: tuple[Step, ...]) -> Uses | None:
    """Return how far the elements of an array that a body uses are from its own; None if it does more with it."""
    found, known = [], set()
    for step in steps:
        if step.does in ("store", "delete") and step.of == "local" and step.name in (name, *indices):
            return None
        for position, part in enumerate(step.parts):
            load = part.original
            if step.does == "copy" or not load.is_load("local") or load.name != name:
                continue
            is_item = step.of == "item" and step.does in ("load", "store") and position == len(step.parts) - 2
            offset = offset_in(step.parts[-1], indices) if is_item else None
            if offset is None:
                return None
            found.append(offset)
            known.add(id(load))
    loads = [step for step in steps if step.is_load("local") and step.name == name]
    return found if all(id(step) in known for step in loads) else None


def offset_in(index: Step, indices: tuple[str, ...]) -> tuple[int, ...] | None:
    """Return how far an index is from that of the body's own element: (-1, 0) of ``[i - 1, j]``; None if unknown."""
    found = index.original
    is_tuple = found.does == "build" and found.of == "tuple"
    if is_tuple == (len(indices) == 1):
        return None
    parts = [part.original for part in found.parts] if is_tuple else [found]
    steps = [step_from(part, name) for part, name in zip(parts, indices, strict=False)]
    known = tuple([step for step in steps if step is not None])
    return known if len(parts) == len(known) == len(indices) else None


def step_from(value: Step, name: str) -> int | None:
    """Return the constant that is added to an index; None for other values."""
    if value.is_load("local"):
        return 0 if value.name == name else None
    if value.does != "compute" or value.name not in ("+", "-"):
        return None
    one, other = (part.original for part in value.parts)
    if value.name == "+" and one.is_load("constant"):
        one, other = other, one
    is_known = one.is_load("local") and one.name == name and other.is_load("constant") and type(other.name) is int
    return (other.name if value.name == "+" else -other.name) if is_known else None
