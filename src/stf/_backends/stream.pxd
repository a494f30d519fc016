from stf._backends.lanes cimport Lane, LanePort
from stf._drivers.base cimport Driver
from stf._port.events cimport EventSet, LANE_SHIFT, SEQUENCE
from stf._port.links cimport Links
from stf._port.replicas cimport span_of
from stf._port.captures cimport DIRECT
from stf._port.port cimport COMPUTE, HOST

cdef class StreamBackend(LanePort):
    cdef readonly Driver driver
    cdef bint owns_driver
    cdef list devices
    cdef dict foreign_handles
    cdef int capturable  # places from here on are streams and contexts of the user's, where nothing is captured
    cdef int staged
    cdef int make_stream(self, int place, int priority=*) except -1
    cdef int device_at(self, int place) except -1
    cdef int commit_all(self, EventSet events) except -1
