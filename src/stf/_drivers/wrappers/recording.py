"""A driver that writes down what it is asked, in the order of issue, and passes it on.

The entries are tuples: a verb, the host thread, and the verb's arguments. ``entered``, ``drained`` and ``synchronized``
stand where the call came back; ``issue`` where a body begins that only enqueues on a device's stream, ``launch`` before
a kernel; ``body`` and ``body_end`` where a queued body ran; ``task`` where the engine opened a task.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from stf._drivers.wrappers.wrapping import WrappingDriver
from stf.observe.observer import Observer


class Recording(Observer):
    """What a driver was asked, and which tasks were begun in between.

    Attributes
    ----------
    entries : list of tuple
        ``(verb, thread, ...)``, in the order of issue.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []

    def note(self, verb: str, *args: Any) -> None:
        """Add an entry of this thread."""
        self.entries.append((verb, threading.get_ident(), *args))

    def host_access(self, array: Any, writes: bool) -> None:
        """Say that this thread itself uses an array now, outside tasks (frozen data, results)."""
        interface = array.__array_interface__
        span = (interface["data"][0], array.shape, array.strides, array.itemsize)
        self.note("host", "write" if writes else "read", span)

    def count(self, verb: str) -> int:
        """Return how many entries of a verb there are."""
        return sum(entry[0] == verb for entry in self.entries)

    # -- an observer of the engine: the begins -----------------------------------------------------------------

    def task(self, task: Any) -> None:
        """Note a task that was begun, the stream it is on, and what it was given."""
        if task.slot < 0:
            return  # a fence has no slot and no data
        stream = task.engine.port.stream_number(task.slot)
        self.note("task", task.id, task.symbol or task.kind, task.kind, stream, task_accesses(task))

    def withdrawn(self, task_id: int) -> None:
        """Note that a task did not begin after all; it took a slot, and its verbs are those of that slot."""
        self.note("withdrawn", task_id)

    def data_removed(self, data_id: int) -> None:
        """Note that a data is gone: its number may come again."""
        self.note("removed", data_id)


def task_accesses(task: Any) -> tuple[Any, ...]:
    """(data id, mode, memory) per data of a begun task; memory is (address, shape, strides, item size) or None."""
    memory = {}
    for replica in task.held_replicas():
        layout = replica.layout
        if layout.interface is None:
            memory[replica.data.id] = (replica.address, layout.shape, layout.strides, layout.itemsize)
    return tuple((core.id, mode, memory.get(core.id)) for core, mode in task.joined_accesses())


def noted(verb: str, entry: str, count: int) -> Callable[..., Any]:
    """Return a verb that is passed on after an entry with its first `count` arguments."""

    def noted_verb(self: RecordingDriver, *arguments: Any) -> Any:
        self.recording.note(entry, *arguments[:count])
        return getattr(self.inner, verb)(*arguments)

    return noted_verb


def noted_when_true(verb: str, entry: str) -> Callable[..., Any]:
    """Return a verb with an entry, with stream and event, behind it where it returns that the event has passed."""

    def noted_verb(self: RecordingDriver, *arguments: Any) -> bool:
        passed = bool(getattr(self.inner, verb)(*arguments))
        if passed:
            self.recording.note(entry, *arguments[:2])
        return passed

    return noted_verb


class RecordingDriver(WrappingDriver):
    """Logs every verb of `inner` in `recording`.

    Parameters
    ----------
    inner : Driver
        The driver that does the work.
    recording : Recording, optional
        Where to write; a new one by default.
    """

    def __init__(self, inner: Any, recording: Recording | None = None) -> None:
        super().__init__(inner)
        self.recording = recording or Recording()
        self.calls = 0
        self.of_devices: set[int] = set()

    def stream_create(self, device: int, priority: int = 0) -> int:
        return self.created(int(self.inner.stream_create(device, priority)), device)

    def created(self, stream: int, device: int) -> int:
        """Note a new stream; return it."""
        self.recording.note("create", stream, device)
        (self.of_devices.add if device >= 0 else self.of_devices.discard)(stream)
        return stream

    stream_destroy = noted("stream_destroy", "destroy", 1)
    record = noted("record", "record", 2)
    record_lazy = noted("record_lazy", "record", 2)
    record_on = noted("record_on", "record", 2)
    wait_event = noted("wait_event", "wait", 3)
    play_captured = noted("play_captured", "launch", 1)
    queue_captured = noted("queue_captured", "launch", 1)
    launch = noted("launch", "launch", 1)
    free = noted("free", "free", 4)
    query = noted_when_true("query", "completed")
    synchronize = noted_when_true("synchronize", "synchronized")

    def stream_adopt(self, device: int, pointer: int) -> int:
        return self.created(int(self.inner.stream_adopt(device, pointer)), device)

    def stream_create_in(self, device: int, context: int) -> int:
        return self.created(int(self.inner.stream_create_in(device, context)), device)

    def stream_enter(self, stream: int) -> int:
        if not self.runs_inline and stream in self.of_devices:
            self.inner.stream_enter(stream)
            self.recording.note("issue", stream)
            return 0
        self.recording.note("enter", stream)
        self.inner.stream_enter(stream)
        self.recording.note("entered", stream)
        return 0

    def try_enter(self, stream: int) -> bool:
        entered = bool(self.inner.try_enter(stream))
        if entered:
            self.recording.note("enter", stream)
            self.recording.note("entered", stream)
        return entered

    def completed(self, stream: int) -> int:
        sequence = int(self.inner.completed(stream))
        if sequence:
            self.recording.note("completed", stream, sequence)
        return sequence

    def drain(self, stream: int) -> int:
        self.inner.drain(stream)
        self.recording.note("drained", stream)
        return 0

    def alloc(self, device: int, nbytes: int, stream: int) -> int:
        address = int(self.inner.alloc(device, nbytes, stream))
        self.recording.note("alloc", device, nbytes, stream, address)
        return address

    def copy(self, stream: int, *what: Any) -> int:
        target, target_strides, source, source_strides, shape, itemsize = what[:6]
        into, out = (target, shape, target_strides, itemsize), (source, shape, source_strides, itemsize)
        self.inner.copy(stream, *what)
        self.recording.note("copy", stream, into, out)
        return 0

    def fill(self, stream: int, target: int, strides: tuple[int, ...], shape: tuple[int, ...], pattern: bytes) -> bool:
        if not self.inner.fill(stream, target, strides, shape, pattern):
            return False
        self.recording.note("fill", stream, (target, shape, strides, len(pattern)))
        return True

    def call(self, stream: int, body: Any) -> int:
        return int(self.inner.call(stream, self.called(stream, body)))

    def call_in_turn(self, stream: int, body: Any) -> int:
        return int(self.inner.call_in_turn(stream, self.called(stream, body)))

    def called(self, stream: int, body: Any) -> Callable[[], None]:
        """Note a call; return what is called, which notes when the body begins and ends."""
        self.calls += 1
        number = self.calls
        self.recording.note("call", stream, number)

        def recorded() -> None:
            nonlocal body
            self.recording.note("body", number)
            try:
                body()
            finally:
                self.recording.note("body_end", number)
                body = None

        return recorded
