"""Functions of CUDA's devices: found, loaded, measured, and launched with what a plain launch does not take."""

from libc.stdint cimport uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport Device, attribute, check, function_in, load_function, pop, push
from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.cuda.hardware cimport HardwareDriver

from stf._drivers.cuda.devices import launch_with_extras, parameters_of


cdef class DeviceFunctions:
    """Functions of a driver's devices, by their numbers there; a `context` of the caller's, or 0 for a device's own."""

    cdef HardwareDriver driver

    launch = staticmethod(launch_with_extras)
    parameters = staticmethod(parameters_of)

    def __init__(self, HardwareDriver driver):
        self.driver = driver

    def load(self, int device, uintptr_t context, bytes image, bytes name):
        """Return the function of that name in machine code, which is loaded once into each context."""
        return load_function(image, name, self.context(device, context), self.driver.where(device))

    def of_kernel(self, int device, uintptr_t context, uintptr_t kernel):
        """Return the function of a kernel that belongs to no context."""
        where = "a context of the caller's" if context else self.driver.where(device)
        return function_in(kernel, self.context(device, context), where)

    def capability(self, int device):
        """Return the compute capability of a device, as (major, minor)."""
        return (
            self.attribute(device, cu.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self.attribute(device, cu.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )

    def multiprocessors(self, int device):
        """Return how many multiprocessors a device has."""
        return self.attribute(device, cu.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)

    def blocks_at_once(self, int device, uintptr_t context, uintptr_t function, int threads, size_t shared=0):
        """Return how many blocks of so many threads and bytes of shared memory of a function run at once."""
        cdef int each = 0
        before = push(self.context(device, context))
        code = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, <cu.CUfunction>function, threads, shared)
        pop(before)
        check(code, "cuOccupancyMaxActiveBlocksPerMultiprocessor", self.driver.where(device))
        return each * self.multiprocessors(device)

    def show_printed(self):
        """Have the system show what kernels that are done have printed, as it does where a stream is waited for."""
        for item in self.driver.devices:
            if (<Device>item).is_open:
                call(host_nodes, cu.cuStreamSynchronize, (<Device>item).utility)  # what is wrong, the next call says

    cdef cu.CUcontext context(self, int device, uintptr_t given) except? NULL:
        """Return a context of the caller's if it is given, or else that of a device, which is opened if it must be."""
        return <cu.CUcontext>given if given else self.driver.gpu(device).context

    cdef int attribute(self, int device, cu.CUdevice_attribute which) except? -1:
        return attribute((<Device>self.driver.devices[device]).device, which, self.driver.where(device))
