"""Graphs of ``cuda.core``: filled by a context, captured by its builder, and one of ours among its nodes."""

from __future__ import annotations

import numpy as np
import pytest

import stf

cupy = pytest.importorskip("cupy")
core = pytest.importorskip("cuda.core")
graphs = pytest.importorskip("cuda.core.graph")
pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("cuda_device_count")]


@pytest.fixture
def device():
    found = core.Device(0)
    found.set_current()
    return found


@stf.task
def double_and_add(x: stf.ReadWrite, y: stf.Read):
    x *= 2
    x += y


def steps(ctx, x, y):
    lx, ly = ctx.logical_data(x), ctx.logical_data(y)
    double_and_add(lx, ly)
    with ctx.repeat(2):
        double_and_add(lx, ly)


def test_a_definition_is_filled(device):
    x, y = cupy.ones(8), cupy.full(8, 3.0)
    definition = graphs.GraphDefinition()
    with stf.context(graph=definition) as ctx:
        steps(ctx, x, y)
    assert float(x[0]) == 1  # nothing has run
    executable = definition.instantiate()
    stream = device.create_stream()
    for _ in range(2):
        executable.launch(stream)
    stream.sync()
    expected = 1.0
    for _ in range(6):
        expected = expected * 2 + 3
    assert cupy.asnumpy(x).tolist() == [expected] * 8


def test_a_builder_captures(device):
    x, y = cupy.ones(8), cupy.full(8, 3.0)
    builder = device.create_graph_builder().begin_building()
    with stf.context(stream=builder.stream) as ctx:
        steps(ctx, x, y)
    executable = builder.end_building().complete()
    stream = device.create_stream()
    executable.launch(stream)
    stream.sync()
    assert cupy.asnumpy(x).tolist() == [((1 * 2 + 3) * 2 + 3) * 2 + 3.0] * 8


def test_an_executable_is_no_graph_to_fill(device):
    executable = graphs.GraphDefinition().instantiate()
    with pytest.raises(TypeError, match="an executable graph cannot be filled; give the graph that it is made from"):
        stf.context(graph=executable)


def test_a_graph_of_ours_in_one_of_the_drivers(device):
    from cuda.bindings import driver

    with stf.context(devices="cuda:0") as ctx:
        lx = ctx.logical_data(np.ones(8), name="X")
        ctx.prefetch(lx, stf.data_place.device(0))
        g = ctx.task_graph()
        with g:
            double_and_add(lx, ctx.logical_data_full(8, 3.0))
        definition = graphs.GraphDefinition()
        code, _ = driver.cuGraphAddChildGraphNode(definition.handle, None, 0, driver.CUgraph(g.handle))
        assert int(code) == 0
        ctx.synchronize()
        executable, stream = definition.instantiate(), device.create_stream()
        for _ in range(2):
            executable.launch(stream)
        stream.sync()
        g.launch()
        assert lx.numpy().tolist() == [((1 * 2 + 3) * 2 + 3) * 2 + 3.0] * 8


def test_a_task_adds_nodes_to_a_graph_of_its_own(device):
    """By cuda.bindings; they come after what the task has put on its stream, and before what follows."""
    driver = pytest.importorskip("cuda.bindings.driver")
    X = np.full(8, 7, np.uint32)
    with stf.context(devices="cuda:0", use_graph=True) as ctx:
        x = ctx.logical_data(X)
        with ctx.task(x.rw()) as t:
            (a,) = t.cupy()
            a += 1
            what = driver.CUDA_MEMSET_NODE_PARAMS()
            what.dst, what.elementSize, what.value, what.width, what.height = t.get_arg(0), 4, 5, 4, 1
            code, context = driver.cuCtxGetCurrent()
            code, _ = driver.cuGraphAddMemsetNode(driver.CUgraph(int(t.graph)), None, 0, what, context)
            assert int(code) == 0
            a *= 10
    assert X.tolist() == [50] * 4 + [80] * 4
