cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t
from stf._drivers.base cimport Driver
from stf._drivers.pools cimport Chain, Pool
from stf._drivers.workers cimport Reserve, Worker, Workers
from stf._support.context_variables cimport has_own_state
from stf._support.library_threads cimport library_threads
from stf._support.sync cimport Gate, PyThread_get_thread_ident

cdef enum:
    WAIT = 0
    RECORD = 1
    HOLD = 2
    CALL = 3
    COPY = 4
    FREE = 5
    LAUNCH = 6
    STAMP = 7
    FILL = 8
    KEEP = 9
    GRAPH = 10
    BODY = 11

@cython.no_gc
cdef class Op:
    cdef int kind
    cdef Stream other
    cdef int64_t sequence
    cdef int uses  # of the other stream, then
    cdef object body
    cdef Op next
    cdef Op turn  # of bodies that are called in turn: the next one

cdef class Waiter:
    cdef object baton  # None: it is a stream
    cdef int64_t wanted
    cdef Waiter next_waiter

cdef class Stream(Waiter):
    cdef int index
    cdef int device
    cdef int64_t completed
    cdef int uses  # how often it was given back, and its numbers began anew
    cdef bint busy
    cdef bint held
    cdef bint blocked
    cdef int priority  # of its calls, where several streams are ready: a smaller number comes first
    cdef unsigned long runner  # the thread that runs its call, or 0
    cdef Stream next_ready
    cdef Op head
    cdef Op tail
    cdef Waiter waiters
    cdef Op first_wait  # what comes before the next operation, where nothing else is in the queue
    cdef Op last_wait
    cdef Chain chain  # where its driver has a pool
    cdef void* task  # of the call that it was given last, until the next mark
    cdef Op mark  # for the next end of a task

cdef class QueueDriver(Driver):
    cdef Gate gate
    cdef Pool pool  # of the code of calls; None if it runs none
    cdef bint comes  # a worker, for tasks of the pool
    cdef list streams
    cdef list spare
    cdef Stream first_ready
    cdef Stream last_ready
    cdef int ready
    cdef bint takes  # a worker takes one of those that become ready now: none is called for that
    cdef Workers idle
    cdef Waiter worklist
    cdef Worker staff  # all workers
    cdef readonly int max_workers
    cdef readonly int workers
    cdef bint is_short  # the last worker that there was work for could not be started
    cdef int running  # workers that are not idle
    cdef public int library_threads  # that a library may have while workers run; 0: as many as it likes
    cdef int held  # how often that was said and not taken back
    cdef bint closing
    cdef public bint has_reserve  # its workers come from the reserve, and go there
    cdef public object chooser
    cdef public object errors
    cdef readonly set loss_watchers
    cdef readonly list used  # bytes of the host, and of each device
    cdef readonly list capacity
    cdef readonly int64_t live_allocations
    cdef list helpers  # streams whose calls are pieces of a body that runs
    cdef Op take_mark(self, Stream lane, int64_t sequence)
    cdef int enqueue(self, int stream, Op op) except -1
    cdef bint has_work(self)
    cdef bint is_idle(self, Stream lane)
    cdef bint has_reached(self, Stream lane, int64_t sequence) except -1
    cdef int queue_waits(self, Stream stream) except -1
    cdef int64_t reached_now(self, Stream lane) except -1
    cdef int wake_reached(self) except -1
    cdef int look_again(self, Stream stream) except -1
    cdef bint leave_idle(self, Worker worker) except -1
    cdef bint call_for_tasks(self) except -1
    cdef int call_once(self) except -1
    cdef int see_to_tasks(self) except -1
    cdef bint await_number(self, Stream lane, int64_t sequence, double timeout_s) except -1
    cdef int push(self, Stream stream, Op op) except -1
    cdef int advance(self, Stream stream) except -1
    cdef int pass_wait(self, Stream stream, Op op) except -1
    cdef bint reach(self, Stream stream, int64_t sequence) except -1
    cdef bint issue(self, Stream stream, Op op) except -1
    cdef int must_have_room(self, int device, int64_t nbytes) except -1
    cdef int settle(self) except -1
    cdef int wake(self, Stream stream) except -1
    cdef int put_first(self, Stream stream) except -1
    cdef int offer(self, Stream stream) except -1
    cdef bint hire(self)
    cdef Worker take_from_reserve(self)
    cdef int work(self, Worker worker) except -1
    cdef int dismiss(self, Worker worker) except -1
    cdef int limit_libraries(self, Worker worker, int turn) except -1
    cdef Stream take(self)
    cdef int execute(self, Stream stream, Op op) except -1
    cdef int perform(self, Stream stream, Op op) except -1
    cdef int perform_patiently(self, Stream stream, Op op) except -1
    cdef int failed(self, Stream stream, object error) except -1

cdef Op make_op(int kind, object body)
cdef bint is_called_off(object keep) except -1
