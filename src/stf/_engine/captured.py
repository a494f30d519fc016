"""Graphs of the driver's: what a recording or a routine does, captured while it is played, and launched as one then."""

from __future__ import annotations

import logging
from typing import Any

from stf.errors import CaptureError, TaskFailedError

OTHERS = 4  # graphs that are kept of launches with other data
log = logging.getLogger("stf")


class DriverGraph:
    """The driver's graph of one recording or routine, made when it pays; `refusal` says why there is none.

    What cannot be one graph is played, which does the same.
    """

    def __init__(self, runs_before: int) -> None:
        self.runs_left = runs_before
        self.graph: Any = None
        self.refusal: str | None = None
        self.marks: list[Mark] = []
        self.others: dict[Any, Any] = {}

    def made_for(self, launch: Any, thing: Any, slot: int) -> Any:
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
            self.renew(launch, self.graph, self.marks)
        except TaskFailedError:  # a body of the user's, for the values of this launch: played, it says so again
            return None
        except Exception as error:  # whatever libraries and drivers say; what is played tells what is really wrong
            self.refuse(launch, thing, str(error) or type(error).__name__)
        return self.graph

    def make(self, launch: Any, thing: Any) -> None:
        """Capture what it does, with the parameters as they are by default."""
        self.must_suit(launch, thing)
        self.graph, self.marks = launch.capture(thing)
        if self.graph is None:
            raise CaptureError("there is nothing to do")
        self.graph.is_own = bool(self.marks)

    def made_for_other_data(self, launch: Any, thing: Any) -> Any:
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
        self.renew(launch, *known)
        if len(self.others) > OTHERS:
            launch.engine.root.deliver()  # no launch of it is on its way any more
            del self.others[next(iter(self.others))]
        return known[0]

    def renew(self, launch: Any, graph: Any, marks: list[Mark]) -> None:
        """Have an executable whose nodes that depend on parameters are as a launch has them."""
        launch.engine.root.prepare(graph)
        for mark in marks:
            mark.renew(launch, graph)

    def must_suit(self, launch: Any, thing: Any) -> None:
        """Raise CaptureError if there can be no such graph."""
        engine, where = launch.engine, launch.task.where
        reason = thing.refusal(where, engine.affine[where], False, frozenset(thing.flags()))
        if reason is not None:
            raise CaptureError(reason)

    def refuse(self, launch: Any, thing: Any, reason: str) -> None:
        """Play it from now on."""
        launch.engine.root.deliver()  # no launch of what is dropped here is on its way any more
        self.graph, self.marks, self.refusal = None, [], reason
        self.others.clear()
        log.info("%s is not one graph of the device's, but driven from the host: %s", thing.story, reason)


class Mark:
    """A node of a driver's graph that depends on parameters, and what it is for the values of the last launch."""

    def __init__(self, node: int, make: Any, content: Any) -> None:
        self.node = node
        self.make = make
        self.content = content

    def renew(self, launch: Any, graph: Any) -> None:
        """Let it be as the values of a launch have it."""
        content = self.make(launch.values)
        if content is None:
            raise CaptureError("a body puts nothing on its stream for some values of its parameters")
        if content is not self.content and content != self.content:
            root = launch.engine.root
            root.renew(graph, self.node, content)
            if not isinstance(content, tuple):  # a body: launches before this one use what the last one allocated
                root.keep(launch.slot, self.content)
            self.content = content
