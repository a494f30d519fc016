"""The places of a context: what numbers the engine has for them, and how messages name those that it lacks."""

from __future__ import annotations

import functools
from typing import Any, Protocol

from stf._engine import thread_turns
from stf._engine.access import AFFINE, DataHandle, check_mine
from stf._port.place import NO_PLACE, Place
from stf.devices.make import cuda_current, cuda_memory_at, stream_is_captured
from stf.devices.spec import function_key
from stf.errors import CaptureError, PlaceError
from stf.places import places
from stf.places.foreign import ForeignPlace
from stf.places.places import DataPlace, ExecPlace, Grid, as_exec_place, is_auto, must_be_data_place

SEVERAL, AUTO = -1, -3  # of tasks: a grid of places, and one that is chosen


class Placed(Protocol):
    """What this module needs of a context."""

    engine: Any
    on_cuda: bool
    default_code: int
    codes: dict[Any, int]
    _more_places: dict[Any, int]
    _spec: Any

    def default_place_code(self) -> int:
        """The place of a task outside of any ``with place``."""


def place_of_code(context: Placed, code: int) -> Any:
    """Return the execution place that an engine number means; of memory that all share, the data place."""
    if code <= context._spec.count:
        return ExecPlace("device", context.engine.places[code].ordinal) if code else ExecPlace("host")
    for place, known in list(context._more_places.items()):
        if known == code:
            return place
    return ExecPlace("device", context.engine.places[code].ordinal)  # of a context that is finalized


def devices(context: Placed) -> Grid:
    """Return the devices of this context: ``len``, iteration, ``[i]``, ``.reshape``.

    Examples
    --------
    >>> with stf.context(devices="cpu:4") as ctx:
    ...     print(len(ctx.devices), ctx.devices[-1])
    ...     print(ctx.devices.reshape(2, 2).dims)
    4 exec_place.device(3)
    (2, 2)
    """
    found = [ExecPlace("device", i) for i in context._spec.numbers]
    for code, place in enumerate(found, 1):
        place.ask_priorities = functools.partial(context.engine.root.priorities, code)
    return Grid(found)


def place_code(context: Placed, place: Any) -> int:
    """Return the engine's number of an execution place."""
    chosen = place if type(place) is ExecPlace else as_exec_place(place)
    if chosen.kind == "device" and chosen.index in context.codes:
        return context.codes[chosen.index]
    if chosen.kind == "host":
        return 0
    if chosen.kind == "current_device":
        return current_device_code(context)
    if chosen.kind == "auto":
        raise PlaceError(f"{chosen!r} is for tasks, whose place is chosen when they begin; name a place here")
    if isinstance(chosen, Grid):
        if chosen.size == 1:
            return place_code(context, chosen[0])
        raise PlaceError(f"a task runs at one place, got a grid of {chosen.size}; loop over it, one task per place")
    if isinstance(chosen, ForeignPlace):
        if chosen.kind == "cuda_stream" and not context.engine.root.captured and stream_is_captured(chosen.handle):
            raise CaptureError(f"{chosen!r} is being captured; stf.context(stream=...) makes a context of the capture")
        return foreign_code(context, chosen)
    raise PlaceError(
        f"{chosen!r} is not in this context; it has {known_devices(context)}{how_emulated(context, chosen.index)}"
    )


def place_code_of_task(context: Placed, place: Any) -> int:
    """As `place_code`; negative for several places, and for one that is chosen."""
    if is_auto(place):
        return AUTO
    return SEVERAL if isinstance(place, Grid) and place.size > 1 else place_code(context, place)


def known_devices(context: Placed) -> str:
    """Return the devices of a context, for messages."""
    return ", ".join(repr(p) for p in devices(context))


def how_emulated(context: Placed, wanted: int) -> str:
    """Return how a CPU has the device that is wanted."""
    count = wanted + 1
    return "" if context.on_cuda else f'; devices="cpu:{count}" or STF_DEVICES=cpu:{count} emulates {count} on this CPU'


def foreign_code(context: Placed, place: ForeignPlace) -> int:
    """Return the engine's number of a CUDA stream or context of the user's, which it knows from its first use on."""
    known = context._more_places.get(place)
    if known is not None:
        return known
    if not context.on_cuda or place.index not in context._spec.numbers:
        raise PlaceError(f"{place!r} is of CUDA device {place.index}, and this context is on {context._spec}")
    device = context._spec.numbers.index(place.index)
    key = function_key(("context", place.context_id))
    about = repr(place), place.index, device + 1, key, place.foreign_handle[0] == "stream"
    return know_place(context, place, device, place.foreign_handle, *about)


def managed_code(context: Placed) -> int:
    """Return the engine's number of memory that host and devices share; on a CPU that is the host's."""
    if not context.on_cuda:
        return 0
    place = DataPlace("managed")
    known = context._more_places.get(place)
    return known if known is not None else know_place(context, place, -2, None, "managed", -1, NO_PLACE)


