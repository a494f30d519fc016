"""A thread for each device, which calls the bodies of its tasks: so bodies of several devices run side by side.

A body on a device only enqueues. But cuBLAS through ctypes takes 60 to 120 us of the host for a task, and four GPUs
that one thread gives work to are idle half of the time. Library calls let go of the GIL, so several threads help.

A body that is called *in turn* is an operation of its stream's queue, like a copy that waits for the host::

    stream of device 0:  WAIT for stream 7, number 12 | BODY | RECORD number 3
    device 0:            BODY ──turn──▶ BODY ──turn──▶ BODY        the order of submission
                           │ its stream has got to it
                           ▼
    the device's thread calls it, gets past it, records the event, and lets go the streams that wait for the event

**Order.** The engine decides it as ever: which streams, waits and numbers there are is known when a task is submitted.
Here only the calls of CUDA come later. CUDA cannot wait for an event that is not recorded yet, so a stream that must
stays *blocked* in the queue (`queues`) until the other thread has recorded it; then the wait goes to CUDA. What stands
behind it (copies, launches, frees, records) stays behind it.

**One device, one order.** Bodies of one device are called one at a time, in the order of submission, also where a later
one could go first: the state of random generators and library handles belongs to a device, and results must not depend
on who was faster. A with-block on the device waits for the bodies that were submitted before it, for the same reason.

**No deadlock.** The first body of each device waits only for bodies that were submitted before it: so the oldest one can
always go. A body that has to come after work of the host would break that. It is no body in turn: its stream is
`behind_host`, as are those that wait for it, and a worker calls it, as in a driver without these threads. A body that
waits for other work inside gives its place to another thread (`block`), which goes on with the next body.

**Memory.** Under the gate nothing is allocated: turns are a chain through the operations.

Tried and left: workers of the host for these bodies (no order within a device, and they wait for the device before each
call); a thread for each stream (16 a device, which one GIL makes slower); waits that spin until the event is recorded
(they hold a core, and the thread cannot do other work).
"""

from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t

from stf._drivers.cuda.devices cimport relax
from stf._drivers.cuda.driver cimport CudaDriver
from stf._drivers.cuda.streams cimport DeviceStream
from stf._drivers.queues cimport BODY, Op, Stream, make_op

import _thread

from stf._support.sync import make_baton

PACE_S = 0.02  # so long who submits waits at most for one body: it may be what the others wait for
cdef int READY = 1  # the `sequence` of a body whose stream has got to it


cdef class DeviceThread:
    """The bodies of a device, and the thread that calls them.

    As a stream gets to a number, this gets past bodies that have ended, or wait for other work inside. It has no queue.
    """


cdef class Server:
    """One thread in charge of a device; it waits for its `baton` while no body is ready."""

    def __init__(self, DeviceThread thread):
        self.thread = thread
        self.baton = make_baton()


