cdef enum:  # how copies of memory that is not pinned are captured: as such, or by way of pinned memory,
    DIRECT = 0
    STAGED_HERE = 1  # for a graph that is launched here, and kept by who has it
    STAGED = 2  # for one that others launch

cdef class OpenCapture:
    cdef readonly object pointer
    cdef readonly object owner
    cpdef int make_current(self) except -1
    cpdef bint is_spoilt(self) except -1
    cpdef object end(self)
    cpdef object end_body(self)

cdef class Captures:
    cdef readonly object graphs  # of the driver
    cpdef OpenCapture begin(self, int place, object owner)
    cdef bint takes(self, int slot, int place) except -1
    cdef int play(self, int slot, object captured, bint fixed) except -1
    cdef int play_all(self, int slot, list captured) except -1
    cdef int queue(self, int slot, object captured, list changes) except -1
    cpdef object capture(self, int place, object play, int staged)
    cpdef int call(self, int slot, object body, list targets) except -1
    cpdef int launch(self, int slot, object function, tuple shape, list offsets, bytes arguments, bint at_once) except -1
    cpdef object condition(self, int slot, bint loops)
    cpdef int decide(self, int slot, object condition, tuple decision) except -1
    cpdef int play_if(self, int slot, object condition, object play) except -1
