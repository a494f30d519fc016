"""Arrays in the memory of a place, outside of any context."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from helpers import ON_CUDA

import stf
from stf import data_place

PLACES = [data_place.host(), data_place.managed(), data_place.device(0), data_place.current_device()]


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are of the devices that contexts find by themselves."""
    monkeypatch.setattr(stf.config, "devices", "cuda:0" if ON_CUDA else "cpu:2")


def two_places() -> Any:
    return data_place.composite(stf.exec_place.grid([0, 0]), stf.blocked_partition())


@pytest.mark.parametrize("place", [*PLACES, two_places()], ids=lambda place: place.kind)
def test_content_goes_in_and_out(place):
    array = place.allocate((3, 2), "float32")
    assert isinstance(array, stf.OwnedArray)
    assert (array.shape, array.dtype, array.ndim, array.size, array.nbytes) == ((3, 2), np.float32, 2, 6, 24)
    assert array.data_place == place
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    array.copy_to_device(values)
    assert array.copy_to_host().tolist() == values.tolist()
    again = stf.OwnedArray.from_host(values.T, place)
    assert again.copy_to_host().tolist() == values.T.tolist()


@pytest.mark.parametrize("place", [*PLACES, two_places()], ids=lambda place: place.kind)
def test_logical_data_of_it_have_its_memory(ctx, place):
    array = stf.OwnedArray.from_host(np.arange(4.0), place)
    x = ctx.logical_data(array)
    ctx.copy(x, y := ctx.logical_data_empty(4, float))
    ctx.fill(x, 5.0)
    assert ctx.wait(y).tolist() == [0, 1, 2, 3]
    ctx.finalize()
    assert array.copy_to_host().tolist() == [5] * 4


def test_a_number_of_bytes(ctx):
    array = data_place.host().allocate(100)
    assert (array.shape, array.dtype, array.nbytes) == ((100,), np.uint8, 100)
    assert data_place.device(0).allocate(0).copy_to_host().shape == (0,)
    assert data_place.device(0).allocate((), "int64").copy_to_host().shape == ()


def test_other_libraries():
    host = stf.OwnedArray.from_host([1, 2, 3], data_place.host())
    view = np.asarray(host)
    view[0] = 7
    assert np.from_dlpack(host).tolist() == [7, 2, 3] == host.copy_to_host().tolist()
    assert not hasattr(host, "__cuda_array_interface__")
    assert host.__dlpack_device__() == (1, 0)
    if sys.version_info >= (3, 12):
        assert memoryview(host)[0] == 7
    with pytest.raises(BufferError, match="copied"):
        host.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="lies at"):
        host.__dlpack__(dl_device=(2, 3))
    device = data_place.device(0).allocate(8)
    if ON_CUDA:
        assert device.__cuda_array_interface__["data"] == (device.ptr, False)
        assert device.__dlpack_device__() == (2, 0)
        assert not hasattr(device, "__array_interface__")
        assert device.__dlpack__(max_version=(1, 0)) is not None
    assert data_place.device(0).allocation_is_stream_ordered is ON_CUDA
    assert not data_place.managed().allocation_is_stream_ordered
    assert not two_places().allocation_is_stream_ordered


def test_memory_outlives_close_while_it_is_used(ctx):
    array = stf.OwnedArray.from_host(np.zeros(1000), data_place.device(0))
    x = ctx.logical_data(array)
    array.close()
    array.close()
    ctx.fill(x, 1.0)
    assert ctx.wait(x).tolist() == [1.0] * 1000
    host = stf.OwnedArray.from_host(np.ones(1000), data_place.host())
    view = np.from_dlpack(host)
    host.close()
    assert view.sum() == 1000


