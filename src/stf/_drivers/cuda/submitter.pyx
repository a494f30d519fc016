"""A thread that gives work to CUDA, so that who submits tasks does not wait for the driver.

A launch takes the driver two microseconds, a task takes us half of one. So in a burst of submissions the launches,
event records, waits between streams, frees and launches of graphs go through a ring to a thread that does nothing
else, in the order in which they were put there. Everything else goes to CUDA at once, after `flush`.

    direct ──`eager` submissions in a row──▶ through the ring ──flush──▶ direct

One producer at a time (whoever has the GIL), one consumer (without it). The consumer looks for work for a while before
it sleeps, and is woken by the next submission. A producer that did not see it fall asleep has made its submission
visible long before the consumer's last look; should that ever not be so, the bounded sleep ends the wait. Each look
takes a cache line away from the producer, which then waits for it: so a consumer that finds little rests the longer
between two looks, unless somebody waits for it (`hurry`). In the other direction, it says how far it is once in a while,
and after each submission where somebody waits, or a body of a host node may.
"""

from cpython.pythread cimport (
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libcpp.atomic cimport memory_order_acquire, memory_order_relaxed, memory_order_release

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.gil cimport host_nodes, point_to_block

import _thread

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define stf_will_read(address) __builtin_prefetch(address, 0)
    #else
    #define stf_will_read(address) ((void)0)
    #endif
    #if defined(__GNUC__) && defined(__x86_64__)
    /* GCC fetches for reading here, unless every processor that it compiles for has this instruction. */
    #define stf_will_write(address) __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)(address)))
    #elif defined(__GNUC__)
    #define stf_will_write(address) __builtin_prefetch(address, 1)
    #else
    #define stf_will_write(address) ((void)0)
    #endif
    """
    void stf_will_read(void* address) noexcept nogil
    void stf_will_write(void* address) noexcept nogil

cdef extern from "pythread.h":
    int PyThread_acquire_lock_timed(PyThread_type_lock lock, long long timeout_us, int interruptible) noexcept nogil

CALLS = ("cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuMemFreeAsync", "cuGraphLaunch")  # by kind
EAGER = 24  # submissions in a row before the thread helps
cdef int NEVER = 1 << 30
cdef enum:
    LOOKING = 8000  # pauses, some hundred microseconds: so long the thread looks for work before it goes to sleep
    LOOKING_LAST = 800
    SHORT_REST = 4  # pauses between two looks
    LONG_REST = 128
    FEW = 4  # submissions at a look: the next one may be later
    MANY = 16
    AHEAD = 4  # submissions that their places are fetched before
    ROOM = 128  # that a full ring is waited for
    TOLD = 16  # submissions after which the consumer says how far it is, which takes a cache line from who waits for room
    SLEEP_US = 100000


cdef class Submitter:
    """The ring and its thread; `enabled` is None where the number of submissions decides, True for all of them."""

    def __cinit__(self, enabled):
        self.block = calloc(CAPACITY + 1, sizeof(Submission))
        if self.block == NULL:
            raise MemoryError
        self.ring = <Submission*>((<uintptr_t>self.block + LINE - 1) & ~<uintptr_t>(LINE - 1))
        self.eager = 0 if enabled else EAGER if enabled is None else NEVER
        self.bell = <void*>PyThread_allocate_lock()
        self.end = <void*>PyThread_allocate_lock()
        if self.bell == NULL or self.end == NULL:
            raise MemoryError
        PyThread_acquire_lock(<PyThread_type_lock>self.bell, 1)
        PyThread_acquire_lock(<PyThread_type_lock>self.end, 1)

    def __dealloc__(self):
        free(self.block)
        if self.bell != NULL:
            PyThread_free_lock(<PyThread_type_lock>self.bell)
        if self.end != NULL:
            PyThread_free_lock(<PyThread_type_lock>self.end)

    # -- the producer ------------------------------------------------------------------------------------------

    cdef bint takes(self) except -1:
        """Whether the next submission goes through the ring.

        All do while CUDA may wait for a body of a host node; and then, until a `flush`, those behind them.
        """
        if self.streak < self.eager and not host_nodes and self.seen == self.pushed:
            self.streak += 1
            return False
        if not self.running:
            self.start()
        return True

    cdef bint takes_slow(self) except -1:
        """Whether the next submission does, for which CUDA takes long: wherever the thread may help."""
        if self.eager == NEVER and not host_nodes and self.seen == self.pushed:
            return False
        self.streak = self.eager
        return self.takes()

    cdef bint takes_launch(self, int64_t function, int gy, int gz, int bx, int by, int bz, int shared, int nbytes) except -1:
        """Whether a launch does: if the same block was launched before, so that CUDA will not refuse it."""
        cdef Proof* proof = &self.proofs[(function >> 4) % PROVEN]
        if not self.takes():
            return False
        if nbytes > ARGUMENT_BYTES or gy > 65535 or gz > 65535:
            return False
        return (
            proof.function == function
            and proof.bx == bx
            and proof.by == by
            and proof.bz == bz
            and proof.shared == shared
        )

    cdef int prove(self, int64_t function, int bx, int by, int bz, int shared) noexcept:
        """Remember that CUDA launched this."""
        self.proofs[(function >> 4) % PROVEN] = Proof(function, bx, by, bz, shared)
        return 0

    cdef Submission* slot(self) noexcept:
        """The next free place; while there is none, the consumer has more than enough to do."""
        while self.pushed - self.seen >= CAPACITY:
            self.seen = self.issued.load(memory_order_acquire)
            if self.pushed - self.seen >= CAPACITY:
                self.watch(self.pushed - CAPACITY + ROOM)
        stf_will_write(&self.shown)
        stf_will_write(&self.ring[(self.pushed + AHEAD) % CAPACITY])
        return &self.ring[self.pushed % CAPACITY]

    cdef int64_t show(self) noexcept:
        """Let the consumer see what was put at `slot`; return its ticket."""
        self.pushed += 1
        self.shown.store(self.pushed, memory_order_release)
        if self.asleep.load(memory_order_relaxed) and self.asleep.exchange(0):
            PyThread_release_lock(<PyThread_type_lock>self.bell)
        return self.pushed

    cdef int64_t put(self, int kind, cu.CUcontext context, cu.CUstream stream, int64_t target, int device) noexcept:
        """Submit something without arguments."""
        cdef Submission* place = self.slot()
        place.kind = kind
        place.context = context
        place.stream = stream
        place.target = target
        place.device = device
        return self.show()

    cdef int flush(self) except -1:
        """Return when CUDA has all that was submitted; what follows goes to it directly."""
        self.streak = 0
        return self.reach(self.pushed)

    cdef int reach(self, int64_t ticket) noexcept:
        """Return when CUDA has what `ticket` stands for."""
        if self.seen >= ticket:
            return 0
        self.seen = self.issued.load(memory_order_acquire)
        if self.seen < ticket:
            self.hurry.fetch_add(1)
            self.watch(ticket)
            self.hurry.fetch_sub(1)
        return 0

    cdef int watch(self, int64_t ticket) noexcept:
        """As `reach`, in no hurry: as for room in a full ring, where the consumer has work enough."""
        with nogil:
            while self.issued.load(memory_order_acquire) < ticket:
                stf_relax()
        self.seen = self.issued.load(memory_order_acquire)
        return 0

    cdef int take_failure(self, int* kind, int* device) noexcept:
        """The first error that CUDA gave a submission, once; 0 if there was none."""
        cdef int failure
        if self.failed.load(memory_order_relaxed) == 0:
            return 0
        failure = self.failed.exchange(0)
        kind[0] = failure & 7
        device[0] = (failure >> 3) & 255
        return failure >> 11

    cdef int start(self) except -1:
        self.running = True
        _thread.start_new_thread(self.run, ())
        return 0

    cdef int stop(self) except -1:
        """End the thread, when it has done everything."""
        if not self.running:
            return 0
        self.flush()
        self.stopping.store(1)
        if self.asleep.exchange(0):
            PyThread_release_lock(<PyThread_type_lock>self.bell)
        with nogil:
            PyThread_acquire_lock(<PyThread_type_lock>self.end, 1)
        self.running = False
        return 0

    def settle(self):
        """`flush`, for tests."""
        self.flush()

    def pending(self):
        """How many submissions CUDA has not got yet."""
        return self.pushed - self.issued.load(memory_order_acquire)

    @property
    def sleeps(self):
        """Whether the thread has gone to sleep, or is about to."""
        return self.asleep.load() != 0

    # -- the consumer ------------------------------------------------------------------------------------------

    def run(self):
        """The thread's life."""
        with nogil:
            self.serve()
        PyThread_release_lock(<PyThread_type_lock>self.end)

    cdef void serve(self) noexcept nogil:
        cdef int64_t count = self.issued.load(memory_order_relaxed)
        cdef int64_t shown
        cdef int idle = 0
        cdef int rest = SHORT_REST
        cdef cu.CUcontext current = NULL
        cdef Submission* item
        cdef int code
        while True:
            shown = self.shown.load(memory_order_acquire)
            if shown > count:
                if shown - count < FEW:
                    rest = min(2 * rest, <int>LONG_REST)
                elif shown - count > MANY:
                    rest = max(rest >> 1, <int>SHORT_REST)
                while count < shown:
                    item = &self.ring[count % CAPACITY]
                    if count + 1 < shown:  # else its producer is about to write it
                        stf_will_read(&self.ring[(count + 1) % CAPACITY])
                    if item.context != current:
                        current = item.context
                        cu.cuCtxSetCurrent(current)
                    code = <int>perform(item)
                    if code != 0 and self.failed.load(memory_order_relaxed) == 0:
                        self.failed.store((code << 11) | (item.device << 3) | item.kind)
                    count += 1
                    if count % TOLD == 0 or count == shown or host_nodes or self.hurry.load(memory_order_relaxed):
                        self.issued.store(count, memory_order_release)
                if idle >= LOOKING:
                    self.asleep.store(0)
                idle = 0
            elif idle < LOOKING + LOOKING_LAST:
                if self.stopping.load(memory_order_relaxed):
                    return
                if idle < LOOKING <= idle + rest:
                    self.asleep.store(1)
                idle += rest
                self.rest(rest)
            elif PyThread_acquire_lock_timed(<PyThread_type_lock>self.bell, SLEEP_US, 0) == 1 or not self.asleep.load():
                idle = 0  # it rang, or is about to
            else:
                idle = LOOKING + LOOKING_LAST - 1

    cdef void rest(self, int pauses) noexcept nogil:
        """Leave `shown` to the producer for a while, unless it waits."""
        cdef int i
        for i in range(pauses):
            if self.hurry.load(memory_order_relaxed):
                return
            stf_relax()


cdef cu.CUresult perform(Submission* item) noexcept nogil:
    """Give one submission to CUDA."""
    cdef size_t size
    cdef void* extra[5]
    if item.kind == LAUNCH_KERNEL:
        size = item.nbytes
        point_to_block(extra, item.arguments, &size)
        return cu.cuLaunchKernel(
            <cu.CUfunction><uintptr_t>item.target,
            item.gx, item.gy, item.gz, item.bx, item.by, item.bz, item.shared, item.stream, NULL, extra,
        )
    if item.kind == RECORD_EVENT:
        return cu.cuEventRecord(<cu.CUevent><uintptr_t>item.target, item.stream)
    if item.kind == WAIT_FOR_EVENT:
        return cu.cuStreamWaitEvent(item.stream, <cu.CUevent><uintptr_t>item.target, 0)
    if item.kind == LAUNCH_GRAPH:
        return cu.cuGraphLaunch(<cu.CUgraphExec><uintptr_t>item.target, item.stream)
    return cu.cuMemFreeAsync(<cu.CUdeviceptr>item.target, item.stream)
