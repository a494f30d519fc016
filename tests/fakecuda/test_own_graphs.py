"""CUDA graphs that tasks fill themselves, on the stand-in: `t.graph`."""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821
from __future__ import annotations

import pytest

PRELUDE = "import os\nfrom graph_tools import *\n"
FILL = """
def fill(graph, array):
    "Put ``array += 1`` into a graph, as a library would that takes one."
    stream, out = cupy.cuda.Stream(non_blocking=True), ctypes.c_void_p()
    pointer, target = ctypes.c_void_p(stream.ptr), ctypes.c_void_p(int(graph))
    assert not driver.cuStreamBeginCaptureToGraph(pointer, target, None, None, ctypes.c_size_t(0), 2)
    with stream:
        array[:] += 1
    assert not driver.cuStreamEndCapture(pointer, ctypes.byref(out))
"""


@pytest.mark.parametrize("way", ["context", "scope", "recorded", "function", "callers"])
def test_a_task_fills_a_graph_of_its_own(run, way):
    """It comes between what the task puts on its stream before and after."""

    def body():
        way, X = os.environ["WAY"], np.zeros(4)

        @stf.task
        def step(x: stf.ReadWrite, t: stf.Task):
            work(x, t)

        def work(x, t):
            x *= 2
            fill(t.graph, x)
            assert t.graph is t.get_graph()
            first = t.graph
            x *= 10
            fill(t.get_graph().handle, x)
            assert t.graph is not first and t.graph is t.graph

        theirs = Graph() if way == "callers" else None
        with stf.context(devices="cuda:0", use_graph=way == "context", graph=theirs) as ctx:
            x = ctx.logical_data(X, name="X")

            def submit():
                if way == "function":
                    return step(x)
                with ctx.task(x.rw()) as t:
                    work(t.cupy()[0], t)

            launches = 1
            if way in ("context", "callers"):
                submit()
            elif way == "scope":
                with ctx.graph_scope():
                    submit()
            else:
                launches, g = 3, ctx.task_graph()
                with g:
                    submit()
                for _ in range(launches):
                    g.launch()
        if theirs is not None:
            theirs.launch()
            theirs.destroy()
        expected = 0.0
        for _ in range(launches):
            expected = (expected * 2 + 1) * 10 + 1
        assert X.tolist() == [expected] * 4
        cupy.get_default_memory_pool().free_all_blocks()
        assert not any(counts().values()), counts()

    run(body, before=FILL, WAY=way)


def test_where_tasks_have_no_graph(run):
    def body():
        for options in ({"devices": "cpu:1"}, {"devices": "cuda:0"}):
            with stf.context(**options) as ctx:
                x = ctx.logical_data(np.zeros(4))
                with ctx.task(x.rw(), name="plain") as t:
                    error, text = (
                        (stf.PlaceError, "has no CUDA graphs")
                        if "cpu" in options["devices"]
                        else (stf.TaskStateError, "'plain' is no part of a graph: use t.stream")
                    )
                    with pytest.raises(error, match=text):
                        t.graph
                with pytest.raises(stf.TaskStateError, match="graph on task 'plain', which has ended"):
                    t.get_graph()

    run(body)
