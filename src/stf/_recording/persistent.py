"""Loops: a recording whose bodies are all compiled code, run by the driver's workers without Python.

A launch that is played costs an event, a queue and a call of Python for each task, which is 2 to 16 µs. Here it costs
one body on the host, which runs planned queues of steps (`_drivers.loops`)::

    recording ──flattened──▶ steps ──planned, checked──▶ queues, a table of arguments ──each launch──▶ run
                  │ a task has no native body: `reasons` say which, and it is played

Graphs in graphs, and repetitions of few steps, are flattened into the same steps. A launch with other numbers, or other
data, writes the slots of the table that depend on these before it runs. The table belongs to one launch at a time.
Launches with other data may run beside each other, so each takes an idle loop, or makes one. Those with the recorded
data are in order, and share one.

It is one body to the engine: ordered, skipped and failed as one. Compiled bodies can raise; then what is left is left
out, and the body is called once more, as it is when it is played, for its error. A launch is played where each
task is watched (observers, ``STF_VALIDATE``, hostile orders).
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stf._port.native import NOT_RUN, NativeBody, NativeCall, NotNativeError, NotThisTimeError, copies
from stf._recording import segments
from stf._recording.graph_calls import LoopCall
from stf._recording.playback import Binding
from stf._recording.schedules import WAKE_NS, StepList, check, planned, with_waits
from stf._support.many_objects import many_objects

log = logging.getLogger("stf")
MOST_REASONS = 8  # that are looked for
runs_before = 1  # launches of a recording that are played before it is a loop, unless its user asked for that
LEAST = 16  # nodes that become a loop, in a recording with others
UNROLLED = 4096  # steps of a repetition inside of a recording
LONG_NS = 40_000.0  # of a step that may be cut in pieces of half of that
COPY_NS = 100.0  # of a copy, and of each 20 bytes of it
MEASURED = 4  # launches whose steps are measured, or half of it if they take longer than to plan; the least time counts
ROUNDS = 256  # that are run before somebody looks whether the context was cancelled
LONGEST_NS = 1_000_000  # of launches that a worker runs without Python: it hears no call meanwhile
ONCE = 0, 1, 0  # see `launch`
NOTHING: tuple[Any, ...] = ()


class Part(NamedTuple):
    """What a node does that may vary: a body, how its values come from those of the launch, and its steps."""

    body: Any
    binding: Any
    learn: Any
    calls: list[tuple[int, NativeCall]]  # with the first slot of each


class Varying(NamedTuple):
    """A word that depends on a parameter, whose values come from those of a launch by `binding`."""

    parameter: Any
    binding: Any
    packed: Callable[[Any], int]


class Steps(StepList):
    """The steps of a recording, for `planned` and for a loop."""

    def __init__(self, workers: int, addresses: dict[Any, int] | None = None) -> None:
        super().__init__()
        self.workers = workers
        self.addresses = {} if addresses is None else addresses
        self.bodies: list[tuple[Any, int]] = []  # function and first slot
        self.table: list[int] = []
        self.parts: list[Part] = []
        self.owners: list[int] = []  # of each step: its part; -1 for none
        self.moves: list[tuple[int, Any, int]] = []  # slots with addresses in the memory of replicas, and where that is
        self.reasons: list[str] = []

    def add_node(self, program: Any, number: int, before: list[int], binding: Any) -> list[int]:
        """Add a node after some steps, unless there are many reasons already why there is no loop."""
        operations: Any = program.content_of(number)[1] if len(self.reasons) < MOST_REASONS else ()
        for operation in operations:
            try:
                before = self.add_operation(operation[0], operation[1], before, binding)
            except NotNativeError as error:
                self.refuse(operation, str(error))
        return before

    def refuse(self, operation: Any, reason: str) -> None:
        """Note why a node has no native body."""
        body: Any = operation[1][0] if operation[1] else None
        label = f"task {body.label} ({body.site}) " if operation[0] == "call" and hasattr(body, "label") else ""
        self.reasons.append(f"{label}{reason}")

    def add_operation(self, name: str, what: Sequence[Any], before: list[int], binding: Any) -> list[int]:
        """Add one operation of a node after some steps; return the steps after which it is done."""
        if name == "keep":
            return before
        if name == "copy":
            target, source = of_real(what[0]), of_real(what[1])
            accesses = [(id(target), True), (id(source), False)]
            native = copies(target, source, (self.address_of(target), self.address_of(source)), COPY_NS)
            return self.add_body(native, None, binding, accesses, before, {0: target, 1: source})
        if name == "call":
            body = what[0]
            if not hasattr(body, "native"):
                raise NotNativeError("it calls Python on the host")
            native = body.native(self.workers)
            arguments, sources = body.varying()
            must_have_slots(arguments, native)
            accesses = [(id(of_real(source[1])), bool(source[2])) for source in sources]
            replicas = {source[0]: of_real(source[1]) for source in sources}
            return self.add_body(native, body, binding, accesses, before, replicas)
        if name == "run":
            return self.add_nested(what, before, binding)
        raise NotNativeError(f"it has what is for a GPU ({name})")

    def add_nested(self, what: Sequence[Any], before: list[int], binding: Any) -> list[int]:
        """Add what is nested."""
        routine, given, outcome = what[0], what[1], what[2]
        inner = binding if given is None else Binding(given, binding)
        if outcome is not None:
            raise NotNativeError(f"it has {routine.description}, which says itself how it went")
        if hasattr(routine, "program"):
            return self.joined(self.add(routine.program, before, inner))
        body: Any = getattr(routine, "body", None)
        count = getattr(routine, "count", None)
        if count is None or not hasattr(body, "program") or count * body.program.count > UNROLLED:
            raise NotNativeError(f"it has {routine.description} in it, which the host drives")
        for _ in range(count):
            if not self.reasons:
                before = self.joined(self.add(body.program, before, inner))
        return before

    def add_body(
        self,
        native: NativeBody,
        body: Any,
        binding: Any,
        accesses: Sequence[tuple[int, bool]],
        before: list[int],
        replicas: Mapping[int, Any],
    ) -> list[int]:
        """Add the steps of a body; `replicas` are its memory, by argument."""
        part = Part(body, binding, native.learn, [])
        self.parts.append(part)
        for stage in native.stages:
            found = []
            for call in stage:
                slot = len(self.table)
                self.table += call.slots
                part.calls.append((slot, call))
                for address in call.addresses:
                    if address.argument in replicas:
                        replica = replicas[address.argument]
                        self.moves.append((slot + address.slot, replica, self.address_of(replica)))
                found.append(self.add_own(before, native.cost_ns, accesses, (call.body, slot), len(self.parts) - 1))
            before = self.joined(found)
        return before

    def address_of(self, replica: Any) -> int:
        """Return where a replica was at the first launch: a recording that is closed keeps it there no longer."""
        return self.addresses.setdefault(replica, int(replica.address))

    def joined(self, steps: list[int]) -> list[int]:
        """Return one step in place of several that are to be waited for."""
        if len(steps) <= 1:
            return steps
        return [self.add_own(steps, 1.0, NOTHING, (None, 0), -1)]

    def add_own(self, needs: list[int], cost_ns: float, accesses: Any, body: Any, owner: int) -> int:
        """Add a step of a part; return its number."""
        self.bodies.append(body)
        self.owners.append(owner)
        return self.add_step(needs, cost_ns, accesses)


class Plan:
    """The queues of a recording, and a loop that runs them."""

    def __init__(self, steps: Steps, role: Any) -> None:
        start = time.perf_counter_ns()
        order = planned(steps.needs, steps.costs, steps.workers, steps.accesses)
        queues = with_waits(steps.needs, order)
        check(steps.needs, steps.accesses, queues)
        self.steps = steps
        self.planned_ns = [max(cost, 1.0) for cost in steps.costs]
        self.count = len(queues)
        self.order = [step for queue in order for step in queue]
        self.waits = sum(len(step.waits) for queue in queues for step in queue)
        kept = [call.step for part in steps.parts for _, call in part.calls if call.step is not None]
        self.numbers, numbers = numbers_of(steps.parts)
        given = [
            [
                (body, slot, step.waits, step.done, numbers.get(slot, NOTHING) if body is not None else NOTHING)
                for step in queue
                for body, slot in [steps.bodies[step.number]]
            ]
            for queue in queues
        ]
        self.loop = role.make(given, steps.table, (kept, steps))
        self.to_measure = MEASURED  # launches
        self.users = 0  # launches that share it
        self.version = 0  # how often steps were planned again before
        self.is_moved = False
        of_tasks = [part for part in steps.parts if part.body is not None]
        self.called = [part for part in of_tasks if any(call.step is not None for _, call in part.calls)]
        self.planning_ns = time.perf_counter_ns() - start

    def learn(self) -> float:
        """Plan by the times that were measured from now on, and let bodies know theirs; return all together, in ns."""
        took = [0.0] * len(self.steps.parts)
        times = self.loop.times()
        for step, time_ns in zip(self.order, times, strict=True):
            self.steps.costs[step] = float(time_ns)
            if self.steps.owners[step] >= 0:
                took[self.steps.owners[step]] += time_ns
        for part, time_ns in zip(self.steps.parts, took, strict=True):
            if part.learn is not None:
                part.learn(time_ns)
        return float(sum(times))

    def suits_times(self, took_ns: float) -> bool:
        """Return whether steps take other times than planned, and all of them in about the same ratio."""
        scale = took_ns / sum(self.planned_ns)
        changes = sum(abs(now - scale * then) for now, then in zip(self.steps.costs, self.planned_ns, strict=True))
        return changes < 0.25 * took_ns

    def words(self, values: Any) -> list[int]:
        """Return what slots hold that depend on parameters; NotThisTimeError if these have other types than before."""
        return [
            number.packed(number.parameter.value_in(values if number.binding is None else number.binding(values)))
            for number in self.numbers
        ]

    def suits(self, rebinding: Any) -> bool:
        """Return whether other data are aligned as the recorded ones are, for which bodies were compiled."""
        if rebinding is None:
            return True
        replicas = {id(replica): (replica, address) for _, replica, address in self.steps.moves}.values()
        return not any(
            (rebinding.replica_for(replica).address - address) % max(replica.layout.itemsize, 1)
            for replica, address in replicas
            if rebinding.replica_for(replica) is not replica
        )

    def prepare(self, values: Any, rebinding: Any, variables: Any) -> None:
        """Write what of the table depends on a launch, by who has these context variables; no other one uses it."""
        put = self.loop.put
        moves = rebinding is not None or self.is_moved
        if moves:
            for slot, replica, address in self.steps.moves:
                other = replica if rebinding is None else rebinding.replica_for(replica)
                put(slot, self.steps.table[slot] + (0 if other is replica else other.address - address))
            self.is_moved = rebinding is not None
        for part in self.called:
            varies = moves or any(hasattr(type(value), "value_in") for value in part.body.varying()[0])
            given = None
            if varies:
                given = part.body.arguments_in(values if part.binding is None else part.binding(values), rebinding)
            for _, call in part.calls:
                if call.step is not None:
                    call.step.variables = variables
                    call.step.args = given if varies else call.step.args

    def forget(self) -> None:
        """Keep no other data of the last launch alive: `prepare` gives steps of Python theirs again."""
        for part in self.called if self.is_moved else ():
            for _, call in part.calls:
                if call.step is not None:
                    call.step.args = NOTHING


class Loops:
    """The loops of one recording: idle ones, and why there are none; which is told where the user asked for them."""

    def __init__(self, is_asked: bool = True) -> None:
        self.is_asked = is_asked
        self.runs_left = 0 if is_asked else runs_before  # that are played first
        self.lock = threading.RLock()  # of the users of a shared loop
        self.reasons: list[str] = []
        self.idle: list[Plan] = []
        self.first: Plan | None = None
        self.outline: Any = None  # the program with loops in it; False if it has none; None as far as is known
        self.pieces: list[LoopPiece] = []
        self.known_ns = 0.0  # what all steps took when they were measured last, one after the other
        self.took_ns = 0  # what the last launch took, for a round
        self.off_ns = 0  # that launches took, in a row, which took other times than that
        self.patience_ns = 0  # how long they may, until steps are measured again
        self.version = 0  # of the newest plan
        self.on_device: Any = None  # the loop on a device (`device_loops`), if there is one
        self.addresses: dict[Any, int] = {}  # of replicas, for each of its loops

    def may_be_later(self) -> bool:
        """Return whether to ask again, or to say why there are none."""
        return self.is_asked or not self.reasons or self.outline is None

    @many_objects()
    def made(self, thing: Any, port: Any, known: Steps | None = None) -> Plan | None:
        """Return a new loop, perhaps of steps that are known, whose costs it plans by; None if there is none.

        Whatever the reason is, what is played does the same.
        """
        steps = Steps(min(port.max_workers(), usable_cores()), self.addresses) if known is None else known
        try:
            if known is None:
                thing.add_steps(steps)
            self.reasons = steps.reasons or ([] if steps.needs else ["there is nothing to do"])
            if self.reasons:
                return None
            plan = Plan(steps, port.loops)
            plan.version = self.version
            return plan
        except Exception as error:  # of a compiler, or a schedule that is refused
            log.info("%s is no persistent loop: %r", thing.description, error)
            self.reasons = [str(error) or type(error).__name__]
            return None

    def take(self, thing: Any, port: Any) -> Plan | None:
        """Return an idle loop, or a new one; None if there is none."""
        if not self.idle:
            port.let_go_compiled(True)  # launches that are over, and share one
        try:
            return self.idle.pop()
        except IndexError:
            return self.made(thing, port)

    def is_short(self, plan: Plan) -> bool:
        """Return whether a launch is known to be so short that a worker may run it without Python."""
        return plan.to_measure == 0 and 0 < self.took_ns < LONGEST_NS

    def share(self, plan: Plan) -> bool:
        """Let a launch with the recorded data share a loop with others, which these data order.

        Return False if another launch has it for itself, or other data are in its table.
        """
        if plan.called or self.known_ns <= 0:
            return False
        with self.lock:
            if plan.users == 0:
                try:
                    self.idle.remove(plan)
                except ValueError:
                    return False
                if plan.is_moved or plan.version != self.version:
                    self.idle.append(plan)
                    return False
            plan.users += 1
            return True

    def give_shared(self, plan: Plan, better: Plan) -> None:
        """A launch no longer shares a loop; a `better` one may have been planned."""
        with self.lock:
            plan.users -= 1
            if better.version == self.version and (better is not plan or plan.users == 0):
                self.idle.append(better)

    def noted(self, plan: Plan, thing: Any, port: Any, took_ns: int, rounds: int, is_measured: bool) -> Plan:
        """Note that the last launch took `took_ns`, for so many `rounds`; return its loop, or a better one.

        A parameter may make bodies a thousand times longer than they were when they were measured. So they are measured
        again where launches take other times than that, in a row, for as long as it takes to plan.
        """
        if plan.version != self.version or not rounds:
            return plan
        is_known = self.known_ns > 0 and self.is_as_known(took_ns, rounds, plan.steps.workers)
        self.took_ns = took_ns // rounds if is_known else 0
        if is_known:
            self.off_ns = plan.to_measure = 0
        elif is_measured:
            plan.to_measure -= MEASURED // 2 if took_ns > plan.planning_ns else rounds
            if plan.to_measure <= 0:
                plan = self.planned_again(plan, thing, port)
        else:
            self.off_ns += took_ns
            if self.off_ns > self.patience_ns:
                self.off_ns, plan.to_measure = 0, MEASURED
                plan.loop.forget_times()
        if is_known or is_measured:
            plan.loop.look_again()
        return plan

    def times_known(self, workers: int) -> tuple[int, int]:
        """Return how long a round takes at least, and at most, which takes about as long as its steps do, in ns."""
        return int(self.known_ns / (2 * workers)), int(2 * self.known_ns + WAKE_NS)

    def is_as_known(self, took_ns: int, rounds: int, workers: int) -> bool:
        """Return whether a launch took about as long as its steps do."""
        least_ns, most_ns = self.times_known(workers)
        return least_ns <= took_ns / rounds <= most_ns

    def planned_again(self, plan: Plan, thing: Any, port: Any) -> Plan:
        """Return a loop that was planned by the times of another one, which were measured; or that one."""
        took_ns, plan.to_measure = plan.learn(), 0
        if self.known_ns / 2 < took_ns < 2 * self.known_ns:
            self.patience_ns *= 2  # others had the cores, or what steps wait for takes so long
            return plan
        known_ns, self.known_ns, self.patience_ns = self.known_ns, took_ns, plan.planning_ns
        if plan.steps.workers <= 1 or (plan.count == 1 and took_ns < 2 * WAKE_NS):
            return plan
        has_long = max(plan.steps.costs) > LONG_NS  # a step, whose body may be cut in more pieces
        if known_ns > 0 and plan.count > 1 and took_ns > 2 * WAKE_NS and not has_long and plan.suits_times(took_ns):
            return plan
        better = self.made(thing, port, None if has_long else plan.steps)
        if better is None:
            return plan
        better.to_measure, self.version = 0, self.version + 1
        better.version = self.version
        better.is_moved = plan.is_moved  # steps of Python have the data of the last launch
        self.first, self.idle = better, []
        return better

    def describe(self) -> list[str]:
        """Return what to tell of it, in lines."""
        found = [self.on_device.description] if self.on_device is not None and self.on_device.is_launched else []
        if self.first is not None and not self.reasons:
            steps, queues = len(self.first.order), self.first.count
            found.append(f"a persistent loop: {steps} steps, {queues} queues, {self.first.waits} waits")
        if self.pieces:
            nodes = sum(piece.program.count for piece in self.pieces)
            found.append(f"{len(self.pieces)} persistent loops of {nodes} nodes, and others that are played")
        if self.is_asked:
            found += [f"no persistent loop: {reason}" for reason in dict.fromkeys(self.reasons)]
        return found


class LoopPiece:
    """Nodes of a recording that are a loop, between others that are played."""

    def __init__(self, around: Any, program: Any) -> None:
        self.description = f"a piece of {around.description}"
        self.program = program
        self.parts: list[Any] = []
        self.graph = None
        self.loops = Loops(around.loops.is_asked)

    def run(self, frame: Any) -> None:
        """Do it after what is on the slot."""
        if launch(frame, self) is None:
            frame.play(self.program)

    def add_steps(self, steps: Steps) -> None:
        """Add what it does to the steps of a loop."""
        steps.add(self.program, [], None)


class Run:
    """One launch of a loop, as a worker does it; perhaps of a `shared` one."""

    def __init__(
        self,
        loops: Loops,
        thing: Any,
        frame: Any,
        words: tuple[Plan, list[int]],
        rounds: tuple[int, int, int],
        shared: Plan | None,
    ) -> None:
        self.loops, self.thing, self.words, self.shared = loops, thing, words, shared
        self.engine, self.port = frame.engine, frame.port
        self.values, self.rebinding = frame.values, frame.launch.rebinding
        self.rounds, self.limit, self.flag = rounds  # that were run; see `launch`
        self.is_given_up = False
        self.code: Any = None  # of the shared loop, with the words of this launch

    def give_up(self) -> None:
        """Let no further rounds begin: nobody waits for them any more, and what they write is poisoned."""
        self.is_given_up = True

    def __call__(self, variables: Any) -> Any:
        """Run it, for who has these context variables, or None.

        Returns the body that failed, with its values; True if the context was cancelled; or None.
        """
        known, words = self.words  # of the parameters, for the loop that was there when it was submitted
        plan = self.shared or self.loops.take(self.thing, self.port)
        assert plan is not None
        if self.shared is None:
            words = words if plan is known else plan.words(self.values)
            plan.prepare(self.values, self.rebinding, variables)
        is_measured = plan.to_measure > 0
        plan.loop.measure(is_measured)
        limit, flag = self.limit, self.flag
        failed, took_ns, before = -1, 0, self.rounds
        if plan is not known:
            self.port.share(plan.loop, plan.count - 1)
        while failed < 0 and self.rounds < limit and not self.is_given_up:
            if self.engine.cancelled is not None:
                return True
            wanted = min(limit - self.rounds, ROUNDS)
            start = time.perf_counter_ns()
            failed = plan.loop.lead(words, wanted, flag)
            took_ns += time.perf_counter_ns() - start
            done = plan.loop.rounds_run()
            self.rounds += done
            if done < wanted or (flag and not ctypes.c_uint8.from_address(flag).value):
                break
        plan.loop.measure(False)
        body = self.body_of(plan, failed) if failed >= 0 else None
        self.over(plan, took_ns, self.rounds - before if body is None else 0, is_measured)
        return body

    def over(self, plan: Plan, took_ns: int, rounds: int, is_measured: bool) -> None:
        """Give back the loop, which has run so many rounds well."""
        shared, self.shared = self.shared, None
        if shared is None:
            plan.forget()
        better = self.loops.noted(plan, self.thing, self.port, took_ns, rounds, is_measured)
        if shared is not None:
            self.loops.give_shared(plan, better)
        elif better.version == self.loops.version:
            self.loops.idle.append(better)

    def again(self, variables: Any) -> Any:
        """Return what a call does whose code was run, and failed."""
        assert self.shared is not None
        failed = self.code.result()
        return self(variables) if failed == NOT_RUN else self.body_of(self.shared, failed)

    def body_of(self, plan: Plan, failed: int) -> tuple[Any, Any]:
        """Return the body of a step, by its number, with its values."""
        part = plan.steps.parts[plan.steps.owners[plan.order[failed]]]
        return part.body, self.values if part.binding is None else part.binding(self.values)

    def end(self, took_ns: int) -> None:
        """It is over, however it went; its code took `took_ns`, if it was run."""
        if self.shared is not None:
            self.over(self.shared, took_ns, 1 if took_ns else 0, False)


def launch(frame: Any, thing: Any, rounds: tuple[int, int, int] = ONCE) -> Run | None:
    """Launch a recording, or a routine, as a loop; return its run, or None if it is to be played.

    Of its `rounds` it says how many were done before, how many there are at most, and the address of a byte that must
    be true to go on; or 0.
    """
    loops = thing.loops
    if loops is None or loops.reasons:
        return None
    port = frame.port
    if port.loops is None:
        loops.reasons = ["its place has no loops of compiled bodies"]
    if not may_be_loop(frame):
        return None
    plan = loops.first
    if plan is None:
        plan = loops.first = loops.made(thing, port)
        if plan is None:
            return None
        loops.idle.append(plan)  # perhaps beside that of another thread
    try:
        words = plan.words(frame.values)
    except NotThisTimeError:
        return None
    rebinding = frame.launch.rebinding
    if not plan.suits(rebinding):
        return None
    port.let_go_compiled(True)  # those that are over say what they took
    ends = frame.whole is thing and rounds == ONCE
    shared = plan if ends and rebinding is None and loops.share(plan) else None
    run = Run(loops, thing, frame, (plan, words), rounds, shared)
    try:
        call = LoopCall(frame.launch, run, ends)
        if shared is not None and loops.is_short(plan):
            known = loops.times_known(plan.steps.workers)
            call.compiled = run.code = plan.loop.call(words, loops.took_ns, *known)
        port.share(plan.loop, plan.count - 1)
        frame.put_loop(call, ends)
    except BaseException:
        run.end(0)
        raise
    loops.runs_left = 0
    return run


def loops_by_default(engine: Any) -> Loops | None:
    """Return the loops of a recording whose user asks for nothing; None where there are none."""
    return None if engine.root.loops is None else Loops(False)


def outline_for(frame: Any, recording: Any) -> Any:
    """Return the program of a recording with loops in the place of long runs of compiled bodies; None if it has none.

    It is that of a recording that is no loop as a whole.
    """
    loops = recording.loops
    if not loops.reasons or not may_be_loop(frame):
        return None
    if loops.outline is None:
        found: Any = (None, [])
        hosts = hosts_in(recording.program, frame.port.max_workers())
        if recording.program.count - len(hosts) >= LEAST:
            found = segments.loops_in(
                recording, hosts, frame.task.where, LEAST, lambda _, program: LoopPiece(recording, program)
            )
        loops.outline = found[0] if found[1] else False
        loops.pieces = found[1]
    return loops.outline or None


def hosts_in(program: Any, workers: int) -> set[int]:
    """Return the nodes of a program that are no steps of a loop; all, if few may be."""
    found = set()
    likely = (number for number in range(program.count) if is_likely(program.content_of(number)[1]))
    if len(list(itertools.islice(likely, LEAST))) < LEAST:
        return set(range(program.count))
    for number in range(program.count):
        steps = Steps(workers)
        steps.add_node(program, number, [], None)
        if steps.reasons:
            found.add(number)
    return found


def is_likely(operations: Any) -> bool:
    """Return whether a node may be steps of a loop; a look that takes less than to make them."""
    return all(
        name != "call" or (hasattr(what[0], "may_be_native") and what[0].may_be_native()) for name, what in operations
    )


def may_be_loop(frame: Any) -> bool:
    """Return whether launches may be loops here, and nobody watches each task."""
    engine = frame.engine
    return frame.port.loops is not None and not frame.unread and engine.observer is None and not engine.watches


def must_have_slots(arguments: Sequence[Any], native: NativeBody) -> None:
    """Raise NotNativeError unless each step of a body gets all parameters among its arguments anew in each launch."""
    wanted = {position for position, value in enumerate(arguments) if hasattr(type(value), "value_in")}
    for call in itertools.chain.from_iterable(native.stages):
        if call.step is None and not wanted <= {number.argument for number in call.numbers}:
            raise NotNativeError("takes a parameter that is no number")


def numbers_of(parts: list[Part]) -> tuple[list[Varying], dict[int, list[tuple[int, int]]]]:
    """Return the words that depend on parameters, and by first slot of a step which of its slots get which of these."""
    found: dict[tuple[int, ...], tuple[int, Varying]] = {}
    numbers: dict[int, list[tuple[int, int]]] = {}
    for part in parts:
        arguments = NOTHING if part.body is None else part.body.varying()[0]
        for slot, call in part.calls:
            for number in call.numbers:
                value = arguments[number.argument]
                if hasattr(type(value), "value_in"):
                    key = id(value), id(part.binding), id(number.packed)
                    word, _ = found.setdefault(key, (len(found), Varying(value, part.binding, number.packed)))
                    numbers.setdefault(slot, []).append((number.slot, word))
    return [varying for _, varying in found.values()], numbers


def usable_cores() -> int:
    """Return how many threads of this process run at a time: more would look in vain whether a step is done."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def of_real(replica: Any) -> Any:
    """Return a replica that is no shadow."""
    return replica if replica.real is None else replica.real
