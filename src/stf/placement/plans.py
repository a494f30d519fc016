"""Plans: the order and the places of tasks that are known before any of them begins.

A task that is placed as it comes goes where it ends first, though others wait longer for what comes after another one.
With a window of tasks known, the most urgent is placed first (HEFT: Topcuoglu, Hariri and Wu, 2002, "Performance-
effective and low-complexity task scheduling for heterogeneous computing"). Two passes:

1. *Ranks*, from the last task to the first. The rank of a task is what it takes, and the largest rank of those that
   come after it, with the copies to them. No graph is built: each data object keeps two numbers, since the tasks after
   a task are those that use what it wrote, up to the next writer, and the next writer of what it read::

       rank = duration + max(used[written], written[written], written[read])
       then for what it writes:   written = rank;  used = rank + move, if it reads the content, else 0
            for what it reads:    used = max(used, rank + move)

   A copy counts with (P - 1) / P, since one of P places has the content.
2. *Places*, in the order of falling ranks, by the model that places single tasks (`model`), which goes on from task to
   task. All durations are positive here, so what comes after a task has a smaller rank. So this order comes after all
   dependences, and tasks may be submitted in it. Of tasks of one rank at one place, those come first whose inputs are
   there first. The blocks of a stencil all have the same rank, and those wait longest whose neighbour is on another
   device: efficiency 0.99 where the order of the program gives 0.85.

Lanes keep the order: tasks that take longer than `LONG_S` have one lane on each device, in the order of the plan.
Priorities of streams don't do the same. CUDA has six, and simulated on eight devices they gave efficiency 0.80 where
one lane gives 0.88 (Cholesky of 16 x 16 tiles); the order alone, on many lanes, gave 0.69. Short tasks keep several
lanes, since small kernels overlap.

What the engine knows of where content is stays as it was before the plan, until its tasks begin. So the model keeps
that itself meanwhile: `Forecast.plan`.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from types import SimpleNamespace

    def zeros(count):
        return [SimpleNamespace(used=0.0, written=0.0, of_tiles=0.0, move=0.0) for _ in range(count)]


LONG_S: cython.double = 50e-6
LEAST_S: cython.double = 1e-9  # of a task, so that what comes after it has a smaller rank


def plan(placement, tasks, count):
    """Return the order of the first tasks of a plan, as indices, and the place of each; the model goes on from there.

    Parameters
    ----------
    placement : Placement
        The model.
    tasks : list of TaskCore
        In the order of the program; their accesses are known, and none has begun.
    count : int
        How many to place, if there are as many; the others count in the ranks of these.

    Returns
    -------
    order : list of int
    places : list of int
        By index of the task.
    """
    place: cython.int
    next: cython.Py_ssize_t = 0
    count = min(count, len(tasks))
    order: list = []
    places: list = [0] * len(tasks)
    ranks: list = ranks_of(placement, tasks)
    ranked: list = by_rank(ranks)
    placement.plans += 1
    placement.plan = placement.plans
    placement.take_loads()
    planned_s: dict = {}
    try:
        while len(order) < count:
            if next == len(order):  # all of one rank were placed
                next = end_of_rank(ranked, ranks, len(order))
                if next - len(order) > 1:
                    ranked[len(order) : next] = by_readiness(placement, tasks, ranked[len(order) : next])
            index = ranked[len(order)]
            order.append(index)
            task = cython.cast(TaskCore, tasks[index])
            placement.look(task)
            if placement.decisions is None or (place := placement.repeated(task)) == 0:
                place = placement.earliest(task)
            placement.settle_on(task, place)
            run = placement.runs[placement.clocks[place].kind]
            planned_s[placement.timings[placement.clocks[place].kind]] = run.seconds
            task.keeps_order = run.is_known and run.seconds > LONG_S
            placement.commit(task, place)
            places[index] = place
    finally:
        placement.plan = 0
    placement.planned_s = planned_s
    return order, places


def by_rank(ranks):
    """Return indices by falling ranks; those of equal rank in their order."""
    return sorted(range(len(ranks)), key=ranks.__getitem__, reverse=True)


def end_of_rank(ranked, ranks, first):
    """Return where the tasks end that have the same rank as that at `first`."""
    end: cython.Py_ssize_t = first + 1
    while end < len(ranked) and ranks[ranked[end]] == ranks[ranked[first]]:
        end += 1
    return end


def by_readiness(placement, tasks, indices):
    """Return tasks of one rank in their order, but that of each place those come first that keep it waiting least."""
    place: cython.int
    waits: dict = {}
    wanted: list = []
    at: dict = {}
    for index in indices:
        placement.look(tasks[index])
        place = placement.earliest(tasks[index])
        placement.score(tasks[index], place)
        waits[index] = placement.start - placement.clocks[place].free
        wanted.append(place)
        at.setdefault(place, []).append(index)
    for mine in at.values():
        mine.sort(key=waits.__getitem__)
        mine.reverse()  # they are taken from the end
    return [at[place].pop() for place in wanted]


def ranks_of(placement, tasks):
    """Return the rank of each task: the time from its begin to the end of all that comes after it, as if all ran.

    Parts have the order of their whole. A tile has an order of its own, and that of what it is a tile of.
    """
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    kind: cython.int
    rank: cython.double
    seconds: cython.double
    numbers: dict = {}
    for i in range(len(tasks)):
        for item in cython.cast(TaskCore, tasks[i]).accesses:
            data = whole_of(cython.cast(Access, item).core)
            while data is not None:
                numbers.setdefault(data, len(numbers))
                data = data.parent
    latency, per_byte = typical_way(placement)
    if cython.compiled:
        uses = cython.cast("Rank*", PyMem_Calloc(len(numbers) + 1, cython.sizeof(Rank)))
        if uses == cython.NULL:
            raise MemoryError
    else:
        uses = zeros(len(numbers) + 1)
    try:
        for core, number in numbers.items():
            data = cython.cast(Data, core)
            uses[number].move = 0.0 if data.token else latency + data.layout.nbytes * per_byte
        ranks: list = [0.0] * len(tasks)
        for i in range(len(tasks) - 1, -1, -1):
            task = cython.cast(TaskCore, tasks[i])
            placement.look(task)
            seconds = 0.0
            for kind in range(len(placement.kinds)):
                seconds += placement.runs[kind].seconds
            rank = 0.0
            for item in task.accesses:
                access = cython.cast(Access, item)
                data = whole_of(access.core)
                rank = max(rank, uses[cython.cast(cython.Py_ssize_t, numbers[data])].of_tiles)
                while data is not None:
                    k = numbers[data]
                    rank = max(rank, uses[k].written)
                    if access.mode != READ:
                        rank = max(rank, uses[k].used)
                    data = data.parent
            rank += max(seconds / len(placement.kinds), LEAST_S)
            for item in task.accesses:
                access = cython.cast(Access, item)
                data = whole_of(access.core)
                k = numbers[data]
                if access.mode != READ:
                    uses[k].written = rank
                    uses[k].used = uses[k].of_tiles = 0.0
                while (data := data.parent) is not None:
                    k = numbers[data]
                    uses[k].of_tiles = max(uses[k].of_tiles, rank)
            for item in task.accesses:
                access = cython.cast(Access, item)
                k = numbers[whole_of(access.core)]
                if access.mode != WRITE:
                    uses[k].used = max(uses[k].used, rank + uses[k].move)
            ranks[i] = rank
    finally:
        if cython.compiled:
            PyMem_Free(uses)
    return ranks


def typical_way(placement):
    """Return the latency and the time of a byte of a copy between two devices, in the mean, by (P - 1) / P."""
    source: cython.int
    target: cython.int
    latency: cython.double = 0.0
    per_byte: cython.double = 0.0
    ways: cython.int = placement.count * placement.count
    for source in range(1, placement.count + 1):
        for target in range(1, placement.count + 1):
            if source != target:
                latency += placement.ways[source * placement.width + target].latency
                per_byte += placement.ways[source * placement.width + target].per_byte
    return latency / ways, per_byte / ways
