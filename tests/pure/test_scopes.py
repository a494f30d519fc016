"""Recordings on the recorder: versions of their own, programs of nodes, and launches that are one task."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import stf
from stf._backends.graph import GraphBackend
from stf._backends.recorder import Recorder
from stf._engine.engine import Engine
from stf._port.place import Place
from stf._port.replicas import Layout
from stf._recording import launches, recordings
from stf.data.logical_data import LogicalData
from stf.tasks.task import ContextCore


class Bench(ContextCore):
    """A context on the recorder."""

    def __init__(self) -> None:
        self.recorder = Recorder(2, log=True)
        engine = Engine(self.recorder, [Place(0, "host", -1, 0), Place(1, "device(0)", 0, 1)], [0, 0])
        engine.context = weakref.ref(self)
        self.attach(engine, 1, {0: 1})
        self._spec = SimpleNamespace(numbers=[0], count=1)

    def data(self, name: str) -> LogicalData:
        core = self.engine.new_data(Layout((4,), (8,), np.dtype(float), 8), name)
        self.engine.set_home(core, 0, 4096, None)
        return LogicalData(core)

    def open(self, runs_once: bool = False) -> recordings.RecordingScope:
        return recordings.open_scope(self.engine, GraphBackend(self.recorder), 0, "a graph", runs_once)

    def launch(self, recording: recordings.Recording) -> None:
        launches.submit(self.engine, self.make_task_at([], "graph"), recording)

    def run(self, *accesses: object) -> None:
        self.task(*accesses).run_empty()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def uses_of(recording: recordings.Recording) -> dict[str, tuple[int, list[int], list[int] | None]]:
    return {use.data.name: (use.mode, use.entries, use.finals) for use in recording.uses}


READ, WRITE, RW = 1, 2, 3


def test_a_recording_changes_nothing_around_it(bench: Bench) -> None:
    x, y = bench.data("x"), bench.data("y")
    outside = x.core.version
    before = (bench.recorder.records, bench.recorder.copies)
    scope = bench.open()
    bench.run(x.read(), y.rw())
    inside = x.core.version
    assert inside is not outside and inside.parent is outside and inside.scope is scope
    recording = recordings.close_scope(bench.engine, scope)
    assert x.core.version is outside and y.core.version.scope is bench.engine.root_scope
    assert outside.joined == 0 and outside.writers.tolist() == []
    assert bench.recorder.copies == before[1]  # memory was reserved, and nothing moved
    assert uses_of(recording) == {"x": (READ, [1], None), "y": (RW, [1], [1])}
    recording.close()
    stf._engine.invariants.check_state(bench.engine)


def test_modes_entries_and_finals(bench: Bench) -> None:
    x, y, z = bench.data("x"), bench.data("y"), bench.data("z")
    scope = bench.open()
    bench.run(x.write())
    bench.run(x.rw(), y.read())
    bench.run(y.read(stf.data_place.host()), z.write())
    recording = recordings.close_scope(bench.engine, scope)
    assert uses_of(recording) == {
        "x": (WRITE, [], [1]),  # what was there before is not brought in
        "y": (READ, [1, 0], None),  # and needed at two places
        "z": (WRITE, [], [1]),
    }
    recording.close()


def test_nodes_are_chained_by_data_and_by_nothing_else(bench: Bench) -> None:
    a, b, c = (bench.data(name) for name in "abc")
    scope = bench.open()
    bench.run(a.rw())
    bench.run(b.rw())
    bench.run(a.read(), c.rw())
    bench.run(b.read(), c.rw())
    bench.run(a.rw(), b.rw())
    recording = recordings.close_scope(bench.engine, scope)
    assert recording.program.edges() == [(0, 2), (1, 3), (2, 3), (2, 4), (3, 4)]
    assert [recording.program.is_last(node) for node in range(5)] == [False] * 4 + [True]
    recording.close()


def test_copies_inside_are_nodes(bench: Bench) -> None:
    x = bench.data("x")
    scope = bench.open()
    bench.run(x.rw())
    bench.run(x.read(stf.data_place.host()))
    recording = recordings.close_scope(bench.engine, scope)
    assert recording.program.operations() == [[], ["copy"], []]
    assert uses_of(recording) == {"x": (RW, [1], [1, 0])}
    bench.launch(recording)
    valid = {replica.place for replica in x.core.version.replicas if replica.state}
    assert valid == {0, 1} and bench.recorder.copies == 2  # the entry, and the one inside
    bench.launch(recording)
    assert bench.recorder.copies == 3  # the entry is there already
    recording.close()
    stf._engine.invariants.check_state(bench.engine)


def test_a_launch_is_one_task_of_the_scope_around(bench: Bench) -> None:
    x, y = bench.data("x"), bench.data("y")
    scope = bench.open()
    bench.run(x.read(), y.rw())
    recording = recordings.close_scope(bench.engine, scope)
    bench.run(x.write())
    before = x.core.version.writers.tolist()
    bench.launch(recording)
    assert x.core.version.writers.tolist() == before
    assert len(x.core.version.readers.tolist()) >= 1
    assert y.core.version.joined == RW
    assert recording.program.count == 1
    recording.close()


def test_memory_of_a_living_recording_stays(bench: Bench) -> None:
    x = bench.data("x")
    scope = bench.open()
    bench.run(x.rw())
    recording = recordings.close_scope(bench.engine, scope)
    replica = x.core.version.replicas[1]
    assert replica.place == 1 and replica.pins == 1
    with pytest.raises(stf.AccessError, match="'x' .* cannot be released while a recorded graph uses it; close"):
        bench.engine.patiently(stf._engine.retiring.release_data, x.core)
    core = x.core
    del x
    bench.run(bench.data("y").rw())
    assert not core.released  # it was dropped, and goes with the recording
    recording.close()
    assert replica.pins == 0
    bench.run(bench.data("z").rw())
    assert core.released


def test_what_was_recorded_may_be_forgotten(bench: Bench) -> None:
    x = bench.data("x")
    scope = bench.open()
    bench.run(x.rw())
    scope.discard()
    assert bench.engine.scope is bench.engine.root_scope and x.core.version.joined == 0
    bench.run(x.rw())
    stf._engine.invariants.check_state(bench.engine)


def test_recordings_nest(bench: Bench) -> None:
    x, y = bench.data("x"), bench.data("y")
    outer = bench.open()
    bench.run(y.rw())
    inner = bench.open()
    bench.run(x.rw(), y.read())
    assert x.core.version.scope is inner and x.core.version.parent.scope is outer
    part = recordings.close_scope(bench.engine, inner)
    bench.launch(part)
    whole = recordings.close_scope(bench.engine, outer)
    assert uses_of(whole) == {"y": (RW, [1], [1]), "x": (RW, [1], [1])}
    assert whole.program.operations() == [[], ["run"]] and whole.program.edges() == [(0, 1)]
    bench.launch(whole)
    part.close()
    assert not part.closed  # the whole runs it
    whole.close()
    assert part.closed
    stf._engine.invariants.check_state(bench.engine)


def test_scopes_need_closed_tasks_and_close_in_order(bench: Bench) -> None:
    x = bench.data("x")
    with (
        bench.task(x.read(), name="open one"),
        pytest.raises(stf.TaskStateError, match=r"'open one' \(test_scopes.py:\d+\) is open"),
    ):
        bench.open()
    outer = bench.open()
    inner = bench.open()
    with pytest.raises(stf.TaskStateError, match="before what was opened inside of it"):
        recordings.close_scope(bench.engine, outer)
    for scope in (inner, outer):
        scope.discard()


def test_what_is_read_before_anything_wrote_it(bench: Bench) -> None:
    core = bench.engine.new_data(Layout((4,), (8,), np.dtype(float), 8), "x")
    x = LogicalData(core)
    scope = bench.open()
    with pytest.raises(stf.UninitializedDataError, match="'x'"):
        bench.run(x.read())
    bench.run(x.write())
    bench.run(x.read())
    scope.discard()
