cdef class Place:
    cdef readonly int number
    cdef readonly str name
    cdef readonly int ordinal
    cdef readonly int memory
    cdef readonly int functions
    cdef public bint enqueues
    cdef readonly bint is_callers_stream
    cdef readonly str kind
    cdef readonly bint is_remote
    cdef public bint is_lost

cdef Place copy_of(Place place, str kind)
cpdef list copies_of(list places, object kind_of)
