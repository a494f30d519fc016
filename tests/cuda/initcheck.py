"""What compute-sanitizer's initcheck (2025.3.1) takes for unwritten, in plain CUDA; every value is right.

    compute-sanitizer --tool initcheck --show-backtrace device python tests/cuda/initcheck.py [case ...]

After each case's name come the reports about it, if any: reads of what ``pinned`` memory of a pool (the host's writes),
``slices`` of copies in three dimensions, and ``nodes`` of graphs have brought. The other cases are their counterparts.
"""

from __future__ import annotations

import ctypes
import sys

import cupy
import numpy as np
from cuda.bindings import driver

N = 64
EXPECTED = np.arange(float(N))


def ok(result):
    """What a call of the driver returns, if it succeeded."""
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else None


def view(address: int) -> cupy.ndarray:
    return cupy.ndarray(N, float, cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, 8 * N, None, 0), 0))


def check(address: int, expected: np.ndarray = EXPECTED) -> None:
    """Let a kernel read what is there."""
    target = cupy.zeros(N)
    cupy.add(view(address), 0.0, out=target)
    assert target.get().tolist() == expected.tolist()
    driver.cuCtxSynchronize()


def managed() -> None:
    address = int(ok(driver.cuMemAllocManaged(8 * N, 1)))
    ctypes.memmove(address, EXPECTED.ctypes.data, 8 * N)
    check(address)


def pinned() -> None:
    """Memory from a pool of the host's that device 0 reaches."""
    properties, access = driver.CUmemPoolProps(), driver.CUmemAccessDesc()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    pool = ok(driver.cuMemPoolCreate(properties))
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(driver.cuMemPoolSetAccess(pool, [access], 1))
    address = int(ok(driver.cuMemAllocFromPoolAsync(8 * N, pool, 0)))
    ok(driver.cuStreamSynchronize(0))
    ctypes.memmove(address, EXPECTED.ctypes.data, 8 * N)
    check(address)


def copy_blocks(slices: int, is_peer: bool) -> None:
    """Copy 64 numbers that lie in rows of 4 within pitches of 8, and in so many slices, to where they are dense."""
    source, address = np.zeros((N // 4, 8)), int(ok(driver.cuMemAlloc(8 * N)))
    source[:, :4] = EXPECTED.reshape(-1, 4)
    block = driver.CUDA_MEMCPY3D_PEER() if is_peer else driver.CUDA_MEMCPY3D()
    block.srcMemoryType, block.srcHost = driver.CUmemorytype.CU_MEMORYTYPE_HOST, source.ctypes.data
    block.dstMemoryType, block.dstDevice = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE, address
    block.WidthInBytes, block.Height, block.Depth = 32, N // 4 // slices, slices
    block.srcPitch, block.dstPitch = 64, 32
    block.srcHeight = block.dstHeight = N // 4 // slices
    if is_peer:
        block.dstContext = ok(driver.cuCtxGetCurrent())
        ok(driver.cuMemcpy3DPeerAsync(block, 0))
    else:
        ok(driver.cuMemcpy3DAsync(block, 0))
    check(address)


def graph_of(address: int, value: int, home: np.ndarray | None, has_kernel: bool):
    """A graph that fills memory, or copies there, and has a kernel that reads it if that is asked for."""
    stream = cupy.cuda.Stream(non_blocking=True)
    seen = cupy.zeros(N)
    cupy.cuda.Device().synchronize()
    ok(driver.cuStreamBeginCapture(stream.ptr, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    if home is None:
        ok(driver.cuMemsetD8Async(address, value, 8 * N, stream.ptr))
    else:
        ok(driver.cuMemcpyAsync(address, home.ctypes.data, 8 * N, stream.ptr))
    if has_kernel:
        with stream:
            cupy.add(view(address), 0.0, out=seen)
    return ok(driver.cuStreamEndCapture(stream.ptr)), seen


def nodes(is_copy: bool, has_kernel: bool, is_updated: bool) -> None:
    """What a node of a graph writes to, in memory that was freed and allocated before."""
    for _ in range(2):
        address = int(ok(driver.cuMemAllocAsync(8 * N, 0)))
        home = EXPECTED.copy() if is_copy else None
        graph, seen = graph_of(address, 0, home, has_kernel)
        executable = ok(driver.cuGraphInstantiate(graph, 0))
        ok(driver.cuGraphLaunch(executable, 0))
        ok(driver.cuCtxSynchronize())
        if is_updated:
            again, seen = graph_of(address, 0, home, has_kernel)
            ok(driver.cuGraphExecUpdate(executable, again))
            ok(driver.cuGraphLaunch(executable, 0))
            ok(driver.cuCtxSynchronize())
        expected = EXPECTED if is_copy else np.zeros(N)
        if has_kernel:
            assert seen.get().tolist() == expected.tolist()
        check(address, expected)
        ok(driver.cuMemFreeAsync(address, 0))


CASES = {
    "managed": managed,
    "pinned": pinned,
    "rows": lambda: copy_blocks(1, False),
    "rows, peer": lambda: copy_blocks(1, True),
    "slices": lambda: copy_blocks(4, False),
    "slices, peer": lambda: copy_blocks(4, True),
    "nodes that fill": lambda: nodes(False, False, False),
    "nodes that copy": lambda: nodes(True, False, False),
    "nodes that fill, kernel": lambda: nodes(False, True, False),
    "nodes that copy, kernel": lambda: nodes(True, True, False),
    "nodes that fill, kernel, updated": lambda: nodes(False, True, True),
    "nodes that copy, kernel, updated": lambda: nodes(True, True, True),
}

if __name__ == "__main__":
    cupy.zeros(1)  # CUDA begins, with what is reported of that
    for name, case in CASES.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            print(f"-- {name}", flush=True)
            case()
    print("-- the values are right")
