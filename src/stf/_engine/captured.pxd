from libc.stdint cimport int64_t

cdef class DriverGraph:
    cdef public object graph
    cdef readonly object refusal
    cdef list marks
    cdef object values
    cdef readonly dict others
    cdef int runs_left
    cdef bint is_ready
    cpdef object made_for(self, object launch, object thing, int slot)

cdef class Mark:
    cdef readonly int64_t node
    cdef object make
    cdef object content

cdef class Variation:
    cdef tuple shape
    cdef bytes recorded
    cdef object arguments
    cdef tuple content(self, object values)

cdef int renew(object launch, object graph, list marks) except -1
