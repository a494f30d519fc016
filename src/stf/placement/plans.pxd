from cpython.mem cimport PyMem_Calloc, PyMem_Free
from stf._engine.access cimport READ, WRITE, Access, Data
from stf._engine.parts cimport whole_of
from stf._engine.task cimport TaskCore
from stf.placement.model cimport Placement

cdef struct Rank:
    double used  # the largest rank of those that use the current content, with the copy to them
    double written  # the rank of the next writer
    double of_tiles  # the largest rank of those that use a tile of it
    double move  # what a copy of the content takes

cdef double LONG_S
cdef double LEAST_S

cpdef tuple plan(Placement placement, list tasks, Py_ssize_t count)
cdef Py_ssize_t end_of_rank(list ranked, list ranks, Py_ssize_t first) except -1
cdef list by_readiness(Placement placement, list tasks, list indices)
cdef list ranks_of(Placement placement, list tasks)
cdef tuple typical_way(Placement placement)
