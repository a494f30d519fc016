"""What is current in a thread after tasks: the context, and CuPy's streams on each device."""

from __future__ import annotations

import pytest

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


def prelude():

    import contextlib  # noqa: F401

    from cuda.bindings import driver

    driver.cuInit(0)

    def current():
        return int(driver.cuCtxGetCurrent()[1])

    def streams():
        return [cupy.cuda.get_current_stream(i).ptr for i in range(2)]

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


def test_a_body_that_uses_the_stream_that_was_current_leaves_it_so(program):
    def body():
        @stf.task
        def uses(x: stf.ReadWrite):
            x += 1
            mine.use()

        mine = cupy.cuda.Stream(non_blocking=True)
        for with_block in (False, True):
            with contextlib.ExitStack() as blocks:
                blocks.enter_context(mine) if with_block else mine.use()
                with stf.context(devices="cuda:0,1") as ctx:
                    lX = ctx.logical_data(np.zeros(4))
                    with ctx.task(lX.rw()) as t:
                        t.cupy()[0][...] += 1
                        mine.use()
                    assert streams() == [mine.ptr, 0]
                    uses(lX)
                    assert streams() == [mine.ptr, 0]
                    with ctx.task(lX.rw()) as t:
                        mine.use()
                        t.cupy()[0][...] += 1
                        assert streams() == [t.stream_ptr(), 0]
                    assert streams() == [mine.ptr, 0]
            cupy.cuda.Stream.null.use()

    program(body)


def test_tasks_on_the_host_and_on_devices_overlap_in_any_order(program):
    def body():
        kinds = [(0, on(0)), (1, on(1)), ("host", on(0)), ("host", on(1))]
        with stf.context(devices="cuda:0,1") as ctx:
            data = [ctx.logical_data(np.zeros(4)) for _ in range(2)]
            for before in (0, 1):
                cupy.cuda.Device(before).use()
                for first in kinds:
                    for second in kinds:
                        for order in ((0, 1), (1, 0)):
                            tasks = [ctx.task(p, x.rw(d)) for x, (p, d) in zip(data, (first, second), strict=True)]
                            for task in tasks:
                                task.start().cupy()
                            for i in order:
                                tasks[i].end()
                            assert cupy.cuda.Device().id == before and streams() == [0, 0], (first, second, order)
                with ctx.task("host", data[0].rw(on(1))) as t:
                    t.cupy()
                    cupy.cuda.Device(1 - before).use()
                assert cupy.cuda.Device().id == before

    program(body)


def test_a_dropped_task_on_several_places_leaves_no_stream_current(program):
    def body():
        cupy.cuda.Device(0).use()
        with stf.context(devices="cuda:0,1") as ctx:
            lX = ctx.logical_data(np.zeros(4))
            task = ctx.task(ctx.devices, lX.rw(on(1))).start()
            task.arrays()
            del task
            with pytest.raises(ExceptionGroup, match="3 tasks failed"):
                ctx.synchronize()
            lX.accept()
            assert cupy.cuda.Device().id == 0 and streams() == [0, 0]
        mine = cupy.zeros(3)
        mine += 1

    program(body)


def test_who_ends_the_task_of_a_thread_that_is_gone_stays_on_its_device(program):
    """The operating system gives the new thread the number of the old one."""

    def body():
        seen, box = [], []

        def starts():
            cupy.cuda.Device(1).use()
            box.append(ctx.task(stf.exec_place.device(0), lX.rw()).start())
            box[0].cupy()

        def ends():
            cupy.cuda.Device(0).use()
            box.pop().end()
            seen.append(cupy.cuda.Device().id)

        with stf.context(devices="cuda:0,1") as ctx:
            lX = ctx.logical_data(np.zeros(4))
            for _ in range(5):
                for work in (starts, ends):
                    thread = threading.Thread(target=work)
                    thread.start()
                    thread.join()
        assert seen == [0] * 5

    program(body)
