cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free, malloc
from stf._port.host_calls cimport CompiledCall, HostCall

cdef extern from "pools.h" nogil:
    ctypedef void* stf_lock
    ctypedef int (*stf_compiled)(int64_t* slots) noexcept nogil
    ctypedef struct stf_chain:
        int64_t reached
        void* stream
    ctypedef struct stf_task:
        stf_compiled body
        int64_t* slots
        void* object
        int64_t cost_ns
        int is_timed
        int* fate
        stf_task* next
        int64_t took_ns
        int64_t has_failed
    ctypedef struct stf_sleeper:
        stf_lock lock
    ctypedef struct stf_pool:
        stf_task** given
        stf_task** done
        stf_lock lock
    int POOL_ROOM
    stf_lock POOL_NEW_LOCK() noexcept
    void POOL_FREE_LOCK(stf_lock lock) noexcept
    void POOL_ACQUIRE(stf_lock lock) noexcept
    void POOL_RELEASE(stf_lock lock) noexcept
    void ATOMIC_STORE_LATE(int64_t* address, int64_t value) noexcept
    void* stf_line(size_t size, void** whole) noexcept
    stf_task* stf_new_task(size_t waits) noexcept
    void stf_follow(stf_task* task, stf_chain* chain, int64_t number) noexcept
    bint stf_has_room(stf_pool* pool) noexcept
    bint stf_put(stf_pool* pool, stf_chain* chain, int64_t number, stf_task* task) noexcept
    stf_task* stf_next_done(stf_pool* pool) noexcept
    void stf_finish(stf_pool* pool, stf_task* task) noexcept
    int stf_want(stf_pool* pool, stf_chain* chain, int64_t number) noexcept
    void stf_want_only(stf_pool* pool, stf_chain* chain, int64_t number) noexcept
    void* stf_next_reached(stf_pool* pool) noexcept
    void stf_ask(stf_pool* pool) noexcept
    bint stf_see_to_ready(stf_pool* pool) noexcept
    stf_task* stf_take_asked(stf_pool* pool) noexcept
    void stf_change_waiting(stf_pool* pool, int change) noexcept
    bint stf_asks(stf_pool* pool) noexcept
    bint stf_has_ready(stf_pool* pool) noexcept
    bint stf_has_reached(stf_pool* pool) noexcept
    int64_t stf_number_of(stf_chain* chain) noexcept
    bint stf_end_job(void* pool, void* job) noexcept
    bint stf_is_busy(stf_sleeper* sleeper) noexcept
    void stf_call(stf_sleeper* sleeper) noexcept
    int stf_rest_in(stf_pool* pool, stf_sleeper* me) noexcept

@cython.no_gc
cdef class Chain:
    cdef stf_chain* chain
    cdef void* memory
    cdef int64_t put  # the last number that the stream gets to with a task
    cdef int64_t reached(self) noexcept
    cdef int reach(self, int64_t number) noexcept

@cython.no_gc
cdef class Pool:
    cdef stf_pool* pool
    cdef void* memory
    cdef stf_task* told  # tasks that are done, whose calls are still held
    cdef stf_task* last_told
    cdef bint is_used(self) noexcept
    cdef bint begin(self) noexcept
    cdef bint has_room(self) noexcept
    cdef void* task_for(self, HostCall call, int waits) noexcept
    cdef int follow(self, void* task, Chain chain, int64_t number) noexcept
    cdef object call_of(self, void* task)
    cdef bint may_put(self, void* task) except -1
    cdef bint put(self, Chain chain, int64_t number, void* task) noexcept
    cdef bint want(self, Chain chain, int64_t number) noexcept
    cdef int want_only(self, Chain chain, int64_t number) noexcept
    cdef object next_reached(self)
    cdef int ask_first(self) noexcept
    cdef bint see_to_ready(self) noexcept
    cdef int change_waiting(self, int change) noexcept
    cdef int collect(self) except -1
    cdef int let_go(self) except -1
    cdef bint end_job(self, void* job) noexcept
    cdef bint has_ready(self) noexcept
    cdef int run_asked(self, list errors) except -1

cdef class Sleeper:
    cdef stf_sleeper sleeper
    cdef object baton  # of the uncompiled form
    cdef int call(self) except -1
    cdef bint is_busy(self) noexcept
    cdef bint rest(self, Pool pool) except -1
