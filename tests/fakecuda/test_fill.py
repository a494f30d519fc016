"""Fills and copies on the stand-in for CUDA: the driver's own, without an array library."""

from __future__ import annotations

import pytest

# The bodies below run elsewhere, with the names of the preludes.
# ruff: noqa: F821


def prelude():
    MEMSETS = [f"cuMemset{kind}Async" for kind in ("D8", "D16", "D32", "D2D8", "D2D16", "D2D32")]

    def memsets():
        return {name[8:-5]: fakecuda.calls(name) for name in MEMSETS if fakecuda.calls(name)}

    def of_a_library():
        """Calls that the stand-in for CuPy makes in each operation, and our driver in none."""
        return calls("cuCtxGetDevice", "cuMemAlloc")


@pytest.fixture
def program(run):
    return lambda function, **settings: run(function, prelude, **settings)


def test_fills_of_every_kind(program):
    def body():
        pair = np.dtype([("a", np.int32), ("b", np.float64)])
        odd = np.dtype([("a", np.uint8), ("b", np.uint8), ("c", np.uint8)])
        cases = [
            (np.float64, 0, {"D8": 1}),
            (np.bool_, True, {"D8": 1}),
            (np.int8, -3, {"D8": 1}),
            (np.int32, -1, {"D8": 1}),
            (np.float16, 1.5, {"D16": 1}),
            (np.uint32, 0x12341234, {"D16": 1}),
            (np.float32, 1.5, {"D32": 1}),
            (np.int64, 0x100000001, {"D32": 1}),
            (np.float64, 1.5, {"D2D32": 2}),
            (np.complex64, 1 + 2j, {"D2D32": 2}),
            (np.complex128, 1 + 2j, {"D2D32": 4}),
            (np.complex128, 3, {"D2D32": 3}),
            (np.datetime64, np.datetime64("2020-01-02"), {"D2D32": 1}),
            (pair, (7, 1.5), {"D2D32": 3}),
            (odd, (1, 2, 2), {"D2D8": 2}),
        ]
        with stf.context() as ctx:
            for dtype, value, expected in cases:
                dtype = np.dtype("datetime64[D]") if dtype is np.datetime64 else np.dtype(dtype)
                lX = ctx.logical_data_empty((5, 7), dtype)
                fakecuda.reset_calls()
                ctx.fill(lX, value)
                found = memsets()
                if dtype.kind == "M":
                    assert sum(found.values()) in (1, 2)
                else:
                    assert found == expected, (dtype, found)
                assert of_a_library() == 0
                content = ctx.wait(lX)
                assert content.tobytes() == np.full((5, 7), np.array(value, dtype)).tobytes(), (dtype, content)
            assert ctx.wait(ctx.logical_data_zeros(4)).tolist() == [0.0] * 4
            assert ctx.wait(ctx.logical_data_ones(4, np.int16)).tolist() == [1] * 4
            assert ctx.wait(ctx.logical_data_full((), 2.5)) == 2.5
            assert ctx.wait(ctx.logical_data_full((3, 0), 2.5)).shape == (3, 0)
        nothing_left()

    program(body, FAKECUDA_SEED="1")


def test_fills_of_strided_arrays_leave_the_gaps(program):
    def body():
        import gc

        views = [
            (lambda a: a[::2, 1:5], 1),
            (lambda a: a[1::3, ::-2], 1.5),
            (lambda a: a.T[2:4], 2),
            (lambda a: a[3], 1.5),
            (lambda a: a[:, 3], 1.5),
            (lambda a: a[4:4], 1.5),
            (lambda a: a[::-1, ::3], 1 / 3),
        ]
        for view, value in views:
            for dtype in (np.float64, np.float32, np.complex128, np.int8, np.float16):
                expected = np.arange(48).reshape(8, 6).astype(dtype)
                on_device = cupy.array(expected)
                view(expected)[...] = np.asarray(value, dtype)
                with stf.context() as ctx:
                    ctx.fill(ctx.logical_data(view(on_device)), np.asarray(value, dtype)[()])
                assert (on_device.get() == expected).all(), (dtype, value)
        del on_device, ctx
        gc.collect()
        nothing_left()

    program(body)


def test_where_and_what_is_filled(program):
    def body():
        host, device, managed = stf.data_place.host(), stf.data_place.device, stf.data_place.managed()
        with stf.context() as ctx:
            for where, valid in ((host, "host"), (device(1), "device(1)"), (managed, "managed")):
                lX = ctx.logical_data_full(9, 1.5, where=where)
                assert repr(lX).endswith(f"valid on {valid}>"), repr(lX)
                assert (ctx.wait(lX) == 1.5).all()
            lX = ctx.logical_data_full(9, 1.5)
            add.on(1)(lX)  # which is where it is filled
            assert repr(lX).endswith("valid on device(1)>") and (ctx.wait(lX) == 2.5).all()
            lX = ctx.logical_data_full(9, 2.5, exec_place=stf.exec_place.device(1))
            assert repr(lX).endswith("valid on device(1)>")
            lX = ctx.logical_data_full(9, 2.5, where=host, exec_place=0)
            assert (ctx.wait(lX) == 2.5).all()
            fakecuda.reset_calls()
            lY = ctx.logical_data_empty((2, 3))
            ctx.fill(lY, np.arange(3.0))  # which is broadcast
            assert memsets() == {} and of_a_library() == 0
            assert (ctx.wait(lY) == np.arange(3)).all()
            with pytest.raises(ValueError):
                ctx.fill(lY, np.arange(4.0))
            wide = np.dtype([(f"f{i}", np.float64) for i in range(40)])
            value = np.array(tuple(1.0 + i / 3 for i in range(40)), wide)[()]
            assert ctx.wait(ctx.logical_data_full(5, value, wide)).tobytes() == np.full(5, value).tobytes()
        nothing_left()

    program(body, FAKECUDA_SEED="2")


