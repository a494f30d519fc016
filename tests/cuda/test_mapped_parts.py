"""Parts under one address on one GPU, whose grid names it several times; and arrays of a place, by other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stf

ROWS = stf.partition("blocked", None)
N = 1 << 11


@pytest.fixture
def place() -> Any:
    return stf.data_place.composite(stf.exec_place.grid([0] * 4), ROWS)


def test_a_stencil_reads_the_neighbours_where_they_lie(place):
    pytest.importorskip("cupy")
    home = np.random.default_rng(1).random((N, 1024))
    expected = home.copy()
    with stf.context(devices="cuda:0") as ctx:
        old = ctx.logical_data(home, data_place=place)
        new = ctx.logical_data(np.zeros_like(home), data_place=place, write_back=False)
        for _ in range(2):
            for a, b in zip(old.parts, new.parts, strict=True):
                above = 0 if a.position == (0,) else 1
                with ctx.task(a.exec_place, a.read(halo=1), b.write()) as t:
                    rows, out = t.cupy()
                    below = rows[above + 1 : above + 1 + len(out)]
                    out[...] = rows[above : above + len(out)]
                    out[: len(below)] += below
            old, new = new, old
            expected[:-1] += expected[1:].copy()
        with ctx.task(0, old.rw(old.data_place)) as t:
            (whole,) = t.cupy()
            whole *= 2
        found = ctx.wait(old)
        assert sum(n for pair, n in ctx.statistics().copies.items() if "host" not in pair) == 0
    assert np.allclose(found, 2 * expected)


def test_kernels_and_torch_on_mapped_parts(place):
    torch = pytest.importorskip("torch")
    home = np.ones((N, 1024), np.float32)
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data(home, data_place=place)

        def add_one(i: int, j: int, a: Any) -> None:
            a[i, j] += 1

        for k, part in enumerate(x.parts):
            ctx.parallel_for(part.exec_place, part.shape, part.rw())(add_one)
            with ctx.task(part.exec_place, part.rw()) as t:
                (a,) = t.torch()
                a += k
        with ctx.task(0, x.rw(x.data_place)) as t:
            (a,) = t.torch()
            assert a.is_cuda
            torch.mul(a, 10, out=a)
        assert (ctx.wait(x) == np.repeat([20, 30, 40, 50], N // 4)[:, None]).all()


def test_graphs_on_mapped_parts(place):
    home = np.zeros((N, 1024))
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data(home, data_place=place)
        ctx.prefetch(x, x.data_place)
        with ctx.task_graph() as graph:
            for part in x.parts:
                ctx.task(part.exec_place, part.rw())(lambda a: a + 1)
            ctx.task(0, x.rw(x.data_place))(lambda a: a * 2)
        for _ in range(3):
            graph.launch()
        assert (ctx.wait(x) == 14).all()
        graph.close()


def test_the_next_array_of_that_shape_takes_the_memory(place):
    with stf.context(devices="cuda:0") as ctx:
        addresses = set()
        for step in range(5):
            x = ctx.logical_data(np.zeros((N, 1024)), data_place=place, write_back=False)
            ctx.fill(x, step)
            with ctx.task(0, x.read(x.data_place)) as t:
                addresses.add(t.get_arg(0))
            assert (ctx.wait(x) == step).all()
            x.release()
        assert len(addresses) == 1


@pytest.mark.parametrize("kind", ["device", "host", "managed", "composite"])
def test_arrays_of_a_place_in_other_libraries(kind, place):
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    where = {
        "device": stf.data_place.device(0),
        "host": stf.data_place.host(),
        "managed": stf.data_place.managed(),
        "composite": place,
    }[kind]
    values = np.arange(8.0).reshape(4, 2)
    with stf.OwnedArray.from_host(values, where) as array:
        if kind in ("device", "composite"):
            a = cupy.asarray(array)
            a += 1
            cupy.cuda.get_current_stream().synchronize()
            tensor = torch.as_tensor(array, device="cuda:0")
            tensor += 1
            torch.cuda.synchronize()
            assert torch.from_dlpack(array).data_ptr() == array.ptr
        else:
            np.asarray(array)[...] += 2
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(array)
            ctx.task(0, x.rw())(lambda a: a * 10)
        assert (array.copy_to_host() == (values + 2) * 10).all()


def test_memory_goes_in_the_order_of_its_stream():
    cupy = pytest.importorskip("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    place = stf.data_place.device(0)
    assert place.allocation_is_stream_ordered
    for _ in range(100):
        array = place.allocate(64 << 20, stream=stream)
        with stream:
            a = cupy.asarray(array)
            a.fill(3)
            total = a[:10].sum()
        array.close()
        assert int(total.get(stream=stream)) == 30


def test_a_cooperative_launch_that_does_not_fit():
    cupy = pytest.importorskip("cupy")
    most = stf.exec_place.device(0).attributes.multiprocessors * 32
    code = 'extern "C" __global__ void touch(double *x) { x[0] = 1; }'
    kernel = cupy.RawKernel(code, "touch", enable_cooperative_groups=True)
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data_zeros(1)
        with pytest.raises(ValueError, match="launch fewer or smaller blocks"):
            ctx.launch_kernel(kernel, (most + 1, 32), x.rw())
        assert ctx.wait(x)[0] == 0


@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("kind", ["device", "managed"])
def test_arrays_of_other_libraries_outlive_close(library, kind):
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    where = stf.data_place.device(0) if kind == "device" else stf.data_place.managed()
    with stf.OwnedArray.from_host(np.arange(1e6), where) as array:
        if kind == "managed":
            view = np.asarray(array)
        else:
            view = cupy.asarray(array) if library == "cupy" else torch.as_tensor(array, device="cuda:0")
    del array
    others = [stf.OwnedArray.from_host(np.full(1_000_000, -1.0), where) for _ in range(4)]  # in freed memory
    assert float(view[-1]) == 999_999.0
    assert float(view.sum()) == np.arange(1e6).sum()
    assert [float(one.copy_to_host()[-1]) for one in others] == [-1.0] * 4
