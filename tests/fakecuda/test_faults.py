"""A device that is lost, on the stand-in: everybody is told, nothing hangs, and what is in host memory stays as it is."""

from __future__ import annotations

import pytest

PRELUDE = """
import time
import cupy, numpy as np, stf, fakecuda

@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n

def outcome_of(action):
    try:
        action()
    except (stf.Error, ExceptionGroup) as error:
        return type(error).__name__
    return "fine"

def warm(ctx, X):
    "Data that are on the device; the next work there faults."
    lX = ctx.logical_data(X, name="X")
    add(lX)
    ctx.synchronize()
    fakecuda.reset_calls("work:1:CUDA_ERROR_ILLEGAL_ADDRESS")
    return lX
"""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


@pytest.mark.parametrize("seed", range(3))
def test_every_call_tells_that_the_device_is_lost(run, seed):
    def body():
        ctx = stf.context(devices="cuda:0")
        lX = warm(ctx, np.zeros(50_000))
        outcome_of(lambda: ctx.fill(lX, 3.0))  # told at once, or later
        calls = [ctx.synchronize, ctx.check_errors, lambda: ctx.synchronize(timeout=5), lX.numpy, lX.write_back]
        calls += [lambda: ctx.fence().synchronize(), lambda: add(lX), ctx.finalize]
        assert [outcome_of(call) for call in calls] == ["DriverError"] * len(calls)
        ctx.check_errors()  # it was told, and the context is over

    run(body, FAKECUDA_SEED=str(seed))


@pytest.mark.parametrize("given", ["nothing", "read", "written"])
def test_who_may_have_lost_the_device_is_named_also_if_it_wrote_nothing(run, given):
    def body():
        ctx = stf.context(devices="cuda:0")
        lX = warm(ctx, np.zeros(50_000))
        accesses = {"nothing": [], "read": [lX.read()], "written": [lX.rw()]}[GIVEN]
        with ctx.task(*accesses, name="culprit"):
            cupy.zeros(8)[...] = 1
        try:
            ctx.synchronize()
        except stf.DriverError as error:
            assert error.tasks[0].startswith("task 'culprit' at "), error.tasks
        else:
            raise AssertionError("the device was not lost")
        try:  # at exit nobody would hear of it, and the program would end with 1
            ctx.finalize()
        except stf.DriverError:
            pass

    run(body, f"GIVEN = {given!r}\n")


@pytest.mark.parametrize("seed", range(8))
def test_no_body_on_the_host_works_on_what_a_fault_left(run, seed):
    def body():
        X, seen = np.full(50_000, 7.0), []

        def look(x):
            seen.append(x[0])
            x += 1

        ctx = stf.context(devices="cuda:0")
        lX = warm(ctx, X)
        told = [outcome_of(lambda: ctx.fill(lX, 3.0)), outcome_of(lambda: ctx.host_launch(lX.rw())(look))]
        told += [outcome_of(ctx.synchronize), outcome_of(ctx.finalize)]
        assert told[2:] == ["DriverError"] * 2, told
        assert seen == [] and set(X) == {7.0}, (seen, told, X[0])

    run(body, FAKECUDA_SEED=str(seed))


@pytest.mark.parametrize("call", ["write_back", "numpy", "release", "accept"])
@pytest.mark.parametrize("seed", range(4, 8))
def test_who_waits_for_bodies_behind_a_fault_is_told(run, seed, call):
    """Where the host goes on to submit, and the bodies have yet to find out."""

    def body():
        ctx = stf.context(devices="cuda:0")
        lX = warm(ctx, np.zeros(50_000))

        def launch():
            ctx.host_launch(lX.rw())(lambda x: x.__iadd__(1))

        outcome_of(lambda: ctx.fill(lX, 3.0))
        outcome_of(launch)
        time.sleep(0.1)  # until the fault is there; nothing tells that but what is tested
        outcome_of(lambda: add(lX))
        outcome_of(launch)
        told = outcome_of(getattr(lX, CALL))
        assert CALL in ("release", "accept") or told in ("DriverError", "TaskFailedError"), told
        assert outcome_of(ctx.finalize) == "DriverError"

    run(body, f"CALL = {call!r}\n", FAKECUDA_SEED=str(seed))


@pytest.mark.parametrize("thread", ["0", "1"])
@pytest.mark.parametrize("call", ["cuEventCreate", "cuEventQuery"])
def test_nothing_is_freed_under_work_after_a_call_that_failed_by_chance(run, call, thread):
    """Such a driver makes no waits any more; CUDA itself goes on with what it was given."""

    def body():
        import ctypes

        library, usleep = fakecuda.library, ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
        X, Y = np.ones(20_000), np.ones(20_000)  # pinned, so that the copy home is queued
        with pytest.raises(stf.DriverError), stf.context(devices="cuda:0") as ctx:
            lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
            for data in (lX, lY):
                ctx.prefetch(data, stf.data_place.device(0))
            ctx.synchronize()
            with ctx.task(lX.rw()) as t:
                assert library.cuLaunchHostFunc(ctypes.c_void_p(t.stream_ptr()), usleep, ctypes.c_void_p(500_000)) == 0
            ctx.prefetch(lX, stf.data_place.host())
            fakecuda.reset_calls(f"{call}:1")  # an OUT_OF_MEMORY
            ctx.fill(lY, 4.0)
            lY.numpy()
        assert fakecuda.describe() == ""  # of memory that is used after it was freed, for one
        fakecuda.reset_calls("")
        with stf.context(devices="cuda:0") as ctx:
            lX = ctx.logical_data(X)
            add(lX)
            assert lX.numpy()[0] == 2

    run(body, f"import pytest\ncall = {call!r}\n", STF_SUBMIT_THREAD=thread)


def test_what_contexts_on_streams_share_is_renewed_after_a_call_that_failed_by_chance(run):
    def body():
        def use():
            X = np.zeros(4)
            stream = cupy.cuda.Stream(non_blocking=True)
            with stf.context(devices="cuda:0", stream=stream) as ctx:
                ctx.fill(ctx.logical_data(X), 5.0)
            stream.synchronize()
            return X.tolist()

        fakecuda.reset_calls("cuEventCreate:4")
        with pytest.raises(stf.DriverError, match="cuEventCreate"):
            use()
        fakecuda.reset_calls("")
        assert use() == use() == [5.0] * 4
        shared = stf.Resources()
        with stf.context(devices="cuda:0", resources=shared) as ctx:
            driver = ctx._driver
        with stf.context(devices="cuda:0", resources=shared) as ctx:
            assert ctx._driver is driver
        shared.close()

    run(body, "import pytest\n")
