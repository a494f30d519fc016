# cython: nonecheck=False
"""Lanes: which one a slot takes, and which waits it still needs.

A slot follows its first predecessor at the same place when that one is its lane's tail; else it takes the next lane.
A wait is dropped when it is on the slot's own lane, when the lane has waited for it or for a later one already (a
clock per lane), or when it is below the other lane's *done* mark.

The event of a slot that only writes is recorded *late*, where the driver can: when somebody asks for it, or something
else follows on the lane. It is *committed* then, so that who waits for it waits for no more. Where the next slot on
the lane writes all that the one before wrote, and nobody read it between, nobody will ask, and no event is recorded.
"""

from __future__ import annotations

import cython

NO_POOLS: list = [None] * KINDS
NO_BOUND: cython.int = 1 << 30
LOOKS: cython.int = 64  # for an idle lane, where there may be any number of them


class Lane:
    """A sequence of slots at one place; `clock` says how far it has waited for the others."""

    def __cinit__(self, index, place, kind):
        self.index = index
        self.place = place
        self.kind = kind
        self.stream = -1
        if not cython.compiled:
            self.clock = []

    def __dealloc__(self):
        if cython.compiled:
            free(self.clock)

    def seen(self, lane):
        return self.clock[lane] if lane < self.clock_size else 0

    def saw(self, lane, sequence):
        if lane >= self.clock_size:
            size: cython.int = lane + 16
            if not cython.compiled:
                self.clock.extend([0] * (size - self.clock_size))
            else:
                clock = cython.cast("int64_t*", realloc(self.clock, size * cython.sizeof(cython.longlong)))
                if clock == cython.NULL:
                    raise MemoryError
                self.clock = clock
                memset(
                    cython.address(clock[self.clock_size]), 0, (size - self.clock_size) * cython.sizeof(cython.longlong)
                )
            self.clock_size = size
        self.clock[lane] = sequence
        return 0


if not cython.compiled:
    Lane.__init__ = Lane.__cinit__
    del Lane.__dealloc__


class LanePool:
    """The lanes of one kind at one place."""

    def __init__(self, width):
        self.lanes = []
        self.width = width


