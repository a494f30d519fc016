"""A driver that does its worst within the rules, and checks that it is driven within the rules.

Whatever order the rules leave open is shuffled by a seed, and calls come late. Fresh and freed memory holds a pattern.
Calls can be told to fail. A verb that breaks the rules is refused with the names and numbers that CUDA would give.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from stf._drivers.base import extent
from stf._drivers.wrappers.wrapping import WrappingDriver
from stf.errors import DriverError

FRESH = 0xA5
FREED = 0x5A
QUARANTINE = 1 << 22  # bytes of freed memory that stay under watch
DELAY_S = 2e-4
INVALID_VALUE, INVALID_HANDLE, ILLEGAL_ADDRESS, UNKNOWN = 1, 400, 700, 999
NAMES = {1: "INVALID_VALUE", 400: "INVALID_HANDLE", 700: "ILLEGAL_ADDRESS", 999: "UNKNOWN"}


class HostileDriver(WrappingDriver):
    """Shuffles, delays, fails and checks, around `inner`.

    Parameters
    ----------
    inner : Driver
        The driver that does the work; one with a `chooser` lets its ready streams be shuffled.
    seed : int
        Of everything that is random.
    fail_alloc, fail_copy : collection of int
        Which allocations and copies fail, counted from 1.
    delays : bool
        Let some work begin late.

    Attributes
    ----------
    violations : list of str
        Verbs that broke the rules; each was also refused, where it was found in the call.
    """

    def __init__(
        self,
        inner: Any,
        seed: int = 0,
        *,
        fail_alloc: Collection[int] = (),
        fail_copy: Collection[int] = (),
        delays: bool = True,
    ) -> None:
        super().__init__(inner)
        self.seed = seed
        self.random = random.Random(seed)
        self.fail_alloc = fail_alloc
        self.fail_copy = fail_copy
        self.delays = delays
        self.adopts = inner.adopts
        self.allocs = self.copies = 0
        self.violations: list[str] = []
        self.issued: dict[int, int] = {}
        self.reported: dict[int, int] = {}
        self.unrecorded: set[int] = set()
        self.blocks: dict[int, tuple[int, int]] = {}
        self.quarantine: deque[FreedBlock] = deque()
        self.quarantined = 0
        self.lock = threading.Lock()
        if hasattr(inner, "chooser"):
            inner.chooser = self.random.randrange

    # -- streams -----------------------------------------------------------------------------------------------

    def stream_create(self, device: int, priority: int = 0) -> int:
        if not -1 <= device < self.device_count:
            self.refuse(INVALID_VALUE, "stream_create", f"there is no device {device}")
        return self.created(int(self.inner.stream_create(device, priority)))

    def stream_adopt(self, device: int, pointer: int) -> int:
        return self.created(int(self.inner.stream_adopt(device, pointer)))

    def stream_create_in(self, device: int, context: int) -> int:
        return self.created(int(self.inner.stream_create_in(device, context)))

    def created(self, stream: int) -> int:
        """Nothing was recorded on a new stream."""
        self.issued[stream] = self.reported[stream] = 0
        return stream

    def stream_destroy(self, stream: int) -> int:
        self.check_stream("stream_destroy", stream)
        if stream in self.unrecorded or self.inner.completed(stream) < self.issued[stream]:
            self.refuse(INVALID_HANDLE, "stream_destroy", f"stream {stream} is not idle")
        del self.issued[stream]
        return int(self.inner.stream_destroy(stream))

    def stream_enter(self, stream: int) -> int:
        self.check_stream("stream_enter", stream)
        self.unrecorded.add(stream)
        self.dawdle()
        return int(self.inner.stream_enter(stream))

    def try_enter(self, stream: int) -> bool:
        self.check_stream("try_enter", stream)
        entered = bool(self.inner.try_enter(stream))
        if entered:
            self.unrecorded.add(stream)
        return entered

    def record(self, stream: int, sequence: int) -> int:
        self.note_record("record", stream, sequence)
        return int(self.inner.record(stream, sequence))

    def record_lazy(self, stream: int, sequence: int) -> int:
        self.note_record("record_lazy", stream, sequence)
        return int(self.inner.record_lazy(stream, sequence))

    def commit(self, stream: int, sequence: int) -> int:
        self.check_event("commit", stream, sequence)
        return int(self.inner.commit(stream, sequence))

    def record_on(self, stream: int, sequence: int, pointer: int) -> int:
        if stream in self.unrecorded:
            self.refuse(INVALID_HANDLE, "record_on", f"stream {stream} does other work")
        self.note_record("record_on", stream, sequence)
        return int(self.inner.record_on(stream, sequence, pointer))

    def note_record(self, verb: str, stream: int, sequence: int) -> None:
        """The sequence numbers of a stream increase."""
        self.check_stream(verb, stream)
        if sequence <= self.issued[stream]:
            self.refuse(
                INVALID_VALUE, verb, f"stream {stream}: {sequence} after {self.issued[stream]} does not increase"
            )
        self.issued[stream] = sequence
        self.unrecorded.discard(stream)

    def wait_event(self, stream: int, other: int, sequence: int) -> int:
        self.check_stream("wait_event", stream)
        self.check_event("wait_event", other, sequence)
        return int(self.inner.wait_event(stream, other, sequence))

    def completed(self, stream: int) -> int:
        """Return what is *known* to have passed may be old news, and never goes back."""
        self.check_stream("completed", stream)
        if self.random.random() < 0.5:
            self.reported[stream] = max(int(self.inner.completed(stream)), self.reported[stream])
        return self.reported[stream]

    def query(self, stream: int, sequence: int) -> bool:
        """As `completed`: what is told may be old news."""
        return self.completed(stream) >= sequence

    def synchronize(self, stream: int, sequence: int, timeout_s: float) -> bool:
        self.check_event("synchronize", stream, sequence)
        reached = bool(self.inner.synchronize(stream, sequence, timeout_s))
        if reached:
            self.reported[stream] = max(sequence, self.reported[stream])
        return reached

    # -- work --------------------------------------------------------------------------------------------------

    def call(self, stream: int, body: Any) -> int:
        self.check_stream("call", stream)
        self.delay(stream)
        self.unrecorded.add(stream)
        return int(self.inner.call(stream, body))

    def call_in_turn(self, stream: int, body: Any) -> int:
        self.check_stream("call_in_turn", stream)
        self.unrecorded.add(stream)

        def late() -> None:  # a worker's delay would take it out of the turns
            self.dawdle()
            body()
            self.dawdle()

        return int(self.inner.call_in_turn(stream, late))

    def copy(self, stream: int, *what: Any) -> int:
        target, target_strides, source, source_strides, shape, itemsize = what[:6]
        self.check_stream("copy", stream)
        self.check_memory("copy", target, shape, target_strides, itemsize)
        self.check_memory("copy", source, shape, source_strides, itemsize)
        self.copies += 1
        if self.copies in self.fail_copy:
            raise DriverError("UNKNOWN", UNKNOWN, "copy", f"stream {stream}", f"copy {self.copies} is to fail")
        self.delay(stream)
        self.unrecorded.add(stream)
        return int(self.inner.copy(stream, *what))

    def fill(self, stream: int, target: int, strides: tuple[int, ...], shape: tuple[int, ...], pattern: bytes) -> bool:
        self.check_stream("fill", stream)
        self.check_memory("fill", target, shape, strides, len(pattern))
        self.unrecorded.add(stream)
        return bool(self.inner.fill(stream, target, strides, shape, pattern))

    # -- memory ------------------------------------------------------------------------------------------------

    def alloc(self, device: int, nbytes: int, stream: int) -> int:
        self.check_stream("alloc", stream)
        self.allocs += 1
        if self.allocs in self.fail_alloc:
            raise MemoryError(f"allocation {self.allocs} is to fail")
        address = int(self.inner.alloc(device, nbytes, stream))
        self.blocks[address] = (device, nbytes)
        block = self.inner.owner(address)
        if block is not None:
            block[:] = FRESH
        return address

    def free(self, device: int, address: int, nbytes: int, stream: int) -> int:
        self.check_stream("free", stream)
        if self.blocks.pop(address, None) != (device, nbytes):
            self.refuse(INVALID_VALUE, "free", f"{nbytes} bytes at {address:#x} of device {device} are not allocated")
        block = self.inner.owner(address)
        if block is not None:
            self.inner.call(stream, self.bury(FreedBlock(address, nbytes, block)))
        self.unrecorded.add(stream)
        return int(self.inner.free(device, address, nbytes, stream))

    def bury(self, freed: FreedBlock) -> FreedBlock:
        """Keep freed memory for a while, to see who still uses it."""
        with self.lock:
            self.quarantine.append(freed)
            self.quarantined += freed.nbytes
            while self.quarantined > QUARANTINE:
                oldest = self.quarantine.popleft()
                self.quarantined -= oldest.nbytes
                self.check_grave(oldest)
        return freed

    def close(self) -> int:
        with self.lock:
            while self.quarantine:
                self.check_grave(self.quarantine.popleft())
        return int(self.inner.close())

    # -- the rules ---------------------------------------------------------------------------------------------

    def check_stream(self, verb: str, stream: int) -> None:
        if stream not in self.issued:
            self.refuse(INVALID_HANDLE, verb, f"stream {stream} does not exist")

    def check_event(self, verb: str, stream: int, sequence: int) -> None:
        self.check_stream(verb, stream)
        if sequence > self.issued[stream]:
            self.refuse(INVALID_HANDLE, verb, f"event {sequence} of stream {stream} was not recorded yet")

    def check_memory(self, verb: str, address: int, shape: Any, strides: Any, itemsize: int) -> None:
        """Refuse memory that was freed, and arrays that reach out of their allocation."""
        low, high = extent(address, strides, shape, itemsize)
        for block in list(self.quarantine):
            if low < block.address + block.nbytes and block.address < high:
                self.refuse(ILLEGAL_ADDRESS, verb, f"{block.nbytes} bytes at {block.address:#x} were freed")
        if address in self.blocks and high > address + self.blocks[address][1]:
            nbytes = self.blocks[address][1]
            self.refuse(ILLEGAL_ADDRESS, verb, f"array reaches out of its {nbytes} bytes at {address:#x}")

    def check_grave(self, freed: FreedBlock) -> None:
        if freed.filled and not (freed.memory() == FREED).all():
            self.violations.append(f"{freed.nbytes} bytes at {freed.address:#x} were written after they were freed")

    def refuse(self, code: int, verb: str, detail: str) -> None:
        self.violations.append(f"{verb}: {detail}")
        raise DriverError(NAMES[code], code, verb, self.name, detail)

    # -- lateness ----------------------------------------------------------------------------------------------

    def delay(self, stream: int) -> None:
        """Now and then, let what follows on `stream` begin late."""
        if self.delays and self.random.random() < 0.1:
            self.inner.call(stream, self.dawdle)

    def dawdle(self) -> None:
        if self.delays and self.random.random() < 0.3:
            time.sleep(self.random.random() * DELAY_S)


@dataclass(eq=False)
class FreedBlock:
    """Memory that was freed; called, when its stream gets there, it fills it with the pattern."""

    address: int
    nbytes: int
    block: Any
    filled: bool = False

    def memory(self) -> Any:
        start = self.address - self.block.ctypes.data
        return self.block[start : start + self.nbytes]

    def __call__(self) -> None:
        self.memory()[:] = FREED
        self.filled = True
