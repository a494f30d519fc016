cimport cython
from libc.stdint cimport int64_t
from stf._port.events cimport EventSet
from stf._support.untracked cimport untrack

cpdef enum:  # states of a replica
    INVALID = 0
    SHARED = 1
    MODIFIED = 2

cdef class Layout:
    cdef readonly tuple shape
    cdef readonly tuple strides
    cdef readonly object dtype
    cdef readonly Py_ssize_t itemsize
    cdef readonly Py_ssize_t nbytes
    cdef readonly object interface
    cdef public object library  # whose arrays bodies get where nothing else is said; None: by the place
    cdef bint is_packed
    cdef Layout packed_form
    cpdef Layout packed(self)

cpdef tuple span_of(Replica replica)
cdef Layout layout_of(tuple shape, tuple strides, object dtype, Py_ssize_t itemsize)

cdef class FreeLists:
    cdef list lists
    cdef list take(self, int count)
    cdef int give(self, list items) except -1

@cython.no_gc
cdef class Replica:
    cdef readonly int place
    cdef bint is_recent  # used since the order of eviction at its place was settled
    cdef public int64_t address
    cdef readonly Layout layout
    cdef readonly bint home
    cdef public bint pinned
    cdef readonly int state
    cdef public bint awaits_result  # its memory is to be the array that a queued body returns; see `_engine.adoption`
    cdef public bint adopted  # its memory is such an array, which goes with its last user
    cdef bint left  # invalid, and `ready` is after all that used it
    cdef readonly int pins
    cdef readonly int position  # in the order of eviction at its place; 0 for none
    cdef readonly int64_t last_use
    cdef readonly EventSet ready
    cdef public object instance
    cdef public object owner
    cdef public dict views
    cdef object read_array  # of these, what a task on the host gets that reads,
    cdef object write_array  # and one that writes; None until one has asked
    cdef readonly object data
    cdef readonly Replica real  # whose shadow this is
    cdef int number  # of a shadow, in the program of its recording; -1 for none
    cdef int copy_round  # since the content was written: in which round of copies it can be a source
    cpdef Replica shadow(self)
    cdef bint has_memory(self) noexcept

cpdef Replica make_replica(object data, int place, Layout layout)
cdef Replica home_of(object data, int place, Layout layout)
