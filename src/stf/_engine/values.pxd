cpdef bint is_same(object value, object other) except -1
