"""Graphs of the driver's: what a recording or a routine does, captured while it is played, and launched as one then."""

from __future__ import annotations

import functools

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]

from stf._engine import host_waits
from stf._port.events import EventSet
from stf._port.late_values import UNKNOWN, are_fixed, is_as_before
from stf._support.log_once import log_once
from stf.errors import CaptureError, TaskFailedError, TaskStateError

if not cython.compiled:
    COMPUTE = 0

OTHERS = 4  # graphs that are kept of launches with other data
LOOK_S = 0.1  # how often who waits for room looks whether its device is lost
NO_GRAPHS = "its device has no graphs"


class EmptyBody(Exception):
    """A body puts nothing on its stream for the values of a launch, which a node of a graph cannot be."""


class NothingToDo(CaptureError):
    """What is recorded only orders tasks."""


@cython.final
@cython.cclass
class DriverGraph:
    """The driver's graphs of one recording or routine, made when it pays; `refusal` says why there are none.

    What cannot be one graph is played, which does the same.
    """

    def __init__(self, runs_before):
        self.runs_left = runs_before
        self.own = self.refusal = self.exported = None
        self.others = {}
        self.moves = True
        self.is_reported = False

    @property
    def graph(self):
        """The graph for the data that were recorded; None if there is none yet."""
        return None if self.own is None else self.own.graph

    def is_captured(self):
        """Whether there are graphs, which may be running."""
        return self.own is not None or self.exported is not None or len(self.others) > 0

    def launch(self, launch, thing, slot):
        """Launch `thing` as one graph behind what is on a slot; return the slot, or -1 if it is to be played.

        `thing` has a `description`, ``refusal(place, memory, looped, unread)``, ``flags()`` and ``put(launch, slot)``.
        """
        root, where = launch.engine.root, launch.task.where
        if self.refusal is not None or not launch.engine.place(where).enqueues or not root.takes_graph(slot, where):
            return -1
        if self.own is None and launch.rebinding is None and self.runs_left:
            self.runs_left -= 1
            return -1
        launch.slot = slot
        while self.refusal is None:
            try:
                variant = self.own
                if variant is None or launch.rebinding is not None or not variant.is_ready:
                    variant = self.made_for(launch, thing)
                bound: Bound = variant.bound
                move: Move = None
                if launch.rebinding is not None:
                    if bound is None:
                        continue  # another thread has it work on other data just now
                    move = variant.move_for(launch, bound)
                later: cython.bint = root.defers(slot, variant.graph)
                if later and move is not None:
                    self.forget(move.before, variant)  # it is about to be launched with the data that it has
                    continue
                if later and variant.takes_graphs():  # CUDA may refuse them, which would be told too late
                    host_waits.enter(root, launch.task, slot, launch.engine.pending() != 0)
                    if root.defers(slot, variant.graph):
                        return -1
                    later = False
                contents = None
                if move is not None:
                    contents = contents_for(launch.values, move.makes)
                elif variant.marks is not None and (later or not is_as_before(launch.values, variant.values)):
                    contents = contents_for(launch.values, [cython.cast(Mark, mark).make for mark in variant.marks])
            except (TaskFailedError, TaskStateError, EmptyBody):  # of a user's body: played, it says so again
                return -1
            except NothingToDo as error:
                self.refusal = str(error)
                return -1
            except Exception as error:  # whatever libraries and drivers say; what is played tells what is really wrong
                self.refuse(launch, thing, str(error) or type(error).__name__)
                return -1
            has_room: cython.bint = False
            try:
                if variant.calls is not None and not later:
                    has_room = await_room(launch.engine, variant.calls.room)
                if submit(launch, variant, contents, later, bound, move):
                    has_room = False
                    if move is not None:
                        self.forget(move.before, variant)
                        self.others[move.after.key] = variant
                    return slot
            except CaptureError as error:
                if move is None:
                    self.refuse(launch, thing, str(error))
                else:  # the device's library wants it captured anew
                    self.moves = False
                    self.forget(move.before, variant)
            finally:
                if has_room:
                    variant.calls.room.release()
        return -1

    def forget(self, bound: Bound, variant):
        """Do not find a graph any more by the data that it worked on."""
        if self.others.get(bound.key) is variant:
            del self.others[bound.key]
        return 0

    def made_for(self, launch, thing):
        """The graph for the data of a launch, ready to be launched."""
        if launch.rebinding is None:
            if self.own is None:
                self.make(launch, thing)
            variant = self.own
        else:
            variant = self.made_for_other_data(launch, thing)
        if not variant.is_ready:
            launch.engine.root.prepare(variant.graph)
            variant.is_ready = True
        return variant

    def make(self, launch, thing):
        """Capture what it does, with the parameters as they are by default."""
        made = self.captured(launch, thing)
        if self.own is None:  # else another thread did so meanwhile
            self.own = made

    def export(self, launch, thing):
        """A graph that others may launch: its bodies on the host belong to no launch of ours, and may use no CUDA.

        CaptureError if there can be none.
        """
        if thing.has_calls():
            if self.exported is None:
                made = self.captured(launch, thing, True)
                self.exported = made if self.exported is None else self.exported
            return self.exported.graph
        if self.own is None:
            if self.refusal is not None:
                raise CaptureError(self.refusal)
            self.make(launch, thing)
        return self.own.graph

    def made_for_other_data(self, launch, thing):
        """A graph for a launch with other data than those that were recorded; the last ones are kept.

        Once there are some, it is the one that was not launched for the longest time, which `Variant.move_for` has
        work on these data, if its nodes can be changed one by one.
        """
        key = launch.rebinding.key()
        known: Variant = self.others.get(key)
        if known is not None:
            bound: Bound = known.bound
            if bound is None or bound.key != key:
                known = None  # another thread has it work on other data meanwhile
        if known is None and len(self.others) >= OTHERS and self.moves:
            oldest: Variant = next(iter(self.others.values()))
            if oldest.can_move(launch):
                return oldest
        if known is None:
            known = self.captured(launch, thing)
        known = self.others[key] = self.others.pop(key, known)  # it may be another thread's
        if len(self.others) > OTHERS:
            self.others.pop(next(iter(self.others)))  # launches keep what they are of
        return known

    def captured(self, launch, thing, hosts=False):
        """A new graph, or with `hosts` one that others launch. CaptureError if there can be none."""
        engine, where = launch.engine, launch.task.where
        reason = thing.refusal(where, engine.place(where).memory, False, frozenset(thing.flags()), hosts)
        if not engine.place(where).enqueues:
            reason = NO_GRAPHS
        if reason is not None:
            raise CaptureError(reason)
        graph, marks, calls, moving = launch.capture(thing, hosts)
        if graph is None:
            raise NothingToDo("there is nothing to do")
        graph.complete(bool(marks) or bool(moving))
        made = Variant(graph, marks, calls)
        if launch.rebinding is not None:
            made.bound, made.moving = bound_for(launch), moving
        return made

    def refuse(self, launch, thing, reason):
        """Play it from now on, and say so once, unless it was said of a part of it, because of which this is so.

        Graphs that there are may be running, or have been shown.
        """
        self.refusal, self.is_reported = reason, True
        if was_reported(thing.parts):
            return 0
        text = "is not one graph of the device's, but driven from the host: %s"
        log_once(thing.description, launch.task.call_site, text, reason)
        return 0


