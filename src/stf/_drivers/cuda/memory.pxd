from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t
from stf._drivers.cuda.devices cimport Device

cdef cu.CUresult alloc_unpooled(cu.CUcontext context, bint managed, int64_t nbytes, cu.CUdeviceptr* address) noexcept
cdef cu.CUresult free_unpooled(Device gpu, bint managed, cu.CUdeviceptr address, cu.CUstream stream) noexcept
cdef int free_pinned(void* memory) except -1
cdef object make_pins(Device gpu, object settle)
cdef bint is_cudas(int64_t address) noexcept

cdef class Registrar:
    cdef Device gpu
    cdef set registered  # addresses
