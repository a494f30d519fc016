"""Kernels: the role of a port on devices that run functions of their own, which are found and loaded by name."""

from __future__ import annotations

from typing import Any


class KernelsAt:
    """What is asked about functions at one execution place, by their addresses."""

    def function(self, image: bytes, name: str) -> int:
        """Return the function of that name in machine code, which is loaded once."""
        raise NotImplementedError

    def function_of(self, kernel: int) -> int:
        """Return the function here of a kernel that belongs to no device, by its address."""
        raise NotImplementedError

    def parameters(self, function: int) -> list[tuple[int, int]]:
        """Return (offset, size) in bytes of each parameter of a function."""
        raise NotImplementedError

    def capability(self) -> tuple[int, int]:
        """Return what the device can do, as (major, minor)."""
        raise NotImplementedError

    def multiprocessors(self) -> int:
        """Return how many multiprocessors the device has."""
        raise NotImplementedError

    def blocks_at_once(self, function: int, threads: int, shared: int = 0) -> int:
        """Return how many blocks of so many threads and bytes of shared memory of a function run at once."""
        raise NotImplementedError

    def launch(
        self,
        function: int,
        shape: tuple[int, ...],
        extras: tuple[Any, bool, bool],
        offsets: list[int],
        place: str,
        arguments: bytes,
        stream: int,
    ) -> None:
        """Launch a function on a stream whose device is current, perhaps in clusters, cooperative, or overlapping.

        `shape` is (grid, block, shared bytes), seven numbers; `extras` are (cluster or None, two flags). Each argument
        is told by its offset in `arguments`; errors name the `place`.
        """
        raise NotImplementedError


class Kernels:
    """Base of what the backends have as ``port.kernels``; a port without kernels has None there."""

    def at(self, place: int) -> KernelsAt:
        """Return what is asked about functions at an execution place."""
        raise NotImplementedError
