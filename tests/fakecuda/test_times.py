"""When the work of tasks was on devices, on the stand-in: what a trace and a report of a CUDA context hold."""

from __future__ import annotations

# The bodies below run elsewhere, with the names of the prelude of conftest.py.
# ruff: noqa: F821


def test_tasks_and_copies_of_devices_are_in_the_trace(run):
    def body():
        import itertools
        import pathlib
        import time

        before_ns = time.perf_counter_ns()
        with stf.context(observe=True) as ctx:
            x = ctx.logical_data(np.zeros((64, 64)), name="x")
            for i in range(6):
                add.on(i % 2).named(f"add({i})")(x)
            with ctx.task(stf.exec_place.device(1), x.read(), name="look") as t:
                t.arrays()
            ctx.host_launch(x.read(), fn=lambda x: None, name="on host")
            ctx.synchronize()
            taken_ns = time.perf_counter_ns() - before_ns
            spans = [e for e in ctx.trace()["traceEvents"] if e["ph"] == "X"]
            assert max(e["ts"] + e["dur"] for e in spans) <= taken_ns / 1000 + 50
            ctx.report("report.html")
            assert "ran for" in ctx.why("add(3)")
            add.on(0).named("late")(x)  # finalize reads what nobody asked for yet
        trace = ctx.trace()["traceEvents"]
        spans = {e["name"]: e for e in trace if e["ph"] == "X" and e["cat"] == "task"}
        names = list(spans)  # by start; nothing orders the two that only read
        assert names[:6] == [f"add({i})" for i in range(6)] and names[8:] == ["late"]
        assert sorted(names[6:8]) == ["look", "on host"]
        assert [spans[f"add({i})"]["pid"] for i in range(6)] == [1, 2] * 3 and spans["on host"]["pid"] == 0
        copies = [e for e in trace if e["ph"] == "X" and e["cat"] == "copy"]
        assert len(copies) == sum(ctx.statistics().copies.values()) and {e["name"] for e in copies} == {"copy x"}
        ordered = sorted([*spans.values(), *copies], key=lambda e: e["ts"])
        ordered = [e for e in ordered if e["ts"] < spans["look"]["ts"]]  # a chain; later ones may overlap
        for one, other in itertools.pairwise(ordered):
            assert one["ts"] + one["dur"] <= other["ts"] + 50, (one, other)  # microseconds, of two clocks
        assert len(ordered) > 10 and spans["late"]["dur"] > 0
        rows = {(e["pid"], e["args"]["name"]) for e in trace if e["name"] == "thread_name"}
        assert {(0, "worker 0"), (1, "compute"), (1, "copies in"), (2, "compute"), (2, "copies in")} <= rows
        assert "<title>stf report</title>" in pathlib.Path("report.html").read_text("utf-8")
        nothing_left()

    run(body)


def test_only_contexts_that_record_times_pay_for_them(run):
    def body():
        records = {}
        for observe in (False, "dot", "trace"):
            with stf.context(observe=observe) as ctx:
                x = ctx.logical_data_zeros(8, where=stf.data_place.device(0))
                ctx.synchronize()
                fakecuda.reset_calls()
                for _ in range(10):
                    add.on(0)(x)
                records[observe] = calls("cuEventRecord")
                assert calls("cuEventElapsedTime") == 0
            assert (calls("cuEventElapsedTime") > 0) == (observe == "trace")
        assert records == {False: 0, "dot": 0, "trace": 20}  # nobody waits for these tasks
        nothing_left()

    run(body)


def test_events_are_used_again(run):
    def body():
        with stf.context(observe="trace", devices="cuda:0") as ctx:
            token = ctx.token()
            for _ in range(9000):
                with ctx.task(token.rw()):
                    pass
            assert fakecuda.counts()["events"] < 16384 + 600  # and those of the stream's ring
            assert calls("cuEventCreate") < 16384 + 600
            spans = [e for e in ctx.trace()["traceEvents"] if e["ph"] == "X"]
            assert len(spans) >= 8000 and fakecuda.counts()["events"] < 16384 + 600
            ctx.synchronize()
            spans = [e for e in ctx.trace()["traceEvents"] if e["ph"] == "X"]
            assert len(spans) == 9000 and len({e["args"]["task"] for e in spans}) == 9000
            starts = [e["ts"] for e in sorted(spans, key=lambda e: e["args"]["task"])]
            assert starts == sorted(starts)
        nothing_left()

    run(body)


