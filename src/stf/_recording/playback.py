"""Playing: the work of a launch, node by node on the port around."""

from __future__ import annotations

import collections
import functools
import threading

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]

from stf._engine import host_waits
from stf._engine.failures import Failure
from stf._engine.queued_bodies import QueuedBody
from stf._engine.versions import Outcome
from stf._port.events import EventSet
from stf._port.programs import Numbers, Program
from stf._recording.device_graphs import Mark, Recapture, Repack, Shift
from stf.errors import CaptureError, TaskFailedError

MOST_LAUNCHES = 8  # of a graph that calls bodies on the host, which the driver has at a time

if not cython.compiled:
    INVALID, SHARED, MODIFIED = 0, 1, 2
    READ, WRITE, RW, ACCUMULATE, AFFINE = 1, 2, 3, 4, -1
    COMPUTE, COPY_IN, COPY_OUT, HOST = 0, 1, 2, 3
    DIRECT, STAGED_HERE, STAGED = 0, 1, 2
    NEW, OPEN, ENDED = 0, 1, 2
    LAUNCH, COPY, FILL, CALL, KEEP, CAPTURED, RUN, VARIED = 0, 1, 2, 3, 4, 5, 6, 7


@cython.freelist(8)
@cython.final
@cython.cclass
class Launch:
    """One launch of a recording, or of a routine made of several: `values` are those of its parameters."""

    def failed(self):
        """The failure because of which the bodies that are left are skipped; None as far as is known."""
        if self.failure is None and self.inputs is not None:
            for item in self.inputs:
                outcome: Outcome = item
                self.failure = outcome.failed()
                if self.failure is not None:
                    if self.outcome is not None:  # else that of the task is derived from its inputs
                        self.outcome.skipped = True
                    break
        return self.failure

    def attempt(self, body: QueuedBody):
        """Run a body, unless one before has failed; return its own failure, or None."""
        if self.failed() is not None:
            body.prepare()
            return None
        if body.outcome is None:  # else it was submitted once, and has those of its submission
            body.variables = self.variables
        return self.note(body.attempt())

    def note(self, failure):
        """Remember the first failure, of bodies that may run beside each other; return this one."""
        if failure is not None and self.failure is None:
            self.failure = failure
        return failure

    def play(self, program: Program, slot, runs_once):
        """Do what a program says, after what is on `slot`; return the slot after it.

        Bodies of a program that `runs_once` say themselves how they went.
        """
        engine, port = self.engine, self.port
        was_once, self.is_once = self.is_once, runs_once
        self.slot = slot
        engine.gate.enter()
        try:
            start: cython.longlong = port.end(slot)
        finally:
            engine.gate.leave()
        events = Numbers()
        needs = EventSet()
        node: cython.longlong
        try:
            for node in range(program.count):
                events.add(self.play_node(program, node, start, events, needs))
            if self.awaited is not None and self.awaited.program is program:
                self.awaited.note(events.tolist())
        finally:
            self.is_once = was_once
            self.gather(program, start, events)
        return self.slot

    def gather(self, program: Program, start, events):
        """Open a slot after all that was played."""
        ends = EventSet()
        ends.add(start)
        node: cython.longlong
        for node in range(events.count):
            if program.is_last(node) or events.count < program.count:
                ends.add(events.items[node])
        engine = self.engine
        engine.gate.enter()
        try:
            self.slot = self.port.begin(self.task.where, ends, COMPUTE)
            self.task.slot = self.slot
        finally:
            engine.gate.leave()
        return 0

    def play_node(self, program: Program, node, start, events, needs: EventSet):
        """Put one node on a slot of its own; return its event. `needs` is room for what it waits for."""
        i: cython.longlong
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
        if first == last:  # what only orders is nobody's work
            if needs.count == 1:
                return needs.items[0]
            place = self.task.where
        engine.gate.enter()
        try:
            self.slot = port.begin(place, needs, program.kinds.items[node] & 3)
            try:
                for i in range(first, last):
                    kind: cython.longlong = program.work.items[i] & 7
                    if kind == LAUNCH:
                        self.put_launch(program, program.work.items[i] >> 3)
                    elif kind == RUN:
                        self.play_nested(program.operation(i))
                    elif kind == CAPTURED:
                        self.play_captured(program.operation(i))
                    elif kind == VARIED:
                        self.put_varied(program, program.operation(i))
                    else:
                        self.put(program.operation(i))
            except BaseException:
                events.add(port.abort(self.slot))
                raise
            return port.end(self.slot)
        finally:
            engine.gate.leave()

    def play_nested(self, operation: tuple):
        """Run what is nested, outside of the gate: it may have to wait; a graph has values of its own."""
        engine = self.engine
        routine, given = operation[1], operation[2]
        before = self.values, self.binding
        if given is not None:
            self.binding = Binding(given, self.binding)
            self.values = bound(given, self.values)
        engine.gate.leave()
        try:
            if operation[3] is not None and self.marks is None:
                self.slot = self.run_with_outcome(operation)
            elif operation[3] is not None:
                self.slot = self.put_with_outcome(operation)
            elif self.marks is None:
                self.slot = routine.run(self, self.slot)
            else:
                self.slot = routine.put(self, self.slot)
        finally:
            self.values, self.binding = before
            engine.gate.reenter()
        return 0

    def run_with_outcome(self, operation: tuple):
        """Run what has an outcome of its own, in a program that is launched once; return the slot after it."""
        routine, outcome = operation[1], cython.cast(Outcome, operation[3])
        inner = make_launch(self.engine, self.task, self.values, self.variables)
        inner.outcome, inner.inputs = outcome, operation[4]
        try:
            inner.slot = routine.run(inner, self.slot)
            inner.finish_calls()
        except BaseException as error:
            task = self.task
            outcome.failure = Failure.of(task, error, True)
            outcome.pending = False
            raise
        return inner.slot

    def put_with_outcome(self, operation: tuple):
        """Let a graph that is launched once do what has an outcome of its own; return the slot after it."""
        inner = make_launch(self.engine, self.task, None, self.variables)
        inner.outcome, inner.inputs = cython.cast(Outcome, operation[3]), operation[4]
        before, self.own_launch = self.own_launch, inner
        try:
            self.slot = operation[1].put(self, self.slot)
            self.engine.gate.enter()
            try:
                self.put_call(Last(inner))
            finally:
                self.engine.gate.leave()
        finally:
            self.own_launch = before
        return self.slot

    def put(self, operation):
        """Put one operation on the open slot."""
        port = self.port
        kind: cython.int = operation[0]
        if kind == COPY:
            target: Replica = operation[1]
            if self.unread and target.data in self.unread:
                return 0
            self.put_memory(operation)
        elif kind == FILL:
            self.put_memory(operation)
        elif kind == CALL and self.calls is not None:
            self.put_call(operation[1])
        elif kind == CALL and port.captured:
            body = operation[1]
            if isinstance(body, QueuedBody):
                late: QueuedBody = body
                body = late.again(self.values, self.rebinding)
                cython.cast(QueuedBody, body).graph = self.whole
            port.call(self.slot, body)
        elif kind == CALL:
            body = operation[1] if self.is_once else Call(self, operation[1], self.values)
            port.call(self.slot, body)
            self.engine.queued += isinstance(body, (Call, QueuedBody))
            self.called = True
        return 0

    def put_call(self, body):
        """Let the graph that the launch is captured into call a body."""
        calls = self.calls
        targets: list = []
        if isinstance(body, QueuedBody):
            targets = [self.now(replica) for replica in cython.cast(QueuedBody, body).targets]
        if self.moving is not None and isinstance(body, QueuedBody):
            self.note_moving(None, cython.cast(QueuedBody, body).targets)  # of which the graph knows where they are
        call = GraphCall(calls, body, self.binding, self.own_launch, self.is_once)
        self.port.call_here(self.slot, call, targets)
        calls.all.append(call)
        return 0

    def play_captured(self, operation: tuple):
        """Put a body that was captured on the open slot, perhaps captured anew, for which the gate is left."""
        engine = self.engine
        captured = first = operation[1]
        engine.gate.leave()
        try:
            again = operation[2]
            if again is not None and (again.varies or self.rebinding is not None):
                try:
                    captured = again(first, self.values, self.rebinding)
                except TaskFailedError as error:
                    if self.marks is not None or not again.can_play(error.__cause__):
                        raise
                    again.play(self, self.slot)  # for these values, its library does not capture it
                    return 0
            if self.marks is not None and captured is None:
                raise CaptureError("a body puts nothing on its stream for some values of its parameters")
        finally:
            engine.gate.reenter()
        if captured is not None:
            self.port.play_captured(self.slot, captured)
            if captured is not first:
                self.port.keep_alive(self.slot, captured)  # which the next values may replace
            if self.marks is not None and again is not None:
                remake = Recapture(again, first)
                self.mark(remake(self), captured, None, again.varies, remake, again.replicas())
        return 0

    def capture(self, thing, for_others):
        """What a recording or a routine does, as a graph of the driver's.

        Also its nodes that depend on parameters; and its bodies on the host, if any, unless others launch it.
        """
        before = self.marks, self.values, self.binding
        self.marks = marks = []
        self.values = self.binding = None
        self.moving = None if self.rebinding is None or for_others else {}
        self.whole = getattr(thing, "life", None)
        self.unread = frozenset(thing.flags())
        self.calls = calls = None if for_others else GraphCalls()
        try:
            staged: cython.int = DIRECT if not thing.has_calls() else STAGED if for_others else STAGED_HERE
            graph = self.engine.root.capture(self.task.where, lambda port: self.play_on(port, [thing]), staged)
        finally:
            self.unread = ()
            self.calls = None
            self.marks, self.values, self.binding = before
            moving, self.moving = self.moving, None
        if calls is None or not calls.all:
            return graph, marks, None, moving
        calls.remaining = len(calls.all)
        return graph, marks, calls, moving

    def play_on(self, port, things):
        """Do things on a port whose work is captured, and whose first event is its origin; return the slot after it."""
        before = self.port, self.slot, self.task.slot
        self.port = port
        self.parts += 1
        try:
            slot: cython.int = port.begin(self.task.where, EventSet(), COMPUTE)
            self.slot = slot
            for thing in things:
                slot = thing.put(self, slot)
            return slot
        finally:
            self.parts -= 1
            self.port, self.slot, self.task.slot = before

    def rebound_block(self, program: Program, position):
        """The bytes of the arguments of a recorded launch, with the addresses of the data of this one."""
        content: bytes = b""
        if cython.compiled:
            i: cython.longlong
            words = program.launches.items + cython.cast(cython.longlong, position)
            content = cython.cast("char*", words + HEADER)[: words[BYTES]]
            if self.rebinding is not None and words[POINTERS]:
                pointers = words + HEADER + (words[BYTES] + 7) // 8
                for i in range(words[POINTERS]):
                    address: cython.longlong = self.now(program.replicas[pointers[i] & 0xFFFFFFFF]).address
                    offset: cython.longlong = pointers[i] >> 32
                    memcpy(cython.cast("char*", content) + offset, cython.address(address), 8)  # nobody has it yet
        return content

    def now(self, replica: Replica):
        """The replica that is used in place of one in this launch."""
        return replica if self.others is None else self.others.get(id(replica), replica)

    def mark(self, make, content, shape, varies, remake, replicas):
        """Remember what was captured last, if it depends on parameters, or other data would change it.

        `make` and `remake` are a mark's; `replicas` are those whose place other data take.
        """
        moves: cython.bint = self.moving is not None and len(replicas) > 0
        if varies or moves:
            if self.binding is not None and not isinstance(make, bytes):
                make = functools.partial(make_bound, make, self.binding)
                remake = functools.partial(remake_bound, remake, self.binding)
            mark = Mark(self.port.last_node(self.slot), make, content, shape, remake)
            if varies:
                self.marks.append(mark)
            if moves:
                self.note_moving(mark, replicas)
        return 0

    def note_moving(self, mark, replicas):
        """Remember a node that is changed when other data take the place of what is there now; None cannot be."""
        if self.parts > 1:  # what a condition decides about is no graph of its own whose nodes could be changed
            mark = None
        for number in {id(replica) for replica in replicas}:
            if mark is None:
                self.moving[number] = None
            elif number not in self.moving:
                self.moving[number] = [mark]
            elif self.moving[number] is not None:
                self.moving[number].append(mark)
        return 0

    def put_memory(self, operation):
        """Copy, or fill, and remember the nodes that do, or that they cannot be changed."""
        port = self.port
        target: Replica = operation[1]
        source: Replica = operation[2] if operation[0] == COPY else None
        count = 0 if self.moving is None else port.node_count(self.slot)
        if source is None:
            port.fill(self.slot, self.now(target), operation[2])
        else:
            port.copy(self.slot, self.now(target), self.now(source), None, operation[3])
        if self.moving is None:
            return 0
        replicas = [target] if source is None else [target, source]
        remake = Shift(target, source, self.now(target).address, 0 if source is None else self.now(source).address)
        nodes = port.memory_nodes_since(self.slot, count)
        if nodes is None:
            self.note_moving(None, replicas)
        else:
            for node in nodes:
                self.note_moving(Mark(node, None, (0, 0), (), remake), replicas)
        return 0

    def put_varied(self, program: Program, operation: tuple):
        """Launch a kernel with the arguments of this launch."""
        if cython.compiled:
            position: cython.longlong = operation[1]
            words = program.launches.items + position
            remake = Repack(program, position, operation[2])
            make = remake(self)
            content: bytes = make(self.values)
            self.launch_kernel(words, cython.cast("char*", content), len(content))
            if self.marks is not None:
                self.mark(make, content, program.shape_of(position), True, remake, remake.replicas())
        return 0

    def put_launch(self, program: Program, position):
        """Launch a kernel with the arguments that were recorded; uncompiled, there are no kernels."""
        if cython.compiled:
            words = program.launches.items + position
            if self.rebinding is None:
                self.launch_kernel(words, cython.cast("char*", words + HEADER), words[BYTES])
            else:
                content: bytes = self.rebound_block(program, position)
                self.launch_kernel(words, cython.cast("char*", content), words[BYTES])
                if self.moving is not None and words[POINTERS]:
                    remake = Repack(program, position, None)
                    self.mark(content, content, program.shape_of(position), False, remake, remake.replicas())
        return 0

    def launch_kernel(self, words, content, nbytes):
        """Launch the kernel of a recorded launch with the arguments at an address."""
        block = cython.cast(cython.longlong, cython.cast("uintptr_t", content))
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
            block,
            nbytes,
        )
        return 0

    def look(self):
        """Find out whether something failed; `failure` says it then."""
        self.failed()

    def finish_calls(self):
        """After the last body: say how the launch went; of a launch that is captured nobody asks."""
        if self.outcome is None:
            return 0
        if self.expected and not self.called:  # all bodies are of graphs, which call them when the inputs are there
            return self.one_done()
        engine = self.engine
        engine.gate.enter()
        try:
            self.port.call(self.slot, Last(self))
            engine.queued += 1
        finally:
            engine.gate.leave()
        return 0

    def one_done(self):
        """One of those that call bodies has called all of its own; after the last one, say how the launch went."""
        self.remaining -= 1
        if self.remaining == 0:
            self.outcome.failure = self.failed()
            self.outcome.pending = False
        return 0

    def wait(self):
        """Block until what was played so far is done, and open the next slot; no gate may be held."""
        engine, port = self.engine, self.port
        events = EventSet()
        engine.gate.enter()
        try:
            events.add(port.end(self.slot))
        finally:
            engine.gate.leave()
        try:
            host_waits.wait(port, events)
        finally:
            engine.gate.enter()
            try:
                self.slot = port.begin(self.task.where, events, COMPUTE)
                self.task.slot = self.slot
            finally:
                engine.gate.leave()
        return 0