def know_place(context: Placed, place: Any, device: int, foreign_handle: Any, *about: Any) -> int:
    """Let the engine know one more place: at any time, since what is recorded needs not know it.

    `device` is the driver's number of its device, `foreign_handle` what the port makes its lanes of, or None; the rest
    is for its record.
    """
    known = context._more_places

    def add(engine: Any) -> int:
        if place not in known:
            number = int(engine.root.add_place(device, foreign_handle))
            engine.add_place(Place(number, *about))
            known[place] = number
        return known[place]

    return int(thread_turns.inside(context.engine, add))


def place_of_memory(context: Placed, memory: Any, data_place: DataPlace | None = None) -> int:
    """Return the engine's number of the place that memory of the user's is at.

    Memory with CUDA's array interface may be the host's, if it is pinned. Managed memory is a device's, unless the user
    says what it is, or the context lacks that device.
    """
    if data_place is not None and data_place.kind == "managed":
        return managed_code(context)
    if not memory.is_on_device:
        return 0
    kind, number = "device", memory.ordinal
    if number < 0:
        kind, number = cuda_memory_at(memory.address) if memory.address else ("device", context._spec.numbers[0])
    if kind == "host":
        return 0
    if number in context._spec.numbers:
        return context._spec.numbers.index(number) + 1
    if kind == "managed":
        return managed_code(context)
    what = "the array of this capsule" if memory.is_capsule else type(memory.owner).__name__
    if not kind or number < 0:
        raise PlaceError(
            f"{what} lies at {memory.address:#x}, which is no address of CUDA's memory: it is pageable memory of the "
            "host, or was freed; register host memory as a NumPy array, or with stf.view"
        )
    raise PlaceError(f"{what} lies on device({number}), which is not in this context; it has {known_devices(context)}")


def place_of_producer(context: Placed, place: int, memory: Any) -> int:
    """Return the engine's number of the place whose stream makes the content of memory that lies at `place`.

    A default stream is one of each device: that of memory of the host is of the device for which it was pinned.
    """
    engine = context.engine
    if engine.places[place].ordinal >= 0:
        return place
    number = memory.ordinal if memory.ordinal >= 0 else cuda_memory_at(memory.address)[1]
    return context._spec.numbers.index(number) + 1 if number in context._spec.numbers else 1


def where_code(context: Placed, where: Any) -> int:
    """Return the place that ``.on(where)`` means: a place, or where a data is valid."""
    if hasattr(where, "parts") and hasattr(where, "expand_mode"):  # composite data
        where = max(where.parts, key=lambda part: part.nbytes)
    if not isinstance(where, DataHandle):
        return place_code(context, where)
    check_mine(context.engine, where)
    where.core.engine.submit_held()
    valid = [r.place for r in where.core.version.replicas if r.state]
    if where.core.token or not valid:
        return current_place_code(context)
    for memory in reversed(valid):
        for place in context.engine.places[1:]:
            if place.memory == memory:
                return int(place.number)
    return current_place_code(context) if valid[-1] else 0  # managed memory is everywhere


def current_place_code(context: Placed) -> int:
    """Return the default place of this thread: the innermost ``with place``, else the current device, else the first.

    Where the place of a task would be chosen, it is that of what is no task.
    """
    stack = places.defaults()
    named = bool(stack) and not is_auto(stack[-1])
    return place_code(context, stack[-1]) if named else context.default_place_code()


def current_device_code(context: Placed) -> int:
    """Return the current device of this thread: that of the innermost ``with device``, else the first."""
    devices = [place for place in places.defaults() if place.index >= 0]
    if devices:
        return place_code(context, ExecPlace("device", devices[-1].index))
    if context._spec.driver == "cuda" and (ordinal := cuda_current()) in context._spec.numbers:
        return context._spec.numbers.index(ordinal) + 1
    return int(context.default_code)


def data_place_code(context: Placed, place: Any) -> int:
    """Return the engine's number of a data place."""
    must_be_data_place(place)
    if place.kind in ("composite", "replicated"):
        raise PlaceError(
            f"{place!r} is several memories, and an array of a task lies in one; give it to ctx.logical_data, and use "
            "the data, or their parts"
        )
    if place.kind == "affine":
        return AFFINE
    if place.kind == "host":
        return 0
    if place.kind == "managed":
        return managed_code(context)
    if place.kind == "current_device":
        return context.engine.places[current_device_code(context)].memory
    if place.index not in context._spec.numbers:
        cure = how_emulated(context, place.index)
        raise PlaceError(f"{place!r} is not in this context; it has {context._spec.count} device(s){cure}")
    return context.engine.places[context._spec.numbers.index(place.index) + 1].memory


def exec_place_of(engine: Any, where: int) -> Any:
    """Return the execution place that is the engine's number `where`; below 0 it is not chosen yet."""
    if where < 0:
        return ExecPlace("auto")
    context = engine.context()
    if context is not None:
        return place_of_code(context, where)
    number = engine.places[where].ordinal
    return ExecPlace("device", number) if number >= 0 else ExecPlace("host")
