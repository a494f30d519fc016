cimport cython
from stf._engine.access cimport READ, Access
from stf._engine.task cimport TaskCore

cdef object LAST_VALUES

cdef list written_values(TaskCore task, list values)
cpdef int store_results(object result, list written, object fn, object given=*, bint owes=*) except -1
