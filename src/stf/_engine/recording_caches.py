"""Caches: replayed functions keep recordings, and can do without them.

A recording of theirs is spare: memory that runs out is taken from it, and it goes when it keeps users from their data.
The functions are for who is outside of the engine: a cache has a lock of its own, under which it may enter.
"""

from __future__ import annotations

from weakref import WeakSet

from stf._engine import reductions, tiles


def add(engine: EngineState, cache, recording):
    """Remember, weakly, what keeps a recording."""
    with engine.gate:
        if not engine.caches:
            engine.caches = WeakSet()
        engine.caches.add(cache)
        recording.become_cached()


def known(engine: EngineState):
    """Return the caches that live."""
    engine.gate.enter()
    try:
        return list(engine.caches)
    finally:
        engine.gate.leave()


def end(engine: EngineState):
    """Let them go of what they keep of a context that is over."""
    if not engine.caches:
        return 0
    for cache in known(engine):
        cache.end(engine)
    return 0


def make_room(engine: EngineState):
    """Let go of memory that is kept for what may come, a little at a time; whether there was any."""
    if (engine.gathering is not None and engine.gathering.make_room()) or reductions.make_room(engine):
        return True
    return any(cache.make_room(engine) for cache in known(engine))


def give_up_recordings(engine: EngineState, data: Data):
    """Close what is kept of a data that is to be moved; functions record it again when they are called again."""
    if data.recorded:
        for cache in known(engine):
            cache.give_up(engine, data)


def give_up_left(engine: EngineState):
    """Close what is kept of tiles that their user has dropped: no call can have them again."""
    if engine.dropped_tiles:
        with engine.gate:
            kept = list(engine.dropped_tiles.values())  # they are forgotten when they go, by other threads just now too
        close(engine, kept)


def give_up_dropped(engine: EngineState, data: Data):
    """Close what is kept of a data and its tiles, if their user has dropped all; whether there was any."""
    found = []
    with engine.gate:
        for item in [data, *tiles.within(engine, data)]:
            tile: Data = item
            if tile.recorded > tile.cached or not tile.is_dropped:
                return False
            if tile.recorded:
                found.append(tile)
    close(engine, found)
    return bool(found)


def close(engine: EngineState, found):
    """Close all recordings that are kept of some data, and let go of these."""
    for data in found:
        for cache in known(engine):
            cache.give_up(engine, data, rests=False)
    engine.enter()
    engine.gate.leave()
