"""Which context is current in a thread after tasks. `tests/multigpu/test_current.py` has devices and streams."""

from __future__ import annotations

import pytest

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


def prelude():

    from cuda.bindings import driver

    def ok(result):
        assert int(result[0]) == 0, result
        return result[1] if len(result) == 2 else result[1:]

    ok(driver.cuInit(0))

    def current():
        return int(driver.cuCtxGetCurrent()[1])

    def own_context(ordinal, stays):
        context = driver.cuCtxCreate(None, 0, ordinal)[1]
        if not stays:
            driver.cuCtxPopCurrent()
        return context

    def on(index):
        return stf.data_place.device(index)


@pytest.fixture
def program(run):
    """``run`` with the names of this module's prelude too."""
    return lambda function, **settings: run(function, prelude, **settings)


def test_the_first_body_on_a_stream_of_the_users_context_is_in_that_context(program):
    def body():
        class Own:
            is_green = True
            handle = own_context(1, False)

        with stf.context(devices="cuda:0,1") as ctx:
            lX, place = ctx.logical_data(np.zeros(4)), stf.exec_place.from_context(Own())
            for _ in range(2):
                with ctx.task(place, lX.rw()) as t:
                    t.stream_ptr()
                    before = current()
                    t.cupy()
                    assert before == current() == int(Own.handle)

    program(body)


def test_the_users_context_is_current_again_after_tasks_on_another_device(program):
    def body():
        own = int(own_context(0, True))
        with stf.context(devices="cuda:0,1") as ctx:
            lX = ctx.logical_data(np.zeros(4))
            for index in (1, 0, 1):
                with ctx.task("host", lX.rw(on(index))) as t:
                    t.cupy()[0][...] += 1
                assert current() == own
            task = ctx.task(stf.exec_place.device(1), lX.rw()).start()
            task.cupy()
            del task
            with pytest.raises(stf.TaskFailedError):
                ctx.synchronize()
            assert current() == own
            lX.accept()

    program(body)


def test_a_body_on_the_host_does_not_bring_device_0_into_use(program):
    def body():
        with stf.context(devices="cuda:1") as ctx:
            X = np.zeros(4)
            lX = ctx.logical_data(X)
            with ctx.task("host", lX.rw(on(1))) as t:
                t.cupy()[0][...] += 1
            assert driver.cuDevicePrimaryCtxGetState(0)[2] == 0 and int(driver.cuCtxGetDevice()[1]) == 1
        assert X.tolist() == [1.0] * 4

    program(body)


def test_what_is_current_after_a_body_where_nobody_uses_device_0(program):
    """The first device of the context; what CUDA's runtime has noted of a device that was set agrees with it."""

    def body():
        assert current() == 0
        lone = int(ok(driver.cuDevicePrimaryCtxRetain(1)))
        ok(driver.cuDevicePrimaryCtxRelease(1))
        with stf.context(devices="cuda:1") as ctx:
            lX = ctx.logical_data(np.zeros(4))
            with ctx.task(lX.rw()) as t:
                t.stream_ptr()  # for what uses no runtime
            assert current() == lone and ok(driver.cuDevicePrimaryCtxGetState(0))[1] == 0
        assert current() == lone and ok(driver.cuDevicePrimaryCtxGetState(1))[1] == 1  # and not a context that is gone
        with stf.context(devices="cuda:1,2") as ctx:
            lX = ctx.logical_data(np.zeros(4))
            for ordinal in (2, 1):
                with ctx.task(stf.exec_place.device(ordinal), lX.rw()) as t:
                    (x,) = t.cupy()
                    with x.device:
                        x += 1
                assert cupy.cuda.Device().id == 1 and current() == lone
            with ctx.task(lX.rw()) as t:
                assert t.place == stf.exec_place.device(1)
            with cupy.cuda.Device(2):
                mine = cupy.zeros(4)
                mine += 1
            assert mine.device.id == 2 and mine.get().tolist() == [1.0] * 4 and lX.numpy().tolist() == [2.0] * 4
        assert ok(driver.cuDevicePrimaryCtxGetState(0))[1] == 0

    program(body, FAKECUDA_DEVICES="3")
