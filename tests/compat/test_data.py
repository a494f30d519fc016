"""`logical_data` and `dep`: what can be registered, made, and depended on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import ON_CUDA

import stf.compat.cuda_stf as cuda_stf
from stf.compat.cuda_stf.fill_utils import init_logical_data

AccessMode = cuda_stf.AccessMode


@pytest.fixture(params=["context", "stackable_context"])
def either(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("ctx" if request.param == "context" else "stackable")


def host(context: Any, data: Any) -> Any:
    """Return the content of data of either kind of context."""
    found: list[Any] = []
    context.host_launch(data.read(), fn=lambda x: found.append(x.copy()))
    context._context.synchronize()
    return found[0]


def test_modes() -> None:
    assert [int(mode) for mode in AccessMode] == [1, 2]
    assert AccessMode.NONE == 0
    assert AccessMode.READ | AccessMode.WRITE == AccessMode.RW == 3


@pytest.mark.parametrize(
    "buffer",
    [np.arange(6, dtype=np.int32).reshape(2, 3), bytearray(b"abc"), memoryview(b"abc"), np.array(2.5)],
    ids=["numpy", "bytearray", "memoryview", "no axes"],
)
def test_what_can_be_registered(either: Any, buffer: Any) -> None:
    data = either.logical_data(buffer)
    view = memoryview(buffer)
    assert data.shape == view.shape
    assert data.dtype == np.dtype(view.format)
    assert data.readonly is view.readonly
    assert host(either, data).tolist() == view.tolist()


def test_a_registered_bytearray_keeps_its_size(either: Any) -> None:
    buffer = bytearray(4)
    data = either.logical_data(buffer)
    with pytest.raises(BufferError):
        buffer.append(1)
    assert data.shape == (4,)


def test_results_are_written_back(either: Any, work: Any) -> None:
    X = np.ones((2, 3), np.float32)
    lX = either.logical_data(X, cuda_stf.data_place.host(), "X")
    with either.task(lX.rw()) as t, work(t) as (x,):
        x *= 3
    either.finalize()
    assert X.tolist() == [[3] * 3] * 2


def test_names(either: Any) -> None:
    lX = either.logical_data(np.zeros(3), name="X")
    lY = either.logical_data(np.zeros(3))
    assert (lX.symbol, lY.symbol) == ("X", None)
    lY.set_symbol("Y")
    assert lY.symbol == "Y"
    assert "symbol='Y'" in repr(lY)
    assert either.logical_data_empty((2,), name="Z").symbol == "Z"


def test_arrays_are_packed(either: Any) -> None:
    for array in (np.zeros((4, 4))[:, ::2], np.zeros((4, 4), order="F"), memoryview(np.zeros(8))[::2]):
        with pytest.raises(ValueError, match="C-contiguous"):
            either.logical_data(array)
    with pytest.raises(TypeError):
        either.logical_data([1, 2, 3])
    with pytest.raises(TypeError, match="data_place"):
        either.logical_data(np.zeros(3), "host")


class Interface:
    """Something with a CUDA array interface."""

    def __init__(self, **entries: Any) -> None:
        self.entries = {"version": 3, "shape": (4,), "typestr": "<f8", "data": (4096, False)} | entries

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.entries


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"shape": (-4,)}, "non-negative"),
        ({"strides": (8, 8)}, "dimensions"),
        ({"strides": (16,)}, "C-contiguous"),
        ({"shape": (2, 2), "strides": (8, 16)}, "C-contiguous"),
        ({"stream": 0}, "disallowed"),
    ],
)
def test_a_malformed_array_interface_is_refused(either: Any, entries: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        either.logical_data(Interface(**entries), cuda_stf.data_place.device(0))


@pytest.mark.skipif(not ON_CUDA, reason="needs CUDA")
def test_arrays_of_a_device(either: Any, work: Any) -> None:
    import cupy

    X = cupy.zeros((2, 3))
    lX = either.logical_data(X, cuda_stf.data_place.device(0))
    with either.task(lX.rw()) as t, work(t) as (x,):
        x += 1
    either.finalize()
    assert X.get().sum() == 6
    with cuda_stf.context() as other, pytest.raises(ValueError, match="host memory"):
        other.logical_data(np.zeros(3), cuda_stf.data_place.device(0))


def test_readonly_arrays_cannot_be_written(either: Any) -> None:
    X = np.zeros(3)
    X.flags.writeable = False
    lX = either.logical_data(X)
    assert lX.readonly
    assert lX.read().mode == AccessMode.READ
    for method in (lX.write, lX.rw):
        with pytest.raises(ValueError, match="read-only"):
            method()
    with pytest.raises(ValueError, match="read-only"):
        either.task(cuda_stf.write(lX)).start()


def test_shapes(either: Any) -> None:
    assert either.logical_data_empty((2, 3)).dtype == np.float64
    assert either.logical_data_empty([2, np.int64(3)], np.int8).shape == (2, 3)
    for shape, error, match in (
        (3, TypeError, "iterable of integers"),
        ((2.5,), TypeError, "dimensions must be integers"),
        ((0,), ValueError, "positive integers"),
        ((2, -1), ValueError, "positive integers"),
        ((), ValueError, "at least one dimension"),
    ):
        with pytest.raises(error, match=match):
            either.logical_data_empty(shape)


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.int32, np.float64, np.complex128, np.bool_])
def test_filled_data(either: Any, dtype: Any) -> None:
    assert host(either, either.logical_data_full((2, 2), 1, dtype)).tolist() == np.full((2, 2), 1, dtype).tolist()
    assert host(either, either.logical_data_zeros((3,), dtype)).tolist() == np.zeros(3, dtype).tolist()
    ones = either.logical_data_ones((3,), dtype, name="ones")
    assert (ones.dtype, ones.symbol) == (dtype, "ones")
    assert host(either, ones).tolist() == np.ones(3, dtype).tolist()


def test_filled_data_have_the_dtype_of_the_value(either: Any) -> None:
    assert either.logical_data_full((2,), 1.5).dtype == np.float64
    assert either.logical_data_full((2,), 3).dtype == np.int64
    assert either.logical_data_full((2,), np.float32(3)).dtype == np.float32
    assert either.logical_data_zeros((2,)).dtype == either.logical_data_ones((2,)).dtype == np.float64


def test_filled_where(either: Any) -> None:
    place, memory = cuda_stf.exec_place.device(0), cuda_stf.data_place.device(0)
    assert host(either, either.logical_data_full((2,), 4.0, exec_place=place)).tolist() == [4, 4]
    assert host(either, either.logical_data_full((2,), 4.0, where=memory)).tolist() == [4, 4]
    assert host(either, either.logical_data_zeros((2,), None, memory, place, "Z")).tolist() == [0, 0]
    with pytest.raises(NotImplementedError):
        either.logical_data_full((2,), 1.0, exec_place=cuda_stf.exec_place.host())


def test_init_logical_data(either: Any) -> None:
    lX = either.logical_data_empty((3,))
    init_logical_data(either, lX, 2.5)
    assert host(either, lX).tolist() == [2.5] * 3
    init_logical_data(either, lX, 0, cuda_stf.data_place.device(0), cuda_stf.exec_place.device(0))
    assert host(either, lX).tolist() == [0] * 3


def test_data_of_the_same_shape(either: Any) -> None:
    lX = either.logical_data(np.zeros((2, 3), np.int16), name="X")
    for lY in (lX.empty_like(), lX.like_empty()):
        assert (lY.shape, lY.dtype, lY.symbol) == ((2, 3), np.int16, None)
        assert type(lY) is type(lX)
        assert lY.write().get_ld() is lY
    assert either.logical_data_by_shape((2, 3), np.int16).shape == (2, 3)


def test_dependences() -> None:
    with cuda_stf.context() as ctx:
        lX, place = ctx.logical_data(np.zeros(3)), cuda_stf.data_place.device(0)
        for made, mode in ((lX.read(place), 1), (lX.write(place), 2), (lX.rw(place), 3)):
            assert isinstance(made, cuda_stf.dep)
            assert tuple(made) == (lX, mode, place)
            assert (made.ld, made.mode, made.dplace, made.get_ld()) == (lX, mode, place, lX)
        assert [f(lX).mode for f in (cuda_stf.read, cuda_stf.write, cuda_stf.rw)] == [1, 2, 3]
        assert cuda_stf.dep(lX, AccessMode.RW).mode == 3
        assert "dep(" in repr(lX.read())
        for mode in (0, 4, -1):
            with pytest.raises(ValueError, match="mode"):
                cuda_stf.dep(lX, mode)
        with pytest.raises(TypeError, match="mode"):
            cuda_stf.dep(lX, "rw")


def test_tokens(either: Any) -> None:
    token, order = either.token(), []
    assert (token.shape, token.dtype) == (None, None)
    either.host_launch(token.read(), fn=lambda: order.append(0))
    either.host_launch(token.rw(), fn=lambda: order.append(1))
    either.host_launch(token.rw(), fn=lambda: order.append(2))
    either.finalize()
    assert order == [0, 1, 2]


def test_what_a_class_makes() -> None:
    with cuda_stf.context() as ctx:
        made = cuda_stf.logical_data.init_by_shape(ctx, (2, 3), np.float32, "X")
        assert (made.shape, made.dtype, made.symbol) == ((2, 3), np.float32, "X")
        assert cuda_stf.logical_data.token(ctx).shape is None
        assert cuda_stf.logical_data(ctx, np.zeros(4)).shape == (4,)


def test_stackable_data_may_become_read_only(stackable: Any) -> None:
    lX = stackable.logical_data(np.zeros(3))
    lX.push(AccessMode.RW)
    lX.set_read_only()
    assert lX.readonly
    lX.push(AccessMode.READ)
    for call in (lX.write, lX.rw, lambda: lX.push(AccessMode.WRITE)):
        with pytest.raises(ValueError, match="read-only"):
            call()


def test_data_outlive_their_context() -> None:
    ctx = cuda_stf.context()
    lX = ctx.logical_data(np.zeros(3))
    ctx.finalize()
    del ctx
    assert lX.shape == (3,)


def test_structured_elements(ctx: Any) -> None:
    pairs = np.zeros(3, [("a", np.int32), ("b", np.float64)])
    lX = ctx.logical_data(pairs)
    assert lX.dtype == pairs.dtype
    ctx.host_launch(lX.rw(), fn=lambda x: np.copyto(x["b"], 2.0))
    assert ctx.wait(lX)["b"].tolist() == [2, 2, 2]


def test_bundles(ctx: Any, work: Any) -> None:
    values, columns = ctx.logical_data(np.ones(4)), ctx.logical_data(np.arange(4))
    other = ctx.logical_data(np.zeros(4))
    A = ctx.bundle(values=values, columns=cuda_stf.constant(columns))
    assert len(A) == 2
    assert A.values is values
    assert not hasattr(A, "rows")
    with ctx.task(A.rw(), other.rw()) as t:
        a, y = t.get(0), t.get(1)
        assert a.values.shape == a.columns.shape == y.shape == (4,)
        assert t.get_arg(2) == y.ptr
        with work(t) as (v, c, o):
            v *= 2
            o += v * c
    assert ctx.wait(other).tolist() == [0, 2, 4, 6]
    with ctx.task(A.dep(columns=AccessMode.NONE, values=AccessMode.READ)) as t:
        assert t.get(0).columns is None
        assert t.args_cai().shape == (4,)
    assert [d.mode for d in A.write().deps] == [2, 1]
    assert [d.mode for d in A.read().deps] == [1, 1]
    with pytest.raises(ValueError, match="constant"):
        A.dep(columns=AccessMode.RW)
    with pytest.raises(KeyError):
        A.dep(rows=AccessMode.RW)
    with pytest.raises(ValueError, match="field"):
        ctx.bundle()
    with pytest.raises(TypeError, match="logical data"):
        ctx.bundle(values=np.zeros(3))
