"""Places, memory outside of contexts, partitions, streams of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import ON_CUDA

import stf.compat.cuda_stf as cuda_stf
from stf.compat.cuda_stf._stream_utils import get_stream_pointer
from stf.compat.cuda_stf.partitions import as_partition

exec_place, data_place, grids = cuda_stf.exec_place, cuda_stf.data_place, cuda_stf.exec_place_grid


def test_execution_places() -> None:
    device, host = exec_place.device(0), exec_place.host()
    assert (device.kind, host.kind, exec_place.current_device().kind) == ("device", "host", "device")
    assert (device.dims, device.size, device.backing_context) == ((1,), 1, None)
    assert device.get_place(0).kind == device[0].kind == "device"
    assert (device.affine_data_place.device_id, host.affine_data_place.kind) == (0, "host")
    with pytest.raises(IndexError):
        device[1]
    for wrong in (64, -1):
        for make in (exec_place.device, data_place.device):
            with pytest.raises(RuntimeError, match="invalid device"):
                make(wrong)
    for make in (exec_place.from_handle, data_place.from_handle):
        with pytest.raises(ValueError, match="null"):
            make(0)
    with pytest.raises(TypeError):
        exec_place()


def test_a_place_is_entered(ctx: Any, work: Any) -> None:
    lX = ctx.logical_data(np.zeros(3))
    place = exec_place.device(0)
    with place, place, ctx.task(lX.rw()) as t, work(t) as (x,):
        x += 1
    assert ctx.wait(lX).tolist() == [1] * 3


def test_grids() -> None:
    grid = grids.from_devices([0] * 6)
    assert (grid.dims, grid.size, grid.grid_rank, grid.kind) == ((6,), 6, 1, "device")
    shaped = grid.reshape((2, 3))
    assert (shaped.dims, shaped.grid_rank, len(shaped)) == ((2, 3), 2, 6)
    assert shaped.reshape((1, 2, 3)).collapse_axes(0, 1).dims == (2, 3)
    assert isinstance(shaped, grids)
    assert isinstance(shaped, exec_place)
    assert grids.create([exec_place.device(0), exec_place.host()], (2, 1)).get_place(1).kind == "host"
    for dims, error, match in (
        ((5,), ValueError, "cannot reshape"),
        ((), ValueError, "1 to 4"),
        ((0, 6), ValueError, "positive"),
        ((True, 6), TypeError, "ints"),
    ):
        with pytest.raises(error, match=match):
            grid.reshape(dims)
    for axes in ((1, 0), (0, 3), (-1, 0)):
        with pytest.raises(ValueError, match="invalid axis range"):
            shaped.collapse_axes(*axes)
    with pytest.raises(ValueError, match="at least one"):
        grids.from_devices([])
    with pytest.raises(ValueError, match="64"):
        grids.from_devices([0] * 65)
    with pytest.raises(ValueError, match="must equal the number of places"):
        grids.create([exec_place.device(0)] * 3, (2, 2))
    with pytest.raises(ValueError, match="granularity"):
        grids.machine("rack")
    assert grids.machine().size >= 1


def test_domains() -> None:
    count = cuda_stf.locality_domain_count(0)
    assert count >= 1
    assert grids.locality_domains(0).size == count
    assert exec_place.locality_domain(0, 0, "fine").kind == "device"
    assert data_place.locality_domain(0, 0).device_id == 0
    with pytest.raises(ValueError):
        cuda_stf.locality_domain_count(99)
    with pytest.raises(ValueError, match="sm_split"):
        exec_place.locality_domain(0, 0, "coarse")
    cuda_stf.machine_init()


def test_data_places() -> None:
    assert "host" in data_place.host().kind
    assert data_place.device(0).device_id == 0
    assert [place.kind for place in (data_place.managed(), data_place.affine())] == ["managed", "affine"]
    lone = data_place.replicated()
    with cuda_stf.context() as ctx:
        lX = ctx.logical_data(np.ones(3))
        with ctx.task(lX.read(lone)):
            pass
        with pytest.raises(ValueError, match="read"):
            lX.rw(lone)


@pytest.mark.skipif(ON_CUDA, reason="this device may be split")
def test_green_contexts_are_of_cuda() -> None:
    with pytest.raises(ValueError):
        cuda_stf.green_context_helper(0)
    with pytest.raises(ValueError):
        cuda_stf.green_places(0)
    for make in (cuda_stf.green_context_helper, cuda_stf.green_places):
        with pytest.raises(RuntimeError, match="CUDA"):
            make(8)


def test_streams_of_a_place() -> None:
    resources = cuda_stf.exec_place_resources()
    place = exec_place.device(0)
    with place:
        stream = place.pick_stream(resources)
    assert isinstance(stream, cuda_stf.CudaStream)
    assert (int(stream) != 0) == ON_CUDA
    with pytest.raises(TypeError):
        place.pick_stream(None)
    assert get_stream_pointer(None) == 0
    assert get_stream_pointer(7) == get_stream_pointer(cuda_stf.CudaStream(7)) == 7
    with pytest.raises(TypeError):
        get_stream_pointer("7")


def test_memory_of_the_host() -> None:
    place = data_place.host()
    address = place.allocate(64)
    assert address > 0
    assert not place.allocation_is_stream_ordered
    place.deallocate(address, 64)
    with pytest.raises(ValueError, match="non-negative"):
        place.allocate(-1)
    with pytest.raises(ValueError, match="given back"):
        place.deallocate(address, 64)
    array = cuda_stf.DeviceArray.from_host(np.arange(6.0).reshape(2, 3), place)
    assert (array.shape, array.ndim, array.size, array.nbytes) == ((2, 3), 2, 6, 48)
    assert array.reshape(-1)[2:4].copy_to_host().tolist() == [2, 3]
    array.reshape(3, 2).copy_to_device(np.ones((3, 2)))
    assert np.from_dlpack(array).sum() == 6
    assert array.__dlpack_device__() == (1, 0)
    with pytest.raises(ValueError, match="match exactly"):
        array.copy_to_device(np.ones(2))
    with pytest.raises(ValueError, match="non-negative"):
        cuda_stf.DeviceArray(-1, float, place)
    with pytest.raises(IndexError):
        array.reshape(-1)[::2]
    with pytest.raises(TypeError):
        array[0]
    with pytest.raises(BufferError):
        array.__dlpack__(copy=True)


def test_partitions() -> None:
    part = cuda_stf.cute_partition.from_spec((10, 7), (("blocked", 0), None), (4,))
    assert (part.true_dims, part.padded_dims, part.grid_dims) == ((10, 7), (12, 7), (4,))
    assert part.place_leaves == [(4, 21, 0)]
    assert part.local_leaves == [(3, 7), (7, 1)]
    assert [part.grid_place_offset(i) for i in range(4)] == [part.place_offset(i) for i in range(4)] == [0, 21, 42, 63]
    again = cuda_stf.cute_partition.from_leaves(
        part.place_leaves, part.local_leaves, part.padded_dims, part.true_dims, part.grid_dims
    )
    assert again.get_executor((5, 0), (10, 7), (4,)) == part.get_executor((5, 0), (10, 7), (4,)) == (1,)
    dealt = cuda_stf.cute_partition.from_spec((8,), (("block_cyclic", 0, 2),), (2,))
    assert [dealt.get_executor((i,), (8,), (2,))[0] for i in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    for spec in ((("blocked", 1), None), (("diagonal", 0), None), (None,), (None, None)):
        with pytest.raises(ValueError):
            cuda_stf.cute_partition.from_spec((10, 7), spec, (4,))


def test_each_element_lies_at_one_place() -> None:
    part = cuda_stf.cute_partition.from_spec((10,), (("blocked", 0),), (4,))
    assert [part.apply((10,), (i,), (4,))[0] for i in range(4)] == [slice(i, min(i + 3, 10)) for i in (0, 3, 6, 9)]
    scattered = as_partition(lambda at, dims, places: at[0] % 2 * 2)  # none at 1: all lie in blocks
    assert [len(scattered.apply((9,), (i,), (3,))[0]) for i in range(3)] == [3, 3, 3]


def test_how_data_would_lie() -> None:
    grid = grids.from_devices([0, 0])
    part = cuda_stf.cute_partition.from_spec((1024,), (("blocked", 0),), (2,))
    mappers = part, cuda_stf.partition_fn_blocked(), lambda at, dims, places: at[0] * places[0] // dims[0]
    for mapper in mappers:
        stats = cuda_stf.placement_evaluate(grid, mapper, (1024,), 8, block_size=1024)
        assert (stats.total_bytes, stats.nblocks, stats.nallocs, stats.accuracy) == (8192, 8, 2, 1.0)
        assert stats.bytes_per_grid_index == [4096, 4096]
    cyclic = cuda_stf.placement_evaluate(grid, cuda_stf.partition_fn_cyclic(), (1024,), 8, block_size=1024)
    assert cyclic.accuracy == 0.5
    with pytest.raises(RuntimeError, match="mapper raised"):
        cuda_stf.placement_evaluate(grid, lambda *_: 5, (1024,), 8)
    with pytest.raises(TypeError):
        cuda_stf.placement_evaluate(grid, "blocked", (8,), 8)


def test_memory_of_several_places(ctx: Any, work: Any) -> None:

    grid = grids.create([exec_place.device(0)] * 2, mapper=lambda at, dims, places: 0, data_rank=1)
    lX = ctx.logical_data(np.zeros(4), grid.affine_data_place)
    assert ctx.wait(lX).tolist() == [0] * 4
