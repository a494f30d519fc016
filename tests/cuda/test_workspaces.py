"""Recorded bodies that use BLAS: libraries keep workspaces by stream, which bodies side by side must not share."""

from __future__ import annotations

import numpy as np
import pytest

import stf

torch = pytest.importorskip("torch")
cupy = pytest.importorskip("cupy")

N, K, ROUNDS = 1 << 20, 8, 20
OPS = {
    "torch.dot": lambda x, out: out.copy_(torch.dot(x, x).reshape(1)),
    "torch.mv": lambda x, out: out.copy_(torch.mv(x.view(1, -1), x)),
    "torch.mm": lambda x, out: out.copy_(torch.mm(x.view(4, -1), x.view(4, -1).T).sum().reshape(1) / 4),
    "cupy.dot": lambda x, out: cupy.dot(x, x, out=out[0]),
}


def submit(ctx, op, xs, outs):
    for x, out in zip(xs, outs, strict=True):
        with ctx.task(x.read(), out.write()) as t:
            OPS[op](*t.arrays(op.partition(".")[0]))


def wrong_in(ctx, outs, first=0):
    want = [N * (first + i + 1.0) ** 2 for i in range(len(outs))]
    return sum(abs(float(ctx.wait(out)[0]) / w - 1) > 1e-9 for out, w in zip(outs, want, strict=True))


def stream_of(pointer):
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(stf.Stream("", pointer))
    return cupy.cuda.ExternalStream(pointer)


def make_data(ctx, count):
    return [ctx.logical_data(np.full(N, i + 1.0)) for i in range(count)], [
        ctx.logical_data(np.zeros(1)) for _ in range(count)
    ]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("use_graph", [False, True])
def test_workspaces_of_bodies_in_one_graph(op, use_graph):
    wrong = 0
    with stf.context(devices="cuda:0", use_graph=use_graph) as ctx:
        xs, outs = make_data(ctx, K)
        g = None if use_graph else ctx.task_graph()
        if g is not None:
            with g:
                submit(ctx, op, xs, outs)
        for _ in range(ROUNDS):
            submit(ctx, op, xs, outs) if g is None else g.launch()
            wrong += wrong_in(ctx, outs)
    assert wrong == 0


@pytest.mark.parametrize("op", OPS)
def test_workspaces_of_graphs_side_by_side(op):
    wrong = 0
    with stf.context(devices="cuda:0") as ctx:
        xs, outs = make_data(ctx, K)
        graphs = [ctx.task_graph() for _ in range(K)]
        for g, x, out in zip(graphs, xs, outs, strict=True):
            with g:
                submit(ctx, op, [x], [out])
        for _ in range(ROUNDS):
            for g in graphs:
                g.launch()
            wrong += wrong_in(ctx, outs)
    assert wrong == 0


def test_temporaries_of_a_body_that_takes_only_its_stream():
    """They are the graph's, not what others allocate between its launches."""
    with stf.context(devices="cuda:0") as ctx:
        x, y = ctx.logical_data(np.ones(N)), ctx.logical_data(np.zeros(N))
        g = ctx.task_graph()
        with g, ctx.task(x.read(), y.write()) as t:
            with stream_of(t.stream_ptr()):
                a, b = (cupy.asarray(t.get_arg_cai(i)) for i in range(2))
                temporary = a * 2
                b[...] = temporary + 1
                del temporary
        for _ in range(5):
            others = [cupy.full(N, -7.0) for _ in range(20)]
            g.launch()
            cupy.cuda.Device().synchronize()
            assert all(bool((other == -7).all()) for other in others)
            assert (ctx.wait(y) == 3).all()
