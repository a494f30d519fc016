"""Is everything ordered that must be? Judged by the driver's verbs alone, with vector clocks over streams and threads.

The engine's own logic is not used. What orders: the queue of a stream; a wait for a recorded event; the host that
enqueues after what it has waited for, entered or seen completed; the gate that host threads pass one at a time with
every verb but ``enter`` and ``synchronize``. What must be ordered: two tasks that use a data unless both read, or the
later one accumulates (into memory of its own); two operations on a byte of memory unless both read; a read after what
filled the memory; every use
between allocation and free.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

CHUNK = 1 << 16  # host memory is looked at in pieces of this many bytes
READ, WRITE, RW, ACCUMULATE = 1, 2, 3, 4

Clock = dict[int, int]


class OrderError(AssertionError):
    """Two operations that conflict are not ordered."""


@dataclass(slots=True, eq=False)
class Op:
    """One operation: a component (a stream or a thread), its position there, and the clock before and with it."""

    component: int
    index: int
    clock: Clock
    name: str

    def follows(self, other: Op) -> bool:
        """Return whether this one is ordered after `other` (or is it)."""
        return self.clock.get(other.component, 0) >= other.index


@dataclass(eq=False)
class Line:
    """A stream, or a host thread: its component and its clock."""

    component: int
    clock: Clock = field(default_factory=dict)
    count: int = 0
    version: int = 0
    heard: tuple[Any, int] = (None, -1)
    records: dict[int, Clock] = field(default_factory=dict)
    last_record: int = 0
    task: tuple[Any, ...] | None = None
    hold: Op | None = None

    def join(self, clock: Clock) -> None:
        mine = self.clock
        for component, index in clock.items():
            if mine.get(component, 0) < index:
                mine[component] = index
        self.version += 1

    def step(self, name: str) -> Op:
        """Return a new operation at the end of this line."""
        self.count += 1
        self.clock[self.component] = self.count
        self.version += 1
        return Op(self.component, self.count, dict(self.clock), name)


@dataclass(eq=False)
class Block:
    """Bytes of memory and who used them last, as far as later operations must be compared with them."""

    address: int
    nbytes: int
    allocated: Op | None
    filled: int = 0
    uses: list[tuple[int, Op, bool]] = field(default_factory=list)

    def use(self, mask: int, op: Op, writes: bool) -> int:
        """Compare with whoever used these bytes; return how many pairs that were."""
        pairs = 0
        kept = []
        for use in self.uses:
            theirs, other, wrote = use
            if theirs & mask:
                if writes or wrote:
                    pairs += 1
                    must_follow(op, other, f"memory at {self.address:#x}")
                if writes or (not wrote and other.component == op.component):
                    theirs &= ~mask
                if not theirs:
                    continue
                use = (theirs, other, wrote)
            kept.append(use)
        kept.append((mask, op, writes))
        self.uses = kept
        return pairs


class Order:
    """Reads a recording and raises OrderError at the first pair that is not ordered."""

    def __init__(self) -> None:
        self.streams: dict[int, Line] = {}
        self.threads: dict[int, Line] = {}
        self.components = 0
        self.gate: Line | None = None
        self.blocks: dict[int, Block] = {}
        self.chunks: dict[int, Block] = {}
        self.calls: dict[int, Op] = {}
        self.data: dict[int, tuple[list[Op], list[Op], list[Op]]] = {}
        self.pairs = 0

    def read(self, entries: Iterable[tuple[Any, ...]]) -> int:
        """Check all `entries`; return the number of pairs that were found ordered."""
        for entry in entries:
            verb = getattr(self, f"on_{entry[0]}", None)
            if verb is not None:
                verb(*entry[1:])
        return self.pairs

    # -- lines -------------------------------------------------------------------------------------------------

    def new_line(self, clock: Clock | None = None) -> Line:
        self.components += 1
        return Line(self.components, clock or {})

    def thread(self, ident: int) -> Line:
        if ident not in self.threads:
            self.threads[ident] = self.new_line()
        return self.threads[ident]

    def pass_gate(self, ident: int) -> Line:
        """Return a thread makes a verb that only one can make at a time: it knows what the one before knew."""
        line = self.thread(ident)
        if self.gate is not line:
            if self.gate is not None:
                line.join(self.gate.clock)
            self.gate = line
        return line

    def learn(self, ident: int, clock: Clock) -> None:
        """A thread comes to know `clock` outside the gate."""
        line = self.thread(ident)
        if self.gate is line:
            self.gate = Line(0, dict(line.clock))
        line.join(clock)

    def enqueue(self, ident: int, stream: int) -> Line:
        """Return what is put on a stream now comes after what the thread knows."""
        host = self.pass_gate(ident)
        line = self.streams.get(stream)
        if line is None:
            raise OrderError(f"stream {stream} is used and does not exist")
        if line.heard != (host, host.version):
            line.join(host.clock)
            line.heard = (host, host.version)
        return line

    # -- verbs -------------------------------------------------------------------------------------------------

    def on_create(self, ident: int, stream: int, device: int) -> None:
        self.pass_gate(ident)
        self.streams[stream] = self.new_line()

    def on_destroy(self, ident: int, stream: int) -> None:
        self.pass_gate(ident)
        del self.streams[stream]

    def on_record(self, ident: int, stream: int, sequence: int) -> None:
        host = self.pass_gate(ident)
        line = self.streams[stream]
        if line.hold is not None:
            host.join({line.component: line.hold.index})
            line.hold = None
        line = self.enqueue(ident, stream)
        op = line.step(f"record {sequence} of stream {stream}")
        if line.task is not None and line.task[0].endswith("(combine)"):
            line.task = None  # one that was taken back: it always has a body
        self.begin_body(line, op)
        if sequence <= line.last_record:
            raise OrderError(f"stream {stream} records {sequence} after {line.last_record}")
        line.last_record = sequence
        line.records[sequence] = op.clock

    def on_wait(self, ident: int, stream: int, other: int, sequence: int) -> None:
        line = self.enqueue(ident, stream)
        line.join(self.recorded(other, sequence))

    def on_completed(self, ident: int, stream: int, sequence: int) -> None:
        self.pass_gate(ident).join(self.recorded(stream, sequence))

    def on_synchronized(self, ident: int, stream: int, sequence: int) -> None:
        self.learn(ident, self.recorded(stream, sequence))

    def recorded(self, stream: int, sequence: int) -> Clock:
        line = self.streams.get(stream)
        if line is None or sequence not in line.records:
            raise OrderError(f"event {sequence} of stream {stream} is used before it is recorded")
        return line.records[sequence]

    def on_enter(self, ident: int, stream: int) -> None:
        line = self.enqueue(ident, stream)
        name = f"the body of {line.task[0]}" if line.task else f"a hold of stream {stream}"
        line.hold = line.step(name)
        self.begin_body(line, line.hold)

    def on_entered(self, ident: int, stream: int) -> None:
        hold = self.streams[stream].hold
        if hold is not None:
            self.learn(ident, before(hold))

    def on_issue(self, ident: int, stream: int) -> None:
        line = self.enqueue(ident, stream)
        self.begin_body(line, line.step(f"work on stream {stream}"))

    on_launch = on_issue

    def on_drained(self, ident: int, stream: int) -> None:
        self.learn(ident, dict(self.streams[stream].clock))

    def on_call(self, ident: int, stream: int, number: int) -> None:
        line = self.enqueue(ident, stream)
        self.calls[number] = line.step(f"the body of {line.task[0]}" if line.task else f"call {number}")
        self.begin_body(line, self.calls[number])

    def on_body(self, ident: int, number: int) -> None:
        self.threads[ident] = self.new_line(before(self.calls.pop(number)))

    def on_body_end(self, ident: int, number: int) -> None:
        line = self.threads.pop(ident)
        if self.gate is line:
            self.gate = Line(0, dict(line.clock))

    def on_alloc(self, ident: int, device: int, nbytes: int, stream: int, address: int) -> None:
        op = self.enqueue(ident, stream).step(f"allocation of {nbytes} bytes at {address:#x}")
        for block in self.blocks.values():
            if address < block.address + block.nbytes and block.address < address + nbytes:
                raise OrderError(f"{op.name} overlaps {block.nbytes} bytes at {block.address:#x}, which are not freed")
        self.blocks[address] = Block(address, nbytes, op)

    def on_free(self, ident: int, device: int, address: int, nbytes: int, stream: int) -> None:
        op = self.enqueue(ident, stream).step(f"free of {nbytes} bytes at {address:#x}")
        block = self.blocks.pop(address, None)
        if block is None:
            raise OrderError(f"{op.name}: they are not allocated")
        if block.allocated is not None:
            must_follow(op, block.allocated, "that memory")
        for _, other, _ in block.uses:
            self.pairs += 1
            must_follow(op, other, "that memory")

    def on_copy(self, ident: int, stream: int, target: Any, source: Any) -> None:
        op = self.enqueue(ident, stream).step(f"copy of {source[0]:#x} to {target[0]:#x}")
        self.touch(op, source, READ)
        self.touch(op, target, WRITE)

    def on_fill(self, ident: int, stream: int, target: Any) -> None:
        self.touch(self.enqueue(ident, stream).step(f"fill of {target[0]:#x}"), target, WRITE)

    def on_host(self, ident: int, kind: str, span: Any) -> None:
        # whoever told the host that it may has passed the gate
        op = self.pass_gate(ident).step(f"the host's {kind} of {span[0]:#x}")
        self.touch(op, span, WRITE if kind == "write" else READ)

    # -- what must be ordered ----------------------------------------------------------------------------------

    def on_task(self, ident: int, number: int, name: str, kind: str, stream: int, accesses: Any) -> None:
        self.streams[stream].task = (f"task {number} '{name}' ({kind})", accesses)

    def on_withdrawn(self, ident: int, number: int) -> None:
        for line in self.streams.values():
            if line.task is not None and line.task[0].startswith(f"task {number} '"):
                line.task = None

    def begin_body(self, line: Line, op: Op) -> None:
        """The body of the task that is open on a stream: the first call, hold or record after its begin."""
        if line.task is None:
            return
        name, accesses = line.task
        line.task = None
        op.name = name
        for data, mode, span in accesses:
            self.access(op, data, mode)
            if span is not None:
                self.touch(op, span, mode)

    def access(self, op: Op, data: int, mode: int) -> None:
        """One data: reads commute; accumulations have memory of their own, and come before the next access."""
        writes, reads, sums = self.data.setdefault(data, ([], [], []))
        if mode != ACCUMULATE:
            for other in [*writes, *sums, *(reads if mode & WRITE else ())]:
                self.pairs += 1
                must_follow(op, other, f"data {data}")
        if mode & WRITE:
            self.data[data] = ([op], [], [])
        else:
            (reads if mode == READ else sums).append(op)

    def touch(self, op: Op, span: Any, mode: int) -> None:
        """The bytes of a strided array."""
        low, mask = bytes_of(*span[1:])
        low += span[0]
        if not mask:
            return
        block = self.block_at(low, mask.bit_length())
        writes = mode != READ
        if block is None:
            for part, piece in self.pieces(low, mask):
                self.pairs += part.use(piece, op, writes)
            return
        mask <<= low - block.address
        must_follow(op, block.allocated, f"memory at {block.address:#x}")
        if mode in (READ, RW) and mask & ~block.filled:
            raise OrderError(f"{op.name} reads memory at {block.address:#x} that nothing has filled")
        if writes:
            block.filled |= mask
        self.pairs += block.use(mask, op, writes)

    def block_at(self, low: int, nbytes: int) -> Block | None:
        for block in self.blocks.values():
            if block.address <= low < block.address + block.nbytes:
                if low + nbytes > block.address + block.nbytes:
                    raise OrderError(f"an array reaches out of {block.nbytes} bytes at {block.address:#x}")
                return block
        return None

    def pieces(self, low: int, mask: int) -> list[tuple[Block, int]]:
        """Return the chunks of host memory that `mask` at `low` lies in."""
        result = []
        number, offset = divmod(low, CHUNK)
        mask <<= offset
        while mask:
            piece = mask & ((1 << CHUNK) - 1)
            if piece:
                if number not in self.chunks:
                    self.chunks[number] = Block(number * CHUNK, CHUNK, None)
                result.append((self.chunks[number], piece))
            mask >>= CHUNK
            number += 1
        return result


def must_follow(op: Op, other: Op | None, what: str) -> None:
    if other is not None and not op.follows(other):
        raise OrderError(f"{op.name} is not ordered after {other.name}, and both use {what}")


def before(op: Op) -> Clock:
    """Return the clock at the start of an operation."""
    clock = dict(op.clock)
    clock[op.component] = op.index - 1
    return clock


@functools.lru_cache(4096)
def bytes_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """Offset of the lowest byte of an array from its first element, and a bit for each byte from there."""
    low = 0
    mask = (1 << itemsize) - 1
    for n, step in zip(shape, strides, strict=True):
        if n == 0:
            return 0, 0
        low += min((n - 1) * step, 0)
        row = mask
        for i in range(1, n):
            mask |= row << i * abs(step)
    return low, mask
