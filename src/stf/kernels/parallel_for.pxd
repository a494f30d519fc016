from stf.kernels.builders cimport KernelBuilder, make_builder

cdef tuple last  # a shape, and its index space
cdef object space_like(tuple shape)
