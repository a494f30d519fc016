"""A driver around another: every verb is passed on. Subclasses add what they are for to the verbs they override."""

from __future__ import annotations

from typing import Any

from stf._drivers.base import Driver


class WrappingDriver(Driver):
    """Passes every verb on to `inner`; other attributes are those of `inner`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.device_count = inner.device_count
        self.home = inner.home
        self.shares_host = inner.shares_host
        self.runs_inline = inner.runs_inline
        self.name = inner.name
        self.stamps = inner.stamps
        self.records_late = inner.records_late

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def statistics(self) -> tuple[int, int, int, int, list[int]]:
        streams, spare, workers, allocations, used = self.inner.statistics()
        return streams, spare, workers, allocations, used

    def graph_statistics(self) -> tuple[int, int, int, int, int]:
        made, updated, kept, nbytes, budget = self.inner.graph_statistics()
        return made, updated, kept, nbytes, budget

    def stream_create(self, device: int) -> int:
        return int(self.inner.stream_create(device))

    def stream_adopt(self, device: int, pointer: int) -> int:
        return int(self.inner.stream_adopt(device, pointer))

    def stream_create_in(self, device: int, context: int) -> int:
        return int(self.inner.stream_create_in(device, context))

    def stream_destroy(self, stream: int) -> int:
        return int(self.inner.stream_destroy(stream))

    def stream_enter(self, stream: int) -> int:
        return int(self.inner.stream_enter(stream))

    def record(self, stream: int, sequence: int) -> int:
        return int(self.inner.record(stream, sequence))

    def record_late(self, stream: int, sequence: int) -> int:
        return int(self.inner.record_late(stream, sequence))

    def seal(self, stream: int, sequence: int) -> int:
        return int(self.inner.seal(stream, sequence))

    def wait_event(self, stream: int, other: int, sequence: int) -> int:
        return int(self.inner.wait_event(stream, other, sequence))

    def completed(self, stream: int) -> int:
        return int(self.inner.completed(stream))

    def query(self, stream: int, sequence: int) -> bool:
        return bool(self.inner.query(stream, sequence))

    def synchronize(self, stream: int, sequence: int, timeout_s: float) -> bool:
        return bool(self.inner.synchronize(stream, sequence, timeout_s))

    def alloc(self, device: int, nbytes: int, stream: int) -> int:
        return int(self.inner.alloc(device, nbytes, stream))

    def owner(self, address: int) -> Any:
        return self.inner.owner(address)

    def free(self, device: int, address: int, nbytes: int, stream: int) -> int:
        return int(self.inner.free(device, address, nbytes, stream))

    def copy(
        self,
        stream: int,
        target: int,
        target_strides: tuple[int, ...],
        source: int,
        source_strides: tuple[int, ...],
        shape: tuple[int, ...],
        itemsize: int,
        keep: Any,
    ) -> int:
        return int(self.inner.copy(stream, target, target_strides, source, source_strides, shape, itemsize, keep))

    def fill(self, stream: int, target: int, strides: tuple[int, ...], shape: tuple[int, ...], pattern: bytes) -> bool:
        return bool(self.inner.fill(stream, target, strides, shape, pattern))

    def may_use(self, device: int, other: int, address: int, nbytes: int, owner: Any) -> int:
        return int(self.inner.may_use(device, other, address, nbytes, owner))

    def pin(self, address: int, nbytes: int, owner: Any, lasting: bool = False) -> int:
        return int(self.inner.pin(address, nbytes, owner, lasting))

    def unpin(self, address: int, nbytes: int, owner: Any) -> int:
        return int(self.inner.unpin(address, nbytes, owner))

    def unpin_unused(self) -> int:
        return int(self.inner.unpin_unused())

    def record_on(self, stream: int, sequence: int, pointer: int) -> int:
        return int(self.inner.record_on(stream, sequence, pointer))

    def follow(self, stream: int, pointer: int) -> int:
        return int(self.inner.follow(stream, pointer))

    def launch(self, stream: int, function: int, *config_and_block: int) -> int:
        return int(self.inner.launch(stream, function, *config_and_block))

    def begin_capture(self, device: int, owner: Any = None) -> Any:
        return self.inner.begin_capture(device, owner)

    def play_captured(self, stream: int, captured: Any) -> int:
        return int(self.inner.play_captured(stream, captured))

    def defers(self, stream: int, captured: Any) -> bool:
        return bool(self.inner.defers(stream, captured))

    def queue_captured(self, stream: int, captured: Any, changes: list[Any] | None) -> int:
        return int(self.inner.queue_captured(stream, captured, changes))

    def lead(self, stream: int, pointer: int) -> int:
        return int(self.inner.lead(stream, pointer))

    def bind_to_caller(self, stream: int, captured: bool, staged: int = 0) -> int:
        return int(self.inner.bind_to_caller(stream, captured, staged))

    def keep(self, stream: int, what: Any) -> int:
        return int(self.inner.keep(stream, what))

    def fault(self) -> Any:
        return self.inner.fault()

    def is_lost_by_chance(self) -> bool:
        return bool(self.inner.is_lost_by_chance())

    def look(self) -> Any:
        return self.inner.look()

    def call(self, stream: int, body: Any) -> int:
        return int(self.inner.call(stream, body))

    def call_in_graph(self, stream: int, body: Any, written: list[Any] | None = None) -> None:
        self.inner.call_in_graph(stream, body, written)

    def drain(self, stream: int) -> int:
        return int(self.inner.drain(stream))

    def park(self, baton: Any) -> int:
        return int(self.inner.park(baton))

    def runners(self, stream: int, sequence: int) -> Any:
        return self.inner.runners(stream, sequence)

    def handle(self, stream: int) -> Any:
        return self.inner.handle(stream)

    def copy_and_wait(self, stream: int, target: int, source: int, nbytes: int) -> None:
        self.inner.copy_and_wait(stream, target, source, nbytes)

    def watch_loss(self, watcher: Any) -> None:
        self.inner.watch_loss(watcher)

    def ignore_loss(self, watcher: Any) -> None:
        self.inner.ignore_loss(watcher)

    def distance(self, source: int, target: int) -> int:
        return int(self.inner.distance(source, target))

    def close(self) -> int:
        return int(self.inner.close())