def test_copies_are_the_drivers(program):
    def body():
        X, Y = np.arange(24.0).reshape(4, 6), np.zeros((6, 4), order="F").T
        with stf.context() as ctx:
            lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
            lZ = ctx.logical_data_empty((4, 6), np.float32)
            on_device = ctx.logical_data(cupy.zeros((8, 6))[::2])
            ctx.prefetch(lX, stf.data_place.device(0))
            ctx.prefetch(lY, stf.data_place.device(0))
            fakecuda.reset_calls()
            ctx.copy(lX, lY)
            ctx.copy(lY, on_device)
            assert of_a_library() == 0 and calls(*COPIES) == 2
            ctx.copy(lX, lZ)  # another type: converted
            assert of_a_library() > 0
            assert (ctx.wait(lZ) == X).all() and (ctx.wait(on_device) == X).all()
            with stf.exec_place.device(1):
                ctx.copy(lX, ctx.logical_data_empty((4, 6)))
            ctx.copy(ctx.logical_data_zeros((0, 2)), ctx.logical_data_empty((0, 2)))
            del on_device
        assert (X == Y).all()
        nothing_left()

    program(body, FAKECUDA_SEED="3")


def test_what_waits_for_the_host_is_queued(program):
    def body():
        gate = threading.Event()
        with stf.context() as ctx:
            lX, lY = ctx.logical_data_zeros(6), ctx.logical_data_zeros(6)

            @ctx.host_launch(lX.rw(), lY.rw())
            def hold(x, y):
                assert gate.wait(20)
                x += 1
                y += 1

            fakecuda.reset_calls()
            ctx.copy(lX, lY)
            lZ = ctx.logical_data_empty(6)
            ctx.copy(lY, lZ)
            ctx.fill(lX, 3.5)
            ctx.fill(lY, 4.0)
            assert memsets() == {} and not gate.is_set()  # nothing blocked, nothing was begun
            gate.set()
            assert (ctx.wait(lX) == 3.5).all() and (ctx.wait(lY) == 4).all() and (ctx.wait(lZ) == 1).all()
            assert memsets() == {"D2D32": 4}
        nothing_left()

    program(body, FAKECUDA_SEED="5")


def test_partial_results_begin_as_the_neutral_element(program):
    def body():
        with stf.context() as ctx:
            lS, lM, lN = (ctx.logical_data_full(4, 1.0) for _ in range(3))
            lB = ctx.logical_data_full(4, True)
            own = stf.reducer.define(10.0, lambda a, b: a + b - 10)
            ctx.synchronize()
            for k in range(3):
                fakecuda.reset_calls()
                accesses = [lS.accumulate(stf.reducer.sum), lM.accumulate(stf.reducer.min), lN.accumulate(own)]
                accesses.append(lB.accumulate(stf.reducer.logical_and))
                with ctx.task(stf.exec_place.device(k % 2), *accesses) as t:
                    assert (sum(memsets().values()) >= 4) == (k < 2)  # new ones of each device
                    s, m, n, b = t.arrays()
                    s += k
                    m[0] = -k
                    n += 1
                    b[1] = False
            assert (ctx.wait(lS) == 4).all()
            assert ctx.wait(lM).tolist() == [-2, 1, 1, 1]
            assert (ctx.wait(lN) == 4).all()
            assert ctx.wait(lB).tolist() == [True, False, True, True]
            del s, m, n, b, t
        nothing_left()

    program(body, FAKECUDA_SEED="6")


def test_a_body_on_the_host_begins_with_the_neutral_element_of_a_device(program):
    def body():
        with stf.context() as ctx:
            lS = ctx.logical_data_full(4, 1.0, where=stf.data_place.device(0))
            ctx.synchronize()
            for k in range(3):  # the host's stream is no CUDA stream
                fakecuda.reset_calls()
                access = lS.accumulate(stf.reducer.sum, stf.data_place.device(1))

                @ctx.host_launch(access)
                def give(s, k=k):
                    s += k

                ctx.synchronize()
                assert sum(memsets().values()) == 0
            assert (ctx.wait(lS) == 4).all()
            del give, access
        nothing_left()

    program(body, FAKECUDA_SEED="7")


def test_a_fill_that_fails(program):
    def body():
        ctx = stf.context()
        lX = ctx.logical_data_empty(6)
        with pytest.raises(stf.DriverError, match="cuMemsetAsync"):
            ctx.fill(lX, 0)
        ctx.fill(lX, 1)  # the next one is fine
        assert (ctx.wait(lX) == 1).all()
        ctx.finalize()
        nothing_left()

    program(body, FAKECUDA_FAIL="cuMemsetD8Async:1:CUDA_ERROR_INVALID_VALUE")
