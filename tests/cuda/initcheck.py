"""What compute-sanitizer's initcheck (2025.3.1) takes for unwritten, in plain CUDA; every value is right.

    compute-sanitizer --tool initcheck --show-backtrace device python tests/cuda/initcheck.py [case ...]

After each case's name come the reports about it, if any. ``pinned`` has 64, for what the host writes to memory of a pool;
``managed``, memory that the host writes all the same, has none. ``slices`` are copies in three dimensions, ``nodes`` are
those of graphs: whose executable may have been updated, whose memory may be of a pool, which may be captured into a graph
that is there, or be a child of another. ``threads`` (half a minute) has some, now and then, beside a dozen of other
processes on the GPU: what a kernel wrote is unwritten for the next on its stream, while another thread allocates.
"""

from __future__ import annotations

import ctypes
import sys
import threading

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


def copy_blocks(height: int, is_peer: bool) -> None:
    """Copy 64 numbers by two calls, each of four slices of two rows of 32 bytes, slices being `height` rows apart.

    With 4, one call's slices stand between those of the other; with 2, the second copies behind the first.
    """
    source, address = np.zeros((N // 4, 8)), int(ok(driver.cuMemAlloc(8 * N)))
    source[:, :4] = EXPECTED.reshape(-1, 4)
    block = driver.CUDA_MEMCPY3D_PEER() if is_peer else driver.CUDA_MEMCPY3D()
    block.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
    block.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    block.WidthInBytes, block.Height, block.Depth = 32, 2, 4
    block.srcPitch, block.dstPitch = 64, 32
    block.srcHeight = block.dstHeight = height
    if is_peer:
        block.dstContext = ok(driver.cuCtxGetCurrent())
    for row in (0, 2 if height == 4 else 8):
        block.srcHost, block.dstDevice = source.ctypes.data + 64 * row, address + 32 * row
        ok(driver.cuMemcpy3DPeerAsync(block, 0) if is_peer else driver.cuMemcpy3DAsync(block, 0))
    check(address)


def graph_of(address: int, value: int, home: np.ndarray | None, way: str):
    """A graph that fills memory, or copies there, and has a kernel that reads it; and what that writes to."""
    stream = cupy.cuda.Stream(non_blocking=True)
    seen = cupy.zeros(N)
    cupy.cuda.Device().synchronize()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    if way == "into a graph":
        ok(driver.cuStreamBeginCaptureToGraph(stream.ptr, ok(driver.cuGraphCreate(0)), None, None, 0, relaxed))
    else:
        ok(driver.cuStreamBeginCapture(stream.ptr, relaxed))
    if home is None:
        ok(driver.cuMemsetD8Async(address, value, 8 * N, stream.ptr))
    else:
        ok(driver.cuMemcpyAsync(address, home.ctypes.data, 8 * N, stream.ptr))
    with stream:
        cupy.add(view(address), 0.0, out=seen)
    graph = ok(driver.cuStreamEndCapture(stream.ptr))
    if way == "as a child":
        child, graph = graph, ok(driver.cuGraphCreate(0))
        ok(driver.cuGraphAddChildGraphNode(graph, None, 0, child))
    return graph, seen


def device_pool():
    """A pool of a device, which keeps what it has."""
    properties = driver.CUmemPoolProps()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    pool = ok(driver.cuMemPoolCreate(properties))
    kept = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    ok(driver.cuMemPoolSetAttribute(pool, kept, driver.cuuint64_t(1 << 40)))
    return pool


def memory_of_a_pool() -> int:
    """Memory as stf has it: of a device's pool, in the order of a stream."""
    stream = cupy.cuda.Stream(non_blocking=True)
    address = int(ok(driver.cuMemAllocFromPoolAsync(8 * N, device_pool(), stream.ptr)))
    stream.synchronize()
    return address


def nodes(is_copy: bool, is_updated: bool, of_a_pool: bool = False, way: str = "") -> None:
    """What a node of a graph writes to fresh memory, before a kernel of the graph reads it.

    If it `is_updated`, the executable graph was made for other memory.
    """
    home = EXPECTED.copy() if is_copy else None
    addresses = [memory_of_a_pool() if of_a_pool else int(ok(driver.cuMemAlloc(8 * N))) for _ in range(2)]
    graph, seen = graph_of(addresses[0], 0, home, way)
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphLaunch(executable, 0))
    ok(driver.cuCtxSynchronize())
    if is_updated:
        graph, seen = graph_of(addresses[1], 0, home, way)
        ok(driver.cuGraphExecUpdate(executable, graph))
        ok(driver.cuGraphLaunch(executable, 0))
        ok(driver.cuCtxSynchronize())
    expected = EXPECTED if is_copy else np.zeros(N)
    assert seen.get().tolist() == expected.tolist()
    check(addresses[is_updated], expected)


def threads(rounds: int = 8000) -> None:
    """Three threads, each on its stream, allocate, copy and free one at a time; their kernels use temporaries of CuPy."""
    pool, gate, wrong = device_pool(), threading.Lock(), []

    def work(number: int) -> None:
        stream = cupy.cuda.Stream(non_blocking=True)
        for n in range(rounds):
            home, back = np.arange(3 + n % 3) + 1.0 * number, np.zeros(3 + n % 3)
            nbytes = home.nbytes
            with gate:
                address = int(ok(driver.cuMemAllocFromPoolAsync(nbytes, pool, stream.ptr)))
                ok(driver.cuMemcpyAsync(address, home.ctypes.data, nbytes, stream.ptr))
            memory = cupy.cuda.UnownedMemory(address, nbytes, None, 0)
            array = cupy.ndarray(home.shape, float, cupy.cuda.MemoryPointer(memory, 0))
            with stream:
                array[...] = (array + 1.0) % 1000.0
            with gate:
                ok(driver.cuMemcpyAsync(back.ctypes.data, address, nbytes, stream.ptr))
                ok(driver.cuMemFreeAsync(address, stream.ptr))
            stream.synchronize()
            if back.tolist() != (home + 1).tolist():
                wrong.append((number, n, back))

    started = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not wrong, wrong[:3]


CASES = {
    "managed": managed,
    "pinned": pinned,
    "slices that are dense": lambda: copy_blocks(2, False),
    "slices that are dense, peer": lambda: copy_blocks(2, True),
    "slices that are apart": lambda: copy_blocks(4, False),
    "slices that are apart, peer": lambda: copy_blocks(4, True),
    "nodes that fill": lambda: nodes(False, False),
    "nodes that copy": lambda: nodes(True, False),
    "nodes that fill, updated": lambda: nodes(False, True),
    "nodes that copy, updated": lambda: nodes(True, True),
    "nodes that fill, a pool's memory": lambda: nodes(False, False, True),
    "nodes that copy, a pool's memory": lambda: nodes(True, False, True),
    "nodes that copy, a pool's memory, updated": lambda: nodes(True, True, True),
    "nodes that fill, captured into a graph": lambda: nodes(False, False, way="into a graph"),
    "nodes that copy, captured into a graph": lambda: nodes(True, False, way="into a graph"),
    "nodes that fill, of a child": lambda: nodes(False, False, way="as a child"),
    "nodes that copy, of a child": lambda: nodes(True, False, way="as a child"),
    "threads": threads,
}

if __name__ == "__main__":
    cupy.zeros(1)  # CUDA begins, with what is reported of that
    for name, case in CASES.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            print(f"-- {name}", flush=True)
            case()
    print("-- the values are right")