def test_work_behind_a_body_on_the_host_is_stamped_when_it_comes(run):
    def body():
        opened = threading.Event()
        with stf.context(observe="trace", devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(8), name="x")
            add.on(0)(x)

            @ctx.host_launch(x.rw(), name="on host")
            def _(x):
                assert opened.wait(20)
                x += 1

            ctx.prefetch(x, stf.data_place.device(0))  # queued: the copy must wait for the body
            assert not [e for e in ctx.trace()["traceEvents"] if e["name"] == "on host"]
            opened.set()
            ctx.synchronize()
            spans = [e for e in ctx.trace()["traceEvents"] if e["ph"] == "X"]
        host = next(e for e in spans if e["name"] == "on host")
        last = max((e for e in spans if e["cat"] == "copy"), key=lambda e: e["ts"])
        assert last["ts"] >= host["ts"] + host["dur"] - 50
        nothing_left()

    run(body)


def test_what_failed_or_was_withdrawn(run):
    def body():
        import sys

        @stf.task
        def fail(x: stf.ReadWrite):
            x += 1
            raise ValueError("no")

        @stf.task(arrays="torch")
        def misses(x: stf.ReadWrite):
            pass

        sys.modules["torch"] = None  # importing it fails
        with stf.context(observe="trace") as ctx:
            x = ctx.logical_data_zeros(8)
            with pytest.raises(stf.TaskFailedError):
                fail.on(0)(x)
            x.accept()
            with pytest.raises(ImportError):
                misses.on(0)(x)
            add.on(0)(x)
        names = [e["name"] for e in ctx.trace()["traceEvents"] if e["ph"] == "X"]
        assert names.count("fail") == names.count("add") == 1 and "misses" not in names
        nothing_left()

    run(body)


def test_a_lost_driver_still_tells_what_it_knows(run):
    def body():
        ctx = stf.context(observe="trace", devices="cuda:0")
        x = ctx.logical_data_zeros(8)
        add(x)
        ctx.synchronize()
        known = len(ctx.trace()["traceEvents"])
        fakecuda.reset_calls("cuEventRecord:1+:CUDA_ERROR_ILLEGAL_ADDRESS")
        for _ in range(3):
            try:
                add(x)
            except stf.Error:
                pass
        assert len(ctx.trace()["traceEvents"]) >= known
        try:
            ctx.finalize()
        except stf.Error:
            pass
        assert len(ctx.trace()["traceEvents"]) >= known

    run(body)


def test_contexts_that_share_a_driver(run):
    def body():
        shared = stf.Resources()
        for observe in (False, "trace", "trace"):
            with stf.context(observe=observe, resources=shared) as ctx:
                x = ctx.logical_data_zeros(8)
                for i in range(5):
                    add.on(i % 2)(x)
            if observe:
                spans = [e for e in ctx.trace()["traceEvents"] if e["ph"] == "X"]
                assert [e["name"] for e in spans if e["cat"] == "task"].count("add") == 5
        shared.close()
        nothing_left()

    run(body)


def test_places_of_the_users_have_times_on_their_device(run):
    def body():
        from cuda.bindings import driver as cuda

        cuda.cuInit(0)
        code, own = cuda.cuCtxCreate(None, 0, 1)
        assert not code and not cuda.cuCtxPopCurrent()[0]
        with cupy.cuda.Device(1):
            stream = cupy.cuda.Stream(non_blocking=True)
        places = {"own": stf.exec_place.from_context(int(own)), "his": stf.exec_place.cuda_stream(stream)}
        with stf.context(observe="trace") as ctx:
            lx, managed = ctx.logical_data(np.zeros(64), name="x"), ctx.logical_data_empty((64,), name="m")
            for name, place in places.items():  # the first stamp of the device is one in a context of the user's
                add.on(place).named(name)(lx)
            add.on(1).named("device")(lx)
            ctx.fill(managed, 2.0)
            with ctx.task(stf.exec_place.device(1), lx.read(), managed.rw(stf.data_place.managed()), name="both"):
                pass
            other = ctx.logical_data_empty((64,))
            ctx.copy(managed, other)
            assert (other.numpy() == 2).all()
        spans = [e for e in ctx.trace()["traceEvents"] if e["ph"] == "X"]
        named = {e["name"]: e["pid"] for e in spans if e["cat"] == "task"}
        assert {name: named[name] for name in ("own", "his", "device", "both")} == dict.fromkeys(
            ("own", "his", "device", "both"), 2
        )
        assert sum(e["name"] == "copy" and e["cat"] == "task" for e in spans) == 1  # which is no copy beside it
        copies = [e["name"] for e in spans if e["cat"] == "copy"]
        assert {"copy x", "copy m"} <= set(copies) and len(copies) == sum(ctx.statistics().copies.values())
        assert {e["pid"] for e in spans} <= {0, 1, 2}
        assert not cuda.cuCtxDestroy(own)[0]
        del stream, places, place
        nothing_left()

    run(body)


