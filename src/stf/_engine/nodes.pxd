from libc.stdint cimport int64_t

cdef enum:
    LAUNCH = 0
    COPY = 1
    FILL = 2
    CALL = 3
    KEEP = 4
    CAPTURED = 5
    RUN = 6

cdef class Node:
    cdef readonly int index
    cdef readonly int place
    cdef readonly int kind
    cdef int lane
    cdef int64_t sequence
    cdef readonly list needs
    cdef readonly list operations
    cdef readonly bint is_last
    cdef int need(self, Node other) except -1

cdef class Program:
    cdef readonly list nodes
    cdef public int calls
    cdef public int runs
    cdef public int variants
    cdef int add(self, Node node) except -1
