"""Is everything ordered that must be? Judged by the calls that CUDA's driver library got (see cudatrace.cpp).

What orders: the order of a CUDA stream; a wait for a recorded event; the host, which enqueues after what it has waited
for or seen complete. Host threads know of each other what was so when their calls began. Nothing that stf says about
its streams, events or waits is believed. What its bodies use, and when they run, is taken from its recordings, whose
entries are among the notes as marks; the rules for what must be ordered are those of `stf.testing.check_order`.
"""

from __future__ import annotations

import bisect
import ctypes
import itertools

from stf._drivers.wrappers.recording import Recording
from stf._testing.order import ACCUMULATE, READ, WRITE, Block, Order, OrderError

__all__ = ["CallOrder", "OrderError", "Trace"]


class Trace:
    """What was noted since `start`; `recording` makes the recordings whose entries are marked."""

    def __init__(self):
        self.library = ctypes.PyDLL("libcuda.so.1")
        self.library.cudatrace_stop.restype = ctypes.c_char_p
        self.library.cudatrace_drop.argtypes = [ctypes.c_long]
        self.library.cudatrace_drop.restype = ctypes.c_long
        self.library.cudatrace_mark.argtypes = [ctypes.c_char_p]
        self.entries, self.numbers = {}, itertools.count()
        self.order = CallOrder()

    def recording(self, driver):
        while hasattr(driver, "inner"):
            driver = driver.inner
        return MarkedRecording(self, driver)

    def start(self):
        self.entries.clear()
        self.library.cudatrace_start()

    def stop(self):
        """The notes, as text."""
        return self.library.cudatrace_stop().decode()

    def drop(self, k):
        """Swallow the k-th wait from now on, none for 0; return how many there were since the last time."""
        return self.library.cudatrace_drop(k)

    def check(self):
        """Stop, and prove the order; return how many pairs were found ordered."""
        return self.order.read_notes(self.stop(), self.entries)


class MarkedRecording(Recording):
    """A recording whose entries are marked among the notes."""

    def __init__(self, trace, driver):
        super().__init__()
        self.trace, self.inner = trace, driver

    def note(self, verb, *args):
        from stf._drivers.cuda.streams import pointer_of

        super().note(verb, *args)
        pointer = pointer_of(self.inner, args[0]) if verb in ("issue", "launch") else 0
        if verb == "issue":
            self.inner.submitter.settle()  # what the body comes after is with CUDA when it begins
        number = next(self.trace.numbers)
        self.trace.entries[number] = (self, verb, args, pointer)
        self.trace.library.cudatrace_mark(str(number).encode())


