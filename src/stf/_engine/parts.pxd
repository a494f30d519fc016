from libc.stdint cimport int64_t
from stf._engine cimport thread_turns
from stf._engine.access cimport ACCUMULATE, AFFINE, READ, WRITE, Access, Data
from stf._engine.state cimport EngineState
from stf._engine.task cimport TaskCore
from stf._engine.versions cimport Version, outermost
from stf._port.port cimport COMPUTE
from stf._port.replicas cimport INVALID, Layout, Replica, home_of, make_replica

cdef enum:
    WHOLE = 0
    PART = 1
    PADDED = 2
    WINDOW = 3

cdef class Relation:
    cdef readonly Data data  # that it is of
    cdef readonly int kind  # WHOLE, PART, PADDED or WINDOW
    cdef readonly Data whole  # what it is a part of
    cdef readonly Data part  # what it is a padded form of
    cdef readonly list others  # of a whole its parts; of a part its padded forms; of these the other ones
    cdef public list neighbours  # of a padded form: the parts that its content comes from, its own among them; of a
    # window: the parts that lie in it
    cdef public int64_t synced  # of a part: when it was last copied to the whole, or from it
    cdef public object refresh  # ``refresh(place)`` brings the content up to date, outside of the gate
    cpdef bint is_newer_part(self) except -1
    cpdef bint is_older_part(self) except -1

cpdef Data whole_of(Data data)
cdef Relation relation_of(Data data)
cdef Version conflict(EngineState engine, TaskCore task, Access use)
cdef Version holder(EngineState engine, TaskCore task, Access use, Relation relation, bint writes, bint copies)
cdef bint is_held(EngineState engine, TaskCore task, Access use, Data other, bint writes) except -1
cdef int check_neighbours(TaskCore task, Relation relation) except -1
cdef bint is_old(Relation relation) except -1
cdef bint has_old_margins(EngineState engine, Relation relation) except -1
cdef int64_t stamp(EngineState engine, Data data) except -1
cdef int must_be_needed(TaskCore task, Relation relation) except -1
cdef int check_recorded(EngineState engine, TaskCore task, Access use, Relation relation, bint writes) except -1
cdef bint is_mixed(EngineState engine, Data other, bint writes) except -1
cdef int order(EngineState engine, Relation relation, bint writes) except -1
cdef int note_write(EngineState engine, TaskCore task, Data data) except -1
cdef bint is_copy(TaskCore task) except -1
cpdef int note_change(EngineState engine, Data data) except -1
cdef int settle_in(Data data, Data memory, Layout inside, int64_t offset, int place) except -1
cdef int move_home(EngineState engine, Data data, Data memory, Layout inside, int64_t offset) except -1
cdef Replica window(Replica replica, tuple where, tuple shape)
