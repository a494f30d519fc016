"""Kernels that another process submits: their body as it travels, called here on arrays of this one."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stf
from stf.kernels.builders import make_builder
from stf.kernels.index_spaces import space_of
from stf.kernels.kernels_there import KernelThere
from stf.kernels.launch import THREADS
from stf.kernels.parallel_for import ELEMENTS

cloudpickle = pytest.importorskip("cloudpickle")
pytest.importorskip("numba")


def there(ctx: stf.Context, construct: Any, over: Any, items: Any, body: Any) -> Any:
    """Return the body of a task as it comes out elsewhere."""
    return pickle.loads(cloudpickle.dumps(KernelThere(make_builder, construct, over, items, body)))


@pytest.fixture
def ctx() -> Any:
    with stf.context(devices="cpu:2") as ctx:
        yield ctx


def test_a_loop_writes_into_the_arrays_that_it_gets(ctx: stf.Context) -> None:
    x, y, factor = ctx.logical_data_zeros((2, 3)), ctx.logical_data_zeros((2, 3)), 2.0

    def add(i: Any, j: Any, x: Any, y: Any, more: Any) -> None:
        y[i, j] += factor * x[i, j] + more

    call = there(ctx, ELEMENTS, space_of((2, 3)), (x.read(), y.rw()), add)
    X, Y = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    X.flags.writeable = False
    call(X, Y, 5)
    call(X, Y, 6)
    assert np.array_equal(Y, 1 + 4 * X + 11)


def test_an_array_that_is_there_twice(ctx: stf.Context) -> None:
    x = ctx.logical_data_zeros(4)
    call = there(ctx, ELEMENTS, space_of((4,)), (x.read(), x.read()), lambda i, a, b: None)
    X = np.arange(4.0)
    call(X, X)
    total = ctx.logical_data_zeros(())
    items = (x.read(), x.read(), total.reduce(stf.reducer.sum, accumulate=True))
    found = np.array(1.0)
    there(ctx, ELEMENTS, space_of((4,)), items, lambda i, a, b: a[i] * b[i])(X, X, found)
    assert found == 1 + 14
    items = (*items[:2], total.reduce(stf.reducer.maxval))
    there(ctx, ELEMENTS, space_of((4,)), items, lambda i, a, b: a[i] * b[i])(X, X, found)
    assert found == 9


def test_threads_of_a_hierarchy(ctx: stf.Context) -> None:
    x, s = ctx.logical_data_zeros(64), ctx.logical_data_zeros(4)

    def add_up(th: Any, x: Any, s: Any) -> None:
        total = 0.0
        for i in range(th.rank(), x.size, th.size()):
            total += x[i]
        s[th.rank()] = total

    found = np.zeros(4)
    there(ctx, THREADS, stf.par(4), (x.read(), s.write()), add_up)(np.arange(64.0), found)
    assert found.sum() == np.arange(64.0).sum()


steps: Any = None  # a module that a test makes
TWICE = """
def one(th, s):
    s[th.rank()] = 1.0

first = one

def one(th, s):
    s[th.rank()] = 1.0
"""
SOURCE = """
STEP = 1.0

def grown(v):
    return v + STEP

def add(i, x):
    x[i] += STEP
"""


def test_variables_are_those_of_the_submission(
    ctx: stf.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording is sent with its first launch: until then others may have changed them, in modules too."""
    (tmp_path / "steps_there.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(globals(), "steps", importlib.import_module("steps_there"))
    x, factor, table = ctx.logical_data_zeros(3), 2.0, np.ones(3)

    def scaled(v: float) -> float:
        return factor * v

    def body(i: Any, x: Any) -> None:
        x[i] = scaled(table[i]) + 10 * steps.STEP + 100 * steps.grown(steps.STEP)

    made = [KernelThere(make_builder, ELEMENTS, space_of((3,)), (x.rw(),), fn) for fn in (body, steps.add)]
    factor, steps.STEP = 7.0, 5.0
    table[:] = 7.0
    content = cloudpickle.dumps(made)
    steps.STEP = 9.0  # as in another process, which has its own
    found = np.zeros(3)
    for call in pickle.loads(content):
        call(found)
    assert found.tolist() == [2 + 10 + 200 + 1] * 3


def test_a_parameter_is_an_argument(ctx: stf.Context) -> None:
    x = ctx.logical_data_zeros(3)
    with ctx.task_graph() as graph:
        more = graph.param("more", 1.0)

    def add(i: Any, x: Any) -> None:
        x[i] += more

    with pytest.raises(TypeError, match="<parameter more=1.0> of variables around it; give it by args="):
        KernelThere(make_builder, ELEMENTS, space_of((3,)), (x.rw(),), add)


def test_bodies_of_the_same_text(ctx: stf.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twice_there.py").write_text(TWICE)
    monkeypatch.syspath_prepend(tmp_path)
    twice = importlib.import_module("twice_there")
    s = ctx.logical_data_zeros(4)
    made = [KernelThere(make_builder, THREADS, stf.par(4), (s.rw(),), fn) for fn in (twice.first, twice.one)]
    for call in pickle.loads(cloudpickle.dumps(made)):
        found = np.zeros(4)
        call(found)
        assert found.tolist() == [1.0] * 4
