"""The edges of CUDA's own graphs: every two nodes that touch the same memory, one of them writing, are ordered."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pytest

import stf

cupy = pytest.importorskip("cupy")
pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("cuda_device_count")]

driver = pytest.importorskip("cuda.bindings.driver")

ADD = 'extern "C" __global__ void add(double *x, const double *y, double a) { x[threadIdx.x] += a * y[threadIdx.x]; }'
SIZE = 16


def asked(result):
    """What a call of the driver's gives."""
    code, *found = result
    assert int(code) == 0, code
    return found[0] if len(found) == 1 else found


def nodes_of(graph):
    return asked(driver.cuGraphGetNodes(graph, asked(driver.cuGraphGetNodes(graph))[1]))[0]


def edges_of(graph):
    """(before, after) by the nodes' addresses."""
    count = asked(driver.cuGraphGetEdges(graph))[-1]
    before, after, *_ = asked(driver.cuGraphGetEdges(graph, count))
    return [(int(a), int(b)) for a, b in zip(before[:count], after[:count], strict=True)]


def touched(node):
    """(address, whether it is written) of the memory that a node of CUDA's touches."""
    kind = asked(driver.cuGraphNodeGetType(node))
    types = driver.CUgraphNodeType
    if kind == types.CU_GRAPH_NODE_TYPE_MEMSET:
        return [(int(asked(driver.cuGraphMemsetNodeGetParams(node)).dst), True)]
    if kind == types.CU_GRAPH_NODE_TYPE_MEMCPY:
        copy = asked(driver.cuGraphMemcpyNodeGetParams(node))
        return [(int(copy.dstDevice) or int(copy.dstHost), True), (int(copy.srcDevice) or int(copy.srcHost), False)]
    if kind == types.CU_GRAPH_NODE_TYPE_KERNEL:
        x, y = pointers_of(asked(driver.cuGraphKernelNodeGetParams(node)))
        return [(x, True), (y, False)]
    assert kind == types.CU_GRAPH_NODE_TYPE_EMPTY, kind
    return []


def pointers_of(launch):
    """The first two arguments of a kernel node: one by one, or in a block of all."""
    if int(launch.kernelParams):
        given = ctypes.cast(int(launch.kernelParams), ctypes.POINTER(ctypes.c_void_p))
        return [ctypes.c_uint64.from_address(given[i]).value for i in range(2)]
    extra = ctypes.cast(int(launch.extra), ctypes.POINTER(ctypes.c_uint64))
    place = next(i for i in range(0, 8, 2) if extra[i] == 1)  # CU_LAUNCH_PARAM_BUFFER_POINTER
    return list((ctypes.c_uint64 * 2).from_address(extra[place + 1]))


def unordered(graph, without=None):
    """How many pairs of nodes touch the same memory, and how many of these no path orders; an edge may be left out."""
    edges = edges_of(graph)
    if without is not None:
        edges.remove(edges[without % len(edges)])
    after = {int(node): [] for node in nodes_of(graph)}
    needed = dict.fromkeys(after, 0)
    for first, then in edges:
        after[first].append(then)
        needed[then] += 1
    order = [node for node, count in needed.items() if count == 0]
    for node in order:
        for then in after[node]:
            needed[then] -= 1
            if needed[then] == 0:
                order.append(then)
    assert len(order) == len(after)
    number = {node: i for i, node in enumerate(order)}
    before = [0] * len(order)  # bits
    for node in order:
        for then in after[node]:
            before[number[then]] |= before[number[node]] | 1 << number[node]
    pairs, lacking, seen = 0, 0, []
    by_address = {int(node): touched(node) for node in nodes_of(graph)}
    for node in order:
        for address, writes in by_address[node]:
            for other, its_address, its_writes in seen:
                if other != node and address == its_address and (writes or its_writes):
                    pairs += 1
                    lacking += not before[number[node]] >> number[other] & 1
        seen += [(node, address, writes) for address, writes in by_address[node]]
    return pairs, lacking


def record(ctx, rng, data, kernel, places):
    """A random program of fills, copies and kernels, recorded."""
    g = ctx.task_graph()
    with g:
        for _ in range(rng.randrange(5, 40)):
            x, y = rng.sample(data, 2)
            with rng.choice(places):
                kind = rng.randrange(3)
                if kind == 0:
                    ctx.fill(x, float(rng.randrange(5)))
                elif kind == 1:
                    ctx.copy(x, y)
                else:
                    ctx.launch_kernel(kernel, (1, SIZE), x.rw(), y.read(), 0.5)
    return g


@pytest.mark.parametrize("devices", [1, 2])
def test_all_conflicts_are_ordered_by_cudas_edges(cuda_device_count, devices):
    if cuda_device_count < devices:
        pytest.skip(f"needs {devices} GPUs")
    conflicts = found = tried = 0
    with stf.context(devices=f"cuda:{','.join(map(str, range(devices)))}") as ctx:
        kernel = cupy.RawKernel(ADD, "add")
        data = [ctx.logical_data(np.arange(SIZE) * (n + 1.0), name=f"D{n}") for n in range(4)]
        for seed in range(150):
            rng = random.Random(seed)
            g = record(ctx, rng, data, kernel, list(ctx.devices))
            graph = driver.CUgraph(g.handle)
            pairs, lacking = unordered(graph)
            assert lacking == 0, seed
            conflicts += pairs
            if edges_of(graph):
                tried += 1
                found += unordered(graph, rng.randrange(1000))[1] > 0
            g.close()
    assert conflicts > 5000
    assert 2 * found > tried  # an edge less is seen, unless it only orders what has nothing in common
