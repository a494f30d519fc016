from stf._engine.access cimport ACCUMULATE, Access, Data, DataHandle, make_access
from stf._engine.engine cimport Engine
from stf._engine.task cimport TaskCore
from stf._support.untracked cimport untrack
from stf._port.late_values cimport Asked
from stf.tasks.undeclared cimport refuse_arrays

cdef class Parameter:
    cdef readonly str name
    cdef readonly int mode
    cdef readonly str kind
    cdef readonly object op
    cdef readonly object library
    cdef readonly object element
    cdef readonly bint takes_any
    cdef readonly bint takes_data
    cdef readonly bint optional

cdef bint gives_accesses(list parameters, list values) except -1
cdef bint is_plain(object value) except -1
cdef int check_params(Engine engine, list values, list kinds) except -1
cdef int check_elements(list parameters, list values, object name) except -1
cdef int refuse_registered(list parameters, list values, TaskCore task) except -1
cdef object check_context(object context, object core)
cdef tuple with_further(tuple before, Parameter parameter, object values)
cdef list flattened(list values)
cdef object without_mode(object name, Parameter parameter, object value)
cdef int check_variadic(object name, list parameters, list kinds, list values) except -1
cdef int check_access(object name, Parameter parameter, object access, object op) except -1
