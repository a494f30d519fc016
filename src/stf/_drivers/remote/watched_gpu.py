"""A CUDA driver that tells, in order, what its streams have reached: that of a worker with a GPU.

Streams, events and memory are those of the CUDA driver. Mirrors of other processes' streams, and the ends of exchanges,
are streams of the host there. So a device's stream waits for another process as it waits for a body on the host.

The CUDA driver wants the events of a stream numbered without gaps. Here some marks are not the client's: a notice is
told when the device gets to where it stands, so it has an event, too. So each stream has numbers of its own::

    the client's marks        1     2           3
    events of the stream      1     2     3     4
                                          └ a notice

Nobody is called when an event is done. A thread asks for the first event of each stream that is not over, and sleeps
between. A host function on the stream would tell at once, but the stream would wait for it.
"""

from __future__ import annotations

import collections
import functools
import queue
import threading
import time
from typing import Any

import numpy as np

from stf._drivers.remote.watched import Notice
from stf._drivers.wrappers.wrapping import WrappingDriver
from stf._port.remote_arrays import here

SHORT_S, LONG_S = 50e-6, 1e-3  # between two looks at the device
EAGER_S = 5e-3  # after which it is the longer one


class Watch:
    """What is known of a stream of the device."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer  # of the CUDA stream
        self.issued = 0  # events
        self.reached = 0  # the last mark of the client's that is over
        # (event, what is told): a mark of the client's is (stream, mark)
        self.pending: collections.deque[tuple[int, Any]] = collections.deque()


def call_on(pointer: int, ordinal: int, body: Any) -> None:
    """Call a body, which finds the CUDA stream that it is on in `here`."""
    here.stream = pointer, ordinal
    try:
        body()
    finally:
        here.stream = None


def give_up(out: Any, fault: BaseException) -> None:
    """Raise, in the thread that tells, what has lost the device."""
    raise fault


class WatchedGpu(WrappingDriver):
    """The driver of a worker with a GPU.

    Parameters
    ----------
    ordinal : int
        Of the GPU in this process.
    threads : int
        Bodies that are called at a time.
    """

    def __init__(self, ordinal: int, threads: int) -> None:
        from stf._drivers.cuda.callers import CallersDriver

        super().__init__(CallersDriver((ordinal,), threads, None, False))
        self.ordinal = ordinal
        self.watches: dict[int, Watch] = {}
        self.told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.work = threading.Condition()
        self.is_over = False
        self.transfers = threading.Lock()
        self.stream = self.stream_create(0)  # of transfers, and the first one
        self.looker = threading.Thread(target=self.look, name="stf-looker", daemon=True)
        self.looker.start()

    # -- what is told ------------------------------------------------------------------------------------------

    def tell(self, what: Any) -> None:
        """Tell something, after all that was reached so far."""
        self.told.put(what)

    def listen(self) -> list[Any]:
        """Wait for news; return all there are, in order."""
        news = [self.told.get()]
        while not self.told.empty():
            news.append(self.told.get())
        return news

    def look(self) -> None:
        """Tell what the device's streams have reached, as long as it works."""
        last = time.monotonic()
        while not self.is_over:
            with self.work:
                while not self.is_over and not any([watch.pending for watch in self.watches.values()]):
                    self.work.wait()
                watches = list(self.watches.items())
            found: list[Any] = []
            for stream, watch in watches:
                while watch.pending and self.inner.query(stream, watch.pending[0][0]):
                    found.append(self.pass_first(watch))
            fault = self.inner.fault() or next(iter(self.inner.errors), None)
            if fault is not None:  # all events seem done to a driver that has lost its device
                self.tell((give_up, fault))
                return
            if found:
                last = time.monotonic()
                for what in found:
                    self.told.put(what)
            else:
                time.sleep(SHORT_S if time.monotonic() - last < EAGER_S else LONG_S)

    def pass_first(self, watch: Watch) -> Any:
        """Return what is told of a stream that has got to its first event."""
        with self.work:
            what = watch.pending.popleft()[1]
            if type(what[0]) is int:
                watch.reached = what[1]
        return what

    def expect(self, stream: int, watch: Watch, what: Any) -> None:
        """Tell something when the device gets to where a stream is now."""
        with self.work:
            watch.issued += 1
            self.inner.record(stream, watch.issued)
            watch.pending.append((watch.issued, what))
            self.work.notify()

    # -- streams and events ------------------------------------------------------------------------------------

    def stream_create(self, device: int, priority: int = 0) -> int:
        """Return a new stream of the device, or of the host."""
        stream = int(self.inner.stream_create(device, priority))
        if device >= 0:
            watch = Watch(int(self.inner.handle(stream)))
            watch.issued = 1
            self.inner.record(stream, 1)  # until here, the device is current
            with self.work:
                self.watches[stream] = watch
        return stream

    def stream_destroy(self, stream: int) -> int:
        """Give a stream back."""
        with self.work:
            self.watches.pop(stream, None)
        return int(self.inner.stream_destroy(stream))

    def record(self, stream: int, sequence: int) -> int:
        """Mark a point of a stream."""
        watch = self.watches.get(stream)
        if watch is None:
            return int(self.inner.record(stream, sequence))
        self.expect(stream, watch, (stream, sequence))
        return 0

    def wait_event(self, stream: int, other: int, sequence: int) -> int:
        """Let a stream wait for a mark of another one."""
        watch = self.watches.get(other)
        if watch is None:
            return int(self.inner.wait_event(stream, other, sequence))
        with self.work:
            later = (event for event, what in watch.pending if type(what[0]) is int and what[1] >= sequence)
            event = next(later, 0)
        return int(self.inner.wait_event(stream, other, event)) if event else 0  # else it is over

    def completed(self, stream: int) -> int:
        """Return the last mark that a stream has reached."""
        watch = self.watches.get(stream)
        return int(self.inner.completed(stream)) if watch is None else watch.reached

    def call(self, stream: int, body: Any) -> int:
        """Call a body when a stream gets here, or tell a notice."""
        watch = self.watches[stream]
        if type(body) is Notice:
            self.expect(stream, watch, body.what)
            return 0
        return int(self.inner.call_in_turn(stream, functools.partial(call_on, watch.pointer, self.ordinal, body)))

    # -- memory ------------------------------------------------------------------------------------------------

    def fill(self, stream: int, address: int, strides: Any, shape: Any, pattern: bytes) -> bool:
        """Fill an array with an element when a stream gets here."""
        if self.inner.fill(stream, address, strides, shape, pattern):
            return True
        word = np.dtype((np.void, len(pattern)))
        content = np.full(shape, np.frombuffer(pattern, word)[0], word)
        keep = (content, content)
        self.copy(stream, address, strides, content.ctypes.data, content.strides, shape, len(pattern), keep)
        return True

    def read(self, address: int, strides: Any, shape: Any, itemsize: int) -> bytes:
        """Return the content of an array, which is there."""
        content = np.empty(shape, np.dtype((np.void, itemsize)))
        self.transfer(content.ctypes.data, content.strides, address, strides, shape, itemsize, content)
        return content.tobytes()

    def write(self, address: int, strides: Any, shape: Any, itemsize: int, given: bytes) -> None:
        """Write an array, which nobody else uses."""
        content = np.frombuffer(given, np.dtype((np.void, itemsize))).reshape(shape)
        self.transfer(address, strides, content.ctypes.data, content.strides, shape, itemsize, content)

    def transfer(self, target: int, into: Any, source: int, out: Any, shape: Any, itemsize: int, content: Any) -> None:
        """Copy between the device and the host, and wait for it."""
        with self.transfers:
            watch = self.watches[self.stream]
            self.inner.copy(
                self.stream, target, tuple(into), source, tuple(out), tuple(shape), itemsize, (content, content)
            )
            watch.issued += 1
            self.inner.record(self.stream, watch.issued)
            self.inner.synchronize(self.stream, watch.issued, -1.0)
        fault = self.inner.fault()
        if fault is not None:
            raise fault

    def close(self) -> int:
        """End the threads, and give the device back."""
        with self.work:
            self.is_over = True
            self.work.notify_all()
        self.looker.join(timeout=1.0)
        return int(self.inner.close())
