cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void* collected)
    bint PyObject_GC_IsTracked(object thing)

cdef int untrack(object thing) except -1
cdef int untrack_tuple(tuple items) except -1
