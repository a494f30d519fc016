cimport cython
from libc.stdint cimport int64_t
from stf._port.events cimport EventSet
from stf._port.replicas cimport Layout, Replica
from stf._engine.versions cimport Version, make_version

cpdef enum:  # access modes, and the place that is natural for a task
    READ = 1
    WRITE = 2
    RW = 3
    ACCUMULATE = 4
    AFFINE = -1

cdef enum:
    NEVER = 0x3FFFFFFE  # the next use of data that nobody is known to use

@cython.no_gc
cdef class Data:
    # what each access looks at comes first, on as few lines of the cache as it takes
    cdef readonly object engine  # whose it is
    cdef list dropped  # the engine's, of what users have dropped
    cdef public Version version  # its state in the innermost scope
    cdef int64_t mark  # the claim that has it: twice in one task is one access
    cdef public bint is_result  # a task makes it, and returns it
    cdef readonly bint token  # it has no content, and orders tasks
    cdef public bint released  # given up: its memory is not its own any more
    cdef public int tiles  # how many data it is cut into
    cdef public object linked  # its relation to a whole or to parts (`parts.Relation`); or None
    cdef public bint readonly  # accesses that write are refused
    cdef readonly Layout layout  # shape, strides, dtype; None for a token
    cdef readonly int64_t id  # its number
    cdef public Replica home  # the user's array, as a replica; or None
    cdef public bint write_back  # refresh that array in the end
    cdef public bint is_dropped  # by the user, while recordings or tiles hold it
    cdef public bint private  # a loop's or a branch's own: nobody else reads it
    cdef public int recorded  # how many living recordings use it
    cdef public int cached  # how many of these replayed functions keep
    cdef int position  # of its access in the task that claims it
    cdef public int next_use  # the number of the task that uses it next, as a plan has it; NEVER for none known
    cdef public str name  # for messages and pictures; or None
    cdef public object owner  # what keeps the user's memory alive
    cdef public object protection  # of an array that STF_VALIDATE made non-writeable
    cdef public object given  # a weak reference to the handle of data that a replayed function returned
    cdef public Data parent  # the data that it is a tile of
    cdef public list log  # the copies that it caused, when these are observed
    cdef public MemorySpan span  # its memory in the registry

cdef Data make_data(object engine, list dropped, int64_t ident, Layout layout, str name, bint token, object scope)

cdef class MemorySpan:
    cdef int64_t ident
    cdef int64_t address
    cdef int64_t low
    cdef int64_t high
    cdef Layout layout
    cdef bint readonly
    cdef object handle
    cdef readonly AddressBook book
    cdef object code  # and how far it had come: the line that registered it
    cdef int lasti
    cdef int find_bounds(self, Layout layout) except -1

cdef class AddressBook:
    cdef int give_up(self, MemorySpan span, EventSet last) except -1
    cpdef bint is_shared(self, Data data) except -1
    cpdef object must_be_alone(self, Data data)

cdef class DataHandle:
    cdef readonly Data core
    cdef object __weakref__
    cpdef Access read(self, data_place=*)
    cpdef Access write(self, data_place=*)
    cpdef Access rw(self, data_place=*)

@cython.no_gc
cdef class Access:
    cdef readonly DataHandle data
    cdef readonly Data core
    cdef readonly int mode
    cdef readonly int place
    cdef readonly object op

cpdef int drop(list dropped, object item) except -1
cpdef int must_be_writeable(Data data, object what) except -1
cdef Access make_access(DataHandle handle, int mode, object data_place)
