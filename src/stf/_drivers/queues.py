"""Streams as queues, served in order by a few worker threads: what drivers whose bodies run on the host are made of.

A stream is, at any moment::

    idle ──push──▶ ready ──a worker takes it──▶ busy ──▶ idle, ready again, or
      │                                                   blocked (its head waits for another stream)
      └──enter──▶ held (a with-block runs on the caller's thread) ──record──▶ idle

Under the gate nothing is allocated: who waits, and which workers are idle, are chains through the objects themselves.
So no work is lost, and no worker dies, where memory runs out.
"""

from __future__ import annotations

import _thread
import sys
import time

import cython

from stf._drivers.workers import Workers, kind_of_thread, reserve
from stf._support.sync import make_baton

HIGHEST = -5  # priority, as on CUDA devices
PATIENCE_S = (0.0, 0.001, 0.01, 0.1, 1.0)  # how long work that needs memory waits for it, again and again


@cython.freelist(256)
@cython.no_gc
@cython.cclass
class Op:
    """One entry of a stream's queue."""


def is_called_off(keep):
    """Return whether a copy, whose turn has come, is not to be done: see `Driver.copy`."""
    return len(keep) > 2 and keep[2]() is not None


def make_op(kind, body):
    op: Op = Op.__new__(Op)
    op.kind = kind
    op.body = body
    return op


@cython.cclass
class Waiter:
    """Who waits until a stream gets to a number: a stream that is blocked, or a thread that waits for a `baton`."""


def serve(me):
    """Work for one driver after the other, until nobody wants the thread any more."""
    worker: Worker = me
    worker.ident = PyThread_get_thread_ident()
    worker.native = _thread.get_native_id()
    driver: QueueDriver = worker.driver
    while driver is not None or worker.is_kept:
        pool: Pool = None
        if driver is not None:
            driver.work(worker)
            if worker.driver is driver and driver.pool is not None and driver.pool.is_used():
                pool = driver.pool
            driver = None  # who rests keeps no driver alive
        worker.in_pool = pool is not None
        is_needed: cython.bint = worker.sleeper.rest(pool)
        worker.in_pool = False
        pool = None
        driver = worker.driver
        is_idle: cython.bint = driver is not None and driver.leave_idle(worker)  # it was called for the last driver
        if is_needed and not is_idle:
            worker.sleeper.rest(None)  # it was called meanwhile
            driver = worker.driver


class Stream(Waiter):
    """A queue of operations, done one after the other."""

    def __init__(self, index, device):
        self.index = index
        self.device = device
        self.mark = make_op(RECORD, None)


