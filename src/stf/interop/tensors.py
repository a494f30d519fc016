"""Tensors of torch: what users hand in, views of replicas, and autograd, which is off in bodies."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any

import numpy as np

from stf.errors import PlaceError
from stf.interop import dlpack
from stf.interop.cuda_arrays import DeviceMemory
from stf.interop.dtypes import dtype_of_torch, torch_dtype
from stf.interop.known_arrays import Memory, describe_numpy
from stf.interop.libraries import Describer, Library, import_library
from stf.interop.memory import view_at

# -- in --------------------------------------------------------------------------------------------------------------


def describe_tensor(obj: Any, on_cuda: bool) -> Memory:
    """Return the memory of a tensor; one that needs a gradient gives its values.

    Raises
    ------
    PlaceError
        It is on a device that the context does not have.
    TypeError
        It is sparse, quantized, or a lazy conjugate: no plain memory.
    """
    made[0] = True
    torch = sys.modules["torch"]
    if obj.is_cpu and not obj.requires_grad:
        with contextlib.suppress(TypeError, RuntimeError):  # of dtypes that NumPy lacks, and of what is refused below
            plain = describe_numpy(obj.numpy(), on_cuda)
            plain.library = "torch"
            return plain
    refuse_views_in_name_only(obj, torch)
    dtype = dtype_of_torch(obj.dtype)
    itemsize = dtype.itemsize
    shape, strides = tuple(obj.shape), tuple([step * itemsize for step in obj.stride()])
    kind = obj.device.type
    if kind == "cpu":
        array = view_at(obj.data_ptr(), shape, strides, dtype, obj, True)
        return Memory(array.__array_interface__["data"][0], shape, strides, dtype, False, array, library="torch")
    if kind != "cuda" or not on_cuda:
        raise PlaceError(
            f"this tensor is on {obj.device}, which is not in the context; copy it with .cpu(), or use "
            'stf.context(devices="cuda")'
        )
    stream = int(torch.cuda.current_stream(obj.device).cuda_stream) or 1
    return Memory(obj.data_ptr(), shape, strides, dtype, False, obj, True, stream, library="torch")


def refuse_views_in_name_only(obj: Any, torch: Any) -> None:
    """Raise for a tensor that is not strided memory with its values."""
    if obj.layout is not torch.strided:
        raise TypeError(
            f"logical data needs a strided tensor, got one of layout {obj.layout}; register its values and indices "
            "(stf.register_data_interface), or to_dense()"
        )
    if obj.is_conj() or obj.is_neg():
        raise TypeError("this tensor is a lazy conjugate or negative; resolve_conj().resolve_neg() gives its values")


made = [False]  # whether any body may have got a tensor

# -- out -------------------------------------------------------------------------------------------------------------


class TensorMemory:
    """The memory of a replica, as torch asks for it, and who keeps it alive."""

    __slots__ = ("__cuda_array_interface__", "owner")

    def __init__(self, replica: Any, dtype: np.dtype[Any]) -> None:
        layout = replica.layout
        self.owner = replica.owner
        self.__cuda_array_interface__ = {
            "shape": layout.shape,
            "strides": layout.strides,
            "typestr": dtype.str,
            "data": (replica.address if layout.nbytes else 0, False),
            "version": 3,
        }


@functools.cache
def torch_device(ordinal: int) -> Any:
    """Return torch's name of a device."""
    return sys.modules["torch"].device("cuda", ordinal)


class Torch(Library):
    """Tensors of torch."""

    name = "torch"

    def describer_of(self, kind: type) -> Describer | None:
        return describe_tensor if kind.__name__ == "Tensor" else None

    def over(self, array: np.ndarray[Any, Any]) -> Any:
        torch = import_library("torch")
        made[0] = True
        kind, carried = torch_dtype(array.dtype)
        if carried is array.dtype:
            return torch.from_numpy(array)
        return torch.from_numpy(array.view(carried)).view(kind)

    def on_device(self, replica: Any, ordinal: int, remote: bool) -> Any:
        """Return a tensor over the memory of a replica.

        If that is `remote`, torch must be told so by DLPack: else it asks CUDA where it is, and copies it.
        """
        torch, dtype = import_library("torch"), replica.layout.dtype
        made[0] = True
        kind, carried = torch_dtype(dtype)
        if remote:
            memory = DeviceMemory(replica, (dlpack.CUDA, ordinal), 0, carried)
            tensor = torch.from_dlpack(memory.__dlpack__(stream=-1))
        else:
            tensor = torch.as_tensor(TensorMemory(replica, carried), device=torch_device(ordinal))
        return tensor if carried is dtype else tensor.view(kind)

    def put(self, value: Any, target: Any) -> None:
        if hasattr(value, "copy_"):
            target.copy_(value)
        else:
            target[...] = value

    def shares_memory(self, value: Any, target: Any) -> bool:
        if type(value) is not type(target):
            return False
        return bool(value.untyped_storage().data_ptr() == target.untyped_storage().data_ptr())

    def current_stream(self, ordinal: int) -> int:
        return int(sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream) or dlpack.LEGACY_STREAM

    def copied(self, array: Any, ordinal: int) -> Any:
        return array.clone()


# -- autograd --------------------------------------------------------------------------------------------------------


class WithoutGrad:
    """A with-block in which autograd is off for this thread.

    What a body changes in place lives on in later tasks, so a graph that grew through it would never end.
    """

    def __enter__(self) -> None:
        torch = sys.modules["torch"]
        self._before = bool(torch.is_grad_enabled())
        torch._C._set_grad_enabled(False)

    def __exit__(self, *exception: object) -> None:
        sys.modules["torch"]._C._set_grad_enabled(self._before)
