"""What the bodies of the tests of callers' streams begin with: held streams, captures, a kernel, what is left."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
import weakref

import cupy
import fakecuda
import numpy as np
import pytest

import stf
from stf.contexts import callers

__all__ = [
    "FUNCTION",
    "Captured",
    "Held",
    "add",
    "add_one",
    "callers",
    "ctypes",
    "cupy",
    "driver",
    "fakecuda",
    "gc",
    "handle",
    "is_idle",
    "kernel",
    "new_stream",
    "nothing_left",
    "np",
    "ok",
    "on_device",
    "os",
    "pytest",
    "stf",
    "threading",
    "time",
    "weakref",
]

driver = ctypes.CDLL("libcuda.so.1")
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def ok(code):
    assert code == 0, code


def handle(*names):
    return [ctypes.c_void_p() for _ in names]


def kernel(name):
    module, function = handle("module", "function")
    cupy.cuda.Device(0).use()
    ok(driver.cuModuleLoadData(ctypes.byref(module), b"x"))
    ok(driver.cuModuleGetFunction(ctypes.byref(function), module, name))
    return function.value


add_one = kernel(b"add_one")


def add(ctx, data):
    ctx.launch_kernel(add_one, (1, 1), data.rw(), data.size)


class Held:
    """Keeps a stream from going on, until released; runs a function then."""

    def __init__(self, stream, then=lambda: None):
        self.go = threading.Event()
        self.function = FUNCTION(lambda _: (self.go.wait(30), then()))
        ok(driver.cuLaunchHostFunc(ctypes.c_void_p(stream.ptr), self.function, None))

    def release(self):
        self.go.set()


def is_idle(stream):
    return driver.cuStreamQuery(ctypes.c_void_p(stream.ptr)) == 0


def new_stream(device=0):
    with cupy.cuda.Device(device):
        return cupy.cuda.Stream(non_blocking=True)


def on_device(values, device=0):
    with cupy.cuda.Device(device):
        return cupy.asarray(np.asarray(values, float))


class Captured:
    """A capture of what the with-block does on a stream; then launches of it."""

    def __init__(self, stream, mode=0):
        self.stream, self.mode, self.graph, self.exec = stream, mode, *handle("graph", "exec")

    def __enter__(self):
        ok(driver.cuStreamBeginCapture_v2(ctypes.c_void_p(self.stream.ptr), self.mode))
        return self

    def __exit__(self, kind, *_):
        code = driver.cuStreamEndCapture(ctypes.c_void_p(self.stream.ptr), ctypes.byref(self.graph))
        if kind is None:
            ok(code)
            ok(driver.cuGraphInstantiateWithFlags(ctypes.byref(self.exec), self.graph, ctypes.c_ulonglong(0)))

    def launch(self, times=1):
        for _ in range(times):
            ok(driver.cuGraphLaunch(self.exec, ctypes.c_void_p(self.stream.ptr)))
        self.stream.synchronize()
        assert fakecuda.describe() == ""

    def destroy(self):
        ok(driver.cuGraphDestroy(self.graph))
        ok(driver.cuGraphExecDestroy(self.exec))


def nothing_left():
    gc.collect()
    callers.shared.close()
    cupy.get_default_memory_pool().free_all_blocks()
    assert fakecuda.leaks() == {}, fakecuda.leaks()
