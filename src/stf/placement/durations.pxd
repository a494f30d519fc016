cdef class Durations:
    cdef dict timings  # by name of the task, then by size class and kind of device
    cdef object last_name
    cdef dict last
    cdef Timing timing(self, object name, int size_class, int kind)

cdef class Timing:
    cdef readonly double mean  # seconds, of those that count; below 0 while too few are known
    cdef readonly int count  # how many were measured
    cdef int asked  # how many tasks there were
    cdef list recent
    cdef bint is_due(self) noexcept
    cpdef int add(self, double seconds) except -1