if not cython.compiled:
    Launch.outcome = Launch.inputs = Launch.failure = Launch.marks = Launch.rebinding = Launch.binding = None
    Launch.others = None
    Launch.whole = Launch.calls = Launch.own_launch = Launch.awaited = Launch.moving = None
    Launch.parts = 0
    Launch.is_once = Launch.called = Launch.expected = False


def make_launch(engine, task, values, variables=None):
    """A launch that has not begun, by who has these context variables."""
    launch: Launch = Launch.__new__(Launch)
    launch.engine = engine
    launch.port = engine.root
    launch.task = task
    launch.values = values
    launch.variables = variables
    launch.slot = -1
    launch.remaining = 1
    launch.unread = ()
    return launch


def bound(given, outer):
    """The values that a nested graph was given, some of them parameters of the graph around."""
    return {name: value.value_in(outer) if hasattr(value, "value_in") else value for name, value in given.items()}


class Binding:
    """How the values of a nested graph come from those of a launch."""

    def __init__(self, given, around):
        self.given = given
        self.around = around

    def __call__(self, values):
        return bound(self.given, values if self.around is None else self.around(values))


def make_bound(make, binding, values):
    """What a node of a nested graph is for the values of a launch."""
    return make(binding(values))


def remake_bound(remake, binding, launch):
    """What makes a node of a nested graph for the data of a launch."""
    return functools.partial(make_bound, remake(launch), binding)


