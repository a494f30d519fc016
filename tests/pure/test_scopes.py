"""Scopes on the recorder: a data's version per scope, committed as one task, or poisoned when the body fails."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import stf
from stf._backends.recorder import Recorder
from stf._engine.failures import Failure
from stf._engine.instances import Layout
from stf._engine.submit import Engine
from stf.data import LogicalData
from stf.tasks import ContextCore


class Bench(ContextCore):
    """A context on the recorder."""

    def __init__(self) -> None:
        self.recorder = Recorder(2, log=True)
        engine = Engine(self.recorder, ["host", "device(0)"], [0, 1], [0, 0])
        engine.context = weakref.ref(self)
        self.attach(engine, 1)

    def data(self, name: str) -> LogicalData:
        core = self.engine.new_data(Layout((4,), (8,), np.dtype(float), 8), name)
        self.engine.set_home(core, 0, 4096, None)
        return LogicalData(core)

    def run(self, *accesses: object) -> None:
        with self.task(*accesses):
            pass


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_first_use_in_a_scope_pushes_a_version_and_leaving_commits_it(bench: Bench) -> None:
    x, y = bench.data("x"), bench.data("y")
    bench.run(x.rw())
    outside = x.core.version
    scope = bench.engine.open_scope()
    bench.run(x.read(), y.rw())
    inside = x.core.version
    assert inside is not outside and inside.parent is outside and inside.scope is scope
    assert inside.joined == 1 and y.core.version.joined == 3
    bench.engine.close_scope(scope)
    assert x.core.version is outside and y.core.version.scope is None
    assert y.core.version.joined & 2
    stf._engine.invariants.check_state(bench.engine)


def test_order_and_replicas_carry_through_scopes(bench: Bench) -> None:
    x = bench.data("x")
    bench.run(x.rw())
    outer = bench.engine.open_scope()
    inner = bench.engine.open_scope()
    bench.run(x.rw())
    assert x.core.version.scope is inner and x.core.version.parent.scope is outer
    bench.engine.close_scope(inner)
    bench.engine.close_scope(outer)
    bench.run(x.rw())
    assert (bench.recorder.allocs, bench.recorder.copies) == (1, 1)
    assert bench.recorder.records == 1 + 3
    assert bench.recorder.waits == 1  # the first task waits for the copy, the others follow on its lane
    stf._engine.invariants.check_state(bench.engine)


def test_untouched_data_get_no_version(bench: Bench) -> None:
    x, y = bench.data("x"), bench.data("y")
    before = y.core.version
    scope = bench.engine.open_scope()
    bench.run(x.rw())
    bench.engine.close_scope(scope)
    assert y.core.version is before
    assert [data.name for data in scope.touched] == ["x"]


def test_a_failed_scope_poisons_what_it_wrote_and_nothing_else(bench: Bench) -> None:
    x, y = bench.data("x"), bench.data("y")
    scope = bench.engine.open_scope()
    bench.run(x.read(), y.rw())
    bench.engine.close_scope(scope, Failure("'loop'", "here:1", ValueError("no"), ["y"], delivered=True))
    bench.run(x.read())
    with pytest.raises(
        stf.TaskFailedError, match=r"'y' .* poisoned: task 'loop' \(here:1\) failed with ValueError: no"
    ):
        bench.run(y.read())
    bench.run(y.write())
    bench.run(y.read())


def test_scopes_nest_and_need_closed_tasks(bench: Bench) -> None:
    x = bench.data("x")
    with bench.task(x.read(), name="open one"), pytest.raises(stf.TaskStateError, match="'open one' is open"):
        bench.engine.open_scope()
    outer = bench.engine.open_scope()
    bench.engine.open_scope()
    with pytest.raises(stf.TaskStateError, match="reverse order"):
        bench.engine.close_scope(outer)
