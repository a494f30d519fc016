"""Parcels: recordings that workers keep, of which a launch is one command for each worker.

The nodes of a recording are spread over *lanes*, streams that belong to the parcel. A node follows one that it needs,
where that is the last of its lane; else it takes another lane of its worker. Where a node needs one of another lane, it
waits for a mark there. Marks are counted from 1 in each launch. The worker adds those of the launches before::

    mark 3 of a lane with 5 marks, in launch 2 (from 0)  ──▶  2 * 5 + 3 = 13

So the commands stay what they are, and a worker repeats them with other numbers (`kept`). Nobody tells the client of
these marks: the slot of a launch on a worker ends after its lanes, and that is told.

Each body of a launch has a number, in the order of the parcel. The client keeps the numbers of a launch as one *run*,
and makes something of one body only where that fails, or where somebody wants to know when it ran.

When a worker is lost, its part of each run that is on its way fails at its turn (`lose_part`). The others wait for
marks of its lanes, which nobody would reach. So the client tells them of these marks, behind the failure: they skip
what is left.
"""

from __future__ import annotations

import bisect
import functools
import pickle
from typing import Any

from stf._drivers.remote.functions import Sent, pickled_arguments, plain_call
from stf._drivers.remote.kept import AWAIT, CALL, COPY, FILL, PULL, PUSH, RECORD, WAIT
from stf._drivers.remote.links import PARCEL
from stf._drivers.remote.surroundings import carried
from stf._port.remote_arrays import owner_of

LANES = 16  # of a parcel on a worker
CLIENT = 0


class Lane:
    """A stream of a parcel; `last` is the node that was put on it last, `marks` how many it has in a launch."""

    def __init__(self, worker: int, name: int) -> None:
        self.worker, self.name = worker, name
        self.last = -1
        self.marks = 0
        self.waited: dict[int, int] = {}  # the last mark of another lane that it comes after, by name


class Part:
    """What a worker does of a parcel: `steps`, and the bodies among them."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.lanes: list[Lane] = []
        self.steps: list[tuple[Any, ...]] = []
        self.bodies: list[int] = []
        self.functions: set[int] = set()
        self.next_lane = 0

    def complete(self) -> None:
        """Let waits say how many marks a launch has of what they wait for: all are known."""
        for i, step in enumerate(self.steps):
            if step[0] == WAIT:
                other = step[2]
                self.steps[i] = (*step[:2], other.name, step[3], other.marks)


class Parcel:
    """A recording that workers keep.

    Attributes
    ----------
    bodies : list
        Of the recording, by number.
    varying : set of int
        Those whose arguments the caller gives with each launch.
    fresh : dict
        How those travel whose arguments are pickled with each launch, as they can change in place.
    """

    def __init__(self, role: ParcelsOfWorkers, number: int, bodies: list[Any], varying: set[int]) -> None:
        self.role, self.number = role, number
        self.bodies, self.varying = bodies, varying
        self.parts: dict[int, Part] = {}
        self.fresh: dict[int, Any] = {}
        self.functions: dict[int, tuple[Any, int, list[int]]] = {}  # by identity: (function, number, its bodies)
        self.kept: list[Any] = []  # memory of this process that copies use
        self.is_watched = False
        self.rounds = self.running = 0
        self.closed = False

    def close(self) -> None:
        """Let the workers forget it, after its last run."""
        self.closed = True
        if not self.running:
            self.role.drop(self)


class Run:
    """A launch of a parcel: the numbers from `first` on are its bodies'."""

    def __init__(self, parcel: Parcel, launched: Any) -> None:
        self.parcel, self.launched = parcel, launched
        self.places = list(parcel.parts)  # the workers that have a part
        self.changes: dict[int, tuple[Any, ...]] = {}
        self.contents: dict[int, bytes] = {}  # functions that the changes need, by number
        self.around: Any = None
        self.first = self.group = self.round = 0
        self.inputs: tuple[int, ...] = ()
        self.left = len(parcel.parts)
        self.told: set[int] = set()  # bodies that were said to have failed


