from stf._support.sync cimport Gate

ctypedef int (*Getter)() noexcept
ctypedef void (*Setter)(int) noexcept

cdef class LibraryThreads:
    cdef Gate gate
    cdef list limits  # of the drivers whose workers run
    cdef Py_ssize_t modules  # how many there were when the libraries were looked for
    cdef list of_threads  # libraries whose number holds for a thread
    cdef list of_process
    cpdef int hold(self, int count) except -1
    cpdef int release(self, int count) except -1
    cpdef int limit_this_thread(self, int count) except -1
    cdef int apply(self) except -1
    cdef int look(self) except -1

cdef class OfProcess:
    cdef readonly object path
    cdef object getter
    cdef object setter
    cdef size_t get_address
    cdef size_t set_address
    cdef bint is_limited
    cdef int before  # threads that it had
    cdef int now  # that it was given
    cdef int get(self) except? -1
    cdef int set(self, int count) except -1
    cdef int limit(self, int count) except -1
    cdef int restore(self) except -1

cdef LibraryThreads library_threads
