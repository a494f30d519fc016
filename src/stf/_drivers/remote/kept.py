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
        self.worker, self.steps, self.is_watched = worker, joined(steps), is_watched
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
                self.call(lane, what, first, inputs, group, around, changes)
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
                (worker.pull if kind == PULL else worker.push)(lane, *what, group)
        for lane, marks in self.lanes.items():
            worker.wait(name, lane, (round + 1) * marks)

    def call(
        self, lane: int, bodies: list[Any], first: int, inputs: tuple[int, ...], group: int, around: Any, changes: Any
    ) -> None:
        """Let a lane run bodies one after the other."""
        worker = self.worker
        if not any(type(content) is bytes or number in changes for number, _, content in bodies):
            calls = [self.read.get(each[0]) or self.read_kept(*each) for each in bodies]
            worker.put_calls(lane, calls, first, inputs, group, self.is_watched, around)
            return
        for number, function, content in bodies:
            changeable = None
            if number in changes:
                function, other, changeable = changes[number]
                content = content if other is None else other
            rest = (function, content, changeable, self.is_watched, around)
            worker.call(lane, first + number, inputs, group, *rest)

    def read_kept(self, number: int, function: int, content: Any) -> tuple[int, int, Any, Any]:
        """Return a body with its arrays, as launches call it that change nothing of it."""
        call = self.read[number] = (number, function, *read_call(*content))
        return call


def joined(steps: list[Any]) -> list[Any]:
    """Return steps in which bodies are one with those before on their lane, if nothing else of the lane is between.

    What other lanes do meanwhile has no part in that: lanes wait for marks.
    """
    found: list[Any] = []
    calls: dict[int, list[Any]] = {}  # that may go on, by lane
    for step in steps:
        kind, lane, *what = step
        if kind != CALL:
            calls.pop(lane, None)
            found.append(step)
        elif lane in calls:
            calls[lane].append(what)
        else:
            calls[lane] = [kind, lane, what]
            found.append(calls[lane])
    return found
