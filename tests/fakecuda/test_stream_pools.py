"""Streams of places that the process keeps, locality domains, and the handles of a recorded graph, on the stand-in."""

# The bodies below run elsewhere, with the names of the prelude of conftest.py.
# ruff: noqa: F821
from __future__ import annotations


def test_streams_outlive_contexts_and_are_the_same(run):
    def body():
        place = stf.exec_place.device(1)
        pool = place.stream_pool(3)
        before = cupy.cuda.Device().id
        assert len({int(stream.handle) for stream in pool}) == 3 and pool == place.stream_pool(3)
        picked = [place.pick_stream() for _ in range(8)]
        assert picked[:3] == list(pool) and picked[4:] == picked[:4]
        assert stf.exec_place.device(0).pick_stream() not in picked and cupy.cuda.Device().id == before
        for _ in range(2):
            with stf.context() as ctx:
                x = ctx.logical_data(np.zeros(4))
                seen = []

                @ctx.task(stf.exec_place.cuda_stream(pool[0]), x.rw())
                def body(x):
                    seen.append(cupy.cuda.get_current_stream().ptr)
                    x += 1

                add.on(1)(x)
                assert x.numpy().tolist() == [2.0] * 4 and seen == [int(pool[0].handle)]
        pool[0].sync()
        assert len(place.stream_pool(6)) == 6 and place.stream_pool(6)[:3] == pool

    run(body, FAKECUDA_DEVICES="2")


def test_a_child_of_a_fork_destroys_no_stream(run):
    def body():
        import gc
        import os

        pool = stf.exec_place.device(0).stream_pool(2)
        before = fakecuda.calls("cuStreamDestroy")
        child = os.fork()
        if child == 0:
            del pool
            gc.collect()
            os._exit(fakecuda.calls("cuStreamDestroy") - before)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        pool[0].sync()

    run(body)


def test_streams_of_other_places(run):
    def body():
        from cuda.bindings import driver

        stream = stf.exec_place.device(0).pick_stream()
        lone = stf.exec_place.cuda_stream(stream)
        assert lone.pick_stream() is stream and lone.stream_pool(1) == (stream,)
        with pytest.raises(stf.PlaceError, match="is one stream, and 2 were asked for"):
            lone.stream_pool(2)
        assert int(stf.exec_place.cuda_stream(int(stream.handle)).pick_stream().handle) == int(stream.handle)
        _, context = driver.cuDevicePrimaryCtxRetain(1)
        mine = stf.exec_place.from_context(int(context))
        one, two = mine.stream_pool(2)
        assert int(one.handle) != int(two.handle)
        _, of = driver.cuStreamGetCtx(driver.CUstream(int(one.handle)))
        assert int(of) == int(context)
        assert stf.exec_place.n_devices(1).stream_pool(2) == stf.exec_place.device(0).stream_pool(2)
        assert stf.exec_place.current_device().stream_pool(2) == stf.exec_place.device(0).stream_pool(2)
        for place, match in [
            (stf.exec_place.auto(), "is no place yet"),
            (stf.exec_place.n_devices(2), "ask one of them"),
            (stf.exec_place.device(7), "is not there, so it has no streams; there is cuda:0,1"),
        ]:
            with pytest.raises(stf.PlaceError, match=match):
                place.pick_stream()
        for n in 0, 5000, True, "a":
            with pytest.raises(ValueError, match="a pool has from 1 to 1024 streams"):
                stf.exec_place.device(0).stream_pool(n)

    run(body, FAKECUDA_DEVICES="2")


def test_domains_are_whole_devices(run):
    def body():
        assert stf.exec_place.locality_domain_count(1) == 1
        domains = stf.exec_place.locality_domains(1, "fine")
        assert list(domains) == [stf.exec_place.locality_domain(1, 0)] == [stf.exec_place.device(1)]
        assert stf.data_place.locality_domain(1, 0) == stf.data_place.device(1)
        with pytest.raises(stf.PlaceError, match="there is no device 2 to have domains; there is cuda:0,1"):
            stf.exec_place.locality_domains(2)
        with pytest.raises(stf.PlaceError, match="device 1 has 1 locality domains, got domain 1"):
            stf.exec_place.locality_domain(1, 1)
        with stf.context() as ctx:
            x = ctx.logical_data(np.zeros(4))
            add.on(domains[0])(x)
            assert x.numpy().tolist() == [1.0] * 4

    run(body, FAKECUDA_DEVICES="2")