def was_reported(parts):
    """Whether it was said of one of these, or of what they consist of, why it is played."""
    for part in parts:
        graph: DriverGraph = part.graph
        if (graph is not None and graph.is_reported) or was_reported(part.parts):
            return True
    return False


@cython.final
@cython.cclass
class Variant:
    """A driver's graph for certain data: its nodes that depend on parameters, if any, and the last launch's values.

    `calls` are its bodies on the host; None if it has none. For other data than those that were recorded, `bound` says
    which; it is another object after each change, and None during one, or where that failed. `moving` are the nodes
    that others would change, by the identity of a recorded replica; None where one cannot be changed by itself.
    """

    def __init__(self, graph, marks, calls):
        self.graph = graph
        self.marks = marks or None
        self.calls = calls
        self.values = UNKNOWN
        self.is_ready = False
        self.bound = self.moving = None

    def changed_for(self, before: Bound, after: Bound):
        """The nodes that work on other memory for other data, a list for each replica; None where one cannot change."""
        anew: cython.bint = before.objects != after.objects
        return [
            marks
            for number, marks in self.moving.items()
            if anew or before.addresses.get(number) != after.addresses.get(number)
        ]

    def can_move(self, launch):
        """Whether its nodes can be changed for the data of a launch."""
        bound: Bound = self.bound
        if bound is None or self.moving is None:
            return False
        return None not in self.changed_for(bound, bound_for(launch))

    def move_for(self, launch, before: Bound):
        """What is to change for the data of a launch if it works on those `before`; None if these are the same."""
        if launch.rebinding.key() == before.key:
            return None
        move = Move(before, bound_for(launch))
        changed = self.changed_for(before, move.after)
        several: cython.bint = len(changed) > 1 or self.marks is not None  # of which a node may be in more than one
        moved = set()
        for marks in changed:
            for mark in marks:
                if several:
                    if id(mark) in moved:
                        continue
                    moved.add(id(mark))
                move.add(mark, cython.cast(Mark, mark).made_for(launch))
        for mark in self.marks or ():
            if id(mark) not in moved:
                move.add(mark, cython.cast(Mark, mark).make)
        return move

    def takes_graphs(self):
        """Whether some of those nodes are graphs: bodies that were captured."""
        return self.marks is not None and any([cython.cast(Mark, mark).shape is None for mark in self.marks])


