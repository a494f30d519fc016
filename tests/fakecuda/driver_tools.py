"""What the bodies of the tests of the stand-in itself begin with: CUDA's driver, what its calls return, a context."""

from __future__ import annotations

import ctypes
import os
import threading

import fakecuda
import numpy as np
from cuda.bindings import driver

__all__ = [
    "E",
    "Gate",
    "Pinned",
    "contexts",
    "ctypes",
    "driver",
    "event",
    "fails",
    "fakecuda",
    "np",
    "ok",
    "os",
    "stream",
    "threading",
]

E = driver.CUresult


def ok(result):
    assert result[0] == E.CUDA_SUCCESS, result[0]
    return result[1] if len(result) == 2 else result[1:]


def fails(error, result):
    assert result[0] == error, (result[0], error)


def stream(flags=1):  # CU_STREAM_NON_BLOCKING
    return ok(driver.cuStreamCreate(flags))


def event(flags=0):
    return ok(driver.cuEventCreate(flags))


class Pinned:
    """An array in pinned memory."""

    def __init__(self, n, dtype=float):
        nbytes = np.dtype(dtype).itemsize * n
        self.address = ok(driver.cuMemHostAlloc(nbytes, 0))
        self.array = np.frombuffer((ctypes.c_char * nbytes).from_address(self.address), dtype)


class Gate:
    """Holds a stream until it is opened."""

    def __init__(self, stream):
        self.word = Pinned(1, np.uint32)
        self.word.array[0] = 0
        ok(driver.cuStreamWaitValue32(stream, self.word.address, 1, 0))

    def open(self):
        self.word.array[0] = 1
        ok(driver.cuMemFreeHost(self.word.address))


ok(driver.cuInit(0))
contexts = [ok(driver.cuDevicePrimaryCtxRetain(i)) for i in range(2)]
ok(driver.cuCtxSetCurrent(contexts[0]))
