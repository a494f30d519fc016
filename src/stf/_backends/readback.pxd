from stf._backends.lanes cimport Lane
from stf._drivers.base cimport Driver
from stf._port.readback cimport Readback

cdef class StreamReadback(Readback):
    cdef list lanes
    cdef Driver driver
