"""Wrong arguments are refused where they are given, and the context can be used on."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import stf


async def coroutine(x):
    x[:] = 1


def generator(x):
    yield


@pytest.mark.parametrize("body", [coroutine, generator])
def test_bodies_are_ordinary_functions(body):
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.zeros(3))
        for submit in (ctx.task(x.rw()), ctx.host_launch(x.rw())):
            with pytest.raises(TypeError, match=f"ordinary function, got the coroutine or generator '{body.__name__}'"):
                submit(body)
        ctx.task(x.rw())(lambda x: x.fill(2))
        assert x.numpy().tolist() == [2.0] * 3


@pytest.mark.parametrize("wrong", [5, "ab", None])
def test_further_arguments_are_a_sequence(wrong):
    with stf.context(devices="cpu") as ctx, pytest.raises(TypeError, match=r"args= is a list or tuple, got"):
        ctx.host_launch(ctx.token().rw(), args=wrong)


def test_emulated_devices_are_not_without_number(monkeypatch):
    with pytest.raises(ValueError, match="'cpu:N' has at most 1024 devices, got 20000000"):
        stf.context(devices="cpu:20000000")


def test_what_is_called_later_can_be_called():
    with pytest.raises(TypeError, match="combine= is a function of two arrays, got 'x'"):
        stf.reducer.define(3, "x")
    with pytest.raises(TypeError, match="takes a type first, got 3"):
        stf.register_data_interface(3, flatten=len, unflatten=len)
    for static in (5, None, [1]):
        with pytest.raises(TypeError, match="static= is a list of the names of parameters, got"):
            stf.replay(static=static)
    with pytest.raises(ValueError, match="arrays= is 'numpy', .* got 5"):
        stf.task(len, arrays=5)
    with pytest.raises(TypeError, match="interface= is what makes one of each object, such as a class, got 3"):
        stf.register_data_interface(int, interface=3)
    with pytest.raises(TypeError, match="flatten= is a function, got 3"):
        stf.register_data_interface(stf.Error, flatten=3, unflatten=len)
    with pytest.raises(TypeError, match="ndarray is an array itself, or a base of one"):
        stf.register_data_interface(np.ndarray, flatten=len, unflatten=len)


def test_the_guides_drawing_is_there():
    code = "import stf; print(stf.observe.draw.render.__name__)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "render\n"
