"""On which streams bodies are recorded: libraries keep memory by stream, which bodies that run side by side must not share."""

# ruff: noqa: F821
from __future__ import annotations

PRELUDE = """
from graph_tools import *

@stf.task
def note(x: stf.ReadWrite, stream: stf.Stream):
    seen.append(int(stream))
    x += 1

seen = []
"""


def test_capture_streams_of_bodies_without_an_order_differ(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            data = [ctx.logical_data(np.zeros(4)) for _ in range(6)]
            g = ctx.task_graph()
            with g:
                for x in data[:3]:
                    note(x)
                for x in data[3:]:
                    with ctx.task(x.rw()) as t:
                        seen.append(t.stream_ptr())
                        t.cupy()[0][...] += 1
                assert len(set(seen)) == 6
                for x in data[:3]:  # each after its own
                    note(x)
            assert seen[6:] == seen[:3]
            g.launch()
            assert [x.numpy()[0] for x in data] == [2, 2, 2, 1, 1, 1]


def test_capture_streams_of_many_bodies_are_few_and_one_body_at_a_time(run):
    """As on a device's streams: beyond their number, bodies on one of them come after each other."""

    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            data = [ctx.logical_data(np.zeros(4)) for _ in range(100)]
            g = ctx.task_graph()
            with g:
                for x in data:
                    note(x)
            assert len(set(seen)) == 64
            edges = set(g._recording.program.edges())
            assert all((i, i + 64) in edges for i in range(36)) and len(edges) == 36
            g.launch()
            assert all(x.numpy()[0] == 1 for x in data)


def test_capture_streams_of_living_graphs_differ_and_come_again(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            graphs = [ctx.task_graph() for _ in range(2)]
            for g, data in zip(graphs, (x, y), strict=True):
                with g:
                    note(data)
                g.launch()
            assert len(set(seen)) == 2
            for g in graphs:
                g.close()
            ctx.synchronize()
            del g, graphs
            gc.collect()
            for _ in range(8):
                g = ctx.task_graph()
                with g:
                    note(x)
                g.launch()
                g.close()
                ctx.synchronize()
            assert len(set(seen)) <= 4
        with stf.context(use_graph=True, devices="cuda:0") as ctx:
            seen.clear()
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            note(x)
            ctx.submit()
            note(y)  # in another graph, which may run beside the first
            assert len(set(seen)) == 2


def test_capture_streams_of_bodies_that_are_recorded_anew_stay(run):
    @run
    def body():
        @stf.task
        def scale(a, x: stf.ReadWrite, stream: stf.Stream):
            seen.append(int(stream))
            x *= a

        with stf.context(devices="cuda:0") as ctx:
            data = [ctx.logical_data(np.ones(4)) for _ in range(2)]
            g = ctx.task_graph()
            a = g.param("a", 2.0)
            with g:
                for x in data:
                    scale(a, x)
            for value in (3.0, 5.0):
                g.launch(a=value)
            assert [x.numpy()[0] for x in data] == [15, 15]
            assert seen == seen[:2] * 3 and len(set(seen)) == 2


def test_capture_streams_of_bodies_that_fail_are_made_anew(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(4))
            for _ in range(3):
                g = ctx.task_graph()
                with pytest.raises(stf.CaptureError), g, ctx.task(x.rw()) as t:
                    t.cupy()[0].fill(1)
                    cupy.cuda.get_current_stream().synchronize()
            g = ctx.task_graph()
            with g:
                note(x)
            g.launch()
            assert x.numpy()[0] == 1
