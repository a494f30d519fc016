from libc.stdint cimport int64_t
from stf._engine cimport host_waits
from stf._port.programs cimport Program
from stf._recording.playback cimport Launch
from stf._port.events cimport EventSet
from stf._port.port cimport COMPUTE, Port
from stf._engine.engine cimport Engine
from stf._port.late_values cimport are_fixed, is_as_before

cdef class DriverGraph:
    cdef Variant own
    cdef Variant exported  # for others to launch, where there are bodies on the host
    cdef readonly object refusal
    cdef readonly dict others
    cdef int runs_left
    cdef bint is_reported  # that it is played, and why
    cdef bint moves  # the driver changes nodes of graphs as other data need it
    cpdef bint is_captured(self) except -1
    cpdef int launch(self, Launch launch, object thing, int slot) except -2
    cdef Variant made_for(self, Launch launch, object thing)
    cpdef int make(self, Launch launch, object thing) except -1
    cdef int forget(self, Bound bound, Variant variant) except -1
    cdef Variant made_for_other_data(self, Launch launch, object thing)
    cpdef object export(self, Launch launch, object thing)
    cdef Variant captured(self, Launch launch, object thing, object hosts=*)
    cdef int refuse(self, Launch launch, object thing, object reason) except -1

cdef class Variant:
    cdef readonly object graph
    cdef list marks
    cdef object calls
    cdef object values
    cdef bint is_ready
    cdef Bound bound
    cdef dict moving
    cdef list changed_for(self, Bound before, Bound after)
    cdef bint can_move(self, Launch launch) except -1
    cdef Move move_for(self, Launch launch, Bound before)
    cdef bint takes_graphs(self) except -1

cdef class Mark:
    cdef readonly object node
    cdef object make
    cdef object content
    cdef tuple shape
    cdef object remake
    cdef object made_for(self, Launch launch)

cdef class Repack:
    cdef Program program
    cdef int64_t position
    cdef Arguments arguments
    cpdef list replicas(self)
    cdef object made_for(self, Launch launch)

cdef class Bound:
    cdef object key
    cdef object objects
    cdef dict addresses

cdef class Move:
    cdef Bound before
    cdef Bound after
    cdef list marks
    cdef list makes
    cdef int add(self, Mark mark, object make) except -1

cdef class Arguments:
    cpdef bytes packed(self, object values, bytes recorded)

cdef class Variation:
    cdef bytes recorded
    cdef Arguments arguments

cdef list contents_for(object values, list makes)
cdef Bound bound_for(Launch launch)
cdef bint submit(Launch launch, Variant variant, list contents, bint later, Bound bound, Move move) except -1
cdef int renew_moved(Launch launch, Variant variant, Move move, list contents) except -1
cdef int put_later(Launch launch, Variant variant, list contents) except -1
cdef int renew(Launch launch, Variant variant, list marks, list contents) except -1
