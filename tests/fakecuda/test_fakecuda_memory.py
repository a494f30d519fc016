"""Memory of the stand-in behaves as CUDA's does: copies, registration, pools, and what is used too early or too late.

Each test runs in a process of its own, with the stand-in as its ``libcuda.so.1``.
"""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("cuda.bindings.driver", exc_type=ImportError)
if sys.platform != "linux":
    pytest.skip("streams and memory are made of Linux's threads and mmap", allow_module_level=True)

PRELUDE, NEEDS_STF = "from driver_tools import *\n", False

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


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
        assert fakecuda.describe().startswith("fill in stream 2 ")
        fails(E.CUDA_ERROR_ILLEGAL_ADDRESS, driver.cuStreamSynchronize(s))
        fakecuda.reset()
        ok(driver.cuInit(0))
        ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
        ok(driver.cuMemAlloc(8))
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuStreamSynchronize(s))

    run(body, WHEN=when)
