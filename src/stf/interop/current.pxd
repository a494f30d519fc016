cimport cython
from stf._support.sync cimport is_alive, this_thread

cdef dict modules
cdef list owed
cdef list torch_calls
cdef dict cupy_streams
cdef tuple last_cupy
cdef dict torch_streams

cdef enum:  # of what is kept of a stream in CuPy
    ENTER = 0
    CURRENT = 1
    STREAM = 2
    EXIT = 3
    NULL = 4

@cython.no_gc
cdef class Borrowed:
    cdef object pointer
    cdef object ordinal
    cdef unsigned long long thread
    cdef Borrowed below
    cdef int begin(self, object pointer, object ordinal) except -1
    cdef int take(self) except -1
    cdef int take_cupy(self) except -1
    cdef int take_torch(self) except -1
    cdef bint is_current(self) except -1
    cdef bint is_current_in_torch(self) except -1
    cdef int renew(self) except -1
    cdef int move(self) except -1
    cdef int yield_place(self, Borrowed other) except -1
    cdef bint is_crossed(self) except -1
    cdef int leave_cupy(self) except -1
    cdef int leave_cupy_below(self, list after) except -1
    cdef int keep_torch(self) except -1
    cdef int leave_chain(self) except -1
    cdef bint leave_to_its_thread(self) except -1
    cdef bint is_covered(self) except -1
    cdef int put_back(self) except -1
    cdef bint on_other_device
    cdef int entered
    cdef tuple cupy
    cdef tuple torch
    cdef object cupy_before
    cdef object torch_before
    cdef bint grad_before
    cpdef give_back(self)
    cdef int return_streams(self) except -1
    cdef int turn_grad_off(self, object is_on, object turn) except -1

@cython.no_gc
cdef class HostUse(Borrowed):
    cdef list ordinals
    cdef object device

@cython.no_gc
cdef class HostStream(Borrowed):
    cdef object inner
    cdef object lent
    cdef readonly object address

cdef bint refuses_cuda
cdef Borrowed innermost
cdef Borrowed latest

cdef bint has_cuda() except -1
cdef bint uses_cuda() except -1
cdef tuple known_torch_stream(object pointer, object ordinal)
cdef Borrowed borrow(object pointer, object ordinal)
cpdef int return_owed() except -1
cdef bint take_out(Borrowed borrowed) except -1
