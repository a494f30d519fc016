"""Graphs of the driver's: what a recording or a routine does, captured while it is played, and launched as one then.

Whatever a graph cannot be, is played: that does the same, and tells of errors where they are. `DriverGraph.launch` says
whether it has launched a graph. It has not, and the caller plays, when

=====================================================  ==========================================
there is no such graph here                             how long
=====================================================  ==========================================
its place has none, or the slot is in a caller's graph  each time it is asked
the first run of what has no captured bodies            once: a graph pays with the second launch
a body fails, or puts nothing on its stream             for these values: played, it says so
bodies are captured anew behind one on the host         once: the driver tells of refusals too late
there is nothing to do                                  for good, without a word
the driver or a library refuses it                      for good, with a line in the log
=====================================================  ==========================================

A graph is captured for the memory that it works on, so there is a `Variant` for the recorded data (`own`) and some for
other data (`others`). When these are enough, the one that was not launched for the longest time is moved to the data of
the launch. A launch is three steps, so that threads may launch one recording at a time:

1. `plan_launch`, outside of the engine, since bodies may be captured: which variant, and what its nodes are to be.
2. `await_room`, outside of it too, where a graph calls bodies on the host.
3. `put`, inside: unless another thread has changed the variant since, nodes are renewed and the graph is launched. Else
   the launch is planned again.

A lock around all three would stop threads for as long as a body is captured, and a body may launch the same recording.
"""

from __future__ import annotations

import cython

from stf._engine import host_waits
from stf._port.late_values import UNKNOWN
from stf._recording.graph_calls import GraphCalls
from stf._recording.variants import PlayThisTime
from stf._support.log_once import log_once
from stf.errors import CaptureError, TaskFailedError, TaskStateError

LAUNCHED: cython.int = 0
PLAY: cython.int = 1
RETRY: cython.int = 2
OTHERS = 4  # graphs that are kept of launches with other data
LOOK_S = 0.1  # how often who waits for room looks whether its device is lost


class NothingToDo(CaptureError):
    """Raised where what is recorded only orders tasks."""


