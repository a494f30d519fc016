from stf._engine cimport host_waits
from stf._engine.access cimport READ
from stf._engine.engine cimport Engine
from stf._port.host_calls cimport CallTemplate
from stf._engine.task cimport OPEN, TaskCore
from stf._engine.thread_turns cimport gathers
from stf._port.programs cimport RUN
from stf._port.recording_port cimport RecordingPort
from stf.interop.captures cimport PrivatePools, are_needed, pools_of
from stf.interop.current cimport Borrowed, borrow
from stf.tasks.bodies cimport Body, make_body, written_values
from stf.tasks.closures cimport reaches, refuse_lost, snapshot, with_globals, with_last_values
from stf.tasks.placing cimport can_be_held, hold, settle, take_back_place
from stf.tasks.undeclared cimport refuse_arrays, refuse_undeclared
from stf.tasks.views cimport group, sources_in, views_of, without_tokens

cdef object TOKEN
cdef list tensors_made
cdef object recapture_module
cdef tuple NOTHING

cpdef int submit_body(TaskCore task, object fn, tuple extra, object lib=*) except -1
cpdef int submit_own(TaskCore task, object fn, tuple extra, object lib=*, object template=*) except -1
cpdef int go_on(TaskCore task, object fn, tuple extra, object lib, tuple injected, bint was_held) except -1
cdef int begin_here(Engine engine, TaskCore task) except -1
cdef int enter_here(Engine engine, TaskCore task) except -1
cdef int begin_body(TaskCore task, object movable=*) except -1
cdef bint may_move(Engine engine, list kinds) except -1
cdef object injected_value(object kind, TaskCore task)
cdef bint is_held_up(Engine engine, TaskCore task) except -1
cdef int take_back(TaskCore task) except -1
cdef int submit(TaskCore task, Body body) except -1
cdef int run_now(Engine engine, TaskCore task, Body body) except -1
cdef bint runs_plainly(TaskCore task, list args) except -1
cdef int end_now(Engine engine, TaskCore task, Borrowed borrowed, object error) except -1
cdef int give_back(Engine engine, TaskCore task, Borrowed borrowed) except -1
cdef int fail_body(Engine engine, TaskCore task, object error) except -1
cdef int queue_body(Engine engine, TaskCore task, Body body) except -1
cdef int fail_with(Engine engine, TaskCore task, object error) except -1
cdef int open_pools(Engine engine, TaskCore task) except -1
cdef int close_pools(TaskCore task) except -1
cdef object recapture()
cdef object block_of(TaskCore task)
cdef int record_body(Engine engine, Body body) except -1
cdef bint is_playable(Engine engine, Body body, object error) except -1
cdef int play_later(Engine engine, Body body, object error) except -1
cpdef int end_recorded(Engine engine, TaskCore task) except -1
