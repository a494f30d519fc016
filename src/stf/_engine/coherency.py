"""Coherency: a task gets a valid replica where it runs; memory that runs out is won back.

A copy reads from the valid replica of the cheapest link (`Port.links`). Among equals it takes the one with the lowest
round of copies. The writer's replica starts with round 0. A copy adds one to the round of its source, and gives its
target the same round. So a broadcast becomes a binomial tree::

    round 1   0 → 1
    round 2   0 → 2, 1 → 3                   of eight devices none sends more than three copies,
    round 3   0 → 4, 1 → 5, 2 → 6, 3 → 7     and no copy comes after more than two others

By cost alone one device sent all seven copies. The fewest copies sent would make a chain: every device reads from
the one before it, and the last copy comes after six others.

Eviction takes the first of these ranks that has a replica, and the least recently used one of that rank. A task uses a
replica, and so does its allocation; a copy that reads it does not. Where a plan knows the next uses, of ranks 1 and 2
the replica goes that is needed last. That is often one which a task used just now, and its memory is free only when
that task has run: copies would wait for tasks. So what the last four tasks used goes after all others then.
Left-looking Cholesky with memory for a quarter took 1,619 ms without that, 1,243 with one task spared, 1,107 with two,
1,056 with four and 1,027 with eight, at 1.03 times the traffic (benchmarks/workloads/out_of_core). Submission is ahead
of the device there, and copies are queued already. Where the host looks at results, `prefetching` brings the next data.

    0  invalid      its content is out of date
    1  shared       another replica is valid too
    2  sole valid   its content is copied before: home, or to host memory if it has no home

Never evicted are the user's own memory and replicas that are

- in use by an open task, or of data that another open task writes;
- frozen, or used by a recording that is open or may be launched;
- on the host, if they are the only valid ones and have no home;
- free only after the body that this thread runs (docs/design/waits.md).

`EvictionOrder` keeps the replicas of a place in this order, so that a choice does not look at all data. A place with a
memory limit has one from the start. Another place gets one when the driver refuses an allocation there for the first
time: until then a task pays nothing for it but the time of last use, from which the order is made.

A key in the order may be too low, but not too high. Whoever lowers one calls `reorder`; a choice corrects one that is
too low when it meets it. A choice passes over what is in use, and puts it back at its end. Much data may be frozen or
recorded, and for long: these are left out until `reorder` at the end of that. A choice that finds nothing looks at all
that was left out before it gives up.
"""

from __future__ import annotations

import functools

import cython

from stf._engine import adoption, host_waits, shortages
from stf._engine.failures import Failure
from stf._engine.remote_copies import RemoteCopy
from stf._engine.versions import Copied, derived_outcome
from stf._port.replicas import Piece
from stf.errors import OutOfMemoryError
from stf.observe.observer import Operation

LOG_LENGTH: cython.int = 64
MOST_SPARE: cython.int = 64  # blocks for each place


class Pool:
    """What is allocated at one place, and how many tasks ran there; `limit` is 0 where there is none.

    Memory that was given up is there until its last use is over. Where there is a limit, `leaving` says how much of it
    goes with which event, the first one first. What is evicted is not among it: the task that takes its place comes
    after it.

    Where there is no limit, some of it is `spare`: a replica of the same size takes it over, after its last use. The
    driver would need a tenth of a millisecond for 16 MiB that others used just now.

    `partials` are the replicas that are none of their version's: partial results, and what a program alone uses. They
    are kept here: a reduction takes its own out of the version while it folds them, and puts them back if that fails.
    """

    def __init__(self, place, limit=0):
        self.place = place
        self.limit = limit
        self.leaving, self.spare, self.partials = [], [], {}
        self.order = EvictionOrder() if limit else None

    def live(self):
        """Return how many bytes there are at the place, those that are about to go among them."""
        return self.used + self.leaving_bytes

    def leave(self, event, nbytes):
        """Count memory that goes with an event."""
        self.leaving.append((event, nbytes))
        self.leaving_bytes += nbytes
        return 0

    def spares(self, nbytes):
        """Return whether memory that is given up is to be kept, for now."""
        return self.limit == 0 and 0 < nbytes <= self.most_spare

    def find_spare(self, nbytes):
        """Return where spare memory of a size is that was given up first; -1 if there is none."""
        i: cython.int
        for i in range(len(self.spare)):
            if cython.cast(Replica, self.spare[i]).layout.nbytes == nbytes:
                return i
        return -1

    def take_spare(self, index):
        """Take spare memory out."""
        spare: Replica = self.spare[index]
        del self.spare[index]
        self.spare_bytes -= spare.layout.nbytes
        return spare


