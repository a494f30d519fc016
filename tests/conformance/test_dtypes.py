"""Element types: NumPy's, those that ml_dtypes adds, and what they are called elsewhere."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from helpers import content, is_cuda

import stf
from stf.interop import dlpack, dtypes

NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


@pytest.fixture
def ml_dtypes():
    return pytest.importorskip("ml_dtypes")


@pytest.mark.parametrize("name", NARROW)
def test_narrow_floats_go_everywhere(ctx, ml_dtypes, name):
    """They are copied as bits: in, to every device, filled, and out."""
    kind = getattr(ml_dtypes, name)
    X = np.array([1, -2, 0.5], kind)
    lX, lY = ctx.logical_data(X, name="X"), ctx.logical_data_full(3, 1.5, name)
    lZ = ctx.logical_data_empty((2, 3), kind)
    assert lX.dtype == lY.dtype == lZ.dtype == np.dtype(kind)
    assert (lX.nbytes, lZ.nbytes) == (3 * X.itemsize, 6 * X.itemsize)
    for place in ctx.devices:
        with ctx.task(place, lX.rw()):
            pass
    assert lX.numpy().dtype == X.dtype and lX.numpy().tolist() == [1, -2, 0.5]
    assert lY.numpy().astype(float).tolist() == [1.5] * 3
    scalar = ctx.logical_data_full((), -0.5, name)
    assert type(ctx.wait(scalar)) is float and float(scalar) == -0.5 and scalar.numpy().dtype == X.dtype


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (40,)], ids=str)
@pytest.mark.parametrize("name", ["?", "i1", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_what_is_waited_for_is_what_numpy_has(ctx, name, shape):
    """Of any type and size, looked at once or again; the result is one's own."""
    expected = np.full(shape, 1 if name == "?" else 7, name)
    lX = ctx.logical_data_full(shape, True if name == "?" else 3, name)
    for _ in range(2):
        with ctx.task(lX.write()) as t:
            t.arrays()[0][...] = expected[()] if shape == () else expected.flat[0]
        for _ in range(3):
            found = ctx.wait(lX)
            assert type(found) is (type(expected.item()) if shape == () else np.ndarray)
            assert np.array_equal(found, expected) and np.asarray(found).shape == shape
            assert shape == () or found.dtype == expected.dtype
            assert lX.numpy().dtype == expected.dtype
            if shape:
                found[...] = 0  # nobody else sees that


@pytest.mark.parametrize(
    "value", [-0.0, np.inf, -np.inf, np.nan, 5e-324, -(2**31), 2**31 - 1, -(2**63), 2**64 - 1], ids=str
)
def test_numbers_at_the_edge_of_their_type_come_as_they_are(ctx, value):
    name = "f8" if isinstance(value, float) else "u8" if value > 2**63 else "i8" if value < -(2**31) else "i4"
    lX = ctx.logical_data_full((), value, name)
    for _ in range(2):
        assert np.array(ctx.wait(lX), name).tobytes() == np.array(value, name).tobytes()


def test_narrow_floats_in_bodies(ctx, ml_dtypes):
    if is_cuda(ctx):
        pytest.skip("the stand-in for CuPy has no kernels for them")
    lX = ctx.logical_data(np.ones(4, ml_dtypes.bfloat16))

    @stf.task
    def double(x: stf.ReadWrite):
        assert x.dtype == ml_dtypes.bfloat16
        x *= 2

    double(lX)
    assert content(lX.numpy()).tolist() == [2] * 4


def test_a_dtype_that_needs_a_package_says_so(ctx, monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="bfloat16 is a type that NumPy has only with ml_dtypes: pip install ml_dtyp"):
        ctx.logical_data_empty(3, "bfloat16")
    assert ctx.logical_data_empty(3, "f4").dtype == np.float32
    with pytest.raises(TypeError, match="data type 'float7' not understood"):
        ctx.logical_data_empty(3, "float7")


def test_masked_arrays_are_refused(ctx):
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    with pytest.raises(TypeError, match=r"MaskedArray has a mask, which .* register x.filled\(value\), or x.data and"):
        ctx.logical_data(masked)
    with pytest.raises(TypeError, match="MaskedArray has a mask"):
        ctx.logical_data(np.ma.masked_array([1.0, 2.0]))
    assert ctx.logical_data(masked.filled(0.0)).numpy().tolist() == [0, 2]


def test_codes_of_dlpack_go_both_ways(ml_dtypes):
    for name in [*sorted(dtypes.PLAIN), *sorted(dtypes.NARROW)]:
        dtype = dtypes.dtype_of(name)
        code, bits = dtypes.dlpack_code(dtype)
        assert dtypes.dtype_of_dlpack(code, bits, 1) == dtype, name
    with pytest.raises(TypeError, match=r"elements of DLPack's type \(code 2, 32 bits, 4 lanes\)"):
        dtypes.dtype_of_dlpack(2, 32, 4)
    for unsayable in (np.dtype("S3"), np.dtype(">f4"), np.dtype([("a", "f4")])):
        with pytest.raises(BufferError, match="DLPack cannot say what"):
            dtypes.dlpack_code(unsayable)


class Exporter:
    """Speaks DLPack as NumPy does, and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_in_keeps_strides_and_the_read_only_flag(ctx):
    X = np.arange(12.0).reshape(3, 4)
    for array in (X[:, ::2], X.T, X[1:, 1]):
        data = ctx.logical_data(Exporter(array), name="E")
        assert (data.shape, data.strides, data.dtype) == (array.shape, array.strides, X.dtype)
        assert data.numpy().tolist() == array.tolist()
        data.release()
    frozen = X.copy()
    frozen.flags.writeable = False
    if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1):  # which tells it
        with pytest.raises(stf.AccessError, match="read-only"):
            ctx.task(ctx.logical_data(Exporter(frozen)).rw()).start()
    assert ctx.logical_data(Exporter(np.array(True))).numpy().tolist() is True


def test_what_dlpack_gives_is_written_back(ctx):
    X = np.zeros(3)
    data = ctx.logical_data(Exporter(X))
    ctx.fill(data, 2.0)
    data.write_back()
    ctx.wait(data)
    assert X.tolist() == [2, 2, 2]


def test_a_capsule_that_was_used_is_refused():
    capsule = np.zeros(3).__dlpack__()
    np.from_dlpack(type("Given", (), {"__dlpack__": lambda *_, **__: capsule, "__dlpack_device__": lambda _: (1, 0)})())
    with pytest.raises(BufferError, match="got b'used_dltensor'; it was used already"):
        dlpack.described(capsule)
