"""The hardware of a place: `ExecPlace.attributes`."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import Any

from stf.devices.make import cuda_attributes, cuda_current, cuda_devices
from stf.errors import PlaceError

__all__ = ["PlaceAttributes"]


@dataclass(frozen=True)
class PlaceAttributes:
    """The hardware of a place: ``stf.exec_place.device(0).attributes``. What it has not is 0.

    Attributes
    ----------
    kind : str
        ``"cuda"`` or ``"cpu"``. A device that is emulated is a CPU.
    name : str
        The vendor's name.
    architecture : tuple of int or str
        The compute capability of a CUDA device, as (major, minor); the instruction set of a CPU.
    memory_bytes : int
        Bytes of its memory.
    cores : int
        Cores of a CPU that this process may use.
    multiprocessors : int
        Multiprocessors of a CUDA device.
    shared_memory_per_block, shared_memory_per_multiprocessor : int
        The most bytes that a kernel can have.
    threads_per_block, threads_per_multiprocessor : int
        The most threads.
    warp_size : int
        Threads of a warp.

    Examples
    --------
    >>> host = stf.exec_place.host().attributes
    >>> host.kind, host.multiprocessors
    ('cpu', 0)
    """

    kind: str
    name: str
    architecture: Any
    memory_bytes: int
    cores: int = 0
    multiprocessors: int = 0
    shared_memory_per_block: int = 0
    shared_memory_per_multiprocessor: int = 0
    threads_per_block: int = 0
    threads_per_multiprocessor: int = 0
    warp_size: int = 0


def attributes_of(place: Any, on_cuda: bool) -> PlaceAttributes:
    """Return the hardware of a place, whose devices are CUDA's or emulated."""
    if place.kind not in ("host", "device", "current_device"):
        raise PlaceError(f"{place!r} is no single device, and not the host; ask stf.exec_place.device(i).attributes")
    if place.kind == "host" or not on_cuda:
        return PlaceAttributes("cpu", platform.processor() or "cpu", platform.machine(), host_memory(), cores())
    ordinal = max(cuda_current(), 0) if place.kind == "current_device" else place.index
    if ordinal >= cuda_devices():
        raise PlaceError(f"{place!r} is not on this machine, which has {cuda_devices()} CUDA device(s)")
    return PlaceAttributes("cuda", **cuda_attributes(ordinal))


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_memory() -> int:
    """Return the bytes of the host's memory; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0
