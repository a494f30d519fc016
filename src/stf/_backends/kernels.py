"""Kernels of a stream backend: what a driver says of its devices' functions, by execution place."""

from __future__ import annotations

from typing import Any

from stf._port.kernels import Kernels, KernelsAt

printing = [False]  # whether this process has loaded a kernel that prints: CUDA calls what that uses so
PRINTS = b"vprintf"


class StreamKernels(Kernels):
    """Functions at the places of a stream backend.

    Parameters
    ----------
    functions : Functions
        What the driver has as `kernels`.
    devices : list of int
        The driver's devices, by place; the backend adds to it.
    foreign_handles : dict
        What lanes are made of at the places that are streams or contexts of the caller's.
    """

    def __init__(self, functions: Any, devices: list[int], foreign_handles: dict[int, tuple[str, int, int]]) -> None:
        self._functions = functions
        self._devices = devices
        self._foreign_handles = foreign_handles
        self._known: dict[int, KernelsAt] = {}

    def at(self, place: int) -> KernelsAt:
        known = self._known.get(place)
        if known is None:
            context = self._foreign_handles[place][2] if place in self._foreign_handles else 0
            known = self._known[place] = FunctionsAt(self._functions, self._devices[place], context)
        return known

    def show_printed(self) -> None:
        """Let the system show what kernels have printed: where the host finds that all is done, CUDA does not."""
        self._functions.show_printed()


class FunctionsAt(KernelsAt):
    """Functions on a device, in its own context (0) or in one of the caller's."""

    def __init__(self, functions: Any, device: int, context: int) -> None:
        self._functions = functions
        self._device = device
        self._context = context

    def function(self, image: bytes, name: str) -> int:
        printing[0] = printing[0] or PRINTS in image
        return int(self._functions.load(self._device, self._context, image, name.encode()))

    def function_of(self, kernel: int) -> int:
        return int(self._functions.of_kernel(self._device, self._context, kernel))

    def parameters(self, function: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = self._functions.parameters(function)
        return found

    def capability(self) -> tuple[int, int]:
        major, minor = self._functions.capability(self._device)
        return major, minor

    def multiprocessors(self) -> int:
        return int(self._functions.multiprocessors(self._device))

    def blocks_at_once(self, function: int, threads: int, shared: int = 0) -> int:
        return int(self._functions.blocks_at_once(self._device, self._context, function, threads, shared))

    def launch(self, *how: Any) -> None:
        self._functions.launch(*how)
