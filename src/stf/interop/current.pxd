from stf._sync cimport PyThread_get_thread_ident

cdef object modules
cdef dict cupy_streams
cdef dict torch_streams

cdef list innermost
cdef list latest

cdef class Borrowed:
    cdef object pointer
    cdef object ordinal
    cdef unsigned long thread
    cdef Borrowed below
    cdef int take(self) except -1
    cdef int renew(self) except -1
    cdef Borrowed leave_chain(self)
    cdef object cupy_before
    cdef object torch_before
    cdef bint grad_before
    cpdef give_back(self)
    cdef int turn_grad_off(self, torch) except -1
