# cython: nonecheck=False
"""The order of eviction at one place: by next use where that is known, and else by rank and last use.

Eviction wants the replica with the lowest key; among equal keys, the least recently used one. The key is made of two
numbers::

    invalid content      0
    else                 rank + 2 x (NEVER - next use)      rank 1: another replica is valid, 2: this is the only one
    stays                STAYS

The next use is the number of the task that uses the data next. A plan knows it (`Engine.next_use`). Without a plan it
is NEVER, and the key is the rank. With one, the replica that is needed last goes first (Belady's rule).

While tasks run, uses make replicas recent, copies and writes elsewhere change keys, and data come and go. No such step
may cost more when there are more data.

Each replica has a position. A use moves it to the next free position, so positions are in the order of last use. Above
the positions stands a binary tree. Each node has the lowest key below it::

                       0                3: no replica, or one that stays
               2               0
           3       2       0       1
         3   3   2   3   1   0   3   1
    position 0  1  2  3 ...

The way from the root along its key, to the left where both sides have it, leads to the replica that goes next. A new
key is written at its position and upwards, as far as it changes a node. Without a plan that is one or two nodes after
a use, since neighbours mostly have the same rank. When the positions are used up, the replicas get new ones without
gaps. Then at least half of the positions are free.

A use only puts its replica among the recent ones, and further uses cost nothing. The recent ones are moved together, in
the order of their last uses: before a choice, and when there are 64. So tasks that use few data pay next to nothing.

For 10^5 data, half of which have room, these were tried or considered:

- A sort of all data for each choice took 99 ms (`benchmarks/overhead/against.py`, row `evict_100k`); this takes 1 µs.
- A linked list per rank is as quick for uses. But a replica whose rank changes without a use must be inserted in the
  middle, after a search.
- Heaps with entries that are corrected when they come to the top make uses free. The first choice after many tasks
  corrects all of them at once, which would take some 30 ms.
- Positions without the list of recent replicas made a task with two data a fifth slower.
- A heap by next use beside the tree would be a second mechanism, with entries of its own to correct.
"""

from __future__ import annotations

import cython

LEAST_ROOM: cython.Py_ssize_t = 64
MOST_RECENT: cython.int = 64


