from stf._engine cimport host_waits
from stf._engine.access cimport ACCUMULATE, AFFINE, READ, RW, WRITE, Access, Data
from stf._recording.device_graphs cimport DriverGraph
from stf._engine.coherency cimport Coherency
from stf._port.events cimport EventSet
from stf._engine.scope cimport Scope
from stf._port.replicas cimport INVALID, MODIFIED, SHARED, Layout, Replica
from stf._port.programs cimport Program
from stf._recording.playback cimport Frame
from stf._port.port cimport COMPUTE, COPY_IN, COPY_OUT, HOST, Port
from stf._engine.versions cimport Outcome, Version
from stf._engine.engine cimport Engine
from stf._engine.task cimport TaskCore
from stf._support.sync cimport PyThread_get_thread_ident

cdef class RecordingScope(Scope):
    cdef readonly Engine engine
    cdef public list parts
    cdef readonly list touched
    cdef readonly list skips
    cdef readonly list held
    cdef readonly EventSet after
    cdef readonly list temporaries
    cdef readonly long long first_data
    cdef int take_up(self, Data data) except -1

cdef class Use:
    cdef readonly Data data
    cdef public int mode
    cdef public list entries
    cdef public list finals
    cdef public bint had_content
    cdef public object neutral_op
    cdef Version version
    cdef public bint conditional
    cdef public bint unread

cdef class Routine:
    cdef readonly Engine engine
    cdef public list uses
    cdef public EventSet after
    cdef public list parts
    cdef readonly bint runs_once
    cdef public int owners
    cdef public int holders
    cdef readonly bint closed
    cdef bint is_lent  # a replayed function has it, and somebody else
    cdef public EventSet last
    cdef public object needed
    cdef public list spoilt
    cdef public list skips
    cdef public bint is_shared
    cdef readonly object turn
    cdef public unsigned long holder
    cdef public DriverGraph graph
    cdef public object awaited  # data that somebody waits for, and where in it; None if that is the end, or unknown
    cpdef object run(self, Frame frame)
    cpdef object put(self, Frame frame)
    cpdef bint calls(self) except -1
    cpdef bint has_calls(self) except -1
    cpdef list flags(self)
    cpdef close_inside(self)
    cpdef become_cached(self)
    cpdef give_up(self)

cdef class Recording(Routine):
    cdef bint is_cached
    cdef readonly Program program
    cdef readonly str description
    cdef readonly object life
    cdef readonly list touched
    cdef readonly list held
    cdef list temporaries
    cdef readonly Outcome outcome
    cdef readonly Program outline  # the program in pieces; None as far as is known
    cdef bint was_outlined
    cdef bint is_piecemeal(self, Frame frame) except -1
    cdef int run_awaited(self, Frame frame) except -1
