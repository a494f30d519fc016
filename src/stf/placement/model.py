"""Where a task goes that names no place: an estimate of when it would end at each of them.

One model answers for all places, so that its times can be compared:

- Each place works on one task after the other, in the order of submission. `free` is when it is done.
- Each memory takes one copy after the other. `arrived` is when the last one is there.
- Each version of data knows when its content is at each place (`Forecast`).

A task starts when its place is free, its inputs are there, and the tasks are done that it must come after. The place
with the least `score` gets it, and the model goes on from there::

    score = end of the task + (weight - 1) * time of its copies + time that it takes to copy to the host what is evicted

At a tie it goes where its output is valid, then to the first place. So the order matters in which the times are taken:
a rule of the larger of load and arrival, where the load does not enter the arrival, ties wherever a task waits for its
inputs. It fills the first place then: efficiency 0.44 where this one has 0.80 (Cholesky, eight devices, simulated). A
rule of load and moves that knows no arrival falls to 0.54 on chains.

The model has no clock: it is right about proportions, not about when. It need not be, since only differences count. So
a choice depends on the program alone, until durations are measured. `settle_clocks` makes all places equally late where
the host has waited for everything.

What content is valid where is not kept here but asked of the engine, as tasks that name their place change it, too, and
tell nobody. Their time on a place is not counted.
"""

from __future__ import annotations

import cython

from stf._engine.access import Access, Data
from stf._engine.coherency import Pool
from stf._port.replicas import Replica
from stf.placement.asking import ask
from stf.placement.choices import Choice, Row
from stf.placement.durations import Durations, Timing

if not cython.compiled:
    import math
    from types import SimpleNamespace

    def stf_size_class(nbytes):
        return math.frexp(nbytes)[1]

    def records(count, **fields):
        return [SimpleNamespace(**fields) for _ in range(count)]


SUBMISSION: cython.double = 20e-6  # seconds of a task of which nothing is known, beside those that its bytes take:
SPEED_OF_MEMORY: cython.double = 0.7 * 2e10  # of emulated devices,
SPEED_OF_GPU: cython.double = 0.7 * 2e12  # and of others
TIE: cython.double = 1e-12  # seconds


@cython.final
@cython.cclass
class Forecast:
    """When the content of a version is where, as the model has it."""

    def __dealloc__(self):
        if cython.compiled:
            PyMem_Free(self.at)


def forecast_of(version, width):
    """Return the forecast of a version, made on first use."""
    if version.forecast is not None:
        return version.forecast
    forecast: Forecast = Forecast.__new__(Forecast)
    if cython.compiled:
        forecast.at = cython.cast("double*", PyMem_Calloc(width, cython.sizeof(cython.double)))
        if forecast.at == cython.NULL:
            raise MemoryError
    else:
        forecast.at, forecast.written, forecast.used = [0.0] * width, 0.0, 0.0
    version.forecast = forecast
    return forecast


