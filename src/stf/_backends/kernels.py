"""Kernels: the role of a port on devices that run functions of their own, which are found and loaded by name.

It says by execution place what a driver says of its devices' functions.
"""

from __future__ import annotations

from typing import Any

printing = [False]  # whether this process has loaded a kernel that prints: CUDA calls what that uses so
PRINTS = b"vprintf"


class Kernels:
    """Functions at the places of a stream backend, as ``port.kernels``; a port without kernels has None there.

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
        self._known: dict[int, FunctionsAt] = {}

    def at(self, place: int) -> FunctionsAt:
        """Return what is asked about functions at an execution place."""
        known = self._known.get(place)
        if known is None:
            context = self._foreign_handles[place][2] if place in self._foreign_handles else 0
            known = self._known[place] = FunctionsAt(self._functions, self._devices[place], context)
        return known

    def show_printed(self) -> None:
        """Let the system show what kernels have printed: where the host finds that all is done, CUDA does not."""
        self._functions.show_printed()


class FunctionsAt:
    """Functions on a device, by their addresses; in its own context (0) or in one of the caller's."""

    def __init__(self, functions: Any, device: int, context: int) -> None:
        self._functions = functions
        self._device = device
        self._context = context

    def function(self, image: bytes, name: str) -> int:
        """Return the function of that name in machine code, which is loaded once."""
        printing[0] = printing[0] or PRINTS in image
        return int(self._functions.load(self._device, self._context, image, name.encode()))

    def function_of(self, kernel: int) -> int:
        """Return the function here of a kernel that belongs to no device, by its address."""
        return int(self._functions.of_kernel(self._device, self._context, kernel))

    def parameters(self, function: int) -> list[tuple[int, int]]:
        """Return (offset, size) in bytes of each parameter of a function."""
        found: list[tuple[int, int]] = self._functions.parameters(function)
        return found

    def capability(self) -> tuple[int, int]:
        """Return what the device can do, as (major, minor)."""
        major, minor = self._functions.capability(self._device)
        return major, minor

    def multiprocessors(self) -> int:
        """Return how many multiprocessors the device has."""
        return int(self._functions.multiprocessors(self._device))

    def blocks_at_once(self, function: int, threads: int, shared: int = 0) -> int:
        """Return how many blocks of so many threads and bytes of shared memory of a function run at once."""
        return int(self._functions.blocks_at_once(self._device, self._context, function, threads, shared))

    def launch(self, *how: Any) -> None:
        """Launch a function on a stream whose device is current; see `Functions.launch` of the drivers."""
        self._functions.launch(*how)
