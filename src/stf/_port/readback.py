"""Readback: the role of a port that shows the host a few bytes of a device without a task that reads them there."""

from __future__ import annotations


class Readback:
    """Base of what the backends have as ``port.readback``; a port that cannot has None there."""

    def begin(self, slot, replica):
        """Read a few bytes of a replica on the slot, for `end` after its end; -1 if that is not possible now."""
        raise NotImplementedError

    def end(self, landing, nbytes):
        """Wait, outside the engine, for what was read and return it; None if it must be asked for otherwise."""
        raise NotImplementedError
