"""`task` and `cuda_kernel`: arguments, arrays, streams."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from helpers import ON_CUDA

import stf
import stf.compat.cuda_stf as cuda_stf


@pytest.fixture(params=["context", "stackable_context"])
def either(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("ctx" if request.param == "context" else "stackable")


def test_a_task_by_hand(either: Any, work: Any) -> None:
    X = np.zeros(3)
    lX = either.logical_data(X)
    t = either.task()
    assert t.add_dep(lX.rw()) is None
    t.set_symbol("by hand")
    t.set_exec_place(cuda_stf.exec_place.device(0))
    t.start()
    with work(t) as (x,):
        x += 1
    t.end()
    either.finalize()
    assert X.tolist() == [1, 1, 1]


def test_a_place_may_stand_anywhere(either: Any, work: Any) -> None:
    lX, lY = either.logical_data(np.ones(3)), either.logical_data(np.ones(3))
    place = cuda_stf.exec_place.device(0)
    for args in ((place, lX.read(), lY.rw()), (lX.read(), place, lY.rw()), (lX.read(), lY.rw(), place)):
        with either.task(*args) as t, work(t) as (x, y):
            y += x
    with pytest.raises(ValueError, match="Only one exec_place"):
        either.task(place, place)
    for wrong in (lX, 3, "host", None):
        with pytest.raises(TypeError):
            either.task(wrong)


def test_an_object_may_say_what_place_it_is(either: Any) -> None:
    class Device:
        def __init__(self, place: Any) -> None:
            self.place = place

        def _as_stf_exec_place(self) -> Any:
            return self.place

    with either.task(Device(cuda_stf.exec_place.device(0)), either.logical_data(np.zeros(3)).rw()):
        pass
    with pytest.raises(TypeError, match="_as_stf_exec_place"):
        either.task(Device(3))
    with pytest.raises(ValueError, match="Only one exec_place"):
        either.task(cuda_stf.exec_place.host(), Device(cuda_stf.exec_place.host()))
    grid = cuda_stf.exec_place_grid.create([Device(cuda_stf.exec_place.device(0))])
    assert grid.size == 1


def test_dependences_are_of_the_context(ctx: Any, stackable: Any) -> None:
    with pytest.raises(TypeError, match="stackable"):
        ctx.task(stackable.logical_data(np.zeros(3)).read())
    with pytest.raises(TypeError, match="stackable"):
        stackable.task(ctx.logical_data(np.zeros(3)).read())
    with cuda_stf.context() as other, pytest.raises(ValueError, match="different context"):
        ctx.task(other.logical_data(np.zeros(3)).read())
    t = ctx.task()
    with pytest.raises(TypeError, match="add_dep expects"):
        t.add_dep(ctx.logical_data(np.zeros(3)))
    with pytest.raises(TypeError, match="data_place"):
        ctx.task(ctx.logical_data(np.zeros(3)).read("host")).start()
    with pytest.raises(TypeError, match="exec_place"):
        t.set_exec_place(cuda_stf.data_place.host())


def test_arrays(either: Any) -> None:
    lX, lY = either.logical_data(np.zeros((2, 3), np.float32)), either.logical_data(np.zeros(4, np.int64))
    with either.task(lX.read(), either.token().rw(), lY.rw()) as t:
        x, y = t.get_arg_cai(0), t.get_arg_cai(2)
        assert (x.shape, x.dtype, y.shape, y.dtype) == ((2, 3), np.float32, (4,), np.int64)
        assert (x.ptr, y.ptr) == (t.get_arg(0), t.get_arg(2)) == (x["data"][0], y["data"][0])
        assert (x.get("strides", 1), x["stream"], x["version"], x.get("none", 5)) == (None, None, 3, 5)
        assert x["typestr"] == "<f4"
        assert [view.ptr for view in t.args_cai()] == [x.ptr, y.ptr]
        assert t.get(1) is None
        for call in (t.get_arg, t.get_arg_cai):
            with pytest.raises(RuntimeError, match="token"):
                call(1)
            with pytest.raises(IndexError):
                call(3)
    with either.task(lX.read()) as t:
        assert t.args_cai().shape == (2, 3)
    with either.task(either.token().rw()) as t:
        assert t.args_cai() is None
    with pytest.raises(RuntimeError):
        t.get_arg(0)


def test_arrays_are_those_that_a_library_takes(either: Any) -> None:
    lX = either.logical_data(np.zeros(3))
    with either.task(lX.rw()) as t:
        view = t.get_arg_cai(0)
        assert hasattr(view, "__cuda_array_interface__") == ON_CUDA
        assert hasattr(view, "__array_interface__") != ON_CUDA
        assert isinstance(view, cuda_stf.stf_cai) == ON_CUDA
    with either.task(cuda_stf.exec_place.host(), lX.rw()) as t:
        array = np.asarray(t.get_arg_cai(0))
        array[:] = 5
        assert array.ctypes.data == t.get_arg(0)
    with either.task(cuda_stf.exec_place.host(), lX.read()) as t:
        assert np.asarray(t.args_cai()).tolist() == [5, 5, 5]
        assert not np.asarray(t.args_cai()).flags.writeable


def test_the_interface_of_an_array() -> None:
    view = cuda_stf.stf_cai(4096, (2, 3), np.float32, 7)
    assert view.__cuda_array_interface__ == {
        "version": 3,
        "shape": (2, 3),
        "typestr": "<f4",
        "data": (4096, False),
        "strides": None,
        "stream": 7,
    }
    assert (view.ptr, view.shape, view.dtype, view.stream) == (4096, (2, 3), np.float32, 7)
    pairs = cuda_stf.stf_cai(4096, (2,), [("a", "<i4"), ("b", "<f8")])
    assert pairs["descr"] == [("a", "<i4"), ("b", "<f8")]
    assert pairs["stream"] is None


def test_the_stream_of_a_task(either: Any) -> None:
    with either.task(either.logical_data(np.zeros(3)).rw()) as t:
        stream = t.stream_ptr()
        assert isinstance(stream, int)
        assert isinstance(stream, cuda_stf.CudaStream)
        assert stream.ptr == int(stream)
        if ON_CUDA:
            assert stream.__cuda_stream__() == (0, int(stream))
            assert stream != 0
        else:
            with pytest.raises(stf.PlaceError, match="CPU"):
                stream.__cuda_stream__()
    assert repr(cuda_stf.CudaStream(255)) == "CudaStream(0xff)"


def test_the_data_place_of_a_dependence(either: Any, work: Any) -> None:
    lX = either.logical_data(np.ones(3))
    memory = cuda_stf.data_place.device(0)
    with either.task(cuda_stf.exec_place.device(0), lX.rw(memory)) as t, work(t) as (x,):
        x += 1
    with either.task(lX.rw(cuda_stf.data_place.affine())) as t, work(t) as (x,):
        x += 1
    with either.task(lX.rw(cuda_stf.data_place.managed())) as t, work(t) as (x,):
        x += 1
    found: list[Any] = []
    either.host_launch(lX.read(memory), fn=lambda x: found.append(x.tolist()))
    either.finalize()
    assert found == [[4, 4, 4]]


def test_misuse_of_a_task_is_an_error(either: Any) -> None:
    lX = either.logical_data(np.zeros(3))
    t = either.task(lX.rw())
    with pytest.raises(RuntimeError, match="not started"):
        t.end()
    with pytest.raises(RuntimeError, match="not started"):
        t.get_arg(0)
    t.start()
    for call in (t.start, lambda: t.add_dep(lX.read()), lambda: t.set_exec_place(cuda_stf.exec_place.host())):
        with pytest.raises(RuntimeError):
            call()
    t.end()
    with pytest.raises(RuntimeError):
        t.end()
    with pytest.raises(stf.UninitializedDataError):
        either.task(either.logical_data_empty((3,)).read()).start()


def test_a_body_that_raises_writes_nothing(either: Any) -> None:
    lX = either.logical_data(np.zeros(3))
    with pytest.raises(ZeroDivisionError), either.task(lX.rw()):
        1 / 0
    with pytest.raises(ZeroDivisionError) if isinstance(either, cuda_stf.context) else pytest.raises(stf.Error):
        either.wait(lX) if isinstance(either, cuda_stf.context) else either.task(lX.read()).start()


@pytest.mark.parametrize("count", [1, 2])
def test_tasks_on_a_grid(ctx: Any, devices: str, count: int) -> None:
    grid = cuda_stf.exec_place_grid.from_devices([0] * count)
    lX = ctx.logical_data(np.zeros(4))
    with ctx.task(grid, lX.rw(cuda_stf.data_place.device(0))) as t:
        assert t.get_grid_dims() == (None if count == 1 else (2,))
        streams = t.get_stream_ptrs()
        assert len(streams) == count
        assert all(isinstance(stream, int) for stream in streams)
        if count == 2:
            assert t.get_stream_at_index(1) == streams[1]
            assert isinstance(t.stream_ptr(), cuda_stf.CudaStream)
        with pytest.raises(RuntimeError, match="grid"):
            t.get_stream_at_index(count)
        assert t.args_cai().shape == (4,)
    shaped = cuda_stf.exec_place_grid.create([cuda_stf.exec_place.device(0)] * 4, (2, 2))
    with ctx.task(shaped, lX.rw(cuda_stf.data_place.device(0))) as t:
        assert t.get_grid_dims() == (2, 2)
    if count == 2:
        with pytest.raises(stf.PlaceError, match="data place"):
            ctx.task(grid, lX.rw()).start()


def test_the_affine_memory_of_a_place(ctx: Any, work: Any) -> None:
    grid = cuda_stf.exec_place_grid.from_devices([0, 0])
    grid.set_affine_data_place(cuda_stf.data_place.device(0))
    lX = ctx.logical_data(np.zeros(4))
    with ctx.task(grid, lX.rw()) as t, work(t) as (x,):
        x += 1
    assert ctx.wait(lX).tolist() == [1] * 4
    place = cuda_stf.exec_place.device(0)
    place.set_affine_data_place(cuda_stf.data_place.managed())
    with ctx.task(place, lX.rw()) as t, work(t) as (x,):
        x += 1
    assert ctx.wait(lX).tolist() == [2] * 4
    assert place.affine_data_place.kind == "managed"
    with pytest.raises(TypeError):
        grid.set_affine_data_place(place)


def test_a_function_may_be_a_body(either: Any, add_one: Any) -> None:
    X = np.zeros(3)
    lX = either.logical_data(X)
    add_one(either, lX)
    add_one(either, lX, 2.0)
    either.finalize()
    assert X.tolist() == [3, 3, 3]


# -- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(ON_CUDA, reason="kernels run here")
def test_kernels_run_on_devices(ctx: Any) -> None:
    with pytest.raises(stf.PlaceError, match="CUDA device"):
        ctx.cuda_kernel(ctx.logical_data(np.zeros(3)).rw()).start()


def test_kernels_take_what_tasks_take(ctx: Any, stackable: Any) -> None:
    lX, place = ctx.logical_data(np.zeros(3)), cuda_stf.exec_place.device(0)
    with pytest.raises(ValueError, match="Only one exec_place"):
        ctx.cuda_kernel(place, place)
    with pytest.raises(TypeError):
        ctx.cuda_kernel(lX)
    with pytest.raises(TypeError, match="stackable"):
        ctx.cuda_kernel(stackable.logical_data(np.zeros(3)).rw())
    assert isinstance(ctx.cuda_kernel(lX.rw(), symbol="k"), cuda_stf.cuda_kernel)


SOURCE = 'extern "C" __global__ void axpy(double a, const double *x, double *y) {}'


@pytest.mark.skipif(not ON_CUDA, reason="needs CUDA")
@pytest.mark.parametrize("use_graph", [False, True])
def test_kernels(use_graph: bool) -> None:
    import cupy

    try:
        kernel = cupy.RawKernel(SOURCE, "axpy")
        kernel.kernel.ptr
    except (AttributeError, NotImplementedError):
        pytest.skip("this CuPy compiles no kernels")
    with cuda_stf.context(use_graph=use_graph) as ctx:
        lX, lY = ctx.logical_data(np.ones(4)), ctx.logical_data(np.ones(4))
        with ctx.cuda_kernel(lX.read(), lY.rw(), symbol="axpy") as k:
            x, y = k.get_arg(0), k.get_arg(1)
            assert k.get_arg_cai(1).ptr == y
            k.launch(kernel.kernel.ptr, grid=(1,), block=4, args=[ctypes.c_double(2.0), x, y], shmem=0)
            for grid, block in ((0, 1), (1, (1, -1))):
                with pytest.raises(ValueError, match="positive"):
                    k.launch(kernel.kernel.ptr, grid, block, [])
            with pytest.raises(ValueError, match="1-3 dimensions"):
                k.launch(kernel.kernel.ptr, (1, 1, 1, 1), 1, [])
