"""The stand-in for CUDA's driver library behaves as CUDA's does, where our driver relies on it.

Each test runs in a process of its own, with the stand-in as its ``libcuda.so.1``.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.driver", exc_type=ImportError)
if sys.platform != "linux":
    pytest.skip("streams and memory are made of Linux's threads and mmap", allow_module_level=True)

HERE = Path(__file__).parent

PRELUDE = """
import ctypes
import os
import threading
import numpy as np
import fakecuda
from cuda.bindings import driver

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
    # An array in pinned memory.
    def __init__(self, n, dtype=float):
        nbytes = np.dtype(dtype).itemsize * n
        self.address = ok(driver.cuMemHostAlloc(nbytes, 0))
        self.array = np.frombuffer((ctypes.c_char * nbytes).from_address(self.address), dtype)

class Gate:
    # Holds a stream until it is opened.
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
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("fakecuda_build", HERE / "build.py")
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    if what := builder.missing():
        pytest.skip(f"not there: {what}")
    return builder.build(tmp_path_factory.mktemp("fakecuda")).parent


@pytest.fixture
def run(folder, tmp_path):
    """Run the body of a function in a process of its own."""

    def run(function, **settings):
        body = textwrap.dedent("".join(inspect.getsourcelines(function)[0][1:]))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FAKECUDA_")}
        environment.update(settings, LD_LIBRARY_PATH=str(folder), PYTHONPATH=str(HERE))
        script = tmp_path / "body.py"  # a file, for the sake of tracebacks
        script.write_text(PRELUDE + body)
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, text=True, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


def test_devices(run):
    def body():
        assert ok(driver.cuDriverGetVersion()) == 13000
        assert ok(driver.cuDeviceGetCount()) == 3
        A = driver.CUdevice_attribute
        assert ok(driver.cuDeviceGetAttribute(A.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 2)) == 9
        assert ok(driver.cuDeviceTotalMem(0)) == 1 << 20
        assert ok(driver.cuDeviceGetUuid(0)).bytes != ok(driver.cuDeviceGetUuid(1)).bytes
        assert ok(driver.cuDeviceCanAccessPeer(0, 1)) == 0
        assert b"Fake" in ok(driver.cuDeviceGetName(64, 0))
        fails(E.CUDA_ERROR_INVALID_DEVICE, driver.cuDeviceGet(3))
        fails(E.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, driver.cuCtxEnablePeerAccess(contexts[1], 0))
        assert ok(driver.cuGetErrorName(E.CUDA_ERROR_NOT_READY)) == b"CUDA_ERROR_NOT_READY"
        assert ok(driver.cuGetErrorString(E.CUDA_ERROR_OUT_OF_MEMORY)) == b"out of memory"

    run(body, FAKECUDA_DEVICES="3", FAKECUDA_PEER="0", FAKECUDA_MEMORY=str(1 << 20))


def test_contexts(run):
    def body():
        assert int(ok(driver.cuCtxGetDevice())) == 0
        ok(driver.cuCtxPushCurrent(contexts[1]))
        assert int(ok(driver.cuCtxGetDevice())) == 1
        assert int(ok(driver.cuCtxPopCurrent())) == int(contexts[1])
        assert int(ok(driver.cuCtxGetDevice_v2(contexts[1]))) == 1
        ok(driver.cuCtxSynchronize_v2(contexts[1]))
        ok(driver.cuCtxEnablePeerAccess(contexts[1], 0))
        fails(E.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, driver.cuCtxEnablePeerAccess(contexts[1], 0))
        results = []
        thread = threading.Thread(target=lambda: results.append(driver.cuMemAlloc(8)))
        thread.start()
        thread.join()
        fails(E.CUDA_ERROR_INVALID_CONTEXT, results[0])  # what is current is so for one thread
        s = stream()
        ok(driver.cuMemAlloc(8))
        assert fakecuda.counts()["contexts"] == 2
        ok(driver.cuDevicePrimaryCtxRelease(0))
        assert fakecuda.counts()["contexts"] == 1
        assert fakecuda.counts()["dropped"] == 2  # the stream and the memory went with it
        fails(E.CUDA_ERROR_CONTEXT_IS_DESTROYED, driver.cuMemAlloc(8))
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuStreamSynchronize(s))

    run(body)


