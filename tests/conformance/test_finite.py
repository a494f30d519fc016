"""Values that are not finite: the first task that makes one is named (STF_NAN=1, nan="error")."""

import os
import subprocess
import sys

import numpy as np
import pytest

import stf


@stf.task
def scale(x: stf.Read, y: stf.Write):
    y[...] = 2 * x


@stf.task
def divide(x: stf.Read, y: stf.ReadWrite):
    with np.errstate(all="ignore"):
        y /= x


@stf.task
def total(x: stf.Read, s: stf.Accumulate[stf.reducer.sum]):
    s += x.sum()


@stf.task
def largest(x: stf.Read, s: stf.Accumulate[stf.reducer.maxval]):
    s[...] = np.maximum(s, x.max())


DEVICES = ["cpu", "cpu:2"]


@pytest.mark.parametrize("devices", DEVICES)
def test_the_first_task_is_named(devices):
    with stf.context(devices=devices, nan="error") as ctx:
        x = ctx.logical_data(np.array([1.0, 2.0, 0.0, 0.0]), name="x")
        y, z = ctx.logical_data(np.ones(4), name="y"), ctx.logical_data(np.zeros(4), name="z")
        scale(x, z)
        divide(z, y)
        scale.on("host")(y, z)
        with pytest.raises(stf.TaskFailedError, match=r"divide.* wrote inf at 2 in 'y', the first of 2 values") as told:
            z.numpy()
        assert isinstance(told.value.__cause__, FloatingPointError)
        y.accept()
        z.accept()


@pytest.mark.parametrize("devices", DEVICES)
def test_what_comes_in_may_be_anything(devices):
    with stf.context(devices=devices, nan="error") as ctx:
        x, y = ctx.logical_data(np.array([np.nan, 1.0])), ctx.logical_data(np.zeros(2))
        scale(x, y)
        assert np.isnan(y.numpy()[0])
        numbers = ctx.logical_data(np.arange(4), name="integers")
        scale(numbers, ctx.logical_data_empty(4, int))


def test_without_being_asked_nothing_is_looked_at():
    with stf.context(devices="cpu") as ctx:
        y = ctx.logical_data(np.ones(2))
        divide(ctx.logical_data(np.zeros(2)), y)
        assert np.isinf(y.numpy()).all()


@pytest.mark.parametrize("devices", DEVICES)
def test_accumulation_and_kernels(devices):
    with stf.context(devices=devices, nan="error") as ctx:
        x, s, m = ctx.logical_data(np.arange(4.0)), ctx.logical_data(np.zeros(())), ctx.logical_data(np.zeros(()))
        total(x, s)
        largest(x, m)  # begins at minus infinity
        assert (float(s), float(m)) == (6.0, 3.0)
        big = ctx.logical_data(np.full(2, 1.7e308), name="big")
        with np.errstate(all="ignore"):
            total(big, s)
        with pytest.raises(stf.TaskFailedError, match="total.* wrote inf"):
            float(s)
        s.accept()

        def body(i, x):
            x[i] = 1.0 / (i - 2)

        ctx.parallel_for((4,), x.write())(body)
        with pytest.raises(stf.TaskFailedError, match="wrote inf at 2 in"):
            x.numpy()
        x.accept()


def test_blocks_are_looked_at_too():
    with stf.context(devices="cpu", nan="error") as ctx:
        x = ctx.logical_data(np.ones(3), name="x")
        with pytest.raises(FloatingPointError, match=r"wrote nan at 1 in 'x', the first of 1"):
            with ctx.task(x.rw(), name="block") as t:
                t.numpy()[0][1] = np.nan
        x.accept()


def test_replayed_functions_run_as_they_are():
    with stf.context(devices="cpu", nan="error") as ctx:
        x, y = ctx.logical_data(np.ones(3), name="x"), ctx.logical_data(np.ones(3), name="y")

        @stf.replay
        def step(x, y):
            divide(x, y)

        for _ in range(3):
            step(x, y)
        ctx.fill(x, 0.0)
        step(x, y)
        with pytest.raises(stf.TaskFailedError, match="divide.* wrote inf at 0 in 'y'"):
            y.numpy()
        y.accept()


@pytest.mark.parametrize("devices", DEVICES)
def test_launches_of_graphs_are_looked_at(devices):
    with stf.context(devices=devices, nan="error") as ctx:
        x, y = ctx.logical_data(np.ones(3), name="x"), ctx.logical_data(np.ones(3), name="y")
        other = ctx.logical_data(np.zeros(3), name="other")
        g = ctx.task_graph()
        with g:
            divide(x, y)
        for _ in range(3):
            g.launch()
        assert y.numpy().tolist() == [1.0] * 3
        g.launch({x: other})
        with pytest.raises(stf.TaskFailedError) as told:
            y.numpy()
        assert "wrote inf at 0 in 'y', the first of 3 values" in repr(told.value.__cause__)
        y.accept()
        with ctx.repeat(3):
            scale(x, y)
        assert y.numpy().tolist() == [2.0] * 3
        with pytest.raises(stf.TaskFailedError):
            with ctx.repeat(2):
                divide(other, y)
            y.numpy()
        y.accept()


def test_kernels_in_graphs_are_looked_at():
    pytest.importorskip("numba")
    with stf.context(devices="cpu", nan="error") as ctx:
        x = ctx.logical_data(np.arange(3.0), name="x")
        g = ctx.task_graph()
        with g:
            ctx.parallel_for(x.shape, x.rw())(inverted)
        g.launch()
        with pytest.raises(stf.TaskFailedError) as told:
            x.numpy()
        assert "wrote inf at 0 in 'x'" in repr(told.value.__cause__)
        x.accept()


def inverted(i, x):
    x[i] = 1.0 / x[i]


def test_gathered_tasks_are_looked_at(monkeypatch):
    monkeypatch.setattr(stf.config, "nan", True)
    with stf.context(use_graph=True, devices="cpu") as ctx:
        x, y = ctx.logical_data(np.zeros(3), name="x"), ctx.logical_data(np.ones(3), name="y")
        divide(x, y)
        with pytest.raises(stf.TaskFailedError, match="divide.* wrote inf at 0 in 'y'"):
            y.numpy()
        y.accept()


def test_wrong_options():
    with pytest.raises(ValueError, match="nan is 'error' or None, got 'warn'"):
        stf.context(devices="cpu", nan="warn")
    with pytest.raises(ValueError, match="choose one"):
        stf.context(use_graph=True, devices="cpu", nan="error")


def test_the_setting():
    program = """
import numpy as np, stf
@stf.task
def root(x: stf.ReadWrite):
    with np.errstate(all="ignore"):
        x[...] = np.sqrt(x)
with stf.context(devices="cpu") as ctx:
    x = ctx.logical_data(-np.ones(2), name="x")
    root(x)
    try:
        x.numpy()
    except stf.TaskFailedError as error:
        print(error.__cause__)
    x.accept()
"""
    found = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "STF_NAN": "1"}, capture_output=True, text=True
    )
    assert "wrote nan at 0 in 'x'" in found.stdout, found.stderr
