cimport cython
from libc.stdint cimport int64_t
from stf._engine.access cimport ACCUMULATE, AFFINE, READ, RW, WRITE, Access, Data, DataHandle
from stf._port.events cimport EventSet
from stf._port.replicas cimport Replica
from stf._engine.queued_bodies cimport QueuedBody
from stf.tasks.closures cimport constants_of, reaches, refuse_lost, snapshot, with_globals, with_last_values
from stf.interop.captures cimport PrivatePools, are_needed, kept_pools
from stf.interop.current cimport Borrowed, borrow
from stf._engine cimport host_waits
from stf._engine.engine cimport Engine
from stf._port.port cimport Port
from stf._port.programs cimport RUN
from stf._engine.task cimport OPEN, TaskCore
from stf._recording.playback cimport Frame
from stf._support.sync cimport PyThread_get_thread_ident
from stf._support.untracked cimport untrack
from stf.tasks.results cimport store_results, written_values
from stf.tasks.undeclared cimport refuse_arrays, refuse_undeclared
from stf.tasks.views cimport views_to_fill, group, sources_in, view_at, views_of

cdef object TOKEN
cdef list tensors_made

@cython.no_gc
cdef class Body(QueuedBody):
    cdef readonly object fn
    cdef readonly tuple args
    cdef list written
    cdef list to_fill
    cdef object check
    cdef list kinds
    cdef list late
    # of a recorded body: (argument, replica, whether it is written, library, which array of the argument's, or -1); None
    # if not known
    cdef readonly list argument_sources
    cdef readonly list data  # of a recorded body: the numbers of the data that it works on
    cdef bint ignores
    cdef bint owes  # a result, since its code does not use all that it writes
    cdef object around
    cdef int prepare(self) except -1
    cdef object execute(self)
    cdef object work(self)
    cdef object work_alone(self)

cdef class Recaptured:
    cdef readonly bint varies
    cdef object symbol
    cdef int64_t id
    cdef object code
    cdef int lasti
    cdef describe(self, TaskCore task)

cdef class BlockCapture(Recaptured):
    cdef readonly tuple data

cdef class BodyCapture(Recaptured):
    cdef object root
    cdef readonly Body body
    cdef int where
    cdef int ordinal
    cdef tuple last  # values, addresses, and what was captured for them
    cdef readonly dict taken  # global numbers that the body had read, or might have
    cpdef int play(self, Frame frame) except -1
    cdef int play_part(self, Frame frame, Body body) except -1
    cdef capture(self, object owner, Body body)
    cdef capture_patiently(self, object owner, object values, object rebinding)
    cdef bint outlast_launches(self) except -1

cdef Body make_body(TaskCore task, object fn, object args, list written, list kinds=*, list late=*, list argument_sources=*, bint owes=*)
cdef int begin_body(TaskCore task, object movable=*) except -1
cdef bint is_held_up(Engine engine, TaskCore task) except -1
cdef int take_back(TaskCore task) except -1
cdef int submit(TaskCore task, Body body) except -1
cdef bint is_playable(Engine engine, Body body, object error) except -1
cdef int play_later(Engine engine, Body body, object error) except -1
cdef int record_body(Engine engine, Body body) except -1
cpdef int end_recorded(Engine engine, TaskCore task) except -1
cdef int run_now(Engine engine, TaskCore task, Body body) except -1
cdef bint runs_plainly(TaskCore task, list args) except -1
cdef int end_now(Engine engine, TaskCore task, Borrowed borrowed, object error) except -1
cdef int give_back(Engine engine, TaskCore task, Borrowed borrowed) except -1
cdef int open_pools(Engine engine, TaskCore task) except -1
cdef int close_pools(TaskCore task) except -1
cdef int fail_body(Engine engine, TaskCore task, object error) except -1
cdef int queue_body(Engine engine, TaskCore task, Body body) except -1
cdef int fail_with(Engine engine, TaskCore task, object error) except -1
cpdef int submit_body(TaskCore task, object fn, tuple extra, object lib=*) except -1
