"""Launches that are more than a grid of blocks: in clusters, cooperative, overlapping. A graph captures them."""

from __future__ import annotations

import cython


@cython.final
@cython.cclass
class LaunchCapture(Recaptured):
    """A recorded launch, captured anew for one with other values of its parameters, or with other data.

    `how` is what ``FunctionsAt.launch`` takes before the arguments; `pointers` are (offset, replica) of
    those that are addresses, and `arguments` make those that are parameters.
    """

    def __init__(self, task, how, content, pointers, arguments):
        self.describe(task)
        engine: Engine = task.engine
        self.varies = arguments is not None
        self.port = engine.root
        self.how = how
        self.content = content
        self.pointers = pointers
        self.arguments = arguments
        self.where = task.where
        self.last = None

    def refuses(self, data):
        """Whether it works on some of the data, by number, and cannot on others in their place."""
        return False

    def replicas(self):
        """Return the recorded replicas that others take the place of when it is captured anew for other data."""
        return [replica for _, replica in self.pointers]

    def __call__(self, first, values, rebinding=None):
        """Return what is captured for the values and the data of a launch; `first` is that of the defaults."""
        content = self.content
        if self.arguments is not None:
            content = self.arguments.packed(values, content)
        if rebinding is not None:
            changed = bytearray(content)
            for offset, replica in self.pointers:
                changed[offset : offset + 8] = rebinding.replica_for(replica).address.to_bytes(8, "little")
            content = bytes(changed)
        if content == self.content:
            return first
        last: tuple = self.last
        if last is None or last[0] != content:
            last = self.last = (content, self.capture(content))
        return last[1]

    def capture(self, content):
        """Return the launch with these arguments, captured by itself."""
        capture = self.port.captures.begin(self.where, None)
        try:
            self.port.kernels.at(self.where).launch(*self.how, content, capture.pointer)
        finally:
            captured = capture.end()
        return captured

    def parts(self):
        """Return what it does, to be compared.

        How it is launched, what it gets but for addresses, these, and parameters.
        """
        content = bytearray(self.content)
        for offset, _ in self.pointers:
            content[offset : offset + 8] = bytes(8)
        late = () if self.arguments is None else self.arguments.late
        return self.how[:3], bytes(content), self.pointers, late
