"""Captures of the user's that go wrong, or that a context is no part of, on the stand-in: nothing else is lost."""

from __future__ import annotations

import pytest

PRELUDE = """
import os
import cupy, fakecuda, numpy as np, pytest, stf
from cuda.bindings import driver

RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED

@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n

def stream():
    cupy.cuda.Device(0).use()
    return cupy.cuda.Stream(non_blocking=True)

def begin(pointer):
    assert not driver.cuStreamBeginCapture(pointer, RELAXED)[0]

def end(pointer):
    code, graph = driver.cuStreamEndCapture(pointer)
    return code.value
"""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


@pytest.mark.parametrize("raises", ["", "1"])
def test_a_body_that_waits_spoils_the_capture_and_no_other_context(run, raises):
    def body():
        s, E = stream(), np.zeros(3)
        before = stf.context(stream=stream())
        e = before.logical_data(E)
        begin(s.ptr)
        with pytest.raises((RuntimeError, stf.TaskFailedError)):
            with stf.context(stream=s) as ctx:
                x = ctx.logical_data_zeros(3)
                with ctx.task(x.rw()) as t:
                    driver.cuStreamSynchronize(t.stream_ptr())
                    if os.environ["RAISES"]:
                        raise RuntimeError("as CuPy says it")
                add(x)
        assert end(s.ptr) == 901
        for _ in range(2):
            X, other = np.zeros(3), stream()
            with stf.context(stream=other) as ctx:
                add(ctx.logical_data(X))
            other.synchronize()
            assert X.tolist() == [1] * 3
        add(e)
        before.finalize()
        cupy.cuda.Device(0).synchronize()
        assert E.tolist() == [1] * 3

    run(body, RAISES=raises)


def test_a_body_that_captures_its_own_stream_and_fails(run):
    def body():
        X, Y = np.zeros(3), np.zeros(3)
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(X), ctx.logical_data(Y)
            add(x)
            add(y)
            with pytest.raises(RuntimeError, match="as CuPy says it"), ctx.task(x.rw()) as t:
                begin(t.stream_ptr())
                driver.cuStreamSynchronize(t.stream_ptr())
                raise RuntimeError("as CuPy says it")
            x.accept()
            for _ in range(40):  # on all lanes
                add(y)
                add(ctx.logical_data_zeros(3))
        assert Y.tolist() == [41] * 3

    run(body)


def test_a_context_that_is_no_part_of_a_capture_says_so(run):
    """Its work would become part of the capture, which could not end then."""

    def body():
        s, own = stream(), cupy.zeros(4)
        X, Y = np.zeros(3), np.zeros(3)
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(X), ctx.logical_data(Y)
            place = stf.exec_place.cuda_stream(s)
            add.on(place)(x)
            ctx.synchronize()
            frozen = ctx.freeze(y, "read", stf.data_place.device(0))
            begin(s.ptr)
            said = "is being captured"
            view = stf.view(own.data.ptr, (4,), "f8", data_place=stf.data_place.device(0), stream=s)
            with pytest.raises(stf.CaptureError, match=said):
                add.on(place)(x)
            with pytest.raises(stf.CaptureError, match=said), s:
                ctx.logical_data(own)
            with pytest.raises(stf.CaptureError, match=said):
                ctx.logical_data(view)
            with pytest.raises(stf.CaptureError, match=said):
                frozen.get(stream=s)
            with pytest.raises(stf.CaptureError, match=said):
                frozen.unfreeze(s)
            with pytest.raises(stf.CaptureError, match=said), s:
                ctx.wait(y, arrays="cupy")
            assert end(s.ptr) == 0
            frozen.unfreeze()
            add.on(place)(x)
            add(y)
            z = ctx.logical_data(own)
            add(z)
        assert X.tolist() == [2] * 3 and Y.tolist() == [1] * 3 and own.get().tolist() == [1] * 4

    run(body)


def test_dlpack_in_a_capture(run):
    """The producer cannot make the capture wait for what comes before it."""

    def body():
        class Producer:
            def __init__(self, array):
                self.array = array

            def __dlpack_device__(self):
                return (2, 0)

            def __dlpack__(self, *, stream=None, **words):
                if stream not in (None, -1):
                    done = driver.cuEventCreate(2)[1]
                    assert not driver.cuEventRecord(done, made_on.ptr)[0]
                    assert not driver.cuStreamWaitEvent(stream, done, 0)[0]
                with stf.context(devices="cuda:0") as ctx, ctx.task(ctx.logical_data(self.array).read()) as t:
                    return t.get_arg_cai(0).__dlpack__(stream=-1, max_version=(1, 0))

        s, made_on, x = stream(), stream(), cupy.zeros(4)
        begin(s.ptr)
        with stf.context(stream=s) as ctx:
            add(ctx.logical_data(Producer(x)))
        code, graph = driver.cuStreamEndCapture(s.ptr)
        assert code == 0
        launchable = driver.cuGraphInstantiate(graph, 0)[1]
        for _ in range(2):
            driver.cuGraphLaunch(launchable, s.ptr)
        s.synchronize()
        assert x.get().tolist() == [2] * 4

    run(body)


def test_a_body_whose_library_tells_nothing_of_captures_runs_between_graphs(run):
    """As cuFFT does, whose error is one of its own; an error of a body that spoils nothing is the body's."""

    def body():
        class LibraryError(Exception):
            pass

        @stf.task
        def wait(x: stf.ReadWrite, stream: stf.Stream):
            if driver.cuStreamSynchronize(int(stream))[0]:
                raise LibraryError("INTERNAL_ERROR (5)")
            x += 1

        @stf.task
        def wrong(x: stf.ReadWrite):
            raise LibraryError("a mistake")

        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(3))
            with ctx.task_graph() as graph:
                add(x)
                wait(x)
                add(x)
            for count in range(1, 4):
                graph.launch()
                assert x.numpy().tolist() == [3.0 * count] * 3
            with pytest.raises(stf.TaskFailedError, match="a mistake"):
                with ctx.task_graph():
                    wrong(x)
        with stf.context(devices="cuda:0", use_graph=True) as ctx:
            x = ctx.logical_data(np.zeros(3))
            wait(x)
            add(x)
            assert x.numpy().tolist() == [2.0] * 3

    run(body)
