"""Launches of cuda.core with attributes, in every way that a context has, and memory that two processes share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stf

core = pytest.importorskip("cuda.core")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
CODE = r"""
__device__ unsigned rank_in_cluster() { unsigned r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ unsigned size_of_cluster() { unsigned n; asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n)); return n; }
__device__ void cluster_waits() {
    asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
}
extern "C" __global__ void add_size(int* x) {  // 1000 for each block of its cluster, and its rank in that
    if (threadIdx.x == 0) x[blockIdx.x] += 1000 * size_of_cluster() + rank_in_cluster();
}
extern "C" __global__ void from_neighbour(int* x) {  // by the shared memory of the other block of the cluster
    __shared__ int mine;
    if (threadIdx.x == 0) mine = x[blockIdx.x];
    __syncthreads();
    cluster_waits();
    unsigned here = (unsigned)__cvta_generic_to_shared(&mine), there;
    int other;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank_in_cluster() ^ 1));
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(other) : "r"(there) : "memory");
    cluster_waits();
    if (threadIdx.x == 0) x[blockIdx.x] = other;
}
extern "C" __global__ void turn(int* x, unsigned* count, int n) {  // all blocks wait for each other
    int i = blockIdx.x * blockDim.x + threadIdx.x, value = x[n - 1 - i];
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        unsigned before = atomicAdd(count, 1), all = (before / gridDim.x + 1) * gridDim.x;
        while (atomicAdd(count, 0) < all) {}
    }
    __syncthreads();
    x[i] = value;
}
extern "C" __global__ void first(int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2 * x[i] + 1;
}
extern "C" __global__ void second(int* x, int n) {  // may begin while `first` runs, and waits for it here
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 10;
}
"""


@pytest.fixture(scope="module")
def kernels():
    device = core.Device(0)
    device.set_current()
    if device.compute_capability < (9, 0):
        pytest.skip("needs clusters")
    options = core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    module = core.Program(CODE, code_type="c++", options=options).compile("cubin")
    return {name: module.get_kernel(name) for name in ("add_size", "from_neighbour", "turn", "first", "second")}


def test_clusters(run, kernels):
    def prepare(ctx):
        lX = ctx.logical_data(np.zeros(8, np.int32))
        config = core.LaunchConfig(grid=4, cluster=2, block=32)  # 4 clusters of 2 blocks
        return (
            lambda: stf.kernel(kernels["add_size"])[config](lX.rw()),
            lambda count: np.testing.assert_array_equal(lX.numpy(), count * np.tile([2000, 2001], 4)),
        )

    run(prepare)


def test_shared_memory_of_a_cluster(run, kernels):
    X = np.arange(8, dtype=np.int32)

    def prepare(ctx):
        lX = ctx.logical_data(X.copy())
        config = core.LaunchConfig(grid=4, cluster=2, block=32)
        return (
            lambda: ctx.launch_kernel(kernels["from_neighbour"], config, lX.rw()),
            lambda count: np.testing.assert_array_equal(lX.numpy(), X ^ (count % 2)),
        )

    run(prepare)


def test_a_cooperative_launch(run, kernels):
    X = np.arange(1024, dtype=np.int32)

    def prepare(ctx):
        lX, lC = ctx.logical_data(X.copy()), ctx.logical_data(np.zeros(1, np.uint32))
        config = core.LaunchConfig(grid=8, block=128, is_cooperative=True)
        return (
            lambda: ctx.launch_kernel(kernels["turn"], config, lX.rw(), lC.rw(), 1024),
            lambda count: np.testing.assert_array_equal(lX.numpy(), X[::-1] if count % 2 else X),
        )

    run(prepare)


def test_a_launch_that_may_begin_before_the_last_has_ended(run, kernels):
    """Programmatic dependent launch: the second kernel waits for the first where it says so."""
    n = 1 << 16

    def prepare(ctx):
        lX = ctx.logical_data(np.zeros(n, np.int32))
        early = core.LaunchConfig(grid=n // 256, block=256, programmatic_stream_serialization=True)

        def step():
            ctx.launch_kernel(kernels["first"], (n // 256, 256), lX.rw(), n)
            ctx.launch_kernel(kernels["second"], early, lX.rw(), n)

        def check(count):
            expected = 0
            for _ in range(count):
                expected = 2 * expected + 11
            np.testing.assert_array_equal(lX.numpy(), expected)

        return step, check

    run(prepare)


# -- graphs ----------------------------------------------------------------------------------------------------------


def test_a_graph_of_the_builder_is_launched_in_a_body(kernels):
    """It is built outside, on memory that stays; the task's data are that memory."""
    cupy = pytest.importorskip("cupy")
    device = core.Device(0)
    device.set_current()
    n = 1 << 10
    x = cupy.zeros(n, cupy.int32)
    cupy.cuda.Device().synchronize()
    builder = device.create_graph_builder().begin_building()
    config = core.LaunchConfig(grid=n // 256, block=256)
    core.launch(builder, config, kernels["first"], x.data.ptr, np.int32(n))
    core.launch(builder, config, kernels["first"], x.data.ptr, np.int32(n))
    graph = builder.end_building().complete()

    @stf.task(arrays="cupy")
    def launch(x: stf.ReadWrite, address, stream: stf.Stream):
        assert x.data.ptr == address
        graph.launch(device.create_stream(stream))

    with stf.context(devices="cuda:0") as ctx:
        lX = ctx.logical_data(x)
        for _ in range(3):
            launch(lX, x.data.ptr)
        assert (lX.numpy() == 2**6 - 1).all()
    assert (x.get() == 2**6 - 1).all()


# -- memory of another process ---------------------------------------------------------------------------------------

PROGRAM = '''
import multiprocessing
import sys

import numpy as np

import stf

N = 1000


def change(resource, descriptor, done):
    """In the other process: a context works on the same memory."""
    from cuda import core
    device = core.Device(0)
    device.set_current()
    buffer = core.Buffer.from_ipc_descriptor(resource, descriptor, stream=device.create_stream())
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data(buffer)
        with ctx.task(x.rw()) as t:
            a, = t.cupy()
            a += 5
        ctx.synchronize()
    device.sync()
    done.put("done")
    buffer.close()


def main():
    from cuda import core
    device = core.Device(0)
    device.set_current()
    if not device.properties.handle_type_posix_file_descriptor_supported:
        print("no handles of memory pools")
        return
    options = core.DeviceMemoryResourceOptions(ipc_enabled=True)
    resource = core.DeviceMemoryResource(device, options=options)
    stream = device.create_stream()
    buffer = resource.allocate(N, stream=stream)
    stream.sync()
    processes = multiprocessing.get_context("spawn")
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data(buffer)
        ctx.fill(x, 3)
        with ctx.task(x.rw()) as t:
            a, = t.cupy()
            a *= 2
        ctx.synchronize()
    done = processes.Queue()
    other = processes.Process(target=change, args=(resource, buffer.ipc_descriptor, done))
    other.start()
    assert done.get(timeout=80) == "done"
    other.join(20)
    with stf.context(devices="cuda:0") as ctx:
        assert (ctx.logical_data(buffer).numpy() == 11).all()
    buffer.close()
    print("right")


if __name__ == "__main__":
    main()
'''


def test_memory_of_another_process(tmp_path):
    """A buffer of a memory pool that two processes share: each registers it in a context of its own."""
    pytest.importorskip("cupy")
    script = tmp_path / "shared.py"
    script.write_text(PROGRAM)
    source = str(Path(__file__).parents[2] / "src")
    where = os.environ.get("PYTHONPATH")
    env = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{where}" if where else source}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=110, env=env)
    if "no handles of memory pools" in done.stdout:
        pytest.skip("the device hands out no handles of memory pools")
    assert done.returncode == 0 and done.stdout.endswith("right\n"), f"{done.stdout}\n{done.stderr}"
