"""Arrays of CuPy."""

from __future__ import annotations

import sys
from typing import Any

from stf.interop import dlpack
from stf.interop.dtypes import carrier, is_narrow
from stf.interop.known_arrays import describe_cupy
from stf.interop.libraries import Describer, Library, import_library


class CuPy(Library):
    """Arrays of CuPy; with `has_bits` narrow floats are unsigned integers, which every version of CuPy knows."""

    name = "cupy"

    def __init__(self, has_bits: bool = False) -> None:
        self.has_bits = has_bits

    def describer_of(self, kind: type) -> Describer | None:
        return describe_cupy if kind.__name__ == "ndarray" else None

    def over(self, array: Any) -> Any:
        return array.view(carrier(array.dtype)) if self.has_bits else super().over(array)

    def on_device(self, replica: Any, ordinal: int, remote: bool) -> Any:
        """Return an array over the memory of a replica; strides of either sign."""
        cupy, layout = import_library("cupy"), replica.layout
        dtype = carrier(layout.dtype) if self.has_bits else layout.dtype
        steps = [(n - 1) * step for n, step in zip(layout.shape, layout.strides, strict=True) if n]
        low, extent = sum(step for step in steps if step < 0), sum(map(abs, steps)) + layout.itemsize
        memory = cupy.cuda.UnownedMemory(replica.address + low, extent, replica.owner, ordinal)
        pointer = cupy.cuda.MemoryPointer(memory, -low)
        try:
            return cupy.ndarray(layout.shape, dtype, pointer, layout.strides)
        except (TypeError, ValueError) as error:
            if not is_narrow(dtype):
                raise
            raise TypeError(
                f"CuPy {cupy.__version__} has no arrays of {dtype}; use t.torch(), or register the data as "
                f"{carrier(dtype)}"
            ) from error

    def shares_memory(self, value: Any, target: Any) -> bool:
        return type(value) is type(target) and value.data.mem is target.data.mem

    def current_stream(self, ordinal: int) -> int:
        return int(sys.modules["cupy"].cuda.get_current_stream(ordinal).ptr) or dlpack.LEGACY_STREAM

    def copied(self, array: Any, ordinal: int) -> Any:
        with sys.modules["cupy"].cuda.Device(ordinal):
            return array.copy()
