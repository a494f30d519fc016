cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free
from stf._drivers.pools cimport Pool
from stf._port.host_calls cimport CompiledCall

cdef extern from "pools.h" nogil:
    ctypedef struct stf_job:
        void (*help)(void* what, const int64_t* called, int (*has_work)(void*) noexcept nogil, void* pool) noexcept nogil
        void* what
    void* stf_line(size_t size, void** whole) noexcept
    void stf_share(void* pool, void* job, int64_t wanted) noexcept

cdef extern from "loops.h" nogil:
    ctypedef int (*stf_body)(int64_t* slots) noexcept nogil
    ctypedef struct stf_number:
        int32_t slot
        int32_t word
    ctypedef struct stf_step:
        stf_body body
        int64_t* slots
        int32_t first_wait
        int32_t last_wait
        int32_t first_number
        int32_t last_number
        int64_t done
    ctypedef struct stf_queue:
        int64_t state
        int64_t position
        int64_t first
        int64_t last
    ctypedef struct stf_loop:
        stf_step* steps
        int32_t* waits
        stf_number* numbers
        int64_t* words
        uint8_t* done
        stf_queue* queues
        int64_t count
        int64_t open
        int64_t present
        int64_t rounds
        int64_t word_count
        int64_t wanted
        int64_t off
        void (*share)(void* pool, void* job, int64_t count) noexcept nogil
        void* pool
        void* job
        int64_t* times
    int CACHE_LINE
    int LOOP_OVER
    int LOOP_ITSELF
    int LOOP_LEAST_NS
    int LOOP_MOST_NS
    int LOOP_NOT_RUN
    int64_t LOOP_CLOSED
    int LOOP_FIRST_WORD
    int64_t stf_lead(stf_loop* loop, const int64_t* words, int64_t rounds, const uint8_t* flag) noexcept
    int stf_launch(int64_t* slots) noexcept
    void stf_help(void* what, const int64_t* called, int (*has_work)(void*) noexcept nogil, void* work) noexcept
    void stf_pause() noexcept
    int64_t stf_count_forks(int64_t more) noexcept
    void ATOMIC_STORE(int64_t* address, int64_t value) noexcept
    int stf_fill(int64_t* slots) noexcept
    int stf_copy(int64_t* slots) noexcept
    int stf_call_python(int64_t* slots) noexcept

cdef stf_body function_of(object body) except? NULL

@cython.no_gc_clear
cdef class Loop:
    cdef stf_loop* loop
    cdef stf_job* job  # to help
    cdef Pool pool  # whose workers help
    cdef int64_t* table
    cdef int32_t* places  # in it, of each slot
    cdef void* memory[5]  # of what begins a line of the cache
    cdef int64_t forks  # before it had helpers
    cdef readonly list words  # in the uncompiled form: of a launch
    cdef readonly int64_t count  # of steps
    cdef int64_t* clock  # the times of the steps
    cdef bint measures
    cdef readonly object held  # what its steps use
    cdef readonly list steps  # in the uncompiled form
    cdef list queues  # in the uncompiled form: of lists of numbers of steps
    cdef bint has_ended(self) noexcept
    cdef int put_steps(self, list queues) except -1
    cdef int put_in_order(self, list queues, list table) except -1
    cpdef int put(self, int64_t slot, int64_t value) except -1
    cpdef int64_t lead(self, list words, int64_t rounds=*, int64_t flag=*) except -2
    cpdef CompiledCall call(self, list words, int64_t cost_ns, int64_t least_ns, int64_t most_ns)
    cpdef int look_again(self) except -1
    cdef int let_help(self, Pool pool, int64_t wanted) except -1
    cpdef int64_t helpers(self) except -1
    cpdef int64_t rounds_run(self) except -1
    cpdef int measure(self, bint wanted) except -1
    cpdef int forget_times(self) except -1
    cpdef list times(self)
