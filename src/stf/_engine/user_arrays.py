"""What users make of their arrays: work on their streams comes before the tasks, and what they wrote is taken over.

A new data waits for the stream that makes its array. Data that only recordings hold belong to nobody's code: their user
may write to the array between two launches. So when the user registers it again, or a launch begins, the array's
content becomes the data's (`take_homes`), after what is being made of it. It does not where the array lacks what tasks
computed, or where a task has it.
"""

from __future__ import annotations

import cython

from stf._engine import tiles
from stf.errors import CaptureError

PER_THREAD_STREAM = 2  # CUDA's default stream of the calling thread, which nobody captures


def wait_on_producer(engine: EngineState, data: Data, place, producer):
    """New data, whose content is being made: on a caller's stream, or `producer` makes a stream wait for it.

    Return the event after which it is there; 0 if that is for the caller of the capture to say.
    """
    port = engine.root
    event: cython.longlong
    if isinstance(producer, int):
        event = port.callers.arrive(place, producer)
        data.version.writers.add(event)
        return event
    if port.captured:  # what is there comes before the capture, which cannot wait for it
        producer(PER_THREAD_STREAM)
        return 0
    slot = port.begin(place, EventSet(), COMPUTE)
    try:
        producer(port.stream(slot))
    finally:
        event = port.end(slot)
        data.version.writers.add(event)
    return event


def wait_on_user(engine: EngineState, data: Data, producer):
    """Known data, whose array the user may have written to: what is made of it now comes first.

    What is on a stream that is being captured has not run, and does not until that graph is launched. Return the event
    after which that is there; 0 if there is nothing to wait for.
    """
    place: cython.int = data.home.place
    if producer is None or (place <= 0 and engine.root.callers is None):
        return 0
    try:
        return wait_on_producer(
            engine, data, place if engine.place(place).ordinal >= 0 else 1, producer
        )  # managed and pinned memory: of some device
    except CaptureError:
        return 0


def adopt(engine: EngineState, data: Data, producer):
    """Let data that only recordings hold be the user's again, who may have written to the array meanwhile."""
    data.is_dropped = True  # perhaps it is among the dropped still
    whole: Data = tiles.whole(data)
    take_homes(engine, [data, *tiles.within(engine, data)] if data.tiles else [data], {whole.id: producer})
    undrop(engine, data)


def undrop(engine: EngineState, data: Data):
    """Let a user hold data again that were dropped."""
    data.is_dropped = False
    engine.orphans.pop(data.id, None)
    engine.dropped_tiles.pop(data.id, None)
    while data in engine.dropped:
        engine.dropped.remove(data)


def take_homes(engine: EngineState, found, producers):
    """Let the content of data that users have dropped be what they have in their arrays by now.

    `producers` says by the id of what was cut on which stream that is being made.
    """
    followed = {}  # tiles are of one array
    for item in found:
        data: Data = item
        if not is_of_user(data) or not take_home(data):
            continue
        whole: Data = tiles.whole(data)
        if whole.id not in followed:
            followed[whole.id] = wait_on_user(engine, data, producers.get(whole.id))
        elif followed[whole.id]:
            data.version.writers.add(followed[whole.id])


def take_home(data: Data):
    """Let the content of a data be what its user has in the array; False if that is in use, or not there yet.

    What a task has spoilt, and the user was told so, is as good as the user left it.
    """
    version = data.version
    if version.parent is not None or version.partials is not None or version.claims or data.tiles:
        return False
    if version.is_poisoned():
        if not version.outcome.failed().delivered:
            return False
        version.outcome = None
    elif data.home.state == INVALID and tiles.whole(data).write_back:
        return False
    engine: EngineState = data.engine
    engine.coherency.own(version, data.home)
    return True


def is_of_user(data: Data):
    """Return whether a data's memory is its user's alone: it was dropped, and so was what it was cut from."""
    whole: Data = tiles.whole(data)
    if not data.is_dropped or data.private or data.released or data.home is None or whole.home is None:
        return False
    while data.parent is not None:
        data = data.parent
        if not data.is_dropped:
            return False
    return True
