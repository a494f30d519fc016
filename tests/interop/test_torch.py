"""Tensors on the CPU, on every driver of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import stf

torch = pytest.importorskip("torch")

NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


def test_a_tensor_is_taken_as_it_lies(ctx):
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    lX, part = ctx.logical_data(x, name="X"), None
    assert (lX.dtype, lX.shape, lX.strides) == (np.float32, (3, 4), (16, 4))
    assert ctx.logical_data(x) is lX
    assert ctx.logical_data(x.numpy()) is lX
    with pytest.raises(ValueError, match="overlaps"):
        ctx.logical_data(x[1])

    @stf.task(arrays="torch")
    def double(x: stf.ReadWrite):
        assert isinstance(x, torch.Tensor) and x.dtype == torch.float32
        x.mul_(2)

    double(lX)
    double.on(ctx.devices[-1])(lX)
    lX.release()
    ctx.synchronize()
    assert x.flatten().tolist() == [4.0 * i for i in range(12)]
    part = ctx.logical_data(x.T[::2])
    assert part.strides == (8, 16) and part.numpy().tolist() == x.T[::2].tolist()


@pytest.mark.parametrize("name", NARROW)
def test_narrow_tensors(ctx, name):
    pytest.importorskip("ml_dtypes")
    kind = getattr(torch, name)
    x = torch.tensor([1.0, -2.0, 0.5]).to(kind)
    lX, lY = ctx.logical_data(x, name="X"), ctx.logical_data_empty(3, kind)
    assert lX.dtype == lY.dtype == np.dtype(name)

    @stf.task
    def negate(x: stf.Read[torch.Tensor], y: stf.Write[torch.Tensor]):
        assert x.dtype == y.dtype == kind
        return (-x.float()).to(kind)

    negate.on(ctx.devices[-1])(lX, lY)
    with ctx.task(lX.rw()) as t:
        t.torch()[0].copy_(x.float() * 2)
    assert lY.numpy().dtype == np.dtype(name) and lY.numpy().tolist() == [-1, 2, -0.5]
    result = ctx.wait(lX, arrays="torch")
    assert result.dtype == kind and result.float().tolist() == [2, -4, 1]


def test_dtypes_of_torch_name_logical_data(ctx):
    pytest.importorskip("ml_dtypes")
    for kind, name in ((torch.float32, "float32"), (torch.bool, "bool"), (torch.bfloat16, "bfloat16")):
        assert ctx.logical_data_empty(2, kind).dtype == np.dtype(name)
        assert ctx.logical_data_full(2, 1, kind).numpy().tolist() == [1, 1]
        assert ctx.logical_data_zeros((), kind).dtype == np.dtype(name)
    with pytest.raises(TypeError, match="logical data cannot have elements of torch.complex32; convert the tensor, or"):
        ctx.logical_data_empty(2, torch.complex32)


def test_registered_tensors_arrive_as_tensors(ctx):
    """Where nothing else is said: also their tiles, data that are made like them, and arrays in the same task."""
    x, y = torch.ones(4), torch.zeros(4)
    lX, lY, lA = ctx.logical_data(x), ctx.logical_data(y), ctx.logical_data(np.zeros(4))
    lZ, seen = lY.empty_like(), []

    @stf.task
    def add(x: stf.Read, y: stf.ReadWrite):
        seen.append((type(x), type(y), torch.is_grad_enabled()))
        y.add_(x)

    @stf.task
    def sigmoid(x: stf.Read, z: stf.Write):
        return torch.sigmoid(x)

    @stf.task
    def keep(x: stf.Read, a: stf.ReadWrite):
        seen.append((type(x), type(a)))
        a += x

    @stf.task
    def as_numpy(x: stf.Read[np.ndarray], y: stf.ReadWrite[np.ndarray]):
        seen.append((type(x), type(y)))
        y += x

    for place in (0, ctx.devices[-1]):
        add.on(place)(lX, lY)
    sigmoid(lX, lZ)
    keep(lX, lA)
    as_numpy(lX, lY)
    with ctx.task(lX.read(), lZ.rw(), lA.read()) as t:
        views = t.arrays()
        seen.append(tuple(map(type, views)))
        assert not torch.is_grad_enabled()
        views[1].sub_(views[0])
    tiles = lX.tiles(2)
    add(tiles[0], tiles[1])
    del tiles
    ctx.host_launch(lX.read(), fn=lambda x: seen.append(type(x)))
    ctx.synchronize()
    tensor, array = torch.Tensor, np.ndarray
    assert sorted(map(str, seen)) == sorted(
        map(
            str,
            [
                *[(tensor, tensor, False)] * 3,
                (tensor, tensor),
                (array, array),
                (tensor, tensor, tensor),
                tensor,
            ],
        )
    )
    assert lX.numpy().tolist() == [1, 1, 2, 2] and lY.numpy().tolist() == [3] * 4 and lA.numpy().tolist() == [1] * 4
    assert np.allclose(lZ.numpy(), 1 / (1 + np.exp(-1)) - 1) and type(ctx.wait(lX)) is np.ndarray


def test_arrays_of_a_task_are_of_one_library(ctx):
    """That of an annotation, else torch if any is a tensor; what is made of several arrays keeps its own."""
    seen = []

    @stf.task
    def axpy(a, x: stf.Read, y: stf.ReadWrite):
        seen.append({type(x), type(y)})
        y += a * x

    @stf.task
    def with_annotation(a, x: stf.Read[np.ndarray], y: stf.ReadWrite):
        seen.append({type(x), type(y)})
        y += a * x

    @stf.task
    def of_list(xs: stf.Read, y: stf.ReadWrite):
        seen.append({*map(type, xs), type(y)})
        for x in xs:
            y += x

    lT, lA, lM = ctx.logical_data(torch.ones(4)), ctx.logical_data(np.ones(4, np.float32)), ctx.logical_data_zeros(4)
    axpy(2.0, lT, lA)
    axpy(1.0, lA, lT)
    with_annotation(1.0, lT, lA)
    of_list([lT, lA], lM)
    ctx.task(lT.read(), lA.rw())(lambda t, a: seen.append({type(t), type(a)}))
    ctx.synchronize()
    assert seen.count({torch.Tensor}) == 4 and seen.count({np.ndarray}) == 1
    assert (lT.numpy()[0], lA.numpy()[0], lM.numpy()[0]) == (4, 7, 11)


def test_arrays_of_the_context_come_first(ctx_factory):
    seen = []
    with ctx_factory(arrays="numpy") as ctx:
        lX = ctx.logical_data(torch.ones(4))
        with ctx.task(lX.rw()) as t:
            seen.append(type(t.arrays()[0]))
    assert seen == [np.ndarray]


def test_views_are_made_once(ctx):
    lX, seen = ctx.logical_data(torch.zeros(3)), set()
    for _ in range(4):
        with ctx.task(lX.rw()) as t:
            (x,) = t.torch()
            x += 1
            seen.add(id(x))
    assert len(seen) == 1 and lX.numpy().tolist() == [4, 4, 4]


def test_autograd_is_off_in_bodies(ctx):
    """Or the graph would grow through what tasks change in place."""
    w, other = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    lX, lW = ctx.logical_data(torch.ones(3)), ctx.logical_data(other, readonly=True, name="w")
    seen = []

    @stf.task(arrays="torch")
    def step(w2: stf.Read, x: stf.ReadWrite):
        seen.append((torch.is_grad_enabled(), w2.requires_grad))
        x += w * w2
        assert not x.requires_grad

    @stf.task(arrays="torch")
    def fresh(x: stf.ReadWrite):
        return w * x

    step(lW, lX)
    fresh(lX)
    with ctx.task(lX.rw()) as t:
        (x,) = t.torch()
        x *= w
        assert not torch.is_grad_enabled() and not x.requires_grad
    assert torch.is_grad_enabled()
    assert seen == [(False, False)] and lX.numpy().tolist() == [2, 2, 2]


def test_autograd_comes_back_after_a_body_that_raises(ctx):
    lX = ctx.logical_data(torch.ones(3))
    with pytest.raises(ZeroDivisionError), ctx.task(lX.rw()) as t:
        t.torch()
        raise ZeroDivisionError
    assert torch.is_grad_enabled()
    lX.accept()


def test_what_is_no_plain_memory_is_refused(ctx):
    with pytest.raises(TypeError, match="needs a strided tensor, got one of layout torch.sparse_coo"):
        ctx.logical_data(torch.eye(3).to_sparse())
    with pytest.raises(TypeError, match="lazy conjugate or negative; resolve_conj"):
        ctx.logical_data(torch.zeros(2, dtype=torch.complex64).conj())
    with pytest.raises(stf.PlaceError, match="this tensor is on meta, which is not in the context"):
        ctx.logical_data(torch.zeros(2, device="meta"))
    if not ctx._driver.shares_host:
        with pytest.raises(stf.PlaceError, match="Parameter lies in host memory, not on"):
            ctx.logical_data(torch.nn.Parameter(torch.zeros(2)), stf.data_place.device(0))
    with pytest.raises(TypeError, match="torch has no tensors of <U3"):
        ctx.wait(ctx.logical_data(np.array(["abc"])), arrays="torch")


def test_a_module_is_trained_by_tasks(ctx):
    """Parameters are leaves that need a gradient; tasks change their values."""
    layer = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        layer.weight.fill_(1.0)
    lW, lX = ctx.logical_data(layer.weight), ctx.logical_data(torch.tensor([[1.0, 2.0]]))

    @stf.task(arrays="torch")
    def descend(w: stf.ReadWrite, x: stf.Read):
        with torch.enable_grad():
            v = w.clone().requires_grad_()
            (v * x).sum().backward()
        w -= 0.5 * v.grad

    descend(lW, lX)
    ctx.finalize()
    assert layer.weight.tolist() == [[0.5, 0.0]] and layer.weight.requires_grad
