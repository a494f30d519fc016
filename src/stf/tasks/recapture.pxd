from libc.stdint cimport int64_t
from stf._engine cimport host_waits
from stf._engine.access cimport Access
from stf._engine.engine cimport Engine
from stf._engine.task cimport TaskCore
from stf._port.events cimport EventSet
from stf._port.port cimport Port
from stf._recording.playback cimport Frame
from stf._support.sync cimport PyThread_get_thread_ident
from stf._support.untracked cimport untrack
from stf.interop.captures cimport PrivatePools
from stf.interop.current cimport Borrowed, borrow
from stf.tasks.bodies cimport Body
from stf.tasks.closures cimport constants_of

cimport cython

@cython.no_gc
cdef class Recaptured:
    cdef readonly bint varies  # with values of parameters
    cdef object symbol  # of the task; or None
    cdef int64_t id  # of the task
    cdef object code  # that submitted it,
    cdef int lasti  # and the instruction there
    cdef int describe(self, TaskCore task) except -1

@cython.no_gc
cdef class BlockCapture(Recaptured):
    cdef readonly tuple data  # the numbers of the data that it works on
    cdef int describe_block(self, TaskCore task) except -1

cdef class BodyCapture(Recaptured):
    cdef object root  # the port that captures
    cdef readonly Body body
    cdef int where  # the place of its task
    cdef int ordinal  # of the device there
    cdef tuple last  # values, addresses, and what was captured for them
    cdef readonly dict taken  # global numbers that the body had read, or might have
    cpdef int play(self, Frame frame) except -1
    cdef int play_part(self, Frame frame, Body body) except -1
    cdef capture(self, object owner, Body body)
    cdef capture_patiently(self, object owner, object values, object rebinding)
    cdef bint outlast_launches(self) except -1