def test_copies_in_one_dimension(run):
    def body():
        s = stream()
        x, y, z = Pinned(1000), Pinned(1000), np.zeros(1000)
        x.array[:] = np.arange(1000)
        a, b = ok(driver.cuMemAlloc(8000)), ok(driver.cuMemAllocAsync(8000, s))
        ok(driver.cuCtxPushCurrent(contexts[1]))
        c = ok(driver.cuMemAlloc(8000))
        ok(driver.cuCtxPopCurrent())
        ok(driver.cuMemcpyHtoDAsync(a, x.address, 8000, s))
        ok(driver.cuMemcpyDtoDAsync(b, a, 8000, s))
        ok(driver.cuMemcpyPeerAsync(c, contexts[1], b, contexts[0], 8000, s))
        ok(driver.cuMemcpyAsync(y.address, c, 8000, s))
        ok(driver.cuStreamSynchronize(s))
        assert (x.array == y.array).all()
        ok(driver.cuMemsetD32Async(int(a) + 4, 7, 3, s))
        ok(driver.cuStreamSynchronize(s))
        ok(driver.cuMemcpyDtoH(z.ctypes.data, a, 8000))
        assert list(z.view(np.uint32)[:4]) == [0, 7, 7, 7]
        assert (z[2:] == x.array[2:]).all()
        ok(driver.cuMemcpyHtoD(int(a) + 8, z.ctypes.data, 0))
        for p in a, b, c:
            ok(driver.cuMemFree(p))
        ok(driver.cuMemFreeHost(x.address))
        ok(driver.cuMemFreeHost(y.address))
        ok(driver.cuStreamDestroy(s))
        assert fakecuda.leaks() == {}

    run(body)


def test_copies_in_two_and_three_dimensions(run):
    def body():
        s = stream()
        T = driver.CUmemorytype
        x = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
        a = ok(driver.cuMemAlloc(x.nbytes))
        ok(driver.cuMemcpyHtoD(a, x.ctypes.data, x.nbytes))

        y = np.zeros((3, 2), np.int32)
        c = driver.CUDA_MEMCPY2D()
        c.srcMemoryType, c.srcDevice, c.srcPitch, c.srcXInBytes, c.srcY = T.CU_MEMORYTYPE_DEVICE, a, 24, 8, 1
        c.dstMemoryType, c.dstHost, c.dstPitch = T.CU_MEMORYTYPE_HOST, y.ctypes.data, 8
        c.WidthInBytes, c.Height = 8, 3
        ok(driver.cuMemcpy2DAsync(c, s))
        assert (y == x[0, 1:4, 2:4]).all()
        c.srcPitch = 12
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemcpy2DAsync(c, s))
        c.srcPitch, c.srcY, c.Height = 24, 0, 21
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemcpy2DAsync(c, s))

        z = np.zeros((2, 3, 2), np.int32)
        for kind, copy in (
            (driver.CUDA_MEMCPY3D, driver.cuMemcpy3DAsync),
            (driver.CUDA_MEMCPY3D_PEER, driver.cuMemcpy3DPeerAsync),
        ):
            z[:] = 0
            c = kind()
            c.srcMemoryType, c.srcDevice, c.srcPitch, c.srcHeight = T.CU_MEMORYTYPE_DEVICE, a, 24, 5
            c.srcXInBytes, c.srcY, c.srcZ = 16, 2, 1
            c.dstMemoryType, c.dstHost, c.dstPitch, c.dstHeight = T.CU_MEMORYTYPE_HOST, z.ctypes.data, 8, 3
            c.WidthInBytes, c.Height, c.Depth = 8, 3, 2
            if kind is driver.CUDA_MEMCPY3D_PEER:
                fails(E.CUDA_ERROR_INVALID_CONTEXT, copy(c, s))
                c.srcContext = contexts[0]
            ok(copy(c, s))
            assert (z == x[1:3, 2:5, 4:6]).all()

    run(body)


