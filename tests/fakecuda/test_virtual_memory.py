"""Memory that is mapped, on the stand-in: addresses and memory apart, and access for each device."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("cuda.bindings.driver", exc_type=ImportError)
if sys.platform != "linux":
    pytest.skip("memory is mapped by Linux", allow_module_level=True)

PRELUDE = """
from driver_tools import *

PAGE = 2 << 20

def properties(device):
    wish = driver.CUmemAllocationProp()
    wish.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wish.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wish.location.id = device
    return wish

def access(*devices):
    wishes = []
    for device in devices:
        wish = driver.CUmemAccessDesc()
        wish.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wish.location.id = device
        wish.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        wishes.append(wish)
    return wishes

def mapped(*devices):
    base = int(ok(driver.cuMemAddressReserve(PAGE * len(devices), 0, 0, 0)))
    for k, device in enumerate(devices):
        handle = ok(driver.cuMemCreate(PAGE, properties(device), 0))
        ok(driver.cuMemMap(base + k * PAGE, PAGE, 0, handle, 0))
        ok(driver.cuMemRelease(handle))
    return base

def unmapped(base, n):
    for k in range(n):
        ok(driver.cuMemUnmap(base + k * PAGE, PAGE))
    ok(driver.cuMemAddressFree(base, n * PAGE))
"""
NEEDS_STF = False

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


def test_one_array_over_two_devices(run):
    def body():
        option = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        assert ok(driver.cuMemGetAllocationGranularity(properties(0), option)) == PAGE
        base, s = mapped(0, 1), stream()
        ok(driver.cuMemSetAccess(base, 2 * PAGE, access(0, 1), 2))
        x, y = np.arange(2 * PAGE // 8, dtype=np.int64), np.zeros(2 * PAGE // 8, np.int64)
        ok(driver.cuMemcpyHtoDAsync(base, x.ctypes.data, 2 * PAGE, s))  # over the border
        ok(driver.cuMemsetD32Async(base + PAGE - 4, 7, 2, s))
        ok(driver.cuMemcpyDtoHAsync(y.ctypes.data, base, 2 * PAGE, s))
        ok(driver.cuStreamSynchronize(s))
        x.view(np.int32)[PAGE // 4 - 1 : PAGE // 4 + 1] = 7
        assert (x == y).all()
        assert fakecuda.leaks() == {"streams": 1, "reservations": 1, "mappings": 2}
        unmapped(base, 2)
        ok(driver.cuStreamDestroy(s))
        assert fakecuda.leaks() == {}
        assert ok(driver.cuMemGetInfo())[0] == ok(driver.cuMemGetInfo())[1]

    run(body)


def test_devices_need_access(run):
    def body():
        base, s = mapped(0, 1), stream()
        ok(driver.cuMemSetAccess(base, PAGE, access(0, 1), 2))
        ok(driver.cuMemSetAccess(base + PAGE, PAGE, access(1), 1))
        ok(driver.cuMemsetD8Async(base, 1, PAGE, s))
        ok(driver.cuStreamSynchronize(s))
        ok(driver.cuMemsetD8Async(base, 1, PAGE + 1, s))  # the last byte is not for device 0
        fails(E.CUDA_ERROR_ILLEGAL_ADDRESS, driver.cuStreamSynchronize(s))

    run(body)


def test_what_is_refused(run):
    def body():
        INVALID = E.CUDA_ERROR_INVALID_VALUE
        base, s = mapped(0), stream()
        assert driver.cuMemAddressReserve(PAGE + 1, 0, 0, 0)[0] == INVALID
        assert driver.cuMemCreate(100, properties(0), 0)[0] == INVALID
        assert driver.cuMemCreate(PAGE, properties(2), 0)[0] == E.CUDA_ERROR_INVALID_DEVICE
        handle = ok(driver.cuMemCreate(PAGE, properties(0), 0))
        fails(INVALID, driver.cuMemMap(base, PAGE, 0, handle, 0))  # there is something
        fails(INVALID, driver.cuMemMap(base + PAGE, PAGE, 0, handle, 0))  # nobody reserved it
        fails(INVALID, driver.cuMemUnmap(base, PAGE // 2))
        fails(INVALID, driver.cuMemAddressFree(base, PAGE))
        fails(INVALID, driver.cuMemsetD8Async(base + PAGE, 1, 1, s))
        assert driver.cuMemCreate(3 * PAGE, properties(0), 0)[0] == E.CUDA_ERROR_OUT_OF_MEMORY
        ok(driver.cuMemRelease(handle))
        fails(INVALID, driver.cuMemRelease(handle))
        unmapped(base, 1)

    run(body, FAKECUDA_MEMORY=str(8 << 20))


def test_memory_keeps_its_content_until_it_is_released(run):
    def body():
        base, handle = (
            int(ok(driver.cuMemAddressReserve(PAGE, 0, 0, 0))),
            ok(driver.cuMemCreate(PAGE, properties(1), 0)),
        )
        for _ in range(2):
            ok(driver.cuMemMap(base, PAGE, 0, handle, 0))
            ok(driver.cuMemSetAccess(base, PAGE, access(0), 1))
            first = ctypes.string_at(base, 1)
            ok(driver.cuMemsetD8(base, 3, PAGE))
            ok(driver.cuCtxSynchronize())
            ok(driver.cuMemUnmap(base, PAGE))
        assert first == bytes([3])
        ok(driver.cuMemRelease(handle))
        ok(driver.cuMemAddressFree(base, PAGE))
        assert fakecuda.leaks() == {}

    run(body)


def test_without_peers_a_device_has_no_access(run):
    def body():
        base = mapped(0)
        fails(E.CUDA_ERROR_INVALID_DEVICE, driver.cuMemSetAccess(base, PAGE, access(1), 1))
        unmapped(base, 1)

    run(body, FAKECUDA_PEER="0")
