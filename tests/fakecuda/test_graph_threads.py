"""Graphs in several threads on the stand-in: recorded, made ready, launched and closed at the same time."""

# ruff: noqa: F821
from __future__ import annotations

PRELUDE = "from graph_tools import *\n"


def test_threads_launch_one_graph_with_values_of_their_own(run):
    @run
    def body():
        import threading

        begun, go = threading.Event(), threading.Event()

        @stf.task
        def look(x: stf.Read, b):
            if b == 2.0 and not begun.is_set():
                begun.set()
                assert go.wait(60)
            x * b

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(1)), ctx.logical_data(np.zeros(4))
            with ctx.task(y.rw()) as t:
                address = t.get_arg(0)
            ctx.synchronize()  # what works on it below does not say so
            g = ctx.task_graph()  # it only reads: its launches do not wait for each other
            a, b, where = g.param("a", 0.0), g.param("b", 1.0), g.param("where", address)
            with g:
                ctx.launch_kernel(axpy, (1, 1), a, x.read(), where, 1)
                look(x, b)
            for i in range(2):
                g.launch(a=10.0, where=address + 8 * i)
            other = threading.Thread(target=lambda: g.launch(a=10.0, b=2.0, where=address + 8))
            other.start()
            assert begun.wait(60)  # it found the kernel as it wants it
            g.launch(a=5.0, where=address + 16)
            go.set()
            other.join()
            ctx.synchronize()
            assert y.numpy().tolist() == [10.0, 20.0, 5.0, 0.0]


def test_graphs_of_other_data_keep_their_memory_until_they_are_done(run):
    def body():
        @stf.task
        def add(x: stf.Read, y: stf.ReadWrite, a):
            y += a * x  # which is allocated

        n = 1 << 11
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(n)), ctx.logical_data(np.zeros(n))
            others = [ctx.logical_data(np.zeros(n)) for _ in range(8)]  # more than are kept
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                for _ in range(6):
                    add(x, y, a)
            totals = np.zeros(8)
            for k in range(40):
                for i, other in enumerate(others):
                    value = float((k * 7 + i * 3) % 5 + 2)
                    g.launch({y: other}, a=value)
                    totals[i] += 6 * value
            assert [np.unique(other.numpy()).tolist() for other in others] == [[total] for total in totals]

    run(body, FAKECUDA_SEED="2")  # orders that CUDA allows


def test_threads_launch_one_graph_with_data_of_their_own(run):
    """Partial results are memory of the program's, which all launches use."""

    def body():
        import threading

        @stf.task
        def count(x: stf.Accumulate[stf.reducer.sum], y: stf.Read):
            x += y

        with stf.context(devices="cuda:0") as ctx:
            one = ctx.logical_data(np.ones(4, int))
            counts = [ctx.logical_data(np.zeros(4, int)) for _ in range(4)]
            g = ctx.task_graph()
            with g:
                for _ in range(4):
                    count(counts[0], one)
                    count(counts[0], one)

            def work(mine):
                for _ in range(60):
                    g.launch({counts[0]: mine} if mine is not counts[0] else {})

            threads = [threading.Thread(target=work, args=(mine,)) for mine in counts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [mine.numpy().tolist() for mine in counts] == [[480] * 4] * 4

    for seed in "345":
        run(body, FAKECUDA_SEED=seed)


def test_launches_ahead_wait_where_memory_runs_out(run):
    """Each keeps what its bodies allocated until it is done; the next ones wait for that rather than fail."""

    def body():
        import threading

        @stf.task
        def add(x: stf.Read, y: stf.ReadWrite, a):
            y += a * x  # 256 KiB are allocated

        n = 1 << 15
        gate = threading.Event()
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(n)), ctx.logical_data(np.zeros(n))
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                add(x, y, a)
            for value in (1.0, 2.0):
                g.launch(a=value)
            ctx.synchronize()
            ctx.host_launch(y.rw())(lambda _: gate.wait(30) and None)
            threading.Timer(1, gate.set).start()
            values = [float(value) for value in range(1, 41)]
            for value in values:
                g.launch(a=value)
            assert np.unique(y.numpy()).tolist() == [3.0 + sum(values)]

    run(body, FAKECUDA_MEMORY=str(4 << 20))


