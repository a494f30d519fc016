from stf._backends.lanes cimport Lane, LanePort
from stf._drivers.base cimport Driver
from stf._port.callers cimport Callers
from stf._port.captures cimport STAGED
from stf._port.events cimport EventSet, LANE_SHIFT
from stf._port.port cimport COMPUTE, HOST

cdef int LEGACY_STREAM

cdef class StreamCallers(Callers):
    cdef LanePort port  # whose lanes
    cdef Driver driver
