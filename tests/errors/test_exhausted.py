"""No more stack, and no more memory, anywhere in a call: it raises, and the context works on."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import QUICK, is_cuda

import stf
from stf._engine.access import Access
from stf._engine.versions import Outcome, Version
from stf._port.events import EventSet
from stf._port.replicas import Replica
from stf._support import loader

try:
    import _testcapi
except ImportError:  # not every Python has it
    _testcapi = None

DEPTHS = 250


@stf.task
def add(x: stf.ReadWrite):
    x += 1


@stf.replay
def add_again(x):
    add(x)


def block(ctx, x):
    with ctx.task(x.rw()):
        pass


def graph(ctx, x):
    g = ctx.task_graph()
    with g:
        add(x)
    g.launch()


def scope(ctx, x):
    with ctx.graph_scope():
        add(x)


def freeze(ctx, x):
    with ctx.freeze(x) as frozen:
        frozen.get()


def tiles(ctx, x):
    for tile in x.tiles((2,)):
        add(tile)


def register(ctx, x):
    with stf.context(devices=str(ctx._spec)) as other:
        other.logical_data(np.ones(4)).numpy()


def nothing(x):
    """A body."""


CALLS = {
    "function": lambda ctx, x: add(x),
    "with-block": block,
    "builder": lambda ctx, x: ctx.task(x.rw())(nothing),
    "on the host": lambda ctx, x: ctx.host_launch(x.rw())(nothing),
    "graph": graph,
    "scope": scope,
    "replay": lambda ctx, x: add_again(x),
    "freeze": freeze,
    "copy": lambda ctx, x: ctx.copy(x, x.empty_like()),
    "fill": lambda ctx, x: ctx.fill(x, 1),
    "wait": lambda ctx, x: x.numpy(),
    "tiles": tiles,
    "synchronize": lambda ctx, x: ctx.synchronize(),
    "logical_data": lambda ctx, x: ctx.logical_data(np.ones(4)).numpy(),
    "finalize": register,
}


def deep(calls, action):
    return action() if calls == 0 else deep(calls - 1, action)


def must_work(ctx, x):
    """The context does all that is asked; what failed before is told first, if it poisoned anything."""
    try:
        ctx.synchronize()
    except stf.TaskFailedError:
        x.accept()
    ctx.fill(x, 7)
    add(x)
    assert x.numpy().tolist() == [8.0] * 4
    ctx.check_errors()
    ctx.check_state()


@pytest.mark.not_captured("it waits, again and again")
@pytest.mark.filterwarnings("ignore:.*was dropped without finalize", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_at_any_depth_of_the_stack(ctx_factory, call):
    ctx, home = ctx_factory(), np.zeros(4)
    x = ctx.logical_data(home)
    CALLS[call](ctx, x)
    must_work(ctx, x)
    before, here = sys.getrecursionlimit(), 0
    frame = sys._getframe()
    while frame is not None:
        frame, here = frame.f_back, here + 1
    succeeded, depth = 0, DEPTHS
    while succeeded < 10:
        sys.setrecursionlimit(here + DEPTHS + 10)
        try:
            deep(depth, lambda: CALLS[call](ctx, x))
            succeeded += 1
        except RecursionError:
            succeeded = 0
        finally:
            sys.setrecursionlimit(before)
        must_work(ctx, x)
        depth -= 5 if QUICK else 1
    assert depth > 0
    ctx.finalize()
    assert home.tolist() == [8.0] * 4


# -- memory --------------------------------------------------------------------------------------------------------

ENOUGH = 10  # calls in a row that succeed: they need less memory than that
KEPT = (EventSet, Version, Outcome, Replica, Access)  # of which a few that went are kept for the next ones
BODIES_OF_CUPY = ("function", "builder", "graph", "scope", "replay", "tiles")
NUMPYS = ("<class 'numpy.nditer'> returned NULL without setting", "<built-in function reduce> returned NULL without")
PYTHONS = "error return without exception set"  # where there is no memory for a KeyError of os.environ


def taken(count: int) -> list[Any]:
    """Objects of the kinds that are made without asking for memory while some that went are kept."""
    kept = [kind.__new__(kind) for kind in KEPT for _ in range(min(count, 300))]
    tuples = [(count,) * size for size in range(1, 20) for _ in range(count)]
    return [kept, tuples, [[] for _ in range(count)], [{} for _ in range(count)], [float(i) for i in range(count)]]


@contextlib.contextmanager
def failing(number: int) -> Iterator[None]:
    """Let one allocation of Python's fail, of this thread or another one: the one with that number."""
    _testcapi.set_nomemory(number, number + 1)
    try:
        yield
    finally:
        _testcapi.remove_mem_hooks()


