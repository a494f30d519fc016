"""The graph backend: a lane is a chain of nodes, and nothing runs before the program is played.

An event is the lane of a node, and its number plus one. A node continues the lane of the first one that it needs, where
that is still the last of its lane; else it begins a lane. So of two events on a lane the later covers the earlier, and
no order is added that the tasks don't have. Memory is real: it comes from the backend that will play the program.
"""

from __future__ import annotations

import cython

from stf.errors import CaptureError

MAX_LANES = (1 << 19) - 1
OUTSIDE_STREAMS = Callers()  # which refuse all
CAPTURE_CHAINS = 64  # by place: as many as a place has streams


class GraphBackend(RecordingPort):
    """Slots become the nodes of a program.

    Parameters
    ----------
    root : Port
        The backend that plays the program, and has the memory.
    """

    def __init__(self, root):
        self.root = root
        self.links = root.links
        self.program = Program()
        self.callers = OUTSIDE_STREAMS
        self.lanes = Numbers()  # of each node
        self.last_on_lane = Numbers()
        self.slots = []
        self.spare = Numbers()
        self.chains = {}  # by place; the one that was taken last comes last
        self.ordered, self.ordered_slots = {}, {}

    def node_of(self, event):
        node: cython.longlong = (event & SEQUENCE) - 1
        if node >= self.program.count or self.lanes.items[node] != event >> LANE_SHIFT:
            raise CaptureError("it would wait for work that is no part of the graph")
        return node

    # -- slots -------------------------------------------------------------------------------------------------

    def begin(self, place, waits, kind):
        slot: cython.int
        if self.spare.count:
            self.spare.count -= 1
            slot = self.spare.items[self.spare.count]
        else:
            slot = len(self.slots)
            self.slots.append(OpenNode())
        node: OpenNode = self.slots[slot]
        node.begin(place, COMPUTE if kind == IN_ORDER else kind)
        self.program.pointers.clear()  # of a launch that did not come
        self.come_after(node, waits)
        if kind == IN_ORDER:
            self.ordered_slots[slot] = place
            if place in self.ordered:
                node.need(self.ordered[place])
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
        node: OpenNode = self.slots[slot]
        if node.capture is not None:
            self.end_capture(node)
        elif node.again is not None:
            if self.program.has_launch(node):
                self.program.blocks.append(node.again)
            node.again = None
        self.spare.add(slot)
        if self.ordered_slots:
            place = self.ordered_slots.pop(slot, None)
            if place is not None:
                self.ordered[place] = self.program.count
        event = self.place_on_lane(node)
        self.program.add(node)
        return event

    def abort(self, slot):
        node: OpenNode = self.slots[slot]
        if node.capture is not None:
            try:
                self.end_capture(node)
            except CaptureError:
                pass  # whoever aborts knows why
        self.program.forget(node)
        self.program.aborted += 1
        return self.end(slot)

    def place_on_lane(self, node):
        """Continue a lane, or begin one, with the next node; return the event."""
        i: cython.longlong
        lane: cython.longlong = -1
        number: cython.longlong = self.program.count
        for i in range(node.needs.count):
            before: cython.longlong = node.needs.items[i]
            if self.last_on_lane.items[self.lanes.items[before]] == before:
                lane = self.lanes.items[before]
                self.last_on_lane.items[lane] = number
                break
        if lane < 0:
            lane = self.last_on_lane.count
            if lane >= MAX_LANES:
                raise CaptureError(f"a graph holds at most {MAX_LANES} chains of tasks; use several graphs")
            self.last_on_lane.add(number)
        self.lanes.add(lane)
        return (lane << LANE_SHIFT) | (number + 1)

    # -- operations --------------------------------------------------------------------------------------------

    def put(self, slot, operation):
        """Add an operation to an open slot."""
        node: OpenNode = self.slots[slot]
        self.must_not_capture(node)
        return self.program.put(node, operation)

    def must_not_capture(self, node):
        """Raise CaptureError if the body of an open node puts work on its stream itself."""
        if node.capture is not None:
            raise CaptureError("it gives stf work beside what it puts on its stream itself; make two tasks of it")
        return 0

    def enqueues(self, place):
        return self.root.enqueues(place)

    def copy(self, slot, target, source, unless=None, number=0):
        target = target.shadow() if target.real is None else target.real
        source = source.shadow() if source.real is None else source.real
        return self.put(slot, (COPY, target, source, number))

    def fill(self, slot, replica, pattern):
        if not self.root.enqueues(replica.place) or len(pattern) not in (1, 2, 4, 8, 16):
            return False
        self.put(slot, (FILL, replica.shadow() if replica.real is None else replica.real, pattern))
        return True

    def launch(self, slot, function, gx, gy, gz, bx, by, bz, shared, block, nbytes):
        node: OpenNode = self.slots[slot]
        self.must_not_capture(node)
        return self.program.put_launch(node, function, gx, gy, gz, bx, by, bz, shared, block, nbytes)

    def put_pointer(self, slot, offset, replica):
        return self.program.put_pointer(offset, replica)

    def vary_launch(self, slot, arguments):
        return self.program.vary_launch(self.slots[slot], arguments)

    def call(self, slot, body):
        return self.put(slot, (CALL, body))

    def run(self, slot, operation):
        values = operation[2]
        self.program.variants += values is not None and any([hasattr(v, "value_in") for v in values.values()])
        return self.put(slot, operation)

    def keep_alive(self, slot, what):
        return self.put(slot, (KEEP, what))

    def may_use(self, place, replica):
        return self.root.may_use(place, replica)

    def enter(self, slot):
        node: OpenNode = self.slots[slot]
        if not self.root.enqueues(node.place):
            raise CaptureError("its body runs where it stands")
        return 0

    def stream(self, slot):
        node: OpenNode = self.slots[slot]
        capture: OpenCapture = node.capture
        if capture is not None:
            capture.make_current()
            return capture.pointer
        if not self.root.enqueues(node.place):
            return None
        if self.root.captures is None:
            raise CaptureError("its device has no graphs")
        chain = self.chain_for(node)
        node.capture = capture = self.root.captures.begin(node.place, chain.owner)
        chain.owner = capture.owner
        chain.open = True
        node.chain = chain
        return capture.pointer

    def chain_for(self, node):
        """Return the chain of captures that a node continues: it comes after the last one there, or after nothing.

        What libraries keep by stream is that of one body at a time, as on streams: see `cuda_graphs.CaptureStream`.
        Where there are as many chains as a place has streams, the node comes after the one that waited for the longest.
        """
        chains: list = self.chains.get(node.place)
        if chains is None:
            chains = self.chains[node.place] = []
        chain: CaptureChain
        oldest: CaptureChain = None
        for item in chains:
            chain = item
            if chain.open:
                continue
            if chain.owner is None or node.needs_node(chain.last):
                return chain
            if oldest is None:
                oldest = chain
        if oldest is None or len(chains) < CAPTURE_CHAINS:
            chain = CaptureChain()
        else:
            chain = oldest
            node.need(chain.last)
            chains.remove(chain)
        chains.append(chain)
        return chain

    def close_capture(self, node):
        """End what is captured on a node; return it, or None if it is nothing."""
        capture: OpenCapture = node.capture
        node.chain.last, node.chain.open = self.program.count, False
        node.capture = node.chain = None
        return capture.end_body()

    def is_spoilt(self, slot):
        node: OpenNode = self.slots[slot]
        capture: OpenCapture = node.capture
        return capture is not None and capture.is_spoilt()

    def drop_capture(self, slot):
        try:
            self.close_capture(self.slots[slot])
        except CaptureError:
            pass  # whoever drops it knows why
        return 0

    def end_capture(self, node):
        """Make a node's operation of what a body put on its stream."""
        again, node.again = node.again, None
        captured = self.close_capture(node)
        varies: cython.bint = again is not None and again.varies
        if captured is not None or varies:
            self.program.variants += varies
            operation = (CAPTURED, captured, again)
            untrack_tuple(operation)
            self.program.put(node, operation)
        return 0

    def capture_again(self, slot, again):
        node: OpenNode = self.slots[slot]
        node.again = again
        return 0

    def drain(self, slot):
        raise CaptureError(
            "a body on a device looks at memory of the host, for which a graph cannot wait; use ctx.host_launch, or "
            "give the task stf.exec_place.host()"
        )

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
