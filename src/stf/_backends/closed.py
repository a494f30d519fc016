"""The port of a context that was inherited through a fork: whatever would reach the parent's driver is refused."""

from __future__ import annotations

from stf._port.links import Links
from stf.errors import ContextClosedError


class ClosedPort(Port):
    """Refuses what tasks that were open at the fork still ask for."""

    def __init__(self, description):
        self.description = description
        self.links = Links()

    def end(self, slot):
        raise ContextClosedError(self.description)

    def stream(self, slot):
        raise ContextClosedError(self.description)

    def copy(self, slot, target, source, unless=None, number=0):
        raise ContextClosedError(self.description)

    def fill(self, slot, replica, pattern):
        raise ContextClosedError(self.description)

    def may_use(self, place, replica):
        raise ContextClosedError(self.description)

    def add_place(self, device, foreign_handle):
        raise ContextClosedError(self.description)

    def wait(self, events, timeout_s):
        raise ContextClosedError(self.description)

    def drain(self, slot):
        raise ContextClosedError(self.description)