class LanePort(Port):
    """A port made of lanes; subclasses say what a lane, a wait and a record are.

    Attributes
    ----------
    is_lent : bool
        The work is between that of a caller's stream, which nobody waits for.
    """

    def set_up(self, places, width, copy_width=1):
        """Have lanes at so many places; a subclass begins with it."""
        _: cython.int
        self.lanes = []
        self.width = width
        self.copy_width = copy_width
        self.widths, self.pools = [], []
        self.prioritized = {}
        for _ in range(places):
            self.add_pools(width)
        return 0

    def add_pools(self, width):
        """Room for the pools of one more place, made when they are needed; return its number."""
        self.widths.append(width)
        self.pools += NO_POOLS
        return len(self.widths) - 1

    def clipped(self, place, priority):
        """Return the nearest priority that a place has."""
        lowest, highest = self.priorities(place)
        return max(highest, min(lowest, priority))

    def pool_of(self, place, kind, priority):
        """Return the pool of lanes of a priority, made on first use."""
        key = (place * KINDS + kind, priority)
        if key not in self.prioritized:
            self.prioritized[key] = LanePool(1 if kind == IN_ORDER else self.widths[place])
        return self.prioritized[key]

    def add_pool(self, place, kind):
        width: cython.int = self.widths[place]
        if kind in (COPY_IN, COPY_OUT):
            width = self.copy_width
        elif (kind == HOST and place != 0) or kind == IN_ORDER:
            width = 1
        elif kind >= OUTSIDE:  # of two events on a lane the later would cover the earlier, and hold it up
            width = NO_BOUND
        self.pools[place * KINDS + kind] = pool = LanePool(width)
        return pool

    def add_place(self, device, foreign_handle):
        return self.add_pools(self.width)

    # -- what a subclass provides ------------------------------------------------------------------------------

    def make_lane(self, lane):
        return 0

    def make_wait(self, lane, other, sequence):
        raise NotImplementedError

    def make_record(self, lane):
        raise NotImplementedError

    def make_late_record(self, lane):
        raise NotImplementedError

    def commit(self, lane):
        """Let the last event of a lane, recorded late, stand for no more than what is there."""
        raise NotImplementedError

    def progress(self, lane):
        return lane.done

    def lend(self, captured, staged):
        """Work between that of a caller's stream from now on, which may be captured with its copies `staged`."""
        raise NotImplementedError

    # -- the port ----------------------------------------------------------------------------------------------

    def begin(self, place, waits, kind):
        rewrites: cython.int = self.rewrites
        priority: cython.int = self.priority
        self.rewrites = self.priority = 0
        if priority != 0:
            priority = self.clipped(place, priority)
        lane = self.pick(place, kind, waits, priority)
        if lane.trailing:
            self.end(lane.index)  # while the lane is open, nobody could wait for what trails
        if lane.uncommitted:
            lane.uncommitted = False
            last: cython.longlong = (cython.cast(cython.longlong, lane.index) << LANE_SHIFT) | lane.issued
            if rewrites == 0 or rewrites != lane.writes or self.rewritten != last:
                self.commit(lane)
        lane.open = True
        try:
            self.need(lane, waits)
        except BaseException:
            lane.open = False
            raise
        return lane.index

    def join(self, slot, waits):
        if waits.count:
            self.need(self.lanes[slot], waits)
        return 0

    def end(self, slot):
        lane = cython.cast(Lane, self.lanes[slot])
        lane.issued += 1
        lane.open = False
        lane.trailing = False
        lane.writes = self.writes
        self.writes = 0
        if lane.writes and self.records_late:
            lane.uncommitted = True
            self.make_late_record(lane)
        else:
            self.make_record(lane)
        return (cython.cast(cython.longlong, slot) << LANE_SHIFT) | lane.issued

    def open_event(self):
        lane = self.next_lane(0, OUTSIDE)
        self.enter(lane.index)  # an idle lane of the host's: it is held until `complete_event`
        lane.issued += 1
        self.open_events += 1
        return (cython.cast(cython.longlong, lane.index) << LANE_SHIFT) | lane.issued

    def complete_event(self, event):
        self.open_events -= 1
        self.make_record(self.lanes[event >> LANE_SHIFT])
        return 0

    def tails(self, into):
        for item in self.lanes:
            self.tail(item, into)
        return 0

    def tails_at(self, place, into):
        for lane in self.lanes_at(place):
            self.tail(lane, into)
        return 0

    def lanes_at(self, place):
        """Return the lanes of a place; the others are not looked at."""
        kind: cython.int
        found: list = []
        for kind in range(KINDS):
            pool: LanePool = self.pools[place * KINDS + kind]
            if pool is not None:
                found += pool.lanes
        for (where, _), pool in self.prioritized.items():
            if where // KINDS == place:
                found += pool.lanes
        return found

    def tail(self, lane, into):
        """Add the last event of a lane, unless that is done."""
        if lane.trailing and not lane.open:
            self.end(lane.index)
        if lane.uncommitted and not lane.open:  # who waits later would wait for what comes meanwhile
            lane.uncommitted = False
            self.commit(lane)
        if lane.issued > self.progress(lane):
            into.add((cython.cast(cython.longlong, lane.index) << LANE_SHIFT) | lane.issued)
        return 0

    def done(self, event):
        lane: Lane = self.lanes[event >> LANE_SHIFT]
        sequence: cython.longlong = event & SEQUENCE
        return sequence <= lane.done or self.is_done(lane, sequence)

    def place_in_flight(self, event):
        lane: Lane = self.lanes[event >> LANE_SHIFT]
        sequence: cython.longlong = event & SEQUENCE
        return lane.place if sequence > lane.done else -1

    def is_done(self, lane, sequence):
        """Look whether a lane has got that far."""
        return sequence <= self.progress(lane)

    # -- choosing ----------------------------------------------------------------------------------------------

    def pick(self, place, kind, waits, priority=0):
        i: cython.int
        if self.open_events and kind == COMPUTE and self.waits_outside(waits):
            kind = WAITING
        for i in range(waits.count):
            event = waits.items[i]
            lane = cython.cast(Lane, self.lanes[event >> LANE_SHIFT])
            sequence: cython.longlong = event & SEQUENCE
            if (
                lane.place == place
                and lane.kind == kind
                and lane.priority == priority
                and not lane.open
                and lane.issued == sequence
            ):
                return lane
        return self.next_lane(place, kind, priority)

    def waits_outside(self, waits):
        """Return whether events are among these that others have yet to complete, or that come after such."""
        for event in waits.tolist():
            lane: Lane = self.lanes[event >> LANE_SHIFT]
            if lane.kind >= OUTSIDE and not self.done(event):
                return True
        return False

    def next_lane(self, place, kind, priority=0):
        """Return an idle lane if the next one is, a new one while there are few, else the next that is not open."""
        pool: LanePool = self.pools[place * KINDS + kind] if priority == 0 else self.pool_of(place, kind, priority)
        if pool is None:
            pool = self.add_pool(place, kind)
        _: cython.int
        count: cython.int = len(pool.lanes)
        has_bound: cython.bint = pool.width < NO_BOUND
        for _ in range(count if has_bound else min(count, LOOKS)):
            if pool.next >= count:
                pool.next = 0
            lane: Lane = pool.lanes[pool.next]
            idle = lane.issued <= lane.done or lane.issued <= self.progress(lane)
            if not lane.open and (idle or count >= pool.width):
                pool.next += 1
                return lane
            if has_bound and not lane.open:
                break
            pool.next += 1
        return self.add_lane(pool, place, kind, priority)

    def add_lane(self, pool, place, kind, priority):
        lane = Lane(len(self.lanes), place, kind)
        lane.priority = priority
        self.lanes.append(lane)  # first: a stream that no list has room for would be lost
        is_listed: cython.bint = False
        try:
            pool.lanes.append(lane)
            is_listed = True
            self.make_lane(lane)
            if self.start_event and kind != OUTSIDE:
                self.start_at_origin(lane)
        except BaseException:
            self.lanes.pop()
            if is_listed:
                pool.lanes.pop()
            raise
        return lane

    def start_at_origin(self, lane):
        """Let a new lane start after what was on the caller's stream when the context was made."""
        first: Lane = self.lanes[self.start_event >> LANE_SHIFT]
        sequence: cython.longlong = self.start_event & SEQUENCE
        self.make_wait(lane, first, sequence)
        lane.saw(first.index, sequence)
        return 0

    def need(self, lane, waits):
        """Make the waits that `lane` still needs."""
        i: cython.int
        for i in range(waits.count):
            event = waits.items[i]
            index: cython.int = event >> LANE_SHIFT
            if index == lane.index:
                continue
            sequence: cython.longlong = event & SEQUENCE
            if sequence <= lane.seen(index):
                continue
            other = cython.cast(Lane, self.lanes[index])
            if sequence > other.done:
                if not self.waits_cheaply:
                    other.done = self.progress(other)
                if sequence > other.done:
                    self.make_wait(lane, other, sequence)
            lane.saw(index, sequence)
        return 0
