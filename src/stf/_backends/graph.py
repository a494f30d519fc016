"""The graph backend: a lane is a chain of nodes, and nothing runs before the program is played.

An event is the lane of a node and its place there. A node continues the lane of the first one that it needs, where that
is still the last of its lane; else it begins a lane. So of two events on a lane the later covers the earlier, and no
order is added that the tasks don't have. Memory is real: it comes from the backend that will play the program.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

from stf._engine.nodes import Node, Program
from stf._engine.ports import Port
from stf.errors import CaptureError

if not cython.compiled:
    LANE_SHIFT = 44
    LAUNCH, COPY, FILL, CALL, KEEP, CAPTURED, RUN = 0, 1, 2, 3, 4, 5, 6

MAX_LANES = (1 << 19) - 1


class GraphBackend(Port):
    """Slots become the nodes of a program.

    Parameters
    ----------
    root : Port
        The backend that plays the program, and has the memory.
    """

    def __init__(self, root):
        self.name = "graph"
        self.root = root
        self.program = Program()
        self.lanes = []
        self.slots = []
        self.spare = []
        self.captures = {}
        self.recaptures = {}
        self.pools = None

    def node_of(self, event):
        """The node that ends with `event`."""
        if event >> LANE_SHIFT >= len(self.lanes):
            raise CaptureError("it would wait for work that is no part of the graph")
        lane: list = self.lanes[event >> LANE_SHIFT]
        sequence: cython.longlong = event & ((cython.cast(cython.longlong, 1) << LANE_SHIFT) - 1)
        return lane[sequence - 1]

    # -- slots -------------------------------------------------------------------------------------------------

    def begin(self, place, waits, kind):
        node = Node(place, kind)
        self.come_after(node, waits)
        if self.spare:
            slot: cython.int = self.spare.pop()
            self.slots[slot] = node
        else:
            slot = len(self.slots)
            self.slots.append(node)
        return slot

    def come_after(self, node, waits):
        i: cython.int
        for i in range(waits.count):
            node.need(self.node_of(waits.items[i]))
        return 0

    def join(self, slot, waits):
        if waits.count:
            self.come_after(self.slots[slot], waits)
        return 0

    def end(self, slot):
        node: Node = self.slots[slot]
        if slot in self.captures:
            self.end_capture(slot, node)
        self.slots[slot] = None
        self.spare.append(slot)
        self.program.add(node)
        return self.place_on_lane(node)

    def abort(self, slot):
        node: Node = self.slots[slot]
        if slot in self.captures:
            try:
                self.end_capture(slot, node)
            except CaptureError:
                pass  # whoever aborts knows why
        for operation in node.operations:
            if operation[0] == CALL:
                self.program.calls -= 1
            elif operation[0] == RUN:
                self.program.runs -= 1
        node.operations.clear()
        return self.end(slot)

    def place_on_lane(self, node):
        """Continue a lane, or begin one; return the event."""
        for item in node.needs:
            before: Node = item
            if before.sequence == len(self.lanes[before.lane]):
                node.lane = before.lane
                break
        else:
            if len(self.lanes) >= MAX_LANES:
                raise CaptureError(f"a graph holds at most {MAX_LANES} chains of tasks; use several graphs")
            node.lane = len(self.lanes)
            self.lanes.append([])
        lane: list = self.lanes[node.lane]
        lane.append(node)
        node.sequence = len(lane)
        return (cython.cast(cython.longlong, node.lane) << LANE_SHIFT) | node.sequence

    # -- operations --------------------------------------------------------------------------------------------

    def put(self, slot, operation):
        """Add an operation to an open slot."""
        node: Node = self.slots[slot]
        if slot in self.captures:
            raise CaptureError("it gives stf work beside what it puts on its stream itself; make two tasks of it")
        node.operations.append(operation)
        return 0

    def enqueues(self, place):
        return self.root.enqueues(place)

    def copy(self, slot, target, source):
        target = target.shadow() if target.origin is None else target.origin
        source = source.shadow() if source.origin is None else source.origin
        return self.put(slot, (COPY, target, source))

    def fill(self, slot, replica, pattern):
        if not self.root.enqueues(replica.place) or len(pattern) not in (1, 2, 4, 8, 16):
            return False
        self.put(slot, (FILL, replica.shadow() if replica.origin is None else replica.origin, pattern))
        return True

    def launch(self, slot, function, gx, gy, gz, bx, by, bz, shared, block, nbytes):
        if cython.compiled:
            arguments = cython.cast("const char*", cython.cast("void*", block))[:nbytes]
        else:
            arguments = b""
        return self.put(slot, (LAUNCH, (function, gx, gy, gz, bx, by, bz, shared), arguments))

    def call(self, slot, body):
        self.program.calls += 1
        return self.put(slot, (CALL, body))

    def run(self, slot, routine):
        """Run a nested program when the slot gets there."""
        self.program.runs += 1
        return self.put(slot, (RUN, routine))

    def keep(self, slot, what):
        return self.put(slot, (KEEP, what))

    def disown(self, replica):
        return 0

    def may_use(self, place, replica):
        return self.root.may_use(place, replica)

    def enter(self, slot):
        node: Node = self.slots[slot]
        if not self.root.enqueues(node.place):
            raise CaptureError("its body runs where it stands")
        return 0

    def stream(self, slot):
        node: Node = self.slots[slot]
        if not self.root.enqueues(node.place):
            return None
        if slot not in self.captures:
            self.captures[slot] = self.root.begin_capture(node.place)
        return self.captures[slot].pointer

    def end_capture(self, slot, node):
        """Make a node's operation of what a body put on its stream."""
        captured = self.captures.pop(slot).end()
        if captured is not None:
            again = self.recaptures.pop(slot, None)
            self.program.variants += again is not None
            node.operations.append((CAPTURED, captured, self.pools, again))
        return 0

    def capture_again(self, slot, again):
        """Say how what is captured on a slot is captured for other values of parameters."""
        self.recaptures[slot] = again
        return 0

    def follow(self, slot, pointer):
        raise CaptureError("it comes after work on a stream that is no part of the graph")

    def lead(self, slot, pointer):
        raise CaptureError("work on a stream that is no part of the graph would come after it")

    def drain(self, slot):
        raise CaptureError("its body on a device looks at memory of the host, for which it would have to wait")

    # -- memory ------------------------------------------------------------------------------------------------

    def alloc(self, slot, replica):
        raise CaptureError("memory is reserved outside of the graph")

    def free(self, replica, waits, want_event):
        raise CaptureError("memory is freed outside of the graph")

    # -- waiting -----------------------------------------------------------------------------------------------

    def tails(self, into):
        return 0

    def tails_at(self, place, into):
        return 0

    def wait(self, events, timeout_s):
        raise CaptureError("nothing of a graph is complete before it was launched")

    def done(self, event):
        return False

    def runners(self, events, slot):
        return ()

    def distance(self, source, target):
        return self.root.distance(source, target)
