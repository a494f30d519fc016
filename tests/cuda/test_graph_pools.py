"""Memory that bodies allocate while they are recorded belongs to their graph; graphs that live beside each other."""

from __future__ import annotations

import numpy as np
import pytest

import stf

cupy = pytest.importorskip("cupy")
torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("cuda_device_count")]

N = 4096
MIB = 1 << 20


@pytest.fixture
def ctx():
    torch.zeros(1, device="cuda")
    with stf.context(devices="cuda:0") as context:
        yield context


@stf.task(arrays="torch")
def step_torch(x: stf.Read, y: stf.ReadWrite):
    wide = torch.cat([x, x * 2, x * 3])  # temporaries of several sizes
    y += wide[N : 2 * N] + torch.roll(x, 1) * 0.5


@stf.task(arrays="cupy")
def step_cupy(x: stf.Read, y: stf.ReadWrite):
    wide = cupy.concatenate([x, x * 2, x * 3])
    y += wide[N : 2 * N] + cupy.roll(x, 1) * 0.5


def step_on_host(x, y):
    y += x * 2 + np.roll(x, 1) * 0.5


def spoil(library):
    """Take what memory is free between two launches, and write to it."""
    sizes = (N, 2 * N, 3 * N, N // 2, 8 * N) * 2
    if library == "torch":
        return [torch.full((n,), float("nan"), dtype=torch.float64, device="cuda") for n in sizes]
    return [cupy.full(n, np.nan) for n in sizes]


STEPS = {"torch": step_torch, "cupy": step_cupy}


@pytest.mark.parametrize("library", STEPS)
def test_temporaries_are_not_what_others_allocate_between_launches(ctx, library):
    X, expected = np.arange(float(N)), np.zeros(N)
    x, y = ctx.logical_data(X), ctx.logical_data(np.zeros(N))
    g = ctx.task_graph()
    with g:
        for _ in range(3):
            STEPS[library](x, y)
    kept = []
    for launch in range(6):
        kept = [*spoil(library), *kept[:5]]
        g.launch()
        kept += spoil(library)
        for _ in range(3):
            step_on_host(X, expected)
        assert np.allclose(y.numpy(), expected), launch


@pytest.mark.parametrize("library", STEPS)
def test_graphs_that_live_together_have_memory_of_their_own(ctx, library):
    X = np.arange(float(N))
    x, expected = ctx.logical_data(X), [np.zeros(N) for _ in range(4)]
    data = [ctx.logical_data(np.zeros(N)) for _ in expected]
    graphs = []
    for y in data:
        with ctx.task_graph() as g:
            STEPS[library](x, y)
            STEPS[library](x, y)
        graphs.append(g)
    for launch in range(4):
        for g, mine in zip(graphs, expected, strict=True):
            g.launch()
            for _ in range(2):
                step_on_host(X, mine)
        if launch == 1:  # the memory of one that is closed may be taken over by a new one
            graphs.pop(0).close()
            with ctx.task_graph() as g:
                STEPS[library](x, data[0])
                STEPS[library](x, data[0])
            graphs.insert(0, g)
    for y, mine in zip(data, expected, strict=True):
        assert np.allclose(y.numpy(), mine)


def test_closed_recordings_leave_no_memory_with_torch(ctx):
    x, y = ctx.logical_data(np.arange(float(N))), ctx.logical_data(np.zeros(N))

    def record():
        with ctx.task_graph() as g:
            for _ in range(4):
                step_torch(x, y)
        for _ in range(3):
            g.launch()
        ctx.synchronize()
        g.close()

    for _ in range(3):
        record()
    before = torch.cuda.memory_reserved()
    for _ in range(40):
        record()
    assert torch.cuda.memory_reserved() <= before + 4 * MIB


@pytest.mark.parametrize("library", STEPS)
def test_two_graph_contexts_that_gather_in_turn(library):
    """Each is a graph of its own, launched when its data are asked for."""
    X, expected = np.arange(float(N)), [np.zeros(N), np.zeros(N)]
    with (
        stf.context(devices="cuda:0", use_graph=True) as one,
        stf.context(devices="cuda:0", use_graph=True) as other,
    ):
        inputs = [ctx.logical_data(X) for ctx in (one, other)]
        data = [ctx.logical_data(np.zeros(N)) for ctx in (one, other)]
        for k in range(30):
            for i in (0, 1):
                STEPS[library](inputs[i], data[i])
                step_on_host(X, expected[i])
            if k % 7 == 6:
                assert np.allclose(data[k % 2].numpy(), expected[k % 2]), k
        for y, mine in zip(data, expected, strict=True):
            assert np.allclose(y.numpy(), mine)


def test_what_the_host_drives_is_logged_once(ctx, caplog):
    caplog.set_level("INFO", logger="stf")
    x, s, seen = ctx.logical_data(np.zeros(N)), ctx.logical_data_zeros(()), []
    with ctx.task_graph() as g:
        ctx.fill(s, 0.0)
        with ctx.while_loop(s < 3.0) as loop:
            s.assign(s + 1.0)
            ctx.host_launch(s.read())(lambda value: seen.append(float(value)))
            ctx.fill(x, 2.0)
    for _ in range(3):
        g.launch()
    ctx.synchronize()
    assert seen == [1.0, 2.0, 3.0] * 3 and loop.iterations == 3
    assert len([line for line in caplog.messages if "driven from the host" in line]) == 1, caplog.messages


def test_what_only_orders_is_not_said_to_be_driven_from_the_host(ctx, caplog):
    caplog.set_level("INFO", logger="stf")
    token = ctx.token()
    with ctx.task_graph() as g:
        for _ in range(5):
            with ctx.task(token.rw()):
                pass
    for _ in range(4):
        g.launch()
    ctx.synchronize()
    assert not [line for line in caplog.messages if "driven from the host" in line]


@pytest.mark.parametrize("library", STEPS)
def test_inner_scopes_of_captured_bodies(ctx, library):
    """An inner scope that raises takes back what was captured in it, and the memory of that."""
    X, expected = np.arange(float(N)), np.zeros(N)
    x, y = ctx.logical_data(X), ctx.logical_data(np.zeros(N))
    for _ in range(5):
        with ctx.graph_scope():
            STEPS[library](x, y)
            with pytest.raises(KeyError), ctx.graph_scope():
                STEPS[library](x, y)
                with ctx.task(y.rw()) as t:
                    t.cupy()[0].fill(0)
                raise KeyError
            with ctx.graph_scope():
                STEPS[library](x, y)
        spoil(library)
        for _ in range(2):
            step_on_host(X, expected)
        assert np.allclose(y.numpy(), expected)
