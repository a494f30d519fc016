"""Arrays of remote memory: on the client a stand-in without content, on the worker the array itself."""

from __future__ import annotations

import math
import threading
from typing import Any, NoReturn

import numpy as np

from stf.errors import PlaceError

SPAN = 1 << 52  # addresses of one worker; those of remote memory are negative
here = threading.local()  # `worker`: whose commands this thread reads; `stream`: (CUDA stream, GPU) of its body
REMOTE_GPU = "remote gpu"  # the kind of a place
context_makers: list[Any] = []  # the function that opens a context, for a body that submits tasks where it came to
array_makers: dict[str, Any] = {}  # by the kind of a remote place: ``make(memory, library)`` is an array there


def owner_of(address: int) -> int:
    """Return which worker has the memory at an address, from 1; 0 if it is the client's."""
    return 0 if address >= 0 else -address // SPAN + 1


def first_address(worker: int) -> int:
    """Return the lowest address of a worker's memory."""
    return -worker * SPAN + 64


class Sized:
    """What follows from the shape and the dtype of an array, as NumPy calls it."""

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize


class RemoteArray(Sized):
    """The array of a task at a remote place, as the client sees it: its shape and dtype are known, its content is not.

    It becomes the array when its worker unpickles it; `made` makes another library's of that: (function, name).
    """

    __slots__ = ("address", "described", "dtype", "made", "shape", "strides", "writeable")

    def __init__(
        self, address: int, shape: Any, strides: Any, dtype: np.dtype[Any], writeable: bool, made: Any = None
    ) -> None:
        self.address = address
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.writeable = writeable
        self.made = made
        self.described: tuple[Any, ...] | None = None

    def description(self) -> tuple[Any, ...]:
        """Return the arguments of `array_here`; the dtype as text where that says it all, which is pickled sooner."""
        if self.described is None:
            dtype = self.dtype
            code = dtype.str if dtype.kind in "biufc" and dtype.isbuiltin == 1 and not dtype.metadata else dtype
            self.described = (self.address, self.shape, self.strides, code, self.writeable, self.made)
        return self.described

    def __reduce__(self) -> Any:
        return array_here, (self.address, self.shape, self.strides, self.dtype, self.writeable, self.made)

    def refuse(self, *arguments: Any, **named: Any) -> NoReturn:
        """Raise for who wants its content in this process."""
        raise PlaceError(
            f"an array of shape {tuple(self.shape)} is in the memory of remote worker {owner_of(self.address) - 1}, "
            "and this process cannot use it; write a task function (@stf.task), which runs there, or read the data "
            "with .numpy()"
        )

    __array__ = __getitem__ = __setitem__ = __len__ = __iter__ = __float__ = __int__ = __dlpack__ = refuse
    __array_interface__ = __cuda_array_interface__ = property(refuse)

    def __repr__(self) -> str:
        return f"<array of shape {tuple(self.shape)}, {self.dtype}, of remote worker {owner_of(self.address) - 1}>"


def array_here(address: int, shape: Any, strides: Any, dtype: Any, writeable: bool, made: Any = None) -> Any:
    """Return the array at an address of the worker that this thread reads commands for."""
    array = here.worker.array(address, shape, strides, dtype)
    if type(array) is np.ndarray:
        array.flags.writeable = writeable or made is not None
    return array if made is None else made[0](array, made[1])


class DeviceBlock:
    """Memory of a GPU, as a worker has it: what libraries make arrays of, in place of a replica."""

    interface = None
    place = 1

    def __init__(self, address: int, shape: Any, strides: Any, dtype: Any, owner: Any, ordinal: int) -> None:
        self.address, self.owner, self.ordinal = address, owner, ordinal
        self.shape, self.strides, self.dtype = shape, strides, np.dtype(dtype)
        self.itemsize = self.dtype.itemsize
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * self.itemsize
        self.layout = self
