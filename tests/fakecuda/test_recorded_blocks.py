"""How often the driver is asked for with-blocks that are recorded, launched once and thrown away."""

# ruff: noqa: F821
from __future__ import annotations

PRELUDE = """
from graph_tools import *

def add_one(ctx, *accesses):
    with ctx.task(*accesses) as t:
        array = t.cupy()[-1]
        array += 1

def calls_of(step):
    fakecuda.reset_calls()
    result = step()
    return fakecuda.counts()["calls"], result

def edges_of(graph):
    count = ctypes.c_size_t()
    assert not driver.cuGraphGetEdges_v2(ctypes.c_void_p(graph.handle), None, None, None, ctypes.byref(count))
    return count.value
"""


def test_what_the_driver_is_asked_for_a_recorded_with_block(run):
    @run
    def body():
        def use(blocks):
            with stf.context(devices="cuda:0", resources=resources) as ctx:
                x = ctx.logical_data(np.zeros(4))

                def record():
                    with ctx.task_graph() as g:
                        for _ in range(blocks):
                            add_one(ctx, x.rw())
                    return g

                recorded, g = calls_of(record)
                launched, _ = calls_of(g.launch)
                assert x.numpy().tolist() == [blocks] * 4
                g.close()
                del g, record
                forgotten, _ = calls_of(gc.collect)
                return recorded, launched, forgotten

        resources = stf.Resources()
        use(200)
        few, many = use(10), use(210)
        recorded, launched, _ = [
            {name: round((after[name] - before.get(name, 0)) / 200) for name in after}
            for before, after in zip(few, many, strict=True)
        ]
        ours = "cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphGetNodes"
        assert [recorded[name] for name in ours] == [1, 1, 1], recorded
        asked = "cuGraphKernelNodeGetParams", "cuGraphNodeGetType"
        put = "cuGraphAddKernelNode", "cuGraphKernelNodeCopyAttributes"
        assert [launched[name] for name in (*asked, *put)] == [1] * 4, launched
        never = "cuGraphGetNodes", "cuStreamGetCaptureInfo", "cuStreamIsCapturing", "cuStreamUpdateCaptureDependencies"
        never += "cuEventRecord", "cuEventCreate", "cuStreamWaitEvent", "cuCtxGetCurrent"
        assert not any(launched.get(name, 0) for name in never), launched


def test_chains_of_blocks_in_turn_need_no_events(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.ones(4))
            with ctx.task_graph() as g:
                for _ in range(100):
                    add_one(ctx, x.rw())
                    add_one(ctx, y.rw())
            launched, _ = calls_of(g.launch)
            assert launched["cuEventRecord"] < 30 > launched["cuEventCreate"], launched
            assert edges_of(g) == 198
            assert int(x.numpy()[0]) == 100 and int(y.numpy()[0]) == 101


def test_chains_of_blocks_and_other_work_stay_in_order(run):
    """What is put on one slot: bodies of several kernels, fills, copies, bodies on the host, nested graphs."""

    @run
    def body():
        with stf.context(devices="cuda:0,1") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            inner = ctx.task_graph()
            with inner:
                add_one(ctx, x.rw())
                add_one(ctx, x.rw())
            seen = []
            with ctx.task_graph() as g:
                ctx.fill(x, 1.0)
                add_one(ctx, x.rw())  # 2
                with ctx.task(x.rw()) as t:  # 5
                    (array,) = t.cupy()
                    array += 1
                    array += 1
                    array += 1
                inner.launch()  # 7
                add_one(ctx, x.rw())  # 8
                ctx.host_launch(x.read())(lambda value: seen.append(float(value[0])))
                with ctx.task(ctx.devices[1], x.rw()) as t:  # 9
                    (array,) = t.cupy()
                    array += 1
                add_one(ctx, x.read(), y.rw())
                add_one(ctx, x.rw())  # 10
            for times in (1, 2, 3):
                g.launch()
                assert x.numpy().tolist() == [10] * 4 and y.numpy().tolist() == [times] * 4
            assert seen == [8.0] * 3


def test_blocks_of_a_graph_come_after_those_that_they_need_alone(run):
    """The event of a node is recorded behind it, and behind nothing else, wherever another lane waits for it."""

    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y, z, w = [ctx.logical_data(np.zeros(4)) for _ in range(4)]
            with ctx.task_graph() as g:
                add_one(ctx, x.rw())  # 0
                add_one(ctx, x.read(), y.rw())  # 1 after 0
                add_one(ctx, x.read(), z.rw())  # 2 after 0
                add_one(ctx, y.rw())  # 3 after 1
                add_one(ctx, y.read(), z.read(), w.rw())  # 4 after 2 and 3
                add_one(ctx, w.rw())  # 5 after 4
                add_one(ctx, x.rw())  # 6 after 1 and 2
            assert edges_of(g) == 8 == len(g._recording.program.edges())
            for times in (1, 2, 3):
                g.launch()
                assert [int(data.numpy()[0]) for data in (x, y, z, w)] == [2 * times, 2 * times, times, 2 * times]


def test_nodes_without_work_are_no_reason_to_come_after_more(run):
    @run
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y, z = [ctx.logical_data(np.zeros(4)) for _ in range(3)]
            with ctx.task_graph() as g:
                add_one(ctx, x.rw())
                with ctx.task(x.rw()):  # a node that only orders: two come after it, and so after the first
                    pass
                add_one(ctx, x.read(), y.rw())
                add_one(ctx, y.rw())
                add_one(ctx, x.read(), z.rw())
            assert edges_of(g) == 3
            g.launch()
            assert [int(data.numpy()[0]) for data in (x, y, z)] == [1, 2, 1]


def test_an_allocator_of_the_users_own_is_back_after_each_block(run):
    @run
    def body():
        def own(size):
            return cupy.get_default_memory_pool().malloc(size)

        memory = cupy.cuda.memory
        memory._set_thread_local_allocator(own)
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(4))
            with ctx.task_graph() as g:
                for _ in range(3):
                    with ctx.task(x.rw()) as t:
                        (array,) = t.cupy()
                        assert memory._get_thread_local_allocator() is not own
                        array += array + 1
                    assert memory._get_thread_local_allocator() is own
            g.launch()
            assert x.numpy().tolist() == [7] * 4
        memory._set_thread_local_allocator(None)