class Placement:
    """Chooses the places of a context's tasks.

    Parameters
    ----------
    engine : Engine
        Whose tasks and data.
    count : int
        The number of places; theirs are 1 and up.
    rule : Rule
        How they are chosen.
    """

    def __init__(self, engine, count, rule):
        source: cython.int
        number: cython.int
        self.engine, self.count, self.rule = engine, count, rule
        self.weight, self.is_owner, self.function = rule.move_weight, rule.is_owner, rule.function
        self.width = count + 1
        self.durations = Durations()
        self.is_limited = any([pool.limit for pool in engine.coherency.pools])
        kinds = [(place.kind, place.enqueues) for place in engine.places[: self.width]]
        self.names = [place.name for place in engine.places[: self.width]]
        self.kinds = list(dict.fromkeys(kinds[1:]))
        ways = self.width * self.width
        if cython.compiled:
            self.clocks = cython.cast("Clock*", PyMem_Calloc(self.width, cython.sizeof(Clock)))
            self.ways = cython.cast("Way*", PyMem_Calloc(ways, cython.sizeof(Way)))
            self.runs = cython.cast("Run*", PyMem_Calloc(len(self.kinds), cython.sizeof(Run)))
            if self.clocks == cython.NULL or self.ways == cython.NULL or self.runs == cython.NULL:
                raise MemoryError
        else:
            self.clocks = records(self.width, free=0.0, arrived=0.0)
            self.ways, self.runs = records(ways), records(len(self.kinds))
        for number in range(self.width):
            self.clocks[number].kind = self.kinds.index(kinds[number]) if number else 0
            self.clocks[number].memory = engine.places[number].memory
            for source in range(self.width):
                latency_s, bytes_per_s = engine.root.links.link(source, number)
                self.ways[source * self.width + number].latency = latency_s
                self.ways[source * self.width + number].per_byte = 1 / bytes_per_s
        self.timings = [None] * len(self.kinds)
        self.room = 0
        self.reserve(8)

    def __dealloc__(self):
        if cython.compiled:
            PyMem_Free(self.clocks)
            PyMem_Free(self.ways)
            PyMem_Free(self.runs)
            PyMem_Free(self.uses)
            PyMem_Free(self.sources)

    def reserve(self, count):
        """Have room for so many accesses."""
        if cython.compiled:
            uses = cython.cast("Use*", PyMem_Calloc(count, cython.sizeof(Use)))
            sources = cython.cast("Source*", PyMem_Calloc(count * self.width, cython.sizeof(Source)))
            if uses == cython.NULL or sources == cython.NULL:
                PyMem_Free(uses)
                PyMem_Free(sources)
                raise MemoryError
            PyMem_Free(self.uses)
            PyMem_Free(self.sources)
            self.uses, self.sources = uses, sources
        else:
            self.uses, self.sources = records(count), records(count * self.width)
        self.room = count
        return 0

    def choose(self, task, context):
        """Return the place of a task whose accesses are known; the model goes on as if the task ran there."""
        self.look(task)
        if self.function is None:
            place: cython.int = self.earliest(task)
        else:
            place = ask(self.function, task, context, self.candidates(task))
            self.look(task)  # the user's function may have submitted tasks
        timing: Timing = self.timings[self.clocks[place].kind]
        task.choice = timing if timing.is_due() else None
        if self.engine.observer is not None:
            task.choice = Choice(place, self.candidates(task), self.rule.describe(), self.names, task.choice)
        return self.commit(task, place)

    # -- the task ------------------------------------------------------------------------------------------------

    def look(self, task):
        """Note what the accesses of a task need, and how long the task would run."""
        i: cython.int
        self.size = len(task.accesses)
        self.after = self.total = 0.0
        if self.size > self.room:
            self.reserve(self.size)
        for i in range(self.size):
            self.look_at(cython.cast(Access, task.accesses[i]), i)
        return self.estimate(task)

    def look_at(self, access, i):
        """Note what one access needs: where its content is and since when, and what the task comes after for it."""
        data = access.core
        version = data.version
        while version.valid == 0 and version.partials is None and version.parent is not None:
            version = version.parent  # a recording that has not used the data yet
        mode: cython.int = access.mode
        count: cython.int = 0
        ready: cython.double
        data: Data
        forecast: Forecast = version.forecast
        nbytes: cython.double = 0.0 if data.token else data.layout.nbytes
        self.uses[i].mode, self.uses[i].target, self.uses[i].nbytes = mode, access.place, nbytes
        self.total += nbytes
        if forecast is not None and (mode != READ or data.token):
            self.after = max(self.after, forecast.written)
            if mode & WRITE:
                self.after = max(self.after, forecast.used)
        for item in version.replicas if mode != ACCUMULATE else partials_of(version):
            replica = cython.cast(Replica, item)
            if (replica.state == INVALID and mode != ACCUMULATE) or count == self.width:
                continue
            known: cython.bint = replica.place < self.width
            ready = forecast.at[replica.place] if known and forecast is not None else 0.0
            self.sources[i * self.width + count].place = replica.place if known else 0
            self.sources[i * self.width + count].ready = ready
            count += 1
        self.uses[i].sources = count
        return 0

    def estimate(self, task):
        """Note how long the task would run, by kind of device."""
        k: cython.int
        name = task.kind if task.symbol is None else task.symbol
        size_class: cython.int = stf_size_class(self.total)
        for k in range(len(self.kinds)):
            timing: Timing = self.durations.timing(name, size_class, k)
            self.timings[k] = timing
            self.runs[k].is_known = timing.mean >= 0
            if timing.mean >= 0:
                self.runs[k].seconds = timing.mean
            else:
                speed = SPEED_OF_GPU if self.kinds[k][1] else SPEED_OF_MEMORY
                self.runs[k].seconds = SUBMISSION + self.total / speed
        return 0

    # -- a place -------------------------------------------------------------------------------------------------

    def bring(self, place, task):
        """Return when the inputs of the task are at a place; with the `task` the model makes these copies."""
        i: cython.int
        k: cython.int
        mode: cython.int
        target: cython.int
        arrival: cython.double
        cost: cython.double
        found: cython.double
        nbytes: cython.double
        uses, sources, ways, width = self.uses, self.sources, self.ways, self.width
        here: cython.int = self.clocks[place].memory
        port: cython.double = self.clocks[here].arrived
        there: cython.double = 0.0
        moves: cython.double = 0.0
        moved: cython.double = 0.0
        for i in range(self.size):
            mode, target, nbytes = uses[i].mode, uses[i].target, uses[i].nbytes
            if mode == WRITE or (uses[i].sources == 0 and mode != ACCUMULATE):
                continue
            if target == AFFINE or target >= width:  # memory that all share
                target = here
            arrival = -1.0
            cost = 0.0
            for k in range(i * width, i * width + uses[i].sources):
                if sources[k].place == target:
                    arrival = sources[k].ready
                    cost = 0.0
                    break
                if mode & READ:
                    found = ways[sources[k].place * width + target].latency
                    found += nbytes * ways[sources[k].place * width + target].per_byte
                    if arrival < 0 or max(sources[k].ready, port) + found < arrival:
                        arrival = max(sources[k].ready, port) + found
                        cost = found
            if mode == ACCUMULATE:
                if arrival < 0:  # a partial result more, which is folded in the end
                    moves += ways[target * width].latency + nbytes * ways[target * width].per_byte
                    moved += nbytes
                continue
            if cost > 0:
                port = arrival
                moves += cost
                moved += nbytes
                if task is not None:
                    self.note_copy(task, i, target, arrival)
            there = max(there, arrival)
        self.moves, self.moved = moves, moved
        if task is not None:
            self.clocks[here].arrived = port
        return there

    def note_copy(self, task, i, target, arrival):
        """Let the content of an access be at a data place from `arrival` on."""
        access = cython.cast(Access, task.accesses[i])
        forecast_of(access.core.version, self.width).at[target] = arrival
        return 0

    def score(self, task, place):
        """Return what counts against a place; its terms are in the fields."""
        self.start = max(self.clocks[place].free, self.after, self.bring(place, None))
        self.finish = self.start + self.runs[self.clocks[place].kind].seconds
        self.evicted = self.lacking(task, place) if self.is_limited else 0.0
        per_byte = self.ways[self.clocks[place].memory * self.width].per_byte
        return self.finish + (self.weight - 1) * self.moves + self.evicted * per_byte

    def lacking(self, task, place):
        """Return how many bytes must be evicted from a place for what the task has no memory for there."""
        here: cython.int = self.clocks[place].memory
        pool: Pool = self.engine.coherency.pools[here]
        if pool.limit == 0:
            return 0.0
        needed: cython.double = 0.0
        i: cython.int
        for i in range(self.size):
            access = cython.cast(Access, task.accesses[i])
            if access.core.token or access.place != AFFINE:
                continue
            replica: Replica = access.core.version.find(here)
            if replica is None or not replica.has_memory():
                needed += self.uses[i].nbytes
        return max(pool.live() + needed - pool.limit, 0.0)

    def owns(self, place):
        """Return whether the first output of the task is valid at a place."""
        i: cython.int
        k: cython.int
        for i in range(self.size):
            if self.uses[i].mode & WRITE and self.uses[i].nbytes > 0:
                for k in range(i * self.width, i * self.width + self.uses[i].sources):
                    if self.sources[k].place == self.clocks[place].memory:
                        return True
                return False
        return False

    def earliest(self, task):
        """Return the place with the least score; an owner's, where that is the rule and there is one."""
        place: cython.int
        best: cython.int = 0
        least: cython.double = 0.0
        score: cython.double
        owners: cython.bint = self.is_owner and self.has_owner()
        for place in range(1, self.count + 1):
            if owners and not self.owns(place):
                continue
            if self.engine.places[place].is_lost and (best or place < self.count):
                continue  # the last one is taken where all are lost
            score = self.score(task, place)
            if best == 0 or score < least - TIE or (score <= least + TIE and self.owns(place) and not self.owns(best)):
                best, least = place, score
        return best

    def has_owner(self):
        """Return whether the first output of the task is valid at some place."""
        place: cython.int
        owners: cython.int = 0
        for place in range(1, self.count + 1):
            owners += self.owns(place)
        return owners > 0

    def commit(self, task, place):
        """Let the task run at a place, in the model; return that."""
        i: cython.int
        q: cython.int
        finish: cython.double = max(self.clocks[place].free, self.after, self.bring(place, task))
        finish += self.runs[self.clocks[place].kind].seconds
        self.clocks[place].free = finish
        for i in range(self.size):
            access = cython.cast(Access, task.accesses[i])
            forecast = forecast_of(access.core.version, self.width)
            forecast.used = max(forecast.used, finish)
            if access.mode != READ:
                forecast.written = max(forecast.written, finish)
            if access.mode & WRITE:
                for q in range(self.width):
                    forecast.at[q] = finish
        return place

    def candidates(self, task):
        """Return what is known of each place."""
        found = []
        place: cython.int
        for place in range(1, self.count + 1):
            self.score(task, place)
            run = self.runs[self.clocks[place].kind]
            found.append(
                Row(
                    place,
                    self.clocks[place].free,
                    self.moves,
                    int(self.moved),
                    int(self.evicted),
                    run.seconds if run.is_known else None,
                    self.finish,
                )
            )
        return found

    def settle_clocks(self):
        """Let all places be as late: the host has waited for everything."""
        place: cython.int
        latest: cython.double = 0.0
        for place in range(self.width):
            latest = max(latest, self.clocks[place].free, self.clocks[place].arrived)
        for place in range(self.width):
            self.clocks[place].free = self.clocks[place].arrived = latest
        return 0


def partials_of(version):
    """Return the replicas that tasks add to, of data that are being accumulated."""
    return [partial.replica for partial in version.partials or ()]
