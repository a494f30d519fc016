"""Annotations of bodies that builders are given: they agree with the accesses, or the call is an error."""

import numpy as np
import pytest

import stf


def test_elements_of_another_type_are_refused(ctx):
    x = ctx.logical_data(np.ones(3, np.int32))

    def body(x: stf.Read[np.float64]):
        pass

    for builder in (ctx.task(x.read()), ctx.host_launch(x.read())):
        with pytest.raises(TypeError, match="parameter 'x' of the body 'body' takes elements of type float64"):
            builder(body)
    done = []

    def right(x: stf.Read[np.int32]):
        done.append(True)

    ctx.host_launch(x.read())(right).result()
    ctx.host_launch(x.rw())(right).result()  # who only reads may have access for more
    assert done == [True, True]


@pytest.mark.parametrize("mode", ["read", "write", "rw"])
@pytest.mark.parametrize("said", [stf.Read, stf.Write, stf.ReadWrite])
def test_modes_agree(ctx, mode, said):
    x = ctx.logical_data(np.ones(3))

    def body(x):
        if said is not stf.Read:
            x[...] = 2.0

    body.__annotations__["x"] = said
    fits = mode == "rw" or (mode, said) in (("read", stf.Read), ("write", stf.Write))
    if fits:
        ctx.task(getattr(x, mode)())(body).result()
    else:
        with pytest.raises(TypeError, match="make the two agree"):
            ctx.task(getattr(x, mode)())(body)
    assert x.numpy().tolist() == [2.0 if fits and said is not stf.Read else 1.0] * 3


def test_tokens_bring_no_parameter(ctx):
    x, token = ctx.logical_data(np.ones(3, np.int8)), ctx.token()

    def body(x: stf.ReadWrite[np.int8]):
        x += 1

    ctx.task(token.rw(), x.rw())(body)
    assert x.numpy().tolist() == [2, 2, 2]


def test_more_arguments_are_those_of_a_star(ctx):
    x, y = ctx.logical_data(np.ones(3, np.float32)), ctx.logical_data(np.ones(3))

    def body(*arrays: stf.Read[np.float32]):
        pass

    ctx.task(x.read(), x.read())(body).result()
    with pytest.raises(TypeError, match="float32"):
        ctx.task(x.read(), y.read())(body)


def test_annotations_that_differ_from_call_to_call(ctx):
    x = ctx.logical_data(np.ones(3, np.float32))
    for kind, fits in ((np.float32, True), (np.int8, False)):

        def body(x: "stf.Read[kind]"):
            assert kind is not None

        if fits:
            ctx.task(x.read())(body).result()
        else:
            with pytest.raises(TypeError, match="int8"):
                ctx.task(x.read())(body)


def test_two_libraries_are_refused(ctx):
    pytest.importorskip("torch")
    import torch

    x, y = ctx.logical_data(np.ones(3)), ctx.logical_data(np.ones(3))

    def of_torch(x: stf.ReadWrite[torch.Tensor], y):
        x.add_(y)

    ctx.task(x.rw(), y.read())(of_torch)
    assert x.numpy().tolist() == [2.0] * 3

    def of_two(x: stf.Read[torch.Tensor], y: stf.Read[np.ndarray]):
        pass

    with pytest.raises(TypeError, match="ask for one of them"):
        ctx.task(x.read(), y.read())(of_two)


def test_bodies_of_kernels(ctx, loop, threads):
    x = ctx.logical_data(np.ones(3, np.int32))

    def body(i, x: stf.ReadWrite[np.float64]):
        x[i] += 1

    with pytest.raises(TypeError, match="takes elements of type float64"):
        loop(x.shape, x.rw())(body)

    def right(i, x: stf.ReadWrite[np.int32]):
        x[i] += 1

    loop(x.shape, x.rw())(right)

    def of_threads(th, x: stf.Write[np.int64]):
        for i in range(th.rank(), x.size, th.size()):
            x[i] = 7

    with pytest.raises(TypeError, match="takes elements of type int64"):
        threads(stf.par(2), x.rw())(of_threads)
    assert x.numpy().tolist() == [2, 2, 2]