class Coherency:
    """Provides replicas: plans allocations, copies and evictions on a port."""

    def __init__(self, scope, places, limits):
        self.scope, self.port = scope, scope.port
        self.places = places
        self.pools = [Pool(place, limit) for place, limit in enumerate(limits)]
        self.data = {}
        self.recordings = {}
        self.copies = {}
        self.waits = EventSet()
        self.failures = []
        self.keeps_order = any([pool.order is not None for pool in self.pools])

    def enter(self, scope):
        """Bring content and memory in a scope from now on; return the one before."""
        before = self.scope
        self.scope = scope
        self.port = scope.port
        return before

    def provide(self, data, version, place, mode, slot):
        """Return a replica at `place` with memory, and with valid content if `mode` reads; ordered for `slot`."""
        replica: Replica = version.find(place)
        if replica is None or replica.state == INVALID:
            replica = cython.cast(Scope, version.scope).replica_for(data, version, place, mode)
        if replica is None:
            replica = make_replica(data, place, data.layout.packed())
            version.replicas.append(replica)
        replica.pins += 1
        try:
            if mode & READ and replica.state == INVALID:
                self.fetch(data, version, replica)
            elif not replica.has_memory() and not adoption.may_come_later(self.asking, data, replica, mode):
                self.allocate(data, replica, slot)
            self.port.join(slot, replica.ready)
            if self.asking is not None:
                self.asking.add_predecessors(replica.ready)
        except BaseException:
            replica.pins -= 1
            raise
        return replica

    def provide_for(self, data, version, place, slot):
        """`provide` without content, for others than the engine; see `unpin`."""
        return self.provide(data, version, place, 0, slot)

    def unpin(self, replica):
        """Undo the pin of `provide_for`."""
        used: Replica = replica
        used.pins -= 1
        self.reorder(cython.cast(Data, used.data).version)

    def fetch(self, data, version, target):
        """Bring valid content to `target`."""
        return self.transfer(data, version, self.cheapest(version, target.place), target)

    def cheapest(self, version, place):
        """Return the valid replica that a copy to a place is to be read from."""
        best: Replica = None
        least: cython.double = 0.0
        links: Links = self.port.links
        for item in version.replicas:
            replica: Replica = item
            if replica.state == INVALID:
                continue
            cost_s: cython.double = links.cost_s(replica.place, place, replica.layout.nbytes)
            if best is None or cost_s < least or (cost_s == least and replica.copy_round < best.copy_round):
                best = replica
                least = cost_s
        return best

    def transfer(self, data, version, source, target, unless=None):
        """Copy `source` to `target` on a copy lane; later writers wait for it. Neither makes room for the other.

        If ``unless()`` is not None then, nothing is copied; so the target does not count as valid.
        """
        outwards = target.place == 0
        kind: cython.int = COPY_OUT if outwards else COPY_IN
        if outwards and target.layout.nbytes <= SHORT_COPY and self.asking is not None and self.asking.kind == "wait":
            kind = COMPUTE  # behind the writer, on its lane: the host waits, and nothing is there to overlap with
        self.waits.clear()
        self.waits.update(version.writers)
        self.waits.update(source.ready)
        self.waits.update(target.ready)
        if self.outside is not None:
            self.waits.update(self.outside)
        before = self.waits.numbers
        slot = self.port.begin(source.place if outwards else target.place, self.waits, kind)
        source.pins += 1
        target.pins += 1
        try:
            if not source.has_memory():  # a body is to return it still, which stores it here then
                self.allocate(data, source, slot)
            if not target.has_memory():
                self.allocate(data, target, slot)
                before = [*(before or ()), *(target.ready.numbers or ())]
            number: cython.longlong = self.number_operation()
            if data.layout.interface is None:
                trip = self.remote_copy(data, version, source, target) if unless is None else None
                self.port.copy(slot, target, source, unless if trip is None else trip, number)
            else:
                self.port.call(slot, self.interface_copy(data, version, source, target))
        except BaseException:
            target.ready.add(self.port.abort(slot))
            version.readers.update(target.ready)
            raise
        finally:
            source.pins -= 1
            target.pins -= 1
        event = self.port.end(slot)
        target.ready.clear()
        target.ready.add(event)
        version.readers.add(event)
        if number:
            target.ready.add_number(-number)
            version.readers.add_number(-number)
        if unless is None:
            version.share(source, target)
            self.reorder(version)
        self.count_copy(data, source.place, target.place, target.layout.nbytes, number, before)
        return 0

    def remote_copy(self, data: Data, version: Version, source: Replica, target: Replica):
        """Return the trip of a copy from or to another process, by which its content may get lost; None for others."""
        if self.scope.records or not (self.places[source.place].is_remote or self.places[target.place].is_remote):
            return None  # one that is recorded is a part of each launch
        known = version.outcome if type(version.outcome) is Copied else Copied(version.outcome, [])
        outcome = derived_outcome(known.of_replica(source.place), True)
        version.outcome = known.with_copy(outcome, target.place)
        asked = self.asking
        return RemoteCopy(data.label(), outcome, "" if asked is None else asked.call_site, self.failures)

    def interface_copy(self, data: Data, version: Version, source: Replica, target: Replica):
        """Return a copy by a custom data interface; it may fail, and then the content is poisoned."""
        outcome = derived_outcome([] if version.outcome is None else [version.outcome], True)
        version.outcome = outcome
        asked = self.asking
        site = "" if asked is None else asked.call_site
        return functools.partial(copy_instance, data, source.instance, target.instance, outcome, site, self.failures)

    def number_operation(self):
        """Return the number of the next operation, by which its driver and observers know it; 0 if nobody observes."""
        if self.observer is None:
            return 0
        self.operations += 1
        return self.operations

    def count_copy(self, data, source, target, nbytes, number, before):
        """Count a copy between two places, note it in the data's own log, and tell the observer."""
        pair: cython.int = source << 16 | target
        count: CopyCount = self.last_count
        if count is None or count.pair != pair:
            count = self.copies.get(pair)
            if count is None:
                self.copies[pair] = count = CopyCount(pair)
            self.last_count = count
        count.copies += 1
        count.nbytes += nbytes
        if data.log is None:
            data.log = []
        elif len(data.log) >= LOG_LENGTH:
            del data.log[: LOG_LENGTH // 2]
        data.log.append(logged(source, target, self.asking))
        return self.note("copy", data, source, target, nbytes, number, before)

    def copy_counts(self):
        """Return how many copies there were, and of how many bytes, by (source, target)."""
        found = {}
        for pair, item in self.copies.items():
            count: CopyCount = item
            found[(pair >> 16, pair & 0xFFFF)] = (count.copies, count.nbytes)
        return found

    def allocate(self, data, replica, slot):
        """Give `replica` memory, usable on `slot`; evict others if need be."""
        if self.scope.records:
            return self.scope.allocate(data, replica)
        pool: Pool = self.pools[replica.place]
        nbytes = replica.layout.nbytes
        replica.pins += 1
        try:
            if replica not in outermost(data.version).replicas:  # no replica is equal to another
                pool.partials[replica] = None
            if pool.limit and pool.live() + nbytes > pool.limit:
                self.make_room(pool, nbytes, data, slot)
            if pool.order is not None:
                pool.order.reserve()  # now: what comes after the allocation must not fail
            self.allocate_now(data, replica, slot, pool)
        except BaseException:
            pool.partials.pop(replica, None)
            raise
        finally:
            replica.pins -= 1
        pool.used += nbytes
        pool.peak = max(pool.peak, pool.live())
        pool.allocations += 1
        pool.allocated_bytes += nbytes
        if pool.order is not None:
            self.take_in(pool.order, data, replica)
        number: cython.longlong = self.number_operation()
        if number:
            replica.ready.add_number(-number)
            self.note("alloc", data, replica.place, replica.place, nbytes, number, None)
        return 0

    def make_room(self, pool, nbytes, data, slot):
        """Keep what is live at a place within its limit: evict, and let the submission wait for what is about to go.

        It waits for at least half of that, so that it need not wait again for each small array. On the host there is
        nothing to evict, as there is no other place for it.
        """
        self.settle_frees(pool)
        excess: cython.longlong = pool.used + nbytes - pool.limit
        if excess > 0 and pool.place > 0:
            freed = EventSet()
            if not self.evict(pool, excess, freed):
                raise OutOfMemoryError(shortages.describe(self, pool, nbytes, data))
            self.port.join(slot, freed)
        excess = min(pool.live() + nbytes - pool.limit, pool.leaving_bytes)
        if excess <= 0 or self.pauses < 0:
            return 0
        awaited = EventSet()
        left: cython.longlong = max(excess, pool.leaving_bytes // 2)
        for event, size in pool.leaving:
            awaited.add(event)
            left -= size
            if left <= 0:
                break
        awaited = self.those_that_end(awaited)
        if awaited.count:
            raise host_waits.Pause(awaited)
        return 0

    def settle_frees(self, pool):
        """Count no longer what has gone from a place; the first that has not hides those behind it."""
        gone = 0
        for event, size in pool.leaving:
            if not self.port.done(event):
                break
            pool.leaving_bytes -= size
            gone += 1
        del pool.leaving[:gone]
        return 0

    def allocate_now(self, data: Data, replica: Replica, slot, pool: Pool):
        """Ask the port; when it has none, pause for what is being freed, then evict, then give up."""
        try:
            if replica.layout.interface is None:
                if pool.spare_bytes == 0 or replica.owner is not None or not self.reuse(replica, slot, pool):
                    self.port.alloc(slot, replica)
            else:
                replica.instance = replica.layout.interface.allocate(replica.place)
            return
        except MemoryError as error:
            freed = EventSet()
            self.free_spare(pool, pool.most_spare + 1)
            if self.pauses == 0:
                self.port.tails(freed)
                raise host_waits.Pause(self.those_that_end(freed)) from None
            before = pool.evictions
            self.evict(pool, replica.layout.nbytes, freed)
            freed = self.those_that_end(freed)
            if freed.count == 0 and pool.evictions == before and self.pauses > 1:
                raise OutOfMemoryError(shortages.describe(self, pool, replica.layout.nbytes, data)) from error
        raise host_waits.Pause(freed)

    def reuse(self, replica: Replica, slot, pool: Pool):
        """Give a replica spare memory, whose last use the slot comes after; False if there is none.

        Memory that is in use still is not taken while more may be spare: the slot would have to wait. Nor is it where
        a body is to store its result there, which was queued before and waits for nothing of that.
        """
        nbytes: cython.longlong = replica.layout.nbytes
        index: cython.int = pool.find_spare(nbytes)
        if index < 0:
            return False
        spare: Replica = pool.spare[index]
        has_room: cython.bint = len(pool.spare) < MOST_SPARE and pool.spare_bytes + nbytes <= pool.most_spare
        if has_room or replica.awaits_result:
            for event in spare.ready.tolist():
                if not self.port.done(event):
                    return False
        self.port.join(slot, spare.ready)
        pool.take_spare(index)
        replica.address, replica.owner = spare.address, spare.owner
        return True

    def keep_spare(self, replica: Replica, pool: Pool):
        """Keep a replica's memory, whose last uses `waits` are; what was given up first makes room."""
        nbytes: cython.longlong = replica.layout.nbytes
        self.free_spare(pool, nbytes)
        spare = make_replica(None, replica.place, replica.layout)
        spare.address, spare.owner = replica.address, replica.owner
        spare.ready.update(self.waits)
        pool.spare.append(spare)
        pool.spare_bytes += nbytes
        return 0

    def free_spare(self, pool: Pool, nbytes):
        """Free spare memory until there is room for so many bytes, in one more block."""
        while pool.spare and (len(pool.spare) >= MOST_SPARE or pool.spare_bytes + nbytes > pool.most_spare):
            spare: Replica = pool.spare[0]
            self.port.free(spare, spare.ready, False)
            pool.take_spare(0)
        return 0

    def free_all_spare(self):
        """Free the spare memory of all places."""
        for pool in self.pools:
            self.free_spare(pool, cython.cast(Pool, pool).most_spare + 1)
        return 0

    def those_that_end(self, events: EventSet):
        """Events without those that come after this very thread: what is freed may be on a lane that waits for it."""
        found = EventSet()
        for event in events.tolist():
            alone = EventSet()
            alone.add(event)
            if host_waits.ends(self.port, alone):
                found.add(event)
        return found

    # -- eviction ----------------------------------------------------------------------------------------------

    def evict(self, pool: Pool, excess, freed: EventSet):
        """Win back `excess` bytes at a place, or what there is; add the events of that; say whether it is enough."""
        if pool.order is None:
            self.keep_order(pool)
        pool.order.settle()
        passed: list = []
        try:
            while excess > 0:
                replica: Replica = self.next_to_go(pool, passed)
                if replica is None:
                    break
                version: Version = cython.cast(Data, replica.data).version
                excess -= replica.layout.nbytes
                if replica.state != INVALID and version.valid == 1:
                    self.spill(replica.data, version, replica)
                pool.evictions += 1
                number: cython.longlong = self.number_operation()
                self.note("evict", replica.data, replica.place, replica.place, replica.layout.nbytes, number, None)
                freed.add(self.discard(version, replica, True))
        finally:
            self.put_back(pool.order, passed)
        return excess <= 0

    def put_back(self, order, passed):
        """Let replicas that were passed over take part again, those that are still there."""
        for item in passed:
            replica: Replica = item
            if replica.position:
                order.put(replica.position, key_of(version_of(replica), replica))
        passed.clear()
        return 0

    def next_to_go(self, pool, passed):
        """Return the replica that goes first; None if all stay. What stays for now alone is added to `passed`."""
        order = pool.order
        looked_at_all: cython.bint = False
        spared: cython.longlong = self.spared
        while True:
            position: cython.Py_ssize_t = order.first()
            if position == 0:
                if spared and passed and self.pauses != AHEAD:
                    spared = 0
                    self.put_back(order, passed)
                    continue
                if looked_at_all or not self.look_at_all(pool):
                    return None
                looked_at_all = True
                continue
            replica: Replica = order.replicas[position]
            version = version_of(replica)
            key: cython.int = key_of(version, replica)
            if key != order.key_at(position):
                order.put(position, key)
            elif self.stays_long(version, replica):
                order.put(position, STAYS)
            elif self.tick - replica.last_use < spared or self.stays_now(version, replica):
                order.put(position, STAYS)
                passed.append(replica)
            else:
                return replica

    def look_at_all(self, pool):
        """Put back what was left out and could go by now; say whether there was any."""
        order = pool.order
        found: cython.bint = False
        for item in order.members():
            replica: Replica = item
            if order.key_at(replica.position) != STAYS or replica in pool.partials:
                continue
            version = version_of(replica)
            if (
                key_of(version, replica) != STAYS
                and not self.stays_long(version, replica)
                and not self.stays_now(version, replica)
            ):
                order.put(replica.position, key_of(version, replica))
                found = True
        return found

    def stays_long(self, version, replica):
        """Return whether a replica stays until somebody calls `reorder`."""
        data = cython.cast(Data, replica.data)
        return version.frozen or data.version is not version or (replica.pins and data.recorded)

    def stays_now(self, version, replica):
        """Return whether a replica stays for this choice: it is in use, or not free before this very thread goes on."""
        if replica.pins:
            return True
        if version.claims < 0 and (self.asking is None or not self.asking.holds(replica.data)):
            return True  # what the asking task itself writes may go from where it is not pinned
        return not self.is_free_to_go(version, replica)

    def note_use(self, replica):
        """Say that a replica in the order of its place was used, as its `last_use` says."""
        cython.cast(Pool, self.pools[replica.place]).order.note_use(replica)
        return 0

    def own(self, version, replica):
        """Make `replica` the only valid one of a version; the others may go for nothing."""
        if version.own(replica):
            self.reorder(version)
        return 0

    def reorder(self, version):
        """Say that replicas of a version may go sooner than before: their states have changed, or nobody needs them."""
        if not self.keeps_order:
            return 0
        version = outermost(version)
        for item in version.replicas:
            replica = cython.cast(Replica, item)
            if replica.position:
                pool = cython.cast(Pool, self.pools[replica.place])
                pool.order.put(replica.position, key_of(version, replica))
        return 0

    def take_in(self, order: EvictionOrder, data: Data, replica: Replica):
        """Let what was just allocated take part in the order of its place."""
        version = outermost(data.version)
        replica.last_use = self.tick
        if replica in version.replicas:  # else it is a partial result, or what a program alone uses
            order.add(replica, key_of(version, replica))
            order.note_use(replica)
        else:
            order.add(replica, STAYS)
        return 0

    def keep_order(self, pool: Pool):
        """Keep the order of a place from now on."""
        order = EvictionOrder()
        found: list = []
        for item in pool.partials:
            if cython.cast(Replica, item).has_memory():  # else it is being allocated, and taken in then
                order.reserve()
                order.add(item, STAYS)
        for item in self.data.values():
            for element in outermost(cython.cast(Data, item).version).replicas:
                replica: Replica = element
                if replica.place == pool.place and replica.has_memory() and not (replica.home or replica.adopted):
                    found.append((replica.last_use, len(found), replica))
        found.sort()
        for _, _, element in found:
            order.reserve()
            order.add(element, key_of(version_of(element), element))
        pool.order = order
        self.keeps_order = True
        return 0

    def is_free_to_go(self, version: Version, replica: Replica):
        """Return whether the last use of a replica does not wait for this very thread, which may run a body."""
        last = EventSet()
        self.add_uses(version, replica, last)
        return host_waits.ends(self.port, last)

    def add_uses(self, version: Version, replica: Replica, events: EventSet):
        """Add what ends with the last use of a replica."""
        events.update(replica.ready)
        if not replica.left:
            events.update(version.writers)
            events.update(version.readers)
        return 0

    def spill(self, data: Data, version: Version, replica: Replica):
        """Save the only valid replica at the data's home; in host memory of ours, if there is none or it is spoilt."""
        target: Replica = data.home
        if target is None or version.is_poisoned():
            target = spare_on_host(version)
        if target is None:
            target = make_replica(data, 0, data.layout.packed())
            version.replicas.append(target)
        self.transfer(data, version, replica, target)

    def discard(self, version, replica, want_event):
        """Free a replica's memory after its last use and forget it."""
        pool: Pool = self.pools[replica.place]
        event = 0
        if self.scope.records:
            self.scope.free_later(replica)
        elif replica.has_memory() and not (replica.home or replica.adopted):
            self.waits.clear()
            self.add_uses(version, replica, self.waits)
            before = self.waits.numbers
            is_plain: cython.bint = replica.layout.interface is None and not isinstance(replica.owner, Piece)
            if is_plain and not want_event and pool.spares(replica.layout.nbytes):
                self.keep_spare(replica, pool)
            elif replica.layout.interface is None:
                event = self.port.free(replica, self.waits, want_event or pool.limit > 0)
                if pool.limit and not want_event:
                    pool.leave(event, replica.layout.nbytes)
            pool.used -= replica.layout.nbytes
            pool.frees += 1
            number: cython.longlong = self.number_operation()
            self.note("free", replica.data, replica.place, replica.place, replica.layout.nbytes, number, before)
        elif replica.home:
            what = self.port.disown(replica)
            if what is not None and not version.is_untouched():
                self.outlive(version, replica, what)
        if replica.state != INVALID:
            version.valid -= 1
            replica.state = INVALID
        if replica.position:
            pool.order.remove(replica)
        if pool.partials:
            pool.partials.pop(replica, None)
        if not (replica.awaits_result or replica.adopted):  # else bodies may ask it for its array still
            replica.address = 0
            replica.instance = None
            replica.owner = None
            replica.views = replica.read_array = replica.write_array = None
        i: cython.Py_ssize_t
        for i in range(len(version.replicas)):
            if version.replicas[i] is replica:
                del version.replicas[i]
                break
        return event

    def outlive(self, version: Version, replica: Replica, what):
        """Keep what stands for the user's memory until what devices do with it is done."""
        self.waits.clear()
        self.waits.update(version.writers)
        self.waits.update(version.readers)
        self.waits.update(replica.ready)
        if all([self.port.done(event) for event in self.waits.tolist()]):
            return
        slot = self.port.begin(max(replica.place, 1), self.waits, COMPUTE)
        try:
            self.port.keep_alive(slot, what)
        finally:
            self.port.end(slot)

    def write_home(self, data):
        """Refresh the user's memory if a task changed the data elsewhere."""
        version = data.version
        home = data.home
        if home is None or home.state != INVALID or version.valid == 0:
            return 0
        self.fetch(data, version, home)
        self.write_backs += 1
        number: cython.longlong = self.number_operation()
        self.note("write_back", data, home.place, home.place, home.layout.nbytes, number, home.ready.numbers)
        return 1

    def offer_home(self, data):
        """Refresh the user's memory behind what makes the content, unless that fails: then it keeps what it has."""
        version = data.version
        home = data.home
        if not version.may_fail():
            return self.write_home(data)
        if home.state != INVALID or version.valid == 0:
            return 0
        source = self.cheapest(version, home.place)
        self.transfer(data, version, source, home, cython.cast(object, version.outcome).failed)
        return 1

    def drop_replicas(self, data):
        """Free everything of a data that nobody will ask for again."""
        version = data.version
        while version.replicas:
            self.discard(version, version.replicas[len(version.replicas) - 1], False)
        for partial in version.partials or ():
            self.drop_partial(version, partial.replica, partial.events)
        version.partials = None
        return 0

    def drop_partial(self, version: Version, replica: Replica, events: EventSet):
        """Free one partial result of a task-level reduction after its last use."""
        version.replicas.append(replica)
        replica.ready.update(events)
        self.discard(version, replica, False)

    def note(self, kind, data: Data, source, target, nbytes, number, before):
        """Tell the observer about an internal operation, and the numbers of what it waits for."""
        if self.observer is not None:
            task_id = self.asking.id if self.asking is not None else 0
            name = data.name or f"data{data.id}"
            start, end = self.places[source].name, self.places[target].name
            waits_for = tuple(sorted(set(before or ())))
            self.observer.operation(Operation(kind, data.id, name, start, end, nbytes, task_id, number, waits_for))
        return 0


class CopyCount:
    """Copies between two places."""

    def __init__(self, pair):
        self.pair = pair


def copy_instance(data, source, target, outcome, site, failures):
    """Copy one instance of a custom data interface to another: called when its lane gets there."""
    try:
        data.layout.interface.copy(target, source)
    except BaseException as error:
        outcome.failure = Failure(f"(copy of {data.label()})", site, error, [data.label()])
        failures.append(outcome.failure)
    outcome.pending = False


def spare_on_host(version: Version):
    """Return the replica in host memory that is not the user's own; None if there is none."""
    for item in version.replicas:
        replica: Replica = item
        if replica.place == 0 and not replica.home:
            return replica
    return None
