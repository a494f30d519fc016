"""Where an array of a user's lies; NumPy's and CuPy's are asked here. Compiled, since programs register thousands."""

from __future__ import annotations

import sys

import cython

from stf.errors import PlaceError

modules: dict = sys.modules
current_stream = None  # CuPy's function, from when an array of CuPy's is registered first
LEGACY_STREAM = 1  # CUDA's name for the default stream


@cython.final
@cython.freelist(8)
@cython.cclass
class Memory:
    """Where an array lies: address of its first element, shape, strides in bytes, dtype, and who keeps it alive.

    `stream` is where its content is being made: the address of a CUDA stream (1 and 2 are the default ones), or a
    function that makes the stream at an address wait for it; None where it is there. `ordinal` is that of the CUDA
    device, -1 where only the driver knows. `library` is that of the arrays that bodies get where nothing else is said.
    """

    def __init__(
        self,
        address,
        shape,
        strides,
        dtype,
        readonly,
        owner,
        is_on_device=False,
        stream=None,
        ordinal=-1,
        library=None,
    ):
        self.address, self.shape, self.strides, self.dtype = address, shape, strides, dtype
        self.readonly, self.owner, self.is_on_device = readonly, owner, is_on_device
        self.stream, self.ordinal, self.library = stream, ordinal, library

    def replaced(self, owner=None, readonly=None, stream=None):
        """Return the same memory with what is given in place of what it has."""
        return Memory(
            self.address,
            self.shape,
            self.strides,
            self.dtype,
            self.readonly if readonly is None else readonly,
            self.owner if owner is None else owner,
            self.is_on_device,
            self.stream if stream is None else stream,
            self.ordinal,
            self.library,
        )

    @property
    def is_capsule(self):
        """True where a capsule of DLPack's holds it."""
        return type(self.owner).__name__ in ("PyCapsule", "Exported")


def describe_numpy(obj, on_cuda):
    """Return the memory of a NumPy array, never a copy."""
    return numpy_memory(obj)


def numpy_memory(obj):
    """Return what `describe_numpy` returns."""
    dtype = obj.dtype
    if dtype.hasobject:
        raise TypeError(
            f"logical data needs plain elements, got dtype {dtype} which holds Python objects; use a numeric or "
            "structured dtype, or register a data interface (stf.register_data_interface)"
        )
    memory: Memory = Memory.__new__(Memory)
    memory.address, memory.shape, memory.strides, memory.dtype = address_of(obj), obj.shape, obj.strides, dtype
    memory.readonly, memory.owner, memory.is_on_device = not obj.flags.writeable, obj, False
    memory.stream, memory.ordinal, memory.library = None, -1, None
    return memory


def describe_cupy(obj, on_cuda):
    """Return the memory of a CuPy array; its content is being made on CuPy's current stream of its device."""
    return cupy_memory(obj, on_cuda)


def cupy_memory(obj, on_cuda):
    """Return what `describe_cupy` returns."""
    global current_stream
    if current_stream is None:
        current_stream = modules["cupy"].cuda.get_current_stream
    if not on_cuda:
        must_have_cuda(obj, on_cuda)
    data = obj.data
    memory: Memory = Memory.__new__(Memory)
    memory.address, memory.shape, memory.strides = data.ptr if obj.size else 0, obj.shape, obj.strides
    memory.dtype, memory.readonly, memory.owner, memory.is_on_device = obj.dtype, False, obj, True
    memory.ordinal = data.device_id
    memory.stream, memory.library = current_stream(memory.ordinal).ptr or LEGACY_STREAM, None
    return memory


def must_have_cuda(obj, on_cuda):
    """Raise unless the context has CUDA devices."""
    if not on_cuda:
        raise PlaceError(
            f"{type(obj).__name__} lies on a CUDA device and this context runs on the CPU; copy it to the host, or use "
            'stf.context(devices="cuda")'
        )
