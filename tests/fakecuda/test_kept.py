"""A context on CUDA leaves its streams, threads and pools to the next one on the same devices."""

from __future__ import annotations

import pytest

# The bodies below run elsewhere, with the names of the prelude of conftest.py.
# ruff: noqa: F821


def test_the_next_context_has_the_streams_and_pools_of_the_last(run):
    @run
    def body():
        made = "cuStreamCreateWithPriority", "cuMemPoolCreate", "cuDevicePrimaryCtxRetain", "cuMemPoolSetAccess"

        def work():
            with stf.context(devices="cuda:0,1") as ctx:
                data = [ctx.logical_data(np.full(4, float(i))) for i in range(8)]
                for i, x in enumerate(data):
                    add.on(i % 2)(x)
                return [x.numpy()[0] for x in data]

        first = work()
        before = calls(*made)
        for _ in range(3):
            assert work() == first == [i + 1.0 for i in range(8)]
        assert calls(*made) == before
        one = stf.context(devices="cuda:0")  # other devices: nothing of it
        assert calls("cuMemPoolCreate") > 2
        one.finalize()
        nothing_left()


def test_two_contexts_at_a_time_share_nothing(run):
    @run
    def body():
        from stf.devices.kept import kept

        with stf.context(devices="cuda:0") as one, stf.context(devices="cuda:0") as other:
            assert one._driver is not other._driver
            x, y = one.logical_data(np.zeros(4)), other.logical_data(np.zeros(4))
            add(x), add(y, 2)
            assert x.numpy().tolist() == [1] * 4 and y.numpy().tolist() == [2] * 4
        drivers = [driver for _, driver in kept.drivers]
        assert len(drivers) == 2
        with stf.context(devices="cuda:0") as ctx:
            assert ctx._driver in drivers and len(kept.drivers) == 1
        nothing_left()


def test_what_may_not_be_used_again_is_closed(run):
    @run
    def body():
        from stf.devices.kept import kept

        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data_full(4, 1.0)
            add(x)
            driver = ctx._driver
        assert kept.drivers == [(kept.drivers[0][0], driver)]
        drivers = [driver]
        for limit in (0, 1 << 20):  # made of something else
            stf.config.graph_cache = limit
            with stf.context(devices="cuda:0") as ctx:
                assert ctx._driver not in drivers
                drivers.append(ctx._driver)
        assert [known for _, known in kept.drivers] == drivers[1:]
        assert driver.leaks()[:2] == (0, 0)  # the oldest went
        nothing_left()


def test_a_lost_device_leaves_no_driver(run):
    def body():
        from stf.devices.kept import kept

        with pytest.raises(stf.Error), stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(1 << 20))
            for _ in range(20):
                add(x)
            x.numpy()
        assert kept.drivers == []

    run(body, FAKECUDA_FAIL="work:3:CUDA_ERROR_ILLEGAL_ADDRESS")


def test_a_fork_has_no_driver_of_its_parents(run):
    @run
    def body():
        from stf.devices.kept import kept

        with stf.context(devices="cuda:0") as ctx:
            add(ctx.logical_data(np.zeros(4)))
        assert len(kept.drivers) == 1
        child = os.fork()
        if child == 0:
            try:
                stf.context(devices="cuda:0")
            except stf.DriverError as error:
                os._exit(0 if not kept.drivers and "the child of a fork" in str(error) else 2)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        nothing_left()


def test_streams_of_the_users_places_stay_theirs(run):
    @run
    def body():
        for _ in range(2):
            theirs = cupy.cuda.Stream(non_blocking=True)
            with stf.context(devices="cuda:0") as ctx:
                x = ctx.logical_data(np.zeros(4))
                add.on(stf.exec_place.cuda_stream(theirs))(x)
                add(x)
                assert x.numpy().tolist() == [2] * 4
            del theirs
        nothing_left()


