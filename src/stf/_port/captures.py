"""Captures: the role of a port on devices whose work can be recorded as graphs, and launched as such.

A graph is what its driver makes of it; the port hands it on. Three uses share these verbs: a body's own work that
becomes a node of a recording, a whole recording that becomes one graph, and the nodes of that graph which are changed
between launches.
"""

from __future__ import annotations


class OpenCapture:
    """Base of a stream whose work is recorded, until it ends.

    Attributes
    ----------
    pointer : int
        The device library's stream; one object as long as it is captured for the same `owner`.
    owner : object
        What keeps the stream for captures that come one after the other.
    """

    def make_current(self):
        """Make the device current in this thread, until the end, for who puts something on the stream."""
        raise NotImplementedError

    def is_spoilt(self):
        """Return whether a call that cannot be captured has ended it."""
        raise NotImplementedError

    def end(self):
        """Return what was recorded; None for nothing. Raise CaptureError if that is spoilt."""
        raise NotImplementedError

    def end_body(self):
        """As `end`, of a body: what was recorded has the stream's owner."""
        raise NotImplementedError


class Captures:
    """Base of what the backends have as ``port.captures``; a port without graphs has None there.

    Attributes
    ----------
    graphs : Graphs
        The driver's (`_drivers.roles.Graphs`): it prepares and changes what was captured, and tells what is in a graph
        that is being captured, by the stream of a slot.
    """

    def begin(self, place, owner):
        """Return a stream at `place` whose work is recorded, an `OpenCapture`.

        It is the stream of an earlier capture, whose `owner` is given, or with None one that no other has.
        """
        raise NotImplementedError

    def takes(self, slot, place):
        """Return whether a graph for a place can be launched on a slot, which no caller captures."""
        raise NotImplementedError

    def play(self, slot, captured, fixed):
        """Put on the slot what was captured; in a graph that the slot is captured into, `fixed` is not renewed."""
        raise NotImplementedError

    def play_all(self, slot, captured):
        """Put on the slot, one after the other, what is in a list; in a graph, nothing of it is renewed."""
        for item in captured:
            self.play(slot, item, True)
        return 0

    def queue(self, slot, captured, changes):
        """Put it on the slot for later, after changes of all its nodes that may change; None: none may."""
        raise NotImplementedError

    def capture(self, place, play, staged):
        """Return what ``play(port)`` puts on the lanes of a captured stream, as a graph; it returns the last slot."""
        raise NotImplementedError

    # -- on a port whose work is captured ----------------------------------------------------------------------

    def call(self, slot, body, targets):
        """Call `body()` on the host whenever the graph gets there that is captured, and launched here.

        It may write the replicas `targets`.
        """
        raise NotImplementedError

    def launch(self, slot, function, shape, offsets, arguments, at_once):
        """Put the launch of a function on the slot, perhaps with all blocks running at once.

        See `Functions.launch` of the drivers.
        """
        raise NotImplementedError

    def condition(self, slot, loops):
        """Return a condition of the graph that a slot is captured into; it does not hold until something decides."""
        raise NotImplementedError

    def decide(self, slot, condition, decision):
        """Let a condition hold by a flag, and as long as a counter, which counts then, is below a limit.

        The `decision` is (address of the flag, address of the counter, limit, whether the flag must be true); without a
        flag, or a counter, that does not count.
        """
        raise NotImplementedError

    def play_if(self, slot, condition, play):
        """Do on the slot what ``play(port)`` puts on lanes of their own, as often as a condition holds.

        One after the other: a GPU that decides about two parts of a graph at a time may stop for good.
        """
        raise NotImplementedError
