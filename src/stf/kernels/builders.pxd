cimport cython
from stf._engine.access cimport READ, WRITE, Access
from stf._engine.engine cimport Engine
from stf._engine.task cimport NEW
from stf.kernels.plans cimport LaunchPlan, planned_for, submit_planned
from stf.tasks.repeats cimport KnownCall, RepeatFinder
from stf.tasks.placing cimport can_be_held, hold, place_at, settle
from stf.tasks.task cimport ContextCore, Task, body_of, keep_body

@cython.no_gc
@cython.freelist(8)
cdef class KernelBuilder:
    cdef readonly object construct
    cdef public object over  # the index space, or the hierarchy
    cdef readonly tuple arguments  # accesses and reductions
    cdef readonly tuple extra  # further arguments of the body
    cdef public object partition
    cdef readonly object grid  # whose places share it; or None
    cdef readonly Task task
    cdef int submit(self, object body) except -1
    cdef object made_of(self, object signature)
    cdef tuple checked(self, object body)
    cdef int submit_there(self, object body) except -1
    cdef KernelBuilder like(self, object over, tuple arguments)
    cdef bint is_taken(self, RepeatFinder finder, object body) except -1
    cdef list on_each_place(self, object body)
    cdef list shares(self)

cdef class HeldKernel(KnownCall):
    cdef LaunchPlan plan
    cdef tuple arguments

cpdef KernelBuilder make_builder(ContextCore context, object construct, object over, tuple arguments, object extra, object name)
