"""The kernel of scalars: it is all that scalar data need; a device loads it once."""

from __future__ import annotations

import pytest

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821
PRELUDE = "import sys; import fakecuda, numpy as np, pytest, stf\n"


def test_loops_and_branches_need_no_array_library(run):
    """And no memory, no capture and no second kernel."""

    def body():
        sys.modules["cupy"] = None
        with stf.context(devices="cuda:0") as ctx:
            a, b, n = (ctx.logical_data(np.array(value)) for value in (1.0, 3.0, 0))
            with ctx.while_loop((a < 100.0) & ~(b > 50.0), max_iterations=50) as loop:
                a.assign(a * 2)
                with ctx.if_(a > 16.0):
                    b.assign(b + a / 4)
                n.assign(n + 1)
            assert (float(a), float(b), int(n), loop.iterations) == (128.0, 59.0, 7, 7)
            fakecuda.reset_calls()
            b.assign(np.sqrt(a / 2) - 1)
            assert float(b) == 7.0
            assert fakecuda.calls("cuLaunchKernel") == 1 and fakecuda.calls("cuModuleLoadData") == 0
            with pytest.raises(ImportError):
                b.assign(np.exp(a))
                float(b)
            b.accept()

    run(body)


def test_expressions_at_every_place(run):
    def body():
        import cupy
        from cuda.bindings import driver

        driver.cuInit(0)

        class Own:
            is_green = True
            handle = driver.cuCtxCreate(None, 0, 1)[1]

        driver.cuCtxPopCurrent()
        with stf.context(devices="cuda:0,1") as ctx:
            a, b = ctx.logical_data(np.array(3.0)), ctx.logical_data(np.array(0.0))
            stream = stf.exec_place.cuda_stream(cupy.cuda.Stream(non_blocking=True))
            for place in (ctx.devices[1], stf.exec_place.from_context(Own()), stf.exec_place.host(), stream):
                with place:
                    b.assign(b + a)
            assert float(b) == 12.0

    run(body)


@pytest.mark.parametrize("mode", ["RELAXED", "THREAD_LOCAL", "GLOBAL"])
def test_expressions_on_a_stream_that_is_captured(run, mode):
    """In the stricter modes, too, which refuse to allocate and to load what is not there."""

    def body():
        import cupy
        from cuda.bindings import driver

        def ok(result):
            assert int(result[0]) == 0, result
            return result[1] if len(result) > 1 else None

        s, X = cupy.cuda.Stream(non_blocking=True), np.array(5.0)
        ok(driver.cuStreamBeginCapture(s.ptr, getattr(driver.CUstreamCaptureMode, f"CU_STREAM_CAPTURE_MODE_{MODE}")))
        with stf.context(stream=s) as ctx:
            x = ctx.logical_data(X)
            x.assign(x * 2 + 1)
            with ctx.while_loop(x < 1000.0):
                x.assign(x * 3)
        executable = ok(driver.cuGraphInstantiate(ok(driver.cuStreamEndCapture(s.ptr)), 0))
        for expected in (2673.0, 5347.0):
            ok(driver.cuGraphLaunch(executable, s.ptr))
            s.synchronize()
            assert expected == X

    run(body, f"MODE = {mode!r}\n")
