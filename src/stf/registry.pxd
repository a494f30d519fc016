from libc.stdint cimport int64_t
from stf._engine.access cimport Data, DataHandle, AddressBook
from stf._engine cimport release
from stf._engine.deps cimport EventSet
from stf._engine.instances cimport Layout, layout_of
from stf._engine.submit cimport Engine
from stf._sync cimport NestingGate
from stf.reading cimport Reading

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
    cdef int describe(self, tuple memory) except -1
    cdef int find_bounds(self, int64_t itemsize) except -1
    cdef bint is_same(self, Entry other) except -1
    cdef object living(self)

cdef class Registry(AddressBook):
    cdef list sorted
    cdef dict entries
    cdef int64_t longest
    cdef NestingGate gate
    cdef int64_t added
    cdef readonly dict leaving
    cdef Py_ssize_t position(self, int64_t low, int64_t ident) except -1
    cpdef object find(self, Entry wanted)
    cpdef list overlapping(self, Entry wanted)
    cdef bint is_free(self, Entry wanted) except -1
    cdef bint add(self, Entry entry, dict known, int64_t seen) except -1
    cdef int give_up(self, int64_t ident, EventSet last) except -1
    cdef int remove(self, int64_t ident) except -1

cdef dict NOTHING

cdef enum:
    ADDRESS = 0
    SHAPE = 1
    STRIDES = 2
    DTYPE = 3
    READONLY = 4
    OWNER = 5
    ON_DEVICE = 6
    STREAM = 7
    ORDINAL = 8

cdef class Registering(Reading):
    cdef public Registry registry
    cdef public bint on_cuda

cdef object register(Registering context, object obj, object data_place, object label, bint write_back, bint readonly)
cdef Entry entry_of(tuple memory)
cdef int place_of(object context, Engine engine, tuple memory, object data_place) except -1
cdef dict last_uses(Engine engine, Registry registry, Entry entry, object name)
cdef bint is_live(Engine engine, Data data) except -1
cdef object new_data(object context, Engine engine, Registry registry, Entry entry, tuple memory, object name, dict before, int64_t seen, bint write_back, bint readonly, object data_place)
