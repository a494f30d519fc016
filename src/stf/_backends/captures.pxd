from stf._backends.lanes cimport Lane, LanePort
from stf._drivers.base cimport Driver
from stf._port.captures cimport DIRECT, Captures, OpenCapture
from stf._port.events cimport EventSet, LANE_SHIFT

cdef class StreamCaptures(Captures):
    cdef LanePort port  # whose lanes
    cdef Driver driver
    cdef list devices  # the driver's, by place
    cdef object make_port
    cdef EventSet decided  # the last part that a device decides about is over
    cdef object fill(self, int place, object capture, object play, int staged)
