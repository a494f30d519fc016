"""Arrays that are registered in what is recorded, on the stand-in: they are their user's between launches."""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821
from __future__ import annotations


def test_arrays_are_copied_again_when_they_are_their_users(run):
    """Those of data that the user holds, and of tiles of such data, are not."""

    def body():
        X, W = np.zeros(8), np.ones(8)
        with stf.context(devices="cuda:0") as ctx:
            lX, lW = ctx.logical_data(X), ctx.logical_data(W)
            tiles = lX.tiles((2,))
            parts, weights = ctx.task_graph(), ctx.task_graph()
            with parts:
                for tile in tiles:
                    add(tile)
            del tile, tiles
            with weights:
                add(lW)
            parts.launch(), weights.launch()
            ctx.synchronize()
            fakecuda.reset_calls()
            for _ in range(5):
                parts.launch(), weights.launch()
            assert calls(*COPIES) == 0
            del lW
            ctx.synchronize()
            fakecuda.reset_calls()
            for k in range(5):
                W[:] = 10 * k
                weights.launch()
                ctx.synchronize()
                assert W.tolist() == [10.0 * k + 1] * 8
            assert calls(*COPIES) == 10
        assert X.tolist() == [6.0] * 8
        nothing_left()

    run(body)


def test_pinned_memory_of_a_graph_that_the_collector_frees(run):
    """It is not cleared before it has said that its memory is free again."""

    def body():
        import gc
        import sys

        from stf._drivers.cuda.stages import Stage, StageHold

        told = []
        sys.unraisablehook = told.append
        circle = [StageHold(Stage(16))]
        circle.append(circle)
        del circle
        gc.collect()
        assert not told

    run(body)


def test_streams_that_are_gone_or_captured_hold_no_launch_up(run):
    """A stream that was given by its address is asked once; one that is captured has nothing that runs."""

    def body():
        import gc

        import cupy
        from cuda.bindings import driver

        relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        here = stf.data_place.device(0)
        with stf.context(devices="cuda:0") as ctx:
            for how in ("object", "address"):
                a, s = cupy.zeros(8), cupy.cuda.Stream(non_blocking=True)
                g = ctx.task_graph()
                with g:
                    stream = s if how == "object" else s.ptr
                    add(ctx.logical_data(stf.view(a.data.ptr, 8, float, data_place=here, owner=a, stream=stream)))
                g.launch()
                ctx.synchronize()
                s.synchronize()
                del s, stream
                gc.collect()
                for _ in range(3):
                    g.launch()
                ctx.synchronize()
                assert a.get().tolist() == [4.0] * 8
                g.close()
            a, s = cupy.zeros(8), cupy.cuda.Stream(non_blocking=True)
            g = ctx.task_graph()
            with g:
                add(ctx.logical_data(a))
            g.launch()
            ctx.synchronize()
            with s:
                assert int(driver.cuStreamBeginCapture(s.ptr, relaxed)[0]) == 0
                g.launch()
                code, graph = driver.cuStreamEndCapture(s.ptr)
                assert int(code) == int(driver.cuGraphDestroy(graph)[0]) == 0
            ctx.synchronize()
            assert a.get().tolist() == [2.0] * 8

    run(body)


def test_what_an_object_with_dlpack_is_given_comes_before_the_launch(run):
    """It is asked at each launch to let a stream wait for its content."""

    def body():
        import ctypes

        import cupy

        from stf.interop import dlpack

        class Producer:
            def __init__(self, array):
                self.array = array
                self.asked = []

            def __dlpack_device__(self):
                return dlpack.CUDA, 0

            def __dlpack__(self, *, stream=None, max_version=None):
                self.asked.append(stream)
                memory = (ctypes.c_char * self.array.nbytes).from_address(self.array.data.ptr)
                raw = np.ndarray(self.array.shape, self.array.dtype, memory)
                return dlpack.capsule_of(raw, raw.dtype, self.__dlpack_device__(), max_version)

        with stf.context(devices="cuda:0") as ctx:
            a = Producer(cupy.zeros(8))
            g = ctx.task_graph()
            with g:
                add(ctx.logical_data(a))
            g.launch()
            ctx.synchronize()
            before = len(a.asked)
            for _ in range(3):
                g.launch()
            ctx.synchronize()
            assert len(a.asked) == before + 3 and all(stream > 2 for stream in a.asked[before:]), a.asked
            assert a.array.get().tolist() == [4.0] * 8

    run(body)


def test_an_object_that_does_not_say_its_stream_any_more_is_told_of(run):
    """Its library has given it up, perhaps: the launch goes on, and what it does not wait for is logged."""

    def body():
        import logging

        import cupy

        class Interface:
            def __init__(self, array):
                self.array = array
                self.deleted = False

            @property
            def __cuda_array_interface__(self):
                if self.deleted:
                    raise RuntimeError("the array was deleted")
                return self.array.__cuda_array_interface__

        class Asking(logging.Handler):
            """Which asks the context for a content."""

            def emit(self, record):
                told.append((record.getMessage(), float(lS)))

        told = []
        with stf.context(devices="cuda:0") as ctx:
            a, lS = Interface(cupy.zeros(8)), ctx.logical_data(np.array(3.0))
            logging.getLogger("stf").addHandler(Asking())
            g = ctx.task_graph()
            with g:
                add(ctx.logical_data(a))
            g.launch()
            ctx.synchronize()
            assert not told
            a.deleted = True
            for _ in range(3):
                g.launch()
            ctx.synchronize()
            assert a.array.get().tolist() == [4.0] * 8
        ((message, content),) = told
        assert "Interface does not say any more on which stream" in message and content == 3.0

    run(body)
