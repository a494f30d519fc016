"""STF_VALIDATE=1 names launches on CUDA's default streams, as a source tells of them."""
# ruff: noqa: F821

from __future__ import annotations

PRELUDE = """
import ctypes, gc, threading
import numpy as np
import pytest
import fakecuda, stf
from cuda.bindings import driver
from stf.interop import cupti

cupti.subscription.source = fakecuda.Launches()

@ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
def code(parameters, _):
    pass

assert not fakecuda.add_kernel("nothing", "", ctypes.cast(code, ctypes.c_void_p).value)

def launch(stream=0):
    error, module = driver.cuModuleLoadData(b".visible .entry nothing")
    error, function = driver.cuModuleGetFunction(module, b"nothing")
    assert not error, error
    (error,) = driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, driver.CUstream(int(stream)), None, 0)
    assert not error, error

NAMED = r"task {} launched on CUDA's default stream \\(body.py:{}\\), which nothing orders with the task's data"
"""


def test_a_block_is_named_with_the_line(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            line = 0
            with pytest.raises(stf.AccessError, match=NAMED.format("'stray'", r"\d+")) as caught:
                with ctx.task(x.rw(), name="stray") as t:
                    launch()
                    line = launch.__code__.co_firstlineno + 4
            assert f"body.py:{line}" in str(caught.value)
            with ctx.task(y.rw()) as t:
                launch(t.stream_ptr())
            launch()  # between tasks it is the caller's own
            assert y.numpy().tolist() == [0, 0, 0, 0]
            with pytest.raises(stf.TaskFailedError, match="stray"):
                x.numpy()
            x.accept()

    run(body, STF_VALIDATE="1")


def test_bodies_of_functions_recorded_ones_and_graphs(run):
    def body():
        @stf.task
        def stray(x: stf.ReadWrite):
            launch()

        @stf.task
        def fine(x: stf.ReadWrite, stream: stf.Stream):
            launch(stream.__cuda_stream__()[1])

        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            fine(y)
            with pytest.raises(stf.TaskFailedError, match=NAMED.format("'stray'", r"\d+")):
                stray(x)
            x.accept()
            with pytest.raises(stf.Error, match=NAMED.format("'stray'", r"\d+")):
                with ctx.task_graph() as graph:
                    stray(y)
            with pytest.raises(stf.Error, match=NAMED.format("'block'", r"\d+")):
                with ctx.task_graph() as graph:
                    with ctx.task(y.rw(), name="block") as t:
                        t.stream_ptr()
                        launch()
            with ctx.task_graph() as graph:
                fine(y)
            graph.launch()
            assert y.numpy().tolist() == [0, 0, 0, 0]
        with stf.context(devices="cuda:0", use_graph=True) as ctx:
            x = ctx.logical_data(np.zeros(4))
            with pytest.raises(stf.AccessError, match=NAMED.format("'block'", r"\d+")):
                with ctx.task(x.rw(), name="block") as t:
                    t.stream_ptr()
                    launch()
            x.accept()
            fine(x)

    run(body, STF_VALIDATE="1")


def test_who_is_not_meant(run):
    """Other threads, bodies on the host, contexts on a default stream, and programs that don't ask."""

    def body():
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(4))
            with ctx.task(x.rw()) as t:
                other = threading.Thread(target=launch_there)
                other.start()
                other.join()
            with ctx.task("host", x.rw()):
                launch_there()
            with pytest.raises(ValueError):
                with ctx.task(x.rw()):
                    raise ValueError("meant")
            x.accept()
            launch_there()
            with ctx.task(x.rw()):
                pass
        for stream in (1, 2):
            with stf.context(stream=stream, devices="cuda:0") as ctx:
                with ctx.task(ctx.token().rw()) as t:
                    launch(t.stream_ptr())
                    driver.cuStreamSynchronize(t.stream_ptr())  # the kernel is Python's, and takes the GIL

    tools = """
def launch_there():
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    launch()
"""
    run(body, tools, STF_VALIDATE="1")

    def unasked():
        with stf.context(devices="cuda:0") as ctx:
            with ctx.task(ctx.token().rw()):
                launch()
        assert fakecuda.calls("cuLaunchKernel") == 1

    run(unasked)


def test_tasks_on_the_host_and_by_hand_inside_of_others(run):
    """Bodies on the host may use CUDA as they like; what is between a start and an end may be no part of the task."""

    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4)), ctx.logical_data(np.zeros(4))
            with ctx.task(x.rw()):
                with ctx.task("host", y.rw()):
                    launch()
            started = ctx.task(x.rw())
            started.start()
            launch()
            with pytest.raises(stf.AccessError, match=NAMED.format("'block'", r"\d+")):
                with ctx.task(y.rw(), name="block"):
                    launch()
            launch()
            started.end()
            y.accept()

    run(body, STF_VALIDATE="1")


def test_tasks_inside_of_tasks(run):
    """The innermost is named; the other one is watched on when it has ended."""

    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.token(), ctx.token()
            with pytest.raises(stf.AccessError, match=NAMED.format("'outer'", r"\d+")):
                with ctx.task(x.rw(), name="outer"):
                    with pytest.raises(stf.AccessError, match=NAMED.format("'inner'", r"\d+")):
                        with ctx.task(y.rw(), name="inner"):
                            launch()
                    launch()
            x.accept(), y.accept()

    run(body, STF_VALIDATE="1")


def test_where_nobody_tells_it_is_said_once(run):
    def body():
        import logging

        class Taken:
            def begin(self, told):
                return "a profiler may hold CUPTI"

        told = []
        handler = logging.Handler()
        handler.emit = lambda record: told.append(record.getMessage())
        logging.getLogger("stf").addHandler(handler)
        cupti.subscription.source = Taken()
        with stf.context(devices="cuda:0") as ctx:
            for _ in range(2):
                with ctx.task(ctx.token().rw()):
                    launch()
        (message,) = told
        assert message == ("STF_VALIDATE=1 does not see launches on CUDA's default streams: a profiler may hold CUPTI")

    run(body, STF_VALIDATE="1")


def test_the_stream_is_read_from_the_arguments_of_each_kind_of_launch(run):
    """As CUDA's driver lays them out; what is called back at the end of a launch is not told."""

    def body():
        class Arguments(ctypes.Structure):
            _fields_ = [("function", ctypes.c_void_p), ("sizes", ctypes.c_uint * 7), ("stream", ctypes.c_uint64)]

        class Config(ctypes.Structure):
            _fields_ = [("sizes", ctypes.c_uint * 7), ("stream", ctypes.c_uint64)]

        config, kernel, graph = Config(stream=5), Arguments(stream=3), (ctypes.c_uint64 * 2)(99, 4)
        pointer = ctypes.c_uint64(ctypes.addressof(config))
        pointers = {
            b"cuLaunchKernel": ctypes.addressof(kernel),
            b"cuLaunchCooperativeKernel": ctypes.addressof(kernel),
            b"cuGraphLaunch_ptsz": ctypes.addressof(graph),
            b"cuLaunchKernelEx": ctypes.addressof(pointer),
        }
        told, source = [], cupti.CuptiLaunches()
        source.told = told.append
        for name, address in pointers.items():
            for site in (0, 1):
                source.called(None, 1, 307, ctypes.pointer(cupti.CallbackData(site, name, address)))
        assert told == [3, 3, 4, 5]

    run(body)