cdef class DeviceThreadsDriver(CudaDriver):
    """The CUDA driver, which may call the bodies of each device in a thread of the device."""

    def __init__(self, ordinals, workers, capacity, submit_thread, host_pool):
        self.threads = [None] * len(ordinals)
        self.servers = {}
        CudaDriver.__init__(self, ordinals, workers, capacity, submit_thread, host_pool)

    # -- who submits -------------------------------------------------------------------------------------------

    cpdef int call(self, int stream, object body) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if lane.device >= 0:
            (<DeviceStream>lane).behind_host = True
        return CudaDriver.call(self, stream, body)

    cpdef int call_in_turn(self, int stream, object body) except -1:
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        cdef DeviceThread thread
        cdef Op op
        if lane.head is None and not lane.busy:
            lane.behind_host = False
        if lane.behind_host or lane.captured or lane.lent or lane.adopted:
            return self.call(stream, body)
        thread = self.thread_of(lane.device)
        if thread is None:
            return self.call(stream, body)
        op = make_op(BODY, body)
        op.other = lane
        self.gate.enter()
        try:
            if thread.last is None:
                thread.first = op
            else:
                thread.last.turn = op
            thread.last = op
            thread.submitted += 1
            self.push(lane, op)
        finally:
            self.gate.leave()
        return 0

    cdef DeviceThread thread_of(self, int device):
        """The thread of a device, which is started with its first body; None where there is no memory for one."""
        cdef DeviceThread thread = self.threads[device]
        try:
            if thread is None:
                thread = DeviceThread(-1, device)
            if thread.server is None:
                self.take_charge(thread)
                self.threads[device] = thread
        except MemoryError:
            return None
        return thread

    cdef int take_charge(self, DeviceThread thread) except -1:
        """Let a new thread call the next bodies of a device."""
        cdef Server server = Server(thread)
        try:
            _thread.start_new_thread(self.serve, (server,))
        except RuntimeError as error:  # which CPython says where there is no memory for it
            raise MemoryError(str(error)) from None
        thread.server = server
        return 0

    cpdef int keep_pace(self, int device) except -1:
        cdef DeviceThread thread = self.threads[device] if device >= 0 else None
        if thread is None or thread.submitted - thread.begun < AHEAD or self.is_in_body():
            return 0
        self.await_number(thread, thread.submitted - AHEAD // 2, PACE_S)
        return 0

    cpdef int stream_enter(self, int stream) except -1:
        """Hold a stream for a with-block: after the bodies of its device that were submitted before, as in one thread."""
        cdef Stream lane = <Stream>self.streams[stream]
        cdef DeviceThread thread = self.threads[lane.device] if lane.device >= 0 else None
        if thread is not None and thread.completed < thread.submitted and not self.is_in_body():
            self.await_number(thread, thread.submitted, -1.0)
        return CudaDriver.stream_enter(self, stream)

    def is_in_body(self):
        """Whether the calling thread runs a body: others may wait for that."""
        return self.owns_thread(PyThread_get_thread_ident())

    # -- the device's thread -----------------------------------------------------------------------------------

    def serve(self, Server me):
        """The life of a thread in charge: call the next body when its stream has got to it, see what that lets go."""
        cdef object ident = PyThread_get_thread_ident()
        cdef Op op = None
        cdef bint goes = False
        relax()  # what another thread captures does not forbid calls here
        self.servers[ident] = me
        try:
            while True:
                op = self.turn_after(op, me, &goes)
                if op is not None:
                    self.call_body(op, me)
                elif goes:
                    return
                else:
                    me.baton.acquire()
        finally:
            del self.servers[ident]

    cdef Op turn_after(self, Op done, Server me, bint* goes):
        """Get past the body that was called; return the next one whose turn it is, or None: wait, unless this thread goes."""
        cdef DeviceThread thread = me.thread
        cdef Stream stream
        cdef Op op = None
        self.gate.enter()
        try:
            if done is not None:
                stream = done.other
                done.other = None
                stream.head = done.next
                stream.busy = False
                if not me.is_counted:
                    self.count(thread)
                self.advance(stream)
                self.settle()
            goes[0] = thread.server is not me  # another one has taken over
            if not goes[0]:
                op = thread.first
                if op is not None and op.sequence == READY:
                    thread.first = op.turn
                    op.turn = None
                    if thread.first is None:
                        thread.last = None
                    thread.begun += 1
                    me.is_counted = False
                else:
                    goes[0] = self.closing and op is None
                    me.idle = not goes[0]
                    op = None
        finally:
            self.gate.leave()
        return op

    cdef int call_body(self, Op op, Server me) except -1:
        """Call one body; nothing that it raises may end the thread."""
        cdef Stream stream = op.other
        try:
            stream.runner = PyThread_get_thread_ident()
            op.body()
        except BaseException as error:
            self.failed(stream, error)
        stream.runner = 0
        op.body = None
        return 0

    def block(self, baton, timeout_s):
        """Wait for a baton; a body that does lets another thread go on with the next bodies of its device."""
        cdef Server me = self.servers.get(PyThread_get_thread_ident())
        if me is not None and me.thread.server is me:
            self.take_charge(me.thread)
        if me is not None and not me.is_counted:
            me.is_counted = True
            self.gate.enter()
            try:
                self.count(me.thread)
            finally:
                self.gate.leave()
        return CudaDriver.block(self, baton, timeout_s)

    def owns_thread(self, ident):
        return ident in self.servers or CudaDriver.owns_thread(self, ident)

    # -- the queues (all under the gate) -----------------------------------------------------------------------

    cdef int offer(self, Stream stream) except -1:
        """Hand a stream to the workers; one that has got to a body, to the thread of its device."""
        cdef DeviceThread thread
        if stream.head.kind != BODY:
            return CudaDriver.offer(self, stream)
        stream.head.sequence = READY
        thread = self.threads[stream.device]
        if thread.first is stream.head:
            self.ring(thread)
        return 0

    cdef int ring(self, DeviceThread thread) except -1:
        """Wake the thread in charge."""
        if thread.server.idle:
            thread.server.idle = False
            thread.server.baton.release()
        return 0

    cdef int count(self, DeviceThread thread) except -1:
        """One more body was called: let go who waits for that."""
        thread.completed += 1
        return self.wake(thread)

    cpdef int close(self) except -1:
        CudaDriver.close(self)
        self.gate.enter()
        try:
            for item in self.threads:
                if item is not None:
                    self.ring(<DeviceThread>item)
        finally:
            self.gate.leave()
        return 0
