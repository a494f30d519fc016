"""The pieces of partitioned data: its parts, where they lie, and the tasks that bring their content together.

The engine (`stf._engine.parts`) knows which side of a region is newer, and asks for a copy when a task would read old
content. The copies are here, as tasks: `gather` into the whole, `scatter` to a part, `exchange` into the margins of a
part that is read with a halo.

Where the driver can (`Port.reserve`), the parts lie under one address, in pages of their places. Then a read with a
halo, and an access at the composite place, are windows (`stf._engine.windows`), and nothing is copied. A halo that
wraps around is copied there, too: the other end of the whole is not beside the part.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from stf._engine import parts as engine_parts
from stf._engine import recording_caches, thread_turns, windows
from stf._engine.access import WRITE
from stf._engine.task import make_access_like
from stf._port.replicas import Layout, Piece
from stf.data.logical_data import LogicalData
from stf.errors import AccessError, PlaceError
from stf.places.evaluation import PAGE, runs_of_pages
from stf.places.halos import Edge, Margins, as_halo, check_mode, check_parts, edges_of, margins_of
from stf.places.partition import Part, Tiles, part_of, positions_of
from stf.places.places import CompositePlace, DataPlace, ExecPlace
from stf.places.table import place_code
from stf.tasks.checks import must_be_open, must_be_settled, task_of_kind

__all__ = ["Pieces"]


class Form(NamedTuple):
    """A padded form of a part: its handle, its margins, and the boxes of neighbours that fill them, if any do."""

    handle: LogicalData
    margins: Margins
    edges: list[Any]
    neighbours: list[int]


class Pieces:
    """What the handles of partitioned data share.

    Attributes
    ----------
    whole : LogicalData
        The whole.
    place : CompositePlace
        The grid, and who has which part.
    boxes : list of Part
        The region of each part.
    handles : list of LogicalData
        The parts.
    mapping : object or None
        The addresses that all parts share; None where each part has memory of its own.
    """

    def __init__(self, context: Any, whole: LogicalData, place: CompositePlace) -> None:
        shape = whole.shape
        assert shape is not None
        self.whole, self.place = whole, place
        self.shape: tuple[int, ...] = shape
        self.grid = place.grid
        self.boxes = [part_of(place.partition, shape, where, self.grid.dims) for where in positions_of(self.grid.dims)]
        must_cover(self.boxes, shape, place)
        self.codes = [place_code(context, member) for member in self.grid]
        if context.on_cuda and 0 in self.codes and any(self.codes):
            raise PlaceError(f"{place!r} has the host beside devices; give a grid of devices, or of the host alone")
        self.homes = [member.affine_data_place for member in self.grid]
        self.memories = [context.engine.places[code].memory for code in self.codes]
        self.bare = Margins((0,) * len(shape), (0,) * len(shape))
        self.rooms = [self.bare] * len(self.boxes)
        self.handles: list[LogicalData] = []
        self.forms: dict[Any, Form] = {}
        self.around: dict[int, Any] = {}  # of parts in a mapping: memory for what a periodic halo is copied to
        me = weakref.ref(self)
        engine = context.engine
        engine_parts.make_whole(engine, whole.core, refresher(me, "whole", None))
        label = whole.name or f"data{whole.core.id}"
        self.mapping = self.reserve() if context.on_cuda and len(self.boxes) > 1 else None
        for k, where in enumerate(positions_of(self.grid.dims)):
            name = f"{label}.parts[{','.join(map(str, where))}]"
            layout = self.layout(self.boxes[k].shape)
            piece = None if self.mapping is None else Piece(self.mapping, k)
            memory = engine.patiently(engine_parts.make_memory, layout, self.memories[k], name, piece)
            inside, offset = (layout, 0) if piece is None else self.place_in_mapping(k, self.boxes[k])
            self.handles.append(
                engine.patiently(engine_parts.cut, memory, layout, inside, offset, name, False, LogicalData)
            )
            self.handles[k].core.readonly = whole.core.readonly
            engine_parts.make_part(engine, self.handles[k].core, whole.core, refresher(me, "part", k))
        if self.mapping is not None:
            owners = [k for k, box in enumerate(self.boxes) if box.size]
            self.window("whole", owners[0], tuple(map(range, self.shape)), label, owners)

    @property
    def context(self) -> Any:
        """The context of the data."""
        return self.whole.context

    def layout(self, shape: Sequence[int]) -> Layout:
        """Return the packed layout of an array of the data's dtype, whose axes nest as those of the whole."""
        known_layout = self.whole.core.layout
        order = Layout(shape, known_layout.strides, known_layout.dtype, known_layout.itemsize)
        packed: Layout = order.packed()
        return Layout(shape, packed.strides, packed.dtype, packed.itemsize, library=known_layout.library)

    # -- one address for all -----------------------------------------------------------------------------------

    def reserve(self) -> Any:
        """Return one range of addresses for all parts; None if the driver has none, or a part is no strided array."""
        if not all(isinstance(along, range) for box in self.boxes for along in box) or 0 in self.shape:
            return None
        strides = self.layout(self.shape).strides
        runs = runs_of_pages(self.boxes, self.shape, strides, self.whole.core.layout.itemsize)
        return None if runs is None else self.context.engine.root.reserve(self.memories, PAGE, runs)

    def place_in_mapping(self, k: int, box: Sequence[Any]) -> tuple[Layout, int]:
        """Return how a region of the whole lies in the mapping, and its offset from what place k knows it by."""
        whole = self.layout(self.shape)
        shape = tuple(map(len, box))
        offset, strides = lies(box, whole.strides) if all(shape) else (0, whole.strides)
        return Layout(shape, strides, whole.dtype, whole.itemsize, library=whole.library), offset - k

    def window(self, key: Any, k: int, box: Sequence[range], name: str, inside: list[int]) -> LogicalData:
        """Return the window of a region, known by `key`, at place k; the parts `inside` lie in it."""
        engine = self.context.engine
        lies, offset = self.place_in_mapping(k, box)
        seen, memory, place = self.layout(lies.shape), self.handles[k].core.parent, self.memories[k]
        handle = thread_turns.inside(  # beside a recording, too: it is another name for memory that is there
            engine, lambda engine: engine_parts.cut(engine, memory, seen, lies, offset, name, True, LogicalData, place)
        )
        handle.core.readonly = self.whole.core.readonly
        windows.make_window(handle.core, self.whole.core, [self.handles[i].core for i in inside])
        self.forms[key] = Form(handle, self.bare, [], inside)
        return handle

    def window_of_indices(self, k: int, halo: tuple[int, ...]) -> LogicalData:
        """Return a window of the whole's shape, of which a task may use part k, and a halo around it, alone."""
        key = "indices", k, halo
        if key not in self.forms:
            edges = edges_of(self.boxes, k, self.shape, halo, "none")
            inside = list(dict.fromkeys([k, *(edge.owner for edge in edges)]))
            self.window(key, k, tuple(map(range, self.shape)), f"{self.handles[k].name} at indices", inside)
        return self.forms[key].handle

    # -- bringing content together -----------------------------------------------------------------------------

    def refresh_whole(self, _: Any, place: int) -> None:
        """Bring newer parts into the whole at a data place, by one task; of a part, its content from the whole."""
        context = self.context
        step_out(context)
        newer = [k for k, handle in enumerate(self.handles) if handle.core.linked.is_newer_part()]
        if not newer:
            return
        target = data_place_of(context, place)
        everything = len(newer) == len(self.handles)
        mine = self.whole.write(target) if everything else self.whole.rw(target)
        accesses = [mine, *(self.handles[k].read(self.homes[k]) for k in newer)]
        where = ExecPlace("device", target.index) if target.kind == "device" else self.grid[newer[0]]
        if target.kind != "device" and any(each.is_remote for each in context.engine.places):
            where = ExecPlace("host")  # a worker cannot copy from other workers to the host

        def copy(task: Any) -> None:
            whole = task.replica_of(0)
            for i, k in enumerate(newer):
                part = task.replica_of(1 + i)
                for in_whole, in_part in boxes_of(self.boxes[k]):
                    copy_box(task, whole, in_whole, part, in_part)

        submit(context, engine_parts.GATHER, accesses, where, copy, True)

    def refresh_part(self, k: int, _: int) -> None:
        """Bring the region of a part from the whole."""
        context = self.context
        step_out(context)
        if not self.handles[k].core.linked.is_older_part():
            return
        source = source_of(context, self.whole, self.memories[k])
        mine = make_access_like(self.handles[k].read(self.homes[k]), WRITE)  # of read-only data, too
        accesses = [mine, self.whole.read(source)]

        def copy(task: Any) -> None:
            part, whole = task.replica_of(0), task.replica_of(1)
            for in_whole, in_part in boxes_of(self.boxes[k]):
                copy_box(task, part, in_part, whole, in_whole)

        submit(context, engine_parts.SCATTER, accesses, self.grid.places[k], copy, True)

    def refresh_form(self, key: Any, _: int) -> None:
        """Fill the margins of a padded form from the neighbours that were written since."""
        k = key[0]
        form = self.forms[key]
        sources = [self.handles[i].read(self.homes[i]) for i in form.neighbours]

        def copy(task: Any) -> None:
            old = engine_parts.old_neighbours(task.engine, form.handle.core)
            target = task.replica_of(0)
            for edge in form.edges:
                at = form.neighbours.index(edge.owner)
                if old[at]:
                    into, outof = box_at(edge.target, edge.shape), box_at(edge.source, edge.shape)
                    copy_box(task, target, into, task.replica_of(1 + at), outof)

        accesses = [form.handle.write(self.homes[k]), *sources]
        submit(self.context, engine_parts.EXCHANGE, accesses, self.grid.places[k], copy, False)

    # -- halos -------------------------------------------------------------------------------------------------

    def padded(self, k: int, halo: Any, mode: Any) -> LogicalData:
        """Return the padded form of a part."""
        widths, mode = as_halo(halo, len(self.shape)), check_mode(mode)
        known_form = self.forms.get((k, widths, mode))
        if known_form is not None:
            return known_form.handle
        check_parts(self.boxes, self.shape, widths, self.whole.core.label())
        margins = margins_of(self.boxes[k], self.shape, widths, mode)
        edges = edges_of(self.boxes, k, self.shape, widths, mode)
        neighbours = list(dict.fromkeys([k, *(edge.owner for edge in edges)]))
        key = k, widths, mode
        name = f"{self.handles[k].name} with halo"
        if self.mapping is not None and mode == "none":
            around = zip(self.boxes[k], *margins, strict=True)
            return self.window(key, k, [range(a.start - b, a.stop + c) for a, b, c in around], name, neighbours)
        engine = self.context.engine
        part = self.handles[k].core
        if self.mapping is not None:  # the other end of the whole is not beside it: it is copied, and the part, too
            edges.append(Edge(k, self.boxes[k].shape, (0,) * len(self.shape), margins.before))
            memory = self.memory_around(k, margins)
        else:
            if not fits(margins, self.rooms[k]):
                self.widen(k, margins)
            memory = part.parent
        layout, inside, offset = self.place_in_memory(k, margins)
        handle = engine.patiently(
            engine_parts.cut, memory, self.layout(layout.shape), inside, offset, name, True, LogicalData
        )
        handle.core.readonly = False
        self.forms[key] = Form(handle, margins, edges, neighbours)
        cores = [self.handles[i].core for i in neighbours]
        engine_parts.make_padded(engine, handle.core, part, cores, refresher(weakref.ref(self), "form", key))
        return handle

    def place_in_memory(self, k: int, margins: Margins) -> tuple[Layout, Layout, int]:
        """Return the layout of a part with margins, the same in the memory of the part, and its offset there."""
        shape, room = self.boxes[k].shape, self.rooms[k]
        memory = self.layout(padded_shape(shape, room))
        layout = self.layout(padded_shape(shape, margins))
        first = [a - b for a, b in zip(room.before, margins.before, strict=True)]
        offset, strides = lies(box_at(first, layout.shape), memory.strides)
        return layout, Layout(layout.shape, strides, memory.dtype, memory.itemsize, library=memory.library), offset

    def memory_around(self, k: int, margins: Margins) -> Any:
        """Return memory beside a part's own with room for margins: the last one, or a wider one for those to come."""
        if k not in self.around or not fits(margins, self.rooms[k]):
            self.around[k], self.rooms[k] = self.memory_for(k, margins, f"{self.handles[k].name} with halo")
        return self.around[k]

    def memory_for(self, k: int, margins: Margins, name: str | None) -> tuple[Any, Margins]:
        """Return new memory of place k for a part with these margins, and with those that it has room for; and all."""
        room = Margins(*(tuple(map(max, a, b)) for a, b in zip(self.rooms[k], margins, strict=True)))
        layout = self.layout(padded_shape(self.boxes[k].shape, room))
        return self.context.engine.patiently(engine_parts.make_memory, layout, self.memories[k], name), room

    def widen(self, k: int, margins: Margins) -> None:
        """Move a part to memory with wider margins."""
        room, engine, part = self.rooms[k], self.context.engine, self.handles[k].core
        recording_caches.give_up_recordings(engine, part)
        memory, self.rooms[k] = self.memory_for(k, margins, self.handles[k].name)
        found = [(part, self.bare)]
        found += [(form.handle.core, form.margins) for key, form in self.forms.items() if key[0] == k]
        moves = [(core, *self.place_in_memory(k, mine)[1:]) for core, mine in found]
        try:
            engine.patiently(engine_parts.move, part, memory, moves)
        except BaseException:
            self.rooms[k] = room
            engine.patiently(engine_parts.forget_memory, memory)
            raise

    # -- the end -----------------------------------------------------------------------------------------------

    def release(self) -> None:
        """Give everything up: the whole is refreshed before."""
        must_be_open(self.context)
        must_be_settled(self.context, self.whole)
        if self.whole.core.home is not None and self.whole.core.write_back:
            self.refresh_whole(None, 0)
        for handle in (self.whole, *(form.handle for form in self.forms.values()), *self.handles):
            LogicalData.release(handle)
        kept = self.context._kept_parts
        if kept is not None and self in kept:
            kept.remove(self)


