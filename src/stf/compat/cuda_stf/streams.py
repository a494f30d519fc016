"""Streams as `cuda.stf` hands them out: integers that have ``__cuda_stream__``."""

from __future__ import annotations

from typing import Any

import stf


class CudaStream(int):
    """The address of a CUDA stream: an int, and a stream for libraries that ask for ``__cuda_stream__``."""

    __slots__ = ()

    def __new__(cls, ptr: int) -> CudaStream:
        """Return the stream at an address."""
        return super().__new__(cls, ptr)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the version of the protocol and the address."""
        return (0, int(self))

    @property
    def ptr(self) -> int:
        """The address."""
        return int(self)

    def __repr__(self) -> str:
        return f"CudaStream({int(self):#x})"


class NoStream(CudaStream):
    """The stream of a task on a CPU: there is none. It is 0, and no library gets it for a stream."""

    __slots__ = ()

    def __cuda_stream__(self) -> tuple[int, int]:
        """Raise PlaceError: there is no CUDA stream."""
        raise stf.PlaceError("this task runs on a CPU, which has no CUDA stream; t.arrays() gives NumPy arrays there")

    def __repr__(self) -> str:
        return "CudaStream(none: the place is a CPU)"


NO_STREAM = NoStream(0)


def get_stream_pointer(stream: Any) -> int:
    """Return the address of a stream: of None 0, of an int itself, of an object what ``__cuda_stream__`` tells.

    Raises
    ------
    TypeError
        It is no stream, or its ``__cuda_stream__`` does not follow the protocol.
    """
    if stream is None:
        return 0
    ask = getattr(stream, "__cuda_stream__", None)
    if ask is None:
        if isinstance(stream, int):
            return int(stream)
        raise TypeError(f"a stream is an int pointer or has the '__cuda_stream__' protocol, got {stream!r}")
    try:
        version, handle, *_ = ask()
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"could not obtain __cuda_stream__ protocol version and handle from {stream!r}; it returns (0, address)"
        ) from error
    if version != 0:
        raise TypeError(f"unsupported __cuda_stream__ version {version!r} of {stream!r}; this is version 0")
    if isinstance(handle, bool) or not isinstance(handle, int):
        raise TypeError(f"invalid stream handle {handle!r} of {stream!r}; it is an address as int")
    return handle
