"""Arrays of libraries on a GPU, in and out: element types, streams, results."""

from __future__ import annotations

import numpy as np
import pytest

import stf

N = 1000
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


@pytest.fixture
def ctx():
    with stf.context(devices="cuda:0") as context:
        yield context
    assert context._driver.leaks()[2:] == (0, 0)  # the next one has its streams and events


def keep_busy(stream, cupy):
    """Give a stream work for some milliseconds."""
    with stream:
        busy = cupy.ones((3000, 3000))
        for _ in range(10):
            busy = busy @ busy * 1e-4
    return busy


# -- torch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NARROW)
def test_narrow_tensors(ctx, name):
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    kind = getattr(torch, name)
    x = torch.tensor([1.0, -2.0, 0.5], device="cuda:0").to(kind)
    lX, lY, lZ = ctx.logical_data(x, name="X"), ctx.logical_data_empty(3, kind), ctx.logical_data_full(3, 1.5, kind)
    assert lX.dtype == lY.dtype == lZ.dtype == np.dtype(name)

    @stf.task(arrays="torch")
    def negate(x: stf.Read, y: stf.Write):
        assert x.dtype == y.dtype == kind and x.is_cuda
        return (-x.float()).to(kind)

    negate(lX, lY)
    with ctx.task(lX.rw()) as t:
        (view,) = t.torch()
        assert view.data_ptr() == x.data_ptr()
        view.copy_((view.float() * 2).to(kind))
    assert lY.numpy().tolist() == [-1, 2, -0.5] and lY.numpy().dtype == np.dtype(name)
    result = ctx.wait(lX, arrays="torch")
    assert result.dtype == kind and result.float().tolist() == [2, -4, 1]
    assert lZ.numpy().astype(float).tolist() == [1.5] * 3


class Pointer:
    """A stream, as the protocol tells it."""

    def __init__(self, pointer):
        self.pointer = pointer

    def __cuda_stream__(self):
        return (0, self.pointer)


def test_a_tensor_made_on_another_stream(ctx):
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        busy = keep_busy(cupy.cuda.Stream.from_external(Pointer(stream.cuda_stream)), cupy)
        x = torch.zeros(N, device="cuda:0", dtype=torch.bfloat16)
        x += 7
        lX = ctx.logical_data(x)
    with ctx.task(lX.rw()) as t:
        t.torch()[0].mul_(2)
    assert lX.numpy().astype(float).tolist() == [14.0] * N and busy.shape


def test_autograd_is_off_in_bodies(ctx):
    torch = pytest.importorskip("torch")
    w = torch.ones(N, device="cuda:0", requires_grad=True)
    other = torch.ones(N, device="cuda:0", requires_grad=True)
    lX, lW = ctx.logical_data(torch.ones(N, device="cuda:0")), ctx.logical_data(other, readonly=True)

    @stf.task(arrays="torch")
    def step(w2: stf.Read, x: stf.ReadWrite):
        assert not torch.is_grad_enabled() and not w2.requires_grad
        return w * x + w2

    step(lW, lX)
    with ctx.task(lX.rw()) as t:
        (x,) = t.torch()
        x += w
        assert not x.requires_grad
    assert torch.is_grad_enabled() and lX.numpy().tolist() == [3.0] * N


def test_all_arrays_of_a_task_with_a_tensor_are_tensors(ctx):
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    lX, lY = ctx.logical_data(torch.ones(N, device="cuda:0")), ctx.logical_data(torch.ones(N))
    lZ, lC = lX.empty_like(), ctx.logical_data(cupy.ones(N))

    @stf.task
    def add(x: stf.Read, y: stf.Read, z: stf.Write, c: stf.ReadWrite):
        assert all(isinstance(each, torch.Tensor) and each.is_cuda for each in (x, y, z, c))
        c += 1
        torch.add(x, y, out=z)

    add(lX, lY, lZ, lC)
    g = ctx.task_graph()
    with g:
        add(lX, lY, lZ, lC)
    g.launch()
    g.launch()
    with ctx.task(stf.exec_place.host(), lZ.read()) as t:
        assert t.arrays()[0].device.type == "cpu" and t.arrays()[0].tolist() == [2.0] * N
    assert lC.numpy().tolist() == [4.0] * N


@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_a_compiled_body(ctx):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")

    @torch.compile
    def fused(x, y):
        return torch.sin(x) * y + x

    @stf.task(arrays="torch")
    def step(x: stf.Read, y: stf.ReadWrite):
        return fused(x, y)

    X, Y = np.linspace(0, 1, N, dtype=np.float32), np.ones(N, np.float32)
    lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
    for _ in range(3):
        step(lX, lY)
    expected = np.ones(N, np.float32)
    for _ in range(3):
        expected = np.sin(X) * expected + X
    assert np.allclose(lY.numpy(), expected, rtol=1e-5)


# -- Numba, JAX ------------------------------------------------------------------------------------------------------


