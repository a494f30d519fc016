from libc.stdint cimport int64_t
from stf._engine.access cimport Data, DataHandle
from stf._engine.instances cimport Layout
from stf._engine.submit cimport Engine
from stf.tasks cimport ContextCore

cdef class Entry:
    cdef int64_t ident
    cdef int64_t address
    cdef int64_t low
    cdef int64_t high
    cdef tuple shape
    cdef tuple strides
    cdef object dtype
    cdef bint readonly
    cdef object handle
    cdef int find_bounds(self, int64_t itemsize) except -1
    cdef bint is_same(self, Entry other) except -1
    cdef object living(self)

cdef class Registry:
    cdef list sorted
    cdef dict entries
    cdef int64_t longest
    cdef object lock
    cdef readonly dict leaving
    cdef Py_ssize_t position(self, int64_t low, int64_t ident) except -1
    cpdef object find(self, Entry wanted)
    cpdef list overlapping(self, Entry wanted)
    cdef bint add(self, Entry entry, dict known) except -1
    cpdef leave(self, int64_t ident, object last)
    cdef int remove(self, int64_t ident) except -1

cpdef object register(object context, object obj, object name, object data_place, bint write_back, bint readonly)
cdef dict last_uses(Engine engine, Registry registry, Entry entry, object name)
cdef bint is_live(Engine engine, Data data) except -1
cdef object new_data(object context, Engine engine, Registry registry, Entry entry, object memory, object name, dict before, bint write_back, bint readonly, object data_place)
