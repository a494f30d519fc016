"""Observers, the trace of what ran, its picture, and the statistics."""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stf.observe import Observer, Observers, Statistics, TraceRecorder
from stf.observe import timeline as timeline_module
from stf.observe.devices import COMPUTE, COPY_IN, COPY_OUT
from stf.observe.draw import timeline
from stf.observe.observer import Operation
from stf.observe.units import format_bytes, format_duration

TASK = SimpleNamespace(id=1, symbol=None, kind="task", place_name="host", device=-1, accesses=[], call_site="")


class Listener(Observer):
    """Keeps the names of the calls it gets."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def task(self, task: Any) -> None:
        self.calls.append(f"task {task.id}")

    def operation(self, operation: Operation) -> None:
        self.calls.append(f"operation {tuple(operation)}")

    def ran(self, *args: Any) -> None:
        self.calls.append(f"ran {args}")

    def failed(self, *args: Any) -> None:
        self.calls.append(f"failed {args}")

    def skipped(self, *args: Any) -> None:
        self.calls.append(f"skipped {args}")

    def withdrawn(self, task_id: int) -> None:
        self.calls.append(f"withdrawn {task_id}")

    def section_begin(self, name: str) -> None:
        self.calls.append(f"begin {name}")

    def section_end(self) -> None:
        self.calls.append("end")

    def data_removed(self, data_id: int) -> None:
        self.calls.append(f"removed {data_id}")


def announce(observer: Observer) -> None:
    observer.task(TASK)
    observer.operation(Operation("copy", 1, "X", "host", "device(0)", 8, 1, 4, (2, -3)))
    observer.ran(1, "t", 0, 0, 0, 1, "task", 4)
    observer.failed(1, "ValueError: no", "a.py:2")
    observer.skipped(2, "task 't' failed")
    observer.withdrawn(1)
    observer.section_begin("s")
    observer.section_end()
    observer.data_removed(1)


EXPECTED = [
    "task 1",
    "operation ('copy', 1, 'X', 'host', 'device(0)', 8, 1, 4, (2, -3))",
    "ran (1, 't', 0, 0, 0, 1, 'task', 4)",
    "failed (1, 'ValueError: no', 'a.py:2')",
    "skipped (2, \"task 't' failed\")",
    "withdrawn 1",
    "begin s",
    "end",
    "removed 1",
]


def test_the_base_ignores_everything() -> None:
    announce(Observer())


def test_every_observer_hears_everything() -> None:
    first, second = Listener(), Listener()
    observers = Observers(first)
    observers.attach(second)
    observers.attach(second)
    announce(observers)
    assert first.calls == second.calls == EXPECTED
    observers.detach(first)
    observers.detach(first)
    observers.task(TASK)
    assert (len(first.calls), len(second.calls)) == (9, 10)
    assert len(observers) == 1
    assert second in observers


@pytest.mark.parametrize("call", range(9))
def test_an_observer_that_raises_is_logged_and_detached(call: int, caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener()
    names = [
        "task",
        "operation",
        "ran",
        "failed",
        "skipped",
        "withdrawn",
        "section_begin",
        "section_end",
        "data_removed",
    ]
    broken = type("Broken", (Observer,), {names[call]: lambda self, *args: 1 / 0})()
    observers = Observers(broken, listener)
    with caplog.at_level(logging.ERROR, logger="stf"):
        announce(observers)
        announce(observers)
    assert listener.calls == EXPECTED * 2
    assert broken not in observers
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


# The trace


def spans(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_events_are_relative_and_in_microseconds() -> None:
    recorder = TraceRecorder()
    recorder.ran(2, "copy X", 1, 3, 1_002_500, 1_004_000, "copy")
    recorder.ran(1, "axpy", -1, 0, 1_000_000, 1_002_000, "task")
    trace = recorder.to_chrome()
    assert spans(trace) == [
        {
            "name": "axpy",
            "cat": "task",
            "ph": "X",
            "ts": 0.0,
            "dur": 2.0,
            "pid": 0,
            "tid": 0,
            "args": {"task": 1},
        },
        {
            "name": "copy X",
            "cat": "copy",
            "ph": "X",
            "ts": 2.5,
            "dur": 1.5,
            "pid": 2,
            "tid": 3,
            "args": {"task": 2},
        },
    ]
    json.dumps(trace)


def test_processes_are_places_and_threads_are_workers() -> None:
    recorder = TraceRecorder()
    recorder.ran(1, "a", 1, 0, 0, 1, "task")
    recorder.ran(2, "b", -1, 140_000_000_000, 5, 6, "task")
    recorder.ran(3, "c", -1, 139_000_000_000, 2, 3, "task")
    trace = recorder.to_chrome()
    named = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and "name" in event["args"]
    }
    assert named == {
        ("process_name", 0, 0): "host",
        ("process_name", 2, 0): "device 1",
        ("thread_name", 0, 0): "worker 0",
        ("thread_name", 0, 1): "worker 1",
        ("thread_name", 2, 0): "worker 0",
    }
    assert [(event["args"]["task"], event["tid"]) for event in spans(trace)] == [(1, 0), (3, 0), (2, 1)]


def test_a_device_has_as_few_rows_as_what_ran_at_once() -> None:
    recorder = TraceRecorder()
    recorder.ran(1, "a", 0, COMPUTE, 0, 10, "task")
    recorder.ran(2, "b", 0, COMPUTE, 5, 15, "task")
    recorder.ran(3, "c", 0, COMPUTE, 10, 20, "task")
    recorder.ran(0, "copy", 0, COPY_OUT, 7, 8, "copy")
    recorder.ran(0, "copy", 0, COPY_IN, 1, 3, "copy")
    recorder.ran(0, "copy", 1, COPY_IN, 1, 3, "copy")
    recorder.ran(4, "d", -1, 0, 2, 3, "task")
    trace = recorder.to_chrome()
    assert [(e["name"], e["pid"], e["tid"]) for e in spans(trace)] == [
        ("a", 1, 0), ("copy", 1, 2), ("copy", 2, 0), ("d", 0, 0), ("b", 1, 1), ("copy", 1, 3), ("c", 1, 0)
    ]  # fmt: skip
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert names == {
        (0, 0): "worker 0",
        (1, 0): "compute 0",
        (1, 1): "compute 1",
        (1, 2): "copies in",
        (1, 3): "copies out",
        (2, 0): "copies in",
    }


def test_many_rows_of_a_device_are_drawn_as_one() -> None:
    recorder = TraceRecorder()
    for index in range(50):
        recorder.ran(index, "a", 0, COMPUTE, 0, 10, "task")
    recorder.ran(0, "copy", 0, COPY_IN, 0, 10, "copy")
    recorder.ran(0, "copy", 0, COPY_IN, 5, 10, "copy")
    labels, bars = timeline_module._bars(recorder.to_chrome()["traceEvents"])
    assert labels == ["device 0, compute", "device 0, copies in"]
    assert sorted(bar.lane for bar in bars if bar.row == 0) == list(range(50))


def test_an_empty_and_a_cleared_trace_are_valid() -> None:
    recorder = TraceRecorder()
    assert recorder.to_chrome() == {"traceEvents": [], "displayTimeUnit": "ms"}
    recorder.ran(1, "", 0, 0, 5, 4, "task")
    assert [(event["name"], event["dur"]) for event in spans(recorder.to_chrome())] == [("task 1", 0.0)]
    recorder.clear()
    assert spans(recorder.to_chrome()) == []


def test_workers_record_at_the_same_time() -> None:
    recorder = TraceRecorder()

    def work(worker: int) -> None:
        for index in range(500):
            recorder.ran(index, "t", 0, worker, index, index + 1, "task")

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    recorder.to_chrome()
    for thread in threads:
        thread.join()
    assert len(spans(recorder.to_chrome())) == 2000


# The timeline


def run(num_events: int, num_workers: int = 2) -> dict[str, Any]:
    rng, recorder, clock = random.Random(1), TraceRecorder(), {}
    for index in range(num_events):
        track = (rng.randrange(-1, 3), rng.randrange(num_workers))
        start = clock.get(track, 0) + rng.randrange(5_000)
        clock[track] = start + rng.randrange(20_000, 90_000)
        is_copy = rng.random() < 0.2
        name = "copy X" if is_copy else rng.choice(("gemm(1, 2)", "syrk(3)", "$trsm$", "potrf"))
        recorder.ran(index, name, *track, start, clock[track], "copy" if is_copy else "task")
    return recorder.to_chrome()


@pytest.mark.parametrize("num_events", [0, 1, 50, 20_000])
def test_timeline_is_drawn(num_events: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = timeline(run(num_events), tmp_path / "timeline.png", title="$a run")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_timeline_of_many_names_and_overlapping_events(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    recorder = TraceRecorder()
    for index in range(30):
        recorder.ran(index, chr(ord("a") + index % 26) * 30, 0, 0, index * 10, index * 10 + 25, "task")
    trace = recorder.to_chrome()
    _, bars = timeline_module._bars(trace["traceEvents"])
    assert {bar.lane for bar in bars} == {0, 1, 2}
    assert timeline(trace, str(tmp_path / "timeline.svg")).exists()


def test_one_after_the_other_is_one_lane() -> None:
    recorder = TraceRecorder()
    for index in range(1000):
        recorder.ran(index, "t", 0, 0, index * 33_333, (index + 1) * 33_333, "task")
    _, bars = timeline_module._bars(recorder.to_chrome()["traceEvents"])
    assert {bar.lane for bar in bars} == {0}


def test_columns_hold_all_the_time() -> None:
    _, bars = timeline_module._bars(run(3000)["traceEvents"])
    columns = timeline_module._times_by_column(bars, timeline_module._end_ms(bars) / 100)
    total = sum(time for times in columns.values() for time in times.values())
    assert total == pytest.approx(sum(bar.duration_ms for bar in bars))


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gemm(2, 1)", "gemm"),
        ("task 12", "task"),
        ("A[3]", "A"),
        ("step_7", "step"),
        ("42", "42"),
        ("x", "x"),
    ],
)
def test_names_that_differ_in_an_index_share_a_color(name: str, family: str) -> None:
    assert timeline_module.family(name) == family


def test_timeline_refuses_other_formats(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'.txt'; .*\.png"):
        timeline(run(1), tmp_path / "timeline.txt")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        timeline(run(1), tmp_path / "timeline.png")


# Statistics


def test_statistics_are_empty_at_first() -> None:
    statistics = Statistics()
    assert (statistics.total_tasks, statistics.total_copies, statistics.total_copied_bytes) == (0, 0, 0)
    assert str(statistics) == "tasks: 0\ncopies: 0 (0 B)\nmemory: 0 allocations"


def test_statistics_are_readable() -> None:
    statistics = Statistics(
        tasks={"task": 12, "fill": 2, "copy": 0},
        tasks_by_place={"device(0)": 10, "host": 4},
        copies={("host", "device(0)"): 3, ("device(0)", "host"): 1},
        copied_bytes={("host", "device(0)"): 3 << 20, ("device(0)", "host"): 100},
        allocations={"device(0)": 5},
        allocated_bytes={"device(0)": 5 << 30},
        peak_bytes={"device(0)": 4 << 30, "host": 0},
        evictions={"device(0)": 1},
        frees={"device(0)": 2},
        write_backs={"device(0)": 1},
        pending=3,
    )
    assert (statistics.total_tasks, statistics.total_copies) == (14, 4)
    assert statistics.total_copied_bytes == (3 << 20) + 100
    assert str(statistics).splitlines() == [
        "tasks: 14 (3 pending)",
        "  by kind: fill 2, task 12",
        "  by place: device(0) 10, host 4",
        "copies: 4 (3.00 MiB)",
        "                    copies     bytes",
        "  device(0) → host       1     100 B",
        "  host → device(0)       3  3.00 MiB",
        "memory: 5 allocations",
        "             allocations  frees  evictions  write-backs  allocated      peak",
        "  device(0)            5      2          1            1   5.00 GiB  4.00 GiB",
        "  host                 0      0          0            0        0 B       0 B",
    ]


def test_statistics_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Statistics().pending = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (1000, "1.00 µs"), (999_700, "1.00 ms"), (12_345_678, "12.3 ms"), (5e9, "5.00 s"),
     (123e9, "123 s")],
)  # fmt: skip
def test_durations(duration_ns: float, text: str) -> None:
    assert format_duration(duration_ns) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (10 << 30, "10.0 GiB"), (1 << 50, "1024 TiB")],
)
def test_bytes(nbytes: int, text: str) -> None:
    assert format_bytes(nbytes) == text
