"""Reading back a few bytes on the stand-in: what is called, what threads and lost devices do to it, and what it leaves.

Each test runs in a process of its own, as those of the stand-in itself do.
"""

from __future__ import annotations

import pytest

# The bodies below run elsewhere, with the names of the prelude of conftest.py.
# ruff: noqa: F821


def test_a_scalar_is_read_behind_its_writer(run):
    """No stream waits for another: the host does anyway, and once."""

    def body():
        with stf.context(devices="cuda:0") as ctx:
            scalar = ctx.logical_data_zeros(())
            for _ in range(3):
                with ctx.task(scalar.rw()):
                    pass
                ctx.wait(scalar)
            fakecuda.reset_calls()
            for _ in range(50):
                with ctx.task(scalar.rw()):
                    pass
                assert ctx.wait(scalar) == 0
            assert calls("cuStreamWaitEvent") == 0 and calls(*COPIES) == 50
            assert calls("cuEventRecord") <= 110 and calls("cuEventSynchronize") <= 50
            assert (
                calls("cuEventQuery") <= 2
            )  # neither for the copy, which cannot be done yet, nor for the task before it
            assert calls("cuCtxGetCurrent") <= calls("cuEventCreate") + 52  # for the copy
        nothing_left()

    run(body)


def test_a_content_that_looks_like_none_is_read_back(run):
    """What a landing is marked with may be the content: it is there when the event behind it is complete."""

    def body():
        mark = 0xFFF5A3C7
        with stf.context() as ctx:
            for dtype, shape in [("u4", ()), ("u4", (16,)), ("u8", ())]:
                content = np.full(shape, mark if dtype == "u4" else mark << 32 | mark, dtype)
                lX = ctx.logical_data_empty(shape, dtype)
                for _ in range(20):
                    fill(lX, content.flat[0])
                    assert np.array_equal(ctx.wait(lX), content)
                assert ctx.engine.root.readback is not None
                assert ctx.statistics().allocations.get("host", 0) == 0  # it has no replica
        nothing_left()

    run(body, before="@stf.task\ndef fill(x: stf.Write, value):\n    x[...] = value\n")


def test_who_reads_back_again_gets_a_replica(run):
    def body():
        with stf.context() as ctx:
            scalar = ctx.logical_data_full((), 2.5, where=stf.data_place.device(0))
            fakecuda.reset_calls()
            assert [ctx.wait(scalar) for _ in range(9)] == [2.5] * 9
            assert calls(*COPIES) == 2
            assert ctx.statistics().tasks["wait"] == 9 and "for task 'wait'" in str(stf.why(scalar))
        nothing_left()

    run(body)


@pytest.mark.parametrize("seed", range(4))
def test_many_threads_read_back_at_once(run, seed):
    """There are fewer landings than threads; each reads what its own tasks wrote."""

    def body():
        with stf.context(devices="cuda:0,1") as ctx:

            def work(k):
                lX = ctx.logical_data_zeros(3, "f4")
                for i in range(30):
                    add.on(k % 2)(lX, k)
                    if (i + k) % 3:
                        assert ctx.wait(lX).tolist() == [k * (i + 1)] * 3

            with futures.ThreadPoolExecutor(24) as pool:
                list(pool.map(work, range(24)))
        nothing_left()

    run(body, before="from concurrent import futures\n", FAKECUDA_SEED=str(seed))


@pytest.mark.parametrize("thread", ["1", "0"])
def test_contexts_on_shared_resources_read_back_what_is_theirs(run, thread):
    """They have one driver, and each a lock of its own: two threads took the same place for what lands."""

    def body():
        shared = stf.Resources()

        def work(k):
            with stf.context(devices="cuda:0", resources=shared) as ctx:
                scalar = ctx.logical_data_full((), 1000.0 * k)
                for i in range(1, 400):
                    for _ in range(3):
                        add(scalar)
                    assert float(scalar) == 1000 * k + 3 * i

        with futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(work, range(3)))
        shared.close()
        nothing_left()

    run(body, before="from concurrent import futures\n", STF_SUBMIT_THREAD=thread)


SLOW = """
import ctypes, time
from cuda.bindings import driver as cuda

kept = []

def slow_kernel(gate):  # which ends when the gate is set
    kept.append(ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: gate.wait() and None))
    name = f"slow{len(kept)}"
    fakecuda.add_kernel(name, "p", ctypes.cast(kept[-1], ctypes.c_void_p).value)
    cupy.cuda.Device(0).use()
    return int(cuda.cuModuleGetFunction(cuda.cuModuleLoadData(b"x")[1], name.encode())[1])
"""


def test_a_context_that_another_thread_ends_meanwhile(run):
    """Who reads back gets what was there, and leaves nothing."""

    def body():
        seen = []
        for _ in range(40):
            gate = threading.Event()
            ctx = stf.context()
            x = ctx.logical_data_full((), 2.0)
            ctx.launch_kernel(slow_kernel(gate), (1, 1), x.rw())
            threads = [
                threading.Thread(target=lambda c=ctx, x=x: seen.append(c.wait(x))),
                threading.Timer(0.003, gate.set),
            ]
            threads[0].start()
            time.sleep(0.002)
            threads.append(threading.Thread(target=ctx.finalize))
            for thread in threads[1:]:
                thread.start()
            for thread in threads:
                thread.join()
            del ctx, x, threads
        assert seen == [2.0] * 40, seen
        nothing_left()

    run(body, before=SLOW)


def test_streams_that_were_given_back_meanwhile_begin_anew(run):
    """Who waited for the work of a context that another thread ended knows nothing of the next one's."""

    def body():
        shared, early = stf.Resources(), []

        def end_and_go_on(ctx, waiter):
            ctx.finalize()
            with stf.context(resources=shared) as after:
                gate = threading.Event()
                y = after.logical_data_full((), 0.0)
                after.launch_kernel(slow_kernel(gate), (1, 1), y.rw())
                waiter.join()
                timer = threading.Timer(0.02, gate.set)
                timer.start()
                after.synchronize()
                early.append(not gate.is_set())

        for _ in range(60):
            gate = threading.Event()
            ctx = stf.context(resources=shared)
            x = ctx.logical_data_full((), 2.0)
            for _ in range(200):
                add(x)
            ctx.launch_kernel(slow_kernel(gate), (1, 1), x.rw())
            waiter = threading.Thread(target=lambda c=ctx, x=x: c.wait(x))
            waiter.start()
            time.sleep(0.005)
            other = threading.Thread(target=end_and_go_on, args=(ctx, waiter))
            other.start()
            time.sleep(0.005)
            del x
            gate.set()
            other.join()
        assert early == [False] * 60, early.count(True)
        shared.close()

    run(body, before=SLOW)


@pytest.mark.parametrize("call", ["cuMemcpyAsync:4+", "cuEventRecord:9+", "cuEventSynchronize:1+"])
def test_a_device_that_is_lost_is_told_to_who_reads_back(run, call):
    def body():
        ctx = stf.context()
        scalar = ctx.logical_data_full((), 0xFFF5A3C7, "u4")  # which is waited for by the event
        with pytest.raises((stf.DriverError, stf.TaskFailedError), match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            for _ in range(40):
                add(scalar, 0)
                assert ctx.wait(scalar) == 0xFFF5A3C7
        with pytest.raises((stf.DriverError, stf.TaskFailedError), match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            ctx.wait(scalar)
        try:
            ctx.finalize()
        except stf.DriverError:
            pass

    run(body, FAKECUDA_FAIL=f"{call}:CUDA_ERROR_ILLEGAL_ADDRESS")
