from stf._engine.engine cimport Engine
from stf._engine.task cimport NEW, OPEN
from stf.kernels.launching cimport config_of, fitting, kernel_of, put_launch
from stf.tasks.placing cimport SEVERAL, settle
from stf.tasks.task cimport Task
from stf.tasks.views cimport memory_of, position_of

cdef class KernelTask:
    cdef readonly Task task