class ParcelsOfWorkers:
    """The parcels of a remote driver; see `_drivers.roles.Parcels`."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.count = 0
        self.runs: dict[int, Run] = {}  # that are on their way, by their first number
        self.firsts: list[int] = []

    # -- packing -----------------------------------------------------------------------------------------------

    def pack(self, nodes: list[Any], bodies: list[Any], trips: list[Any], varying: set[int]) -> Parcel | None:
        """Return a recording as a parcel; None if this process has to do something of it."""
        if any([steps and place == CLIENT for place, _, steps in nodes]):
            return None
        self.count += 1
        parcel = Parcel(self, self.count, bodies, varying)
        where, needed = self.spread(parcel, nodes)
        marked = {before for each in needed for before in each}
        marks: dict[int, tuple[Lane, int]] = {}
        for number, lane in enumerate(where):
            if lane is None:
                continue
            part = parcel.parts[lane.worker]
            for before in needed[number]:
                self.wait_for(parcel, part, lane, *marks[before])
            for step in nodes[number][2]:
                if not self.put(parcel, part, lane, step, trips):
                    return None
            if number in marked or lane.last == number:
                lane.marks += 1
                part.steps.append((RECORD, lane.name, lane.marks))
                marks[number] = (lane, lane.marks)
        for part in parcel.parts.values():
            part.complete()
        parcel.is_watched = any([body.set_out() for body in bodies])
        return parcel

    def spread(self, parcel: Parcel, nodes: list[Any]) -> tuple[list[Lane | None], list[list[int]]]:
        """Return the lane of each node, None if it only orders, and the nodes on other lanes that it waits for."""
        where: list[Lane | None] = []
        stands_for: list[list[int]] = []  # nodes with work, of which each node is the end
        needed: list[list[int]] = []
        for number, (place, needs, steps) in enumerate(nodes):
            before = list(dict.fromkeys([each for need in needs for each in stands_for[need]]))
            if not steps:
                where.append(None)
                stands_for.append(before)
                needed.append([])
                continue
            part = parcel.parts.get(place)
            if part is None:
                part = parcel.parts[place] = Part(place)
            lane = None
            for each in before:
                known = where[each]
                if lane is None and known is not None and known.worker == place and known.last == each:
                    lane = known
            lane = lane or self.lane_of(part)
            where.append(lane)
            lane.last = number
            needed.append([each for each in before if where[each] is not lane])
            stands_for.append([number])
        return where, needed

    def lane_of(self, part: Part) -> Lane:
        """Return the next lane of a worker."""
        if len(part.lanes) < LANES:
            part.lanes.append(Lane(part.worker, next(self.driver.name_numbers)))
            return part.lanes[-1]
        part.next_lane = (part.next_lane + 1) % LANES
        return part.lanes[part.next_lane]

    def wait_for(self, parcel: Parcel, part: Part, lane: Lane, other: Lane, mark: int) -> None:
        """Let a lane wait for a mark of another one."""
        if lane.waited.get(other.name, 0) >= mark:
            return
        lane.waited[other.name] = mark
        if other.worker != lane.worker:
            parcel.parts[other.worker].steps.append((AWAIT, other.name, mark, lane.worker))
        part.steps.append((WAIT, lane.name, other, mark))

    def put(self, parcel: Parcel, part: Part, lane: Lane, step: tuple[Any, ...], trips: list[Any]) -> bool:
        """Put a step of a node on a lane; False if this process has to do it."""
        kind, *what = step
        if kind == "call":
            return self.put_call(parcel, part, lane, what[0], *trips[what[0]])
        *target, owner = what[0]
        if kind == "fill":
            part.steps.append((FILL, lane.name, tuple(target), what[1]))
            return True
        *source, other = what[1]
        parcel.kept += [owner, other]
        into, out = tuple(target), tuple(source)
        to, of = owner_of(into[0]), owner_of(out[0])
        if to == of == lane.worker:
            part.steps.append((COPY, lane.name, into, out))
        elif to == lane.worker:
            part.steps.append((PULL, lane.name, into, of, out))
        elif of == lane.worker:
            part.steps.append((PUSH, lane.name, out, to, into))
        else:
            return False
        return True

    def put_call(self, parcel: Parcel, part: Part, lane: Lane, number: int, fn: Any, run: Any, rest: Any) -> bool:
        """Put a body on a lane."""
        sent = self.driver.functions.sent(fn)
        content: Any = None
        if number not in parcel.varying:
            content = plain_call(run, rest)
            if content is None:
                content, watched = pickled_arguments(run, rest, fn, None, sent.places)
                if watched is not None:
                    parcel.fresh[number] = (fn, run, rest)
                    content = None
        parcel.functions.setdefault(id(fn), (fn, sent.number, []))[2].append(number)
        part.functions.add(sent.number)
        part.bodies.append(number)
        part.steps.append((CALL, lane.name, number, sent.number, content))
        return True

    # -- launches ----------------------------------------------------------------------------------------------

    def is_whole(self, parcel: Parcel) -> bool:
        """Return whether all workers that have a part are there."""
        return self.driver.lost_among(*parcel.parts) is None

    def prepare(self, parcel: Parcel, launched: Any, changed: dict[int, Any]) -> Run | None:
        """Return a run of a parcel; None if it is to be played this time."""
        variables = launched.surroundings()
        around = None if variables is None else carried(variables)
        if around is not None and around[1] is not None:
            return None  # NumPy calls a function of the script for an error
        run = Run(parcel, launched)
        run.around = around
        for number, (fn, there, rest) in {**parcel.fresh, **changed}.items():
            sent = self.driver.functions.sent(fn)
            content = plain_call(there, rest)
            arguments = pickled_arguments(there, rest, fn, None, sent.places) if content is None else (content, None)
            self.change(run, number, sent, arguments)
        for fn, known, numbers in parcel.functions.values():
            sent = self.driver.functions.sent(fn)
            run.contents[sent.number] = sent.content
            if sent.number != known:
                for number in numbers:
                    if number not in run.changes:
                        self.change(run, number, sent, (None, None))
        return run

    def change(self, run: Run, number: int, sent: Sent, arguments: tuple[Any, ...]) -> None:
        """Let a body of a run be another function, or have other arguments."""
        run.contents[sent.number] = sent.content
        run.changes[number] = (sent.number, *arguments)

    def begin(self, run: Run) -> None:
        """Give a run its numbers, and those of what its bodies need."""
        driver, parcel, launched = self.driver, run.parcel, run.launched
        launch = launched.group()
        with driver.lock:
            first = driver.next_block
            driver.next_block += len(parcel.bodies)
        run.group = driver.number_of(launch)
        driver.launch_copies.setdefault(run.group, launched.copies())
        driver.host_outcomes.setdefault(run.group, launch)
        run.inputs = (*driver.inputs_of(launched), run.group)
        run.round, parcel.rounds = parcel.rounds, parcel.rounds + 1
        with driver.lock:
            run.first = first
            parcel.running += 1
            self.runs[first] = run
            bisect.insort(self.firsts, first)
        launched.set_out()

    def play(self, stream: int, remote: Any, run: Run) -> None:
        """Let a worker do its part of a run."""
        link, parcel = remote.link, run.parcel
        part = parcel.parts[link.worker]
        with link.lock:
            if not run.first:
                self.begin(run)
            if link.lost is not None:
                self.driver.inner.call(stream, functools.partial(lose_part, self, run, part, link.lost))
                return
            remote.pending.append((PARCEL, run, part))
            changes = {number: run.changes[number] for number in part.bodies if number in run.changes}
            needed = part.functions if not changes else {*part.functions, *[each[0] for each in changes.values()]}
            for number in needed - link.functions:
                if number in run.contents:
                    link.functions.add(number)
                    self.driver.command(link, "keep_function", number, run.contents[number])
            if parcel.number not in link.parcels:
                link.parcels.add(parcel.number)
                lanes = [(lane.name, lane.marks) for lane in part.lanes]
                self.driver.command(link, "parcel", parcel.number, lanes, part.steps, parcel.is_watched)
            start = ("record", remote.name, remote.last)
            if link.outbox and link.outbox[-1] == start:
                link.outbox[-1] = ("mark", *start[1:])
            rest = (run.round, run.first, run.inputs, run.group, run.around, changes)
            self.driver.command(link, "play", remote.name, remote.last, parcel.number, *rest)

    def went_well(self, run: Run) -> None:
        """End a part of a run."""
        with self.driver.lock:
            run.left -= 1
            if run.left:
                return
            del self.runs[run.first]
            self.firsts.remove(run.first)
            run.parcel.running -= 1
        run.launched.went_well(len(run.parcel.bodies) - len(run.told))
        if run.parcel.closed and not run.parcel.running:
            self.drop(run.parcel)

    def trip(self, number: int, has_failed: bool = False) -> Any:
        """Return what is told of a body, that it has failed or was skipped, or when it ran; None if it is none."""
        with self.driver.lock:
            position = bisect.bisect_right(self.firsts, number) - 1
            run = self.runs.get(self.firsts[position]) if position >= 0 else None
        if run is None or number >= run.first + len(run.parcel.bodies):
            return None
        if has_failed:
            run.told.add(number)
        return run.launched.trip(number - run.first)

    def drop(self, parcel: Parcel) -> None:
        """Let the workers forget a parcel."""
        names = [lane.name for part in parcel.parts.values() for lane in part.lanes]
        for worker in parcel.parts:
            link = self.driver.links[worker - 1]
            with link.lock:
                link.parcels.discard(parcel.number)
                if link.lost is None:
                    self.driver.command(link, "unpack", parcel.number, names)


def lose_part(role: ParcelsOfWorkers, run: Run, part: Part, error: BaseException) -> None:
    """Fail the part of a run that a lost worker was to do, now that its turn has come, and let others go on."""
    driver = role.driver
    with driver.client.receiving:
        failure = run.launched.group().failed()
        cause = driver.number_of_failure(failure) if failure is not None else 0
        for number in [run.first + each for each in part.bodies] or [run.group]:
            if number in driver.client.failed:
                cause = cause or driver.client.failed[number]
                continue
            content = None if cause else pickle.dumps((error, []))
            cause = cause or number
            driver.client.learn(number, cause, content)
        driver.client.learn(run.group, cause, None)
    for worker in run.parcel.parts:
        if worker != part.worker and driver.links[worker - 1].lost is None:
            for lane in part.lanes:
                driver.client.post(worker, "reached", lane.name, (run.round + 1) * lane.marks)
    role.went_well(run)
