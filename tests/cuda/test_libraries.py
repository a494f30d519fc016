"""Arrays and kernels of other libraries on a GPU: each result is checked."""

from __future__ import annotations

import numpy as np
import pytest

import stf

N = 1000


@pytest.fixture
def ctx():
    with stf.context(devices="cuda:0") as context:
        yield context
    assert context._driver.leaks()[2:] == (0, 0)  # the next one has its streams and events


# -- CuPy ------------------------------------------------------------------------------------------------------------


def test_cupy_arrays_in_and_out(ctx):
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(float(N))
    lX, lY = ctx.logical_data(x, name="X"), ctx.logical_data(np.ones(N))
    with ctx.task(lX.rw(), lY.read()) as t:
        a, b = t.cupy()
        assert cupy.cuda.get_current_stream().ptr == t.stream_ptr()
        a += b
        a *= cupy.full(N, 2.0)  # a temporary of the body's
    assert cupy.cuda.get_current_stream() == cupy.cuda.Stream.null
    assert lX.numpy().tolist() == (2 * (np.arange(N) + 1.0)).tolist()
    lX.write_back()
    assert (x.get() == 2 * (np.arange(N) + 1)).all()


def test_the_producers_stream_is_honoured(ctx):
    """The array is still being written on the caller's stream when it is registered there."""
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream(non_blocking=True):
        busy = cupy.random.rand(2000, 2000)
        for _ in range(20):
            busy = busy @ busy
            busy /= busy.max()
        x = cupy.zeros(N)
        x += busy[0, 0] * 0 + 7
        lX = ctx.logical_data(x)
    with ctx.task(lX.rw()) as t:
        t.cupy()[0][:] += 1
    assert lX.numpy().tolist() == [8.0] * N


def test_function_tasks_get_cupy_and_return_results(ctx):
    pytest.importorskip("cupy")

    @stf.task
    def axpy(a, x: stf.Read, y: stf.ReadWrite):
        y += a * x

    @stf.task
    def total(x: stf.Read, s: stf.Write):
        return x.sum()

    lX, lY, lS = ctx.logical_data(np.arange(float(N))), ctx.logical_data_zeros(N), ctx.logical_data_empty(())
    for a in range(10):
        axpy(float(a), lX, lY)
    total(lY, lS)
    assert float(lS) == 45 * np.arange(N).sum()


def test_a_raising_body_is_raised_by_the_call_and_poisons(ctx):
    pytest.importorskip("cupy")
    lX = ctx.logical_data(np.zeros(3), name="X")

    @stf.task
    def broken(x: stf.ReadWrite):
        raise RuntimeError("no luck")

    with pytest.raises(stf.TaskFailedError, match="task 'broken' .* failed with RuntimeError: no luck"):
        broken(lX)
    with pytest.raises(stf.TaskFailedError, match="which is poisoned"):
        lX.numpy()
    lX.accept()


def test_a_raw_kernel(ctx):
    cupy = pytest.importorskip("cupy")
    axpy = cupy.RawKernel(
        'extern "C" __global__ void axpy(double a, const double* x, double* y, int n) '
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += a * x[i]; }",
        "axpy",
    )
    lX, lY = ctx.logical_data(np.arange(float(N))), ctx.logical_data(np.ones(N))
    ctx.launch_kernel(axpy, (4, 256), 2.0, lX.read(), lY.rw(), N)
    stf.kernel(axpy)[4, 256](3.0, lX.read(), lY.rw(), np.int32(N))
    assert (lY.numpy() == 1 + 5 * np.arange(N)).all()
    with pytest.raises(TypeError, match="parameter 3 of kernel 'axpy' is 4 bytes, got float; pass np.float32 or"):
        ctx.launch_kernel(axpy, (4, 256), 2.0, lX.read(), lY.rw(), 1.0)
    with pytest.raises(TypeError, match="has 4 parameters, got 1 arguments"):
        ctx.launch_kernel(axpy, (4, 256), 2.0)


