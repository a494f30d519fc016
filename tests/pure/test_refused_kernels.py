"""Kernels of other libraries that are refused: those whose tuning would change data, and those of cupyx.jit."""

from __future__ import annotations

import types

import pytest

import stf
from stf.kernels import kernel_handles
from stf.kernels.foreign_kernels import must_survive_tuning


def add():
    pass


def tuned(count=2, **options):
    """What Triton's autotuner has of a kernel."""
    configs = options.pop("configs", [types.SimpleNamespace(pre_hook=None) for _ in range(count)])
    known = {"restore_value": [], "reset_to_zero": [], "user_defined_pre_hook": False, **options}
    return types.SimpleNamespace(configs=configs, arg_names=["x", "y", "n"], base_fn=add, fn=add, **known)


@pytest.fixture
def data():
    with stf.context(devices="cpu") as ctx:
        yield ctx.logical_data_zeros(3), ctx.logical_data_zeros(3)


@pytest.mark.parametrize("around", [False, True])
def test_what_is_read_and_written_is_named(data, around):
    x, y = data
    kernel = types.SimpleNamespace(fn=tuned()) if around else tuned()  # in heuristics, or by itself
    message = r"kernel 'add' is autotuned.*, and 'y' is read and written; add restore_value=\['y'\]"
    with pytest.raises(TypeError, match=message):
        must_survive_tuning(kernel, (x.read(), y.rw(), 3), {})
    with pytest.raises(TypeError, match=message):
        must_survive_tuning(kernel, (x.read(),), {"y": y.rw(), "n": 3})


def test_what_tuning_leaves_as_it_is(data):
    x, y = data
    hooked = [types.SimpleNamespace(pre_hook=print), types.SimpleNamespace(pre_hook=None)]
    for kernel in (
        tuned(1),
        tuned(restore_value=["y"]),
        tuned(reset_to_zero=["y"]),
        tuned(user_defined_pre_hook=True),
        tuned(configs=hooked),
        types.SimpleNamespace(fn=add),
    ):
        must_survive_tuning(kernel, (x.read(), y.rw(), 3), {})
    must_survive_tuning(tuned(), (x.read(), y.write(), 3), {})


def test_a_kernel_of_cupyx_jit_is_called_in_a_body():
    kernel = type("_JitRawKernel", (), {"__module__": "cupyx.jit._interface"})()
    with pytest.raises(TypeError, match=r"a kernel of cupyx\.jit .*; call it in the body of a task"):
        kernel_handles.function_at(kernel, None, 1)


def test_a_tuned_kernel_has_the_name_of_its_function():
    assert kernel_handles.name_of(tuned()) == "add"
