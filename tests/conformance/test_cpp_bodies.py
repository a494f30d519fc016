"""Bodies of ``parallel_for`` in C++: lambdas as text, which NVRTC compiles."""

import numpy as np
import pytest
from helpers import is_cuda, on_stand_in

import stf
from stf.kernels.body_arguments import BodySignature
from stf.kernels.captured import Captured
from stf.kernels.compile.nvrtc import compiler
from stf.kernels.cpp_bodies import function_of_lambda
from stf.kernels.gpu_loops import argument, kernel_for
from stf.kernels.nest import ArrayType, Axis
from stf.kernels.writers.cuda_cpp import OPERATORS

AXPY = "[](size_t i, auto x, auto y, double a) { y(i) += a * x(i); }"
CAPABILITIES = [(8, 0), (9, 0), (10, 0)]


@pytest.fixture
def nvrtc():
    """NVIDIA's compiler, without which there is nothing to test."""
    try:
        return compiler()
    except ImportError:
        pytest.skip("there is no NVRTC")


@pytest.fixture
def gpu(ctx, nvrtc):
    if not is_cuda(ctx) or on_stand_in():
        pytest.skip("C++ runs on GPUs alone")
    return ctx


def test_axpy(gpu):
    X, Y = np.arange(1000.0), np.ones(1000)
    x, y = gpu.logical_data(X), gpu.logical_data(Y)
    for alpha in (2.0, 0.5, 3):
        assert gpu.parallel_for(x.shape, x.read(), y.rw(), args=(alpha,))(AXPY).body == AXPY
    gpu.finalize()
    np.testing.assert_array_equal(Y, 1 + 5.5 * X)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
def test_dtypes(gpu, dtype):
    X = np.arange(100).astype(dtype)
    Y = np.zeros(100, dtype)
    x, y = gpu.logical_data(X), gpu.logical_data(Y)
    gpu.parallel_for(x.shape, x.read(), y.write())("[] __device__ (size_t i, auto x, auto y) { y(i) = x(i); }")
    gpu.finalize()
    np.testing.assert_array_equal(Y, X)


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F", "A"])
def test_ranks_and_orders(gpu, ndim, order):
    shape = (5, 7, 3, 6)[:ndim]
    X = np.asarray(np.arange(np.prod(shape), dtype=float).reshape(shape), order="F" if order == "F" else "C")
    if order == "A":
        X = np.repeat(X, 2, axis=-1)[..., ::-2]
    Y = np.zeros(shape)
    x, y = gpu.logical_data(X), gpu.logical_data(Y)
    indices = ["i", "j", "k", "l"][:ndim]
    parameters = ", ".join(f"size_t {i}" for i in indices)
    at = ", ".join(indices)
    gpu.parallel_for(x.shape, x.read(), y.write())(f"[]({parameters}, auto x, auto y) {{ y({at}) = x({at}) + 1; }}")
    gpu.finalize()
    np.testing.assert_array_equal(Y, X + 1)


def test_box_with_bounds_and_steps(gpu):
    Y = np.zeros((10, 20))
    y = gpu.logical_data(Y)
    gpu.parallel_for(stf.box((1, 9), (2, 18)), y.rw())("[](size_t i, size_t j, auto y) { y(i, j) = i * 100 + j; }")
    gpu.finalize()
    expected = np.zeros((10, 20))
    i, j = np.mgrid[1:9, 2:18]
    expected[1:9, 2:18] = i * 100 + j
    np.testing.assert_array_equal(Y, expected)


def test_array_has_extents_and_a_pointer(gpu):
    X, Y = np.arange(12.0).reshape(3, 4), np.zeros(4)
    x, y = gpu.logical_data(X), gpu.logical_data(Y)
    body = """[](size_t i, auto x, auto y) {
        y[0] = x.size();
        y[1] = x.extent(1);
        y[2] = x.rank();
        y[3] = x.data_handle()[5];
    }"""
    gpu.parallel_for((1,), x.read(), y.write())(body)
    gpu.finalize()
    np.testing.assert_array_equal(Y, [12, 4, 2, 5])