def test_a_cooperative_kernel(ctx):
    """Its blocks wait for each other, which CUDA takes of no other kernel."""
    cupy = pytest.importorskip("cupy")
    code = """
    #include <cooperative_groups.h>
    extern "C" __global__ void turn(double* x, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        double value = x[n - 1 - i];
        cooperative_groups::this_grid().sync();
        x[i] = value;
    }"""
    turn = cupy.RawKernel(code, "turn", enable_cooperative_groups=True)
    lX = ctx.logical_data(np.arange(1024.0))
    ctx.launch_kernel(turn, (8, 128), lX.rw(), 1024)
    assert (lX.numpy() == np.arange(1024.0)[::-1]).all()
    with ctx.task_graph() as graph:
        ctx.launch_kernel(turn, (8, 128), lX.rw(), 1024)
    for _ in range(3):
        graph.launch()
    assert (lX.numpy() == np.arange(1024.0)).all()


def test_a_kernel_with_clusters(ctx):
    """The grid of a LaunchConfig counts clusters."""
    core = pytest.importorskip("cuda.core")
    device = core.Device(0)
    device.set_current()
    if device.compute_capability < (9, 0):
        pytest.skip("needs clusters")
    code = """
    extern "C" __global__ void sizes(int* x) {
        unsigned int size;
        asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
        if (threadIdx.x == 0) x[blockIdx.x] = 100 * gridDim.x + size;
    }"""
    options = core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    sizes = core.Program(code, code_type="c++", options=options).compile("cubin").get_kernel("sizes")
    config = core.LaunchConfig(grid=3, cluster=2, block=32)
    lX = ctx.logical_data(np.zeros(8, np.int32))
    ctx.launch_kernel(sizes, config, lX.rw())
    assert lX.numpy().tolist() == [602] * 6 + [0, 0]
    with ctx.task_graph() as graph:
        ctx.launch_kernel(sizes, config, lX.rw())
        ctx.launch_kernel(sizes, core.LaunchConfig(grid=8, block=32), lX.rw())
    for _ in range(3):
        graph.launch()
    assert lX.numpy().tolist() == [801] * 8


# -- torch -----------------------------------------------------------------------------------------------------------


def test_torch_tensors(ctx):
    torch = pytest.importorskip("torch")
    x = torch.ones(N, device="cuda:0", dtype=torch.float32)
    lX, lY = ctx.logical_data(x), ctx.logical_data(np.zeros(N, np.float32))
    with ctx.task(lX.read(), lY.rw()) as t:
        a, b = t.torch()
        assert torch.cuda.current_stream().cuda_stream == t.stream_ptr()
        b.add_(a, alpha=3)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()

    @stf.task(arrays="torch")
    def scale(y: stf.ReadWrite):
        y.mul_(2)

    scale(lY)
    assert (lY.numpy() == 6).all()
    result = ctx.wait(lY, arrays="torch")
    assert result.device.type == "cuda" and float(result.sum()) == 6 * N


def test_a_gradient_needing_tensor(ctx):
    torch = pytest.importorskip("torch")
    x = torch.ones(N, device="cuda:0", requires_grad=True)
    lX = ctx.logical_data(x, readonly=True)
    with ctx.task(lX.read()) as t:
        assert not t.torch()[0].requires_grad


