from libc.stdint cimport int64_t
from stf._backends.lanes cimport Lane, LanePort
from stf._drivers.base cimport Driver
from stf._port.captures cimport DIRECT, Captures
from stf._port.events cimport EventSet, LANE_SHIFT

cdef class StreamCaptures(Captures):
    cdef LanePort port  # whose lanes
    cdef Driver driver
    cdef object graphs  # of the driver
    cdef list devices  # the driver's, by place
    cdef object make_port
    cdef EventSet decided  # the last part that a device decides about is over
    cpdef object begin(self, int place, object owner)
    cdef bint takes(self, int slot, int place) except -1
    cdef int play(self, int slot, object captured) except -1
    cdef int queue(self, int slot, object captured, list changes) except -1
    cpdef int prepare(self, object captured) except -1
    cpdef int renew(self, object captured, list changes) except -1
    cpdef object capture(self, int place, object play, int staged)
    cdef object fill(self, int place, object capture, object play, int staged)
    cpdef int call(self, int slot, object body, list targets) except -1
    cpdef object condition(self, int slot, bint loops)
    cpdef int decide(self, int slot, object condition, tuple decision) except -1
    cpdef int play_if(self, int slot, object condition, object play) except -1
    cpdef object last_node(self, int slot)
    cpdef object node_count(self, int slot)
    cpdef object memory_nodes_since(self, int slot, object count)
    cpdef object child_of(self, object pointer)
    cdef object pointer(self, int slot)
