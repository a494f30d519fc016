cdef class Asked:
    cdef public tuple asked

cpdef bint is_same(object value, object other) except -1
cpdef bint are_fixed(object values) except -1
cpdef bint is_as_before(object values, object last) except -1