def test_numba_arrays_in_and_out(ctx):
    cuda = pytest.importorskip("numba.cuda")
    x = cuda.to_device(np.arange(float(N)))
    lX = ctx.logical_data(x, name="X")
    assert ctx.logical_data(x) is lX and lX.dtype == np.float64
    ctx.fill(lX, 3.0)
    got = ctx.wait(lX, arrays="numba")
    assert got.copy_to_host().tolist() == [3.0] * N
    lX.write_back()
    assert x.copy_to_host()[5] == 3
    lB = ctx.logical_data_empty(3, "bfloat16")
    with pytest.raises(TypeError, match="Numba has no arrays of bfloat16; use t.torch"):
        with ctx.task(lB.write()) as t:
            t.numba()


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    try:
        jax.local_devices(backend="cuda")
    except RuntimeError:
        pytest.skip("this JAX has no CUDA backend")
    return jax


def test_jax_arrays_in(ctx, jax):
    x = jax.numpy.arange(N, dtype=jax.numpy.float32)
    for _ in range(5):
        x = jax.jit(lambda x: x + 1)(x)  # still running when it is registered
    lX, lY = ctx.logical_data(x, name="X"), ctx.logical_data_zeros(N, np.float32)
    assert lX.readonly and ctx.logical_data(x) is lX
    with ctx.task(lX.read(), lY.rw()) as t:
        a, b = t.cupy()
        b += a
    assert lY.numpy().tolist() == (np.arange(N) + 5.0).tolist()


def test_jax_results_are_stored_on_the_tasks_stream(ctx, jax):
    lX, lY = ctx.logical_data(np.ones(N, np.float32)), ctx.logical_data_empty((), np.float32)
    lB = ctx.logical_data_empty(N, jax.numpy.bfloat16)

    @stf.task(arrays="jax")
    def step(x: stf.ReadWrite, y: stf.Write, b: stf.Write):
        assert isinstance(x, jax.Array)
        x = 2 * x
        return x, x.sum(), x.astype(jax.numpy.bfloat16)

    for _ in range(4):
        with ctx.task(lX.rw()) as t:
            t.cupy()[0][:] += 1
        step(lX, lY, lB)
    assert lX.numpy().tolist() == [46.0] * N and float(lY) == 46 * N
    assert lB.numpy().astype(float).tolist() == [46.0] * N
    with ctx.task(lX.read()) as t:
        assert float(t.arrays("jax")[0][3]) == 46
    waited = ctx.wait(lX, arrays="jax")
    ctx.fill(lX, 0)
    assert isinstance(waited, jax.Array) and waited.tolist() == [46.0] * N


def test_get_arg_cai_in_every_library(ctx, jax):
    torch, cupy = pytest.importorskip("torch"), pytest.importorskip("cupy")
    lX = ctx.logical_data(np.arange(6, dtype=np.float32).reshape(2, 3))
    with ctx.task(lX.rw()) as t:
        memory = t.get_arg_cai(0)
        for tensor in (torch.from_dlpack(memory), torch.as_tensor(memory, device="cuda:0")):
            assert tensor.data_ptr() == t.get_arg(0)
            tensor += 1
        for array in (cupy.from_dlpack(memory), cupy.asarray(memory)):
            assert array.data.ptr == t.get_arg(0)
            array += 1
        assert jax.dlpack.from_dlpack(memory).tolist() == [[4, 5, 6], [7, 8, 9]]
    lB = ctx.logical_data(torch.ones(3, device="cuda:0", dtype=torch.bfloat16))
    with ctx.task(lB.rw()) as t:
        tensor = torch.from_dlpack(t.get_arg_cai(0))
        assert tensor.dtype == torch.bfloat16 and tensor.data_ptr() == t.get_arg(0)
        tensor *= 3
    assert lB.numpy().astype(float).tolist() == [3, 3, 3]


# -- temporaries -----------------------------------------------------------------------------------------------------


def test_temporaries_are_not_used_again_too_early(ctx):
    """Bodies on several streams at once free what their kernels still read; caching allocators are ordered by stream."""
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    size = 1 << 20
    data = [ctx.logical_data(np.full(size, i, np.float32)) for i in range(4)]
    streams = set()

    @stf.task(arrays="cupy")
    def with_cupy(x: stf.ReadWrite, s: stf.Stream):
        streams.add(s.__cuda_stream__()[1])
        scratch = x * 2
        for _ in range(20):
            scratch = cupy.sqrt(scratch * scratch)  # each result is freed by the next
        x += scratch

    @stf.task(arrays="torch")
    def with_torch(x: stf.ReadWrite):
        scratch = x * 2
        for _ in range(20):
            scratch = torch.sqrt(scratch * scratch)
        x -= scratch / 3

    for _ in range(5):
        for x in data:
            with_cupy(x)
        for x in data:
            with_torch(x)
    assert len(streams) > 1
    for i, x in enumerate(data):
        assert np.allclose(x.numpy(), i, rtol=1e-4)
