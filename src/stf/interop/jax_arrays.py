"""Arrays of JAX, which never change: what users hand in, what bodies get, and where their results go.

A body gets a copy of each array, made when it runs, and returns what it writes. JAX runs on streams of its own and
keeps what it has seen of an array, so memory that later tasks change must not be shared with it. The copy is ordered
between the task's stream and JAX's by events; nobody waits.

Such a body is never captured. A stream that is captured takes JAX's stream along by these events, and JAX would not
know it: it asks events of the capture whether memory is free, and no launch would compute anew what it keeps. So the
copy raises, and the body runs between graphs in the call of each launch. It may also run in a thread of its device,
when its task has ended. So a result is copied on the stream itself, as kernels of other libraries are put there, and
not by the engine, which would put the copy behind the end of the task.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from stf.devices.make import cuda_memory
from stf.interop import cuda_arrays, dlpack
from stf.interop.dlpack_arrays import describe_dlpack
from stf.interop.known_arrays import Memory
from stf.interop.libraries import Describer, Library, import_library
from stf.interop.memory import numpy_view
from stf.interop.results import check_result


class Jax(Library):
    """Arrays of JAX, as copies; in tasks these are made when the body runs, by `JaxCopy`."""

    name = "jax"
    keeps_arrays = False

    def describer_of(self, kind: type) -> Describer | None:
        return describe_jax if hasattr(kind, "__dlpack__") else None

    def over(self, array: np.ndarray[Any, Any]) -> Any:
        return array_of(array)

    def on_device(self, replica: Any, ordinal: int, remote: bool) -> Any:
        """Return a copy of a replica whose content is there, outside tasks; the host waits, since nobody else would."""
        memory = cuda_arrays.DeviceMemory(replica, (dlpack.CUDA, ordinal), dlpack.LEGACY_STREAM)
        return copy_of_device(memory).block_until_ready()


# -- in --------------------------------------------------------------------------------------------------------------


def describe_jax(obj: Any, on_cuda: bool) -> Memory:
    """Return the memory of a JAX array, which may only be read.

    JAX takes no stream for "none", so it is asked without one; the stream that is to wait is told later.
    """
    try:
        memory = describe_dlpack(obj, on_cuda, no_stream=None)
    except BufferError as error:
        raise TypeError(
            f"logical data is one array on one device, and JAX says: {error}; register its shards: "
            "[s.data for s in x.addressable_shards]"
        ) from error
    if not memory.is_on_device:
        memory.owner.flags.writeable = False
    return memory.replaced(readonly=True)


# -- out -------------------------------------------------------------------------------------------------------------


class JaxCopy:
    """What a body is to get of one access: called when the body runs, it makes the copy.

    Parameters
    ----------
    replica : Replica
        Where the content is, and where a result goes.
    ordinal : int
        The CUDA device whose memory it is; -1 for the host's.
    stream : int, optional
        The stream in whose order the content is there.
    port : Port, optional
        What keeps a result until it is copied; for memory of a device.
    slot : int, optional
        The slot of the body there.
    """

    def __init__(self, replica: Any, ordinal: int, stream: Any = None, port: Any = None, slot: int = -1) -> None:
        library()  # where it is missing, the call says so, not the body
        self.replica = replica
        self.ordinal = ordinal
        self.stream = stream
        self.memory: Any  # its own: other tasks have others
        if ordinal < 0:
            self.memory = numpy_view(replica, True)
        else:
            self.memory = cuda_arrays.DeviceMemory(replica, (dlpack.CUDA, ordinal), stream)
        self.port = port
        self.slot = slot
        self.given: Any = None

    def at(self, port: Any, slot: int, stream: int) -> JaxCopy:
        """Return the same for one launch of a recording, whose body runs on a slot and a stream of the launch."""
        return self if self.ordinal < 0 else JaxCopy(self.replica, self.ordinal, stream, port, slot)

    def of(self, replica: Any) -> JaxCopy:
        """Return the same for other data, in place of those that were recorded."""
        return JaxCopy(replica, self.ordinal, self.stream, self.port, self.slot)

    def __call__(self) -> Any:
        """Return the copy, as a JAX array."""
        if isinstance(self.memory, np.ndarray):
            self.given = array_of(self.memory)
        else:
            must_not_capture(self.stream)
            self.given = copy_of_device(self.memory)
        return self.given

    def store(self, value: Any, name: str, position: int) -> None:
        """Store a result of the body; TypeError or ValueError if it is of another type or shape."""
        if value is self.given:
            return
        layout = self.replica.layout
        try:
            check_result(value, layout.shape, layout.dtype, name, position)
        except TypeError as error:
            raise TypeError(f"{error}{hint_of(layout.dtype)}") from None
        if isinstance(self.memory, np.ndarray):
            self.memory[...] = np.asarray(value, layout.dtype if isinstance(value, list) else None)
        elif layout.nbytes:
            self.store_on_device(value)

    def store_on_device(self, value: Any) -> None:
        """Copy a result on the task's stream, which waits for it; it is kept until that is done."""
        jax = library()
        home = [device for device in jax.local_devices(backend="cuda") if device.local_hardware_id == self.ordinal]
        shape, dtype = self.replica.layout.shape, self.replica.layout.dtype
        if np.shape(value) != shape or getattr(value, "dtype", None) != dtype:
            value = jax.numpy.asarray(value, dtype)
            value = jax.numpy.broadcast_to(value.reshape(value.shape[max(0, value.ndim - len(shape)) :]), shape)
        value = jax.device_put(value, home[0])
        if np.dtype(value.dtype) != self.replica.layout.dtype:
            raise TypeError(
                f"JAX made {value.dtype} of {self.replica.layout.dtype}{hint_of(self.replica.layout.dtype)}"
            )
        found = dlpack.described(dlpack.export(value, stream=self.stream))
        copy_on_stream(self.stream, self.replica, found)
        self.port.keep_alive(self.slot, (value, found.capsule))