def test_threads_make_one_graph_ready(run):
    @run
    def body():
        import threading

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.ones(1)), ctx.logical_data(np.zeros(2))
            with ctx.task(y.rw()) as t:
                address = t.get_arg(0)
            ctx.synchronize()  # what works on it below does not say so
            for _ in range(100):
                g = ctx.task_graph()
                a, where = g.param("a", 5.0), g.param("where", address)
                with g:
                    ctx.launch_kernel(axpy, (1, 1), a, x.read(), where, 1)
                g.launch(a=1.0, where=address + 8)
                gate = threading.Barrier(2)

                def launch():
                    gate.wait()
                    g.launch(a=1.0, where=address + 8)

                threads = [threading.Thread(target=launch) for _ in range(2)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                ctx.synchronize()
                assert y.numpy()[0] == 0.0  # nobody asked for the defaults
                with ctx.task(y.rw()):
                    pass
                g.close()


def test_a_graph_that_is_closed_during_a_launch_goes_after_it(run):
    @run
    def body():
        import threading
        import time

        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.full(4, 4.0))
            g = ctx.task_graph()
            a = g.param("a", 1.0)
            with g:
                scale(x, a)
                temporary = ctx.logical_data_empty((4,), np.float64)
                ctx.fill(temporary, 2.0)
                ctx.launch_kernel(axpy, (1, 1), 1.0, temporary.read(), x.rw(), 4)
            for _ in range(2):
                g.launch()
            with ctx.task(x.rw()):
                other = threading.Thread(target=lambda: g.launch(a=2.0))
                other.start()
                while not ctx.engine.claim_queue:
                    time.sleep(1e-3)
                g.close()
            other.join()
            assert x.numpy().tolist() == [18.0] * 4

            class Value:  # stands for a thread that closes it just then
                def __float__(self):
                    g.close()
                    return 2.0

                def __eq__(self, other):
                    return True

            g = ctx.task_graph("gone")
            a = g.param("a", 1.0)
            with g:
                ctx.launch_kernel(axpy, (1, 1), a, x.read(), x.rw(), 4)
            with pytest.raises(stf.TaskStateError, match="graph 'gone' was closed before it could be launched"):
                g.launch(a=Value())


def test_bodies_of_two_threads_allocate_apart(run):
    """The one that is opened first ends first, while the other allocates."""

    @run
    def body():
        import threading

        second_open, first_done, allocators = threading.Event(), threading.Event(), []

        def first():
            with ctx.task(x.rw()) as t:
                (array,) = t.cupy()
                assert second_open.wait(30)
                array += (array + 1) * 2
            allocators.append(getattr(cupy.cuda._local, "allocator", None))
            first_done.set()

        def second():
            with ctx.task(y.rw()) as t:
                (array,) = t.cupy()
                second_open.set()
                assert first_done.wait(30)
                array += (array + 1) * 3
            allocators.append(getattr(cupy.cuda._local, "allocator", None))

        with stf.context(devices="cuda:0", use_graph=True) as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.arange(4.0))
            threads = [threading.Thread(target=call) for call in (first, second)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert allocators == [None, None]  # as before
            assert x.numpy().tolist() == [2] * 4 and y.numpy().tolist() == [3, 7, 11, 15]


def test_what_recorded_bodies_leave_current(run):
    """A body that allocated, or asked for its stream, in whatever way, in a thread that ends: as it was before."""

    @run
    def body():
        import threading

        import cupy

        allocator = cupy.cuda.memory._get_thread_local_allocator
        taken = []

        @stf.task
        def asks(t: stf.Task, x: stf.ReadWrite):
            t.stream_ptr()
            x += 1
            taken.append(allocator())

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            with ctx.graph_scope():
                asks(x)
                assert taken[0] is not None and allocator() is None
                first, second = ctx.task(x.rw()), ctx.task(y.rw())
                first.start().stream_ptr()
                second.start().stream_ptr()
                first.end()
                assert allocator() is not None
                second.end()
                assert allocator() is None
                with ctx.task(x.rw()) as t:
                    t.stream_ptr()
                    x_of_cupy = t.get(0)
                    x_of_cupy += 1
                assert allocator() is None
                first = ctx.task(y.rw())
                first.start().stream_ptr()
                other = threading.Thread(target=first.end)
                other.start()
                other.join()
                cupy.zeros(4)  # what another thread has ended, this one gives back when it allocates
                assert allocator() is None
            assert x.numpy().tolist() == [2.0] * 4