class CallOrder(Order):
    """Reads notes, and raises OrderError at the first pair that is not ordered."""

    def __init__(self):
        super().__init__()
        self.events, self.asked = {}, {}
        self.known, self.tokens = [], {}
        self.tasks, self.bodies, self.kernels = {}, {}, {}

    def read_notes(self, text, entries):
        """Check some notes; return the number of pairs. Streams, events and memory live on until the next ones."""
        before = self.pairs
        self.chunks.clear()  # the host has waited for everything
        self.tokens.clear()
        self.known = merged(spans_of(entries.values()))
        for line in text.splitlines():
            ident, verb, *rest = line.split()
            if verb == "mark":
                self.mark(int(ident), *entries[int(rest[0])])
            else:
                getattr(self, f"call_{verb}")(int(ident), *rest)
        return self.pairs - before

    # -- calls -----------------------------------------------------------------------------------------------------

    def call_create(self, ident, stream):
        self.pass_gate(ident)
        self.streams[int(stream)] = self.new_line()

    def call_destroy(self, ident, stream):
        self.streams.pop(int(stream), None)

    def at(self, ident, stream):
        """The line of a stream, about to be given something."""
        if int(stream) not in self.streams:  # a default stream, or one from before the trace
            self.streams[int(stream)] = self.new_line()
        return self.enqueue(ident, int(stream))

    def call_record(self, ident, stream, event):
        self.events[event] = self.at(ident, stream).step("record").clock

    def call_wait(self, ident, stream, event):
        self.at(ident, stream).join(self.events.get(event, {}))

    def call_before(self, ident, call, what):
        if call.startswith("cuEvent"):
            clock = self.events.get(what, {})
        else:
            clock = self.streams[int(what)].clock if int(what) in self.streams else {}
        self.asked[ident] = dict(clock)

    def call_after(self, ident, call, what, code):
        clock = self.asked.pop(ident, {})
        if code == "0":
            self.pass_gate(ident).join(clock)  # and so does whoever makes the next call: the driver notes it

    def call_alloc(self, ident, stream, nbytes, address):
        self.at(ident, stream)
        self.on_alloc(ident, 0, int(nbytes), int(stream), int(address))

    def call_free(self, ident, stream, address):
        self.at(ident, stream)
        if int(address) in self.blocks:  # else it was allocated before the trace
            self.on_free(ident, 0, int(address), self.blocks[int(address)].nbytes, int(stream))

    def call_copy(self, ident, stream, target, source, nbytes):
        shape = (int(nbytes),), (1,), 1
        self.copy(ident, stream, (int(target), *shape), (int(source), *shape))

    def call_block(self, ident, stream, target, pitch, height, source, source_pitch, source_height, *extents):
        width, rows, slices = map(int, extents)
        spans = []
        for address, step, count in ((target, pitch, height), (source, source_pitch, source_height)):
            strides = (int(step) * int(count), int(step), 1)
            spans.append((int(address), (slices, rows, width), strides, 1))
        self.copy(ident, stream, *spans)

    def call_set(self, ident, stream, target, pitch, width, height):
        op = self.at(ident, stream).step(f"fill of {int(target):#x}")
        self.touch(op, (int(target), (int(height), int(width)), (int(pitch), 1), 1), WRITE)

    def copy(self, ident, stream, target, source):
        op = self.at(ident, stream).step(f"copy of {source[0]:#x} to {target[0]:#x}")
        self.touch(op, source, READ)
        self.touch(op, target, WRITE)

    def call_launch(self, ident, stream):
        line = self.at(ident, stream)
        op = line.step(f"a kernel on stream {stream}")
        key = self.kernels.pop(int(stream), None)
        if key is not None:
            self.begin(key, line, op)

    # -- what stf says ---------------------------------------------------------------------------------------------

    def mark(self, ident, recording, verb, args, pointer):
        key = (recording, args[0])
        if verb == "task":
            number, name, kind, stream, accesses = args
            self.tasks[(recording, stream)] = (f"task {number} '{name}' ({kind})", accesses)
        elif verb == "issue":
            line = self.at(ident, pointer)
            self.begin(key, line, line.step("a body"))
        elif verb == "launch":
            self.kernels[pointer] = key
        elif verb == "entered":
            line = self.pass_gate(ident)
            self.begin(key, line, line.step("a body"))
        elif verb == "record":
            self.end(key)
            self.pass_gate(ident)
            self.tasks.pop(key, None)
        elif verb == "call":
            self.calls[(recording, args[1])] = self.tasks.pop(key, None)
        elif verb == "body":
            self.tasks[(recording, "call", args[0])] = self.calls.pop(key)
            line = self.pass_gate(ident)
            self.begin((recording, "call", args[0]), line, line.step("a body"))
        elif verb == "body_end":
            self.end((recording, "call", args[0]))
            self.pass_gate(ident)
        elif verb == "host":
            self.on_host(ident, *args)

    def begin(self, key, line, op):
        """A body begins: what it uses must be ready."""
        task = self.tasks.pop(key, None)
        if task is None:
            return
        op.name, accesses = task
        self.bodies[key] = (line, op)
        for data, mode, span in accesses:
            if span is not None:
                self.touch(op, span, mode)
            elif mode != ACCUMULATE:  # a token: as if it were memory
                token = self.tokens.setdefault((key[0], data), Block(0, 1, None))
                self.pairs += token.use(1, op, mode != READ)

    def end(self, key):
        """A body has done, or enqueued, all it does: what comes later must be ordered after this."""
        line, op = self.bodies.pop(key, (None, None))
        if op is not None:
            op.index = line.step(op.name).index

    def touch(self, op, span, mode):
        """Memory that stf allocated, or that its tasks use; a body's temporaries are not looked at."""
        if self.block_at(span[0], 1) is None:
            index = bisect.bisect_right(self.known, (span[0], 1 << 64)) - 1
            if index < 0 or self.known[index][1] <= span[0]:
                return
        super().touch(op, span, mode)


def spans_of(entries):
    """(lowest address, the one past the highest) of what bodies and the host use."""
    for _, verb, args, _ in entries:
        accesses = args[4] if verb == "task" else [(0, 0, args[1])] if verb == "host" else ()
        for _, _, span in accesses:
            if span is None or 0 in span[1]:
                continue
            steps = [(n - 1) * step for n, step in zip(span[1], span[2], strict=True)]
            low, high = sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)
            yield span[0] + low, span[0] + high + span[3]


def merged(spans):
    """Intervals in order, those that overlap made one."""
    result = []
    for low, high in sorted(spans):
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result
