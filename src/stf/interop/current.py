"""The current stream of CuPy and torch: a task's, for as long as its body runs. Compiled: every body passes here."""

from __future__ import annotations

import sys

modules = sys.modules
cupy_streams: dict = {}
torch_streams: dict = {}


class Borrowed:
    """The streams that were current in CuPy and torch before a task's was."""

    def __init__(self, pointer, ordinal):
        self.cupy_before = self.torch_before = None
        cupy = modules.get("cupy")
        if cupy is not None:
            stream = cupy_streams.get((pointer, ordinal))
            if stream is None:
                stream = cupy_streams[(pointer, ordinal)] = cupy_stream(cupy, pointer, ordinal)
            self.cupy_before = stream[1]()
            stream[0]()
        torch = modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            stream = torch_streams.get((pointer, ordinal))
            if stream is None:
                stream = torch_streams[(pointer, ordinal)] = torch_stream(torch, pointer, ordinal)
            self.torch_before = torch._C._cuda_getCurrentStream(ordinal)
            torch._C._cuda_setStream(*stream)

    def give_back(self):
        """Make current what was."""
        if self.cupy_before is not None:
            self.cupy_before.use()
        if self.torch_before is not None:
            modules["torch"]._C._cuda_setStream(*self.torch_before)


class StreamPointer:
    """A CUDA stream, as the protocol ``__cuda_stream__`` says it."""

    def __init__(self, pointer):
        self.pointer = pointer

    def __cuda_stream__(self):
        return (0, self.pointer)


def cupy_stream(cupy, pointer, ordinal):
    """(make it current, what is current) for a CUDA stream in CuPy; before CuPy 14 there is no `from_external`."""
    if hasattr(cupy.cuda.Stream, "from_external"):
        with cupy.cuda.Device(ordinal):
            stream = cupy.cuda.Stream.from_external(StreamPointer(pointer))
    else:
        stream = cupy.cuda.ExternalStream(pointer, ordinal)
    return stream.use, cupy.cuda.get_current_stream


def torch_stream(torch, pointer, ordinal):
    """A CUDA stream as torch's own calls take it: ``torch.cuda.set_stream`` costs six microseconds."""
    stream = torch.cuda.ExternalStream(pointer, f"cuda:{ordinal}")
    return (stream.stream_id, stream.device_index, stream.device_type)
