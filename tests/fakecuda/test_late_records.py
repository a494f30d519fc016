"""Events that nobody waits for are not recorded; who does wait for one waits for no more than it stands for."""

from __future__ import annotations

# The bodies below run elsewhere, with the names of the prelude of conftest.py.
# ruff: noqa: F821


def test_a_chain_on_one_data_records_every_64th_event(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, token = ctx.logical_data_zeros(8), ctx.token()
            add(x)
            ctx.synchronize()
            fakecuda.reset_calls()
            for _ in range(640):
                add(x)
            assert calls("cuEventRecord") == 10, calls("cuEventRecord")
            ctx.synchronize()
            assert calls("cuEventRecord") == 11
            assert (x.numpy() == 641).all()
            for _ in range(640):
                with ctx.task(token.rw()):
                    pass
            assert calls("cuEventRecord") <= 11 + 1 + 10 + 1  # and the copy to the host
        nothing_left()

    run(body)


def test_what_others_may_wait_for_is_recorded_before_something_else_follows(run):
    def body():
        seen = []

        @stf.task
        def into(y: stf.ReadWrite, x: stf.Read):
            seen.append(calls("cuEventRecord"))
            y += x

        @stf.task
        def both(x: stf.ReadWrite, y: stf.ReadWrite):
            seen.append(calls("cuEventRecord"))
            x += 1
            y += 1

        @stf.task
        def one(x: stf.ReadWrite):
            seen.append(calls("cuEventRecord"))
            x += 1

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data_zeros(8), ctx.logical_data_zeros(8)
            both(x, y)
            ctx.synchronize()
            for function, data, before, after in [
                (one, [x], 0, 0),
                (into, [y, x], 1, 2),  # x may be read by others, too; and a task that reads records
                (both, [x, y], 2, 2),
                (both, [y, x], 2, 2),  # writes all that the one before wrote
                (one, [x], 3, 3),  # somebody may want y
                (both, [x, y], 3, 3),  # writes all that the one before wrote, and more
            ]:
                if function is one and before == 0:
                    fakecuda.reset_calls()
                    seen.clear()
                function(*data)
                assert (seen[-1], calls("cuEventRecord")) == (before, after), (
                    function,
                    data,
                    seen,
                    calls("cuEventRecord"),
                )
            assert (x.numpy() == 6).all() and (y.numpy() == 6).all(), (x.numpy(), y.numpy())
        nothing_left()

    run(body)


def test_others_wait_for_the_event_of_a_chain(run):
    def body():
        @stf.task
        def into(y: stf.ReadWrite, x: stf.Read):
            y += x

        with stf.context(devices="cuda:0,1") as ctx:
            for n in range(20):
                x, y = ctx.logical_data_zeros(8), ctx.logical_data_zeros(8)
                for _ in range(n):
                    add.on(0)(x)
                into.on(1)(y, x)
                add.on(0)(x)
                into.on(0)(x, y)
                assert (ctx.wait(y) == n).all() and (ctx.wait(x) == 2 * n + 1).all()
        nothing_left()

    for seed in "123":
        run(body, FAKECUDA_SEED=seed)


def test_an_event_that_was_put_off_is_recorded_for_whoever_asks(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            driver = ctx._driver
            stream, other = driver.stream_create(0), driver.stream_create(0)
            address = driver.alloc(0, 8, stream)
            found = np.zeros(1)

            def write(n):
                driver.fill(stream, address, (8,), (1,), np.float64(n).tobytes())
                driver.record_lazy(stream, n)

            def asked(ask, *args):
                before = calls("cuEventRecord")
                ask(*args)
                return calls("cuEventRecord") - before

            assert sum(asked(write, n) for n in (1, 2, 3)) == 0
            # after the third: later than it might, never earlier
            assert asked(driver.wait_event, other, stream, 1) == 1
            assert asked(driver.wait_event, other, stream, 1) == 0
            driver.copy(other, found.ctypes.data, (8,), address, (8,), (1,), 8, (found, None))
            driver.record(other, 1)
            assert driver.synchronize(other, 1, -1.0) and found[0] == 3
            assert asked(driver.synchronize, stream, 3, -1.0) == 1
            assert asked(driver.query, stream, 2) == 0 and driver.query(stream, 2)  # the third is done
            write(4)
            assert asked(driver.commit, stream, 4) == 1 and asked(driver.commit, stream, 4) == 0
            assert sum(asked(write, n) for n in range(5, 1300)) == 1299 // 64
            assert asked(driver.wait_event, other, stream, 1250) == 1
            driver.copy(other, found.ctypes.data, (8,), address, (8,), (1,), 8, (found, None))
            driver.record(other, 2)
            assert driver.synchronize(other, 2, -1.0) and found[0] == 1299
            while not driver.query(stream, 1299):
                pass
            assert driver.query(stream, 700) and asked(driver.query, stream, 700) == 0
            driver.free(0, address, 8, stream)
            driver.record(stream, 1300)
            driver.synchronize(stream, 1300, -1.0)
            driver.stream_destroy(stream)
            driver.stream_destroy(other)
        nothing_left()

    run(body, FAKECUDA_SEED="4")


def test_who_waits_for_several_has_all_recorded_first(run):
    def body():
        ctx = stf.context(devices="cuda:0")
        data = [ctx.logical_data_zeros(8) for _ in range(4)]
        for x in data:
            add(x)
        ctx.synchronize()
        for x in data:
            add(x)
        fakecuda.reset_calls("cuEventQuery:1:CUDA_ERROR_LAUNCH_FAILED")  # the wait for the first
        for call in (ctx.synchronize, ctx.finalize):
            with pytest.raises(stf.DriverError, match="CUDA_ERROR_LAUNCH_FAILED"):
                call()
            assert calls("cuEventRecord") == 4

    run(body)


def test_what_is_asked_later_is_recorded_when_it_is_noted(run):
    def body():
        with stf.context(devices="cuda:0", max_pending=4) as ctx:
            x, y = ctx.logical_data_zeros(8), ctx.logical_data(np.zeros(4))
            add(x)
            ctx.synchronize()
            fakecuda.reset_calls()
            add(x)
            for k in range(3):
                assert calls("cuEventRecord") == 0, k
                ctx.host_launch(y.rw())(lambda y: None)  # the third notes how far all is, to wait for that some time
            assert calls("cuEventRecord") == 1
        nothing_left()

    run(body)


def test_what_a_task_keeps_goes_when_the_next_looks(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            driver = ctx._driver
            stream = driver.stream_create(0)
            driver.record_lazy(stream, 1)
            driver.keep_alive(stream, object())
            assert calls("cuEventRecord") == 0
            driver.record_lazy(stream, 2)
            assert calls("cuEventRecord") == 1
            assert driver.synchronize(stream, 2, -1.0)
            driver.record_lazy(stream, 3)
            assert calls("cuEventRecord") == 1
            driver.stream_destroy(stream)
        nothing_left()

    run(body)


PAUSE = """
import ctypes, time

cuda, libc = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)

def pause(stream, milliseconds):
    pause = ctypes.cast(libc.usleep, ctypes.c_void_p)
    assert cuda.cuLaunchHostFunc(ctypes.c_void_p(stream), pause, ctypes.c_void_p(1000 * milliseconds)) == 0
"""


def test_a_stream_that_begins_anew_knows_nothing_of_its_old_events(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            driver = ctx._driver
            stream = driver.stream_create(0)
            for n in (1, 2, 3):
                driver.record_lazy(stream, n)
            driver.synchronize(stream, 3, -1.0)
            driver.stream_destroy(stream)
            assert driver.stream_create(0) == stream
            pause(2, 200)  # CUDA's default stream of this thread
            driver.record_on(stream, 1, 2)
            before = time.monotonic()
            assert driver.synchronize(stream, 1, -1.0)
            assert time.monotonic() - before > 0.15
            driver.stream_destroy(stream)
        nothing_left()

    run(body, before=PAUSE)


def test_nothing_is_recorded_into_a_capture_of_a_bodys(run):
    def body():
        inside, go = threading.Event(), threading.Event()
        codes = []

        @stf.task
        def capture(x: stf.ReadWrite):
            stream, graph = ctypes.c_void_p(cupy.cuda.get_current_stream().ptr), ctypes.c_void_p()
            codes.append(cuda.cuStreamBeginCapture_v2(stream, 1))  # of this thread
            inside.set()
            go.wait(0.3)
            codes.append(cuda.cuStreamEndCapture(stream, ctypes.byref(graph)))
            cuda.cuGraphDestroy(graph)

        def wait():
            inside.wait()
            ctx.synchronize()
            go.set()

        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data_zeros(8)
            add(x)
            add(x)
            thread = threading.Thread(target=wait)
            thread.start()
            capture(x)
            thread.join()
            assert codes == [0, 0] and (ctx.wait(x) == 2).all()
        nothing_left()

    run(body, before=PAUSE)


def test_bursts_with_waits_between_take_no_more_events_than_the_first(run):
    def body():
        def burst():
            for i in range(320):
                row, k = divmod(i, 32)
                a, b = rows[row % 2], rows[1 - row % 2]
                with ctx.task(a[k - 1].read(), a[k].read(), a[(k + 1) % 32].read(), b[k].write()):
                    pass
            ctx.synchronize()

        with stf.context(devices="cuda:0") as ctx:
            rows = [[ctx.token() for _ in range(32)] for _ in range(2)]
            burst()
            first = calls("cuEventCreate")
            assert 300 < first < 400, first
            for _ in range(60):  # which is 600 tasks a stream, more than a ring
                burst()
            assert calls("cuEventCreate") == first, (first, calls("cuEventCreate"))
            x = ctx.logical_data_zeros(8)
            for _ in range(3):
                for _ in range(700):  # more than a ring at a time
                    add(x)
                assert (x.numpy() > 0).all()
            assert (x.numpy() == 2100).all()
        nothing_left()

    run(body)