def test_a_graph_is_launched_by_its_handles(run):
    def body():
        from cuda.bindings import driver

        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(4))
            g = ctx.task_graph("steps")
            with g:
                add.on(0)(x)
            g.launch()
            executable, stream = g.exec_handle, g.stream
            assert executable == g.exec_handle != 0 and int(stream) == int(g.stream) != 0
            assert stream.__cuda_stream__() == (0, int(stream))
            for _ in range(3):
                (code,) = driver.cuGraphLaunch(driver.CUgraphExec(executable), driver.CUstream(int(g.stream)))
                assert int(code) == 0
            g.launch()  # waits for these
            assert x.numpy().tolist() == [5.0] * 4
            g.close()
            with pytest.raises(stf.TaskStateError, match="closed"):
                g.exec_handle
            with pytest.raises(stf.TaskStateError, match="closed"):
                g.stream
        nothing_left()

    run(body)


def test_the_host_has_streams_for_callbacks(run):
    def body():
        import ctypes
        import time

        import fakecuda

        library, FUNCTION = fakecuda.library, ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        host, done = stf.exec_place.host(), []
        assert host.stream_pool(2) == stf.exec_place.device(0).stream_pool(2)
        with cupy.cuda.Device(1):
            assert host.pick_stream() in stf.exec_place.device(1).stream_pool(4)

        def put(stream, *values):  # callbacks on a stream, by the stand-in's host functions
            kept.append(callback := FUNCTION(lambda _: (time.sleep(0.01), done.append(values))))
            assert library.cuLaunchHostFunc(ctypes.c_void_p(stream), callback, None) == 0

        kept, seen = [], []
        with stf.context() as ctx:
            x = ctx.logical_data(np.zeros(4))
            for i in range(3):
                add.on(1)(x)
                with ctx.task("host", x.rw()) as t:
                    assert t.numpy()[0][0] == i + 1
                    assert int(t.stream) == t.stream_ptr() == t.stream_ptrs()[0] == int(t.get_stream())
                    seen.append(t.stream_ptr())
                    put(t.stream_ptr(), i)
                assert done == [(j,) for j in range(i + 1)]
            with ctx.task("host", x.read()) as one, ctx.task("host", x.read()) as two:
                assert one.stream_ptr() != two.stream_ptr()
            with pytest.raises(KeyError), ctx.task("host", x.read()) as t:
                put(t.stream_ptr(), 3)
                raise KeyError
            assert done[-1] == (3,)
            with ctx.task("host", x.read()) as t:
                pass
            with pytest.raises(stf.TaskStateError):
                t.stream_ptr()
            with pytest.raises(stf.PlaceError, match="which has no CUDA graphs"), ctx.task("host", x.read()) as t:
                t.graph
        assert len(set(seen)) == 1 and seen[0] not in [int(s.handle) for s in host.stream_pool(4)]
        with stf.context(devices="cpu") as ctx, pytest.raises(stf.PlaceError, match="which has no CUDA stream"):
            with ctx.task("host", ctx.logical_data_ones(3).read()) as t:
                t.stream_ptr()

    run(body, FAKECUDA_DEVICES="2")


def test_a_host_body_that_asks_for_its_stream_gets_none(run):
    """Such a body is the callback itself."""

    def body():
        seen = []

        @stf.task
        def look(x: stf.Read, stream: stf.Stream | None = None):
            seen.append(stream.handle)

        with stf.context() as ctx:
            look.on("host")(ctx.logical_data(np.zeros(4)))
        assert seen == [None]

    run(body)
