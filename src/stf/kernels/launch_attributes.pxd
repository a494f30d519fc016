cimport cython
from stf._port.port cimport Port
from stf._engine.engine cimport Engine
from stf.tasks.recapture cimport Recaptured

cdef class LaunchCapture(Recaptured):
    cdef Port port
    cdef tuple how
    cdef bytes content
    cdef list pointers
    cdef object arguments
    cdef int where
    cdef tuple last  # arguments, and what was captured for them
    cdef capture(self, bytes content)
