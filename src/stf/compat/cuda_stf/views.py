"""The arrays of a task as objects with the CUDA array interface, and as arrays of Numba and torch."""

from __future__ import annotations

from typing import Any

import numpy as np

NUMBA_HINT = (
    "this needs numba-cuda: pip install numba-cuda[cu13]; without a GPU, NUMBA_ENABLE_CUDASIM=1 runs Numba's kernels "
    "in its simulator"
)
TORCH_HINT = "this needs PyTorch: pip install torch; ctx.task() gives arrays of other libraries"


class View:
    """One array of a task: the entries of its CUDA array interface are ``view["data"]`` and ``view.get``."""

    def __init__(self, ptr: int, shape: tuple[int, ...], dtype: Any, stream: int = 0) -> None:
        self.ptr, self.shape = ptr, shape
        self.dtype, self.stream = np.dtype(dtype), int(stream)
        self._interface = interface_of(ptr, shape, self.dtype, self.stream)

    def __getitem__(self, key: str) -> Any:
        return self._interface[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return an entry of the interface, or `default`."""
        return self._interface.get(key, default)


class stf_cai(View):
    """One array of a task, with ``__cuda_array_interface__``."""

    def __init__(self, ptr: int, shape: tuple[int, ...], dtype: Any, stream: int = 0) -> None:
        super().__init__(ptr, shape, dtype, stream)
        self.__cuda_array_interface__ = self._interface


def interface_of(ptr: int, shape: tuple[int, ...], dtype: np.dtype[Any], stream: int) -> dict[str, Any]:
    """Return the CUDA array interface, version 3, of a packed array."""
    found: dict[str, Any] = {
        "version": 3,
        "shape": tuple(shape),
        "typestr": dtype.str,
        "data": (ptr, False),
        "strides": None,
        "stream": stream or None,  # 0 is not allowed
    }
    if dtype.fields is not None:
        found["descr"] = dtype.descr
    return found


class HostView(View):
    """One array of a task in memory of the host: NumPy's array interface in place of CUDA's.

    A library that takes ``__cuda_array_interface__`` would use the address on a device.
    """

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        super().__init__(array.ctypes.data, array.shape, array.dtype)
        self.array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return dict(self.array.__array_interface__)


def numba_cuda() -> Any:
    """Return `numba.cuda`.

    Raises
    ------
    ImportError
        It is not there.
    """
    try:
        from numba import cuda
    except ImportError as error:
        raise ImportError(NUMBA_HINT) from error
    return cuda


def torch_module() -> Any:
    """Return `torch`.

    Raises
    ------
    ImportError
        It is not there.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(TORCH_HINT) from error
    return torch


def numba_array(view: Any) -> Any:
    """Return a view as an array of Numba; in memory of the host, as a NumPy array, which Numba's simulator takes."""
    if isinstance(view, HostView):
        return for_simulator(view.array)
    return numba_cuda().from_cuda_array_interface(view.__cuda_array_interface__, owner=None, sync=False)


def for_simulator(array: np.ndarray[Any, Any]) -> Any:
    """Return an array as Numba's simulator works on it in place; without the simulator, as it is.

    Arrays of NumPy it copies, and copies back, which those that are read refuse.
    """
    from numba import config

    if not config.ENABLE_CUDASIM:
        return array
    from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

    return FakeCUDAArray(array)


def tensor(view: Any) -> Any:
    """Return a view as a tensor."""
    torch = torch_module()
    return torch.from_numpy(view.array) if isinstance(view, HostView) else torch.as_tensor(view)


def each(views: Any, convert: Any) -> Any:
    """Convert what ``args_cai`` returns: None, one view, or a tuple of them."""
    if views is None:
        return None
    return tuple(map(convert, views)) if isinstance(views, tuple) else convert(views)
