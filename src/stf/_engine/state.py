# cython: nonecheck=False
"""What the engine knows, and the verbs that the modules around it need.

Modules that do a part of the engine's work (claims, outcomes, reductions, turns, ...) take an `EngineState`, and import
no other module for it. `Engine` uses these modules; it adds the verbs that are only declared here, for C, and others
for Python, such as `cancel`, `withdraw` and `patiently`.
"""

from __future__ import annotations

import cython

from stf._engine import host_waits


class EngineState:
    """The fields of the engine, which orders tasks and keeps data coherent on one port."""

    def __init__(self, port, places, limits, max_partials=2, max_pending=0):
        self.port = self.root = port
        self.scope = self.root_scope = Scope(port)
        self.places = places
        for place in places:
            place.enqueues = self.root.enqueues(place.number)
        self.coherency = Coherency(self.scope, places, limits)
        self.gate = Gate()
        self.dropped, self.deferred, self.orphans, self.dropped_tiles, self.readers = [], [], {}, {}, []
        self.failures = self.coherency.failures = []
        self.caches, self.kinds = (), KindCounts()
        self.waits, self.backlog, self.free_lists = EventSet(), EventSet(), FreeLists()
        self.callbacks = EventSet()
        self.claim_queue, self.settle_at, self.calling, self.outside = [], 256, {}, {}
        self.max_pending, self.max_partials = max_pending, max_partials
        host_waits.enlist(self)

    def __del__(self):
        host_waits.delist(self)

    # -- data --------------------------------------------------------------------------------------------------

    def new_data(self, layout, name=None, token=False):
        """Record a data; it has no replica yet."""
        self.enter()
        try:
            return self.add_data(layout, name, token)
        finally:
            self.gate.leave()

    def add_data(self, layout, name, token):
        """Return what `new_data` does, for who is inside."""
        self.next_data += 1
        data = self.coherency.data[self.next_data] = make_data(
            self, self.dropped, self.next_data, layout, name, token, self.root_scope
        )
        return data

    def forget_new(self, data: Data):
        """Undo `add_data`, where nobody got the data; the collector would not find it among its replicas."""
        self.coherency.data.pop(data.id, None)
        data.version.replicas.clear()
        data.home = None

    def set_home(self, data: Data, place, address, owner, valid=True):
        """Say where the user's memory of `data` is."""
        replica = home_of(data, place, data.layout)
        replica.address = address or data.layout.nbytes == 0  # an empty array on a device is at 0, which means nowhere
        replica.owner = owner
        data.home = replica
        data.version.replicas.append(replica)
        if valid:
            data.version.own(replica)

    def all_done(self, events: EventSet):
        """Return whether all of `events` are complete."""
        return all(self.root.done(event) for event in events.tolist())

    # -- tasks and places --------------------------------------------------------------------------------------

    def new_task(self, kind, place):
        """Return a task of the engine's own."""
        task = TaskCore()
        task.engine = self
        task.kind = kind
        task.where = place
        return task

    def put_call(self, slot, call, in_turn=False):
        """Put a queued body on a slot, perhaps `in_turn` (`Port.call_in_turn`).

        One that is recorded is counted when it is played.
        """
        if in_turn:
            self.port.call_in_turn(slot, call)
        else:
            self.port.call(slot, call)
        if not self.scope.records and not self.root.captured:
            self.queued += 1
        return 0

    def cancel_what_waits(self):
        """Cancel from now on what has not begun; return the list of the failures that say so."""
        self.cancelled = []
        self.root.ask_first()
        return self.cancelled

    def pending(self):
        """Return how many queued bodies have not run yet."""
        self.root.tell_compiled()
        return self.queued - self.ran

    def calls_host(self):
        """Return whether bodies or callbacks on the host have not ended: they may use the context, and submit more."""
        return self.pending() > 0 or (self.callbacks.count > 0 and not self.all_done(self.callbacks))

    def opened(self):
        """Return the tasks that have begun and not ended, the last begun first."""
        tasks = []
        task = self.last_open
        while task is not None:
            tasks.append(task)
            task = task.before
        return tasks

    def holder_of(self, version):
        """Return an open task that has a claim on the data of `version`, or None."""
        return next((task for task in self.opened() if task.has_claim_on(version)), None)

    def list_open(self, task):
        task.before = self.last_open
        if self.last_open is not None:
            self.last_open.after = task
        self.last_open = task
        host_waits.open_tasks += 1
        return 0

    def unlist_open(self, task):
        if task.after is None:
            self.last_open = task.before
        else:
            task.after.before = task.before
        if task.before is not None:
            task.before.after = task.after
            task.before = None
        task.after = None
        host_waits.open_tasks -= 1
        return 0

    def uncount(self, task: TaskCore):
        """Take a task that had begun out of the counts, and out of what observers know."""
        if task.is_single_launch:
            return
        pool: Pool = self.coherency.pools[task.where]
        pool.tasks -= 1
        if self.observer is not None:
            self.observer.withdrawn(task.id)

    def submit_held(self):
        """Let the tasks begin that are held until they are planned: somebody asks for what they do."""
        if self.window is not None:
            self.window.release()
        return 0

    def add_place(self, place):
        """Know one more place."""
        place.enqueues = self.root.enqueues(place.number)
        self.places.append(place)
        self.coherency.pools.append(Pool(place.number))

    def place(self, number):
        """Return the record of a place."""
        return cython.cast(Place, self.places[number])

    def observe(self, observer):
        """Tell an observer of tasks and operations from now on."""
        self.observer = observer
        self.coherency.observer = observer

    # -- what the engine does ----------------------------------------------------------------------------------

    def enter(self):
        """Go inside, where one thread is at a time, unless the context has ended; release what the user dropped."""
        raise NotImplementedError

    def begin(self, task):
        """Claim, order and provide; the task is open afterwards. Nothing has changed if this raises."""
        raise NotImplementedError

    def start(self, task):
        """Collect what a task waits for, open its slot and provide its replicas."""
        raise NotImplementedError

    def finish(self, task, event):
        """Make `event` the last write, or one of the reads, of every access; give the claims back."""
        raise NotImplementedError

    def fail(self, task, failure):
        """Close the slot of a task whose body raised: what it was to write is poisoned."""
        raise NotImplementedError
