"""Functions of CUDA's devices: found, loaded, measured, and launched with what a plain launch does not take."""

from libc.stdint cimport uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport Device, attribute, check, function_on, load_function, pop, push
from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.cuda.hardware cimport HardwareDriver

from stf._drivers.cuda.devices import launch_with_extras, parameters_of
from stf._drivers.cuda.places import function_in


cdef class DeviceFunctions:
    """Functions of a driver's devices, by their numbers there; a `context` of the caller's, or 0 for a device's own."""

    cdef HardwareDriver driver

    launch = staticmethod(launch_with_extras)
    parameters = staticmethod(parameters_of)

    def __init__(self, HardwareDriver driver):
        self.driver = driver

    def load(self, int device, uintptr_t context, bytes image, bytes name):
        """Return the function of that name in machine code, which is loaded once into each context."""
        cdef Device gpu = self.device(device, not context)
        return load_function(image, name, <cu.CUcontext>context if context else gpu.context, gpu.name)

    def of_kernel(self, int device, uintptr_t context, uintptr_t kernel):
        """Return the function of a kernel that belongs to no context."""
        return function_in(kernel, context) if context else function_on(kernel, self.driver.gpu(device))

    def capability(self, int device):
        """Return the compute capability of a device, as (major, minor)."""
        cdef Device gpu = self.device(device, False)
        return (
            attribute(gpu, cu.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            attribute(gpu, cu.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )

    def multiprocessors(self, int device):
        """Return how many multiprocessors a device has."""
        return attribute(self.device(device, False), cu.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)

    def blocks_at_once(self, int device, uintptr_t context, uintptr_t function, int threads, size_t shared=0):
        """Return how many blocks of so many threads and bytes of shared memory of a function run at once."""
        cdef Device gpu = self.device(device, not context)
        cdef int each = 0
        before = push(<cu.CUcontext>context if context else gpu.context)
        try:
            code = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, <cu.CUfunction>function, threads, shared)
        finally:
            pop(before)
        check(code, "cuOccupancyMaxActiveBlocksPerMultiprocessor", gpu.name)
        return each * self.multiprocessors(device)

    def show_printed(self):
        """Have the system show what kernels that are done have printed, as it does where a stream is waited for."""
        for item in self.driver.devices:
            if (<Device>item).is_open:
                call(host_nodes, cu.cuStreamSynchronize, (<Device>item).utility)  # what is wrong, the next call says

    cdef Device device(self, int device, bint opened):
        """Return a device of the driver's, opened if it must be."""
        return self.driver.gpu(device) if opened else <Device>self.driver.devices[device]
