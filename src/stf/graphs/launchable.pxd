from libc.stdint cimport int64_t
from stf._recording cimport launches
from stf._recording.recordings cimport Routine
from stf.tasks.task cimport ContextCore, Task

cpdef Task submit_routine(ContextCore context, Routine routine, object name, object values=*, object rebinding=*)

cdef class GraphCore:
    cdef public object name
    cdef public int64_t launches
    cdef public object _context_ref
    cdef public Routine _recording
    cdef public dict _params
    cdef public list _in_kernels
    cdef public list _derived
    cdef public object _handed_out  # handles that the user launches it by; or None
    cdef public list _draws
    cdef Task launch_with(self, ContextCore context, object values, object rebinding=*)
