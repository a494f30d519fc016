"""What a worker keeps of recordings, and how it repeats that: see `parcels`."""

from __future__ import annotations

from typing import Any

from stf._drivers.remote.functions import read_call

CALL, COPY, PULL, PUSH, FILL, RECORD, WAIT, AWAIT = range(8)  # of the steps of a part


class KeptPart:
    """The part of a recording that a worker does: its steps, in order, on lanes of its own.

    The memory of a recording stays where it is. So the arrays of its bodies are made once, as those of local devices.
    """

    def __init__(self, worker: Any, lanes: list[tuple[int, int]], steps: list[Any], is_watched: bool) -> None:
        self.worker, self.steps, self.is_watched = worker, steps, is_watched
        self.read: dict[int, Any] = {}  # calls with their arrays, by number of the body
        self.lanes = dict(lanes)  # the marks of each in a launch
        for name in self.lanes:
            worker.make_lane(name)

    def play(
        self,
        name: int,
        origin: int,
        round: int,
        first: int,
        inputs: tuple[int, ...],
        group: int,
        around: Any,
        changes: dict[int, Any],
    ) -> None:
        """Do it after a mark of a stream, which goes on when all is done; `round` launches were before."""
        worker = self.worker
        for lane in self.lanes:
            worker.wait(lane, name, origin)
        for kind, lane, *what in self.steps:
            if kind == CALL:
                number, function, content = what
                if type(content) is tuple and number not in changes:
                    call = self.read.get(number)
                    if call is None:
                        call = self.read[number] = read_call(*content)
                    given = (function, *call, [], self.is_watched, around)
                    worker.put_call(lane, first + number, inputs, group, *given)
                    continue
                changeable = None
                if number in changes:
                    function, other, changeable = changes[number]
                    content = content if other is None else other
                rest = (function, content, changeable, self.is_watched, around)
                worker.call(lane, first + number, inputs, group, *rest)
            elif kind == RECORD:
                worker.record(lane, round * self.lanes[lane] + what[0])
            elif kind == WAIT:
                other, mark, marks = what
                worker.wait(lane, other, round * marks + mark)
            elif kind == AWAIT:
                mark, peer = what
                worker.note_awaited(lane, round * self.lanes[lane] + mark, peer)
            elif kind == COPY:
                worker.copy(lane, *what)
            elif kind == FILL:
                worker.fill(lane, *what)
            else:
                (worker.pull_named if kind == PULL else worker.push_named)(lane, *what, group)
        for lane, marks in self.lanes.items():
            worker.wait(name, lane, (round + 1) * marks)
