cimport cython
from stf.kernels.builders cimport KernelBuilder, make_builder

cdef tuple last  # a shape, and its index space
@cython.locals(known=tuple)
cdef object space_like(tuple shape)