@pytest.mark.parametrize("view_of", [np.asarray, np.from_dlpack], ids=["array", "dlpack"])
def test_views_keep_the_memory(view_of):
    with data_place.host().allocate(10_000_000, float) as array:
        array.copy_to_device(np.arange(1e7))
        block = weakref.ref(array._block)
        view = view_of(array)
    part = view[-2:]
    del array, view
    gc.collect()
    assert block() is not None
    assert part.tolist() == [9_999_998, 9_999_999]
    del part
    gc.collect()
    assert block() is None


def test_memory_goes_at_the_end_of_the_block_if_nobody_has_a_view():
    with data_place.host().allocate(8) as array:
        block = weakref.ref(array._block)
    assert block() is None


def test_arrays_of_cuda_keep_the_memory():
    if not ON_CUDA:
        pytest.skip("memory without __cuda_array_interface__")
    with data_place.device(0).allocate(8) as array:
        block, interface = weakref.ref(array._block), array.__cuda_array_interface__
    assert block().address == interface["data"][0]
    del array
    gc.collect()
    assert block() is None


def test_a_closed_array_is_refused(ctx):
    with data_place.device(0).allocate(8) as array:
        assert not array.is_closed
    assert array.is_closed
    assert "closed" in repr(array)
    uses = [
        lambda: array.ptr,
        array.copy_to_host,
        lambda: array.copy_to_device(np.zeros(8, np.uint8)),
        lambda: ctx.logical_data(array),
        lambda: array.__dlpack__(),
        lambda: array.__cuda_array_interface__,
        lambda: np.asarray(array),
    ]
    for use in uses:
        with pytest.raises(stf.AccessError, match="closed"):
            use()


@pytest.mark.parametrize(
    "dtype, values",
    [
        ("int32", [1, 2]),
        ("float32", [1.5, 2]),
        ("complex64", [1, 2j]),
        ("uint64", [(1 << 63) + 1, 1]),
        ("bool", [True, 0 > 1]),
    ],
)
def test_lists_take_the_type_of_the_array(dtype, values):
    array = data_place.device(0).allocate(2, dtype)
    array.copy_to_device(values)
    assert array.copy_to_host().tolist() == values


def test_what_is_refused():
    place = data_place.host()
    with pytest.raises(TypeError, match="needs a dtype"):
        place.allocate((2, 2))
    with pytest.raises(ValueError, match="negative"):
        place.allocate(-1)
    with pytest.raises(TypeError):
        place.allocate(2.5, float)
    with pytest.raises(TypeError, match="objects"):
        place.allocate(2, object)
    with pytest.raises(TypeError, match="a stream is"):
        place.allocate(2, float, stream="s")
    for several in (data_place.affine(), data_place.replicated(stf.exec_place.n_devices(2))):
        with pytest.raises(stf.PlaceError, match="no memory of its own"):
            several.allocate(2)
    with pytest.raises(stf.OutOfMemoryError, match="no room"):
        data_place.device(0).allocate(1 << 62)
    array = place.allocate(2, "int32")
    with pytest.raises(ValueError, match="its shape"):
        array.copy_to_device([1, 2, 3])
    with pytest.raises(ValueError, match="astype"):
        array.copy_to_device(np.array([1.5, 2.5]))
    for values in ([1.5, 2.7], (1, 2.5), [1, 2j], np.array([1, 2]), [1, None], ["a", "b"]):
        with pytest.raises(ValueError, match="the array for <array int32"):
            array.copy_to_device(values)
    with pytest.raises(OverflowError, match="goes from -2147483648"):
        array.copy_to_device([1, 1 << 31])
    masked = np.ma.masked_array([1, 2], [False, True], "int32")
    with pytest.raises(ValueError, match="has a mask"):
        array.copy_to_device(masked)
    with pytest.raises(TypeError, match="has a mask"):
        stf.OwnedArray.from_host(masked, place)
    if ON_CUDA:
        with pytest.raises(stf.PlaceError, match="not on this machine"):
            data_place.device(77).allocate(1)
        mixed = stf.exec_place.grid(["host", 0])
        with pytest.raises(stf.PlaceError, match="the host beside"):
            data_place.composite(mixed).allocate(8)
