"""Graphs of the driver's: what a recording or a routine does, captured while it is played, and launched as one then."""

from __future__ import annotations

import logging

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

from stf._engine.values import UNKNOWN, are_fixed, is_as_before
from stf.errors import CaptureError, TaskFailedError

OTHERS = 4  # graphs that are kept of launches with other data
log = logging.getLogger("stf")


@cython.cclass
class DriverGraph:
    """The driver's graph of one recording or routine, made when it pays; `refusal` says why there is none.

    What cannot be one graph is played, which does the same.
    """

    def __init__(self, runs_before):
        self.runs_left = runs_before
        self.is_ready = False  # it was launched before
        self.graph = self.refusal = None
        self.marks = []
        self.values = UNKNOWN  # of the last launch
        self.others = {}

    def made_for(self, launch, thing, slot):
        """The graph of `thing`, for the values of a launch on a slot; None if the launch is to be played.

        `thing` has a `story`, ``refusal(place, memory, looped, unread)``, ``flags()`` and ``put(launch, slot)``.
        """
        if self.refusal is not None:
            return None
        engine = launch.engine
        if not engine.port_enqueues(launch.task.where):
            self.refusal = "its device has no graphs"
            return None
        if not engine.root.takes_graph(slot, launch.task.where):
            return None
        if self.graph is None and launch.rebinding is None and self.runs_left:
            self.runs_left -= 1
            return None
        launch.slot = slot
        try:
            if launch.rebinding is not None:
                return self.made_for_other_data(launch, thing)
            if self.graph is None:
                self.make(launch, thing)
            if not self.is_ready:
                engine.root.prepare(self.graph)
                self.is_ready = True
            if self.marks and not is_as_before(launch.values, self.values):
                self.values = UNKNOWN
                renew(launch, self.graph, self.marks)
                self.values = launch.values if are_fixed(launch.values) else UNKNOWN
        except TaskFailedError:  # a body of the user's, for the values of this launch: played, it says so again
            return None
        except Exception as error:  # whatever libraries and drivers say; what is played tells what is really wrong
            self.refuse(launch, thing, str(error) or type(error).__name__)
        return self.graph

    def make(self, launch, thing):
        """Capture what it does, with the parameters as they are by default."""
        self.must_suit(launch, thing)
        self.graph, self.marks = launch.capture(thing)
        if self.graph is None:
            raise CaptureError("there is nothing to do")
        self.graph.is_own = bool(self.marks)

    def made_for_other_data(self, launch, thing):
        """The graph for a launch with other data than those that were recorded; the last ones are kept."""
        self.must_suit(launch, thing)
        key = launch.rebinding.key()
        known = self.others.pop(key, None)
        if known is None:
            known = launch.capture(thing)
            if known[0] is None:
                raise CaptureError("there is nothing to do")
            known[0].is_own = bool(known[1])
        self.others[key] = known
        if len(self.others) > OTHERS:
            launch.engine.root.deliver()  # no launch of it is on its way any more
            del self.others[next(iter(self.others))]
        graph, marks = known
        launch.engine.root.prepare(graph)
        renew(launch, graph, marks)
        return graph

    def must_suit(self, launch, thing):
        """Raise CaptureError if there can be no such graph."""
        engine, where = launch.engine, launch.task.where
        reason = thing.refusal(where, engine.affine[where], False, frozenset(thing.flags()))
        if reason is not None:
            raise CaptureError(reason)

    def refuse(self, launch, thing, reason):
        """Play it from now on."""
        launch.engine.root.deliver()  # no launch of what is dropped here is on its way any more
        self.graph, self.marks, self.refusal = None, [], reason
        self.others.clear()
        log.info("%s is not one graph of the device's, but driven from the host: %s", thing.story, reason)


@cython.cclass
class Mark:
    """A node of a driver's graph that depends on parameters, and what it is for the values of the last launch."""

    def __init__(self, node, make, content):
        self.node = node
        self.make = make
        self.content = content


@cython.final
@cython.cclass
class Variation:
    """A launch of a kernel for the values of parameters: its shape, and the bytes of its arguments."""

    def __init__(self, shape, recorded, arguments):
        self.shape = shape
        self.recorded = recorded
        self.arguments = arguments

    def content(self, values):
        """What a driver makes the node of."""
        return self.shape, self.arguments.packed(values, self.recorded)

    def __call__(self, values):
        return self.content(values)


def renew(launch, graph, marks: list):
    """Let the nodes of a graph that depend on parameters be as the values of a launch have them."""
    changes = []
    values = launch.values
    for item in marks:
        mark = cython.cast(Mark, item)
        make = mark.make
        if isinstance(make, Variation):
            content = cython.cast(Variation, make).content(values)
        else:
            content = make(values)
        if content is None:
            raise CaptureError("a body puts nothing on its stream for some values of its parameters")
        if content is not mark.content and content != mark.content:
            changes.append((mark.node, content, mark))
    if not changes:
        return 0
    root = launch.engine.root
    root.renew(graph, changes)
    for change in changes:
        mark = cython.cast(Mark, change[2])
        if not isinstance(change[1], tuple):  # a body: launches before this one use what the last one allocated
            root.keep(launch.slot, mark.content)
        mark.content = change[1]
    return 0
