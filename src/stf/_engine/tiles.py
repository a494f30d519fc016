"""Tiles: what a piece of a data, which shares its home memory, has to do with what it was cut from."""

from __future__ import annotations

import cython

from stf._engine.versions import derived_outcome


def cut_all(engine: EngineState, parent: Data, home: Replica, make, names, layouts, offsets):
    """Handles, by `make`, of the tiles of `parent`, at `offsets` into its home memory."""
    i: cython.Py_ssize_t
    outer = parent.version
    handles = []
    for i in range(len(names)):
        tile: Data = engine.add_data(layouts[i], names[i], False)
        tile.readonly = parent.readonly
        try:
            engine.set_home(tile, home.place, home.address + offsets[i], home.owner, outer.was_valid)
            handle = make(tile)  # which gives the tile up when it goes
        except BaseException:
            engine.forget_new(tile)
            raise
        version = tile.version  # which starts where the parent is now
        version.writers.update(outer.writers)
        version.writers.update(outer.readers)
        version.writers.update(home.ready)
        version.outcome = outer.outcome
        tile.parent = parent
        parent.tiles += 1
        handles.append(handle)
    return handles


def join(engine: EngineState, tile: Data):
    """A tile that goes hands its events, and its poison, to the data it was cut from, which may go with its last."""
    parent = tile.parent
    outer = parent.version
    version = tile.version
    outer.writers.update(version.writers)
    outer.writers.update(version.readers)
    outer.writers.update(tile.home.ready)
    outer.joined |= version.joined | (0 if version.is_untouched() else READ)
    if version.is_poisoned() or version.may_fail():
        both = [o for o in (outer.outcome, version.outcome) if o is not None]
        outer.outcome = both[0] if both[0] is both[len(both) - 1] else derived_outcome(both)
    elif tile.home.state == INVALID:
        outer.unwritten_tiles = True
    parent.tiles -= 1
    if parent.tiles == 0:
        if outer.unwritten_tiles and not outer.was_valid:
            outer.own(outer.find(0) if parent.home is None else parent.home)
            outer.forget_content()
            engine.coherency.reorder(outer)
        outer.unwritten_tiles = False
        if parent.is_dropped and not parent.recorded and not parent.released:
            engine.dropped.append(parent)


def whole(data: Data):
    """Return what a data was cut from in the end; the data itself if it is no tile."""
    while data.parent is not None:
        data = data.parent
    return data


def is_within(data: Data, parent: Data):
    """Return whether `data` was cut from `parent`, at any depth, or is that."""
    while data is not None and data is not parent:
        data = data.parent
    return data is not None


def within(engine: EngineState, parent: Data):
    """Return the data that were cut from `parent`, at any depth, and live."""
    found = [data for data in engine.coherency.data.values() if is_within(data, parent)]
    return [data for data in found if data is not parent and not data.released]


def are_going(engine: EngineState, parent: Data):
    """Return whether nobody holds a tile of a data any more, but what lets go of it."""
    for item in within(engine, parent):
        tile: Data = item
        is_dropped: cython.bint = tile.is_dropped or tile in engine.dropped
        if not is_dropped or tile.recorded > tile.cached:
            return False
    return True


def unprotect(engine: EngineState, data: Data):
    """Let the user write to an array that was protected, once all data over it were dropped."""
    root: Data = whole(data)
    if root.protection is None or not root.is_dropped:
        return 0
    for item in engine.coherency.data.values():
        tile: Data = item
        if is_within(tile, root) and (tile.released or not tile.is_dropped):  # tasks may use it still
            return 0
    root.protection = None
    return 0


def refusal(engine: EngineState, parent: Data):
    """Return which tiles of a data keep others from it, and what to do."""
    found = within(engine, parent)
    names = ", ".join([data.label() for data in found if data.parent is parent][:3])
    names = f"({names}{', ...' if parent.tiles > 3 else ''})" if names else "that were dropped"
    if any([not cython.cast(Data, item).is_dropped and item not in engine.dropped for item in found]):
        return names, "drop them first (del, or release)"
    if any([cython.cast(Data, item).is_dropped for item in found]):
        return names, "close() the recorded graph that uses them first"
    return names, "drop them before what is recorded begins"
