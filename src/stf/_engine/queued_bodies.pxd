cimport cython
from libc.stdint cimport int64_t
from stf._engine.versions cimport Outcome
from stf._engine cimport host_waits
from stf._engine.state cimport EngineState
from stf._engine.task cimport BEGUN, CALLED_OFF, WAITS, TaskCore
from stf._port.host_calls cimport HostCall
from stf._support.context_variables cimport variables_here
from stf._support.sync cimport PyThread_get_thread_ident

cdef dict RUNNING

@cython.no_gc
cdef class QueuedBody(HostCall):
    cdef EngineState engine
    cdef public object body
    cdef public object make  # ``make(rebinding)``: the body for other data; None if it knows none
    cdef Outcome outcome  # None: it is a node of a graph that others launch
    cdef public object graph  # the life of what that was made of, whose memory it uses; None if the graph has its own
    cdef public bint in_graphs  # it uses no CUDA, and can be a node of a graph of the driver's
    cdef public object targets  # the replica that it may write, where it is recorded; or a list of several, or none
    cdef public object variables  # the context variables of who submitted it, or launched it; None if there are none
    cdef list inputs
    cdef readonly TaskCore task
    cdef bint watched
    cdef int64_t nbytes  # of the data, where nothing is computed
    cdef int adopt(self, TaskCore task) except -1
    cdef QueuedBody again(self, object values, object rebinding)
    cdef int copy_to(self, QueuedBody call) except -1
    cdef int prepare(self) except -1
    cdef object execute(self)
    cdef object attempt(self)
    cdef object run(self)
    cdef object run_here(self)
    cdef object run_if_sound(self)
    cdef object failure_of(self, object error)
    cdef object run_in_graph(self)
    cdef int tell(self, object failure) except -1
    cdef int tell_times(self, object thread, object start, object end) except -1

@cython.no_gc
cdef class FoldCall(QueuedBody):
    pass