@cython.final
@cython.cclass
class DriverGraph:
    """The driver's graphs of one recording or routine, made when it pays; `refusal` says why there are none.

    Of that thing it asks ``description``, ``parts``, ``has_calls()``, ``flags()``, ``put(frame)`` and
    ``refusal(place, memory, looped, unread, for_others)``.
    """

    def __init__(self, runs_before):
        self.runs_left = runs_before
        self.others = {}
        self.moves = True

    @property
    def graph(self):
        """The graph for the data that were recorded; None if there is none yet."""
        return None if self.own is None else self.own.graph

    def is_captured(self):
        """Return whether there are graphs, which may be running."""
        return self.own is not None or self.exported is not None or len(self.others) > 0

    def launch(self, frame, thing):
        """Launch `thing` as one graph behind what is on the slot; return False if it is to be played."""
        if not self.may_launch(frame):
            return False
        if self.own is None and frame.launch.rebinding is None and self.runs_left:
            self.runs_left -= 1
            return False
        done: cython.int = RETRY
        while done == RETRY:
            done = self.try_launch(frame, thing)
        return done == LAUNCHED

    def may_launch(self, frame):
        """Return whether there may be a graph where a launch is."""
        engine, where = frame.engine, frame.task.where
        return (
            self.refusal is None
            and engine.place(where).enqueues
            and engine.root.captures is not None
            and engine.root.captures.takes(frame.slot, where)
        )

    def may_capture(self, frame):
        """Return whether a launch is about to capture the recorded data's graph."""
        return self.own is None and not self.runs_left and frame.launch.rebinding is None and self.may_launch(frame)

    def try_launch(self, frame, thing):
        """Plan a launch and submit it: LAUNCHED, PLAY, or RETRY after another thread has changed the graph."""
        if self.refusal is not None:
            return PLAY
        try:
            plan = self.plan_launch(frame, thing)
        except (TaskFailedError, TaskStateError, PlayThisTime):  # of a user's body: played, it says so again
            return PLAY
        except NothingToDo as error:
            self.refusal = str(error)
            return PLAY
        except Exception as error:  # whatever libraries and drivers say; what is played tells what is really wrong
            return self.refuse(frame, thing, str(error) or type(error).__name__)
        if plan is None:
            return RETRY
        try:
            if not submit(frame, plan):
                return RETRY
        except CaptureError as error:
            if plan.after is None:
                return self.refuse(frame, thing, str(error))
            self.moves = False  # the device's library wants it captured anew
            self.forget(plan.before.key, plan.variant)
            return RETRY
        if plan.after is not None:  # it is found by the data that it works on now
            self.forget(plan.before.key, plan.variant)
            self.others[plan.after.key] = plan.variant
        return LAUNCHED

    def plan_launch(self, frame, thing):
        """Return how a launch is done; None if another thread has changed the graph meanwhile.

        Raises
        ------
        PlayThisTime
            It cannot be a graph with these values.
        CaptureError
            It cannot be a graph.
        """
        root, rebinding = frame.engine.root, frame.launch.rebinding
        key = None if rebinding is None else rebinding.key()
        variant = self.variant_for(frame, thing, key)
        plan: LaunchPlan = LaunchPlan.__new__(LaunchPlan)
        plan.variant, plan.before = variant, variant.bound
        if rebinding is not None:
            if plan.before is None:
                return None
            if plan.before.key != key:
                plan.after = rebinding.bound()
                plan.patches = variant.patches_for(plan.before, plan.after)
        plan.later = root.defers(frame.slot, variant.graph)
        if plan.later and plan.after is not None:
            self.forget(plan.before.key, variant)  # it is about to be launched with the data that it has
            return None
        if plan.later and variant.has_bodies:  # CUDA may refuse them, which would be told too late
            host_waits.enter(root, frame.task, frame.slot, frame.engine.pending() != 0)
            if root.defers(frame.slot, variant.graph):
                raise PlayThisTime
            plan.later = False
        if plan.after is None and (plan.later or not is_as_before(frame.values, variant.values)):
            plan.patches = variant.patches
        if plan.patches is not None:
            plan.contents = [
                cython.cast(Patch, patch).content_for(frame.launch, frame.values) for patch in plan.patches
            ]
        return plan

    def forget(self, key, variant):
        """Do not find a graph any more by the data that it worked on."""
        if self.others.get(key) is variant:
            del self.others[key]

    def variant_for(self, frame, thing, key):
        """Return the graph for the recorded data, or for others with a key, ready to be launched."""
        variant = self.own_variant(frame, thing) if key is None else self.variant_for_others(frame, thing, key)
        if not variant.is_ready:
            frame.engine.root.captures.graphs.prepare(variant.graph)
            variant.is_ready = True
        return variant

    def own_variant(self, frame, thing):
        """Return the graph for the recorded data; it is captured with the parameters as they are by default."""
        if self.own is None:
            made = self.captured(frame, thing)
            if self.own is None:  # else another thread did so meanwhile
                self.own = made
        return self.own

    def variant_for_others(self, frame, thing, key):
        """Return a graph for other data; the last ones are kept.

        Once there are some, it is the one that was not launched for the longest time, which a plan has work on these
        data, if its nodes can be renewed one by one.
        """
        known: Variant = self.others.get(key)
        if known is not None and (known.bound is None or known.bound.key != key):
            known = None  # another thread has it work on other data meanwhile
        if known is None and len(self.others) >= OTHERS and self.moves:
            oldest: Variant = next(iter(self.others.values()))
            before = oldest.bound
            if before is not None and None not in oldest.changed_for(before, frame.launch.rebinding.bound()):
                return oldest
        if known is None:
            known = self.captured(frame, thing)
        known = self.others[key] = self.others.pop(key, known)  # it may be another thread's
        if len(self.others) > OTHERS:
            self.others.pop(next(iter(self.others)))  # each launch of it holds it until that is done: see `put`
        return known

    def export(self, frame, thing):
        """Return a graph that others may launch: its bodies on the host belong to no launch of ours, and use no CUDA.

        CaptureError if there can be none.
        """
        if not thing.has_calls():
            if self.own is None and self.refusal is not None:
                raise CaptureError(self.refusal)
            return self.own_variant(frame, thing).graph
        if self.exported is None:
            made = self.captured(frame, thing, True)
            self.exported = made if self.exported is None else self.exported
        return self.exported.graph

    def captured(self, frame, thing, for_others=False):
        """Return a new graph, perhaps one that others launch. CaptureError if there can be none."""
        launch, place = frame.launch, frame.engine.place(frame.task.where)
        reason = thing.refusal(frame.task.where, place.memory, False, frozenset(thing.flags()), for_others)
        if not place.enqueues:
            reason = "its device has no graphs"
        if reason is not None:
            raise CaptureError(reason)
        moves: cython.bint = launch.rebinding is not None and not for_others
        made = Variant(launch, None if for_others else GraphCalls(), getattr(thing, "life", None), moves)
        frame.capture(thing, made)
        if made.graph is None:
            raise NothingToDo("there is nothing to do")
        made.complete()
        if launch.rebinding is not None:
            made.bound = launch.rebinding.bound()
        return made

    def refuse(self, frame, thing, reason):
        """Play it from now on, and say so once, unless it was said of a part of it, because of which this is so; PLAY.

        Graphs that there are may be running, or have been shown.
        """
        self.refusal, self.is_reported = reason, True
        if not was_reported(thing.parts):
            text = "is not one graph of the device's, but driven from the host: %s"
            log_once(thing.description, frame.task.call_site, text, reason)
        return PLAY


