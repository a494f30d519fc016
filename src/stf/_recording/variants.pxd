from libc.stdint cimport int64_t
from stf._port.programs cimport Program
from stf._port.replicas cimport Replica
from stf._recording.launch_state cimport Launch

cdef class Variant:
    cdef readonly object graph  # the driver's
    cdef Launch launch  # for which it is captured; None when it is done
    cdef object port  # on which it is captured; None when it is done
    cdef list patches  # that depend on values of parameters; None if no node does
    cdef bint has_bodies  # some of these are graphs
    cdef dict by_replica  # patches that depend on a replica, by its identity; None if data cannot change
    cdef object calls  # its bodies on the host; None if it has none, or others launch it
    cdef object life  # of the recording, which bodies ask that others launch
    cdef object values  # of the last launch; UNKNOWN if they may have changed
    cdef bint is_ready  # the driver has made it executable
    cdef object bound  # the data that it works on; None for those that were recorded, and during a change
    cdef int complete(self) except -1
    cdef bint takes(self, bint varies, list replicas) except -1
    cdef int note(self, Patch patch, object port, bint varies, list replicas) except -1
    cdef int note_replicas(self, Patch patch, object port, list replicas) except -1
    cdef list changed_for(self, object before, object after)
    cdef list patches_for(self, object before, object after)

cdef class Patch:
    cdef readonly object node  # of the graph
    cdef object content  # what it is since the last launch; None if nobody knows
    cdef tuple shape  # of a kernel's launch; empty for a copy or a fill; None for a body's graph
    cdef object binding  # of the values of a nested graph to those of the launch; or None
    cdef object content_for(self, Launch launch, object values)
    cdef object make(self, Launch launch, object values)

cdef class KernelPatch(Patch):
    cdef Program program  # that has the launch, if one does,
    cdef int64_t position  # there
    cdef Arguments arguments  # that are parameters; or None
    cdef bytes recorded  # all arguments, for the recorded data

cdef class BodyPatch(Patch):
    cdef object again  # captures the body anew
    cdef object first  # what was captured of it when it was recorded

cdef class MemoryPatch(Patch):
    cdef Replica target
    cdef Replica source  # None for a fill
    cdef int64_t target_address  # when it was captured
    cdef int64_t source_address

cdef class Arguments:
    cpdef bytes packed(self, object values, bytes recorded)