def submit(context: Any, kind: str, accesses: list[Any], where: Any, work: Any, at_root: bool) -> None:
    """Submit a copy; nothing is done if another thread has made it meanwhile."""
    task = task_of_kind(context, kind, accesses, kind, where)
    task.blocks_caller = at_root  # so that it is not gathered
    try:
        task.run_native(work)
    except engine_parts.NotNeededError:
        return


def step_out(context: Any) -> None:
    """Launch what was gathered, since its data are what is copied."""
    if context.engine.gathering is not None:
        context.engine.gathering.step_out()


def refresher(pieces: Any, what: str, key: Any) -> Any:
    """Return what brings data up to date, and keeps nothing alive."""

    def refresh(place: int) -> None:
        mine = pieces()
        if mine is None:
            raise AccessError("partitioned data were dropped, and a recorded graph needs what lay in other parts")
        getattr(mine, f"refresh_{what}")(key, place)

    return refresh


# -- geometry --------------------------------------------------------------------------------------------------------


def must_cover(boxes: list[Part], shape: tuple[int, ...], place: CompositePlace) -> None:
    """Raise ValueError unless each element of data has one owner, as far as the number of elements says."""
    count, wanted = sum(box.size for box in boxes), int(np.prod(shape, dtype=object))
    if count != wanted:
        raise ValueError(
            f"{place.partition!r} gives {count} elements to the places of a grid of shape {place.grid.dims}, and data "
            f"of shape {shape} have {wanted}; each element belongs to one place"
        )