def test_scalar_that_is_read_is_a_number(gpu):
    A, Y = np.array(3.0), np.ones(10)
    a, y = gpu.logical_data(A), gpu.logical_data(Y)
    gpu.parallel_for(y.shape, a.read(), y.rw())("[](size_t i, double a, auto y) { y(i) *= a; }")
    gpu.finalize()
    np.testing.assert_array_equal(Y, np.full(10, 3.0))


@pytest.mark.parametrize("op", ["sum", "product", "minval", "maxval", "bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", ["i4", "i8", "u8"])
def test_reductions(gpu, op, dtype):
    pytest.importorskip("numba_cuda")
    X = np.random.default_rng(1).integers(1, 4, 1000).astype(dtype)
    x, s = gpu.logical_data(X), gpu.logical_data_empty((), dtype)
    change = {"sum": "s += v", "product": "s *= v", "minval": "s = v < s ? v : s", "maxval": "s = v > s ? v : s"}
    change |= {"bitwise_and": "s &= v", "bitwise_or": "s |= v", "bitwise_xor": "s ^= v"}
    body = f"[](size_t i, auto x, auto& s) {{ auto v = x(i); {change[op]}; }}"
    gpu.parallel_for(x.shape, x.read(), s.reduce(getattr(stf.reducer, op)))(body)
    named = {"sum": np.add, "product": np.multiply, "minval": np.minimum, "maxval": np.maximum}
    assert gpu.wait(s) == (named.get(op) or getattr(np, op)).reduce(X)


def test_two_reductions_before_and_after_an_array(gpu):
    pytest.importorskip("numba_cuda")
    X = np.random.default_rng(1).random((200, 300))
    x = gpu.logical_data(X)
    s, m = gpu.logical_data_full((), 1.0), gpu.logical_data_empty((), float)
    body = "[](size_t i, size_t j, auto& s, auto x, auto& m) { s += x(i, j); if (x(i, j) > m) m = x(i, j); }"
    add = s.reduce(stf.reducer.sum, accumulate=True)
    gpu.parallel_for(x.shape, add, x.read(), m.reduce(stf.reducer.maxval))(body)
    np.testing.assert_allclose(gpu.wait(s), 1 + X.sum(), rtol=1e-13)
    assert gpu.wait(m) == X.max()


def test_histogram_by_atomics(gpu):
    pytest.importorskip("numba_cuda")
    X = np.random.default_rng(1).integers(0, 8, 10_000).astype(np.int32)
    x, h = gpu.logical_data(X), gpu.logical_data_empty(8, np.int32)
    body = "[](size_t i, auto x, auto h) { atomicAdd(&h(x(i)), 1); }"
    gpu.parallel_for(x.shape, x.read(), h.reduce(stf.reducer.sum))(body)
    np.testing.assert_array_equal(gpu.wait(h), np.bincount(X, minlength=8))


def test_over_a_grid(gpu):
    Y = np.zeros(1000)
    y = gpu.logical_data(Y)
    gpu.parallel_for(stf.exec_place.grid(gpu.devices), y.shape, y.rw())("[](size_t i, auto y) { y(i) += i; }")
    gpu.finalize()
    np.testing.assert_array_equal(Y, np.arange(1000))


def test_in_a_graph_that_is_launched_again(gpu):
    Y = np.zeros(100)
    y = gpu.logical_data(Y)
    graph = gpu.task_graph(name="steps")
    step = graph.param("by", 1.0)
    with graph:
        gpu.parallel_for(y.shape, y.rw(), args=(step,))("[](size_t i, auto y, double by) { y(i) += by; }")
    for by in (1.0, 2.0, 4.0):
        graph.launch(by=by)
    gpu.finalize()
    np.testing.assert_array_equal(Y, np.full(100, 7.0))


def test_error_of_compilation_shows_the_line(gpu):
    y = gpu.logical_data(np.zeros(10))
    with pytest.raises(TypeError, match=r"test_cpp_bodies.py:\d+ cannot be compiled: the body\(2\): error.*nothing"):
        gpu.parallel_for(y.shape, y.rw())("[](size_t i, auto y) {\n y(i) = nothing;\n}")
    gpu.parallel_for(y.shape, y.rw())("[](size_t i, auto y) { y(i) = 1; }")
    assert gpu.wait(y).sum() == 10


def test_what_cpp_has_not(gpu):
    c, y = gpu.logical_data(np.zeros(3, complex)), gpu.logical_data(np.zeros(3))
    with pytest.raises(TypeError, match="float32 and float64 here, got complex128"):
        gpu.parallel_for(c.shape, c.rw())("[](size_t i, auto c) {}")
    with pytest.raises(TypeError, match="takes numbers that are not complex by args="):
        gpu.parallel_for(y.shape, y.rw(), args=((1, 2),))("[](size_t i, auto y, auto pair) {}")
    own, s = stf.reducer.define(0.0, lambda a, b: a + b), gpu.logical_data_empty((), float)
    with pytest.raises(TypeError, match="is written in Python; write the body in Python"):
        gpu.parallel_for(y.shape, y.read(), s.reduce(own))("[](size_t i, auto y, auto& s) {}")


# -- everywhere ----------------------------------------------------------------------------------------------------


def test_wrong_number_of_parameters(ctx):
    y = ctx.logical_data(np.zeros((3, 4)))
    with pytest.raises(TypeError, match="takes 2 arguments and gets 3: 2 indices"):
        ctx.parallel_for(y.shape, y.rw())("[](size_t i, auto y) {}")


def test_host_says_that_it_is_for_gpus(ctx):
    y = ctx.logical_data(np.zeros(3))
    with pytest.raises(TypeError, match="is C.., which runs on CUDA devices alone, and its place is"):
        ctx.parallel_for(stf.exec_place.host(), y.shape, y.rw())("[](size_t i, auto y) {}")
    assert ctx.wait(y).sum() == 0


def test_launch_takes_functions_alone(ctx):
    y = ctx.logical_data(np.zeros(3))
    with pytest.raises(TypeError, match="launch takes a Python function, got str"):
        ctx.launch(y.rw())("[](auto th, auto y) {}")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[]() {}", 0),
        ("[] (size_t i) {}", 1),
        (AXPY, 4),
        ("[=] __device__ (size_t i, pair<int, float> p) mutable {}", 2),
        ("[&] __host__ __device__ (size_t i /* , no */, auto x, // nor, this\n int (*f)(int, int)) -> void {}", 3),
    ],
)
def test_parameters_are_counted(text, count):
    assert function_of_lambda(text).__code__.co_argcount == count