def was_reported(parts):
    """Return whether it was said of one of these, or of what they consist of, why it is played."""
    for part in parts:
        graph: DriverGraph = part.graph
        if (graph is not None and graph.is_reported) or was_reported(part.parts):
            return True
    return False


@cython.freelist(8)
@cython.final
@cython.cclass
class LaunchPlan:
    """How one launch uses a graph."""


def submit(frame, plan):
    """Wait for room if the graph calls bodies on the host, and launch it; see `put`."""
    calls = plan.variant.calls
    if calls is None or plan.later:
        return put(frame, plan)
    await_room(frame.engine, calls.room)
    done: cython.bint = False
    try:
        done = put(frame, plan)
    finally:
        if not done:
            calls.room.release()
    return done


def put(frame, plan):
    """Renew the nodes of a graph and launch it, as one step to other threads; False if it changed since it was planned.

    Where the slot waits for a body on the host, the driver does both when the slot gets there.
    """
    engine, launch, variant = frame.engine, frame.launch, plan.variant
    calls = variant.calls
    engine.gate.enter()
    try:
        if variant.bound is not plan.before:
            return False
        if not plan.later:
            if engine.root.defers(frame.slot, variant.graph):
                return False
            if plan.contents is not None:
                renew(frame, plan)
            elif variant.patches is not None and not is_as_before(frame.values, variant.values):
                return False
        if calls is not None:
            calls.expect(launch, frame.values, not plan.later)
        try:
            if plan.later:
                engine.root.captures.queue(frame.slot, variant.graph, changes_later(plan))
            else:
                engine.root.captures.play(frame.slot, variant.graph, False)
        except BaseException:
            if calls is not None:
                calls.take_back(launch)
            raise
        if launch.rebinding is not None:  # another variant may take its place before it is done
            engine.root.keep_alive(frame.slot, variant)
    finally:
        engine.gate.leave()
    return True


def changes_later(plan):
    """Return all nodes that depend on parameters, as the driver renews them; nobody knows after which launch."""
    i: cython.Py_ssize_t
    if plan.contents is None:
        return None
    plan.variant.values = UNKNOWN
    changes = []
    for i in range(len(plan.contents)):
        patch = cython.cast(Patch, plan.patches[i])
        patch.content = None
        changes.append((patch.node, patch.shape, plan.contents[i]))
    return changes


def renew(frame, plan):
    """Let the nodes of a graph be as the values and the data of a launch have them."""
    i: cython.Py_ssize_t
    variant, root = plan.variant, frame.engine.root
    changes = []
    for i in range(len(plan.contents)):
        patch = cython.cast(Patch, plan.patches[i])
        content = plan.contents[i]
        if content is not patch.content and content != patch.content:
            changes.append((patch.node, patch.shape, content, patch))
    if plan.after is not None:
        variant.bound = None  # where this fails, nobody may use it any more
    if changes:
        variant.values = UNKNOWN
        try:
            root.captures.graphs.renew(variant.graph, changes)
        except Exception as error:
            raise CaptureError(str(error) or type(error).__name__) from error
        for change in changes:
            patch = cython.cast(Patch, cython.cast(tuple, change)[3])
            if patch.shape is None:  # a body: launches before this one use what the last one allocated
                root.keep_alive(frame.slot, patch.content)
            patch.content = cython.cast(tuple, change)[2]
    variant.values = frame.values if are_fixed(frame.values) else UNKNOWN
    if plan.after is not None:
        variant.bound = plan.after
    return 0


def await_room(engine, room):
    """Wait until fewer launches of a graph are on their way.

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
    return 0


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
