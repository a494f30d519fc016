"""The CPU driver: emulated devices on worker threads and NumPy.

It is a driver like any other, with real concurrency: bodies and copies that release the GIL overlap. ``shares_host``
gives one device that works in host memory; otherwise each emulated device has a memory of its own, so that a missing
transfer shows as a wrong result.
"""

from __future__ import annotations

import time

import cython
import numpy as np

from stf._drivers.loops import Loop, Loops

ALIGNMENT: cython.int = 64
SOME: cython.int = 32  # compiled calls, after which those are let go that have run;
LARGE: cython.int = 1 << 16  # and as many with arrays of so many bytes count as one more
WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}


class CpuDriver(QueueDriver):
    """Worker threads and NumPy, with `device_count` emulated devices.

    Parameters
    ----------
    device_count : int
        How many devices to emulate.
    shares_host : bool
        One device that works in host memory.
    workers : int
        Worker threads.
    capacity : sequence of int, optional
        Bytes of memory per device; 0 for no bound.
    """

    def __init__(self, device_count=1, shares_host=True, workers=1, capacity=None):
        QueueDriver.__init__(self, device_count, workers, capacity)
        self.shares_host = shares_host
        self.runs_inline = True
        self.adopts = capacity is None or not any(capacity)
        self.name = "cpu"
        self.memory = {}
        self.loops = Loops()
        self.pool = Pool() if cython.compiled else None
        self.waits_cheaply = cython.compiled

    def call(self, stream, body):
        if self.pool is not None and isinstance(body, HostCall):
            own: HostCall = body
            if own.compiled is not None and self.take_compiled(self.streams[stream], own):
                return 0
        return QueueDriver.call(self, stream, body)

    def take_compiled(self, lane, call):
        """Let the next mark on a stream give the pool the code of a call; return whether that may be.

        Not, if it comes after what the pool does not know.
        """
        waits: cython.int = 0
        if lane.head is not None or lane.busy or lane.task != cython.NULL or lane.priority:
            return False
        op = lane.first_wait
        while op is not None:
            is_over: cython.bint = op.uses != op.other.uses or op.other.chain.put >= op.sequence
            if not is_over and self.reached_now(op.other) < op.sequence:
                return False
            waits += 1
            op = op.next
        if self.chooser is not None or not self.pool.has_room():
            return False
        task = self.pool.task_for(call, waits)
        if task == cython.NULL:
            return False
        op = lane.first_wait
        while op is not None:
            if op.uses == op.other.uses and op.other.chain.put >= op.sequence:
                self.pool.follow(task, op.other.chain, op.sequence)
            op = op.next
        lane.task = task
        self.put_since += 1 + call.compiled.nbytes // LARGE
        return True

    def tell_compiled(self):
        if self.pool is not None:
            self.pool.collect()
            if not self.pool.see_to_ready():
                self.gate.enter()
                try:
                    self.call_once()
                finally:
                    self.gate.leave()
        return 0

    def let_go_compiled(self, all_of_them):
        if self.pool is not None and (all_of_them or self.put_since >= SOME):
            self.put_since = 0
            self.pool.collect()
            self.pool.let_go()
        return 0

    def ask_first(self):
        if self.pool is not None:
            self.pool.ask_first()
            self.pool.collect()
        return 0

    def share(self, job, count):
        if not isinstance(job, Loop):
            return QueueDriver.share(self, job, count)
        if self.pool is not None and count > 0 and self.pool.begin():
            cython.cast(Loop, job).let_help(self.pool, count)  # who leads it calls them
            self.gate.enter()
            try:
                self.see_to_helpers(count)
            finally:
                self.gate.leave()
        return 0

    def see_to_helpers(self, count):
        """Let workers go where jobs are done, until so many rest there."""
        there: cython.int = 0
        worker = self.staff
        while worker is not None:
            there += worker.in_pool
            worker = worker.next_worker
        while there < count and self.call_for_tasks():
            there += 1
        return 0

    def copy(self, stream, target, target_strides, source, source_strides, shape, itemsize, keep, number=0):
        what = target, target_strides, source, source_strides, shape, itemsize, keep, number
        return self.enqueue(stream, make_op(COPY, what))

    def watch_copies(self, watcher):
        """Call ``watcher(number, device, thread, start_ns, end_ns)`` after each copy."""
        self.copy_watcher = watcher

    def statistics(self):
        self.gate.enter()
        try:
            spare = len(self.spare)
            return len(self.streams) - spare, spare, self.workers, self.live_allocations, list(self.used)
        finally:
            self.gate.leave()

    # -- memory ------------------------------------------------------------------------------------------------

    def alloc(self, device, nbytes, stream):
        place = device + 1
        block = np.empty(max(nbytes, 1) + ALIGNMENT, np.uint8)
        start: cython.longlong = address_of(block)
        address: cython.longlong = (start + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        self.gate.enter()
        try:
            self.must_have_room(device, nbytes)
            used = self.used[place] + nbytes
            self.memory[address] = block
            self.used[place] = used
            self.live_allocations += 1
        finally:
            self.gate.leave()
        return address

    def owner(self, address):
        return self.memory.get(address)

    def free(self, device, address, nbytes, stream):
        return self.enqueue(stream, make_op(FREE, (device, address, nbytes)))

    def release(self, device, address, nbytes):
        """Take a block back now."""
        self.gate.enter()
        try:
            used = self.used[device + 1] - nbytes
            block = self.memory.pop(address)
            self.used[device + 1] = used
            self.live_allocations -= 1
        finally:
            self.gate.leave()
        return block

    def perform(self, stream, op):
        if op.kind == COPY:
            if is_called_off(op.body[6]):
                return 0
            start = time.perf_counter_ns()
            copy_strided(op.body)
            if self.copy_watcher is not None:
                end = time.perf_counter_ns()
                self.copy_watcher(op.body[7], stream.device, PyThread_get_thread_ident(), start, end)
        elif op.kind == FREE:
            self.release(*op.body)
        return 0


def array_at(address, shape, strides, dtype):
    """Return a NumPy array over raw memory; `strides` in bytes, of either sign. The caller keeps the memory alive."""
    import ctypes

    first, end = extent(address, strides, shape, np.dtype(dtype).itemsize)
    if first == end:
        return np.empty(shape, dtype)
    buffer = (ctypes.c_char * (end - first)).from_address(first)
    return np.ndarray(shape, dtype, buffer, address - first, strides)


def copy_strided(what):
    target, target_strides, source, source_strides, shape, itemsize = what[:6]
    word = WORDS.get(itemsize) or np.dtype((np.void, itemsize))
    np.copyto(array_at(target, shape, target_strides, word), array_at(source, shape, source_strides, word))