@pytest.mark.parametrize("text", ["", "y = x", "auto f = [](size_t i) {}", "[a](size_t i) {}", "[](size_t i, auto x"])
def test_what_is_no_lambda(text):
    with pytest.raises(TypeError, match=r"C\+\+"):
        function_of_lambda(text)


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
@pytest.mark.parametrize("op", list(OPERATORS), ids=lambda op: op.name)
def test_reductions_compile_without_a_gpu(nvrtc, op, capability):
    dtype = np.dtype("i4")
    body = function_of_lambda("[](size_t i, size_t j, auto x, auto& s, double a) { s = s + x(i, j) * a; }")
    with stf.context(devices="cpu") as ctx:
        x, s = ctx.logical_data_zeros((2, 3), dtype), ctx.logical_data_zeros((), dtype)
        signature = BodySignature(body, Captured(body, "the body"), (x.read(), s.reduce(op)), (2.0,), "the body")
    nest = signature.nest((Axis(0, None, True), Axis(None, None, True)), 2)
    arrays = [ArrayType(dtype, 2, "A", True), ArrayType(dtype, 1, "C", False)]
    numbers = [argument("_stf_x0", 2.0, ""), argument("_stf_neutral0", np.int32(0), "")]
    kernel = kernel_for(signature, nest, arrays, numbers, "add up", 0)
    assert len(kernel.user_object.image(capability)) > 1000