def runs_out(call, ctx, x, number):
    """Whether a call raises as an allocation fails."""
    try:
        with failing(number):
            call(ctx, x)
    except MemoryError:
        return True
    except SystemError as error:  # neither NumPy nor Python always says why it failed
        assert str(error).startswith((*NUMPYS, PYTHONS))
        return True
    return False


def memory(ctx):
    """What a context has, and how much memory it counts."""
    engine = ctx.engine
    return len(engine.coherency.data), [pool.used for pool in engine.coherency.pools], ctx._driver.live_allocations


PLAIN = """
import _testcapi

def call(data):
    return next((x for x in data), None), (lambda: data), [y for y in map(str, data) if any(y == str(z) for z in data)]

for number in [100_000, *range(60)]:
    _testcapi.set_nomemory(number, number + 1)
    try:
        call([1, 2])
    except MemoryError:
        pass
    finally:
        _testcapi.remove_mem_hooks()
"""


@functools.cache
def survives():
    """Whether this Python survives a generator or a lambda for which there is no memory: CPython 3.12 crashes."""
    return subprocess.run([sys.executable, "-c", PLAIN], capture_output=True).returncode == 0


@pytest.fixture
def no_collections():
    """A collection would ask for memory at any time."""
    if not survives():
        pytest.skip("this Python itself crashes where there is no memory for a generator or a lambda")
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def lacks_memory(test):
    """Mark a test that lets allocations fail."""
    for mark in (
        pytest.mark.skipif(_testcapi is None, reason="this Python has no _testcapi, which lets allocations fail"),
        pytest.mark.skipif(not any(loader.compiled_modules().values()), reason="uncompiled, each line needs memory"),
        pytest.mark.not_captured("it waits, again and again"),
        pytest.mark.filterwarnings(
            "ignore:.*was dropped without finalize", "ignore::pytest.PytestUnraisableExceptionWarning"
        ),
        pytest.mark.usefixtures("no_collections"),
    ):
        test = mark(test)
    return test


@lacks_memory
@pytest.mark.parametrize("call", CALLS)
def test_any_allocation_of_a_call_fails(ctx_factory, call):
    ctx, home = ctx_factory(), np.zeros(4)
    if is_cuda(ctx) and call in BODIES_OF_CUPY:
        pytest.skip("its body is CuPy's, and on the stand-in a thread of C's runs Python, which cannot fail")
    x = ctx.logical_data(home)
    for _ in range(3):
        CALLS[call](ctx, x)
        must_work(ctx, x)
    before, kept, succeeded = memory(ctx), taken(2100), 0
    for number in itertools.count(step=12 if QUICK else 1):
        kept += taken(20)
        succeeded = 0 if runs_out(CALLS[call], ctx, x, number) else succeeded + 1
        try:
            must_work(ctx, x)
            assert memory(ctx) == before
        except BaseException as error:
            error.add_note(f"after a call whose allocation {number} failed")
            raise
        if succeeded == ENOUGH:
            break
    assert number >= ENOUGH
    ctx.finalize()
    assert home.tolist() == [8.0] * 4


@lacks_memory
def test_finalize_that_lacks_memory_loses_nothing(ctx_factory):
    """It raises, and can be called again."""
    kept, succeeded = taken(2100), 0
    for number in itertools.count():
        ctx, home = ctx_factory(), np.zeros(4)
        x = ctx.logical_data(home)
        add(x)
        ctx.synchronize()
        kept += taken(20)
        del x
        if runs_out(lambda ctx, _: ctx.finalize(), ctx, None, number):
            succeeded = 0
            ctx.finalize()
        else:
            succeeded += 1
        assert home.tolist() == [1.0] * 4, number
        if succeeded == ENOUGH:
            break
