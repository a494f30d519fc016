cimport cython
from stf._engine cimport host_waits
from stf._engine.queued_bodies cimport QueuedBody
from stf._port.host_calls cimport HostCall
from stf._recording.launch_state cimport Launch

@cython.no_gc
cdef class LoopCall(HostCall):
    cdef Launch launch
    cdef object run
    cdef bint ends  # nothing comes after it in the launch
    cdef object perform(self, object run)
