"""Bodies of several devices, each called by a thread of its device (`submit_threads=True`), on the stand-in."""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821
from __future__ import annotations

from pathlib import Path

import pytest

PRELUDE = """
import os, threading, time
import numpy as np
import pytest
import cupy, fakecuda, stf

PATIENCE_S = 30

COPIES = "cuMemcpyAsync", "cuMemcpy3DPeerAsync", "cuMemcpyPeerAsync"

def calls(*names):
    return sum(fakecuda.calls(name) for name in names)

def opened(devices="cuda:0,1", **options):
    return stf.context(devices=devices, submit_threads=True, **options)

@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n
"""


def test_bodies_of_two_devices_run_side_by_side(run):
    def body():
        meeting = threading.Barrier(2, timeout=PATIENCE_S)
        idents = {}

        @stf.task
        def meet(x: stf.ReadWrite, where):
            meeting.wait()  # one body alone would wait in vain
            idents.setdefault(where, set()).add(threading.get_ident())
            x += where

        with opened() as ctx:
            data = [ctx.logical_data(np.zeros(4)) for _ in range(2)]
            for _ in range(10):
                for where in range(2):
                    meet.on(where)(data[where], where)
            assert [x.numpy().tolist() for x in data] == [[0.0] * 4, [10.0] * 4]
        assert [len(idents[where]) for where in range(2)] == [1, 1] and not idents[0] & idents[1]
        assert threading.get_ident() not in idents[0] | idents[1]
        assert fakecuda.leaks() == {}

    run(body)


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_a_stream_waits_for_an_event_that_another_thread_has_not_recorded(run, seed):
    def body():
        latch, waits = threading.Event(), []

        @stf.task
        def first(x: stf.ReadWrite):
            assert latch.wait(PATIENCE_S)
            x += 1

        @stf.task
        def second(x: stf.Read, y: stf.Write):
            waits.append(calls("cuStreamWaitEvent"))
            y[:] = 10 * x

        with opened() as ctx:
            x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.ones(4))
            for data in x, y:
                add.on(0)(data)
                add.on(1)(data)
            ctx.synchronize()
            first.on(0)(x)
            fakecuda.reset_calls()
            second.on(1)(x, y)  # the copy of x to device 1 comes after `first`, and so does the wait for that
            assert calls(*COPIES) == calls("cuStreamWaitEvent") == calls("cuEventRecord") == 0 and not waits
            latch.set()
            assert y.numpy().tolist() == [40.0] * 4
            assert len(waits) == 1 and waits[0] >= 1  # the streams wait before the body enqueues

    run(body, FAKECUDA_SEED=seed)


def test_bodies_of_a_device_are_called_in_the_order_of_their_submission(run):
    def body():
        latch, order = threading.Event(), []

        @stf.task
        def note(x: stf.ReadWrite, name, waits=False):
            assert not waits or latch.wait(PATIENCE_S)
            order.append(name)
            x += 1

        with opened() as ctx:
            x, y, z = (ctx.logical_data(np.zeros(4)) for _ in range(3))
            note.on(0)(x, "a", True)
            note.on(1)(x, "b")  # waits for a, and so does all that comes after it on device 1
            note.on(1)(y, "c")
            note.on(1)(z, "d")
            latch.set()
            ctx.synchronize()
            assert order == ["a", "b", "c", "d"]
            order.clear()
            for i in range(100):
                note.on(i % 2)((x, y, z)[i % 3], i)
            with ctx.task(stf.exec_place.device(0), z.rw()):  # after the bodies of its device
                order.append("block")
            seen = list(order)
            ctx.synchronize()
            assert set(range(0, 100, 2)) < set(seen[: seen.index("block")])
            assert [i for i in order if i != "block" and i % 2 == 0] == list(range(0, 100, 2))
            assert [i for i in order if i != "block" and i % 2 == 1] == list(range(1, 100, 2))

    run(body)


