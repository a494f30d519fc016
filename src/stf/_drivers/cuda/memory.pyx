"""Memory in no pool: managed memory, pinned memory where there is no pool of it, and host memory of the user's."""

from libc.stdint cimport int64_t, uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport Device, pop, push
from stf._drivers.cuda.gil cimport call, host_nodes

from stf._drivers.pinning import Pins


cdef cu.CUresult alloc_unpooled(cu.CUcontext context, bint managed, int64_t nbytes, cu.CUdeviceptr* address) noexcept:
    """Managed memory, or pinned memory where the driver has no pool of it."""
    cdef void* pinned = NULL
    cdef cu.CUresult code
    cdef size_t size = max(nbytes, 1)
    before = push(context)
    with nogil:
        if managed:
            code = cu.cuMemAllocManaged(address, size, cu.CU_MEM_ATTACH_GLOBAL)
        else:
            code = cu.cuMemHostAlloc(&pinned, size, cu.CU_MEMHOSTALLOC_PORTABLE)
    pop(before)
    if not managed:
        address[0] = <cu.CUdeviceptr>pinned
    return code


cdef cu.CUresult free_unpooled(Device gpu, bint managed, cu.CUdeviceptr address, cu.CUstream stream) noexcept:
    """Free such memory once `stream` is done."""
    cdef cu.CUresult code
    before = push(gpu.context)  # a worker has none
    with nogil:
        cu.cuStreamSynchronize(stream)
        code = cu.cuMemFree(address) if managed else cu.cuMemFreeHost(<void*>address)
    pop(before)
    return code


cdef int free_pinned(void* memory) except -1:
    """Give pinned memory back in the current context; CUDA waits for others' work there, which may need the GIL."""
    with nogil:
        cu.cuMemFreeHost(memory)
    return 0


cdef bint is_cudas(int64_t address) noexcept:
    """Whether CUDA knows memory: as its own, or as registered."""
    cdef unsigned int kind = 0
    known = call(host_nodes, cu.cuPointerGetAttribute, &kind, cu.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, <cu.CUdeviceptr>address)
    return known == cu.CUDA_SUCCESS and kind != 0


cdef object make_pins(Device gpu, settle):
    """The host memory of the user's that is registered."""
    cdef Registrar registrar = Registrar(gpu)
    return Pins(registrar.register, registrar.unregister, settle, registrar.registered)


cdef class Registrar:
    """Registers host memory with CUDA, in the context of a device."""

    def __init__(self, gpu):
        self.gpu = gpu
        self.registered = set()

    def register(self, int64_t address, int64_t nbytes):
        """Register host memory; False if CUDA will not, or has it already."""
        cdef cu.CUresult code
        if is_cudas(address):
            return False
        before = push(self.gpu.context)
        with nogil:
            code = cu.cuMemHostRegister(<void*><uintptr_t>address, nbytes, cu.CU_MEMHOSTREGISTER_PORTABLE)
        pop(before)
        if code == cu.CUDA_SUCCESS:
            self.registered.add(address)
        return code == cu.CUDA_SUCCESS

    def unregister(self, int64_t address):
        """Undo `register`; CUDA waits for the devices first."""
        before = push(self.gpu.context)
        with nogil:
            cu.cuMemHostUnregister(<void*><uintptr_t>address)
        pop(before)
        self.registered.discard(address)
