"""Places on a GPU: streams and contexts of the user's, green contexts, managed memory, data used where they lie."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import stf

core = pytest.importorskip("cuda.core")
driver = pytest.importorskip("cuda.bindings.driver")

N = 1 << 16
HOST, MANAGED = stf.data_place.host(), stf.data_place.managed()
SOURCE = r"""
extern "C" __global__ void add_one(double *x, long long n) {
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) x[i] += 1;
}
extern "C" __global__ void count_sms(unsigned *seen) {
    unsigned sm;
    asm("mov.u32 %0, %smid;" : "=r"(sm));
    atomicAdd(&seen[sm], 1u);
    for (long long start = clock64(); clock64() - start < 100000;) {}
}
"""


def ok(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]


def current():
    return int(ok(driver.cuCtxGetCurrent()))


@pytest.fixture(scope="module")
def gpu():
    device = core.Device(0)
    device.set_current()
    return device


@pytest.fixture(scope="module")
def kernels(gpu):
    program = core.Program(SOURCE, "c++", core.ProgramOptions(arch=f"sm_{gpu.arch}"))
    module = program.compile("cubin")
    return {name: module.get_kernel(name) for name in ("add_one", "count_sms")}


@pytest.fixture
def ctx():
    with stf.context(devices="cuda:0") as ctx:
        yield ctx


# -- streams -------------------------------------------------------------------------------------------------------


def test_tasks_run_on_a_callers_stream_in_his_order(ctx, gpu, kernels):
    stream = gpu.create_stream()
    place = stf.exec_place.cuda_stream(stream)
    assert place == stf.exec_place.cuda_stream(int(stream.handle)) and place.index == 0
    lX = ctx.logical_data_zeros(N)
    with ctx.task(place, lX.rw()) as t:
        assert t.stream_ptr() == int(stream.handle) and t.place == place
        address = t.get_arg(0)
    config = core.LaunchConfig(grid=64, block=256)
    for _ in range(10):  # his launches and ours take turns, nobody waits
        core.launch(stream, config, kernels["add_one"], address, np.int64(N))
        ctx.launch_kernel(kernels["add_one"], config, lX.rw(), N, place=place)
    with place:
        ctx.launch_kernel(kernels["add_one"], (64, 256), lX.rw(), N)
    assert (ctx.wait(lX) == 21).all()
    stream.sync()


def test_a_launch_behind_a_host_function_stays_in_order(ctx, gpu, kernels):
    stream = gpu.create_stream()
    place = stf.exec_place.cuda_stream(stream)
    lX = ctx.logical_data_zeros(N)
    gate = threading.Event()
    ctx.host_launch(lX.rw())(lambda x: gate.wait(20) and None)
    timer = threading.Timer(0.2, gate.set)
    timer.start()
    ctx.launch_kernel(kernels["add_one"], (64, 256), lX.rw(), N, place=place)
    assert gate.is_set()
    with ctx.task(place, lX.rw()) as t:
        ok(driver.cuMemsetD8Async(t.get_arg(0), 0, 8, t.stream_ptr()))
    timer.join()
    x = ctx.wait(lX)
    assert x[0] == 0 and (x[1:] == 1).all()


def test_streams_of_other_libraries(ctx):
    lX = ctx.logical_data_zeros(N)
    torch = pytest.importorskip("torch")
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Device(0):
        streams = [torch.cuda.Stream(0), cupy.cuda.Stream(non_blocking=True)]
    for stream in streams:
        with ctx.task(stf.exec_place.cuda_stream(stream), lX.rw()) as t:
            x = t.torch()[0]
            assert torch.cuda.current_stream(0).cuda_stream == t.stream_ptr()
            x += 1
    assert (ctx.wait(lX) == 2).all()


# -- contexts ------------------------------------------------------------------------------------------------------


def test_a_context_of_the_drivers(ctx, kernels):
    own = ok(driver.cuCtxCreate(None, 0, 0))
    ok(driver.cuCtxPopCurrent())
    before = current()
    try:
        place = stf.exec_place.from_context(own)
        assert place == stf.exec_place.from_context(int(own)) and place.index == 0
        with stf.context(devices="cuda:0") as inner:
            lX = inner.logical_data_zeros(N)
            with inner.task(place, lX.rw()) as t:
                assert int(ok(driver.cuStreamGetCtx(t.stream_ptr()))) == int(own) == current()
            assert current() == before
            for where in (place, 0, place):
                inner.launch_kernel(kernels["add_one"], (64, 256), lX.rw(), N, place=where)
            inner.fill(lX, 5.0)
            with place:
                inner.fill(lX, 7.0)
                inner.launch_kernel(kernels["add_one"], (64, 256), lX.rw(), N)
            assert (inner.wait(lX) == 8).all()
    finally:
        ok(driver.cuCtxDestroy(own))
    assert current() == before
    with pytest.raises(TypeError, match="CUDA context"):
        stf.exec_place.from_context("primary")
    with pytest.raises(ValueError, match="null"):
        stf.exec_place.from_context(0)


def test_views_of_cupy_leave_a_body_in_the_users_context(ctx):
    pytest.importorskip("cupy")
    own = ok(driver.cuCtxCreate(None, 0, 0))
    ok(driver.cuCtxPopCurrent())
    before = current()
    try:
        with stf.context(devices="cuda:0") as inner:
            lX = inner.logical_data_zeros(N)
            for _ in range(2):
                with inner.task(stf.exec_place.from_context(own), lX.rw()) as t:
                    t.cupy()  # the first one of a stream makes CuPy's object
                    assert int(ok(driver.cuStreamGetCtx(t.stream_ptr()))) == int(own) == current()
            ok(driver.cuCtxSetCurrent(own))
            with inner.task("host", lX.rw(stf.data_place.device(0))) as t:
                t.cupy()
                assert current() == int(own)
            assert current() == int(own)
    finally:
        ok(driver.cuCtxSetCurrent(before or None))
        ok(driver.cuCtxDestroy(own))


def test_the_primary_context_of_cuda_core(ctx, gpu, kernels):
    place = stf.exec_place.from_context(gpu.context)
    lX = ctx.logical_data_zeros(N)
    ctx.launch_kernel(kernels["add_one"], (64, 256), lX.rw(), N, place=place)
    ctx.launch_kernel(kernels["add_one"], (64, 256), lX.rw(), N)
    assert (ctx.wait(lX) == 2).all()
    with pytest.raises(TypeError, match="green context"):
        stf.exec_place.green_ctx(gpu.context)


def test_green_places_have_their_part_of_the_device(ctx, gpu, kernels):
    before = current()
    places = stf.green_places(16, 2)
    assert current() == before and len(set(places)) == 2
    seen = [ctx.logical_data_zeros(256, np.uint32) for _ in range(3)]
    where = [*places, stf.exec_place.device(0)]
    for place, data in zip(where, seen, strict=True):
        ctx.launch_kernel(kernels["count_sms"], (1024, 64), data.rw(), place=place)
    used = [set(np.flatnonzero(ctx.wait(data))) for data in seen]
    assert not used[0] & used[1]
    for place, sms in zip(places, used[:2], strict=True):
        assert 0 < len(sms) <= place.backing_context.resources.sm.sm_count < len(used[2])
    with pytest.raises(stf.PlaceError, match="do not fit"):
        stf.green_places(64, 100)
    assert len(stf.green_places(32)) >= 2


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_libraries_in_a_green_context(ctx, gpu, library):
    pytest.importorskip(library)
    (place,) = stf.green_places(16, 1)
    lX = ctx.logical_data_zeros(N)

    @stf.task(arrays=library)
    def add(x: stf.ReadWrite):
        x += 1

    for k in range(6):
        add.on(place if k % 2 else 0)(lX)
    with ctx.task(place, lX.rw()) as t:
        (x,) = t.arrays(library)
        x[:] = x * 2 + x.sum() * 0
    assert (ctx.wait(lX) == 12).all()


# -- memory --------------------------------------------------------------------------------------------------------


def test_managed_memory(ctx, gpu, kernels):
    pytest.importorskip("cupy")
    X = np.arange(float(N))
    lX = ctx.logical_data(X)
    with ctx.task(lX.rw(MANAGED)) as t:
        address = t.get_arg(0)
        t.cupy()[0][...] += 1
    ctx.launch_kernel(kernels["add_one"], (64, 256), lX.rw(MANAGED), N)

    @ctx.host_launch(lX.rw(MANAGED))
    def double(x):
        assert x.ctypes.data == address
        x *= 2

    assert ctx.statistics().copies == {("host", "managed"): 1}
    assert (ctx.wait(lX) == 2 * (np.arange(N) + 2)).all()


def test_managed_memory_of_the_users(gpu):
    cupy = pytest.importorskip("cupy")
    memory = cupy.cuda.malloc_managed(8 * N)
    X = cupy.ndarray(N, np.float64, memory)
    X[...] = 1
    cupy.cuda.get_current_stream().synchronize()
    with stf.context(devices="cuda:0") as ctx:
        lX = ctx.logical_data(X, MANAGED)
        with ctx.task(lX.rw(MANAGED)) as t:
            assert t.get_arg(0) == X.data.ptr
            t.cupy()[0][...] += 1
        with pytest.raises(ValueError, match="registered as managed memory"):
            ctx.logical_data(cupy.zeros(4), MANAGED)
    assert (X.get() == 2).all()


@pytest.mark.parametrize("library", ["cupy", "torch", "numba.cuda"])
@pytest.mark.parametrize("n", [6, N])
def test_libraries_use_host_memory_where_it_lies(ctx, library, n):
    pytest.importorskip(library)
    X = np.arange(float(n))
    lX, lY = ctx.logical_data(X), ctx.logical_data_zeros(n)
    with ctx.task(lX.rw(HOST), lY.rw()) as t:
        assert t.get_arg(0) == X.ctypes.data
        x, y = t.arrays(library.partition(".")[0])
        if library != "numba.cuda":
            y += x
            x += 1
        else:
            assert x.__cuda_array_interface__["data"][0] == X.ctypes.data
    assert ctx.statistics().total_copies == 0
    if library != "numba.cuda":
        assert (ctx.wait(lY) == np.arange(n)).all()
        assert (ctx.wait(lX) == np.arange(n) + 1).all()


def test_kernels_use_host_memory_where_it_lies(ctx, kernels):
    X, Y = np.zeros(6), np.zeros(N)
    for array in (X, Y):
        lX = ctx.logical_data(array)
        ctx.launch_kernel(kernels["add_one"], (64, 256), lX.rw(HOST), array.size)
    ctx.synchronize()
    assert ctx.statistics().total_copies == 0
    assert (X == 1).all() and (Y == 1).all()
    rows = [ctx.logical_data(np.zeros(8)) for _ in range(64)]  # some of them on one page
    for row in rows:
        ctx.launch_kernel(kernels["add_one"], (1, 32), row.rw(HOST), 8)
    assert all((ctx.wait(row) == 1).all() for row in rows)


# -- fills ---------------------------------------------------------------------------------------------------------

PAIR = np.dtype([("a", np.int32), ("b", np.float64)])
VALUES = [
    (np.bool_, True),
    (np.int8, -3),
    (np.uint16, 0x1234),
    (np.float16, 1.5),
    (np.float32, 1 / 3),
    (np.int64, -7),
    (np.float64, 1 / 3),
    (np.complex64, 1 + 2j),
    (np.complex128, 1 / 3 + 2j),
    (PAIR, (7, 1.5)),
    (np.dtype("S3"), b"abc"),
]


@pytest.mark.parametrize("dtype, value", VALUES, ids=lambda v: str(v)[:20])
@pytest.mark.parametrize("shape", [(), (1,), (1000, 33), (3, 0), (1 << 20,)], ids=str)
def test_fills(ctx, dtype, value, shape):
    lX = ctx.logical_data_full(shape, np.array(value, dtype)[()], dtype)
    expected = np.full(shape, np.array(value, dtype), dtype)
    assert np.asarray(ctx.wait(lX), dtype).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("index", [np.s_[::2, 1:5], np.s_[1::3, ::-2], np.s_[:, 3], np.s_[::-1, ::3]], ids=str)
def test_fills_of_strided_arrays(dtype, index):
    cupy = pytest.importorskip("cupy")
    expected = np.arange(48).reshape(8, 6).astype(dtype)
    X = cupy.array(expected)
    expected[index] = 1.5
    with stf.context(devices="cuda:0") as ctx:
        ctx.fill(ctx.logical_data(X[index]), np.asarray(1.5, dtype)[()])
    assert (X.get() == expected).all()


def test_copies(ctx):
    cupy = pytest.importorskip("cupy")
    X = np.arange(24.0).reshape(4, 6)
    Y = cupy.zeros((8, 6))
    lX, lY, lZ = ctx.logical_data(X), ctx.logical_data(Y[::2]), ctx.logical_data_empty((4, 6), np.float32)
    ctx.copy(lX, lY)
    ctx.copy(lY, lZ)
    assert (ctx.wait(lY) == X).all() and (ctx.wait(lZ) == X).all()