def test_a_context_that_was_traced_leaves_no_driver(run):
    """Its times can be asked for later, and would grow from context to context."""

    @run
    def body():
        from stf.devices.kept import kept

        with stf.context(devices="cuda:0", observe="trace") as ctx:
            add(ctx.logical_data(np.zeros(4)))
        assert kept.drivers == []
        assert any(e.get("name") == "add" for e in ctx.trace()["traceEvents"])
        del ctx
        nothing_left()


def test_a_driver_that_may_still_work_is_closed(run):
    @run
    def body():
        from stf.devices.kept import kept

        with stf.context(devices="cuda:0") as ctx:
            driver = ctx._driver
            add(ctx.logical_data(np.zeros(4)))
            driver.stream_create(0)  # as where the end of a context was interrupted
        assert kept.drivers == [] and driver.leaks() == (0, 0, 0, 0)
        with stf.context(devices="cuda:0") as ctx:
            ctx._driver.errors.append(ValueError("of a worker"))
        assert kept.drivers == []
        nothing_left()


def test_the_next_context_waits_for_no_graph_of_the_last(run):
    """Memory of the host that graphs wrote is known by its address, where there may be other arrays by now."""

    @run
    def body():
        def look(x):
            pass

        def use(x, with_graph):
            before = calls("cuStreamSynchronize")
            with stf.context(devices="cuda:0") as ctx:
                lx = ctx.logical_data(x)
                if with_graph:
                    with ctx.task_graph() as graph:
                        add(lx)
                        ctx.host_launch(lx.read())(look)
                    graph.launch(), graph.launch()
                else:
                    add(lx)
            return calls("cuStreamSynchronize") - before

        x, other = np.zeros(64), np.zeros(64)
        use(x, with_graph=True)
        assert use(x, with_graph=False) == use(other, with_graph=False)
        assert x[0] == 3 and other[0] == 1
        nothing_left()


def test_a_task_is_not_blamed_for_a_fault_between_two_contexts(run):
    @run
    def body():
        from cuda.bindings import driver

        from stf.devices.kept import kept

        with stf.context(devices="cuda:0") as ctx:
            add(ctx.logical_data(np.zeros(4)))
        driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
        memory = driver.cuMemAlloc(64)[1]
        fakecuda.reset_calls("work:1:CUDA_ERROR_ILLEGAL_ADDRESS")
        driver.cuMemsetD8Async(memory, 0, 64, 0)
        assert driver.cuStreamSynchronize(0)[0]
        with pytest.raises(stf.DriverError) as told:
            stf.context(devices="cuda:0")
        assert "task 'add'" not in str(told.value) and kept.drivers == []


def test_a_context_counts_its_own_graphs(run):
    @run
    def body():
        def work():
            with stf.context(devices="cuda:0") as ctx:
                x = ctx.logical_data(np.zeros(4))
                with ctx.task_graph() as graph:
                    add(x), add(x)
                graph.launch(), graph.launch()
            return ctx.statistics().graphs_made

        assert work() == work() > 0
        nothing_left()


def test_who_lacks_memory_gets_that_of_drivers_at_rest(run):
    def body():
        def use(devices):
            with stf.context(devices=devices) as ctx:
                x = ctx.logical_data(np.zeros(5 << 17))  # 5 MiB of 8
                add(x)
                assert x.numpy()[0] == 1

        use("cuda:0")
        use("cuda:0,1")  # another driver, whose pools are empty
        use("cuda:0")
        nothing_left()

    run(body, FAKECUDA_MEMORY=str(8 << 20))


def test_without_the_setting_none_rests_any_more(run):
    @run
    def body():
        from stf.devices.kept import kept

        with stf.context(devices="cuda:0"):
            pass
        assert len(kept.drivers) == 1
        stf.config.reuse_devices = False
        with stf.context(devices="cuda:0"):
            assert kept.drivers == []
        assert kept.drivers == []
        nothing_left()
