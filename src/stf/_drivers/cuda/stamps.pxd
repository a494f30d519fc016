from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t
from libcpp.vector cimport vector
from stf._drivers.cuda.streams cimport DeviceStream
from stf._drivers.cuda.submitter cimport Submitter
from stf._drivers.queues cimport QueueDriver

cdef enum:
    MOST_EVENTS = 16384  # a device; beyond, those of work that is done are used again
    MOST_PAIRS = 64  # of `Spans`; beyond, work is not measured

cdef class Anchor:
    cdef cu.CUevent event
    cdef double gpu_ns
    cdef double host_ns

cdef class Clock:
    cdef cu.CUcontext context
    cdef cu.CUstream stream
    cdef vector[cu.CUevent] spare
    cdef int events
    cdef object marks
    cdef Anchor anchor
    cdef list anchors
    cdef int64_t due_ns
    cdef int open(self, DeviceStream lane) except -1
    cdef int calibrate(self) except -1
    cdef int close(self) except -1

cdef class Pair:
    cdef cu.CUcontext context
    cdef cu.CUevent first
    cdef cu.CUevent last
    cdef int64_t ticket  # of the submission that records the last one
    cdef int recorded  # 1: the first event, 2: the last one
    cdef bint open  # somebody uses it
    cdef bint failed  # a record failed, or work is not to be measured after all
    cdef object who  # is told how long it took

cdef class Spans:
    cdef Stamps stamps
    cdef list pairs
    cpdef int begin(self, int stream) except -2
    cpdef int end(self, int number, int stream, object who) except -1
    cpdef int abandon(self, int number) except -1
    cpdef list take(self)
    cdef Pair pair_for(self, DeviceStream lane, int* number)
    cdef int record(self, DeviceStream lane, int code) except -1
    cdef bint is_passed(self, Pair pair) except -1
    cdef int close(self) except -1

cdef class Stamps:
    cdef readonly Spans spans
    cdef QueueDriver driver
    cdef Submitter submitter
    cdef list clocks
    cdef vector[double] times
    cdef vector[int] readers  # of stamps: numbers of clocks
    cpdef int64_t put(self, int stream) except? -1
    cdef int put_on(self, DeviceStream lane, int64_t stamp) except -1
    cpdef int collect(self) except -1
    cpdef int64_t time_ns(self, int64_t stamp) except? -1
    cdef int clock_of(self, DeviceStream lane) except -1
    cdef int record(self, DeviceStream lane, int64_t stamp) except -1
    cdef cu.CUevent take_event(self, Clock clock) except? NULL
    cdef int collect_from(self, Clock clock) except -1
    cdef int read(self, Clock clock, int64_t stamp, cu.CUevent event, Anchor anchor) except -1
    cdef int close(self) except -1
