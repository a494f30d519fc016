"""Callers: the role of a port that meets streams which are not its own, those of who calls stf."""

from __future__ import annotations

from stf.errors import CaptureError


class Callers:
    """Base of what the backends have as ``port.callers``; a port that knows no other streams has None there.

    By itself it is that of a recording: nothing in it can wait for streams of others, nor they for it.
    """

    def arrive(self, place, pointer):
        """Return the event at which all is done that is on a caller's stream now; `place` is on its device."""
        raise CaptureError("it comes after work on a stream that is no part of the graph")

    def wait_on(self, slot, pointer):
        """Make what comes on `slot` start after all that is on a caller's stream now."""
        raise CaptureError("it comes after work on a stream that is no part of the graph")

    def signal(self, slot, pointer):
        """Make what comes on a caller's stream start after all that is on `slot` now."""
        raise CaptureError("work on a stream that is no part of the graph would come after it")

    def start_after(self, place, pointer, captured, staged=STAGED):
        """Let all work start after what is on a caller's stream now, which may be captured, with its copies `staged`.

        The port is between that stream's work from then on: it never waits for its own.
        """
        raise NotImplementedError
