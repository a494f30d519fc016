"""cuSOLVER on one GPU: ``cusolverDnDpotrf`` and ``cusolverDnXpotrf``, with their workspaces made beforehand."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t
from typing import Any

import libraries
from libraries import FLOAT64, LOWER

__all__ = ["NAME", "Factorization"]

NAME = "cuSOLVER"


class Factorization:
    """Factors a matrix of one part, in place; `call` is ``"Xpotrf"`` or ``"Dpotrf"``."""

    def __init__(self, matrix: Any, call: str = "Xpotrf") -> None:
        import cupy

        self.library, self.call = libraries.cusolver(), call
        self.matrix, self.order = matrix, matrix.order
        self.device = cupy.empty((self.order, self.order), order="F") if matrix.is_on_host else matrix.parts[0]
        self.pointer = self.device.data.ptr
        self.handle = self.library.new("cusolverDnCreate")
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.library.cusolverDnSetStream(self.handle, self.stream.ptr)
        self.params = self.library.new("cusolverDnCreateParams")
        self.info = cupy.zeros(1, "i4")
        (self.prepare_x if call == "Xpotrf" else self.prepare_d)(cupy)

    def prepare_d(self, cupy: Any) -> None:
        size = self.library.cusolverDnDpotrf_bufferSize
        self.elements = libraries.size_of(size, self.handle, LOWER, self.order, self.pointer, self.order)
        self.work = cupy.empty(max(self.elements, 1))

    def prepare_x(self, cupy: Any) -> None:
        on_device, on_host = c_size_t(), c_size_t()
        self.library.cusolverDnXpotrf_bufferSize(
            self.handle, self.params, LOWER, self.order, FLOAT64, self.pointer, self.order, FLOAT64,
            byref(on_device), byref(on_host),
        )  # fmt: skip
        self.work = cupy.empty(max(on_device.value, 1), "u1")
        self.host_work = ctypes.create_string_buffer(max(on_host.value, 1))

    def run(self) -> None:
        """Factor; from and to the host where the matrix is there. Done when this returns."""
        if self.matrix.is_on_host:
            self.device.set(self.matrix.parts[0], stream=self.stream)
        if self.call == "Dpotrf":
            self.library.cusolverDnDpotrf(
                self.handle, LOWER, self.order, self.pointer, self.order, self.work.data.ptr, self.elements,
                self.info.data.ptr,
            )  # fmt: skip
        else:
            self.library.cusolverDnXpotrf(
                self.handle, self.params, LOWER, self.order, FLOAT64, self.pointer, self.order, FLOAT64,
                self.work.data.ptr, self.work.nbytes, ctypes.addressof(self.host_work), len(self.host_work),
                self.info.data.ptr,
            )  # fmt: skip
        if self.matrix.is_on_host:
            self.device.get(stream=self.stream, order="F", out=self.matrix.parts[0])
        self.stream.synchronize()

    def close(self) -> None:
        """Give the handle back."""
        if int(self.info[0]):
            raise ArithmeticError(f"cuSOLVER: the leading minor of order {int(self.info[0])} is not positive")
        self.library.cusolverDnDestroyParams(self.params)
        self.library.cusolverDnDestroy(self.handle)
