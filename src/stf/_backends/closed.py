"""The port of a context that was inherited through a fork: whatever would reach the parent's driver is refused."""

from __future__ import annotations

from stf._port.port import Port
from stf.errors import ContextClosedError


class ClosedPort(Port):
    """Refuses what tasks that were open at the fork still ask for."""

    def __init__(self, story):
        self.story = story
        self.name = "closed"

    def end(self, slot):
        raise ContextClosedError(self.story)

    def abort(self, slot):
        raise ContextClosedError(self.story)

    def stream(self, slot):
        raise ContextClosedError(self.story)

    def copy(self, slot, target, source, unless=None):
        raise ContextClosedError(self.story)

    def fill(self, slot, replica, pattern):
        raise ContextClosedError(self.story)

    def may_use(self, place, replica):
        raise ContextClosedError(self.story)

    def add_place(self, device, origin):
        raise ContextClosedError(self.story)

    def wait(self, events, timeout_s):
        raise ContextClosedError(self.story)

    def drain(self, slot):
        raise ContextClosedError(self.story)

    def shutdown(self):
        return 0