def test_streams_are_asynchronous_and_in_order(run):
    def body():
        s = stream()
        x, a = Pinned(1), ok(driver.cuMemAlloc(8))
        gate = Gate(s)
        for value in 1.0, 2.0:
            ok(driver.cuMemsetD32Async(a, 0, 2, s))
            ok(driver.cuMemcpyHtoDAsync(a, np.array([value]).ctypes.data, 8, s))
        x.array[0] = 0
        ok(driver.cuMemcpyDtoHAsync(x.address, a, 8, s))
        fails(E.CUDA_ERROR_NOT_READY, driver.cuStreamQuery(s))
        assert x.array[0] == 0
        gate.word.array[0] = 1
        ok(driver.cuStreamSynchronize(s))
        ok(driver.cuStreamQuery(s))
        assert x.array[0] == 2

    run(body, FAKECUDA_SEED="1")


def test_default_stream_waits_for_blocking_streams(run):
    def body():
        s, free = stream(0), stream()
        a, x = ok(driver.cuMemAlloc(8)), np.zeros(1, np.uint64)
        Gate(free)  # never opened: nobody waits for this one
        ok(driver.cuMemsetD8Async(a, 1, 8, s))
        ok(driver.cuMemcpyDtoH(x.ctypes.data, a, 8))
        assert x[0] == 0x0101010101010101

    run(body, FAKECUDA_SEED="3")


def test_events_order_streams(run):
    def body():
        s, t = stream(), stream()
        e = event()
        a, x = ok(driver.cuMemAlloc(8)), Pinned(1, np.uint64)
        gate = Gate(s)
        ok(driver.cuEventQuery(e))  # never recorded counts as complete
        ok(driver.cuStreamWaitEvent(t, e, 0))
        ok(driver.cuMemsetD8Async(a, 1, 8, s))
        ok(driver.cuEventRecord(e, s))
        fails(E.CUDA_ERROR_NOT_READY, driver.cuEventQuery(e))
        ok(driver.cuStreamWaitEvent(t, e, 0))
        ok(driver.cuMemcpyDtoHAsync(x.address, a, 8, t))
        fails(E.CUDA_ERROR_NOT_READY, driver.cuStreamQuery(t))
        gate.word.array[0] = 1
        ok(driver.cuStreamSynchronize(t))
        assert x.array[0] == 0x0101010101010101
        ok(driver.cuEventSynchronize(e))

    run(body)


def test_a_wait_keeps_to_the_record_it_found(run):
    def body():
        s, t, u = stream(), stream(), stream()
        e = event()
        ok(driver.cuEventRecord(e, s))
        ok(driver.cuStreamWaitEvent(t, e, 0))
        Gate(u)  # never opened
        ok(driver.cuEventRecord(e, u))
        ok(driver.cuStreamSynchronize(t))
        fails(E.CUDA_ERROR_NOT_READY, driver.cuEventQuery(e))
        ok(driver.cuEventDestroy(e))
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuEventQuery(e))

    run(body)


def test_time_between_events(run):
    def body():
        s = stream()
        a, b, quiet = event(), event(), event(2)  # CU_EVENT_DISABLE_TIMING
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuEventElapsedTime(a, b))
        ok(driver.cuEventRecord(a, s))
        gate = Gate(s)
        ok(driver.cuEventRecord(b, s))
        ok(driver.cuEventRecord(quiet, s))
        fails(E.CUDA_ERROR_NOT_READY, driver.cuEventElapsedTime(a, b))
        gate.word.array[0] = 1
        ok(driver.cuEventSynchronize(b))
        assert ok(driver.cuEventElapsedTime(a, b)) > 0
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuEventElapsedTime(a, quiet))
        ok(driver.cuCtxPushCurrent(contexts[1]))
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuEventRecord(event(), s))  # of another context

    run(body)


def test_destroyed_streams_finish_their_work(run):
    def body():
        s = stream()
        x, a = Pinned(1, np.uint64), ok(driver.cuMemAlloc(8))
        gate = Gate(s)
        ok(driver.cuMemsetD8Async(a, 1, 8, s))
        ok(driver.cuMemcpyDtoHAsync(x.address, a, 8, s))
        ok(driver.cuStreamDestroy(s))
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuStreamQuery(s))
        gate.word.array[0] = 1
        ok(driver.cuCtxSynchronize())
        assert x.array[0] == 0x0101010101010101

    run(body)


