from stf._port.port cimport Port

cdef class ClosedPort(Port):
    cdef readonly str description
