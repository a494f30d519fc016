cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport malloc, free

cdef enum:
    LANE_SHIFT = 44
    SEQUENCE = 0xFFFFFFFFFFF  # the bits below it
    INLINE_EVENTS = 8

@cython.no_gc
cdef class EventSet:
    cdef int64_t[INLINE_EVENTS] inline_items
    cdef int64_t* items
    cdef readonly int count
    cdef int capacity
    cdef readonly list numbers  # of the tasks, and with a minus sign of the operations, that end with them; None where nobody observes
    cpdef int add(self, int64_t event) except -1
    cdef int add_near(self, int64_t event, int near) except -1
    cdef int append(self, int64_t event) except -1
    cpdef int update(self, EventSet other) except -1
    cpdef int clear(self) except -1
    cdef int add_number(self, int64_t number) except -1
    cdef int add_numbers(self, list numbers) except -1
    cdef int take_numbers(self, EventSet other) except -1
    cpdef list tolist(self)

cdef int grow(EventSet events) except -1
