from stf._engine.engine cimport Engine
from stf.tasks.arguments cimport Parameter
from stf.tasks.functions cimport TaskFunction
from stf.tasks.late_arrays cimport has_open
from stf.tasks.repeats cimport KnownCall
from stf.tasks.task cimport Task

cdef class PureCall(KnownCall):
    cdef TaskFunction function
    cdef readonly object fn
    cdef list values
    cdef dict shapes

cpdef PureCall pure_call(TaskFunction function, Task task, object fn, list values, dict shapes)
cdef bint is_steady(object value) except -1
