"""A run as a trace in Perfetto's own format: what ran where, dependencies as flows, memory as counters.

The package `perfetto` has the messages. Text that comes again is interned: a message names it by a number, and
the first one that does so brings it. One sequence of packets has everything, in order of time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stf._support.whole_file import whole_file

from .run import MODE_NAMES, Run, RunSpan, Waiting, many_objects
from .taskgraph import transitive_reduction
from .timeline import family
from .trace import free_lane

_SEQUENCE = 1
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_END, _BEGIN, _END_AT_ONCE = range(3)  # of events at the same time: what ends makes room for what begins
_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering
_PART = 1 << 13


class _Event(NamedTuple):
    """The begin or the end of a span, or a new value of a counter; `span` is an index."""

    time_ns: int
    order: int
    track: int
    span: int = -1
    value: int = 0


def write(run: Run, path: str | Path) -> Path:
    """Write the trace; return its path.

    Raises
    ------
    ImportError
        The package `perfetto` is not there.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder
    except ImportError as error:
        raise ImportError(
            "a trace in Perfetto's format needs the package perfetto: pip install perfetto; a path that ends in "
            ".json needs nothing"
        ) from error
    path = Path(path)
    with many_objects(), whole_file(path) as partial, partial.open("wb") as file:
        for part in _Trace(run, messages, TraceProtoBuilder).parts():
            file.write(part)
    return path


