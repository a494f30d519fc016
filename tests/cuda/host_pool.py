"""compute-sanitizer's initcheck (2025.3.1) and pinned memory of a pool, in plain CUDA: it does not see the host write.

    compute-sanitizer --tool initcheck python tests/cuda/host_pool.py

reports each of the 64 elements that the kernel reads as uninitialized; stf has its host memory from such a pool. With
``managed`` as argument, memory that the host writes all the same, it reports none.
"""

from __future__ import annotations

import ctypes
import sys

import cupy
import numpy as np
from cuda.bindings import driver

N = 64


def ok(result):
    """What a call of the driver returns, if it succeeded."""
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else None


def pinned() -> int:
    """The address of memory from a pool of the host's that device 0 reaches."""
    properties, access = driver.CUmemPoolProps(), driver.CUmemAccessDesc()
    properties.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    pool = ok(driver.cuMemPoolCreate(properties))
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(driver.cuMemPoolSetAccess(pool, [access], 1))
    stream = ok(driver.cuStreamCreate(1))
    address = int(ok(driver.cuMemAllocFromPoolAsync(8 * N, pool, stream)))
    ok(driver.cuStreamSynchronize(stream))
    return address


def main() -> None:
    target = cupy.zeros(N)
    address = int(ok(driver.cuMemAllocManaged(8 * N, 1))) if sys.argv[1:] == ["managed"] else pinned()
    ctypes.memmove(address, np.arange(float(N)).ctypes.data, 8 * N)
    memory = cupy.cuda.UnownedMemory(address, 8 * N, None, 0)
    cupy.add(cupy.ndarray(N, float, cupy.cuda.MemoryPointer(memory, 0)), 0.0, out=target)  # a kernel reads it
    assert target.get().tolist() == list(range(N))
    print("the values are right")


if __name__ == "__main__":
    main()
