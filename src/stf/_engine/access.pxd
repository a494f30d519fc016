cimport cython
from libc.stdint cimport int64_t
from stf._port.events cimport EventSet
from stf._port.replicas cimport Layout, Replica
from stf._engine.versions cimport Version, first_version

cdef enum:
    READ = 1
    WRITE = 2
    RW = 3
    ACCUMULATE = 4
    AFFINE = -1

cdef class Data:
    # what each access looks at comes first, on as few lines of the cache as it takes
    cdef readonly object engine
    cdef public Version version
    cdef int64_t mark
    cdef readonly bint token
    cdef public bint released
    cdef public int tiles
    cdef public bint readonly
    cdef readonly Layout layout
    cdef readonly int64_t id
    cdef public Replica home
    cdef public bint write_back
    cdef public bint is_dropped  # by the user, while recordings or tiles hold it
    cdef public bint private  # a loop's or a branch's own: nobody else reads it
    cdef public int recorded  # how many living recordings use it
    cdef public int spare  # how many of these replayed functions keep
    cdef int position
    cdef public str name
    cdef public object owner
    cdef public object protection
    cdef public object given  # a weak reference to the handle of data that a replayed function returned
    cdef public Data parent
    cdef public list log
    cdef public Span span

cdef Data make_data(object engine, int64_t ident, Layout layout, str name, bint token)

cdef class Span:
    cdef int64_t ident
    cdef int64_t address
    cdef int64_t low
    cdef int64_t high
    cdef Layout layout
    cdef bint readonly
    cdef object handle
    cdef AddressBook book
    cdef object code  # and how far it had come: the line that registered it
    cdef int lasti
    cdef int find_bounds(self, Layout layout) except -1

cdef class AddressBook:
    cdef int give_up(self, Span span, EventSet last) except -1

cdef class DataHandle:
    cdef readonly Data core
    cdef object __weakref__
    cpdef Access read(self, data_place=*)
    cpdef Access write(self, data_place=*)
    cpdef Access rw(self, data_place=*)

@cython.no_gc
cdef class Access:
    cdef readonly DataHandle data
    cdef Data core
    cdef readonly int mode
    cdef readonly int place
    cdef readonly object op

cdef Access make_access(DataHandle handle, int mode, object data_place)