class Call:
    """A recorded body, to be called in one launch: with those `values`, or with what `binding` makes of them."""

    def __init__(self, launch, body, values, binding=None):
        self.launch = launch
        self.body = body
        self.values = values  # those of a graph in another one are its own
        self.binding = binding

    def __call__(self):
        launch: Launch = self.launch
        try:
            if isinstance(self.body, QueuedBody):
                body: QueuedBody = self.body
                values = self.values if self.binding is None else self.binding(self.values)
                launch.attempt(body.again(values, launch.rebinding))
            elif launch.failed() is None:
                self.body()
        except BaseException as error:
            task = launch.task
            failure = Failure.of(task, error)
            launch.note(failure)
            launch.engine.failures.append(failure)
        finally:
            launch.engine.ran += 1


class Last:
    """What comes after the last body of a launch."""

    def __init__(self, launch):
        self.launch = launch

    def __call__(self):
        launch: Launch = self.launch
        launch.one_done()
        launch.engine.ran += 1


class GraphCalls:
    """The bodies on the host that a graph calls, and its launches that have not called them all.

    The driver does one launch of a graph after the other, so it is the first of `launches` that calls: (launch, values
    of its parameters), which change in it while nested graphs are launched or captured.

    A thread that launches a graph waits in CUDA where too many launches are on their way, and has a lock of CUDA's
    then. The bodies need the GIL; so a third thread that waits for that lock with the GIL held would stop all of them
    (`tests/cuda/gil_and_host_nodes.py`). So there is `room` for a few launches, and who finds none waits outside of
    CUDA.
    """

    def __init__(self):
        self.all = []
        self.room = threading.Semaphore(MOST_LAUNCHES)
        self.remaining = 0  # that the first launch has not called yet
        self.launches = collections.deque()

    def expect(self, launch: Launch, has_room):
        """The driver is about to get one more launch, which `has_room`, or is put there later."""
        self.launches.append((launch, launch.values, has_room))
        launch.remaining += 1
        launch.expected = True
        launch.engine.queued += len(self.all)
        launch.engine.calling[id(self)] = self

    def take_back(self, launch: Launch):
        """It did not get it."""
        if launch in [known[0] for known in self.launches]:  # else the driver lost its device over it
            self.launches.pop()  # who found room gives it back
            launch.remaining -= 1
            launch.engine.queued -= len(self.all)

    def one_done(self, launch: Launch):
        """A body of a launch was called."""
        if not self.launches or self.launches[0][0] is not launch:
            return  # nobody waits for it any more
        self.remaining -= 1
        if self.remaining == 0:
            self.end_first()

    def end_first(self):
        """All that the first launch calls was called."""
        self.remaining = len(self.all)
        first: tuple = self.launches.popleft()
        launch: Launch = first[0]
        if first[2]:
            self.room.release()
        if not self.launches:
            launch.engine.calling.pop(id(self), None)
        launch.one_done()

    def give_up(self):
        """The driver has lost its device, and calls nothing any more; it says so whoever asks."""
        while self.launches:
            launch: Launch = self.launches[0][0]
            for call in self.all:
                call.give_up()
            launch.engine.ran += self.remaining
            self.end_first()


class GraphCall:
    """A recorded body, as a node of a graph: to be called in each of its launches.

    `binding` are the values of a graph in the graph; `own_launch` is what has an outcome of its own there. A body of a
    program that `runs_once` says itself how it went.
    """

    def __init__(self, calls, body, binding, own_launch, runs_once):
        self.calls = calls
        self.body = body
        self.binding = binding
        self.own_launch = own_launch
        self.runs_once = runs_once

    def give_up(self):
        """It will not be called: nobody waits for what it would say."""
        if isinstance(self.body, Last):
            inner: Launch = self.body.launch
            if inner.remaining:
                inner.one_done()
        elif self.runs_once:
            late: QueuedBody = self.body
            late.give_up(None)

    def __call__(self):
        if not self.calls.launches:
            return
        launch, values, _ = self.calls.launches[0]
        try:
            if self.runs_once or isinstance(self.body, Last):
                self.body()
            else:
                Call(launch if self.own_launch is None else self.own_launch, self.body, values, self.binding)()
        finally:
            self.calls.one_done(launch)