def test_pageable_memory(run):
    def body():
        s = stream()
        a, x, y = ok(driver.cuMemAlloc(8)), np.array([1.0]), np.zeros(1)
        gate = Gate(s)
        ok(driver.cuMemcpyHtoDAsync(a, x.ctypes.data, 8, s))
        x[0] = 2.0  # too late to be copied
        threading.Timer(0.05, lambda: gate.word.array.fill(1)).start()
        ok(driver.cuMemcpyDtoHAsync(y.ctypes.data, a, 8, s))  # returns when it is done
        assert y[0] == 1.0

        pinned = Pinned(1)
        gate = Gate(s)
        ok(driver.cuMemcpyHtoDAsync(a, pinned.address, 8, s))
        pinned.array[0] = 3.0  # in time to be copied
        gate.word.array[0] = 1
        ok(driver.cuMemcpyDtoHAsync(y.ctypes.data, a, 8, s))
        assert y[0] == 3.0

    run(body)


def test_registered_memory(run):
    def body():
        s = stream()
        x, a = np.zeros(1000), ok(driver.cuMemAlloc(8000))
        P = driver.CUpointer_attribute
        fails(
            E.CUDA_ERROR_INVALID_VALUE, driver.cuPointerGetAttribute(P.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, x.ctypes.data)
        )
        ok(driver.cuMemHostRegister(x.ctypes.data, 8000, 0))
        fails(E.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, driver.cuMemHostRegister(x.ctypes.data + 80, 80, 0))
        assert ok(driver.cuPointerGetAttribute(P.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, x.ctypes.data + 8)) == 1
        assert int(ok(driver.cuMemHostGetDevicePointer(x.ctypes.data, 0))) == x.ctypes.data
        gate = Gate(s)
        ok(driver.cuMemsetD8Async(a, 0, 8000, s))
        ok(driver.cuMemcpyHtoDAsync(a, x.ctypes.data, 8000, s))
        x[:] = 5.0
        ok(driver.cuMemcpyDtoHAsync(x.ctypes.data, a, 8000, s))  # does not wait
        fails(
            E.CUDA_ERROR_INVALID_VALUE, driver.cuMemcpyHtoDAsync(a, x.ctypes.data - 8, 16, s)
        )  # half of it registered
        threading.Timer(0.05, lambda: gate.word.array.fill(1)).start()
        ok(driver.cuMemHostUnregister(x.ctypes.data))  # waits
        ok(driver.cuStreamQuery(s))
        assert (x == 5.0).all()
        fails(E.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, driver.cuMemHostUnregister(x.ctypes.data))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemHostRegister(1 << 46, 8, 0))  # nothing is there

    run(body)


def test_pointer_attributes(run):
    def body():
        s = stream()
        P = driver.CUpointer_attribute
        ok(driver.cuCtxPushCurrent(contexts[1]))
        a = int(ok(driver.cuMemAlloc(100)))
        names = [
            P.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            P.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            P.CU_POINTER_ATTRIBUTE_RANGE_SIZE,
            P.CU_POINTER_ATTRIBUTE_CONTEXT,
        ]

        def attributes(address):
            return [int(value) for value in ok(driver.cuPointerGetAttributes(len(names), names, address))]

        def ordinal(address):  # by ctypes: that of cuda.bindings 13.3.1 is always 0
            value = ctypes.c_int(77)
            name = (ctypes.c_int * 1)(int(P.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL))
            where = (ctypes.c_void_p * 1)(ctypes.addressof(value))
            assert fakecuda.library.cuPointerGetAttributes(1, name, where, ctypes.c_uint64(address)) == 0
            return value.value

        assert attributes(a + 99) == [2, a, 100, int(contexts[1])]
        assert ordinal(a + 99) == 1
        unknown = np.zeros(1).ctypes.data
        assert attributes(unknown) == [0, 0, 0, 0]
        assert ordinal(unknown) == -2
        pooled = ok(driver.cuMemAllocAsync(8, s))
        pool = ok(driver.cuPointerGetAttribute(P.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pooled))
        assert int(pool) == int(ok(driver.cuDeviceGetDefaultMemPool(0)))

    run(body)