def test_the_task_s_stream_is_current_in_its_thread(run):
    def body():
        seen = []

        @stf.task
        def look(x: stf.ReadWrite, where, stream: stf.Stream | None = None):
            current = cupy.cuda.get_current_stream()
            seen.append((where, cupy.cuda.Device().id, int(stream) == current.ptr != 0))
            x += 1

        before = cupy.cuda.get_current_stream(), cupy.cuda.Device().id
        with opened() as ctx:
            data = [ctx.logical_data(np.zeros(4)) for _ in range(4)]
            for i in range(20):
                look.on(i % 2)(data[i % 4], i % 2)
                assert (cupy.cuda.get_current_stream(), cupy.cuda.Device().id) == before

            @ctx.task(stf.exec_place.device(1), data[0].rw())
            def with_a_stream(x, stream: stf.Stream):
                seen.append((1, cupy.cuda.Device().id, int(stream) == cupy.cuda.get_current_stream().ptr))

            ctx.synchronize()
        assert len(seen) == 21 and all(where == device and same for where, device, same in seen), seen

    run(body)


def test_a_body_that_raises_poisons_and_others_go_on(run):
    def body():
        @stf.task
        def fail(x: stf.ReadWrite):
            raise ValueError("as asked for")

        with opened() as ctx:
            x, y, z = (ctx.logical_data(np.zeros(4)) for _ in range(3))
            fail.on(0)(x)
            add.on(1)(x)  # is skipped
            add.on(0)(y)
            add.on(1)(z)
            with pytest.raises(stf.TaskFailedError, match=r"task 'fail' \(body.py:\d+\) failed with ValueError"):
                ctx.synchronize()
            assert y.numpy().tolist() == z.numpy().tolist() == [1.0] * 4
            assert x.accept().numpy().tolist() == [0.0] * 4
        nothing = fakecuda.leaks()
        assert nothing == {}, nothing

    run(body)


def test_an_exception_cancels_what_has_not_begun(run):
    def body():
        latch, began = threading.Event(), threading.Event()
        count = []

        @stf.task
        def wait(x: stf.ReadWrite):
            began.set()
            assert latch.wait(PATIENCE_S)

        @stf.task
        def note(x: stf.ReadWrite):
            count.append(1)

        with pytest.raises(KeyboardInterrupt) as caught:
            with opened() as ctx:
                data = [ctx.logical_data(np.zeros(4)) for _ in range(2)]
                for where in range(2):
                    wait.on(where)(data[where])
                for i in range(40):
                    note.on(i % 2)(data[i % 2])
                assert began.wait(PATIENCE_S)
                threading.Timer(0.05, latch.set).start()
                raise KeyboardInterrupt
        assert count == [] and "cancelled" in str(caught.value.__notes__)
        assert fakecuda.leaks() == {}

    run(body)


def test_a_body_that_waits_lets_the_next_ones_go_on(run):
    def body():
        @stf.task
        def outer(x: stf.ReadWrite, others):
            add.on(0)(others[0], 5)  # is called by the thread that goes on
            with ctx.task(stf.exec_place.device(0), others[0].read(), others[1].rw()) as t:  # which waits for that
                t[1][:] += 2 * t[0]
            x += 5

        class Box:  # whose data stf does not see
            def __init__(self, data):
                self.data = data

            def __getitem__(self, i):
                return self.data[i]

        with opened() as ctx:
            x, y, z, w = (ctx.logical_data(np.zeros(4), name=name) for name in "xyzw")
            outer.on(0)(x, Box([y, z]))
            for _ in range(10):
                add.on(0)(w)
            assert x.numpy().tolist() == [5.0] * 4 and z.numpy().tolist() == [10.0] * 4
            assert w.numpy().tolist() == [10.0] * 4

    run(body)


def test_bodies_behind_the_host_do_not_hold_up_a_device(run):
    def body():
        latch = threading.Event()

        @stf.task
        def on_host(x: stf.ReadWrite):
            assert latch.wait(PATIENCE_S)
            x += 1

        with opened() as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            on_host.on("host")(x)
            add.on(0)(x)  # waits for the host
            add.on(1)(x)
            add.on(0)(y)
            assert y.numpy().tolist() == [1.0] * 4  # which has not waited
            latch.set()
            assert x.numpy().tolist() == [3.0] * 4

    run(body)


