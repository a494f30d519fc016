"""The BLAS of the examples against NumPy, for every layout of a tile."""

import threading

import _blas as blas
import numpy as np
import pytest

LAYOUTS = ["rows", "columns", "tile", "tile of columns"]
SHAPES = [(5, 7, 3), (1, 4, 2), (4, 1, 1), (1, 1, 1), (6, 6, 6), (2, 1, 5)]


def laid_out(values: np.ndarray, layout: str) -> np.ndarray:
    """Return a copy of `values` in memory as a tile may lie; what is around it is NaN."""
    rows, columns = values.shape
    if layout == "rows":
        return np.array(values, order="C")
    if layout == "columns":
        return np.array(values, order="F")
    order = "F" if layout == "tile of columns" else "C"
    tile = np.full((rows + 3, columns + 5), np.nan, order=order)[1 : 1 + rows, 2 : 2 + columns]
    tile[...] = values
    return tile


@pytest.fixture
def random(request):
    return np.random.default_rng(7).random


def triangle(random, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix whose upper triangle must not be read, and its lower triangle."""
    lower = np.tril(random((order, order))) + np.eye(order)
    return lower + np.triu(np.full((order, order), np.nan), 1), lower


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("c_layout", LAYOUTS)
@pytest.mark.parametrize("b_layout", LAYOUTS)
@pytest.mark.parametrize("a_layout", LAYOUTS)
def test_gemm(random, a_layout, b_layout, c_layout, m, n, k):
    a, b, c = random((m, k)), random((k, n)), random((m, n))
    out = laid_out(c, c_layout)
    blas.gemm(laid_out(a, a_layout), laid_out(b, b_layout), out, alpha=-2.0)
    np.testing.assert_allclose(out, c - 2.0 * a @ b)
    out = laid_out(c, c_layout)
    blas.gemm(laid_out(a, a_layout), laid_out(b.T, b_layout).T, out, beta=0.5)
    np.testing.assert_allclose(out, a @ b + 0.5 * c)


@pytest.mark.parametrize(("n", "k"), [(5, 3), (1, 4), (3, 1), (1, 1)])
@pytest.mark.parametrize("c_layout", LAYOUTS)
@pytest.mark.parametrize("a_layout", LAYOUTS)
def test_syrk_updates_the_lower_triangle_only(random, a_layout, c_layout, n, k):
    a, c = random((n, k)), random((n, n))
    out = laid_out(c, c_layout)
    blas.syrk(laid_out(a, a_layout), out, alpha=-1.0)
    np.testing.assert_allclose(np.tril(out), np.tril(c - a @ a.T))
    np.testing.assert_array_equal(np.triu(out, 1), np.triu(c, 1))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("b_layout", LAYOUTS)
@pytest.mark.parametrize("l_layout", LAYOUTS)
@pytest.mark.parametrize(("rows", "columns"), [(4, 3), (3, 5), (1, 3), (3, 1), (1, 1)])
def test_trsm(random, rows, columns, l_layout, b_layout, side, transposed):
    stored, lower = triangle(random, rows if side == "left" else columns)
    operator = lower.T if transposed else lower
    b = random((rows, columns))
    out = laid_out(b, b_layout)
    blas.trsm(laid_out(stored, l_layout), out, side=side, transposed=transposed)
    np.testing.assert_allclose(operator @ out if side == "left" else out @ operator, b)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("order", [1, 2, 9, 130])
def test_potrf(random, order, layout):
    a = random((order, order))
    a = a @ a.T + np.eye(order)
    out = laid_out(np.where(np.tri(order, dtype=bool), a, np.nan), layout)
    blas.potrf(out)
    np.testing.assert_allclose(np.tril(out) @ np.tril(out).T, a)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_vectors(random, layout, transposed):
    a, x, y = random((4, 3)), random((3, 2))[:, 0], random(4)
    out = y.copy()
    blas.gemv(laid_out(a, layout), x, out, alpha=-1.0)
    np.testing.assert_allclose(out, y - a @ x)
    stored, lower = triangle(random, 4)
    solution = np.zeros((4, 2))[:, 1]
    solution[...] = y
    blas.trsv(laid_out(stored, layout), solution, transposed=transposed)
    np.testing.assert_allclose((lower.T if transposed else lower) @ solution, y)


def test_indefinite_tile_says_where():
    a = np.diag([1.0, 2.0, -1.0, 3.0])
    with pytest.raises(np.linalg.LinAlgError, match=r"\(4, 4\).* order 3 .*info = 3"):
        blas.potrf(a)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: blas.potrf(np.ones((2, 3))), ValueError, "square"),
        (lambda: blas.potrf(np.ones((2, 2), np.float32)), TypeError, "float64"),
        (lambda: blas.potrf(np.ones((6, 6))[::2, ::2]), ValueError, "contiguous rows or columns"),
        (lambda: blas.gemm(np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 3))), ValueError, "does not fit"),
        (lambda: blas.syrk(np.ones((2, 3)), np.ones((3, 3))), ValueError, r"\(2, 2\)"),
        (lambda: blas.trsm(np.eye(2), np.ones((3, 2))), ValueError, r"\(3, 3\)"),
        (lambda: blas.gemv(np.ones((2, 3)), np.ones(2), np.ones(2)), ValueError, "does not fit"),
        (lambda: blas.trsv(np.eye(2), np.ones(3)), ValueError, "order"),
        (lambda: blas.trsv(np.eye(3), np.ones(3)[::-1]), ValueError, "positive stride"),
        (lambda: blas.syrk(np.ones((2, 2)), np.broadcast_to(1.0, (2, 2))), ValueError, "read-only"),
    ],
)
def test_misuse_is_an_error(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_gil_is_released():
    """Another thread runs Python code while a product is computed."""
    n = 700
    a, c = np.ones((n, n)), np.zeros((n, n))
    begun, ended = threading.Event(), threading.Event()
    seen = []

    def count():
        begun.wait()
        while not ended.is_set():
            seen.append(len(seen))

    thread = threading.Thread(target=count)
    thread.start()
    begun.set()
    for _ in range(100):
        before = len(seen)
        blas.gemm(a, a, c, beta=0.0)
        if len(seen) > before + 1000:  # thousands in the milliseconds of one product; with the GIL, none
            break
    ended.set()
    thread.join()
    assert len(seen) > before + 1000
    np.testing.assert_array_equal(c, n)


def test_blas_threads_are_put_back():
    control = blas.thread_control()
    assert control is not None
    get, _ = control
    before = get()
    with blas.blas_threads(1):
        assert get() == 1
    assert get() == before


def test_empty_matrix_keeps_rows_off_powers_of_two():
    matrix = blas.empty_matrix(3, 8192)
    assert matrix.shape == (3, 8192)
    assert matrix.strides == (8 * 8200, 8)
