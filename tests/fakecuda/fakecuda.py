"""What tests ask of the stand-in for CUDA's driver library, in a process that has it (see fakecuda.cpp)."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

library = ctypes.CDLL("libcuda.so.1")
library.fakecuda_counts.restype = ctypes.c_char_p
library.fakecuda_counts.argtypes = []
library.fakecuda_reset_calls.restype = None
library.fakecuda_reset_calls.argtypes = [ctypes.c_char_p]
library.fakecuda_reset.restype = None
library.fakecuda_reset.argtypes = []
library.fakecuda_watch_launches.restype = None
library.fakecuda_add_kernel.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]


def counts() -> dict[str, Any]:
    """Return how many objects of each kind are alive, and under ``"calls"`` how often each function was called."""
    return json.loads(library.fakecuda_counts())


def leaks() -> dict[str, int]:
    """Return what is alive, less contexts and modules, which programs keep to their end; drivers at rest are closed."""
    if resting := sys.modules.get("stf.devices.kept"):
        resting.kept.stop()
    kinds = "streams", "events", "allocations", "host_allocations", "registrations", "pools", "dropped"
    kinds += "reservations", "physicals", "mappings"
    return {kind: n for kind, n in counts().items() if n and kind in kinds}


def describe() -> str:
    """Say what the work did wrong for which all calls fail, if anything."""
    return counts()["description"]


def calls(name: str) -> int:
    """Return how often a function was called; its name goes without a version."""
    return counts()["calls"].get(name, 0)


def reset_calls(plan: str = "") -> None:
    """Count calls from zero again and fail them by a new `plan`, written as in ``FAKECUDA_FAIL``."""
    library.fakecuda_reset_calls(plan.encode())


def reset() -> None:
    """Forget everything, as a new process would; handles from before are invalid."""
    library.fakecuda_reset()


def add_kernel(name: str, signature: str, address: int) -> None:
    """Let modules find the C function ``void (void **parameters, const unsigned dimensions[6])`` at `address`.

    `signature` has a letter per parameter: p pointer, q 64-bit integer, d double, i 32-bit integer, f float; 1 to 4 is a
    struct of a pointer, and of as many extents and strides of 64 bits.
    """
    if library.fakecuda_add_kernel(name.encode(), signature.encode(), address):
        raise ValueError(f"signature {signature!r}: expected letters of 'pqdif1234'")


class Launches:
    """A source of launches for `stf.interop.cupti`, which tells of those that the stand-in gets."""

    def begin(self, told: Callable[[int], None]) -> None:
        """Have a thread call `told(stream)` as it enters a launch."""
        self._told = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(told)
        library.fakecuda_watch_launches(self._told)
