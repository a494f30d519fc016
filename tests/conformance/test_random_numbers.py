"""Random numbers: the same on each device, in each order, in parts and in replays; other ones for each task."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from helpers import runs_kernels

import stf
from stf.values import philox


def words(key, counter):
    found = philox.philox(*map(np.uint64, key), *map(np.uint64, counter))
    return " ".join(f"{int(word):08x}" for word in found)


def test_known_answers():
    """Those of Random123, kat_vectors, philox4x32 10."""
    assert words((0, 0), (0, 0, 0, 0)) == "6627e8d5 e169c58d bc57ac4c 9b00dbd8"
    ones = (1 << 32) - 1
    assert words((ones, ones), (ones,) * 4) == "408f276d 41c83b0e a20bc7c6 6d5451fd"
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert words((0xA4093822, 0x299F31D0), pi) == "d16cfe09 94fdcceb 5001e420 24126ea1"


def test_normal_numbers_are_quantiles():
    m = np.array([0, 1, 2, 1 << 30, (1 << 51) - 1, 1 << 51, (1 << 52) - 1, 12345, 3 << 50], np.uint64) << np.uint64(12)
    found = philox.normal_from(m >> np.uint64(32), m & np.uint64(0xFFFFFFFF))
    expected = [statistics.NormalDist().inv_cdf((int(one >> np.uint64(12)) + 0.5) / 2**52) for one in m]
    assert found == pytest.approx(expected, rel=1e-13)


@stf.task
def walk(x: stf.ReadWrite, g: stf.Random):
    x += g.normal(size=x.shape)


def filled(ctx, where=None):
    """What a program of several tasks has."""
    rng = ctx.random(42, "noise")
    x, y, z = ctx.logical_data_empty((5, 7)), ctx.logical_data_empty(1000, np.float32), ctx.logical_data_zeros(3)
    rng.uniform(x, -1.0, 1.0)
    rng.normal(y)
    walk.on("host" if where is None else where)(z, rng)
    rng.normal(x, 1.0, 2.0) if where is not None else rng.uniform(x)
    return [x.numpy().copy(), y.numpy().copy(), z.numpy().copy()]


def reference(where=None):
    with stf.context(devices="cpu") as ctx:
        return filled(ctx, where)


@pytest.mark.parametrize("devices", ["cpu", "cpu:2"])
def test_the_same_everywhere(devices, monkeypatch):
    expected = reference(0)
    with stf.context(devices=devices, place="auto") as ctx:
        for one, other in zip(filled(ctx, len(ctx.devices) - 1), expected, strict=True):
            assert (one == other).all()


def test_the_same_on_every_driver(ctx):
    if ctx.on_cuda and not runs_kernels(ctx):
        pytest.skip("a stand-in for CUDA runs no kernels")
    for one, other in zip(filled(ctx), reference(), strict=True):
        assert (one == other).all()


def test_each_use_has_other_numbers():
    with stf.context(devices="cpu") as ctx:
        rng, other, third = ctx.random(1), ctx.random(1), ctx.random(2)
        data = [ctx.logical_data_empty(100) for _ in range(4)]
        for x, one in zip(data, (rng, rng, other, third), strict=True):
            one.uniform(x)
        found = np.concatenate([x.numpy() for x in data])
        assert len(np.unique(found)) == 400
        assert (found >= 0).all() and (found < 1).all()


def test_moments():
    with stf.context(devices="cpu") as ctx:
        rng, x = ctx.random(7), ctx.logical_data_empty(400_000)
        rng.normal(x)
        found = x.numpy()
        assert abs(found.mean()) < 0.006 and abs(found.std() - 1) < 0.005
        assert abs((found**3).mean()) < 0.02 and abs((found**4).mean() - 3) < 0.06
        rng.uniform(x)
        assert np.histogram(x.numpy(), 20, (0, 1))[0] == pytest.approx(20_000, abs=800)


def test_a_single_number_is_below_one():
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data_empty(1 << 21, np.float32)
        ctx.random(3).uniform(x)
        assert x.numpy().max() < 1.0


def test_state_goes_on():
    with stf.context(devices="cpu") as ctx:
        rng, x = ctx.random(5, "a"), ctx.logical_data_empty(4)
        rng.uniform(x)
        state = rng.state
        rng.uniform(x)
        expected = x.numpy().copy()
    with stf.context(devices="cpu") as ctx:
        rng, x = ctx.random(5, "a"), ctx.logical_data_empty(4)
        rng.state = state
        rng.uniform(x)
        assert (x.numpy() == expected).all()
        with pytest.raises(ValueError, match="takes a state of its own seed and name"):
            ctx.random(5, "b").state = state


def test_kernels_have_the_numbers_of_fills():
    pytest.importorskip("numba")
    with stf.context(devices="cpu:2") as ctx:
        for shape in (50,), (6, 5), (3, 4, 5), (2, 3, 4, 5):
            x, y = ctx.logical_data_empty(shape), ctx.logical_data_empty(shape)
            one = ctx.random(9, f"{shape}")
            state = one.state
            one.normal(x)
            one.state = state
            names = ", ".join(f"i{axis}" for axis in range(len(shape)))
            element = names if len(shape) == 1 else f"({names})"
            scope = {}
            exec(f"def body({names}, y, g):\n    y[{names}] = g.normal({element})", scope)
            grid = stf.exec_place.all_devices()
            ctx.parallel_for(grid, shape, y.write(), one)(scope["body"])
            assert (x.numpy() == y.numpy()).all(), shape


def by_name(i, x, g):
    u = g.uniform
    x[i] = u(i) - u(i)


def by_another_name(i, x, g):
    u = g.uniform
    v = u
    x[i] = v(i) - g.uniform(i)


def by_pair(i, x, g):
    u, n = g.uniform, g.normal
    x[i] = n(i) - u(i) - n(i)


def by_generator(i, x, g):
    h = g
    x[i] = h.uniform(i) - g.uniform(i)


def by_choice(i, x, g):
    u = g.uniform if i > 2 else g.normal
    x[i] = u(i) - g.normal(i)


def by_loop(i, x, g):
    u = g.uniform
    x[i] = 0.0
    for _ in range(3):
        x[i] += u(i)


def by_function(i, x, g):
    def draw():
        return g.uniform(i)

    x[i] = draw() - draw()


def by_lambda(i, x, g):
    u = g.uniform
    draw = lambda: u(i)  # noqa: E731
    x[i] = draw() - draw()


def by_numbers(i, x, g):
    u, n = g.uniform, g.normal
    x[i] = u(i, 0) - u(i, 1) + n(i)


def test_draws_of_an_element(ctx, loop):
    pytest.importorskip("numba")
    x, y = ctx.logical_data_empty(200), ctx.logical_data_empty(200)
    rng = ctx.random(11)

    def body(i, x, y, g, scale):
        for k in range(3):
            x[i] = scale * g.uniform(i, k)
            y[i] = scale * g.uniform(i, k + 3)

    loop(x.shape, x.write(), y.write(), rng, args=(2.0,))(body)
    assert len(np.unique([x.numpy(), y.numpy()])) == 400

    with pytest.raises(TypeError, match=r"calls g.uniform several times for an element .*: g.uniform\(i, k\)"):

        def twice(i, x, g):
            x[i] = g.uniform(i) + g.uniform(i)

        loop(x.shape, x.write(), rng)(twice)
    for body in (by_name, by_another_name, by_pair, by_generator, by_choice, by_loop):
        with pytest.raises(TypeError, match=r"calls g.(uniform|normal) several times for an element in line \d+"):
            loop(x.shape, x.write(), rng)(body)
    for body in (by_function, by_lambda):
        with pytest.raises(TypeError, match=r"calls g.uniform in a function inside of it .*: g.uniform\(i, k\)"):
            loop(x.shape, x.write(), rng)(body)
    loop(x.shape, x.write(), rng)(by_numbers)
    assert len(np.unique(x.numpy())) == 200
    with pytest.raises(TypeError, match="several times"):

        def looped(i, x, g):
            x[i] = 0.0
            for _ in range(3):
                x[i] += g.normal(i)

        loop(x.shape, x.write(), rng)(looped)
    with pytest.raises(TypeError, match=r"calls uniform\(float64\)"):

        def wrong(i, x, g):
            x[i] = g.uniform(0.5 * i)

        loop(x.shape, x.write(), rng)(wrong)


def test_replays_have_the_numbers_of_the_program():
    def program(wrap, steps):
        with stf.context(devices="cpu:2") as ctx:
            rng, x, y = ctx.random(3), ctx.logical_data_zeros(4), ctx.logical_data_zeros(4)
            found = []

            @wrap
            def step(x, y, rng):
                walk(x, rng)
                rng.uniform(y)
                walk.on(1)(x, rng)

            for _ in range(steps):
                step(x, y, rng)
                found.append(np.concatenate([x.numpy(), y.numpy()]))
            return np.array(found)

    plain = program(lambda fn: fn, 6)
    assert (program(stf.replay, 6) == plain).all()
    assert len(np.unique(plain)) == plain.size


def test_graphs_have_other_numbers_in_each_launch(ctx):
    rng, x = ctx.random(3), ctx.logical_data_zeros(4, name="x")
    g = ctx.task_graph()
    with g:
        walk.on("host")(x, rng)
    outer = ctx.task_graph()
    found = [np.zeros(4)]
    for _ in range(3):
        g.launch()
        found.append(x.numpy().copy())
    steps = np.diff(found, axis=0)
    assert len(np.unique(steps)) == 12
    with outer:
        g.launch()
        g.launch()
    for _ in range(2):
        outer.launch()
        found.append(x.numpy().copy())
    with stf.context(devices="cpu") as plain:
        again, z = plain.random(3), plain.logical_data_zeros(4)
        for number in range(7):
            walk(z, again)
            if number == 2:
                assert (z.numpy() == found[3]).all()
        assert (z.numpy() == found[-1]).all()


def test_loops_are_refused(ctx):
    rng, x = ctx.random(3), ctx.logical_data_zeros(4, name="x")
    with pytest.raises(stf.CaptureError, match="would get the same numbers each time"):
        with ctx.repeat(3):
            walk.on("host")(x, rng)


def test_mistakes(ctx):
    x, rng = ctx.logical_data_zeros(3), ctx.random(1, "one")
    with pytest.raises(ValueError, match="would have the same numbers"):
        ctx.random(1, "one")
    with pytest.raises(TypeError, match="the seed of ctx.random is an integer, got 1.5"):
        ctx.random(1.5)
    with stf.context(devices="cpu") as other:
        with pytest.raises(stf.ContextMismatchError, match="generator of another context"):
            walk.on("host")(x, other.random(1))
        with pytest.raises(stf.ContextMismatchError, match="belongs to"):
            ctx.parallel_for(x.shape, x.write(), other.random(2))
    with pytest.raises(TypeError, match=r"takes ctx.random\(seed\), got 5"):
        walk.on("host")(x, 5)
    with pytest.raises(TypeError, match="annotate it stf.Random"):

        @stf.task
        def plain(x: stf.ReadWrite, g):
            x += g

        plain.on("host")(x, rng)
    with pytest.raises(TypeError, match="takes generators of stf.Random last"):
        ctx.parallel_for(x.shape, rng, x.write())
    with pytest.raises(TypeError, match="launch has no generators"):
        ctx.launch(x.write(), rng)
    with pytest.raises(TypeError, match="fills data of float32 or float64"):
        rng.uniform(ctx.logical_data_empty(3, int))
    with pytest.raises(TypeError, match="takes stf.Random, and a task of accesses has no other arguments"):

        def body(x, g: stf.Random):
            x += g.normal()

        ctx.task("host", x.rw())(body)


def test_partitioned_data_and_views():
    pytest.importorskip("numba")
    with stf.context(devices="cpu:2") as ctx:
        shape = (8, 3)
        x, rng = ctx.logical_data_empty(shape), ctx.random(4)
        state = rng.state
        rng.normal(x)
        rng.state = state
        place = stf.data_place.composite(stf.exec_place.all_devices(), stf.partition("blocked", None))
        parts = ctx.logical_data(np.zeros(shape), place)
        rng.normal(parts)
        assert (parts.numpy() == x.numpy()).all()
        rng.state = state
        z = np.zeros((16, 6))
        rng.normal(ctx.logical_data(z[::2, ::2], name="gaps"))
        ctx.synchronize()
        assert (ctx.logical_data(z[::2, ::2].copy()).numpy().shape) == shape
    assert (z[::2, ::2] == x_of(shape)).all()


def x_of(shape):
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data_empty(shape)
        ctx.random(4).normal(x)
        return x.numpy().copy()
