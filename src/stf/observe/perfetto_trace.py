"""A run as a trace in Perfetto's own format: what ran where, dependencies as flows, memory as counters.

The format is protocol buffers, of which a trace needs two forms: a number, and a message in a message. They are written
here, which is faster than objects of a library and needs no package. The numbers of the fields are those of
``protos/perfetto/trace`` in Perfetto's sources; the tests read the file back with Perfetto's own messages.

Text that comes again is interned: a message names it by a number, and the first one that does so brings it. One
sequence of packets has everything, in order of time.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from stf._support.many_objects import many_objects
from stf._support.whole_file import whole_file

from .order import MODE_NAMES
from .run import Run, RunSpan, Waiting
from .taskgraph import transitive_reduction
from .timeline import family
from .trace import free_lane
from .units import place_name

_END, _BEGIN, _END_AT_ONCE = range(3)  # of events at the same time: what ends makes room for what begins
_PART = 1 << 13  # packets that are written at a time
_MOST_VALUES = 10_000  # of a counter: a screen has fewer columns

# time, order, track, span; or -1 for a counter, and its value
_Event = tuple[int, int, int, int, int]


def write(run: Run, path: str | Path) -> Path:
    """Write the trace; return its path."""
    with many_objects(), whole_file(path) as partial, partial.open("wb") as file:
        for part in _Trace(run).parts():
            file.write(part)
    return Path(path)


# -- protocol buffers ----------------------------------------------------------------------------------------------

_LAST = [bytes([value]) for value in range(1 << 7)]
_LAST += [bytes([value & 127 | 128, value >> 7]) for value in range(1 << 7, 1 << 14)]
_BEFORE = [bytes([value & 127 | 128, value >> 7 | 128]) for value in range(1 << 14)]


def _varint(value: int) -> bytes:
    """Return an integer, seven bits a byte, the low ones first; a negative one as 64 bits."""
    if 0 <= value < 1 << 14:
        return _LAST[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = b""
    while value >= 1 << 14:  # two bytes at a time
        found += _BEFORE[value & (1 << 14) - 1]
        value >>= 14
    return found + _LAST[value]


def _field(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _number(number: int) -> bytes:
    """Return what stands before an integer."""
    return _field(number, 0)


def _message(number: int) -> bytes:
    """Return what stands before the length of a message or a text."""
    return _field(number, 2)


def _with_length(before: bytes, content: bytes) -> bytes:
    return before + _varint(len(content)) + content


_PACKET = _message(1)  # Trace
_TIMESTAMP, _TRACK_EVENT, _INTERNED_DATA, _TRACK_DESCRIPTOR = _number(8), _message(11), _message(12), _message(60)
_SEQUENCE = _number(10) + _varint(1)  # trusted_packet_sequence_id, of all packets
_NEEDS_STATE = _SEQUENCE + _number(13) + _varint(2)  # sequence_flags
_FIRST = _SEQUENCE + _number(13) + _varint(3)  # the same, and the state is cleared
_CATEGORY, _ANNOTATION, _NAME, _TRACK = _number(3), _message(4), _number(10), _number(11)  # TrackEvent
_SLICE_BEGIN, _SLICE_END, _COUNTER = (_number(9) + _varint(value) for value in (1, 2, 4))
_COUNTER_VALUE, _SOURCE_LOCATION, _FLOW, _FLOW_ENDS = _number(30), _number(34), _field(47, 1), _field(48, 1)
_ANNOTATION_NAME, _INT_VALUE, _TEXT_VALUE, _VALUES = _number(1), _number(4), _number(17), _message(12)
_UUID, _TRACK_NAME, _PARENT, _COUNTED, _RANK = _number(1), _message(2), _number(5), _message(8), _number(12)
_BY_RANK = _number(11) + _varint(3)  # TrackDescriptor.child_ordering
_UNIT, _COUNT, _BYTES = _number(3), 2, 3  # CounterDescriptor
_CATEGORIES, _NAMES, _ANNOTATION_NAMES, _LOCATIONS, _TEXTS = map(_message, (1, 2, 3, 4, 29))  # InternedData
_IID, _TEXT, _LINE = _number(1), _message(2), _number(4)  # of what is interned
_FLOW_ID = struct.Struct("<Q")


# -- the trace -----------------------------------------------------------------------------------------------------


class _Trace:
    """One trace."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._interned: defaultdict[bytes, dict[str, bytes]] = defaultdict(dict)  # numbers by kind and text
        self._texts = 0
        self._names: dict[tuple[str, str], bytes] = {}  # of spans, by name and category
        self._integers: dict[str, bytes] = {}  # what stands before the value of an annotation, by its name
        self._new_texts: list[bytes] = []  # those that no packet has brought yet
        self._annotations: dict[tuple[str, str], bytes] = {}
        self._alike: dict[tuple[str, str, str, tuple[int, ...]], bytes] = {}  # what tasks have in common
        self._tracks: list[bytes] = []  # the number of each, as events have it
        self._copies_alike: dict[tuple[int, str, str, int], bytes] = {}
        self._descriptors: list[bytes] = []
        self._waiting: list[Waiting | None] = run.waiting()
        self._copies_of: defaultdict[int, list[int]] = defaultdict(list)
        for index, span in enumerate(run.spans):
            if span.category == "copy" and span.task >= 0:
                self._copies_of[span.task].append(index)
        self._find_flows()

    def _find_flows(self) -> None:
        """Number the edges of the graph: from each task, and each copy for a task, to those that waited for it."""
        self._flows: defaultdict[int, bytes] = defaultdict(bytes)  # by span
        first = [spans[0] if spans else -1 for spans in self._run.spans_of_tasks()]
        self._first_span = first
        count = 0
        before = transitive_reduction([task.before for task in self._run.tasks], block=1024)  # an edge more is no harm
        for task, sources in enumerate(before):
            target = first[task]
            for span in (*map(first.__getitem__, sources), *self._copies_of.get(task, ())):
                if span >= 0 and target >= 0:
                    count += 1
                    ident = _FLOW_ID.pack(count)
                    self._flows[span] += _FLOW + ident
                    self._flows[target] += _FLOW_ENDS + ident

    def parts(self) -> Iterator[bytes]:
        """Yield the trace, so many packets at a time."""
        events = [*self._span_events(), *self._counter_events()]
        events.sort()
        packets = self._descriptors
        origin_ns = self._run.origin_ns
        begins, counters = ([kind + track for track in self._tracks] for kind in (_SLICE_BEGIN, _COUNTER))
        ends = [_NEEDS_STATE + _with_length(_TRACK_EVENT, _SLICE_END + track) for track in self._tracks]
        for time_ns, order, track, span, value in events:
            if span < 0:
                content = _with_length(_TRACK_EVENT, counters[track] + _COUNTER_VALUE + _varint(value))
                packets.append(self._packet(time_ns, content))
            elif order == _BEGIN:
                content = _with_length(_TRACK_EVENT, begins[track] + self._described(span))
                packets.append(self._packet(time_ns, content))
            else:
                content = _TIMESTAMP + _varint(time_ns - origin_ns) + ends[track]
                packets.append(_PACKET + _varint(len(content)) + content)
            if len(packets) >= _PART:
                yield b"".join(packets)
                packets.clear()
        yield b"".join(packets)

    def _packet(self, time_ns: int, content: bytes, sequence: bytes = _NEEDS_STATE) -> bytes:
        if self._new_texts:
            content = _with_length(_INTERNED_DATA, b"".join(self._new_texts)) + content
            self._new_texts.clear()
        content = _TIMESTAMP + _varint(time_ns - self._run.origin_ns) + sequence + content
        return _PACKET + _varint(len(content)) + content

    # -- tracks --------------------------------------------------------------------------------------------------

    def _new_track(self, name: str, parent: int = -1, rank: int = 0, unit: int | None = None) -> int:
        """Return the index of a new track; `parent` is another one's."""
        number = len(self._tracks)
        content = _UUID + _varint(number + 1) + _with_length(_TRACK_NAME, _encoded(name))
        if parent >= 0:
            content += _PARENT + _varint(parent + 1)
        if unit is not None:
            content += _with_length(_COUNTED, _UNIT + _varint(unit))
        content += _RANK + _varint(rank) + _BY_RANK
        self._tracks.append(_TRACK + _varint(number + 1))
        sequence = _NEEDS_STATE if number else _FIRST
        packet = self._packet(self._run.origin_ns, _with_length(_TRACK_DESCRIPTOR, content), sequence)
        self._descriptors.append(packet)
        return number

    def _span_events(self) -> Iterator[_Event]:
        places: dict[int, int] = {}
        tracks: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # by row: those of its lanes
        busy_until: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for device in sorted({span.device for span in self._run.spans}):
            places[device] = self._new_track(place_name(device), rank=device + 1)
        for index, span in enumerate(self._run.spans):
            row = span.device, span.row
            lane = free_lane(busy_until[row], span.start_ns, span.end_ns)  # slices of one track follow each other
            if lane == len(tracks[row]):
                tracks[row].append(self._new_track(self._run.row_name(*row), places[span.device], span.row))
            track = tracks[row][lane]
            yield span.start_ns, _BEGIN, track, index, 0
            yield span.end_ns, _END if span.end_ns > span.start_ns else _END_AT_ONCE, track, index, 0

    def _counter_events(self) -> Iterator[_Event]:
        for place, changes in sorted(self._run.memory().items()):
            track = self._new_track(f"memory of {place}", unit=_BYTES)
            for time_ns, nbytes in _thinned(changes):
                yield time_ns, _BEGIN, track, -1, nbytes
        yield from self._in_flight()

    def _in_flight(self) -> Iterator[_Event]:
        """Yield how many tasks were submitted and had not ended."""
        changes = []
        last_end = [-1] * len(self._run.tasks)
        for span in self._run.spans:
            if span.task >= 0 and span.category == "task":
                last_end[span.task] = max(last_end[span.task], span.end_ns)
        for index, task in enumerate(self._run.tasks):
            if task.submitted_ns is not None and last_end[index] >= 0:
                changes += [(task.submitted_ns, 1), (last_end[index], -1)]
        if not changes:
            return
        track = self._new_track("tasks in flight", unit=_COUNT)
        changes.sort()
        counts = accumulate(change for _, change in changes)
        for time_ns, count in _thinned([(time, count) for (time, _), count in zip(changes, counts, strict=True)]):
            yield time_ns, _BEGIN, track, -1, count

    # -- slices --------------------------------------------------------------------------------------------------

    def _described(self, index: int) -> bytes:
        """Return what a span was."""
        span = self._run.spans[index]
        found = self._names.get((span.name, span.category), b"")
        if not found:
            found = _NAME + self._intern(_NAMES, span.name) + _CATEGORY + self._intern(_CATEGORIES, span.category)
            self._names[span.name, span.category] = found
        if index in self._flows:
            found += self._flows[index]
        if span.category == "copy":
            return found + self._of_copy(span)
        if span.task < 0:
            return found
        if span.category == "kernel":
            return found + self._text("task", self._run.label(span.task))
        return found + self._of_task(span, self._first_span[span.task] == index)

    def _of_task(self, span: RunSpan, is_first: bool) -> bytes:
        run, task = self._run, self._run.tasks[span.task]
        key = task.name, task.call_site, task.place, task.accesses
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = b"".join(self._like_others(*key))
        found += self._integer("task", task.id)
        if is_first:
            copies = self._copies_of.get(span.task, ())
            moved = sum(run.operations[run.spans[copy].operation].nbytes for copy in copies) if copies else 0
            if moved:
                found += self._integer("bytes moved for it", moved)
            waited_for, ready_ns = run.why_it_waited(self._waiting[span.task])
            found += self._text("waited for", waited_for)
            found += self._integer("ready (ns)", ready_ns - run.origin_ns)
            found += self._integer("started after ready (ns)", span.start_ns - ready_ns)
        return found

    def _like_others(self, name: str, site: str, place: str, accesses: tuple[int, ...]) -> Iterator[bytes]:
        if site:
            yield _SOURCE_LOCATION + self._intern(_LOCATIONS, site)
        yield self._text("function", family(name))
        yield self._text("place", place)
        if accesses:
            yield self._listed("data", map(self._access, accesses))

    def _of_copy(self, span: RunSpan) -> bytes:
        if span.operation < 0:
            return b""
        run, operation = self._run, self._run.operations[span.operation]
        key = operation.data, operation.source, operation.target, operation.nbytes
        found = self._copies_alike.get(key)
        if found is None:
            found = self._text("data", run.describe_data(operation.data)) if operation.data >= 0 else b""
            found += self._text("from", operation.source) + self._text("to", operation.target)
            found += self._integer("bytes", operation.nbytes)
            self._copies_alike[key] = found
        return found + self._text("for", run.label(operation.task)) if operation.task >= 0 else found

    def _access(self, access: int) -> str:
        return f"{MODE_NAMES.get(access & 7, 'rw')} {self._run.describe_data(access >> 3)}"

    def _text(self, name: str, text: str) -> bytes:
        """Return an annotation with a text."""
        found = self._annotations.get((name, text))
        if found is None:
            content = self._named(name) + _TEXT_VALUE + self._intern(_TEXTS, text)
            found = self._annotations[name, text] = _with_length(_ANNOTATION, content)
        return found

    def _integer(self, name: str, value: int) -> bytes:
        before = self._integers.get(name)
        if before is None:
            before = self._integers[name] = self._named(name) + _INT_VALUE
        return _with_length(_ANNOTATION, before + _varint(value))

    def _listed(self, name: str, texts: Iterable[str]) -> bytes:
        values = [_with_length(_VALUES, _TEXT_VALUE + self._intern(_TEXTS, text)) for text in texts]
        return _with_length(_ANNOTATION, self._named(name) + b"".join(values))

    def _named(self, name: str) -> bytes:
        return _ANNOTATION_NAME + self._intern(_ANNOTATION_NAMES, name)

    def _intern(self, kind: bytes, text: str) -> bytes:
        """Return the number of a text; the first packet that uses it brings it."""
        iid = self._interned[kind].get(text)
        if iid is None:
            self._texts += 1
            iid = self._interned[kind][text] = _varint(self._texts)
            if kind == _LOCATIONS:
                file, _, line = text.rpartition(":")
                content = _with_length(_TEXT, _encoded(self._run.files.get(text) or file)) + _LINE + _varint(int(line))
            else:
                content = _with_length(_TEXT, _encoded(text))
            self._new_texts.append(_with_length(kind, _IID + iid + content))
        return iid


def _thinned(changes: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """Return the values of a counter by time; of very many the greatest of each short part, and the last of all."""
    if len(changes) <= _MOST_VALUES:
        return changes
    begin, end = changes[0][0], changes[-1][0]
    step = max((end - begin) // (_MOST_VALUES // 2), 1)
    greatest: dict[int, tuple[int, int]] = {}
    for change in changes:
        part = change[0] // step
        if part not in greatest or change[1] > greatest[part][1]:
            greatest[part] = change
    return [*greatest.values(), changes[-1]]


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")  # a name may have what UTF-8 has not