def test_copies_outside_memory(run):
    def body():
        s = stream()
        x, a = np.zeros(100), int(ok(driver.cuMemAlloc(80)))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemcpyHtoDAsync(a + 8, x.ctypes.data, 80, s))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemcpyAsync(a + 8, x.ctypes.data, 80, s))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemcpyDtoHAsync(x.ctypes.data, x.ctypes.data, 8, s))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemcpyHtoDAsync(a, a, 8, s))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD8Async(a, 0, 81, s))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemsetD32Async(a + 1, 0, 1, s))
        ok(driver.cuMemFree(a))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemcpyHtoDAsync(a, x.ctypes.data, 8, s))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemcpyAsync(a, x.ctypes.data, 8, s))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemFree(a))
        ok(driver.cuStreamSynchronize(s))

    run(body)


def test_memory_is_poisoned(run):
    def body():
        s = stream()
        x = np.zeros(8, np.uint8)
        a, b = ok(driver.cuMemAlloc(8)), ok(driver.cuMemAllocAsync(8, s))
        for p in a, b:
            ok(driver.cuMemcpyDtoHAsync(x.ctypes.data, p, 8, s))
            assert (x == 0xA5).all()
        ok(driver.cuMemsetD8(a, 0, 8))
        ok(driver.cuMemFree(a))
        assert ctypes.string_at(int(a), 8) == b"\xa5" * 8

    run(body)


def test_capacity(run):
    def body():
        s = stream()
        KiB = 1024
        a = ok(driver.cuMemAllocAsync(600 * KiB, s))
        assert list(ok(driver.cuMemGetInfo())) == [424 * KiB, 1024 * KiB]
        fails(E.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemAlloc(600 * KiB))
        fails(E.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemAllocAsync(600 * KiB, s))
        gate = Gate(s)
        ok(driver.cuMemFreeAsync(a, s))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemFreeAsync(a, s))
        fails(E.CUDA_ERROR_OUT_OF_MEMORY, driver.cuMemAlloc(600 * KiB))  # it is free once that was executed
        gate.word.array[0] = 1
        ok(driver.cuStreamSynchronize(s))
        b = ok(driver.cuMemAlloc(600 * KiB))
        ok(driver.cuMemFree(b))
        assert ok(driver.cuMemGetInfo())[0] == 1024 * KiB
        ok(driver.cuCtxPushCurrent(contexts[1]))  # each device has its own
        ok(driver.cuMemAlloc(1024 * KiB))

    run(body, FAKECUDA_MEMORY=str(1 << 20))


def test_pools(run):
    def body():
        s = stream()
        A = driver.CUmemPool_attribute
        props = driver.CUmemPoolProps()
        props.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        props.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        props.location.id = 1
        pool = ok(driver.cuMemPoolCreate(props))

        def numbers():
            names = (
                A.CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
                A.CU_MEMPOOL_ATTR_USED_MEM_HIGH,
                A.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            )
            return [int(ok(driver.cuMemPoolGetAttribute(pool, name))) for name in names]

        a = ok(driver.cuMemAllocFromPoolAsync(4096, pool, s))
        assert numbers() == [4096, 4096, 4096]
        ok(driver.cuMemPoolSetAttribute(pool, A.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, driver.cuuint64_t(1024)))
        ok(driver.cuMemFreeAsync(a, s))
        ok(driver.cuStreamSynchronize(s))
        assert numbers() == [0, 4096, 1024]
        ok(driver.cuMemPoolTrimTo(pool, 0))
        assert numbers() == [0, 4096, 0]

        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = 0
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        assert int(ok(driver.cuMemPoolGetAccess(pool, access.location))) == 0
        ok(driver.cuMemPoolSetAccess(pool, [access], 1))
        assert int(ok(driver.cuMemPoolGetAccess(pool, access.location))) == 3
        assert fakecuda.counts()["pools"] == 1
        ok(driver.cuMemPoolDestroy(pool))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemPoolDestroy(ok(driver.cuDeviceGetDefaultMemPool(0))))
        ok(driver.cuStreamDestroy(s))
        assert fakecuda.leaks() == {}

    run(body)