@cython.cclass
class Mark:
    """A node of a driver's graph that depends on parameters or data, and what it is since the last launch.

    That is the bytes of a kernel's arguments, whose launch has a `shape`; how far a copy or a fill was moved, whose
    shape is empty; or another graph. `make` makes it of the values of a launch, or is it if they are bytes that no
    parameter changes; ``remake(launch)`` is that for other data.
    """

    def __init__(self, node, make, content, shape, remake):
        self.node = node
        self.make = make
        self.content = content
        self.shape = shape
        self.remake = remake

    def made_for(self, launch: Launch):
        """What `make` is for the data of a launch."""
        if isinstance(self.remake, Repack):
            return cython.cast(Repack, self.remake).made_for(launch)
        return self.remake(launch)


@cython.final
@cython.cclass
class Bound:
    """The data that a graph works on: a key that says which, objects of users', and where the replicas are."""

    def __init__(self, key, objects, addresses):
        self.key = key
        self.objects = objects
        self.addresses = addresses


def bound_for(launch):
    """The data of a launch."""
    rebinding = launch.rebinding
    return Bound(rebinding.key(), rebinding.objects, rebinding.addresses_by_replica())


@cython.final
@cython.cclass
class Move:
    """A change of a graph from some data to others: the nodes that it changes, and what makes them then."""

    def __init__(self, before, after):
        self.before = before
        self.after = after
        self.marks = []
        self.makes = []

    def add(self, mark, make):
        """Change one more node."""
        self.marks.append(mark)
        self.makes.append(make)
        return 0


@cython.cclass
class Arguments:
    """Arguments of a recorded launch, some of which are parameters."""

    def packed(self, values, recorded):
        """The bytes of all arguments for the values of a launch; the others are as they were recorded."""
        raise NotImplementedError


@cython.final
@cython.cclass
class Variation:
    """The arguments of a recorded kernel, some of which are parameters, for the data of one launch."""

    def __init__(self, recorded, arguments):
        self.recorded = recorded
        self.arguments = arguments

    def __call__(self, values):
        return self.arguments.packed(values, self.recorded)


@cython.final
@cython.cclass
class Repack:
    """Makes the arguments of a recorded launch of a kernel for the data of another launch."""

    def __init__(self, program, position, arguments):
        self.program = program
        self.position = position
        self.arguments = arguments

    def replicas(self):
        """Those whose addresses are among the arguments."""
        return [replica for _, replica in self.program.launch_at(self.position)[2]]

    def made_for(self, launch: Launch):
        """Their bytes, or what makes these of the values of a launch."""
        content: bytes = launch.rebound_block(self.program, self.position)
        return content if self.arguments is None else Variation(content, self.arguments)

    def __call__(self, launch: Launch):
        return self.made_for(launch)


class Recapture:
    """Makes what a body is captured as for the data of another launch."""

    def __init__(self, again, first):
        self.again = again
        self.first = first

    def __call__(self, launch: Launch):
        return functools.partial(self.again, self.first, rebinding=launch.rebinding)


class Shift:
    """Makes how far a copy or a fill is moved for the data of another launch."""

    def __init__(self, target, source, to, source_address):
        self.target = target
        self.source = source
        self.to = to
        self.source_address = source_address

    def __call__(self, launch: Launch):
        target = launch.now(self.target)
        source = None if self.source is None else launch.now(self.source)
        if source is not None and (source.home or target.home):  # as in a copy: CUDA wants memory that it knows
            launch.engine.root.pin(source)
            launch.engine.root.pin(target)
        shift = (target.address - self.to, 0 if source is None else source.address - self.source_address)
        return lambda values: shift


