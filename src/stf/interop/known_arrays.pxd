from libc.stdint cimport int64_t
from stf._drivers.base cimport address_of

cdef dict modules
cdef object current_stream

cdef class Memory:
    cdef public int64_t address  # of the first element; 0 for arrays without elements on devices
    cdef public object shape  # a tuple of Python's, or what is one
    cdef public object strides  # in bytes
    cdef public object dtype  # of NumPy's
    cdef public bint readonly
    cdef public object owner  # who keeps it alive
    cdef public bint is_on_device  # of CUDA; its place is asked
    cdef public object stream  # where its content is being made; None where it is there
    cdef public int ordinal  # of the CUDA device; or -1
    cdef public object library  # of the arrays that bodies get; or None

cpdef object describe_numpy(object obj, bint on_cuda)
cpdef object describe_cupy(object obj, bint on_cuda)
cdef Memory numpy_memory(object obj)
cdef Memory cupy_memory(object obj, bint on_cuda)
