cimport cython
from libc.stdint cimport int64_t
from stf._port.events cimport EventSet
from stf._port.replicas cimport INVALID, MODIFIED, SHARED, Replica
from stf._support.untracked cimport untrack

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

@cython.no_gc
cdef class Version:
    cdef readonly object scope  # whose it is
    cdef readonly Version parent  # that of the scope around
    cdef readonly EventSet writers  # events after which the content is there
    cdef readonly EventSet readers  # events of those that read it since
    cdef readonly list replicas  # where there is memory
    cdef readonly int valid  # how many replicas have the content
    cdef readonly int claims  # open tasks that read it; negative: one writes
    cdef readonly int accumulators  # open tasks that add to it
    cdef public int frozen  # the mode in which it is lent; 0: it is not
    cdef public unsigned long frozen_by  # the thread that has lent it
    cdef public Outcome outcome  # how its writing went or goes; None: well
    cdef public list partials  # what tasks have added, before it is folded
    cdef public object op  # the operator of these
    cdef readonly int joined  # the modes of all accesses of a recording
    cdef int64_t looked_at  # who wrote what the host has looked at without a replica: an event; 0 for nobody
    cdef public object wrote  # the task that wrote it last: its name,
    cdef public object wrote_code  # the code that submitted it,
    cdef public int wrote_lasti  # and the instruction there
    cdef Outcome wrote_outcome  # how that went
    cdef list earlier  # outcomes of those before, as long as none is known to be good
    cdef int prune_at  # so many of these, and those that are known go
    cdef object good  # the last writer that succeeded: name,
    cdef object good_code  # code,
    cdef int good_lasti  # instruction
    cdef public bint unwritten_tiles  # tiles came back that nobody wrote
    cdef public bint was_valid  # it had content when it was cut into tiles
    cdef public bint phantom  # a recording has not looked yet where the content is
    cdef int64_t written_at  # of related data: the time of the last write
    cdef list seen  # of padded data: these times of what is in the margins; None: they hold nothing
    cdef public bint conditional  # what was written may stay unwritten when it is launched
    cdef public list entries  # places where a recording needs the content from before
    cdef public object forecast  # of automatic placement: when the content is where; or None
    cdef public object neutral_op  # the operator whose neutral element it goes on from where a launch finds no content
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

cdef Version make_version(object scope, Version parent)
cpdef Version outermost(Version version)
cpdef bint is_open(Outcome outcome) except -1
