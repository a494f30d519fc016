cdef extern from *:
    """
    #include <math.h>
    /* The size class of a number of bytes: the power of two that it reaches. */
    static int stf_size_class(double nbytes) { int exponent = 1; if (nbytes > 1) frexp(nbytes, &exponent); return exponent - 1; }
    """
    int stf_size_class(double nbytes) noexcept

cdef class Timing:
    cdef readonly double mean  # seconds, of those that count; below 0 while too few are known
    cdef readonly int count  # how many were measured
    cdef int asked  # how many tasks there were
    cdef list recent
    cdef bint is_due(self) noexcept
    cpdef int add(self, double seconds) except -1

cdef class Timings:
    cdef readonly list kinds  # of devices, by number
    cdef object known  # says what a task takes of which nothing was measured; or None
    cdef dict timings  # by name of the task, then by size class and kind of device
    cdef object last_name
    cdef dict last
    cpdef Timing timing(self, object name, int size_class, int kind)
