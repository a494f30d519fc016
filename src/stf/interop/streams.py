"""The address of a stream of whatever library."""

from __future__ import annotations

import functools
from typing import Any

WANTED = "a stream is an int, or an object with __cuda_stream__ such as those of CuPy, torch and cuda.core"


class StreamPointer(int):
    """The address of a CUDA stream: an int, and a stream for whoever asks for ``__cuda_stream__``."""

    __slots__ = ()

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol version and the address."""
        return (0, int(self))


@functools.lru_cache(maxsize=1024)
def handed_out(pointer: int | None) -> StreamPointer | None:
    """Return the address of a stream as users get it; None where there is none."""
    return None if pointer is None else StreamPointer(pointer)


def pointer_of(stream: Any) -> int:
    """Return the address of a CUDA stream; 0, 1 and 2 are default streams.

    Raises
    ------
    TypeError
        `stream` is no stream.
    ValueError
        It is a negative number, or too large.
    """
    if isinstance(stream, bool):
        raise TypeError(f"{WANTED}; got {stream!r}")
    if hasattr(stream, "__cuda_stream__"):
        return pointer_of_protocol(stream)
    for name in ("cuda_stream", "ptr"):  # of torch and CuPy before they had the protocol
        if not hasattr(stream, "__index__") and hasattr(stream, name):
            stream = getattr(stream, name)
    if not hasattr(stream, "__index__"):
        raise TypeError(f"{WANTED}; got {stream!r}")
    pointer = int(stream.__index__())
    if not 0 <= pointer < 1 << 64:
        raise ValueError(f"a stream is an address from 0 on, of 64 bits, got {pointer}")
    return pointer


def pointer_of_protocol(stream: Any) -> int:
    """Return the address that ``__cuda_stream__`` tells: (version, address), or a method that returns that."""
    answer = stream.__cuda_stream__
    answer = answer() if callable(answer) else answer
    name = type(stream).__name__
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise TypeError(f"__cuda_stream__ of {name} is (0, address), got {answer!r}")
    version, address = answer
    if version != 0:
        raise TypeError(f"__cuda_stream__ of {name} is of version {version!r}; this version of stf knows version 0")
    if isinstance(address, bool) or not hasattr(address, "__index__"):
        raise TypeError(f"__cuda_stream__ of {name} gives the address of a stream as int, got {address!r}")
    return pointer_of(int(address.__index__()))
