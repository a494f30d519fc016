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

import weakref

import cython

if not cython.compiled:
    from types import SimpleNamespace

    from stf.observe.durations import stf_size_class

    def records(count, **fields):
        return [SimpleNamespace(**fields) for _ in range(count)]


SUBMISSION: cython.double = 20e-6  # seconds of a task of which nothing is known, beside those that its bytes take:
SPEED_OF_MEMORY: cython.double = 0.7 * 2e10  # of emulated devices,
SPEED_OF_GPU: cython.double = 0.7 * 2e12  # and of others


@cython.final
@cython.cclass
class Load:
    """When a device is done with what all contexts of this process gave it, as their models have it."""


loads: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # by the device


def load_of(device):
    """Return the load of a device, which all who know it share."""
    found = loads.get(device)
    if found is None:
        found = loads[device] = Load()
    return found


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
        forecast.at = [0.0] * width
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
    model : object, optional
        What is known of devices and links of such kinds (`devices.hardware.Model`); without it links are those of the
        engine, and times are learnt.
    timings : Timings, optional
        Where times are kept, if somebody keeps them already.
    devices : sequence, optional
        What the devices are known by in this process, so that contexts see each other's load.
    decisions : Decisions, optional
        Of an earlier run, to be repeated; or where those of this one are kept.
    spans : object, optional
        Measures work on streams, where bodies only enqueue it.
    """

    def __init__(self, engine, count, rule, model=None, timings=None, devices=None, decisions=None, spans=None):
        source: cython.int
        number: cython.int
        self.engine, self.count, self.rule = engine, count, rule
        self.weight, self.is_owner, self.function = rule.move_weight, rule.is_owner, rule.function
        self.width = count + 1
        known = None if model is None else model.known_s
        self.is_observed = timings is not None
        self.planned_s = {}
        if spans is not None:
            from stf.placement.device_times import DeviceTimes

            self.device_times = DeviceTimes(spans)
        self.durations = timings or Timings([place.kind for place in engine.places[1 : self.width]], known)
        if timings is not None:
            self.durations.known = known
        self.is_limited = any([pool.limit for pool in engine.coherency.pools])
        kinds = [(place.kind, place.enqueues) for place in engine.places[: self.width]]
        self.names = [place.name for place in engine.places[: self.width]]
        self.kinds = list(dict.fromkeys(kinds[1:]))
        self.kind_numbers = [self.durations.kinds.index(kind) for kind, _ in self.kinds]
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
                if model is not None and source != number and number and source:
                    latency_s, bytes_per_s = model.timed_link(engine.places[source].kind, engine.places[number].kind)
                self.ways[source * self.width + number].latency = latency_s
                self.ways[source * self.width + number].per_byte = 1 / bytes_per_s
        self.timings = [None] * len(self.kinds)
        self.loads = [Load(), *map(load_of, devices or [object() for _ in range(count)])]
        self.decisions = decisions
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
        place: cython.int
        self.number_task(task)
        self.take_loads()
        self.look(task)
        if self.decisions is not None and (place := self.repeated(task)) != 0:
            pass
        elif self.function is None:
            place = self.earliest(task)
        else:
            from stf.placement.asking import ask

            place = ask(self.function, task, context, self.candidates(task))
            self.look(task)  # the user's function may have submitted tasks
        self.settle_on(task, place)
        return self.commit(task, place)

    def settle_on(self, task, place):
        """Let the task that was looked at be measured, if it is due, and remember why it is at a place."""
        if self.decisions is not None:
            self.decisions.note(task.placed, task, place)
        timing: Timing = self.timings[self.clocks[place].kind]
        task.choice = self.measure_of(place, timing) if not self.is_observed and timing.is_due() else None
        if self.engine.observer is not None:
            from stf.placement.choices import Choice

            task.choice = Choice(place, self.candidates(task), self.rule.describe(), self.names, task.choice)
        return 0

    def measure_of(self, place, timing):
        """Return what measures a task at a place; None if nobody can."""
        if not self.engine.place(place).enqueues:
            return timing
        return None if self.device_times is None else self.device_times.measured(timing)

    def number_task(self, task):
        """Give a task its number among those whose place is chosen, in the order of submission."""
        self.number += 1
        task.placed = self.number
        return 0

    def repeated(self, task):
        """Return the place that an earlier run chose; 0 where none is repeated."""
        return self.decisions.place_of(task.placed, task, self.count)

    def take_loads(self):
        """Know what other contexts have given to the devices."""
        place: cython.int
        for place in range(1, self.width):
            self.clocks[place].free = cython.cast(Load, self.loads[place]).free
        return 0

    def take_back(self, task):
        """Let the last task that was placed count for nothing: it did not begin."""
        if task.placed and task.placed == self.last:
            self.clocks[self.last_place].free = self.last_free
            self.clocks[self.clocks[self.last_place].memory].arrived = self.last_arrived
            cython.cast(Load, self.loads[self.last_place]).free = self.last_free
            self.last = 0
        return 0

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
        version = version_at(data)
        mode: cython.int = access.mode
        count: cython.int = 0
        place: cython.int
        ready: cython.double
        data: Data
        forecast: Forecast = version.forecast if self.plan == 0 else self.planned_forecast(version)
        nbytes: cython.double = 0.0 if data.token else data.layout.nbytes
        self.uses[i].mode, self.uses[i].target, self.uses[i].nbytes = mode, access.place, nbytes
        self.total += nbytes
        if forecast is not None and (mode != READ or data.token):
            self.after = max(self.after, forecast.written)
            if mode & WRITE:
                self.after = max(self.after, forecast.used)
        if self.plan:
            for place in range(self.width):
                if forecast.partials >> min(place, 62) & 1 if mode == ACCUMULATE else forecast.at[place] >= 0:
                    self.sources[i * self.width + count].place = place
                    self.sources[i * self.width + count].ready = max(forecast.at[place], 0.0)
                    count += 1
            self.uses[i].sources = count
            return 0
        replicas: list = version.replicas if mode != ACCUMULATE else partials_of(version)
        n: cython.Py_ssize_t
        for n in range(len(replicas)):
            replica = cython.cast(Replica, replicas[n])
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
            timing: Timing = self.durations.timing(name, size_class, self.kind_numbers[k])
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
                port += cost
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
        forecast_of(version_at(access.core), self.width).at[target] = arrival
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
        tie: cython.double = 1e-12  # seconds
        for place in range(1, self.count + 1):
            if owners and not self.owns(place):
                continue
            if self.engine.places[place].is_lost and (best or place < self.count):
                continue  # the last one is taken where all are lost
            score = self.score(task, place)
            if best == 0 or score < least - tie or (score <= least + tie and self.owns(place) and not self.owns(best)):
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
        self.last, self.last_place, self.last_free = task.placed, place, self.clocks[place].free
        self.last_arrived = self.clocks[self.clocks[place].memory].arrived
        finish: cython.double = max(self.clocks[place].free, self.after, self.bring(place, task))
        finish += self.runs[self.clocks[place].kind].seconds
        self.clocks[place].free = cython.cast(Load, self.loads[place]).free = finish
        for i in range(self.size):
            access = cython.cast(Access, task.accesses[i])
            forecast = forecast_of(version_at(access.core), self.width)
            forecast.used = max(forecast.used, finish)
            if access.mode != READ:
                forecast.written = max(forecast.written, finish)
            if self.plan:
                self.note_write(access, place, finish)
            elif access.mode & WRITE:
                for q in range(self.width):
                    forecast.at[q] = finish
        return place

    def note_write(self, access, place, finish):
        """Let a plan know where the content of an access is from now on."""
        q: cython.int
        here: cython.int = self.clocks[place].memory if access.place == AFFINE else access.place
        forecast = forecast_of(version_at(access.core), self.width)
        if here >= self.width:
            here = 0
        if access.mode == ACCUMULATE:
            forecast.partials |= cython.cast(cython.longlong, 1) << min(here, 62)
        elif access.mode & WRITE:
            for q in range(self.width):
                forecast.at[q] = -1.0
            forecast.at[here] = finish
            forecast.partials = 0
        return 0

    def planned_forecast(self, version):
        """Return the forecast of a version in the plan that is being made: it begins with what the engine knows."""
        q: cython.int
        forecast = forecast_of(version, self.width)
        if forecast.plan == self.plan:
            return forecast
        forecast.plan = self.plan
        forecast.partials = 0
        valid: cython.longlong = 0
        for item in version.replicas:
            replica = cython.cast(Replica, item)
            if replica.state != INVALID:
                valid |= cython.cast(cython.longlong, 1) << min(replica.place if replica.place < self.width else 0, 62)
        for q in range(self.width):
            forecast.at[q] = max(forecast.at[q], 0.0) if valid >> min(q, 62) & 1 else -1.0
        for item in partials_of(version):
            replica = cython.cast(Replica, item)
            forecast.partials |= cython.cast(cython.longlong, 1) << min(replica.place, 62)
        return forecast

    def candidates(self, task):
        """Return what is known of each place."""
        from stf.placement.choices import Row

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

    def end(self):
        """Let others know that nothing is left to do here, and write what was chosen where that is wanted."""
        self.settle_clocks()
        if self.decisions is not None:
            self.decisions.write()

    def settle_clocks(self):
        """Let all places be as late: the host has waited for everything."""
        place: cython.int
        latest: cython.double = 0.0
        for place in range(self.width):
            latest = max(latest, self.clocks[place].free, self.clocks[place].arrived)
        self.take_loads()
        for place in range(self.width):
            latest = max(latest, self.clocks[place].free)
        for place in range(self.width):
            self.clocks[place].free = self.clocks[place].arrived = latest
            cython.cast(Load, self.loads[place]).free = latest
        self.last = 0
        return 0


def version_at(data):
    """Return the version of data that a task uses which begins now."""
    version = data.version
    while version.valid == 0 and version.partials is None and version.parent is not None:
        version = version.parent  # a recording that has not used the data yet
    return version


def partials_of(version):
    """Return the replicas that tasks add to, of data that are being accumulated."""
    return [partial.replica for partial in version.partials or ()]
