"""Reading back a few bytes of a device: who waits for them watches the memory where they land.

CUDA knows that a copy is complete some two microseconds after its bytes are there (docs/design/cost-of-python.md), a
third of the time in which it makes the copy and says so. So each 32-bit word of a *landing*, which is pinned, gets a
mark first, and who waits looks for a word that is something else in every place. No word is ever seen half written: a
device writes to the host in such words or larger ones. A content that happens to hold the mark, or does not come soon,
is there when the event behind the copy is complete.

Nothing else is concluded from it: whatever stands on the stream is done when CUDA says so.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uintptr_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport is_sticky, pop, push
from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.cuda.memory cimport alloc_unpooled, free_pinned
from stf._drivers.cuda.streams cimport DeviceStream, leave
from stf._drivers.cuda.submitter cimport stf_relax
from stf._drivers.cuda.work cimport copy_bytes_and_settle
from stf._drivers.cuda.device_threads cimport DeviceThreadsDriver
from stf._drivers.queues cimport Stream

import time

cdef extern from *:
    """
    /* Whether no word is the mark any more; what was there before the words is seen, too. */
    static inline int stf_landed(uint32_t *words, int count, uint32_t mark) {
        for (int i = 0; i < count; i++)
            if (__atomic_load_n(&words[i], __ATOMIC_ACQUIRE) == mark) return 0;
        return 1;
    }
    """
    bint stf_landed(uint32_t* words, int count, uint32_t mark) noexcept nogil

cdef uint32_t MARK = 0xFFF5A3C7  # in a float32, and in the upper half of a float64, no number
cdef int64_t PATIENCE_NS = 20_000  # of who has the GIL; then it waits without it
cdef int LOOKS = 64  # between two looks at the clock
cdef int64_t CLOSE_NS = 10_000_000_000  # at most, for threads that have only the GIL to wait for


cdef class ReadbackDriver(DeviceThreadsDriver):
    """The CUDA driver, which reads back a few bytes sooner than it waits for a stream."""

    def __init__(self, ordinals, workers, capacity, submit_thread, host_pool):
        cdef cu.CUdeviceptr pinned = 0
        DeviceThreadsDriver.__init__(self, ordinals, workers, capacity, submit_thread, host_pool)
        for i in range(LANDINGS):
            self.lanes[i] = -1
        alloc_unpooled(self.home_device.context, False, LANDINGS * LANDING_BYTES, &pinned)
        self.words = <uint32_t*>pinned
        self.reads_back = self.words != NULL

    cpdef int begin_readback(self, int stream, int64_t address, int64_t nbytes) except -2:
        cdef Stream lane = <Stream>self.streams[stream]
        cdef DeviceStream gpu
        cdef cu.CUcontext before
        cdef uint32_t* words
        cdef int i
        if self.lost is not None:
            raise self.lost.again()
        if host_nodes or lane.device < 0 or lane.head is not None or lane.busy:
            return -1
        gpu = <DeviceStream>lane
        landing = self.find_landing()
        if landing < 0 or gpu.captured or gpu.lent or gpu.foreign:
            return -1
        words = self.words + landing * LANDING_BYTES // 4
        for i in range(nbytes // 4):
            words[i] = MARK
        self.lanes[landing] = stream  # before another thread comes, since what follows may let go of the GIL
        self.uses[landing] = gpu.uses
        self.sequences[landing] = gpu.completed + 1
        try:
            self.flush()
            before = push(gpu.context)
            code = call(host_nodes, cu.cuMemcpyAsync, <cu.CUdeviceptr><uintptr_t>words, <cu.CUdeviceptr>address, nbytes, gpu.handle)
            leave(gpu, before)
            self.demand(code, "cuMemcpyAsync", gpu.device)
        except BaseException:
            self.lanes[landing] = -1
            raise
        self.sequences[landing] = gpu.last_short_copy = gpu.completed + 1
        return landing

    cdef int find_landing(self) noexcept:
        """A landing that nobody uses; -1 if there is none."""
        cdef int i
        for i in range(LANDINGS if self.words != NULL else 0):
            if self.lanes[i] < 0:
                return i
        return -1

    cpdef object end_readback(self, int landing, int64_t nbytes):
        cdef uint32_t* words = self.words + landing * LANDING_BYTES // 4
        cdef DeviceStream lane = <DeviceStream>self.streams[self.lanes[landing]]
        cdef int64_t limit = 0
        cdef int looks = 0
        try:
            while not stf_landed(words, nbytes // 4, MARK):
                looks += 1
                if looks % LOOKS == 0:
                    if limit == 0:
                        limit = now_ns() + PATIENCE_NS
                    elif now_ns() > limit:
                        if lane.uses == self.uses[landing]:  # else it was given back, when all was done
                            self.wait_done(lane, self.sequences[landing])
                        break
                stf_relax()
            return None if self.lost is not None else PyBytes_FromStringAndSize(<char*>words, nbytes)
        finally:
            self.lanes[landing] = -1

    cdef bint is_landing(self) noexcept:
        """Whether somebody waits for something to land."""
        cdef int i
        for i in range(LANDINGS):
            if self.lanes[i] >= 0:
                return True
        return False

    cpdef int close(self) except -1:
        if not self.closed and self.words != NULL:
            limit = now_ns() + CLOSE_NS
            while self.is_landing() and now_ns() < limit:  # in another thread, for what is done
                time.sleep(50e-6)
            if self.lost is None and not self.is_landing():  # else CUDA may yet write there
                before = push(self.home_device.context)
                free_pinned(self.words)
                pop(before)
            self.words = NULL
        return DeviceThreadsDriver.close(self)

    def is_lost_by_chance(self):
        """Whether a call failed, and CUDA itself goes on: another driver would work."""
        return self.lost is not None and not self.closed and not is_sticky(<cu.CUresult><int>self.lost.code)

    def copy_and_wait(self, int stream, int64_t target, int64_t source, int64_t nbytes):
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        self.flush()
        before = push(lane.context)
        code = copy_bytes_and_settle(target, source, nbytes, lane.handle)
        leave(lane, before)
        self.demand(code, "cuMemcpyAsync", -1)


cdef int64_t now_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec
