"""The port of an open recording: a port that keeps what it is asked, and what is said to a recording alone."""

from __future__ import annotations


class RecordingPort(Port):
    """Base of the backends that record; its slots become nodes of `program`.

    Attributes
    ----------
    program : Program
        What was recorded so far, for those who launch it.
    """

    def node_of(self, event):
        """Return the number of the node that ends with `event`."""
        raise NotImplementedError

    def run(self, slot, operation):
        """Run a nested program when the slot gets there.

        That is (RUN, routine, values that it was given or None, an outcome of its own or None, outcomes of its inputs).
        """
        raise NotImplementedError

    def put_pointer(self, slot, offset, replica):
        """Say that an argument of the next launch on the slot, at an offset, is the address of a replica."""
        raise NotImplementedError

    def vary_launch(self, slot, arguments):
        """Let `arguments` say, at each launch, those of the kernel that was put on a slot last."""
        raise NotImplementedError

    def capture_again(self, slot, again):
        """Say how what is captured on a slot is captured for other values of parameters, or other data."""
        raise NotImplementedError

    def is_spoilt(self, slot):
        """Return whether a body has called what cannot be captured, so that nothing of it is left."""
        raise NotImplementedError

    def drop_capture(self, slot):
        """Forget what a body has put on its stream so far."""
        raise NotImplementedError

    def keep_body(self, again):
        """Remember a body that runs at each launch: it says what other data it can have."""
        self.program.blocks.append(again)
        return 0
