cdef tuple PLAIN
cdef tuple CONSTANT
cdef dict kinds
cdef int MOST_KINDS

cpdef bint is_constant(object value) except -1
