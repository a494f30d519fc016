"""Bodies of JAX on a device: between graphs where they are recorded, and behind bodies on the host, never captured."""

# ruff: noqa: F821
from __future__ import annotations

import pytest

PRELUDE = """
import threading
import fakejax
fakejax.install()
from graph_tools import *
from stf._recording.segments import reasons

N = 8

@stf.task(arrays="jax")
def step(x: stf.Read, y: stf.ReadWrite):
    return y + x * 2.0

@stf.task(arrays="cupy")
def add(x: stf.ReadWrite, n=1.0):
    x += n

def is_captured(graph):
    return graph._recording.graph.graph is not None
"""


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_results_are_stored_in_every_way(run, seed):
    def body():
        for use_graph in (False, True):
            with stf.context(devices="cuda:0", use_graph=use_graph) as ctx:
                x, y = ctx.logical_data(np.arange(float(N))), ctx.logical_data(np.ones(N))
                for count in range(1, 4):
                    step(x, y)
                    add(y)
                    assert y.numpy().tolist() == [1 + count * (2 * k + 1) for k in range(N)], (use_graph, count)
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.arange(float(N))), ctx.logical_data(np.ones(N))
            with ctx.task_graph() as graph:
                add(x, 0.0)
                step(x, y)
                add(y)
            for count in range(1, 4):
                graph.launch()
                assert y.numpy().tolist() == [1 + count * (2 * k + 1) for k in range(N)], count
            assert not is_captured(graph)
            assert "JAX computes on streams of its own" in str(reasons(graph._recording))
        assert fakecuda.calls("cuStreamBeginCapture")

    run(body, FAKECUDA_SEED=seed)


def test_a_launch_with_other_data(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            pairs = [(ctx.logical_data(np.full(N, 1.0 + k)), ctx.logical_data(np.full(N, 10.0 * k))) for k in range(4)]
            x, y = pairs[0]
            with ctx.task_graph() as graph:
                step(x, y)
                add(y)
            for k, (one, other) in enumerate(pairs):
                graph.launch({x: one, y: other})
                assert other.numpy().tolist() == [10.0 * k + 2 * (1 + k) + 1] * N, k
                assert one.numpy().tolist() == [1.0 + k] * N
            assert pairs[0][1].numpy().tolist() == [3.0] * N

    run(body)


def test_arrays_in_containers(run):
    def body():
        @stf.task(arrays="jax")
        def total(parts: stf.Read, y: stf.ReadWrite):
            return y + parts["a"] * 2.0 + parts["b"]

        with stf.context(devices="cuda:0") as ctx:
            a, b, c = (ctx.logical_data(np.full(N, float(k))) for k in (1, 2, 5))
            y = ctx.logical_data(np.zeros(N))
            with ctx.task_graph() as graph:
                total({"a": a, "b": b}, y)
            graph.launch()
            graph.launch({b: c})
            assert y.numpy().tolist() == [4.0 + 7.0] * N

    run(body)


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_behind_a_body_on_the_host(run, seed):
    """It runs in a thread of the device, when its task has ended, and the next task sees its result."""

    def body():
        @stf.task
        def late(x: stf.ReadWrite):
            go.wait(30)
            x += 1

        for threads in (False, True):
            with stf.context(devices="cuda:0", submit_threads=threads) as ctx:
                x, y, z = (ctx.logical_data(np.full(N, float(k))) for k in (1, 2, 0))
                go = threading.Event()
                if not threads:
                    late.on(stf.exec_place.host())(x)
                step(x, y)
                add(y)
                step(y, z)
                step(z, y)
                go.set()
                expected = [(4, 7, 14, 35), (2, 5, 10, 25)][threads]
                assert z.numpy().tolist() == [2.0 * expected[1]] * N
                assert y.numpy().tolist() == [float(expected[3])] * N, (threads, y.numpy())

    run(body, FAKECUDA_SEED=seed)


def test_a_result_of_another_order_of_axes(run):
    def body():
        M = np.asfortranarray(np.arange(12.0).reshape(3, 4))
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones((3, 4))), ctx.logical_data(M)
            step(x, y)
            assert (y.numpy() == np.arange(12.0).reshape(3, 4) + 2).all()

    run(body)


def test_a_block_that_reads_is_refused_in_a_recording(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.ones(N))
            with pytest.raises(stf.CaptureError, match="JAX computes on streams of its own"):
                with ctx.task_graph():
                    with ctx.task(x.read()) as t:
                        t.arrays("jax")
            add(x)
            assert x.numpy().tolist() == [2.0] * N

    run(body)
