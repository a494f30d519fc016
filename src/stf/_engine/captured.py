"""Graphs of the driver's: what a recording or a routine does, captured while it is played, and launched as one then."""

from __future__ import annotations

import logging
from typing import Any

from stf.errors import CaptureError, DriverError

OTHERS = 4  # graphs that are kept of launches with other data
log = logging.getLogger("stf")


class DriverGraph:
    """The driver's graph of one recording or routine, made when it pays; `refusal` says why there is none."""

    def __init__(self, runs_before: int) -> None:
        self.runs_left = runs_before
        self.graph: Any = None
        self.refusal: str | None = None
        self.marks: list[Mark] = []
        self.others: dict[Any, Any] = {}

    def made_for(self, launch: Any, thing: Any) -> Any:
        """The graph of `thing`, for the values of a launch; None if the launch is to be played.

        `thing` has a `story`, ``refusal(place, memory, looped, unread)``, and ``put(launch, slot)``.
        """
        if self.refusal is not None:
            return None
        if launch.rebinding is not None:
            return self.made_for_other_data(launch, thing)
        if self.graph is None:
            if self.runs_left:
                self.runs_left -= 1
                return None
            self.make(launch, thing)
        elif self.marks:
            self.renew(launch, thing)
        return self.graph

    def made_for_other_data(self, launch: Any, thing: Any) -> Any:
        """The graph for a launch with other data than those that were recorded; the last ones are kept."""
        if self.why_not(launch, thing) is not None:
            return None
        key = launch.rebinding.key()
        known = self.others.pop(key, None)
        if known is None:
            known = launch.capture(thing)
            if known[1]:
                known[0].is_own = True
        else:
            for mark in known[1]:
                mark.renew(launch, known[0])
        self.others[key] = known
        if len(self.others) > OTHERS:
            launch.engine.root.deliver()  # no launch of it is on its way any more
            del self.others[next(iter(self.others))]
        return known[0]

    def make(self, launch: Any, thing: Any) -> None:
        """Capture what it does."""
        self.refusal = self.why_not(launch, thing)
        if self.refusal is None:
            try:
                self.graph, self.marks = launch.capture(thing)
                self.refusal = None if self.graph is not None else "there is nothing to do"
                if self.marks:
                    self.graph.is_own = True
            except (CaptureError, DriverError) as error:
                self.refusal = str(error)
        if self.refusal is not None:
            log.info("%s is not one graph of the device's, but driven from the host: %s", thing.story, self.refusal)

    def why_not(self, launch: Any, thing: Any) -> str | None:
        """Why there can be no such graph; None if there may be one."""
        engine, where = launch.engine, launch.task.where
        if not engine.port_enqueues(where):
            return "its device has no graphs"
        reason: str | None = thing.refusal(where, engine.affine[where], False, frozenset(thing.flags()))
        return reason

    def renew(self, launch: Any, thing: Any) -> None:
        """Let the nodes that depend on parameters be as a launch has them."""
        try:
            for mark in self.marks:
                mark.renew(launch, self.graph)
        except DriverError as error:
            self.graph, self.marks, self.refusal = None, [], str(error)
            log.info("%s is driven from the host from now on: %s", thing.story, error)


class Mark:
    """A node of a driver's graph that depends on parameters, and what it is for the values of the last launch."""

    def __init__(self, node: int, make: Any, content: Any) -> None:
        self.node = node
        self.make = make
        self.content = content

    def renew(self, launch: Any, graph: Any) -> None:
        """Let it be as the values of a launch have it."""
        content = self.make(launch.values)
        if content is not self.content and content != self.content:
            launch.engine.root.renew(graph, self.node, content)
            self.content = content