@pytest.mark.parametrize("when", ["before", "after"])
def test_memory_used_out_of_its_time(run, when):
    def body():
        s, t = stream(), stream()
        Gate(s)  # never opened
        a = ok(driver.cuMemAllocAsync(8, s))
        if os.environ["WHEN"] == "before":  # t does not wait for the allocation in s
            ok(driver.cuMemsetD8Async(a, 0, 8, t))
        else:  # the free may come later, but nobody says so
            ok(driver.cuMemFreeAsync(a, s))
            ok(driver.cuMemsetD8Async(a, 0, 8, t))
        fails(E.CUDA_ERROR_ILLEGAL_ADDRESS, driver.cuStreamSynchronize(t))
        fails(E.CUDA_ERROR_ILLEGAL_ADDRESS, driver.cuMemAlloc(8))  # it stays
        assert fakecuda.story().startswith("fill in stream 2 ")
        fails(E.CUDA_ERROR_ILLEGAL_ADDRESS, driver.cuStreamSynchronize(s))
        fakecuda.reset()
        ok(driver.cuInit(0))
        ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
        ok(driver.cuMemAlloc(8))
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuStreamSynchronize(s))

    run(body, WHEN=when)


def test_kernels(run):
    def body():
        s = stream()
        module = ok(driver.cuModuleLoadData(b"anything"))
        fails(E.CUDA_ERROR_NOT_FOUND, driver.cuModuleGetFunction(module, b"nothing"))
        axpy = ok(driver.cuModuleGetFunction(module, b"axpy"))
        assert [tuple(ok(driver.cuFuncGetParamInfo(axpy, i))) for i in range(4)] == [(0, 8), (8, 8), (16, 8), (24, 8)]
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuFuncGetParamInfo(axpy, 4))
        x, y = np.arange(100.0), np.ones(100)
        a, b = ok(driver.cuMemAlloc(800)), ok(driver.cuMemAlloc(800))
        ok(driver.cuMemcpyHtoD(a, x.ctypes.data, 800))
        ok(driver.cuMemcpyHtoD(b, y.ctypes.data, 800))
        kinds = ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64
        arguments = (2.0, int(a), int(b), 100), kinds
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuLaunchKernel(axpy, 1, 1, 1, 2048, 1, 1, 0, s, arguments, 0))
        ok(driver.cuLaunchKernel(axpy, 1, 1, 1, 128, 1, 1, 0, s, arguments, 0))
        config = driver.CUlaunchConfig()
        config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1
        config.hStream = s
        ok(driver.cuLaunchKernelEx(config, axpy, arguments, 0))
        ok(driver.cuMemcpyDtoHAsync(y.ctypes.data, b, 800, s))
        ok(driver.cuStreamSynchronize(s))
        assert (y == 1 + 4 * x).all()

        @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint))
        def seven(parameters, dimensions):
            ctypes.c_int.from_address(ctypes.c_void_p.from_address(parameters[0]).value).value = 7 * dimensions[0]

        fakecuda.add_kernel("seven", "p", ctypes.cast(seven, ctypes.c_void_p).value)
        kernel = ok(driver.cuModuleGetFunction(module, b"seven"))
        ok(driver.cuLaunchKernel(kernel, 3, 1, 1, 1, 1, 1, 0, s, ((int(a),), (ctypes.c_void_p,)), 0))
        ok(driver.cuMemcpyDtoHAsync(x.ctypes.data, a, 8, s))
        assert x.view(np.int32)[0] == 21
        ok(driver.cuModuleUnload(module))

    run(body)


