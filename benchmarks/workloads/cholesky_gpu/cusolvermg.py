"""cuSOLVERMg on several GPUs: ``cusolverMgPotrf`` on block columns dealt out in turn, its own layout."""

from __future__ import annotations

from ctypes import byref, c_int, c_int64, c_void_p
from typing import Any

import libraries
from libraries import FLOAT64, LOWER
from matrix import Matrix

__all__ = ["NAME", "Factorization"]

NAME = "cuSOLVERMg"
COLUMN_MAJOR = 0  # CUDALIBMG_GRID_MAPPING_COL_MAJOR
FIRST = 1  # indices count from one


class Factorization:
    """Factors a matrix with a part on each of devices 0, 1, …, in place, or, on `count` of them, one on the host."""

    def __init__(self, matrix: Any, count: int) -> None:
        import cupy

        self.library = libraries.cusolver_mg()
        self.host = matrix if matrix.is_on_host else None
        if self.host is not None:
            matrix = Matrix(cupy, matrix.order, matrix.tile, count)
            self.streams = []
            for device in range(count):
                with cupy.cuda.Device(device):
                    self.streams.append(cupy.cuda.Stream(non_blocking=True))
        self.matrix, self.order = matrix, matrix.order
        enable_peers(cupy.cuda, count)
        self.devices = (c_int * count)(*range(count))
        self.handle = self.library.new("cusolverMgCreate")
        self.library.cusolverMgDeviceSelect(self.handle, count, self.devices)
        self.grid = self.library.new("cusolverMgCreateDeviceGrid", 1, count, self.devices, COLUMN_MAJOR)
        order, tile = self.order, matrix.tile
        self.descriptor = self.library.new("cusolverMgCreateMatrixDesc", order, order, order, tile, FLOAT64, self.grid)
        self.parts = (c_void_p * count)(*(part.data.ptr for part in matrix.parts))
        size = self.library.cusolverMgPotrf_bufferSize
        arguments = (self.handle, LOWER, order, self.parts, FIRST, FIRST, self.descriptor, FLOAT64)
        self.elements = libraries.size_of(size, *arguments, kind=c_int64)
        self.work = []
        for device in range(count):
            with cupy.cuda.Device(device):
                self.work.append(cupy.empty(self.elements))
        self.work_parts = (c_void_p * count)(*(work.data.ptr for work in self.work))
        matrix.synchronize()

    def run(self) -> None:
        """Factor; from and to the host where the matrix is there. Done when this returns."""
        info = c_int()
        if self.host is not None:
            self.copy(lambda here, there, stream: here.set(there, stream=stream))
        self.library.cusolverMgPotrf(
            self.handle, LOWER, self.order, self.parts, FIRST, FIRST, self.descriptor, FLOAT64, self.work_parts,
            self.elements, byref(info),
        )  # fmt: skip
        self.matrix.synchronize()
        if self.host is not None:
            self.copy(lambda here, there, stream: here.get(stream=stream, order="F", out=there))
        if info.value:
            raise ArithmeticError(f"cuSOLVERMg: info = {info.value}")

    def copy(self, copy: Any) -> None:
        """Copy the block columns, those of each device on a stream of its own."""
        for j in range(self.matrix.count):
            part = j % len(self.streams)
            with self.matrix.device(part):
                copy(self.matrix.column(j), self.host.column(j), self.streams[part])
        for stream in self.streams:
            stream.synchronize()

    def close(self) -> None:
        """Give handles back."""
        self.library.cusolverMgDestroyMatrixDesc(self.descriptor)
        self.library.cusolverMgDestroyGrid(self.grid)
        self.library.cusolverMgDestroy(self.handle)


def enable_peers(cuda: Any, count: int) -> None:
    """Let the devices reach each other's memory, where they do not yet."""
    for device in range(count):
        with cuda.Device(device):
            for other in range(count):
                if other != device and cuda.runtime.deviceCanAccessPeer(device, other):
                    try:
                        cuda.runtime.deviceEnablePeerAccess(other)
                    except cuda.runtime.CUDARuntimeError as error:
                        if "AlreadyEnabled" not in str(error):
                            raise
