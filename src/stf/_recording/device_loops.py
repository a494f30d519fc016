"""Loops on a device: a recording of small kernels as one launch, whose blocks run queues of steps.

`kernels.device_loops` has the kernel, and says what it is for. Here a recording becomes what that kernel reads::

    nodes ──kernels cut in pieces──▶ steps ──`schedules`: planned, checked──▶ queues ──▶ one block of memory
                 │ a node is something else: `Loops.reasons` say what, and the recording is a graph of the driver's

The memory holds the loop's own two words (how often it was launched, and how many of its blocks are done in this
launch), the queues, the steps, what these wait for, a word for each step that others wait for, and the arguments. A
word says that its step is done if it is the number of the launch, so nothing is cleared between launches.

All blocks must run at once, since they wait for each other: the launch is a cooperative one, which the driver refuses
where that is not so. It is captured as the only node of the driver's graph (`device_graphs`), which orders launches,
waits for bodies on the host, and keeps what they use. With other data than those that were recorded, that graph has the
nodes of the recording.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stf._port import native
from stf._port.native import NotNativeError
from stf._recording.persistent import of_real
from stf._recording.schedules import StepList, check, spread, with_waits
from stf._recording.variants import Arguments, PlayThisTime
from stf.errors import DriverError

__all__ = ["launch_in", "prepare"]

log = logging.getLogger("stf")
EACH = 4  # queues of a multiprocessor, at most
THREADS = 64  # of a block, at least
BLOCK_NS = 1_000.0  # that a block of a kernel takes, about
HOP_NS = 700.0  # until another block sees that a step is done
FEW = 8  # steps after each of which as many may come; of more, one step waits for all
MOST = 1 << 20  # steps
MOST_WORDS = 480  # values of parameters: what the arguments of one kernel hold
ELEMENTS = 4096  # of a fill or a copy in a piece
LIMIT_NS = 600_000_000_000  # that a block waits for another one, before it stops the device
MOST_BODIES = 64  # that are compiled as one kernel: 40 take 11 s
LINE = 64


class Work(NamedTuple):
    """What a step does: a body, or what `stf._port.native` names; its arguments; and how many blocks it has."""

    body: Any
    words: bytes
    blocks: int
    accesses: list[tuple[int, bool]]


class DeviceSteps(StepList):
    """The steps of a recording, for `schedules` and for a loop on the device at an execution place."""

    def __init__(self, place: int, memory: int, pieces: int, name: str = "") -> None:
        super().__init__()
        self.place, self.memory, self.pieces, self.name = place, memory, pieces, name
        self.bodies: dict[int, Any] = {}  # by the addresses of their kernels
        self.steps: list[tuple[Any, int, int, int, int]] = []  # what it does; of its arguments and blocks, where
        self.table = bytearray()
        self.threads = THREADS
        self.words = Words()
        self.waiting: set[int] = set()  # threads of the kernels whose threads wait for each other

    def add_node(self, program: Any, number: int, before: list[int]) -> list[int]:
        """Add a node after some steps."""
        place, operations = program.content_of(number)
        for name, what in operations:
            if place != self.place and name not in ("keep", "run"):
                raise NotNativeError(f"it has tasks at other places than that of its launch, {self.name}")
            before = self.add_operation(name, what, before)
        return before

    def add_operation(self, name: str, what: Sequence[Any], before: list[int]) -> list[int]:
        """Add one operation of a node after some steps; return the steps after which it is done."""
        if name == "keep":
            return before
        if name == "run" and what[1] is None and what[2] is None and hasattr(what[0], "program"):
            return self.add(what[0].program, before)
        if name == "launch":
            return self.add_work(self.launch(*what[0]), before, what[1] if len(what) > 1 else None)
        if name == "fill":
            return self.add_work(self.fill(of_real(what[0]), what[1]), before)
        if name == "copy":
            return self.add_work(self.copy(of_real(what[0]), of_real(what[1])), before)
        raise NotNativeError(REASONS.get(name, f"it has what is no kernel ({name})"))

    def launch(self, header: tuple[int, ...], content: bytes, pointers: list[tuple[int, Any]]) -> Work:
        """Return what the launch of a kernel does."""
        function, *extents, shared = header[:8]
        body = native.loop_bodies.get(function)
        if body is None:
            raise NotNativeError("it has a kernel that is no body in Python of parallel_for or launch")
        if function not in self.bodies and body.reads_cuda:
            raise NotNativeError(
                "the body of a kernel reads names of numba.cuda, which tell of other threads in a loop"
            )
        threads = extents[3] * extents[4] * extents[5]
        if shared:
            raise NotNativeError("it has a kernel with shared memory of a size that its launch says")
        if threads > 1024 or extents[0] * extents[1] * extents[2] >= 1 << 31:
            raise NotNativeError("it has a kernel with too many blocks")
        self.bodies[function] = body
        self.threads = max(self.threads, -(-threads // 32) * 32)
        if body.waits:
            self.waiting.add(threads)
        arguments = bytearray(content)
        accesses: dict[int, bool] = {}
        for offset, recorded in pointers:
            replica = of_real(recorded)
            arguments[offset : offset + 8] = int(replica.address).to_bytes(8, "little")
            accesses[id(replica)] = accesses.get(id(replica), False) or offset not in body.read_only
        words = np.array(extents, np.int32).tobytes() + bytes(arguments)
        return Work(function, words, extents[0] * extents[1] * extents[2], list(accesses.items()))

    def fill(self, target: Any, pattern: bytes) -> Work:
        """Return what the fill of an array does."""
        layout = target.layout
        if layout.interface is not None or layout.packed() is not layout or 8 % len(pattern):
            raise NotNativeError("it fills an array with gaps, or of elements of more than 8 bytes")
        self.must_be_here(target)
        unit = 8 if layout.nbytes % 8 == 0 and target.address % 8 == 0 else 1
        value = int.from_bytes(pattern * (8 // len(pattern)), "little", signed=True)
        count = layout.nbytes // unit
        words = np.array([target.address, count, ELEMENTS, value, unit], np.int64).tobytes()
        return Work(native.DEVICE_FILL, words, -(-count // ELEMENTS), [(id(target), True)])

    def copy(self, target: Any, source: Any) -> Work:
        """Return what a copy does."""
        self.must_be_here(target)
        self.must_be_here(source)
        body = native.copies(target, source, (target.address, source.address), 0.0)
        width, rows, *pitches = body.stages[0][0].slots[3:]
        to, from_, slices, *across = pitches
        all_of_it = [target.address, source.address, width, to, from_, *across]
        unit = 1 if any(number % 8 for number in all_of_it) else 8
        count = width // unit * rows * slices
        words = [target.address, source.address, ELEMENTS, unit, width // unit, rows, to, from_, slices, *across]
        accesses = [(id(target), True), (id(source), False)]
        return Work(native.DEVICE_COPY, np.array(words, np.int64).tobytes(), -(-count // ELEMENTS), accesses)

    def must_be_here(self, replica: Any) -> None:
        """Raise NotNativeError for memory of another place."""
        if replica.place != self.memory:
            raise NotNativeError("it copies from or to another place")

    def add_work(self, work: Work, before: list[int], late: Any = None) -> list[int]:
        """Add the steps of what a node does after some steps; return them. `late` are arguments that are parameters."""
        if work.blocks == 0:
            return before
        at = len(self.table) // 8
        if late is not None:
            self.words.add(late, work.words[native.LAUNCH_BYTES :], 8 * at + native.LAUNCH_BYTES)
        self.table += work.words
        self.table += bytes(-len(self.table) % 8)
        count = min(work.blocks, self.pieces)
        if count * len(before) > FEW * FEW:
            before = [self.add_own(before, (native.DEVICE_NOTHING, 0, 0, 0, 0), [])]
        edges = [work.blocks * i // count for i in range(count + 1)]
        size = -(-len(work.words) // 8)
        near = size if size <= native.NEAR_WORDS else 0
        accesses = work.accesses  # one object: the pieces write beside each other
        return [
            self.add_own(before, (work.body, at, first, last, near), accesses)
            for first, last in itertools.pairwise(edges)
        ]

    def add_own(self, needs: list[int], step: tuple[Any, int, int, int, int], accesses: Any) -> int:
        """Add a step; return its number."""
        if len(self.needs) == MOST:
            raise NotNativeError(f"it has more than {MOST} steps")
        self.steps.append(step)
        return self.add_step(needs, max(step[3] - step[2], 0) * BLOCK_NS, accesses)


REASONS = {
    "call": "it calls Python on the host",
    "captured": "it has what a library or a body with a stream puts on the device",
    "run": "it has another graph, a loop or a branch in it",
}


class Words(Arguments):
    """What of the table depends on parameters: a kernel writes it before the loop, which gets the values as arguments.

    The arguments are where the entries of `targets` are and how many, where the table is, and the values.
    """

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}  # of the values, by the parameter and its type
        self.sources: list[tuple[Any, bytes, int, int]] = []  # of each value: what packs it, and where it is then
        self.targets: list[tuple[int, int, int, int]] = []  # where it goes, its number, its bytes
        self.head = b""

    def add(self, late: Any, recorded: bytes, at: int) -> None:
        """Add the arguments of a launch that are parameters; the block of all is at a place in the table."""
        for offset, nbytes, param, dtype in late.parts():
            number = self.numbers.setdefault((id(param), nbytes, dtype), len(self.sources))
            if number == len(self.sources):
                self.sources.append((late, recorded, offset, nbytes))
            self.targets.append((at + offset, number, nbytes, 0))
        if len(self.sources) > MOST_WORDS:
            raise NotNativeError(f"its kernels take more than {MOST_WORDS} different values of parameters")

    def packed(self, values: Any, recorded: bytes | None) -> bytes:
        """Return the arguments of the kernel that writes the values of a launch."""
        found = bytearray(self.head)
        known: dict[int, bytes] = {}
        for late, block, offset, nbytes in self.sources:
            content = known.get(id(late))
            if content is None:
                content = known[id(late)] = late.packed(values, block)
            found += content[offset : offset + nbytes].ljust(8, b"\0")
        return bytes(found.ljust(len(self.head) + 8 * MOST_WORDS, b"\0"))


class DeviceLoop:
    """The loop of a recording: its place, its function, and how that is launched; and what is written before."""

    def __init__(self, place: int, function: int, shape: tuple[int, ...], arguments: bytes) -> None:
        self.place, self.function, self.shape, self.arguments = place, function, shape, arguments
        self.words: Words | None = None
        self.writer = 0
        self.description = ""
        self.is_launched = False  # a graph has it


def prepare(frame: Any, recording: Any) -> None:
    """Make the loop of a recording, once; whoever launches it next captures it."""
    loops = recording.loops
    if loops.on_device is not None or loops.reasons:
        return
    try:
        loops.on_device = made(frame, recording, frame.engine.root.kernels.at(frame.task.where))
    except Exception as error:  # of a compiler, the driver, or a schedule that is refused: a graph does the same
        if not isinstance(error, NotNativeError):
            log.info("%s is no persistent loop: %r", recording.description, error)
        loops.reasons = [str(error) or type(error).__name__]


def made(frame: Any, recording: Any, at: Any) -> DeviceLoop:
    """Return a loop. NotNativeError if there can be none."""
    engine, where = frame.engine, frame.task.where
    name = engine.place(where).name
    steps = DeviceSteps(where, engine.place(where).memory, EACH * at.multiprocessors(), name)
    steps.add(recording.program, [])
    if not steps.needs:
        raise NotNativeError("there is nothing to do")
    if steps.waiting - {steps.threads}:
        sizes = ", ".join(map(str, sorted(steps.waiting)))
        raise NotNativeError(
            f"threads of a kernel wait for each other in blocks of {sizes}, and the loop has {steps.threads}"
        )
    functions = list(steps.bodies)
    bodies = list(steps.bodies.values())
    if not 0 < len(bodies) <= MOST_BODIES:
        raise NotNativeError(f"it has {len(bodies)} different kernels, and a loop has 1 to {MOST_BODIES}")
    image = bodies[0].image(bodies, steps.threads, at.capability())
    function = at.function(image, "stf_loop")
    workers = min(at.blocks_at_once(function, steps.threads), EACH * at.multiprocessors())
    if workers == 0:
        raise NotNativeError("a block of it needs more registers or shared memory than there are")
    order, _ = spread(steps.needs, steps.costs, workers, HOP_NS)
    queues = with_waits(steps.needs, [queue for queue in order if queue])
    check(steps.needs, steps.accesses, queues)
    numbers = {function: number for number, function in enumerate(functions)}
    content, offsets = written(steps, queues, numbers)
    first = recording.keep_in_memory(frame, content)
    arguments = np.array([*[first + offset for offset in offsets[:6]], LIMIT_NS], np.int64).tobytes()
    loop = DeviceLoop(where, function, (len(queues), 1, 1, steps.threads, 1, 1, 0), arguments)
    if steps.words.sources:
        loop.words, loop.writer = steps.words, at.function(WRITER, "stf_words")
        loop.words.head = np.array(
            [first + offsets[6], len(steps.words.targets), first + offsets[4]], np.int64
        ).tobytes()
    waits = sum(len(step.waits) for queue in queues for step in queue)
    loop.description = f"a persistent loop on {name}: {len(steps.needs)} steps, {len(queues)} queues, {waits} waits"
    return loop


def written(steps: DeviceSteps, queues: list[Any], numbers: dict[int, int]) -> tuple[bytes, list[int]]:
    """Return the memory of a loop, and where its parts begin: as `kernels.device_loops` names them, and targets."""
    bounds, rows, position, words = [], [], 0, 0
    waits: list[int] = []
    for queue in queues:
        bounds.append((position, position + len(queue)))
        position += len(queue)
        for step in queue:
            body, *where = steps.steps[step.number]
            rows.append((numbers.get(body, body), len(waits), len(step.waits), step.done, *where))
            waits += step.waits
            words = max(words, step.done + 1)
    parts = [
        np.array(bounds, np.int32).tobytes(),
        np.array(rows, np.int32).tobytes(),
        np.array(waits, np.int32).tobytes(),
        bytes(4 * words),
        bytes(steps.table),
        bytes(8),
        np.array(steps.words.targets, np.int32).tobytes(),
    ]
    content, offsets = bytearray(), []
    for part in parts:
        content += bytes(-len(content) % LINE)
        offsets.append(len(content))
        content += part
    return bytes(content), offsets


def launch_in(frame: Any, recording: Any) -> bool:
    """Put the launch of a recording's loop on a slot that is captured; return whether it has one for this launch."""
    loop = recording.loops.on_device
    if loop is None or frame.launch.rebinding is not None or frame.engine.watches or frame.task.where != loop.place:
        return False
    try:
        if loop.words is not None:
            frame.put_function(loop.writer, WRITER_SHAPE, [0, 8, 16, 24], loop.words, False)
        frame.put_function(loop.function, loop.shape, list(range(0, len(loop.arguments), 8)), loop.arguments, True)
    except DriverError as error:  # such as too few multiprocessors for all of its blocks at once
        recording.loops.on_device, recording.loops.reasons = None, [str(error)]
        raise PlayThisTime from error  # the next launch is a graph of the recorded nodes
    loop.is_launched = True
    return True


