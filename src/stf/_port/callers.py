"""Callers: the role of a port that meets streams which are not its own, those of who calls stf."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]

if not cython.compiled:
    STAGED = 2


class Callers:
    """Base of what the backends have as ``port.callers``; a port that knows no other streams has None there."""

    def arrive(self, place, pointer):
        """Return the event at which all is done that is on a caller's stream now; `place` is on its device."""
        raise NotImplementedError

    def wait_on(self, slot, pointer):
        """Make what comes on `slot` start after all that is on a caller's stream now."""
        raise NotImplementedError

    def signal(self, slot, pointer):
        """Make what comes on a caller's stream start after all that is on `slot` now."""
        raise NotImplementedError

    def start_after(self, place, pointer, captured, staged=STAGED):
        """Let all work start after what is on a caller's stream now, which may be captured, with its copies `staged`.

        The port is between that stream's work from then on: it never waits for its own.
        """
        raise NotImplementedError
