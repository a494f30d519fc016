from stf._engine cimport host_waits
from stf._engine.access cimport READ, RW, WRITE, Access, Data
from stf._recording.device_graphs cimport DriverGraph
from stf._port.events cimport EventSet
from stf._engine.scope cimport Scope
from stf._port.replicas cimport INVALID, SHARED, Layout, Replica, make_replica
from stf._port.programs cimport Program
from stf._recording.playback cimport Frame
from stf._port.port cimport COMPUTE
from stf._port.recording_port cimport RecordingPort
from stf._engine.versions cimport Outcome, Version, make_version
from stf._engine.engine cimport Engine
from stf._engine.task cimport TaskCore

cdef class RecordingScope(Scope):
    cdef readonly Engine engine  # whose it is
    cdef public list parts  # recordings that it runs
    cdef readonly list touched  # the data that its tasks used
    cdef readonly list skips  # (failure, text) that was told before, and kept tasks from running
    cdef readonly list held  # (data, replica) that it has reserved, and pinned
    cdef readonly EventSet after  # when that memory may be used
    cdef readonly list temporaries  # replicas that only its program uses
    cdef readonly long long first_data  # the number of the first data that is made in it
    cdef int take_up(self, Data data) except -1

cdef class Use:
    cdef readonly Data data  # that are used
    cdef public int mode  # of all its tasks together
    cdef public list entries  # the places where they must be valid before
    cdef public list finals  # the places where they are valid afterwards; None if they are not written
    cdef public bint had_content  # before it was recorded
    cdef public object neutral_op  # whose neutral element a launch begins with that finds no content; or None
    cdef Version version  # of the recording, if it is launched once; else None
    cdef public bint conditional  # they may stay as they are
    cdef public bint unread  # they are read for that alone

cdef class Routine:
    cdef readonly Engine engine  # whose it is
    cdef public list uses  # the accesses of a launch
    cdef public EventSet after  # when its memory may be used
    cdef public list parts  # routines that it runs, and holds
    cdef readonly bint runs_once  # it is launched once: bodies say themselves how they went
    cdef public int owners  # that close it: users, launches, and routines around it
    cdef public int holders  # recordings that it is a part of
    cdef readonly bint closed  # its memory is given up
    cdef bint is_lent  # a replayed function has it, and somebody else
    cdef public EventSet last  # the end of the last launch, once one had other data; or None
    cdef public object needed  # what a launch with its own data needs; None if unknown
    cdef public list spoilt  # (data, version) that skipped tasks were to write
    cdef public list skips  # (failure, text) to be told again when it is launched
    cdef public bint is_shared  # it has memory that all launches use, whatever their data
    cdef readonly object turn  # the lock of launches of several threads
    cdef public unsigned long holder  # the thread whose turn it is; or 0
    cdef public DriverGraph graph  # of the driver's; None if it can have none
    cdef public object loops  # its `persistent.Loops`; None if it is never one
    cdef Replica loop_memory  # what its loop on a device reads; or None
    cdef public bint plays  # it is always played
    cdef public object awaited  # data that somebody waits for, and where in it; None if that is the end, or unknown
    cpdef object run(self, Frame frame)
    cpdef object put(self, Frame frame)
    cpdef bint calls(self) except -1
    cpdef bint has_calls(self) except -1
    cpdef list flags(self)
    cpdef bint hold(self) except -1
    cpdef close(self)
    cpdef close_inside(self)
    cpdef become_cached(self)
    cpdef give_up(self)

cdef class Recording(Routine):
    cdef bint is_cached  # a replayed function has it, and can do without
    cdef readonly Program program  # what a launch does
    cdef readonly str description  # for messages
    cdef readonly object life  # says whether it is closed, and does not keep it alive
    cdef readonly list touched  # the data that its tasks used
    cdef readonly list held  # (data, replica) that it has reserved, and pinned
    cdef list temporaries  # replicas that only its program uses
    cdef readonly Outcome outcome  # of its launch, for handles of tasks without one; None if it comes again
    cdef readonly object outline  # the program in pieces; False if it has none; None as far as is known
    cdef bint is_piecemeal(self, Frame frame) except -1
    cdef int run_awaited(self, Frame frame) except -1
