cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from stf._port.replicas cimport Layout, Replica

@cython.final
@cython.freelist(64)
@cython.no_gc
cdef class CompiledCall:
    cdef readonly int64_t function  # the address of ``int(int64_t *slots)``, which returns 0
    cdef int64_t* slots
    cdef readonly int count  # of these
    cdef readonly int64_t cost_ns  # about how long it takes
    cdef readonly int64_t nbytes  # of its arrays
    cdef readonly bint is_timed  # who wants to know how long it takes is told
    cpdef int64_t result(self) except? -1

@cython.no_gc
cdef class HostCall:
    cdef public CompiledCall compiled  # does the same; None if nothing is known that does
    cdef bint may_run_compiled(self) except -1
    cdef int* begins(self) except NULL
    cdef int ran_compiled(self) noexcept
    cdef int call_again(self) except -1
    cdef int took(self, int64_t ns) except -1

cdef enum:  # how the word of a number is made: by a function, or from an int or a float
    BY_FUNCTION = 0
    OF_INT = 1
    OF_FLOAT = 2

ctypedef struct Varying:
    int slot
    int position  # of the array, or of the number
    int form

cdef class CallTemplate:
    cdef int64_t function
    cdef int64_t* slots
    cdef int count
    cdef Varying* varying  # addresses of arrays, then numbers
    cdef int addresses
    cdef int numbers
    cdef list layouts  # of the arrays of each address: (shape, strides, dtype)
    cdef list known  # a layout for each that was like it
    cdef list kinds  # the type of each number,
    cdef list packed  # and what makes its word
    cdef Py_ssize_t arrays  # how many there are
    cdef int64_t cost_ns  # about how long a call takes
    cdef int64_t nbytes  # of its arrays
    cdef int left  # calls that nobody measures, before the next
    cdef CompiledCall filled(self, list replicas, tuple numbers)
    cdef bint is_alike(self, int number, Layout layout) except -1