def test_who_submits_does_not_run_ahead_without_bound(run):
    def body():
        latch, begun = threading.Event(), []

        @stf.task
        def wait(x: stf.ReadWrite):
            assert latch.wait(PATIENCE_S)

        with opened(max_pending=16) as ctx:
            x = ctx.logical_data(np.zeros(4))
            wait.on(0)(x)
            threading.Timer(0.1, latch.set).start()
            for _ in range(500):
                begun.append(latch.is_set())
                add.on(0)(x)
            assert begun[:8] == [False] * 8 and begun[30]
            assert x.numpy().tolist() == [500.0] * 4
        with opened() as ctx:  # it waits a while for each beyond 64, and is never stuck
            latch.clear()
            x = ctx.logical_data(np.zeros(4))
            wait.on(0)(x)
            start = time.perf_counter()
            for _ in range(80):
                add.on(0)(x)
            assert time.perf_counter() - start > 0.1
            latch.set()
            assert x.numpy().tolist() == [80.0] * 4

    run(body)


def test_context_variables_go_along(run):
    def body():
        import contextvars

        variable, seen = contextvars.ContextVar("variable", default=0), []

        @stf.task
        def look(x: stf.ReadWrite):
            seen.append(variable.get())

        with opened() as ctx:
            x = ctx.logical_data(np.zeros(4))
            for i in range(6):
                variable.set(i)
                look.on(i % 2)(x)
            ctx.synchronize()
        assert seen == list(range(6))

    run(body)


@pytest.mark.parametrize(
    "options", ["devices='cuda:0'", "devices='cuda:0,1', use_graph=True", "stream=cupy.cuda.Stream()"]
)
def test_elsewhere_bodies_run_in_the_call(run, options):
    before = f"OPTIONS = dict({options})\n"

    def body():
        idents = set()

        @stf.task
        def look(x: stf.ReadWrite):
            idents.add(threading.get_ident())
            x += 1

        with stf.context(submit_threads=True, **OPTIONS) as ctx:
            x = ctx.logical_data(np.zeros(4))
            for _ in range(3):
                look(x)
            if not ctx._caller:
                ctx.synchronize()
        assert idents == {threading.get_ident()}

    run(body, before)


def test_recorded_functions_are_the_same(run):
    def body():
        @stf.replay
        def step(x, y):
            add.on(0)(x)
            add.on(1)(y, 2)
            add.on(1)(x)

        with opened() as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            for _ in range(5):
                step(x, y)
                add.on(0)(y)  # between launches, in the thread of device 0
            assert x.numpy().tolist() == [10.0] * 4 and y.numpy().tolist() == [15.0] * 4
        assert fakecuda.leaks() == {}

    run(body)


