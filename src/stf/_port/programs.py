"""What a recording holds: nodes, each the operations of one slot, in order, after those of other nodes.

A program may have 100,000 nodes and is played again and again, so it is a few arrays of numbers and no objects per
node: recording costs the same per task however long it is, and the garbage collector has nothing to walk through.
"""

from __future__ import annotations

import cython

NAMES = ("launch", "copy", "fill", "call", "keep", "captured", "run", "launch")


@cython.final
@cython.cclass
class Numbers:
    """A growing array of 64-bit integers."""

    def __cinit__(self):
        if not cython.compiled:
            self.items = []

    def __dealloc__(self):
        if cython.compiled:
            free(self.items)

    def add(self, value):
        """Append a number."""
        if not cython.compiled:
            self.items[self.count :] = [value]
        else:
            self.more(1)[0] = value
        self.count += 1
        return 0

    def more(self, count):
        """Return where so many numbers are to be appended."""
        if self.count + count > self.capacity:
            capacity: cython.longlong = max(2 * self.capacity, self.count + count, 8)
            items = cython.cast("int64_t*", realloc(self.items, capacity * cython.sizeof(cython.longlong)))
            if items == cython.NULL:
                raise MemoryError
            self.items = items
            self.capacity = capacity
        return self.items + self.count

    def clear(self):
        """Forget them, and keep the memory."""
        self.count = 0
        return 0

    def tolist(self):
        """Return a list of them."""
        return [self.items[i] for i in range(self.count)]


if not cython.compiled:
    Numbers.__init__ = Numbers.__cinit__
    del Numbers.__dealloc__, Numbers.more


@cython.final
@cython.cclass
class CaptureChain:
    """Nodes whose bodies are captured on one stream, the `owner`'s, and run one after the other; the `last` of them.

    It is `open` while that is being captured.
    """


@cython.final
@cython.cclass
class OpenNode:
    """A slot that is open: what it comes after, and what is on it so far.

    `capture` is the stream that its body asked for, which is that of a `chain`, and `again` captures what is there for
    other values or other data.
    """

    def __init__(self):
        self.needs = Numbers()
        self.work = Numbers()

    def begin(self, place, kind):
        """Become the node of a slot that begins at a place: nothing is before it, and nothing on it."""
        self.place = place
        self.kind = kind
        self.needs.clear()
        self.work.clear()
        return 0

    def need(self, other):
        """Come after another node."""
        return 0 if self.needs_node(other) else self.needs.add(other)

    def needs_node(self, other):
        """Return whether it comes directly after another node."""
        i: cython.longlong
        found: cython.bint = False
        for i in range(self.needs.count):
            found = found or self.needs.items[i] == other
        return found


