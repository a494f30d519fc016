"""Arrays of numba-cuda."""

from __future__ import annotations

import os
from typing import Any

from stf.interop import dlpack
from stf.interop.cuda_arrays import DeviceMemory, describe_device_array
from stf.interop.dtypes import carrier, is_narrow
from stf.interop.known_arrays import Memory, must_have_cuda
from stf.interop.libraries import Describer, Library, import_library


class Numba(Library):
    """Arrays of numba-cuda, all on devices."""

    name = "numba"

    def describer_of(self, kind: type) -> Describer | None:
        return describe_numba if hasattr(kind, "__cuda_array_interface__") else None

    def on_device(self, replica: Any, ordinal: int, remote: bool) -> Any:
        cuda, dtype = import_library("numba.cuda"), replica.layout.dtype
        if is_narrow(dtype):
            raise TypeError(f"Numba has no arrays of {dtype}; use t.torch(), or register the data as {carrier(dtype)}")
        return cuda.from_cuda_array_interface(
            DeviceMemory(replica, (dlpack.CUDA, ordinal), 0).__cuda_array_interface__, owner=replica.owner, sync=False
        )

    def current_stream(self, ordinal: int) -> int:
        return default_stream()

    def copied(self, array: Any, ordinal: int) -> Any:
        cuda = import_library("numba.cuda")
        with cuda.gpus[ordinal]:
            target = cuda.device_array_like(array)
            target.copy_to_device(array)
        return target


def describe_numba(obj: Any, on_cuda: bool) -> Memory:
    """Return the memory of an array of Numba's; where it tells no stream, its kernels run on the default one."""
    must_have_cuda(obj, on_cuda)
    memory = describe_device_array(obj)
    return memory if memory.stream is not None else memory.replaced(stream=default_stream())


def default_stream() -> int:
    """Return the stream on which Numba runs what is given none."""
    per_thread = os.environ.get("NUMBA_CUDA_PER_THREAD_DEFAULT_STREAM", "0")
    return dlpack.LEGACY_STREAM if per_thread in ("", "0") else dlpack.PER_THREAD_STREAM
