"""Playing: the work of a launch, node by node on a port.

One walk through a program serves three ends, and nothing but the port and two fields of the frame tell them apart:

================  ==========================  ====================================================================
the work goes to   frame                       bodies on the host
================  ==========================  ====================================================================
streams            no `variant`                are queued, as `Call`s of this launch
a graph of ours    `variant`, with its calls   are nodes; `GraphCalls` knows which launch each call belongs to
others' graphs     a port that is `captured`   are nodes that belong to no launch
================  ==========================  ====================================================================

What is the same in all of a launch is a `Launch`. A `Frame` is where it is: a port, the slot that is open there, and
the values of the graph that is played. What is nested gets a frame of its own (`inside`), and so does what a condition
of a device decides about, on another port (`play_on`). So nothing is restored when these return, or raise. Only the
open slot goes back to the frame around: whoever aborts a node must end the slot that is open then. With one object for
all, fields were saved and restored around seven calls.

The engine's gate is held while operations are put on a node. It is left for what may wait, or runs code of users:
nested routines, and bodies that are captured anew.
"""

from __future__ import annotations

import cython

from stf._engine import host_waits
from stf._engine.failures import Failure
from stf._recording.graph_calls import Call, GraphCall, Last, LaunchCopy
from stf.errors import CaptureError, TaskFailedError

TOGETHER: cython.int = 64  # the most nodes of a graph that are put on one slot: other threads wait meanwhile