@cython.final
@cython.cclass
class Program:
    """The nodes of a recording, each after those that it needs.

    Of node ``i``, ``needs[first_need[i]:first_need[i + 1]]`` are the nodes before it, and
    ``work[first_work[i]:first_work[i + 1]]`` its operations: ``8 * position + kind``, with the position in `launches`
    (function, grid, block, shared memory, bytes of arguments, number of pointers, those arguments, those pointers) or
    in `objects`. A pointer is the offset of an argument and the number of a replica, whose address it is. The other
    fields are in the .pxd.
    """

    def __init__(self):
        self.objects, self.replicas, self.blocks, self.pools = [], [], [], []
        self.kinds, self.launches, self.pointers = Numbers(), Numbers(), Numbers()
        self.needs, self.first_need = Numbers(), Numbers()
        self.work, self.first_work = Numbers(), Numbers()
        self.followed = Numbers()
        self.count = self.aborted = 0
        self.calls = self.steps = self.runs = self.variants = 0
        self.runs_once = False
        self.first_need.add(0)
        self.first_work.add(0)

    def add(self, node):
        """Take a node; what it needs is there. Return its number."""
        i: cython.longlong
        self.kinds.add(4 * node.place + node.kind)
        for i in range(node.needs.count):
            self.needs.add(node.needs.items[i])
            self.followed.items[node.needs.items[i]] += 1
        for i in range(node.work.count):
            self.work.add(node.work.items[i])
        self.first_need.add(self.needs.count)
        self.first_work.add(self.work.count)
        self.followed.add(0)
        self.count += 1
        return self.count - 1

    def put(self, node, operation):
        """Put an operation, whose first item is its kind, on a node that is open."""
        kind: cython.int = operation[0]
        steps: cython.int = kind == CALL and is_step(operation[1])
        self.objects.append(operation)  # first: what is on a node is there
        node.work.add(8 * (len(self.objects) - 1) + kind)
        self.calls += kind == CALL
        self.steps += steps
        self.runs += kind == RUN
        return 0

    def put_launch(self, node, function, gx, gy, gz, bx, by, bz, shared, block, nbytes):
        """Put the launch of a kernel on a node that is open, with its arguments as they are now."""
        if cython.compiled:  # else nobody gets here
            i: cython.longlong
            words = self.launches.more(HEADER + (nbytes + 7) // 8 + self.pointers.count)
            node.work.add(8 * self.launches.count + LAUNCH)
            words[0], words[1], words[2], words[3] = function, gx, gy, gz
            words[4], words[5], words[6], words[7] = bx, by, bz, shared
            words[BYTES], words[POINTERS] = nbytes, self.pointers.count
            memcpy(words + HEADER, cython.cast("void*", cython.cast("uintptr_t", block)), nbytes)
            self.launches.count += HEADER + (nbytes + 7) // 8
            for i in range(self.pointers.count):
                self.launches.add(self.pointers.items[i])
            self.pointers.clear()
        return 0

    def put_pointer(self, offset, replica):
        """Say that an argument of the next launch is the address of a replica."""
        if replica.number < 0:
            self.replicas.append(replica if replica.real is None else replica.real)
            replica.number = len(self.replicas) - 1
        return self.pointers.add((cython.cast(cython.longlong, offset) << 32) | replica.number)

    def vary_launch(self, node, arguments):
        """Let `arguments`, at each launch, say those of the kernel that was put on a node last."""
        i: cython.longlong = node.work.count - 1
        position: cython.longlong = node.work.items[i] >> 3
        self.objects.append((VARIED, position, arguments))
        node.work.items[i] = 8 * (len(self.objects) - 1) + VARIED
        self.variants += 1
        return 0

    def forget(self, node):
        """Take off what is on a node that is open."""
        i: cython.longlong
        for i in range(node.work.count):
            kind: cython.longlong = node.work.items[i] & 7
            self.calls -= kind == CALL
            self.runs -= kind == RUN
            if kind != LAUNCH:
                position: cython.longlong = node.work.items[i] >> 3
                self.steps -= kind == CALL and is_step(self.objects[position][1])
                again = self.objects[position][2] if kind == CAPTURED else None
                if kind == RUN and self.objects[position][2] is not None:
                    self.variants -= any([hasattr(v, "value_in") for v in self.objects[position][2].values()])
                self.variants -= kind == VARIED or (again is not None and again.varies)
                self.objects[position] = None
        node.work.clear()
        return 0

    def operation(self, position):
        """Return an operation that is no launch, by its position in `work`."""
        return self.objects[self.work.items[position] >> 3]

    def is_last(self, index):
        """Return whether no other node comes after one."""
        return not self.followed.items[index]

    def continues_alone(self, node):
        """Return whether a node comes after one other, which does something, and after which no other node comes."""
        first: cython.longlong = self.first_need.items[node]
        if self.first_need.items[node + 1] != first + 1:
            return False
        before: cython.longlong = self.needs.items[first]
        return self.followed.items[before] == 1 and self.first_work.items[before] != self.first_work.items[before + 1]

    def continues_at_once(self, node):
        """Return whether there is a node of that number, and it continues the one just before it, at its place."""
        if node >= self.count or not self.continues_alone(node):
            return False
        return self.needs.items[self.first_need.items[node]] == node - 1 and (
            self.kinds.items[node] == self.kinds.items[node - 1]
        )

    def bodies(self):
        """Return what calls or captures bodies anew, for other values or other data."""
        known = [operation for operation in self.objects if operation is not None]
        called = [operation[1] for operation in known if operation[0] == CALL]
        captured = [operation[2] for operation in known if operation[0] == CAPTURED and operation[2] is not None]
        return called + captured + self.blocks

    def ends_with(self, nodes):
        """Return whether no node is last but these."""
        return all([self.followed.items[node] or node in nodes for node in range(self.count)])

    def needs_of(self, node):
        """Return the nodes that one comes after."""
        return [self.needs.items[i] for i in range(self.first_need.items[node], self.first_need.items[node + 1])]

    def routines(self):
        """Return the nested programs of each node; None where the host has a step."""
        i: cython.longlong
        node: cython.longlong
        found = []
        for node in range(self.count):
            parts: list = []
            for i in range(self.first_work.items[node], self.first_work.items[node + 1]):
                kind: cython.longlong = self.work.items[i] & 7
                if kind == CALL and is_step(self.operation(i)[1]):
                    parts = None
                    break
                if kind == RUN:
                    parts.append(self.operation(i)[1])
            found.append(parts)
        return found

    def has_launch(self, node):
        """Return whether a node that is open has the launch of a kernel."""
        return any([node.work.items[i] & 7 in (LAUNCH, VARIED) for i in range(node.work.count)])

    def has_ended(self):
        """Return whether any node has ended as it was meant to: what it held is free when the program was launched."""
        return self.count > self.aborted

    def has_captures(self):
        """Return whether bodies were captured."""
        return any([operation is not None and operation[0] == CAPTURED for operation in self.objects])

    def sharing(self, adds):
        """Return a program without nodes, which may take nodes of this one.

        It `adds` operations of its own, or does not.
        """
        other = Program()
        other.objects = list(self.objects) if adds else self.objects  # this one must not hold those
        other.replicas, other.blocks, other.launches = self.replicas, self.blocks, self.launches
        other.pools, other.runs_once = self.pools, self.runs_once
        return other

    def take(self, other: Program, chosen, needs):
        """Take a node of a program that this one shares its operations with, after nodes of its own; its number here.

        With a tuple `chosen`, it is (place, an operation to do there); else the node's number in `other`.
        """
        i: cython.longlong
        node = OpenNode()
        if isinstance(chosen, tuple):
            node.begin(chosen[0], 0)
            self.put(node, chosen[1])
        else:
            number: cython.longlong = chosen
            node.begin(other.kinds.items[number] >> 2, other.kinds.items[number] & 3)
            for i in range(other.first_work.items[number], other.first_work.items[number + 1]):
                word: cython.longlong = other.work.items[i]
                node.work.add(word)
                self.calls += word & 7 == CALL
                self.steps += word & 7 == CALL and is_step(other.operation(i)[1])
                self.runs += word & 7 == RUN
        for need in needs:
            node.need(need)
        return self.add(node)

    def stays_at(self, place, memory, unread):
        """Return whether all is done at one execution place, in its memory.

        Copies of the data `unread` do not count.
        """
        node: cython.longlong
        i: cython.longlong
        for node in range(self.count):
            first: cython.longlong = self.first_work.items[node]
            for i in range(first, self.first_work.items[node + 1]):
                kind: cython.longlong = self.work.items[i] & 7
                if kind == COPY:
                    operation = self.operation(i)
                    if operation[1].data not in unread and {operation[1].place, operation[2].place} != {memory}:
                        return False
                elif kind != RUN and self.kinds.items[node] >> 2 != place:
                    return False
        return True

    def edges(self):
        """(before, after) by number, for people and tests."""
        first, needs = self.first_need.tolist(), self.needs.tolist()
        return [(before, node) for node in range(self.count) for before in needs[first[node] : first[node + 1]]]

    def work_of(self, node):
        """Return the operations of a node that are no launches, for people and tests."""
        first, last = self.first_work.items[node], self.first_work.items[node + 1]
        return [self.operation(i) for i in range(first, last) if self.work.items[i] & 7 != LAUNCH]

    def contents(self):
        """Return what every node does: its place, and of each operation its name and what it is of."""
        return [self.content_of(node) for node in range(self.count)]

    def content_of(self, node):
        """Return the place of a node, and of each of its operations the name and what it is of."""
        i: cython.longlong
        number: cython.longlong = node
        operations = []
        for i in range(self.first_work.items[number], self.first_work.items[number + 1]):
            kind: cython.longlong = self.work.items[i] & 7
            if kind == LAUNCH:
                operations.append((NAMES[kind], (self.launch_at(self.work.items[i] >> 3),)))
            elif kind == VARIED:
                operation = self.operation(i)
                operations.append((NAMES[kind], (self.launch_at(operation[1]), operation[2])))
            else:
                operations.append((NAMES[kind], self.operation(i)[1:]))
        return self.kinds.items[number] >> 2, operations

    def launch_at(self, position):
        """Return the launch of a kernel: function and shape, the bytes of its arguments without pointers, and those."""
        if not cython.compiled:
            return None
        i: cython.longlong
        start: cython.longlong = position
        words = self.launches.items + start
        content = bytearray(cython.cast("char*", words + HEADER)[: words[BYTES]])
        pointers = words + HEADER + (words[BYTES] + 7) // 8
        given = []
        for i in range(words[POINTERS]):
            offset: cython.longlong = pointers[i] >> 32
            content[offset : offset + 8] = bytes(8)
            given.append((offset, self.replicas[pointers[i] & 0xFFFFFFFF]))
        return tuple([words[i] for i in range(HEADER)]), bytes(content), given

    def block_at(self, position, others):
        """Return the bytes of all arguments of a launch, as they were recorded or with the addresses of other replicas.

        These `others` are by the identity of the recorded ones; None if there are none.
        """
        content: bytes = b""
        if cython.compiled:
            i: cython.longlong
            words = self.launches.items + position
            content = cython.cast("char*", words + HEADER)[: words[BYTES]]
            pointers = words + HEADER + (words[BYTES] + 7) // 8
            for i in range(0 if others is None else words[POINTERS]):
                replica: Replica = self.replicas[pointers[i] & 0xFFFFFFFF]
                replica = others.get(id(replica), replica)
                offset: cython.longlong = pointers[i] >> 32
                memcpy(cython.cast("char*", content) + offset, cython.address(replica.address), 8)  # nobody has it yet
        return content

    def replicas_at(self, position):
        """Return the replicas whose addresses are among the arguments of a launch."""
        return [replica for _, replica in self.launch_at(position)[2]]

    def shape_of(self, position):
        """Return the launch of a kernel: function, grid, block and bytes of shared memory."""
        if not cython.compiled:
            return None
        words = self.launches.items + cython.cast(cython.longlong, position)
        return (words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7])

    def operations(self):
        """Return the operations of every node by name, for people and tests."""
        first, work = self.first_work.tolist(), self.work.tolist()
        return [[NAMES[item & 7] for item in work[first[node] : first[node + 1]]] for node in range(self.count)]


def is_step(body):
    """Return whether a body on the host may use CUDA, so that it is a step between graphs of the driver's."""
    return not getattr(body, "in_graphs", False)