def boxes_of(part: Part) -> Iterator[tuple[list[range], list[range]]]:
    """Yield the pieces of a part that are ranges along every axis: where they lie in the whole, and where in it."""
    axes = []
    for along in part:
        ranges = [along] if isinstance(along, range) else list(along.ranges()) if isinstance(along, Tiles) else []
        firsts = itertools.accumulate(map(len, ranges), initial=0)
        axes.append([(piece, range(i, i + len(piece))) for piece, i in zip(ranges, firsts, strict=False) if piece])
    for pieces in itertools.product(*axes):
        yield [in_whole for in_whole, _ in pieces], [in_part for _, in_part in pieces]


def box_at(first: Sequence[int], shape: Sequence[int]) -> list[range]:
    """Return a box of an array by its first element and its extents."""
    return [range(i, i + n) for i, n in zip(first, shape, strict=True)]


def lies(box: Sequence[range], strides: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Return the offset of a box in an array, and its strides, in bytes."""
    offset = sum(along.start * step for along, step in zip(box, strides, strict=True))
    return offset, tuple(along.step * step for along, step in zip(box, strides, strict=True))


def copy_box(task: Any, target: Any, into: Sequence[range], source: Any, outof: Sequence[range]) -> None:
    """Copy a box of a replica to one of another."""
    where, whence = lies(into, target.layout.strides), lies(outof, source.layout.strides)
    engine_parts.copy_box(task.engine, task, target, where, source, whence, tuple(map(len, into)))


def padded_shape(shape: Sequence[int], margins: Margins) -> tuple[int, ...]:
    """Return the extents of an array with margins around it."""
    return tuple(a + n + b for a, n, b in zip(margins.before, shape, margins.after, strict=True))


def fits(margins: Margins, room: Margins) -> bool:
    """Return whether memory has room for margins."""
    return all(a <= b for one, other in zip(margins, room, strict=True) for a, b in zip(one, other, strict=True))


def data_place_of(context: Any, memory: int) -> DataPlace:
    """Return the data place with a number of the engine's; the host's for what is no device's."""
    for place in context.engine.places[1:]:
        if place.memory == memory and memory and place.ordinal >= 0:
            return DataPlace("device", place.ordinal)
    return DataPlace("host")


def source_of(context: Any, handle: LogicalData, memory: int) -> DataPlace:
    """Return where data are read, to be copied to a memory: there, on the host, or where they are valid."""
    valid = [replica.place for replica in handle.core.version.replicas if replica.state]
    chosen = memory if memory in valid else 0 if 0 in valid or not valid else valid[0]
    return data_place_of(context, chosen)
