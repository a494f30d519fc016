"""What the bodies of the tests of graphs begin with: a kernel, tasks, a caller's graph, what is logged and left."""

from __future__ import annotations

import ctypes
import gc
import logging

import cupy
import fakecuda
import numpy as np
import pytest

import stf

__all__ = [
    "Graph",
    "Told",
    "axpy",
    "counts",
    "ctypes",
    "cupy",
    "driver",
    "fakecuda",
    "gc",
    "np",
    "pytest",
    "scale",
    "stf",
    "total",
]

driver = ctypes.CDLL("libcuda.so.1")


def kernel(name):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    cupy.cuda.Device(0).use()
    assert not driver.cuModuleLoadData(ctypes.byref(module), b"x")
    assert not driver.cuModuleGetFunction(ctypes.byref(function), module, name)
    return function.value


axpy = kernel(b"axpy")


@stf.task
def scale(x: stf.ReadWrite, a=0.5):
    x *= a


@stf.task
def total(s: stf.Write, x: stf.Read):
    s[...] = x.sum()


class Told(logging.Handler):
    """What stf logs."""

    def __init__(self):
        super().__init__()
        self.lines = []
        logging.getLogger("stf").addHandler(self)
        logging.getLogger("stf").setLevel(logging.INFO)

    def emit(self, record):
        self.lines.append(record.getMessage())


class Graph:
    """A graph of the caller's."""

    def __init__(self):
        self.handle = ctypes.c_void_p()
        cupy.cuda.Device(0).use()
        assert not driver.cuGraphCreate(ctypes.byref(self.handle), 0)
        self.handle = self.handle.value

    def launch(self, times=1):
        executable = ctypes.c_void_p()
        graph = ctypes.c_void_p(self.handle)
        cupy.cuda.Device(0).use()
        assert not driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        stream = cupy.cuda.Stream(non_blocking=True)
        for _ in range(times):
            assert not driver.cuGraphLaunch(executable, ctypes.c_void_p(stream.ptr))
        stream.synchronize()
        assert not driver.cuGraphExecDestroy(executable)

    def destroy(self):
        assert not driver.cuGraphDestroy(ctypes.c_void_p(self.handle))


def counts():
    gc.collect()
    return {kind: n for kind, n in fakecuda.counts().items() if kind in ("graphs", "objects", "allocations")}