@pytest.mark.parametrize("peer", ["0", "1"])
def test_kernels_reach_peers_once_allowed(run, peer):
    def body():
        s = stream()
        module = ok(driver.cuModuleLoadData(b"anything"))
        add_one = ok(driver.cuModuleGetFunction(module, b"add_one"))
        ok(driver.cuCtxPushCurrent(contexts[1]))
        a = ok(driver.cuMemAlloc(8))
        ok(driver.cuCtxPopCurrent())
        if ok(driver.cuDeviceCanAccessPeer(0, 1)):
            ok(driver.cuCtxEnablePeerAccess(contexts[1], 0))
        arguments = (int(a), 1), (ctypes.c_void_p, ctypes.c_uint64)
        ok(driver.cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, s, arguments, 0))
        expected = E.CUDA_SUCCESS if ok(driver.cuDeviceCanAccessPeer(0, 1)) else E.CUDA_ERROR_ILLEGAL_ADDRESS
        assert driver.cuStreamSynchronize(s)[0] == expected

    run(body, FAKECUDA_PEER=peer)


def test_host_functions(run):
    def body():
        s = stream()
        seen = []

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def note(data):
            seen.append((data, driver.cuCtxSynchronize()[0]))

        pointer = driver.CUhostFn(_ptr=ctypes.addressof(ctypes.c_void_p(ctypes.cast(note, ctypes.c_void_p).value)))
        ok(driver.cuLaunchHostFunc(s, pointer, 5))
        ok(driver.cuStreamSynchronize(s))
        assert seen == [(5, E.CUDA_ERROR_NOT_PERMITTED)]

    run(body)


def test_planned_failures(run):
    def body():
        s = stream()
        x, a = np.zeros(4), None
        results = [driver.cuMemAlloc(8)[0] for _ in range(4)]
        assert [int(r) for r in results] == [0, 2, 0, 0]
        results = [driver.cuMemHostRegister(x.ctypes.data + 8 * i, 8, 0)[0] for i in range(3)]
        assert [int(r) for r in results] == [0, 801, 801]
        fakecuda.reset_calls("work:2:CUDA_ERROR_LAUNCH_FAILED")
        a = ok(driver.cuMemAlloc(8))
        ok(driver.cuMemsetD8Async(a, 0, 8, s))
        ok(driver.cuMemsetD8Async(a, 0, 8, s))
        fails(E.CUDA_ERROR_LAUNCH_FAILED, driver.cuStreamSynchronize(s))
        fails(E.CUDA_ERROR_LAUNCH_FAILED, driver.cuStreamQuery(s))
        ok(driver.cuDeviceGetCount())

    plan = "cuMemAlloc:2,cuMemHostRegister_v2:2+:CUDA_ERROR_NOT_SUPPORTED"
    run(body, FAKECUDA_FAIL=plan)


def test_counts(run):
    def body():
        assert fakecuda.leaks() == {}
        s, e = stream(), event()
        x = np.zeros(1)
        a, p = ok(driver.cuMemAlloc(8)), Pinned(1)
        ok(driver.cuMemHostRegister(x.ctypes.data, 8, 0))
        expected = {"streams": 1, "events": 1, "allocations": 1, "host_allocations": 1, "registrations": 1}
        assert fakecuda.leaks() == expected
        assert fakecuda.calls("cuMemAlloc") == 1
        ok(driver.cuMemHostUnregister(x.ctypes.data))
        ok(driver.cuMemFreeHost(p.address))
        ok(driver.cuMemFree(a))
        ok(driver.cuEventDestroy(e))
        ok(driver.cuStreamDestroy(s))
        assert fakecuda.leaks() == {}
        fakecuda.reset_calls()
        assert fakecuda.calls("cuMemAlloc") == 0

    run(body)


def test_what_is_not_supported_is_named(run):
    def body():
        fails(E.CUDA_ERROR_NOT_SUPPORTED, driver.cuGraphClone(driver.CUgraph(0)))

    assert "cuGraphClone is not supported" in run(body, FAKECUDA_TRACE="1")


def test_cuda_core_runs(run):
    pytest.importorskip("cuda.core", exc_type=ImportError)

    def body():
        from cuda.core import Device

        device = Device(0)
        device.set_current()
        s = device.create_stream()
        buffer = device.allocate(100, stream=s)
        s.record().sync()
        buffer.close(s)
        s.sync()
        s.close()
        assert fakecuda.counts()["allocations"] == 0

    run(body)


# -- captures --------------------------------------------------------------------------------------------------------