def contents_for(values, makes: list):
    """What nodes of a graph are for some values, by what makes them; bodies are captured for that."""
    contents = []
    for make in makes:
        if isinstance(make, bytes):
            content = make
        elif isinstance(make, Variation):
            kernel = cython.cast(Variation, make)
            content = kernel.arguments.packed(values, kernel.recorded)
        else:
            content = make(values)
        if content is None:
            raise EmptyBody
        contents.append(content)
    return contents


def submit(launch, variant, contents, later, bound: Bound, move: Move):
    """Put a graph on the slot of a launch, with its nodes as the values have them; False if they changed meanwhile.

    What the nodes are and the launch are one to other threads. `later`, the driver does both when the slot gets there.
    """
    engine = launch.engine
    engine.gate.enter()
    try:
        if variant.bound is not bound:
            return False
        if not later:
            if engine.root.defers(launch.slot, variant.graph):
                return False
            if move is not None:
                renew_moved(launch, variant, move, contents)
            elif contents is not None:
                renew(launch, variant, variant.marks, contents)
            elif variant.marks is not None and not is_as_before(launch.values, variant.values):
                return False
        if variant.calls is not None:
            variant.calls.expect(launch, not later)
        try:
            if later:
                put_later(launch, variant, contents)
            else:
                engine.root.play_captured(launch.slot, variant.graph)
        except BaseException:
            if variant.calls is not None:
                variant.calls.take_back(launch)
            raise
        if launch.rebinding is not None:  # others may take its place before it is done
            engine.root.keep_alive(launch.slot, variant)
    finally:
        engine.gate.leave()
    return True


def put_later(launch, variant, contents):
    """Let the driver renew all nodes of a graph that depend on parameters, and launch it, when a slot gets there."""
    i: cython.Py_ssize_t
    changes = None
    if contents is not None:
        changes = []
        variant.values = UNKNOWN
        for i in range(len(contents)):
            mark = cython.cast(Mark, variant.marks[i])
            mark.content = None  # as of who knows which launch
            changes.append((mark.node, mark.shape, contents[i]))
    launch.engine.root.queue_captured(launch.slot, variant.graph, changes)
    return 0


def renew_moved(launch, variant, move: Move, contents):
    """Let the nodes of a graph work on the data of a launch."""
    i: cython.Py_ssize_t
    variant.bound = None  # where this fails, nobody may use it any more
    renew(launch, variant, move.marks, contents)
    for i in range(len(contents)):
        cython.cast(Mark, move.marks[i]).make = move.makes[i]
    variant.bound = move.after
    return 0


def renew(launch, variant, marks: list, contents):
    """Let the nodes of a graph that depend on parameters be as the values of a launch have them."""
    i: cython.Py_ssize_t
    changes = []
    for i in range(len(contents)):
        mark = cython.cast(Mark, marks[i])
        content = contents[i]
        if content is not mark.content and content != mark.content:
            changes.append((mark.node, mark.shape, content, mark))
    if changes:
        variant.values = UNKNOWN
        root = launch.engine.root
        try:
            root.renew(variant.graph, changes)
        except Exception as error:
            raise CaptureError(str(error) or type(error).__name__) from error
        for change in changes:
            mark = cython.cast(Mark, cython.cast(tuple, change)[3])
            if mark.shape is None:  # a body: launches before this one use what the last one allocated
                root.keep_alive(launch.slot, mark.content)
            mark.content = cython.cast(tuple, change)[2]
    variant.values = launch.values if are_fixed(launch.values) else UNKNOWN
    return 0


def await_room(engine: Engine, room):
    """Wait until fewer launches of a graph are on their way; True.

    A device that is lost calls no bodies, which would make room. So it is asked now and then; who learns of a loss
    gives up those launches.
    """
    while not room.acquire(True, LOOK_S):
        tails = EventSet()
        engine.gate.enter()
        try:
            engine.root.tails(tails)
            engine.all_done(tails)
        finally:
            engine.gate.leave()
    return True


def outlive(engine: Engine, what):
    """Keep what was captured, and its memory, until all launches are done; for who is inside of the engine."""
    if engine.closed is not None:
        return
    last = EventSet()
    engine.root.tails(last)
    slot = engine.root.begin(1, last, COMPUTE)
    try:
        engine.root.keep_alive(slot, what)
    finally:
        engine.root.end(slot)
