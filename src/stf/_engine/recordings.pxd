from stf._engine.access cimport ACCUMULATE, AFFINE, READ, RW, WRITE, Access, Data
from stf._engine.coherency cimport Coherency
from stf._engine.deps cimport EventSet
from stf._engine.instances cimport INVALID, MODIFIED, SHARED, Layout, Replica
from stf._engine.nodes cimport Program
from stf._engine.ports cimport COMPUTE, COPY_IN, COPY_OUT, HOST, Port
from stf._engine.scopes cimport Outcome, Version
from stf._engine.submit cimport Engine
from stf._engine.task cimport TaskCore
from stf._sync cimport PyThread_get_thread_ident

cdef class Use:
    cdef readonly Data data
    cdef public int mode
    cdef public list entries
    cdef public list finals
    cdef readonly bint had_content
    cdef Version version
    cdef public bint conditional

cpdef int check_thread(Engine engine, TaskCore task) except -1
cpdef Version import_version(Engine engine, Data data)