class _Trace:
    """One trace."""

    def __init__(self, run: Run, messages: Any, new_builder: Any) -> None:
        self._run = run
        self._builder = new_builder()
        self._new_builder = new_builder
        self._event = messages.TrackEvent
        self._unit = messages.CounterDescriptor
        self._interned: dict[tuple[str, Any], int] = {}
        self._access_texts: dict[int, str] = {}
        self._tracks = 0
        self._flags = _NEEDS_STATE | _STATE_CLEARED
        self._waiting: list[Waiting | None] = run.waiting()
        self._copies_of: dict[int, list[int]] = {}
        for index, span in enumerate(run.spans):
            if span.category == "copy" and span.task >= 0:
                self._copies_of.setdefault(span.task, []).append(index)
        self._find_flows()

    def _find_flows(self) -> None:
        """Number the edges of the graph: from each task, and each copy for a task, to those that waited for it."""
        self._flows_from: dict[int, list[int]] = {}  # by span
        self._flows_to: dict[int, list[int]] = {}
        first = [spans[0] if spans else -1 for spans in self._run.spans_of_tasks()]
        self._first_span = first
        count = 0
        before = transitive_reduction([task.before for task in self._run.tasks])
        for task, sources in enumerate(before):
            spans = [first[source] for source in sources] + self._copies_of.get(task, [])
            for span in spans:
                if span >= 0 and first[task] >= 0:
                    count += 1
                    self._flows_from.setdefault(span, []).append(count)
                    self._flows_to.setdefault(first[task], []).append(count)

    def parts(self) -> Iterator[bytes]:
        """Yield the trace, so many packets at a time: one part after the other is a trace too."""
        events = [*self._span_events(), *self._counter_events()]
        events.sort()
        for number, event in enumerate(events):
            if number % _PART == _PART - 1:
                yield self._builder.serialize()
                self._builder = self._new_builder()
            packet = self._packet(event.time_ns)
            track_event = packet.track_event
            track_event.track_uuid = event.track
            if event.span < 0:
                track_event.type = self._event.TYPE_COUNTER
                track_event.counter_value = event.value
            elif event.order == _BEGIN:
                track_event.type = self._event.TYPE_SLICE_BEGIN
                self._describe(packet, track_event, event.span)
            else:
                track_event.type = self._event.TYPE_SLICE_END
        yield self._builder.serialize()

    def _packet(self, time_ns: int) -> Any:
        packet = self._builder.add_packet()
        packet.timestamp = time_ns - self._run.origin_ns
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = self._flags
        self._flags = _NEEDS_STATE
        return packet

    # -- tracks --------------------------------------------------------------------------------------------------

    def _new_track(self, name: str, parent: int = 0, rank: int = 0) -> tuple[int, Any]:
        """Return the number of a new track and its descriptor."""
        self._tracks += 1
        packet = self._packet(self._run.origin_ns)
        descriptor = packet.track_descriptor
        descriptor.uuid = self._tracks
        descriptor.name = name
        if parent:
            descriptor.parent_uuid = parent
        descriptor.sibling_order_rank = rank
        descriptor.child_ordering = _EXPLICIT
        return self._tracks, descriptor

    def _span_events(self) -> Iterator[_Event]:
        places: dict[int, int] = {}
        tracks: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # by row: those of its lanes
        busy_until: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        rows = sorted({(span.device, span.row) for span in self._run.spans})
        for device in sorted({device for device, _ in rows}):
            places[device], _ = self._new_track("host" if device < 0 else f"device({device})", 0, device + 1)
        for index, span in enumerate(self._run.spans):
            row = span.device, span.row
            lane = free_lane(busy_until[row], span)  # slices of one track follow each other
            if lane == len(tracks[row]):
                track, _ = self._new_track(self._run.row_name(*row), places[span.device], span.row)
                tracks[row].append(track)
            track = tracks[row][lane]
            yield _Event(span.start_ns, _BEGIN, track, index)
            yield _Event(span.end_ns, _END if span.end_ns > span.start_ns else _END_AT_ONCE, track, index)

    def _counter_events(self) -> Iterator[_Event]:
        for place, changes in sorted(self._run.memory().items()):
            track, descriptor = self._new_track(f"memory of {place}")
            descriptor.counter.unit = self._unit.UNIT_SIZE_BYTES
            for time_ns, nbytes in changes:
                yield _Event(time_ns, _BEGIN, track, value=nbytes)
        yield from self._in_flight()

    def _in_flight(self) -> Iterator[_Event]:
        """Yield how many tasks were submitted and had not ended."""
        changes = []
        last_end = dict.fromkeys(range(len(self._run.tasks)), -1)
        for span in self._run.spans:
            if span.task >= 0 and span.category == "task":
                last_end[span.task] = max(last_end[span.task], span.end_ns)
        for index, task in enumerate(self._run.tasks):
            if task.submitted_ns is not None and last_end[index] >= 0:
                changes += [(task.submitted_ns, 1), (last_end[index], -1)]
        if not changes:
            return
        track, descriptor = self._new_track("tasks in flight")
        descriptor.counter.unit = self._unit.UNIT_COUNT
        count = 0
        for time_ns, change in sorted(changes):
            count += change
            yield _Event(time_ns, _BEGIN, track, value=count)

    # -- slices --------------------------------------------------------------------------------------------------

    def _describe(self, packet: Any, event: Any, index: int) -> None:
        """Say what a span was."""
        span = self._run.spans[index]
        event.name_iid = self._intern(packet, "event_names", span.name)
        event.category_iids.append(self._intern(packet, "event_categories", span.category))
        event.flow_ids.extend(self._flows_from.get(index, ()))
        event.terminating_flow_ids.extend(self._flows_to.get(index, ()))
        if span.category == "copy":
            self._describe_copy(packet, event, span)
        elif span.category == "kernel" and span.task >= 0:
            self._annotate(packet, event, "task", self._run.label(span.task))
        elif span.category == "task" and span.task >= 0:
            self._describe_task(packet, event, span, self._first_span[span.task] == index)

    def _describe_task(self, packet: Any, event: Any, span: RunSpan, is_first: bool) -> None:
        run, task = self._run, self._run.tasks[span.task]
        if task.call_site:
            event.source_location_iid = self._intern(packet, "source_locations", task.call_site)
        self._annotate(packet, event, "function", family(task.name))
        self._annotate(packet, event, "task", task.id)
        self._annotate(packet, event, "place", task.place)
        if task.accesses:
            values = self._annotation(packet, event, "data").array_values
            for access in task.accesses:
                text = self._access_texts.get(access)
                if text is None:
                    text = f"{MODE_NAMES.get(access & 7, 'rw')} {run.describe_data(access >> 3)}"
                    self._access_texts[access] = text
                values.add().string_value_iid = self._intern(packet, "debug_annotation_string_values", text)
        if is_first:
            moved = sum(run.operations[run.spans[copy].operation].nbytes for copy in self._copies_of.get(span.task, ()))
            if moved:
                self._annotate(packet, event, "bytes moved for it", moved)
            waited_for, ready_ns = run.why_it_waited(self._waiting[span.task])
            self._annotate(packet, event, "waited for", waited_for)
            self._annotate(packet, event, "ready (ns)", ready_ns - run.origin_ns)
            self._annotate(packet, event, "started after ready (ns)", span.start_ns - ready_ns)

    def _describe_copy(self, packet: Any, event: Any, span: RunSpan) -> None:
        if span.operation < 0:
            return
        run, operation = self._run, self._run.operations[span.operation]
        if operation.data >= 0:
            self._annotate(packet, event, "data", run.describe_data(operation.data))
        self._annotate(packet, event, "from", operation.source)
        self._annotate(packet, event, "to", operation.target)
        self._annotate(packet, event, "bytes", operation.nbytes)
        if operation.task >= 0:
            self._annotate(packet, event, "for", run.label(operation.task))

    def _annotation(self, packet: Any, event: Any, name: str) -> Any:
        annotation = event.debug_annotations.add()
        annotation.name_iid = self._intern(packet, "debug_annotation_names", name)
        return annotation

    def _annotate(self, packet: Any, event: Any, name: str, value: str | int) -> None:
        annotation = self._annotation(packet, event, name)
        if isinstance(value, int):
            annotation.int_value = value
        else:
            annotation.string_value_iid = self._intern(packet, "debug_annotation_string_values", value)

    def _intern(self, packet: Any, kind: str, text: str) -> int:
        """Return the number of a text; the first packet that uses it brings it."""
        iid = self._interned.get((kind, text))
        if iid is None:
            iid = self._interned[kind, text] = len(self._interned) + 1
            entry = getattr(packet.interned_data, kind).add()
            entry.iid = iid
            text = text.encode(errors="replace").decode()  # a name may have what UTF-8 has not
            if kind == "source_locations":
                entry.file_name = self._run.files.get(text) or text.rpartition(":")[0]
                entry.line_number = int(text.rpartition(":")[2])
            elif kind == "debug_annotation_string_values":
                entry.str = text.encode()
            else:
                entry.name = text
        return iid
