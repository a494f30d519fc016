from stf._engine.access cimport AFFINE, READ, RW, WRITE, Access, Data
from stf._engine cimport host_waits
from stf._engine.coherency cimport NEVER
from stf._port.events cimport EventSet
from stf._port.replicas cimport MODIFIED, SHARED, Replica
from stf._port.programs cimport RUN
from stf._port.recording_port cimport RecordingPort
from stf._recording.playback cimport make_frame
from stf._recording.recordings cimport Routine, Use
from stf._engine.versions cimport Version
from stf._engine.engine cimport Engine
from stf._engine.task cimport BEGUN, OPEN, TaskCore
from stf._support.context_variables cimport variables_here
from stf._support.sync cimport PyThread_get_thread_ident

cdef class Needed:
    cdef Use use  # by the routine
    cdef Data core  # the data of this launch
    cdef list entries  # the places where they must be valid before
    cdef bint without_content  # nobody has written them, and nobody can tell if nobody does
    cdef Access access  # of the launch
    cdef bint is_plain  # the access is all that is needed
    cdef bint is_stale  # they are written before they are read, if they are at all

cdef class Needs:
    cdef list uses  # of `Needed`
    cdef tuple accesses  # of the task
    cdef bint late  # bodies run on the host
    cdef bint plain  # a begin and an end with these accesses bring all data and leave them where the work does
    cdef list stale  # the uses that are; None if none is

cdef int forget_failures(Engine engine, list stale) except -1
cdef Needs needs_of(Routine routine, object rebinding)
cdef int submit_begun(Engine engine, TaskCore task, Routine routine, Needs needs, object values, object rebinding, bint plain) except -1
cdef bint take_turn(TaskCore task, Routine routine) except -1
cdef int follow_last(Engine engine, TaskCore task, Routine routine) except -1
cdef int bring_entries(Engine engine, TaskCore task, Routine routine, list uses, object rebinding) except -1
cdef int run_at_root(Engine engine, TaskCore task, Routine routine, object values, bint late, object rebinding) except -1
cdef int take_writers(Use of) except -1
cdef int bring_forward(object awaited) except -1
cdef int set_finals(Data data, list places) except -1

cdef bint has_content(Version version) noexcept
cdef int submit_open(Engine engine, TaskCore task, Routine routine, Needs needs, object values, object rebinding) except -1
cdef int submit_held(Engine engine, TaskCore task, Routine routine, object values, object rebinding) except -1
cpdef int submit(Engine engine, TaskCore task, Routine routine, object values=*, object rebinding=*) except -1