class QueueDriver(Driver):
    """Streams and workers; subclasses add memory, copies, and devices of their own.

    Parameters
    ----------
    device_count : int
        How many devices there are.
    workers : int
        Worker threads.
    capacity : sequence of int, optional
        Bytes of memory per device; 0 for no bound.
    """

    def __init__(self, device_count, workers, capacity=None):
        self.device_count = device_count
        self.used = [0] * (device_count + 1)
        self.capacity = [0, *(capacity or [0] * device_count)]
        self.gate = Gate()
        self.streams = []
        self.spare = []
        self.max_workers = max(workers, 1)
        self.idle = Workers()
        self.errors = []
        self.helpers = []
        self.loss_watchers = set()

    # -- streams and events ------------------------------------------------------------------------------------

    def stream_create(self, device, priority=0):
        self.gate.enter()
        try:
            index = self.spare.pop() if self.spare else len(self.streams)
            if index == len(self.streams):
                self.streams.append(None)
            stream: Stream = Stream(index, device)
            stream.priority = priority
            if self.pool is not None:
                stream.chain = Chain(stream)
                self.wake_reached()  # perhaps the stream that this one replaces, which goes then
            self.streams[index] = stream
            return index
        finally:
            self.gate.leave()

    def priorities(self, device):
        return 0, HIGHEST

    def stream_destroy(self, stream):
        self.gate.enter()
        try:
            self.spare.append(stream)
        finally:
            self.gate.leave()
        return 0

    def stream_enter(self, stream):
        if QueueDriver.try_enter(self, stream):
            return 0
        baton = make_baton()
        op = make_op(HOLD, baton)
        self.enqueue(stream, op)
        try:
            self.block(baton, -1.0)
        except BaseException:
            self.release_hold(self.streams[stream], op)
            raise
        return 0

    def try_enter(self, stream):
        lane: Stream = self.streams[stream]
        self.gate.enter()
        try:
            if not self.is_idle(lane):
                return False
            lane.busy = lane.held = True
            return True
        finally:
            self.gate.leave()

    def block(self, baton, timeout_s):
        """Wait for a baton; a worker that waits inside a body lends its place to another."""
        lends = self.owns_thread(PyThread_get_thread_ident())
        if lends:
            self.lend(1)
        elif self.is_short and self.has_work():
            self.hire_again()
        leaves_core: cython.bint = self.pool is not None and self.pool.is_used()
        if leaves_core:
            self.see_to_tasks()
        try:
            if cython.compiled:
                PyErr_CheckSignals()  # of a signal that has come, the system wakes nobody
            return baton.acquire(True, -1 if timeout_s < 0 else timeout_s)
        finally:
            if leaves_core:
                self.pool.change_waiting(-1)
            if lends:
                self.lend(-1)

    def park(self, baton, timeout_s):
        return self.block(baton, timeout_s)

    def runners(self, stream, sequence):
        found = set()
        reached = {}
        queue = [(self.streams[stream], sequence or (1 << 62))]
        self.gate.enter()
        try:
            while queue:
                item, wanted = queue.pop()
                lane: Stream = item
                if lane.completed >= wanted or reached.get(lane, 0) >= wanted:
                    continue
                reached[lane] = wanted
                if lane.runner:
                    found.add(lane.runner)
                op = lane.head
                while op is not None and not (op.kind == RECORD and op.sequence >= wanted):
                    if op.kind == WAIT:
                        queue.append((op.other, op.sequence))
                    op = op.next
        finally:
            self.gate.leave()
        return found

    def has_work(self):
        """Return whether there is something that a worker could do now."""
        return self.ready > 0 or (self.pool is not None and self.pool.has_ready())

    def lend(self, places):
        """Let so many workers more exist."""
        self.gate.enter()
        try:
            if places > 0 and self.has_work() and self.idle.first is None and not self.hire():
                raise MemoryError("no thread could be started for work that is waited for")
            self.max_workers += places
        finally:
            self.gate.leave()
        return 0

    def release_hold(self, lane: Stream, op: Op):
        """An interrupted `stream_enter` must not leave the stream held."""
        self.gate.enter()
        try:
            op.body = None
            if lane.held:
                lane.held = lane.busy = False
                self.advance(lane)
                self.settle()
        finally:
            self.gate.leave()

    def enqueue(self, stream, op):
        """Put an operation at the end of a stream."""
        self.gate.enter()
        try:
            self.push(self.streams[stream], op)
        finally:
            self.gate.leave()
        return 0

    def record(self, stream, sequence):
        lane: Stream = self.streams[stream]
        op: Op = None
        if lane.head is not None or (lane.busy and not lane.held):
            op = self.take_mark(lane, sequence)
        self.gate.enter()
        try:
            if lane.held:
                lane.held = False
                lane.busy = False
                if lane.head is not None:
                    self.advance(lane)
                    self.settle()
            if cython.compiled and lane.task != cython.NULL and lane.head is None and not lane.busy:
                if self.pool.may_put(lane.task):
                    task, lane.task = lane.task, cython.NULL
                    lane.first_wait = lane.last_wait = None
                    if not self.pool.put(lane.chain, sequence, task):
                        self.call_once()
                    return 0
                self.queue_waits(lane)
            if self.is_idle(lane) and self.reach(lane, sequence):
                self.settle()
            else:
                self.push(lane, self.take_mark(lane, sequence) if op is None else op)
        finally:
            self.gate.leave()
        return 0

    def take_mark(self, lane, sequence):
        """Return a mark, which a stream has ready: the end of a task must not fail for want of memory."""
        op = lane.mark
        if op is None:
            op = make_op(RECORD, None)
        op.sequence = sequence
        try:
            lane.mark = make_op(RECORD, None)
        except MemoryError:
            lane.mark = None  # the next one is made when it is needed
        return op

    def wait_event(self, stream, other, sequence):
        op = make_op(WAIT, None)
        op.other = self.streams[other]
        op.sequence = sequence
        op.uses = op.other.uses
        if self.pool is None:
            return self.enqueue(stream, op)
        lane: Stream = self.streams[stream]
        self.gate.enter()
        try:
            if lane.head is not None or lane.busy:
                return self.push(lane, op)
            if lane.first_wait is None:
                lane.first_wait = op
            else:
                lane.last_wait.next = op
            lane.last_wait = op
            return 0
        finally:
            self.gate.leave()

    def completed(self, stream):
        lane: Stream = self.streams[stream]
        if self.pool is not None:
            self.reached_now(lane)
            self.pool.collect()
        return lane.completed

    def synchronize(self, stream, sequence, timeout_s):
        return self.await_number(self.streams[stream], sequence, timeout_s)

    def await_number(self, lane, sequence, timeout_s):
        """Block until `lane` has got to a number; False if the time ran out first."""
        try:
            if self.reached_now(lane) >= sequence:
                return True
            waiter: Waiter = Waiter()
            waiter.baton = baton = make_baton()
            waiter.wanted = sequence
            self.gate.enter()
            try:
                if self.has_reached(lane, sequence):
                    return True
                waiter.next_waiter = lane.waiters
                lane.waiters = waiter
            finally:
                self.gate.leave()
            return self.block(baton, timeout_s)
        finally:
            if self.pool is not None:
                self.pool.collect()
                self.pool.let_go()

    # -- work --------------------------------------------------------------------------------------------------

    def call(self, stream, body):
        return self.enqueue(stream, make_op(CALL, body))

    def share(self, job, count):
        for at in range(self.max_workers):
            if count <= 0:
                return 0
            if at == len(self.helpers):
                self.helpers.append(self.stream_create(-1))
            self.gate.enter()
            try:
                is_idle: cython.bint = self.is_idle(self.streams[self.helpers[at]])
            finally:
                self.gate.leave()
            if is_idle:
                self.call(self.helpers[at], job)
                count -= 1
        return 0

    def watch_loss(self, watcher):
        self.loss_watchers.add(watcher)

    def ignore_loss(self, watcher):
        self.loss_watchers.discard(watcher)

    def owns_thread(self, ident):
        wanted: cython.ulonglong = ident
        worker = self.staff
        while worker is not None and worker.ident != wanted:
            worker = worker.next_worker
        return worker is not None

    def handle(self, stream):
        return None

    def must_have_room(self, device, nbytes):
        """Raise MemoryError if a device's memory would not do."""
        place: cython.int = device + 1
        if place > 0 and self.capacity[place] and self.used[place] + nbytes > self.capacity[place]:
            raise MemoryError(f"{nbytes} bytes asked, {self.capacity[place] - self.used[place]} free")
        return 0

    # -- the queues (all under the gate) -----------------------------------------------------------------------

    def reached_now(self, lane):
        """Know the number that a stream has got to by tasks; return it."""
        if self.pool is not None:
            reached: cython.longlong = lane.chain.reached()
            lane.completed = max(lane.completed, reached)
        return lane.completed

    def is_idle(self, lane):
        """Return whether a stream has done all that it was given."""
        if lane.head is not None or lane.busy or lane.first_wait is not None:
            return False
        return self.pool is None or lane.chain.put <= self.reached_now(lane)

    def has_reached(self, lane, sequence):
        """Return whether a stream has got to a number; if not, who waits for it is woken when it does."""
        return lane.completed >= sequence if self.pool is None else self.pool.want(lane.chain, sequence)

    def queue_waits(self, stream):
        """Put what a stream waits for, and its call, into its queue, where no mark comes after it."""
        stream.head, stream.tail = stream.first_wait, stream.last_wait
        stream.first_wait = stream.last_wait = None
        if cython.compiled and stream.task != cython.NULL:
            task, stream.task = stream.task, cython.NULL
            op = make_op(CALL, self.pool.call_of(task))
            if stream.head is None:
                stream.head = op
            else:
                stream.tail.next = op
            stream.tail = op
        return 0

    def push(self, stream, op):
        if stream.first_wait is not None or (cython.compiled and stream.task != cython.NULL):
            self.queue_waits(stream)
        if stream.head is None:
            stream.head = op
        else:
            stream.tail.next = op
        stream.tail = op
        if not stream.busy and not stream.blocked:
            self.advance(stream)
            self.settle()
        return 0

    def advance(self, stream):
        """Do what needs no worker at the head of a stream, up to something that does."""
        if self.pool is not None and stream.head is not None and stream.completed < stream.chain.put:
            if not self.has_reached(stream, stream.chain.put):
                stream.blocked = True  # it waits for its own tasks
                stream.wanted = stream.chain.put
                stream.next_waiter = stream.waiters
                stream.waiters = stream
                return 0
            self.reached_now(stream)
        while stream.head is not None:
            op = stream.head
            if op.kind == WAIT:
                went_back: cython.bint = op.uses != op.other.uses  # since then, so it was done with that
                if not went_back and not self.has_reached(op.other, op.sequence):
                    stream.blocked = True
                    stream.wanted = op.sequence
                    stream.next_waiter = op.other.waiters
                    op.other.waiters = stream
                    return 0
                if not went_back:
                    self.pass_wait(stream, op)
            elif op.kind == RECORD:
                if not self.reach(stream, op.sequence):
                    stream.busy = True
                    return self.offer(stream)
            elif op.kind == HOLD:
                if op.body is not None:
                    stream.busy = True
                    stream.held = True
                    op.body.release()
                    stream.head = op.next
                    return 0
            elif not self.issue(stream, op):
                stream.busy = True
                return self.offer(stream)
            else:
                op.body = None  # the last operation stays
            stream.head = op.next
        return 0

    def pass_wait(self, stream, op):
        """A stream gets past a wait: what it waited for has been reached."""
        return 0

    def reach(self, stream, sequence):
        """Return a stream gets to a mark: let go who waits for it. False if a worker must see to it."""
        stream.completed = sequence
        if stream.chain is not None:
            stream.chain.reach(sequence)
        if stream.waiters is not None:
            self.wake(stream)
        return True

    def issue(self, stream, op):
        """Do an operation that needs no worker; False if it does."""
        return False

    def wake(self, stream):
        """Let go whoever waits for what `stream` has passed."""
        self.reached_now(stream)
        waiter = stream.waiters
        stream.waiters = None
        while waiter is not None:
            following = waiter.next_waiter
            if waiter.wanted > stream.completed:
                waiter.next_waiter = stream.waiters
                stream.waiters = waiter
            elif waiter.baton is None:
                waiter.next_waiter = self.worklist
                self.worklist = waiter
            else:
                waiter.next_waiter = None
                waiter.baton.release()
            waiter = following
        if self.pool is not None:
            self.look_again(stream)
        return 0

    def look_again(self, stream):
        """Say of a stream that has tasks what its waiters wait for now."""
        least: cython.longlong = 0
        waiter = stream.waiters
        while waiter is not None:
            if least == 0 or waiter.wanted < least:
                least = waiter.wanted
            waiter = waiter.next_waiter
        self.pool.want_only(stream.chain, least)
        return 0

    def wake_reached(self):
        """Let go whoever waits for what streams have got to by tasks."""
        found = self.pool.next_reached()
        while found is not None:
            self.wake(found)
            self.settle()
            found = self.pool.next_reached()
        return 0

    def settle(self):
        """Advance the streams that `wake` let go, and those that they let go."""
        while self.worklist is not None:
            stream = cython.cast(Stream, self.worklist)
            self.worklist = stream.next_waiter
            stream.next_waiter = None
            stream.blocked = False
            if not stream.busy:
                self.advance(stream)
        return 0

    def offer(self, stream):
        """Hand a stream to the workers."""
        if self.first_ready is None:
            self.first_ready = self.last_ready = stream
        elif stream.priority < self.last_ready.priority:
            self.put_first(stream)
        else:
            self.last_ready.next_ready = stream
            self.last_ready = stream
        self.ready += 1
        if self.takes:
            self.takes = False
            return 0
        worker = self.idle.pop()
        if worker is not None:
            worker.sleeper.call()
        elif self.workers < self.max_workers:
            self.hire()
        return 0

    def put_first(self, stream):
        """Put a stream before those that are ready and have a lower priority than it."""
        before: Stream = None
        other = self.first_ready
        while other.priority <= stream.priority:
            before, other = other, other.next_ready
        stream.next_ready = other
        if before is None:
            self.first_ready = stream
        else:
            before.next_ready = stream
        return 0

    def hire(self):
        """Start a worker; False if there is no memory for one: then who waits tries again."""
        try:
            worker: Worker = self.take_from_reserve() if self.has_reserve else None
            if worker is not None:
                worker.driver = self
                worker.modules = 0
                worker.sleeper.call()
            else:
                worker = Worker(self)
                _thread.start_new_thread(serve, (worker,))
        except (MemoryError, RuntimeError):
            self.is_short = True
            return False
        self.is_short = False
        worker.next_worker = self.staff
        self.staff = worker
        self.workers += 1
        return True

    def take_from_reserve(self):
        """Return a worker as a new one would be, or None."""
        pool = cython.cast(Reserve, reserve)
        if pool.workers.first is None:
            return None
        worker = pool.take(self.library_threads, kind_of_thread())
        if worker is not None and kind_of_thread(worker.native) != worker.kind:  # a body has changed that
            worker.sleeper.call()
            return None
        return worker

    def call_for_tasks(self):
        """Let a worker come for what the pool has, beside those that it calls itself; return whether one does."""
        worker = self.idle.first
        while worker is not None and worker.in_pool:
            worker = worker.next_idle
        if self.idle.remove(worker):
            worker.sleeper.call()
            return True
        return self.workers < self.max_workers and self.hire()

    def call_once(self):
        """Let a worker come for what the pool has, if none is on its way."""
        if not self.comes:
            self.comes = self.call_for_tasks()
        return 0

    def see_to_tasks(self):
        """A thread begins to wait: see to it that compiled tasks that are ready are run."""
        self.gate.enter()
        try:
            self.pool.change_waiting(1)
            if self.pool.has_ready():
                self.call_for_tasks()
        finally:
            self.gate.leave()
        return 0

    def hire_again(self):
        """Start the worker that could not be started when there was work for it."""
        self.gate.enter()
        try:
            can_help = self.has_work() and self.idle.first is None and self.workers < self.max_workers
            if can_help and not self.hire() and self.workers == 0:
                raise MemoryError("no thread could be started for work that is waited for")
        finally:
            self.gate.leave()

    def dismiss(self, worker):
        """A worker, which is not among the idle ones, works for others from now on, or goes; return whether it goes."""
        self.workers -= 1
        worker.driver = None
        if self.staff is worker:
            self.staff = worker.next_worker
        else:
            before = self.staff
            while before.next_worker is not worker:
                before = before.next_worker
            before.next_worker = worker.next_worker
        worker.next_worker = None
        return not (self.has_reserve and cython.cast(Reserve, reserve).keep(worker))

    def take(self):
        """Return the stream that a worker serves next, or None."""
        stream = self.first_ready
        if stream is None:
            return None
        before: Stream = None
        if self.chooser is not None and self.ready > 1:
            for _ in range(self.chooser(self.ready)):
                before = stream
                stream = stream.next_ready
        if before is None:
            self.first_ready = stream.next_ready
        else:
            before.next_ready = stream.next_ready
        if stream is self.last_ready:
            self.last_ready = before
        stream.next_ready = None
        self.ready -= 1
        return stream

    def work(self, worker):
        """Take a stream, do its head, look what that let go; return when there is nothing to do."""
        stream: Stream = None
        runs: cython.bint = False
        if self.pool is not None:
            self.pool.run_asked(self.errors)
        while True:
            turn: cython.int = 0  # 1: the first worker that runs, -1: the last one stops
            worker.is_new = not has_own_state()
            self.gate.enter()
            try:
                self.takes = True
                if stream is not None:
                    op = stream.head
                    stream.head = op.next
                    stream.busy = False
                    self.advance(stream)
                    self.settle()
                if self.pool is not None:
                    self.pool.collect()
                    self.wake_reached()
                self.takes = False
                stream = self.take()
                if stream is not None and self.pool is not None and self.pool.has_ready():
                    self.call_for_tasks()  # in place of this one
                if runs != (stream is not None):
                    runs = not runs
                    self.running += 1 if runs else -1
                    turn = 1 if runs and self.running == 1 else -1 if not self.running else 0
                if stream is None:
                    goes = self.closing or self.workers > self.max_workers
                    if goes:
                        goes = self.dismiss(worker)
                    else:
                        self.idle.push(worker)
                        self.comes = False
            finally:
                self.gate.leave()
            op = None
            if self.library_threads and (turn or (runs and worker.modules != len(sys.modules))):
                self.limit_libraries(worker, turn)
            if stream is not None:
                self.execute(stream, stream.head)
            else:
                if goes:
                    worker.sleeper.call()
                if self.pool is not None:
                    self.pool.let_go()
                return 0

    def leave_idle(self, worker):
        """Take a worker out of those that are idle; False if somebody has called it."""
        self.gate.enter()
        try:
            return self.idle.remove(worker)
        finally:
            self.gate.leave()

    def limit_libraries(self, worker: Worker, turn: cython.int):
        """Share the cores among the workers, in libraries that start threads of their own."""
        try:
            if turn > 0:
                library_threads.hold(self.library_threads)
                self.held += 1
            elif turn < 0 and self.held:
                library_threads.release(self.library_threads)
                self.held -= 1
            if turn >= 0 and worker.modules != len(sys.modules):
                worker.modules = len(sys.modules)
                worker.limit = self.library_threads
                library_threads.limit_this_thread(self.library_threads)
        except BaseException:
            return 0  # there was no memory for it: the worker works on, with more threads than it should have
        return 0

    def execute(self, stream, op):
        """Do one operation; nothing that it raises may end the worker."""
        try:
            if op.kind == CALL:
                stream.runner = PyThread_get_thread_ident()
                op.body()
            else:
                self.perform_patiently(stream, op)
        except BaseException as error:
            self.failed(stream, error)
        stream.runner = 0
        op.body = None
        return 0

    def perform_patiently(self, stream, op):
        """Do an operation other than a call, which nobody would do again: where memory runs out, wait for some."""
        for pause_s in PATIENCE_S:
            try:
                return self.perform(stream, op)
            except MemoryError:
                time.sleep(pause_s)
        return self.perform(stream, op)

    def failed(self, stream, error):
        """Remember what an operation raised that nobody waits for."""
        self.errors.append(error)
        return 0

    def perform(self, stream, op):
        """Do an operation other than a call, on a worker."""
        raise NotImplementedError

    def close(self):
        if self.pool is not None:
            self.pool.collect()
            self.pool.let_go()
        self.gate.enter()
        try:
            self.closing = True
            worker = self.idle.pop()
            while worker is not None:
                if self.dismiss(worker) or (self.pool is not None and self.pool.is_used()):
                    worker.sleeper.call()
                worker = self.idle.pop()
        finally:
            self.gate.leave()
        return 0