WRITER_SHAPE = (32, 1, 1, 256, 1, 1, 0)
WRITER = f"""
.version 7.8
.target sm_70
.address_size 64
.visible .entry stf_words(
  .param .u64 targets, .param .u64 count, .param .u64 table, .param .align 8 .b8 words[{8 * MOST_WORDS}])
{{
  .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
  mov.u32 %r5, %nctaid.x; mul.lo.u32 %r5, %r5, %r2;
  cvt.u64.u32 %rd1, %r4; cvt.u64.u32 %rd2, %r5;
  ld.param.u64 %rd3, [targets]; ld.param.u64 %rd4, [count]; ld.param.u64 %rd5, [table];
  mov.b64 %rd6, words; cvta.param.u64 %rd6, %rd6;
NEXT:
  setp.ge.u64 %p1, %rd1, %rd4;
  @%p1 bra DONE;
  shl.b64 %rd7, %rd1, 4; add.u64 %rd7, %rd7, %rd3;
  ld.u32 %r6, [%rd7]; ld.u32 %r7, [%rd7+4]; ld.u32 %r8, [%rd7+8];
  cvt.u64.u32 %rd8, %r6; add.u64 %rd8, %rd8, %rd5;
  mul.wide.u32 %rd9, %r7, 8; add.u64 %rd9, %rd9, %rd6;
  ld.u64 %rd10, [%rd9];
  setp.eq.u32 %p2, %r8, 8; setp.eq.u32 %p3, %r8, 4; setp.eq.u32 %p4, %r8, 2; setp.eq.u32 %p5, %r8, 1;
  @%p2 st.u64 [%rd8], %rd10;
  @%p3 st.u32 [%rd8], %rd10;
  @%p4 st.u16 [%rd8], %rd10;
  @%p5 st.u8 [%rd8], %rd10;
  add.u64 %rd1, %rd1, %rd2;
  bra NEXT;
DONE:
  ret;
}}
""".encode()
