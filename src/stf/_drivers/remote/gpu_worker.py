"""A worker whose device is a GPU: see `watched_gpu`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from stf._drivers.remote.worker import Worker
from stf._port.remote_arrays import DeviceBlock
from stf.errors import PlaceError


class GpuWorker(Worker):
    """An interpreter of commands, on a GPU."""

    def array(self, address: int, shape: Any, strides: Any, dtype: Any) -> Any:
        real, owner = self.find(address)
        return DeviceBlock(real, tuple(shape), tuple(strides), dtype, owner, self.driver.ordinal)

    def read(self, what: Any) -> bytes:
        address, strides, shape, itemsize, *_ = what
        real, _owner = self.find(address)
        return bytes(self.driver.read(real, strides, shape, itemsize))

    def write(self, what: Any, content: bytes) -> None:
        address, strides, shape, itemsize, *_ = what
        real, _owner = self.find(address)
        self.driver.write(real, strides, shape, itemsize, content)

    def fill(self, name: int, target: Any, pattern: bytes) -> None:
        address, strides, shape, _itemsize = target
        real, _owner = self.find(address)
        self.driver.fill(self.streams[name], real, tuple(strides), tuple(shape), pattern)


def make_worker(number: int, threads: int, send: Callable[[int, bytes], None], gpu: int | None = None) -> Worker:
    """Return a worker on the CPU, or on the GPU of an ordinal.

    Raises
    ------
    PlaceError
        This process has no such GPU.
    """
    if gpu is None:
        return Worker(number, threads, send)
    count, reason = gpus_here()
    if count <= gpu:
        raise PlaceError(
            f"worker {number} is to use a GPU, and its process {os.getpid()} has {count} that CUDA can use{reason}; "
            "ask for workers without GPUs, or start the cluster's processes with a GPU each"
        )
    from stf._drivers.remote.watched_gpu import WatchedGpu

    return GpuWorker(number, threads, send, WatchedGpu(gpu, threads))


def gpus_here() -> tuple[int, str]:
    """Return how many GPUs this process can use, and why there are none."""
    try:
        from stf._drivers.cuda.devices import device_count

        return max(int(device_count()), 0), ""
    except Exception as error:
        return 0, f" ({type(error).__name__}: {error})"
