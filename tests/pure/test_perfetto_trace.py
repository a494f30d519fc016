"""A trace in Perfetto's format, read back with the messages of the package perfetto."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stf.observe import DotRecorder, TraceRecorder
from stf.observe.devices import COMPUTE, COPY_IN
from stf.observe.observer import Operation
from stf.observe.perfetto_trace import write
from stf.observe.run import Run, RunOperation, RunSpan, RunTask, collect

LAYOUT = SimpleNamespace(shape=(2, 3), dtype="float32", nbytes=24)
HOSTILE = '<script>"\\é\ud800\n'
SHOWN = HOSTILE.replace("\ud800", "?")


def recorded() -> Run:
    """Two tasks on a device, the second after the first and a copy, and one that overlaps on the host."""
    clock = SimpleNamespace(now=1_000)
    dot, trace = DotRecorder(), TraceRecorder(lambda: clock.now)

    def at(now: int, what: str, *arguments: Any) -> None:
        clock.now = now
        for recorder in (dot, trace):
            getattr(recorder, what)(*arguments)

    def task(ident: int, name: str, place: str, device: int, *accesses: tuple[int, str, int]) -> SimpleNamespace:
        uses = [
            SimpleNamespace(data_id=i, data_name=n, mode=m, data=SimpleNamespace(core=SimpleNamespace(layout=LAYOUT)))
            for i, n, m in accesses
        ]
        common = {"id": ident, "symbol": name, "kind": "task", "place_name": place, "device": device}
        waits_for = {2: (1, -3)}.get(ident, ())
        return SimpleNamespace(**common, accesses=uses, call_site=f"program.py:{10 + ident}", waits_for=waits_for)

    at(1_000, "operation", Operation("alloc", 1, "x", "device(0)", "device(0)", 24, 1, 1, ()))
    at(1_100, "task", task(1, "first(0)", "device(0)", 0, (1, "x", 2)))
    at(1_200, "operation", Operation("alloc", 2, HOSTILE, "device(0)", "device(0)", 24, 2, 2, ()))
    at(1_300, "operation", Operation("copy", 2, HOSTILE, "host", "device(0)", 24, 2, 3, (-2,)))
    at(1_400, "task", task(2, HOSTILE, "device(0)", 0, (1, "x", 1), (2, HOSTILE, 3)))
    at(1_500, "task", task(3, "other", "host", -1))
    at(1_600, "task", task(4, "never", "host", -1))
    at(1_700, "ran", 1, "first(0)", 0, COMPUTE, 2_000, 5_000, "task")
    at(1_700, "ran", 0, "copy", 0, COPY_IN, 4_000, 6_000, "copy", 3)
    at(1_700, "ran", 2, HOSTILE, 0, COMPUTE, 6_500, 6_500, "task")
    at(1_700, "ran", 3, "other", -1, 0, 2_000, 5_000, "task")
    at(1_700, "ran", 3, "other", -1, 0, 3_000, 6_000, "task")
    at(9_000, "operation", Operation("free", 1, "x", "device(0)", "device(0)", 24, 0, 4, (2,)))
    return collect(dot, trace)


class Reader:
    """Slices and counters of a trace, by the names of their tracks; checks what a reader relies on."""

    def __init__(self, path: Path) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

        self.trace = Trace.FromString(path.read_bytes())
        self.texts: dict[str, dict[int, Any]] = defaultdict(dict)
        self.tracks: dict[int, str] = {}
        self.slices: list[dict[str, Any]] = []
        self.counters: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.flags = [packet.sequence_flags for packet in self.trace.packet]
        open_slices: dict[int, list[dict[str, Any]]] = defaultdict(list)
        last = 0
        for packet in self.trace.packet:
            assert packet.timestamp >= last and packet.trusted_packet_sequence_id == 1
            last = packet.timestamp
            for kind, entries in packet.interned_data.ListFields():
                for entry in entries:
                    assert entry.iid not in self.texts[kind.name]
                    self.texts[kind.name][entry.iid] = entry
            if packet.HasField("track_descriptor"):
                descriptor = packet.track_descriptor
                above = f"{self.tracks[descriptor.parent_uuid]}/" if descriptor.parent_uuid else ""
                self.tracks[descriptor.uuid] = above + descriptor.name
            elif packet.track_event.type == packet.track_event.TYPE_SLICE_BEGIN:
                open_slices[packet.track_event.track_uuid].append(self.slice(packet))
            elif packet.track_event.type == packet.track_event.TYPE_SLICE_END:
                ended = open_slices[packet.track_event.track_uuid].pop()
                ended["end"] = packet.timestamp
            else:
                event = packet.track_event
                self.counters[self.tracks[event.track_uuid]].append((packet.timestamp, event.counter_value))
        assert not any(open_slices.values())

    def slice(self, packet: Any) -> dict[str, Any]:
        event = packet.track_event
        found = {
            "track": self.tracks[event.track_uuid],
            "start": packet.timestamp,
            "name": self.texts["event_names"][event.name_iid].name,
            "category": self.texts["event_categories"][event.category_iids[0]].name,
            "flows from": list(event.flow_ids),
            "flows to": list(event.terminating_flow_ids),
        }
        if event.source_location_iid:
            source = self.texts["source_locations"][event.source_location_iid]
            found["line"] = (source.file_name, source.line_number)
        for annotation in event.debug_annotations:
            name = self.texts["debug_annotation_names"][annotation.name_iid].name
            found[name] = [self.value(v) for v in annotation.array_values] or self.value(annotation)
        self.slices.append(found)
        return found

    def value(self, annotation: Any) -> Any:
        if annotation.HasField("int_value"):
            return annotation.int_value
        return self.texts["debug_annotation_string_values"][annotation.string_value_iid].str.decode()


def test_slices_say_what_a_task_was_and_what_it_waited_for(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    reader = Reader(write(recorded(), tmp_path / "run.pftrace"))
    slices = {(one["name"], one["start"]): one for one in reader.slices}
    first, second, copy = slices["first(0)", 1_000], slices[SHOWN, 5_500], slices[f"copy {SHOWN}", 3_000]
    assert first["track"] == second["track"] == "device(0)/compute" and copy["track"] == "device(0)/copies in"
    assert (first["end"], second["end"], copy["end"]) == (4_000, 5_500, 5_000)
    assert (first["category"], copy["category"]) == ("task", "copy")
    assert first["line"] == ("program.py", 11) and second["line"] == ("program.py", 12)
    assert first["function"] == "first" and second["task"] == 2 and second["place"] == "device(0)"
    assert first["data"] == ["write x: float32[2, 3], 24 B"]
    assert second["data"] == ["read x: float32[2, 3], 24 B", f"rw {SHOWN}: float32[2, 3], 24 B"]
    assert "bytes moved for it" not in first and second["bytes moved for it"] == 24
    assert first["waited for"] == "its submission" and first["started after ready (ns)"] == 900
    assert second["waited for"] == "a copy of its data" and second["started after ready (ns)"] == 500
    assert (copy["from"], copy["to"], copy["bytes"]) == ("host", "device(0)", 24)
    assert copy["for"] == f"{SHOWN} (program.py:12)"
    assert copy["data"] == f"{SHOWN}: float32[2, 3], 24 B"
    assert sorted(second["flows to"]) == sorted(first["flows from"] + copy["flows from"]) == [1, 2]
    assert not first["flows to"] and not second["flows from"]


def test_what_overlaps_on_a_row_is_on_tracks_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    reader = Reader(write(recorded(), tmp_path / "run.pftrace"))
    others = [(one["track"], one["start"], one["end"]) for one in reader.slices if one["name"] == "other"]
    assert others == [("host/worker 0", 1_000, 4_000), ("host/worker 0", 2_000, 5_000)]
    assert sorted(reader.tracks.values()).count("host/worker 0") == 2
    assert [one["waited for"] for one in reader.slices if "waited for" in one and one["name"] == "other"] == [
        "its submission"
    ]  # the second is another part of the same task


def test_counters_are_memory_and_tasks_in_flight(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    reader = Reader(write(recorded(), tmp_path / "run.pftrace"))
    assert reader.counters["memory of device(0)"] == [(0, 24), (200, 48), (8_000, 24)]
    flight = reader.counters["tasks in flight"]
    assert flight[:3] == [(100, 1), (400, 2), (500, 3)] and flight[-1][1] == 0 and len(flight) == 6
    assert reader.flags == [3] + [2] * (len(reader.flags) - 1)  # interned text holds from the first packet on


def test_a_trace_without_tasks_has_names_and_times(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    trace = TraceRecorder()
    assert Reader(write(collect(None, trace), tmp_path / "empty.pftrace")).slices == []
    trace.ran(1, "a", 0, COMPUTE, 10, 30, "task")
    trace.ran(0, "copy", 0, COPY_IN, 10, 20, "copy")
    (one, copy) = Reader(write(collect(None, trace), tmp_path / "run.pftrace")).slices
    assert (one["name"], one["start"], one["end"], copy["end"]) == ("a", 0, 20, 10)


@pytest.mark.parametrize("value", [0, 127, 128, 16_383, 16_384, 1 << 21, (1 << 62) + 5, -1, -(1 << 40)])
def test_numbers_of_any_size_are_read_back(value: int, tmp_path: Path) -> None:
    """A counter of bytes, and a task that started so long before it was ready, as clocks of devices may tell."""
    pytest.importorskip("perfetto")
    tasks = [RunTask(1, "late", "task", "device(0)", -1, "", (), [], 1_000)]
    spans = [RunSpan(0, -1, "late", 0, 0, 1_000 + value, 1_000 + max(value, 0), "task")] if value < 0 else []
    operations = [] if value < 0 else [RunOperation(1_000, "alloc", -1, "host", "host", value, -1)]
    run = Run(min(1_000, 1_000 + value), tasks, spans, operations)
    reader = Reader(write(run, tmp_path / "run.pftrace"))
    if value < 0:
        assert reader.slices[0]["started after ready (ns)"] == value
    else:
        assert reader.counters["memory of host"] == ([(0, value)] if value else [])


def test_a_counter_of_very_many_values_keeps_its_peaks_and_its_end(tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    operations = [RunOperation(2 * i, "alloc", -1, "host", "host", 1, -1) for i in range(30_000)]
    operations += [RunOperation(60_000 + i, "free", -1, "host", "host", 1, -1) for i in range(30_000)]
    values = Reader(write(Run(operations=operations), tmp_path / "run.pftrace")).counters["memory of host"]
    assert len(values) <= 10_001 and max(value for _, value in values) == 30_000
    assert values[-1] == (89_999, 0)