def test_a_captured_graph_is_replayed_in_an_order_of_its_edges(run):
    def body():
        a, b = stream(), stream()
        x, y = Pinned(1, np.int64), Pinned(1, np.int64)
        x.array[0] = y.array[0] = 0
        device = ok(driver.cuMemAlloc(16))
        fork, join = event(2), event(2)
        ok(driver.cuStreamBeginCapture(a, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        ok(driver.cuMemcpyHtoDAsync(device, x.address, 8, a))
        ok(driver.cuEventRecord(fork, a))
        ok(driver.cuStreamWaitEvent(b, fork, 0))
        memory = ok(driver.cuMemAllocAsync(8, b))
        ok(driver.cuMemcpyDtoDAsync(memory, device, 8, b))
        ok(driver.cuMemcpyDtoHAsync(y.address, memory, 8, b))
        ok(driver.cuMemFreeAsync(memory, b))
        ok(driver.cuEventRecord(join, b))
        ok(driver.cuStreamWaitEvent(a, join, 0))
        graph = ok(driver.cuStreamEndCapture(a))
        fails(E.CUDA_ERROR_STREAM_CAPTURE_ISOLATION, driver.cuStreamWaitEvent(b, join, 0))
        executable = ok(driver.cuGraphInstantiate(graph, 0))
        for k in range(20):
            x.array[0] = k
            ok(driver.cuGraphLaunch(executable, a))
            ok(driver.cuStreamSynchronize(a))
            assert y.array[0] == k
        ok(driver.cuGraphExecDestroy(executable))
        ok(driver.cuGraphDestroy(graph))
        assert fakecuda.counts()["allocations"] == 1 and fakecuda.story() == ""

    for seed in range(3):
        run(body, FAKECUDA_SEED=str(seed))


def test_what_ends_a_capture(run):
    def body():
        s, other = stream(), stream()
        e, outside = event(2), event(2)
        ok(driver.cuEventRecord(outside, other))
        x = np.zeros(4096)
        memory = ok(driver.cuMemAllocAsync(8, s))
        mode = driver.CUstreamCaptureMode
        cases = [
            (lambda: driver.cuStreamSynchronize(s), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (lambda: driver.cuStreamQuery(s), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (lambda: driver.cuEventQuery(e), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (lambda: driver.cuStreamWaitEvent(s, outside, 0), E.CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
            (lambda: driver.cuMemHostRegister(x.ctypes.data, x.nbytes, 0), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (lambda: driver.cuMemAlloc(8), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (lambda: driver.cuEventQuery(outside), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        ]
        for call, error in cases:
            ok(driver.cuStreamBeginCapture(s, mode.CU_STREAM_CAPTURE_MODE_GLOBAL))
            ok(driver.cuEventRecord(e, s))
            fails(error, call())
            fails(E.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver.cuEventRecord(e, s))
            fails(E.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver.cuStreamEndCapture(s))
        for call in (driver.cuEventQuery, driver.cuEventSynchronize):
            ok(driver.cuStreamBeginCapture(s, mode.CU_STREAM_CAPTURE_MODE_RELAXED))
            ok(driver.cuEventRecord(e, s))
            fails(E.CUDA_ERROR_CAPTURED_EVENT, call(e))
            fails(E.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver.cuStreamEndCapture(s))
        ok(driver.cuStreamBeginCapture(s, mode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemFreeAsync(memory, s))  # it is not the graph's
        ok(driver.cuEventRecord(e, s))
        ok(driver.cuStreamWaitEvent(other, e, 0))
        ok(driver.cuMemsetD8Async(memory, 0, 8, other))
        fails(E.CUDA_ERROR_STREAM_CAPTURE_UNJOINED, driver.cuStreamEndCapture(s))
        ok(driver.cuStreamBeginCapture(s, mode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        before = ok(driver.cuThreadExchangeStreamCaptureMode(mode.CU_STREAM_CAPTURE_MODE_RELAXED))
        ok(driver.cuMemHostRegister(x.ctypes.data, x.nbytes, 0))
        ok(driver.cuEventQuery(outside))
        ok(driver.cuThreadExchangeStreamCaptureMode(before))
        ok(driver.cuGraphDestroy(ok(driver.cuStreamEndCapture(s))))

    run(body)
