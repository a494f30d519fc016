cdef object modules
cdef dict cupy_streams
cdef dict torch_streams

cdef class Borrowed:
    cdef object cupy_before
    cdef object torch_before
    cpdef give_back(self)