@cython.final
@cython.cclass
class EvictionOrder:
    """The replicas with memory of ours at one place; a replica knows its position, 0 is none."""

    def __init__(self):
        self.replicas = [None] * LEAST_ROOM
        self.keys = new_keys(LEAST_ROOM)
        self.room = LEAST_ROOM
        self.end = 1
        self.recent = [None] * MOST_RECENT

    def __dealloc__(self):
        if cython.compiled:
            PyMem_Free(self.keys)

    def reserve(self):
        """Make sure that `add` and all uses until the next `reserve` need no memory, since neither may fail."""
        room: cython.Py_ssize_t = LEAST_ROOM
        while room < 2 * (self.count + 2):
            room *= 2
        if room > self.room or 8 * room < self.room:
            self.number([None] * room, room)
        return 0

    def add(self, replica, key):
        """Take in a replica, behind those whose uses were settled."""
        if self.end == self.room:
            self.number(self.replicas, self.room)
        self.replicas[self.end] = replica
        replica.position = self.end
        self.end += 1
        self.count += 1
        self.put(replica.position, key)
        return 0

    def note_use(self, replica):
        """Put a replica among the recent ones, if it is not: its last use is noted in itself."""
        if self.recent_count == MOST_RECENT:
            self.settle()
        self.recent[self.recent_count] = replica
        self.recent_count += 1
        replica.is_recent = True
        return 0

    def settle(self):
        """Move the recent replicas to the end, in the order of their last uses."""
        i: cython.int
        k: cython.int
        recent: list = self.recent
        for i in range(1, self.recent_count):  # they came in the order of their first uses, which is mostly the same
            item = recent[i]
            k = i
            while k > 0 and cython.cast(Replica, recent[k - 1]).last_use > cython.cast(Replica, item).last_use:
                recent[k] = recent[k - 1]
                k -= 1
            if k < i:
                recent[k] = item
        for i in range(self.recent_count):
            replica: Replica = recent[i]
            recent[i] = None
            replica.is_recent = False
            if replica.position:  # else its memory is gone
                self.move_to_end(replica, key_of_state(version_of(replica), replica))
        self.recent_count = 0
        return 0

    def move_to_end(self, replica, key):
        """Give a replica the next position."""
        position: cython.Py_ssize_t = replica.position
        if position + 1 < self.end:
            self.replicas[position] = None
            self.put(position, STAYS)
            self.count -= 1
            self.add(replica, key)
        else:
            self.put(position, key)
        return 0

    def remove(self, replica):
        """Forget a replica, whose memory goes."""
        position: cython.Py_ssize_t = replica.position
        self.replicas[position] = None
        replica.position = 0
        self.count -= 1
        self.put(position, STAYS)
        return 0

    def put(self, position, key):
        """Give the replica at a position a key."""
        node: cython.Py_ssize_t = self.room + position
        self.keys[node] = key
        while node > 1:
            node >>= 1
            left: cython.int = self.keys[2 * node]
            right: cython.int = self.keys[2 * node + 1]
            least: cython.int = left if left <= right else right
            if self.keys[node] == least:
                break
            self.keys[node] = least
        return 0

    def key_at(self, position):
        """Return the key of the replica at a position."""
        return self.keys[self.room + position]

    def first(self):
        """Return the position of the replica that goes first; 0 if all stay."""
        least: cython.int = self.keys[1]
        node: cython.Py_ssize_t = 1
        if least == STAYS:
            return 0
        while node < self.room:
            node *= 2
            if self.keys[node] != least:
                node += 1
        return node - self.room

    def members(self):
        """Return all replicas, the least recently used first."""
        self.settle()
        self.reserve()
        return [replica for replica in self.replicas[1 : self.end] if replica is not None]

    def number(self, replicas, room):
        """Number the replicas without gaps, in a list that may be the one that they are in."""
        position: cython.Py_ssize_t = 1
        i: cython.Py_ssize_t
        old = self.keys
        keys = old if room == self.room else new_keys(room)
        for i in range(1, self.end):
            item = self.replicas[i]
            if item is None:
                continue
            replica: Replica = item
            self.replicas[i] = None
            replicas[position] = replica
            keys[room + position] = old[self.room + i]
            replica.position = position
            position += 1
        for i in range(room + position, 2 * room):
            keys[i] = STAYS
        for i in range(room - 1, 0, -1):
            keys[i] = keys[2 * i] if keys[2 * i] <= keys[2 * i + 1] else keys[2 * i + 1]
        if room != self.room and cython.compiled:
            PyMem_Free(old)
        self.keys, self.replicas, self.room, self.end = keys, replicas, room, position
        return 0


def new_keys(room):
    """Return a tree for so many positions, none of which has a replica that goes."""
    i: cython.Py_ssize_t
    if not cython.compiled:
        return [STAYS] * (2 * room)
    keys = cython.cast("int*", PyMem_Malloc(2 * room * cython.sizeof(cython.int)))
    if keys == cython.NULL:
        raise MemoryError
    for i in range(2 * room):
        keys[i] = STAYS
    return keys


def key_of(version: Version, replica: Replica):
    """Return the key of a replica: that of its state, or that it stays since its content has no home."""
    only: cython.bint = replica.state != INVALID and version.valid == 1
    if only and replica.place == 0 and (cython.cast(Data, replica.data).home is None or version.is_poisoned()):
        return STAYS
    return key_of_state(version, replica)


def key_of_state(version: Version, replica: Replica):
    """Return the key by the state of the content and its next use."""
    if replica.state == INVALID:
        return 0
    return (1 if version.valid > 1 else 2) + 2 * (NEVER - cython.cast(Data, replica.data).next_use)


def version_of(replica: Replica):
    """Return the version of the root scope that a replica belongs to."""
    return outermost(cython.cast(Data, replica.data).version)
