from stf._engine.task cimport OPEN
from stf.kernels.launching cimport Config, Kernel, kernel_of, put_launch
from stf.tasks cimport Task

cdef class KernelTask:
    cdef readonly Task task