# -- Numba -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*Grid size")
def test_a_numba_kernel_on_memory_with_gaps(ctx):
    """Used as it is on the host, where a kernel that was compiled for C order would ignore the strides."""
    pytest.importorskip("numba.cuda")
    from numba import cuda

    @cuda.jit
    def double(x, y):
        i = cuda.grid(1)
        if i < x.shape[0]:
            for j in range(x.shape[1]):
                y[i, j] = 2 * x[i, j]

    X = np.arange(4.0 * N).reshape(N, 4)[:, ::2]
    lX, lY = ctx.logical_data(X), ctx.logical_data_empty((N, 2))
    for place in (None, stf.data_place.host(), None):
        ctx.fill(lY, 0.0)
        stf.kernel(double)[(N + 127) // 128, 128](lX.read(place), lY.write())
        assert (lY.numpy() == 2 * X).all(), place


@pytest.mark.filterwarnings("ignore:.*Grid size")
def test_a_numba_kernel(ctx):
    pytest.importorskip("numba.cuda")
    from numba import cuda

    @cuda.jit
    def blur(x, y, weight):
        i, j = cuda.grid(2)
        if 0 < i < x.shape[0] - 1 and j < x.shape[1]:
            y[i, j] = weight * (x[i - 1, j] + x[i + 1, j])

    X = np.random.default_rng(1).random((40, 50))
    lX, lY = ctx.logical_data(X), ctx.logical_data_zeros((40, 50))
    stf.kernel(blur)[(3, 4), (16, 16)](lX.read(), lY.rw(), 0.5)
    expected = np.zeros_like(X)
    expected[1:-1] = 0.5 * (X[:-2] + X[2:])
    assert np.allclose(lY.numpy(), expected)
    with ctx.task(lX.read(), lY.rw()) as t:
        x, y = t.numba()
        blur[(3, 4), (16, 16), cuda.external_stream(t.stream_ptr())](x, y, 1.0)
    assert np.allclose(lY.numpy(), 2 * expected)


@pytest.mark.filterwarnings("ignore:.*Grid size")
def test_numba_kernels_with_signatures(ctx):
    """As Numba calls them itself: numbers are converted, one of several signatures is chosen, others are refused."""
    pytest.importorskip("numba.cuda")
    from numba import cuda

    def scale(x, a):
        i = cuda.grid(1)
        if i < x.shape[0]:
            x[i] = x[i] + a

    one = stf.kernel(cuda.jit("void(float64[:], float32)")(scale))
    several = stf.kernel(cuda.jit(["void(float64[:], float64)", "void(float32[:], float64)"])(scale))
    lX, lY = ctx.logical_data_zeros(N), ctx.logical_data_zeros(N, np.float32)
    for value in (2, 0.5, np.int32(3), True):
        one[(N + 127) // 128, 128](lX.rw(), value)
        several[(N + 127) // 128, 128](lX.rw(), value)
        several[(N + 127) // 128, 128](lY.rw(), value)
    assert (lX.numpy() == 13.0).all() and (lY.numpy() == 6.5).all()
    for data, args in ((lY, (2.0,)), (lX, ()), (lX, (2.0, 3.0)), (lX, (1j,))):
        with pytest.raises(TypeError):
            one[1, 128](data.rw(), *args)
    assert (lX.numpy() == 13.0).all()


# -- numba-cuda-mlir -------------------------------------------------------------------------------------------------


@pytest.fixture
def mlir():
    return pytest.importorskip("numba_cuda_mlir.cuda")


def test_a_kernel_of_numba_cuda_mlir(ctx, mlir):
    @mlir.jit
    def blur(x, y, weight):
        i, j = mlir.grid(2)
        if 0 < i < x.shape[0] - 1 and j < x.shape[1]:
            y[i, j] = weight * (x[i - 1, j] + x[i + 1, j])

    X = np.random.default_rng(1).random((40, 50))
    expected = np.zeros_like(X)
    expected[1:-1] = 0.5 * (X[:-2] + X[2:])
    for array in (X, np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2]):
        lX, lY = ctx.logical_data(array), ctx.logical_data_zeros((40, 50))
        stf.kernel(blur)[(3, 4), (16, 16)](lX.read(), lY.rw(), 0.5)
        assert np.allclose(lY.numpy(), expected)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8", "f4", "f8"])
def test_a_recorded_kernel_of_numba_cuda_mlir_takes_other_values_and_data(ctx, mlir, dtype):
    @mlir.jit
    def add(x, y, a):
        i = mlir.grid(1)
        if i < x.shape[0]:
            y[i] += x[i] * a

    xs = [np.arange(N).astype(dtype) + i for i in range(3)]
    data, lY = [ctx.logical_data(x) for x in xs], ctx.logical_data_zeros(N, dtype)
    g = ctx.task_graph()
    factor = g.param("factor", 1)
    with g:
        stf.kernel(add)[(N + 127) // 128, 128](data[0].read(), lY.rw(), factor)
    expected = np.zeros(N, dtype)
    for i in (0, 1, 2, 1):
        g.launch({data[0]: data[i]} if i else {}, factor=i + 1)
        expected += (xs[i] * (i + 1)).astype(dtype)
        assert (lY.numpy() == expected).all()


# -- Triton, cuda.core -----------------------------------------------------------------------------------------------


def test_a_triton_kernel(ctx):
    triton = pytest.importorskip("triton")
    from triton_kernels_of_tests import add_kernel

    lX, lY = ctx.logical_data(np.arange(N, dtype=np.float32)), ctx.logical_data(np.ones(N, np.float32))
    stf.kernel(add_kernel)[(triton.cdiv(N, 256),)](lX.read(), lY.rw(), N, BLOCK=256)
    assert (lY.numpy() == 1 + np.arange(N)).all()


def test_a_recorded_triton_kernel_takes_parameters_and_other_data(ctx):
    """It is compiled for the values that it gets: it is captured for those of each launch."""
    pytest.importorskip("triton")
    from triton_kernels_of_tests import add_kernel

    xs = [np.arange(N, dtype=np.float32) * (i + 1) for i in range(7)]
    data, lY = [ctx.logical_data(x) for x in xs], ctx.logical_data(np.ones(N, np.float32))
    g, expected = ctx.task_graph(), np.ones(N, np.float32)
    count, block = g.param("count", N), g.param("block", 256)
    length, order = N, ctx.token()
    with g:  # a token brings no argument; what a grid reads of its surroundings is read here
        stf.kernel(add_kernel)[lambda meta: ((length + meta["BLOCK"] - 1) // meta["BLOCK"],)](
            order.rw(), data[0].read(), lY.rw(), n=count, BLOCK=block
        )
    length = 0
    for i, n, size in [
        (0, N, 256),
        (0, N, 256),
        (3, N, 256),
        (0, 7, 128),
        (3, 16, 128),
        (1, 1, 64),
        *[(i, N, 64) for i in range(7)],
    ]:
        g.launch({data[0]: data[i]} if i else {}, count=n, block=size)
        expected[:n] += xs[i][:n]
        assert (lY.numpy() == expected).all(), (i, n, size)
    with pytest.raises(TypeError, match="the value of parameter 'count' is not known"), ctx.task_graph() as other:
        count = other.param("count", 4)
        stf.kernel(add_kernel)[(count,)](data[0].read(), lY.rw(), N, BLOCK=256)


def test_a_program_of_cuda_core(ctx):
    core = pytest.importorskip("cuda.core")
    code = "template<typename T> __global__ void add(const T* a, const T* b, T* c, size_t n)" + (
        "{ size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] + b[i]; }"
    )
    device = core.Device(0)
    device.set_current()
    options = core.ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    compiled = core.Program(code, code_type="c++", options=options).compile("cubin", name_expressions=("add<float>",))
    add = compiled.get_kernel("add<float>")
    a, b = np.random.default_rng(2).random((2, N)).astype(np.float32)
    lA, lB, lC = ctx.logical_data(a), ctx.logical_data(b), ctx.logical_data_empty(N, np.float32)
    config = core.LaunchConfig(grid=4, block=256)
    ctx.launch_kernel(add, config, lA.read(), lB.read(), lC.write(), N)
    assert np.allclose(lC.numpy(), a + b)
    brought = stf.kernel(add)
    for launch in (brought[4, 256], brought[config], brought.on(0)[4, 256]):
        ctx.fill(lC, 0.0)
        launch(lA.read(), lB.read(), lC.write(), N)
        assert np.allclose(lC.numpy(), a + b)
    ctx.fill(lC, 0.0)
    with ctx.task(lA.read(), lB.read(), lC.rw()) as t:  # the protocol of streams, by cuda.core's own launcher
        stream = device.create_stream(t.stream)
        core.launch(stream, config, add, *(t.get_arg(i) for i in range(3)), np.uint64(N))
    assert np.allclose(lC.numpy(), a + b)


# -- the host between devices ----------------------------------------------------------------------------------------


def test_a_host_body_may_use_cuda_for_the_first_time(ctx):
    """It loads a module and frees memory, which would hang if the device waited for the body."""
    cupy = pytest.importorskip("cupy")
    lX, seen = ctx.logical_data(np.ones(N)), []
    with ctx.task(lX.rw()) as t:
        t.cupy()[0][:] += 1

    def body(x):
        fresh = cupy.RawKernel(f'extern "C" __global__ void k{id(seen)}(double* x) {{ x[0] = 5; }}', f"k{id(seen)}")
        y = cupy.zeros(1 << 20)
        fresh((1,), (1,), (y,))
        seen.append(float(y[0]))
        del y
        cupy.get_default_memory_pool().free_all_blocks()
        x *= 10

    ctx.host_launch(lX.rw())(body)
    with ctx.task(lX.rw()) as t:
        t.cupy()[0][:] += 1
    assert lX.numpy().tolist() == [21.0] * N and seen == [5.0]


@pytest.mark.timeout(120)  # each body gets the GIL when its holder's 5 ms are over
def test_a_thousand_host_bodies_while_the_gil_is_busy(ctx):
    import threading

    pytest.importorskip("cupy")
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    try:
        data = [ctx.logical_data(np.zeros(8)) for _ in range(10)]
        for i in range(1000):
            ctx.host_launch(data[i % 10].rw())(lambda x: np.add(x, 1, out=x))
            if i % 10 == 9:
                with ctx.task(*(d.rw() for d in data)) as t:
                    for x in t.cupy():
                        x += 1
        assert all((d.numpy() == 200).all() for d in data)
    finally:
        stop.set()
        thread.join()


def test_slices_are_structs_of_c(ctx):
    """A pointer, the extents and the strides in elements by value, beside other arguments and in graphs."""
    cupy = pytest.importorskip("cupy")
    code = """
    template <typename T, int axes> struct slice { T* data; long long extents[axes], strides[axes]; };
    extern "C" __global__ void add(float a, slice<double, 2> x, slice<float, 1> v, int n) {
        for (int i = threadIdx.x; i < x.extents[0]; i += blockDim.x)
            for (int j = threadIdx.y; j < x.extents[1]; j += blockDim.y)
                x.data[i * x.strides[0] + j * x.strides[1]] += a;
        if (threadIdx.y == 0)
            for (int k = threadIdx.x; k < v.extents[0]; k += blockDim.x)
                v.data[k * v.strides[0]] += n;
    }"""
    add = cupy.RawKernel(code, "add")
    whole, line = cupy.zeros((40, 100)), cupy.zeros(120, np.float32)
    x, v = ctx.logical_data(whole[:30, 10:90:2]), ctx.logical_data(line[::-4])
    arguments = (np.float32(1.5), x.rw().slice, v.rw().slice, 7)
    ctx.launch_kernel(add, (1, (8, 8)), *arguments)
    stf.kernel(add)[1, (8, 8)](*arguments)
    with ctx.cuda_kernel(x.rw(), v.rw()) as k:
        k.launch(add, 1, (8, 8), arguments)
    with ctx.task_graph() as g:
        ctx.launch_kernel(add, (1, (8, 8)), *arguments)
    for _ in range(3):
        g.launch()
    x.write_back()
    v.write_back()
    ctx.synchronize()
    expected = np.zeros((40, 100))
    expected[:30, 10:90:2] = 9.0
    assert (whole.get() == expected).all()
    assert line.get().tolist() == [0, 0, 0, 42.0] * 30
    g.close()