def test_contexts_that_share_a_driver_share_its_threads(run):
    def body():
        resources, idents = stf.Resources(), set()

        @stf.task
        def note(x: stf.ReadWrite):
            idents.add(threading.get_ident())
            x += 1

        for _ in range(3):
            with opened(resources=resources) as one, opened(resources=resources) as two:
                data = [ctx.logical_data(np.zeros(4)) for ctx in (one, two)]
                for i in range(50):
                    note.on(i % 2)(data[i // 2 % 2])
                assert [x.numpy()[0] for x in data] == [26.0, 24.0]
        resources.close()
        assert len(idents) == 2
        assert fakecuda.leaks() == {}

    run(body)


def test_threads_that_submit_at_once(run):
    def body():
        with opened("cuda:0,1,2,3") as ctx:
            shared = ctx.logical_data(np.zeros(4))

            def program(number):
                mine = ctx.logical_data(np.zeros(4))
                for i in range(40):
                    add.on((i + number) % 4)(mine)
                    add.on(i % 4)(shared)
                assert mine.numpy().tolist() == [40.0] * 4
                done.append(number)

            done = []
            threads = [threading.Thread(target=program, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            assert sorted(done) == [0, 1, 2, 3] and shared.numpy().tolist() == [160.0] * 4

    run(body, FAKECUDA_DEVICES="4", FAKECUDA_SEED="3")


def test_the_option_is_checked(run):
    def body():
        with pytest.raises(TypeError, match="submit_threads is True or False, got 2; workers= is a number of threads"):
            stf.context(submit_threads=2)
        with stf.context(devices="cpu:2", submit_threads=True) as ctx:
            x = ctx.logical_data(np.zeros(4))
            add.on(1)(x)
            assert x.numpy().tolist() == [1.0] * 4

    run(body)


def test_a_wait_for_the_bodies_of_a_device_can_be_interrupted(run):
    def body():
        import signal

        latch, began = threading.Event(), threading.Event()

        @stf.task
        def wait(x: stf.ReadWrite):
            began.set()
            assert latch.wait(PATIENCE_S)
            x += 1

        with opened() as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            wait.on(0)(x)
            assert began.wait(PATIENCE_S)
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            threading.Timer(0.6, latch.set).start()
            with pytest.raises(KeyboardInterrupt):
                with ctx.task(stf.exec_place.device(0), y.rw()):  # after the body, whose thread waits
                    raise AssertionError("the block has begun")
            with ctx.task(stf.exec_place.device(0), y.rw()) as t:
                t[0][:] += 1
            assert x.numpy().tolist() == y.numpy().tolist() == [1.0] * 4
        assert fakecuda.leaks() == {}

    run(body)


def test_a_fork_does_not_wait_for_threads_that_it_lacks(run):
    def body():
        ctx = opened()
        x = ctx.logical_data(np.zeros(4))
        for i in range(10):
            add.on(i % 2)(x)
        child = os.fork()
        if child == 0:
            try:
                add.on(0)(x)
            except stf.ContextClosedError as error:
                os._exit(0 if "was forked" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert x.numpy().tolist() == [10.0] * 4
        ctx.finalize()

    run(body)


@pytest.mark.parametrize(("devices", "count"), [("cuda:0,1", 40), ("cuda:0,1,2,3", 40)])
def test_random_programs_are_right(run, devices, count):
    """Those of `tests/properties`, beside a model, with their order proven."""

    def body():
        import pathlib
        import runpy
        import sys

        script = pathlib.Path(os.environ["SCRIPT"])
        sys.path.insert(0, str(script.parent))
        sys.argv = [str(script), "0", os.environ["COUNT"]]
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
        assert not ended.value.code, ended.value.code

    script = Path(__file__).parents[1] / "properties" / "programs.py"
    settings = {"STF_SUBMIT_THREADS": "1", "STF_TEST_DEVICES": devices, "FAKECUDA_DEVICES": "4", "FAKECUDA_SEED": "4"}
    told = run(body, SCRIPT=str(script), COUNT=str(count), **settings)
    assert f"{count} programs, 0 failed" in told


@pytest.mark.thorough
@pytest.mark.parametrize(("devices", "seed"), [("cuda:0,1", "1"), ("cuda:0,1,2,3", "2")])
def test_hostile_delays_change_nothing(run, devices, seed):
    """Allocations, copies and bodies come late; what depends on each other keeps its order."""

    def body():
        rng = np.random.default_rng(int(os.environ["FAKECUDA_SEED"]))
        places = int(os.environ["PLACES"])

        @stf.task
        def axpy(a, x: stf.Read, y: stf.ReadWrite):
            y += a * x

        with opened(os.environ["DEVICES"]) as ctx:
            expected = np.arange(6.0)
            data = [ctx.logical_data(np.full(8, value), name=f"x{i}") for i, value in enumerate(expected)]
            for step in range(600):
                i, j = (int(k) for k in rng.permutation(6)[:2])
                where = int(rng.integers(places))
                if step % 7 == 3:
                    with ctx.task(stf.exec_place.device(where), data[i].read(), data[j].rw()) as t:
                        t[1][:] += 0.25 * t[0]
                    expected[j] += 0.25 * expected[i]
                elif step % 11 == 5:
                    ctx.fill(data[j], 1.0)
                    expected[j] = 1.0
                else:
                    axpy.on(where)(0.125, data[i], data[j])
                    expected[j] += 0.125 * expected[i]
                expected[j] = expected[j] % 1e6
                if expected[j] > 1e5:
                    ctx.fill(data[j], 2.0)
                    expected[j] = 2.0
            assert np.allclose([x.numpy()[3] for x in data], expected, rtol=1e-12)

    run(
        body,
        DEVICES=devices,
        PLACES=str(devices.count(",") + 1),
        FAKECUDA_DEVICES="4",
        FAKECUDA_SEED=seed,
        STF_HOSTILE=seed,
    )
