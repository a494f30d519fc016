"""Streams of places that the process keeps, and the handles of a recorded graph, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import stf

pytest.importorskip("cuda.core")
cupy = pytest.importorskip("cupy")
driver = pytest.importorskip("cuda.bindings.driver")


@stf.task
def add(x: stf.ReadWrite):
    x += 1


def test_streams_outlive_contexts():
    place = stf.exec_place.device(0)
    pool = place.stream_pool(3)
    assert len({int(stream.handle) for stream in pool}) == 3 and place.stream_pool(3) == pool
    for _ in range(2):
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(1000))
            for _ in range(5):
                add.on(stf.exec_place.cuda_stream(pool[1]))(x)
                add.on(0)(x)
            assert (x.numpy() == 10).all()
    pool[1].sync()
    assert place.pick_stream() in place.stream_pool(4)


def test_streams_of_a_green_context():
    (green,) = stf.green_places(8, 1)
    stream = green.pick_stream()
    _, context = driver.cuStreamGetCtx(driver.CUstream(int(stream.handle)))
    assert int(context) == green.handle
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data(np.zeros(1000))
        add.on(stf.exec_place.cuda_stream(stream))(x)
        assert (x.numpy() == 1).all()


def test_a_graph_is_launched_by_its_handles():
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data(np.zeros(1000))
        g = ctx.task_graph("steps")
        with g:
            add.on(0)(x)
        g.launch()
        for _ in range(3):
            (code,) = driver.cuGraphLaunch(driver.CUgraphExec(g.exec_handle), driver.CUstream(int(g.stream)))
            assert int(code) == 0
        g.launch()
        assert (x.numpy() == 5).all()


def test_the_host_has_a_stream_for_callbacks():
    assert stf.exec_place.host().pick_stream() in stf.exec_place.current_device().stream_pool(4)
    seen = []
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data(np.zeros(1000))
        for i in range(3):
            add.on(0)(x)
            with ctx.task("host", x.read()) as t:
                stream = cupy.cuda.Stream.from_external(t.stream)
                stream.launch_host_func(lambda x: seen.append(float(x[-1])), t.numpy()[0])
            assert seen == [float(j + 1) for j in range(i + 1)]