def test_records_of_kernels_lead_to_the_task_that_submitted_them(run):
    def body():
        from stf.observe import kernels

        stacks, seen, tell = {}, [], []

        class Recorded:
            begin, end, flush, now_ns = tell.append, lambda self: None, lambda self: None, lambda self: 0
            push, pop = lambda self, external: mine().append(external), lambda self: mine().pop()

        def mine():
            return stacks.setdefault(threading.get_ident(), [])

        def named():
            return [external & (1 << 40) - 1 for external in mine()]

        kernels.CuptiRecords = Recorded

        @stf.task
        def look(x: stf.ReadWrite):
            seen.append(named())

        with stf.context(observe="cupti") as ctx:
            x = ctx.logical_data(np.zeros(8), name="x")
            look.on(0)(x)
            look.on(1)(x)
            with ctx.task(stf.exec_place.device(0), x.rw(), name="block"):
                seen.append(named())
            ctx.host_launch(x.rw(), fn=lambda x: seen.append(named()), name="on host")
            ctx.synchronize()
            assert named() == []
            tell[0]([kernels.DeviceRecord("kernel", 1, 3, 5, 1, 9), kernels.Correlation(5, 1 << 40 | 2)])
            told = [e for e in ctx.trace()["traceEvents"] if e.get("cat") == "kernel"]
            assert [(e["name"], e["pid"], e["args"]["task"]) for e in told] == [("kernel", 2, 2)]
            ctx.report("report.html")
        assert seen == [[1], [2], [3], [4]] and not any(stacks.values())
        nothing_left()

    run(body)


def slow_bodies():
    """Bodies that keep a device busy, and what is known of them; for the programs below."""
    import ctypes

    library, pause = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None).usleep

    def keep_busy(stream, microseconds):
        assert library.cuLaunchHostFunc(ctypes.c_void_p(stream), pause, ctypes.c_void_p(microseconds)) == 0

    def known(ctx, name):
        return [found for (function, _, _), found in ctx.placement.durations.table().items() if function == name]


def test_placement_knows_how_long_bodies_took_on_a_device(run):
    def body():
        with stf.context(devices="cuda:0,1", place="auto") as ctx:
            data = [ctx.logical_data_zeros(8) for _ in range(4)]
            for i in range(12):
                with ctx.task(data[i % 4].rw(), name="slow") as t:
                    keep_busy(t.stream_ptr(), 5000)
                with ctx.task(data[i % 4].rw(), name="quick") as t:
                    t.arrays()
                if i % 4 == 3:
                    ctx.synchronize()
            slow, quick = known(ctx, "slow"), known(ctx, "quick")  # of one kind of device, or of two
            assert sum(found.n for found in slow) >= 4
            assert all(0.005 <= found.median_s <= 0.05 for found in slow)
            assert all(0 <= found.median_s < 0.0025 for found in quick)
            events = calls("cuEventCreate")
            for i in range(640):
                with ctx.task(data[i % 4].rw(), name="quick") as t:
                    t.arrays()
            ctx.synchronize()
            assert calls("cuEventElapsedTime") <= 2 * (2 * 8) + 16  # eight of each at first, then one of 64
            assert calls("cuEventCreate") - events <= 2 * 64
        nothing_left()

    run(body, slow_bodies)


def test_tasks_that_do_not_end_are_not_measured(run):
    def body():
        with stf.context(devices="cuda:0,1", place="auto") as ctx:
            x = ctx.logical_data_zeros(8)
            for _ in range(100):
                with pytest.raises(ZeroDivisionError), ctx.task(x.rw(), name="fails"):
                    raise ZeroDivisionError
                x.accept()
            assert known(ctx, "fails") == []
            for _ in range(4):
                with ctx.task(x.rw(), name="works") as t:
                    keep_busy(t.stream_ptr(), 2000)
                ctx.synchronize()
            with ctx.task(x.rw(), name="works"):
                pass
            assert sum(found.n for found in known(ctx, "works")) >= 2
        nothing_left()

    run(body, slow_bodies)


def test_bodies_that_other_threads_call_are_timed(run):
    def body():
        with stf.context(devices="cuda:0,1", place="auto", submit_threads=True) as ctx:
            data = [ctx.logical_data_zeros(8) for _ in range(4)]
            for i in range(12):
                add(data[i % 4])
                if i % 4 == 3:
                    ctx.synchronize()
            assert sum(found.n for found in known(ctx, "add")) >= 4
        nothing_left()

    run(body, slow_bodies)
