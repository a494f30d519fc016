from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t

cdef cu.CUresult launch_function(int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes, cu.CUstream stream) noexcept
cdef cu.CUresult check_launch(int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared) noexcept
cdef cu.CUresult order_streams(cu.CUstream first, cu.CUstream second, cu.CUevent passing) noexcept
cdef cu.CUresult copy_run(int64_t target, int64_t source, int64_t width, cu.CUstream stream, bint may_block) noexcept
cdef cu.CUresult copy_bytes_and_settle(int64_t target, int64_t source, int64_t nbytes, cu.CUstream stream) noexcept
cdef cu.CUresult copy_planned(object plan, int64_t target, int64_t source, cu.CUstream stream, bint may_block)
cdef cu.CUresult fill_planned(object plan, int64_t target, cu.CUstream stream) except *
cdef tuple packed_strides(tuple shape, int64_t itemsize)
cdef cu.CUcontext context_of(int64_t address) noexcept