@cython.freelist(8)
@cython.final
@cython.cclass
class Frame:
    """Where a launch is: on a port, in a slot, with the values of the graph that is played."""

    def inside(self):
        """Return a frame for what is nested in this one."""
        frame: Frame = Frame.__new__(Frame)
        frame.engine, frame.task, frame.launch, frame.port = self.engine, self.task, self.launch, self.port
        frame.slot, frame.values, frame.binding = self.slot, self.values, self.binding
        frame.unread, frame.variant = self.unread, self.variant
        return frame

    def play(self, program):
        """Do what a program says after what is on the slot, and open a slot after it; return its nodes' events."""
        engine = self.engine
        engine.gate.enter()
        try:
            start: cython.longlong = self.port.end(self.slot)
        finally:
            engine.gate.leave()
        events = Numbers()
        needs = EventSet()
        node: cython.longlong = 0
        try:
            while node < program.count:
                node = self.play_from(program, node, start, events, needs)
        finally:
            ends = EventSet()
            ends.add(start)
            for node in range(events.count):
                if program.is_last(node) or events.count < program.count:
                    ends.add(events.items[node])
            self.open(ends)
        return events

    def carry(self, run):
        """Let other processes do what they keep, each its part, after what is on the slot; open a slot after it."""
        port = self.port
        needs, ends = EventSet(), EventSet()
        self.engine.gate.enter()
        try:
            needs.add(port.end(self.slot))
            ends.add(needs.items[0])
            for place in run.places:
                self.slot = port.begin(place, needs, COMPUTE)
                try:
                    port.play_parcel(self.slot, run)
                finally:
                    ends.add(port.end(self.slot))
        finally:
            self.engine.gate.leave()
            self.open(ends)
        return 0

    def open(self, events):
        """Open a slot after events; on the port of the task it is the task's."""
        engine = self.engine
        with engine.gate:
            self.slot = self.port.begin(self.task.where, events, COMPUTE)
            if self.port is engine.root:
                self.task.slot = self.slot
        return 0

    def play_from(self, program, node, start, events, needs):
        """Put a node on a slot of its own, and add its event; return the next node. `needs` is room for what it needs.

        In a graph of ours the nodes behind it that continue it are put on the same slot.
        """
        i: cython.longlong
        _: cython.longlong
        slot: cython.int
        engine, port = self.engine, self.port
        first: cython.longlong = program.first_need.items[node]
        last: cython.longlong = program.first_need.items[node + 1]
        needs.clear()
        if first == last:
            needs.add(start)
        for i in range(first, last):
            needs.add(events.items[program.needs.items[i]])
        first, last = program.first_work.items[node], program.first_work.items[node + 1]
        place: cython.int = program.kinds.items[node] >> 2
        following: cython.longlong = node + 1
        if first == last:  # what only orders is nobody's work
            if needs.count == 1:
                events.add(needs.items[0])
                return following
            place = self.task.where
        engine.gate.enter()
        try:
            if port.captured and program.continues_alone(node):
                port.rewrites, port.rewritten = 1, needs.items[0]  # whose event nobody else will ask for
            slot = self.slot = port.begin(place, needs, program.kinds.items[node] & 3)
            try:
                self.put_work(program, node)
                if self.variant is not None:
                    while self.slot == slot and following < node + TOGETHER and program.continues_at_once(following):
                        self.put_work(program, following)
                        following += 1
                    self.put_gathered()
            except BaseException:
                self.gathered = None
                events.add(port.abort(self.slot))
                raise
            port.writes = port.captured and program.followed.items[following - 1] == 1  # its event may not be needed
            event: cython.longlong = port.end(self.slot)
        finally:
            engine.gate.leave()
        for _ in range(node, following):
            events.add(event)
        return following

    def put_work(self, program, node):
        """Put the operations of a node on the open slot; in a graph of ours, bodies that stay as they are later."""
        i: cython.longlong
        for i in range(program.first_work.items[node], program.first_work.items[node + 1]):
            kind: cython.longlong = program.work.items[i] & 7
            if kind == CAPTURED and self.variant is not None and self.gather(program.operation(i)):
                continue
            if self.gathered is not None:
                self.put_gathered()
            if kind == LAUNCH:
                self.put_launch(program, program.work.items[i] >> 3, None)
            else:
                self.put(program, program.operation(i))
        return 0

    def gather(self, operation):
        """Keep a body that was captured for `put_gathered`; False if it may be captured anew, or is nothing."""
        captured, again = operation[1], operation[2]
        if captured is None:
            return False
        if again is not None:
            if again.varies or self.launch.rebinding is not None:
                return False
            if self.variant.by_replica is not None and again.replicas():
                return False
        if self.gathered is None:
            self.gathered = []
        self.gathered.append(captured)
        return True

    def put_gathered(self):
        """Put on the open slot, one after the other, the bodies that were gathered for it."""
        gathered, self.gathered = self.gathered, None
        if gathered is not None:
            self.port.captures.play_all(self.slot, gathered)
        return 0

    def put(self, program, operation):
        """Put one operation on the open slot."""
        kind: cython.int = operation[0]
        if kind in (COPY, FILL):
            self.put_memory(operation)
        elif kind == CALL:
            self.put_body(operation[1], program.runs_once)
        elif kind == RUN:
            self.run_nested(operation)
        elif kind == CAPTURED:
            self.put_captured(operation)
        elif kind == VARIED:
            self.put_launch(program, operation[1], operation[2])
        return 0

    def run_nested(self, operation):
        """Do what is nested, outside of the gate, since it may have to wait; a graph has values of its own."""
        engine = self.engine
        routine, given = operation[1], operation[2]
        frame = self.inside()
        if given is not None:
            frame.binding = Binding(given, self.binding)
            frame.values = bound(given, self.values)
        if operation[3] is not None:
            frame.launch = make_launch(engine, self.task, self.launch.variables)
            frame.launch.outcome, frame.launch.inputs = operation[3], operation[4]
        engine.gate.leave()
        try:
            if operation[3] is not None:
                frame.run_own(routine)
            elif self.variant is None:
                routine.run(frame)
            else:
                routine.put(frame)
        finally:
            self.slot = frame.slot
            engine.gate.reenter()
        return 0

    def run_own(self, routine):
        """Do what has an outcome of its own, in a program that is launched once, and let it tell how it went."""
        try:
            if self.variant is None:
                routine.run(self)
            else:
                routine.put(self)
            self.finish_calls()
        except BaseException as error:
            if self.variant is None:  # else it is played, which says so
                outcome = self.launch.outcome
                outcome.failure = Failure.of(self.task, error, True)
                outcome.pending = False
            raise
        return 0

    def put_body(self, body, runs_once):
        """Let a body on the host be called; in a program that `runs_once` it says itself how it went."""
        port = self.port
        if self.variant is not None and self.variant.calls is not None:
            return self.put_call(body, runs_once)
        if port.captured:
            if isinstance(body, QueuedBody):
                body = cython.cast(QueuedBody, body).again(self.values, self.launch.rebinding)
                cython.cast(QueuedBody, body).graph = None if self.variant is None else self.variant.life
            return port.call(self.slot, body)
        if not runs_once:
            body = Call(self.launch, body, self.values)
        port.call(self.slot, body)
        self.engine.queued += isinstance(body, (Call, QueuedBody))
        self.launch.called = True
        return 0

    def put_call(self, body, tells):
        """Let the graph that is captured call a body, which `tells` itself how it went, or does not."""
        variant = self.variant
        targets: list = []
        if isinstance(body, QueuedBody):
            found = cython.cast(QueuedBody, body).targets
            recorded: list = found if isinstance(found, list) else [] if found is None else [found]
            targets = [self.launch.now(replica) for replica in recorded]
            if variant.by_replica is not None:
                variant.note_replicas(None, self.port, recorded)  # of which the graph knows where they are
        own = None if self.launch is variant.launch else self.launch
        call = GraphCall(variant.calls, body, self.binding, own, tells)
        self.port.captures.call(self.slot, call, targets)
        variant.calls.all.append(call)
        return 0

    def put_captured(self, operation):
        """Put a body that was captured on the open slot, perhaps captured anew, for which the gate is left."""
        engine, variant, rebinding = self.engine, self.variant, self.launch.rebinding
        captured = first = operation[1]
        again = operation[2]
        varies: cython.bint = again is not None and again.varies
        if varies or (again is not None and rebinding is not None):
            engine.gate.leave()
            try:
                captured = again(first, self.values, rebinding)
            except TaskFailedError as error:
                if variant is not None or not again.can_play(error.__cause__):
                    raise
                again.play(self)  # for these values, its library does not capture it
                return 0
            finally:
                engine.gate.reenter()
        if captured is None:
            if variant is not None:
                raise CaptureError("a body puts nothing on its stream for some values of its parameters")
            return 0
        replicas: list = []
        changes: cython.bint = False
        if variant is not None and again is not None:
            if variant.by_replica is not None:
                replicas = again.replicas()
            changes = variant.takes(varies, replicas)
        self.port.captures.play(self.slot, captured, not changes)
        if captured is not first:
            self.port.keep_alive(self.slot, captured)  # which the next values may replace
        if changes:
            self.note(BodyPatch(again, first), captured, varies, replicas)
        return 0

    def put_memory(self, operation):
        """Copy, or fill, and remember the nodes that do, or that they cannot be changed."""
        port, launch, variant = self.port, self.launch, self.variant
        target: Replica = operation[1]
        source: Replica = operation[2] if operation[0] == COPY else None
        if source is not None and self.unread and target.data in self.unread:
            return 0
        moves: cython.bint = variant is not None and variant.by_replica is not None
        count = port.captures.graphs.node_count(port.stream(self.slot)) if moves else 0
        if source is None:
            port.fill(self.slot, launch.now(target), operation[2])
        else:
            places = self.engine.places
            remote: cython.bint = places[target.place].is_remote or places[source.place].is_remote
            trip = LaunchCopy(launch) if remote else None
            port.copy(self.slot, launch.now(target), launch.now(source), trip, operation[3])
        if moves:
            replicas = [target] if source is None else [target, source]
            nodes = port.captures.graphs.memory_nodes_since(port.stream(self.slot), count)
            if nodes is None:
                return variant.note_replicas(None, port, replicas)
            for node in nodes:
                variant.note_replicas(MemoryPatch(launch, target, source, node), port, replicas)
        return 0

    def put_launch(self, program, position, arguments):
        """Launch a kernel with its recorded arguments, those `arguments` that are parameters, and the launch's data.

        Uncompiled, there are no kernels.
        """
        if cython.compiled:
            words = program.launches.items + position
            block = cython.cast("char*", words + HEADER)
            content: bytes = None
            recorded: bytes = None
            if arguments is not None or self.launch.others is not None:
                content = recorded = program.block_at(position, self.launch.others)
                if arguments is not None:
                    content = arguments.packed(self.values, recorded)
                block = cython.cast("char*", content)
            self.port.launch(
                self.slot,
                words[0],
                words[1],
                words[2],
                words[3],
                words[4],
                words[5],
                words[6],
                words[7],
                cython.cast(cython.longlong, cython.cast("uintptr_t", block)),
                words[BYTES],
            )
            if self.variant is not None and content is not None:
                replicas: list = program.replicas_at(position)
                if self.variant.takes(arguments is not None, replicas):
                    patch = KernelPatch(program, position, arguments, recorded, program.shape_of(position))
                    self.note(patch, content, arguments is not None, replicas)
        return 0

    def put_function(self, function, shape, offsets, arguments, at_once):
        """Launch a function in the graph that is captured.

        Its arguments are bytes, or `Arguments` that are made anew for other values; these lie at `offsets`.
        """
        content = arguments if isinstance(arguments, bytes) else arguments.packed(self.values, None)
        self.port.captures.launch(self.slot, function, shape, offsets, content, at_once)
        if content is not arguments and self.variant.takes(True, []):
            self.note(KernelPatch(None, 0, arguments, None, (function, *shape)), content, True, [])
        return 0

    def note(self, patch, content, varies, replicas):
        """Remember what was captured last, which depends on parameters, or would be changed for other data."""
        patch.node = self.port.captures.graphs.last_node(self.port.stream(self.slot))
        patch.content = content
        patch.binding = self.binding if varies else None
        return self.variant.note(patch, self.port, varies, replicas)

    def capture(self, thing, variant: Variant):
        """Give a variant its graph: what a recording or a routine does, or None if that is nothing."""
        frame = self.inside()
        frame.values = frame.binding = None
        frame.unread = frozenset(thing.flags())
        frame.variant = variant
        staged: cython.int = DIRECT
        if thing.has_calls():
            staged = STAGED if variant.calls is None else STAGED_HERE
        root, where = self.engine.root, self.task.where
        variant.graph = root.captures.capture(where, lambda port: frame.play_on(port, [thing]).slot, staged)

    def play_on(self, port, things):
        """Do things on a port whose work is captured, and whose first event is its origin; return where that ended."""
        frame = self.inside()
        frame.port = port
        if self.variant is not None and self.variant.port is None:
            self.variant.port = port
        frame.open(EventSet())
        for thing in things:
            thing.put(frame)
        return frame

    def finish_calls(self):
        """Let the launch say how it went, after its last body; of one without an outcome nobody asks."""
        launch, engine = self.launch, self.engine
        if launch.outcome is None:
            return 0
        if launch.is_ended:
            return 0
        if launch.expected and not launch.called:  # all bodies are of graphs, which call them when the inputs are there
            return launch.one_done()
        with engine.gate:
            if self.variant is not None:
                return self.put_call(Last(launch), True)
            self.port.call(self.slot, Last(launch))
            engine.queued += 1
        return 0

    def put_loop(self, call, ends):
        """Let a worker run a loop of compiled bodies after what is on the slot; perhaps the launch `ends` with it."""
        engine = self.engine
        with engine.gate:
            self.port.call(self.slot, call)
            engine.queued += 1
            self.launch.called = True
            self.launch.is_ended = ends
        return 0

    def wait(self):
        """Block until what was played so far is done, and open the next slot; no gate may be held."""
        engine = self.engine
        events = EventSet()
        with engine.gate:
            events.add(self.port.end(self.slot))
        try:
            host_waits.wait(self.port, events)
        finally:
            self.open(events)
        return 0


def make_frame(engine, task, values, variables=None, rebinding=None):
    """Return the frame of a launch that has not begun, by who has these context variables."""
    launch = make_launch(engine, task, variables)
    if rebinding is not None:
        launch.rebinding, launch.others = rebinding, rebinding.replicas
    frame: Frame = Frame.__new__(Frame)
    frame.engine, frame.task, frame.launch, frame.port = engine, task, launch, engine.root
    frame.slot, frame.values, frame.unread = task.slot, values, ()
    return frame


def bound(given, outer):
    """Return the values that a nested graph was given, some of them parameters of the graph around."""
    return {name: value.value_in(outer) if hasattr(value, "value_in") else value for name, value in given.items()}


class Binding:
    """How the values of a nested graph come from those of a launch."""

    def __init__(self, given, around):
        self.given = given
        self.around = around

    def __call__(self, values):
        return bound(self.given, values if self.around is None else self.around(values))
