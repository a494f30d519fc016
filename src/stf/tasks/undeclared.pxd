from stf._engine.task cimport TaskCore
from stf.tasks.closures cimport Names, PyDict_GetItemWithError, names_in

cdef dict KNOWN
cdef tuple BUFFERS
cdef tuple HARMLESS

cpdef int refuse_undeclared(object fn, TaskCore task, int depth=*) except -1
cdef bint may_reach_arrays(object fn) except -1
cdef int refuse_in(object contents, object name, TaskCore task) except -1
cdef int refuse_bound(object fn, TaskCore task, int depth) except -1
cdef bint may_hold(object value) except -1
cpdef int refuse_arrays(object value, object name, TaskCore task, object keys=*, int depth=*) except -1
cdef int refuse_array(object value, object name, TaskCore task) except -1
