"""CUDA streams of places, for work of the user's: one pool for each place, which the process keeps.

Contexts have streams of their own, which nobody else may use while they live. These here belong to no context, so they
outlive them. A place of such a stream (`exec_place.cuda_stream`) lends it to a context. The host has those of the
current device, for callbacks. A with-block on the host has one alone, since its end waits for what is on it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from stf._support.arguments import is_integer
from stf.devices.make import configured_devices, cuda_current, keep_current_context
from stf.errors import PlaceError

__all__ = ["pick_stream", "stream_pool"]

STREAMS_OF_A_PLACE = 4  # that are picked in turn
MOST_STREAMS = 1024  # of a pool


class Pool(NamedTuple):
    """The streams of one place, and whose turn it is."""

    streams: list[Any]
    turns: Iterator[int]


_pools: dict[Any, Pool] = {}
_idle: dict[int, list[Any]] = {}  # by the ordinal of their device: streams that with-blocks on the host had
_lock = threading.Lock()


def pick_stream(place: Any) -> Any:
    """Return one of the streams of a place, in turn."""
    place = single(place)
    if place.kind == "cuda_stream":
        return own_stream(place)
    with _lock:
        pool = pool_of(place, STREAMS_OF_A_PLACE)
        return pool.streams[next(pool.turns)]


class LentStream:
    """A CUDA stream that nobody else has until it is given back."""

    __slots__ = ("address", "ordinal", "stream")

    def __init__(self, stream: Any, ordinal: int) -> None:
        self.stream, self.ordinal = stream, ordinal
        self.address = int(stream.handle)

    def give_back(self) -> None:
        """Wait for what is on the stream, and let others have it."""
        self.stream.sync()
        with _lock:
            _idle.setdefault(self.ordinal, []).append(self.stream)


def lend_stream(numbers: Sequence[int]) -> LentStream:
    """Return a stream for callbacks on the host: of the current device if it is one of `numbers`, else of the first."""
    ordinal = cuda_current()
    ordinal = ordinal if ordinal in numbers else numbers[0]
    with _lock:
        idle = _idle.setdefault(ordinal, [])
        stream = idle.pop() if idle else make_stream(None, ordinal)
    return LentStream(stream, ordinal)


def stream_pool(place: Any, n: int) -> tuple[Any, ...]:
    """Return the first `n` streams of a place."""
    if not is_integer(n) or not 1 <= n <= MOST_STREAMS:
        raise ValueError(f"a pool has from 1 to {MOST_STREAMS} streams, got {n!r}")
    place = single(place)
    if place.kind == "cuda_stream":
        if n > 1:
            raise PlaceError(f"{place!r} is one stream, and {n} were asked for; ask its device for streams")
        return (own_stream(place),)
    with _lock:
        return tuple(pool_of(place, int(n)).streams[:n])


def single(place: Any) -> Any:
    """Return the only place of a grid of one; else what is given."""
    return place[0] if place.kind == "grid" and place.size == 1 else place


def own_stream(place: Any) -> Any:
    """Return a place that is a stream as a stream of cuda.core; it keeps what the user gave alive."""
    from cuda.core import Stream

    return place.owner if isinstance(place.owner, Stream) else Stream.from_handle(place.handle)


def pool_of(place: Any, n: int) -> Pool:
    """Return the pool of a place, with at least so many streams; under the lock."""
    must_have_streams(place)
    ordinal = cuda_current() if place.kind in ("current_device", "host") else place.index
    key = place if place.kind == "context" else ("device", max(ordinal, 0))
    pool = _pools.setdefault(key, Pool([], itertools.cycle(range(STREAMS_OF_A_PLACE))))
    while len(pool.streams) < n:
        pool.streams.append(make_stream(place, max(ordinal, 0)))
    return pool


def make_stream(place: Any, ordinal: int) -> Any:
    """Return a new stream in a CUDA context of the user's, or of a device; it waits for no default stream."""
    from cuda.core import Device, StreamOptions

    options = StreamOptions(nonblocking=True)
    with keep_current_context():
        owner: Any = getattr(place, "owner", None)
        if hasattr(owner, "create_stream"):
            return owner.create_stream(options)
        if place is not None and place.kind == "context":
            return stream_in(place.handle)
        device = Device(ordinal)
        device.set_current()
        return device.create_stream(options=options)


def stream_in(context: int) -> Any:
    """Return a new stream in a CUDA context that is given by its address; it lives to the end of the process."""
    from cuda.bindings import driver
    from cuda.core import Stream

    stream: Any = None
    code = driver.cuCtxSetCurrent(context)[0]
    if int(code) == 0:
        code, stream = driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
    if int(code) != 0:
        raise PlaceError(f"CUDA makes no stream in the context {context:#x} ({code.name}); give one that is alive")
    return Stream.from_handle(int(stream))


def must_have_streams(place: Any) -> None:
    """Raise PlaceError for a place that has no CUDA streams of its own."""
    if place.kind == "grid":
        raise PlaceError(f"{place!r} has streams at each of its places; ask one of them, grid[i]")
    if place.kind == "auto":
        raise PlaceError("exec_place.auto() is no place yet, so it has no streams; ask exec_place.device(i)")
    spec = configured_devices()
    if place.kind != "context" and spec.driver != "cuda":
        raise PlaceError(
            f"{place!r} is on a CPU, which has no CUDA streams; bodies run there when their data are ready"
        )
    if place.kind == "device" and place.index not in spec.numbers:
        raise PlaceError(f"{place!r} is not there, so it has no streams; there is {spec.text}")


def forget() -> None:
    """Let the streams go: tests leave nothing behind."""
    _pools.clear()
    _idle.clear()


def forked() -> None:
    """In the child of a fork, use none of the parent's streams and destroy none: CUDA may crash there."""
    global _lock
    _lock = threading.Lock()
    for streams in (*(pool.streams for pool in _pools.values()), *_idle.values()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(streams))
    forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forked)
