from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t
from libcpp.atomic cimport atomic

cdef extern from *:
    """
    #if defined(__x86_64__) || defined(_M_X64)
    #include <immintrin.h>
    #define stf_relax() _mm_pause()
    #elif defined(__aarch64__) && defined(__GNUC__)
    #define stf_relax() __asm__ __volatile__("yield")
    #else
    #define stf_relax() ((void)0)
    #endif
    """
    void stf_relax() noexcept nogil  # of who watches memory that another thread, or a device, writes

cdef enum:
    CAPACITY = 1024  # submissions that may wait
    ARGUMENT_BYTES = 192  # a kernel with more is launched by the caller
    PROVEN = 64
    LINE = 64  # bytes that cores exchange at a time
    APART = 128  # they fetch pairs of lines

cdef enum Kind:
    LAUNCH_KERNEL = 0
    RECORD_EVENT = 1
    WAIT_FOR_EVENT = 2
    FREE_MEMORY = 3
    LAUNCH_GRAPH = 4

cdef struct Submission:  # of four cache lines; what is not a launch needs the first of them
    int kind
    int device
    cu.CUcontext context
    cu.CUstream stream
    int64_t target  # a function, an event, an address, or an executable graph
    int nbytes, gx, gy, gz, bx, by, bz, shared
    char arguments[ARGUMENT_BYTES]

cdef struct Proof:
    int64_t function
    int bx, by, bz, shared

cdef class Submitter:
    cdef void* block  # of memory, in which the ring begins with a cache line
    cdef Submission* ring
    cdef Proof[PROVEN] proofs
    cdef int64_t pushed  # by whoever has the GIL
    cdef int64_t seen  # of `issued`, when it was last looked at
    cdef int streak
    cdef int eager
    cdef readonly bint running
    cdef void* bell
    cdef void* end
    cdef char[APART] padding_1
    cdef atomic[int64_t] shown
    cdef char[APART] padding_2
    cdef atomic[int64_t] issued
    cdef char[APART] padding_3
    cdef atomic[int] hurry  # how many threads wait for `issued`
    cdef atomic[int] asleep
    cdef atomic[int] stopping
    cdef atomic[int] failed  # what CUDA said, and of which call and device: one number

    cdef bint takes(self) except -1
    cdef bint takes_slow(self) except -1
    cdef bint takes_launch(self, int64_t function, int gy, int gz, int bx, int by, int bz, int shared, int nbytes) except -1
    cdef int prove(self, int64_t function, int bx, int by, int bz, int shared) noexcept
    cdef Submission* slot(self) noexcept
    cdef int64_t show(self) noexcept
    cdef int64_t put(self, int kind, cu.CUcontext context, cu.CUstream stream, int64_t target, int device) noexcept
    cdef int flush(self) except -1
    cdef int reach(self, int64_t ticket) noexcept
    cdef int watch(self, int64_t ticket) noexcept
    cdef int start(self) except -1
    cdef int stop(self) except -1
    cdef void serve(self) noexcept nogil
    cdef void rest(self, int pauses) noexcept nogil
    cdef int take_failure(self, int* kind, int* device) noexcept