def must_not_capture(stream: int) -> None:
    """Raise NotImplementedError if a stream is captured."""
    from cuda.bindings import driver

    code, status = driver.cuStreamIsCapturing(stream)
    if code or status != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE:
        raise NotImplementedError(
            "JAX computes on streams of its own, which no graph sees, and the task's stream is capturing"
        )


def copy_on_stream(stream: int, target: Any, source: dlpack.Described) -> None:
    """Copy into a replica of a device, behind what is on one of the device's streams."""
    layout = target.layout
    there, here = (target.address, layout.strides), (source.address, source.strides)
    with cuda_arrays.context_of(stream):
        cuda_memory("blocks").copy_array(stream, *there, *here, layout.shape, layout.itemsize)


def array_of(memory: Any) -> Any:
    """Return a copy of a NumPy array; TypeError if JAX would change its type."""
    array = library().numpy.array(memory, copy=True)
    must_keep_type(array, memory.dtype)
    return array


def copy_of_device(memory: Any) -> Any:
    """Return a copy of memory of a device, which the memory's stream waits for."""
    jax = library()
    if not memory.layout.nbytes:
        return array_of(np.empty(memory.layout.shape, memory.dtype))
    with cuda_arrays.context_of(memory.stream):  # JAX, when it begins to use the devices, leaves its last one
        seen = jax.dlpack.from_dlpack(memory)
    must_keep_type(seen, memory.dtype)
    array = jax.numpy.array(seen, copy=True)
    dlpack.export(array, stream=memory.stream)
    return array


def must_keep_type(array: Any, dtype: np.dtype[Any]) -> None:
    """Raise if JAX made an array of another type than it was given."""
    if array.dtype != dtype:
        raise TypeError(f"JAX makes {array.dtype} of {dtype}{hint_of(dtype)}")


def hint_of(dtype: np.dtype[Any]) -> str:
    """Return what to do where JAX has no elements of 64 bits."""
    if dtype.itemsize // (2 if dtype.kind == "c" else 1) < 8:
        return ""
    return '; jax.config.update("jax_enable_x64", True) lets it keep elements of 64 bits'


@functools.cache
def library() -> Any:
    """Import JAX, or say how to get it."""
    import_library("jax.dlpack")
    return import_library("jax")
