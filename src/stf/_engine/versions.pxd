cimport cython
from libc.stdint cimport int64_t
from stf._port.events cimport EventSet
from stf._port.replicas cimport INVALID, MODIFIED, SHARED, Replica

@cython.no_gc
cdef class Outcome:
    cdef public bint pending
    cdef public object failure
    cdef public list sources
    cdef public bint skipped
    cdef object name
    cdef object code
    cdef int lasti
    cdef int64_t looked
    cpdef object failed(self)
    cdef int look(self, int64_t number) except -1

cdef class Version:
    cdef readonly object scope
    cdef readonly Version parent
    cdef readonly EventSet writers
    cdef readonly EventSet readers
    cdef readonly list replicas
    cdef readonly int valid
    cdef readonly int claims
    cdef readonly int accumulators
    cdef public int frozen
    cdef public Outcome outcome
    cdef public list partials
    cdef public object op
    cdef readonly int joined
    cdef int64_t looked_at  # who wrote what the host has looked at without a replica: an event; 0 for nobody
    cdef public object wrote
    cdef public object wrote_code
    cdef public int wrote_lasti
    cdef Outcome wrote_outcome
    cdef list earlier
    cdef int prune_at
    cdef object good
    cdef object good_code
    cdef int good_lasti
    cdef public bint unwritten_tiles
    cdef public bint was_valid
    cdef public bint phantom
    cdef public bint conditional  # what was written may stay unwritten when it is launched
    cdef public list entries
    cdef public object origin  # the operator whose neutral element it goes on from where a launch finds no content
    cdef int keep_writer(self) except -1
    cdef int set_writer(self, object name, object code, int lasti, Outcome outcome) except -1
    cdef int take_writers(self, Version inner) except -1
    cdef bint is_untouched(self) noexcept
    cpdef bint may_fail(self) except -1
    cpdef bint is_poisoned(self) except -1
    cdef Replica find(self, int place)
    cdef int own(self, Replica replica) except -1
    cdef int share(self, Replica source, Replica target) except -1
    cdef int forget_content(self) except -1

cdef int PRUNE_AT
cdef int64_t looks

cdef Version first_version()
