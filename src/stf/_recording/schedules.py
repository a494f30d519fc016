"""Schedules: which worker does which steps of a loop, in which order, and what each waits for.

`planned` chooses: steps that much depends on come first (ranks by one pass backwards). Each goes where it would end
first, or to the worker that its memory belongs to: small bodies take no longer than a line of the cache travels.
A step waits for those before it in other queues only: of each queue for the last one, and for none that its queue has
waited for already. `checked` does not trust that. It runs the queues in thought, with a vector clock for each: how far
it knows the others to be. So it finds a step that is missing or there twice, queues that wait for each other for ever,
and two steps that must be in order and are not. A schedule is checked before its first launch, and tests give it wrong
ones (`tests/properties/test_schedules.py`).
"""

from __future__ import annotations

import collections
import heapq
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

HOP_NS = 200.0  # what it takes until another core sees that a step is done
LOOK_NS = 80.0  # at the byte of a step that is done, which another core wrote
MOVE_NS = 25.0  # what memory of a few lines takes that another core has used: a core waits for several at a time
WAKE_NS = 15_000.0  # until a worker that is idle helps
LINE = 64  # bytes of a line of the cache


class Step(NamedTuple):
    """A step in a queue: its number, the bytes that it waits for, and its own byte; -1 if nobody waits for it."""

    number: int
    waits: tuple[int, ...]
    done: int


class StepList:
    """The steps of a recording: what each comes after, about how long it takes, in ns, and the memory that it uses."""

    add_node: Any  # adds node `number` of a program after some steps; returns the steps after which it is done

    def __init__(self) -> None:
        self.needs: list[list[int]] = []
        self.costs: list[float] = []
        self.accesses: list[Sequence[tuple[int, bool]]] = []

    def add(self, program: Any, before: list[int], *more: Any) -> list[int]:
        """Add the nodes of a program after some steps; return the steps after which it is done."""
        ends: list[list[int]] = []
        followed: set[int] = set()
        for number in range(program.count):
            needs = program.needs_of(number)
            followed.update(needs)
            last = list(dict.fromkeys([end for need in needs for end in ends[need]])) if needs else before
            ends.append(self.add_node(program, number, last, *more))
        found = [end for number, node in enumerate(ends) if number not in followed for end in node]
        return list(dict.fromkeys(found or before))

    def add_step(self, needs: list[int], cost_ns: float, accesses: Sequence[tuple[int, bool]]) -> int:
        """Add a step; return its number."""
        self.needs.append(needs)
        self.costs.append(cost_ns)
        self.accesses.append(accesses)
        return len(self.needs) - 1


class ScheduleError(RuntimeError):
    """Raised for queues that would not do what a recording says: a fault of stf."""


def planned(
    needs: Sequence[Sequence[int]],
    costs: Sequence[float],
    workers: int,
    accesses: Sequence[Sequence[tuple[int, bool]]] | None = None,
) -> list[list[int]]:
    """Return the steps of each queue, for up to so many workers.

    Parameters
    ----------
    needs : sequence of sequence of int
        The steps that each comes after, which have smaller numbers.
    costs : sequence of float
        About how long each takes, in ns.
    accesses : sequence of sequence of (int, bool), optional
        The memory that each uses, and whether it writes there.
    """
    count = len(needs)
    if workers <= 1 or count <= 1 or sum(costs) < 2 * WAKE_NS:
        return [list(range(count))] if count else []
    queues, span = spread(needs, costs, workers, accesses=accesses)
    if accesses is not None:
        near, near_span = spread(needs, costs, workers, None, accesses, homes_of(costs, accesses, workers))
        if near_span < 1.05 * span:  # times are known no better than that, and it waits less for caches
            queues, span = near, near_span
    if span + WAKE_NS > 0.9 * sum(costs):
        return [list(range(count))]
    return [queue for queue in queues if queue]


def spread(
    needs: Sequence[Sequence[int]],
    costs: Sequence[float],
    workers: int,
    hop_ns: float | None = None,
    accesses: Sequence[Sequence[tuple[int, bool]]] | None = None,
    homes: Sequence[int] | None = None,
) -> tuple[list[list[int]], float]:
    """Return the steps of so many queues, and when the last step ends, in ns.

    A step that another queue waits for is seen after `hop_ns`, `HOP_NS` by default. To look whether it is done takes
    `LOOK_NS`, and memory that another worker used `MOVE_NS`. A step goes to its worker among `homes`, or where it ends
    first. Those that a worker elsewhere waits for come first: the others hide how long that takes.
    """
    hop_ns = HOP_NS if hop_ns is None else hop_ns
    count = len(needs)
    ranks = [0.0] * count
    for step in reversed(range(count)):
        ranks[step] += max(costs[step], 1.0)
        for need in needs[step]:
            away = homes is not None and homes[need] != homes[step]
            ranks[need] = max(ranks[need], ranks[step] + hop_ns if away else ranks[step])
    queues: list[list[int]] = [[] for _ in range(workers)]
    free, ends, place, position = [0.0] * workers, [0.0] * count, [0] * count, [0] * count
    idle = [(0.0, worker) for worker in range(workers)]  # a heap, with entries of queues that were given more since
    caches, known = Caches(), [[-1] * workers for _ in range(workers)]  # how far each worker knows the others to be
    for step in sorted(range(count), key=lambda step: -ranks[step]):
        while free[idle[0][1]] != idle[0][0]:
            heapq.heappop(idle)
        mine: Sequence[tuple[int, bool]] = () if accesses is None else accesses[step]
        best, best_end = -1, 0.0
        among = [*[place[need] for need in needs[step]], idle[0][1]]
        if homes is not None and homes[step] >= 0:
            among = [homes[step]]
        for worker in dict.fromkeys(among):
            start, seen, looks = free[worker], known[worker], set()
            for need in needs[step]:
                other = place[need]
                start = max(start, ends[need] if other == worker else ends[need] + hop_ns)
                if other != worker and position[need] > seen[other]:
                    looks.add(other)
            end = start + max(costs[step], 1.0) + LOOK_NS * len(looks) + MOVE_NS * caches.missing(mine, worker)
            if best < 0 or end < best_end:
                best, best_end = worker, end
        for need in needs[step]:
            known[best][place[need]] = max(known[best][place[need]], position[need])
        position[step] = len(queues[best])
        queues[best].append(step)
        caches.use(mine, best)
        free[best] = ends[step] = best_end
        heapq.heappush(idle, (best_end, best))
        place[step] = best
    return queues, max(free)


class Caches:
    """Which workers have some memory in their caches: who wrote it last, and those that have read it since."""

    def __init__(self) -> None:
        self.holders: dict[int, set[int]] = {}

    def missing(self, accesses: Sequence[tuple[int, bool]], worker: int) -> int:
        """Return how much of what a step uses comes from the caches of others, or must leave them."""
        count = 0
        for memory, writes in accesses:
            holders = self.holders.get(memory)
            count += holders is not None and (worker not in holders or (writes and len(holders) > 1))
        return count

    def use(self, accesses: Sequence[tuple[int, bool]], worker: int) -> None:
        """Let a worker use memory."""
        for memory, writes in accesses:
            if writes:
                self.holders[memory] = {worker}
            else:
                self.holders.setdefault(memory, set()).add(worker)


def homes_of(costs: Sequence[float], accesses: Sequence[Sequence[tuple[int, bool]]], workers: int) -> list[int]:
    """Return a worker for each step, so that all have the same to do, and few use what others write.

    Each memory belongs to one worker, which does the steps that write it. The parts grow one after the other, always by
    the memory that most steps use together with the part. Steps that have the same `accesses` object write beside each
    other, so any worker may do them: -1.
    """
    pieces = collections.Counter(map(id, accesses))
    homes = [
        -1 if not mine or pieces[id(mine)] > 1 else next((memory for memory, writes in mine if writes), mine[0][0])
        for mine in accesses
    ]
    load: dict[int, float] = {}
    for step, home in enumerate(homes):
        if home != -1:
            load[home] = load.get(home, 0.0) + max(costs[step], 1.0)
    links: dict[int, dict[int, int]] = {memory: {} for memory in load}
    for home, mine in zip(homes, accesses, strict=True):
        for memory, _ in mine:
            if home != -1 and memory != home and memory in links:
                links[home][memory] = links[home].get(memory, 0) + 1
                links[memory][home] = links[memory].get(home, 0) + 1
    degree = {memory: sum(near.values()) for memory, near in links.items()}
    left = dict.fromkeys(load)
    outside = dict.fromkeys(load, 0)  # links of what is left to the parts that there are
    seeds = [(0, degree[memory], at, memory) for at, memory in enumerate(load)]  # a heap, with entries of before
    heapq.heapify(seeds)
    worker_of: dict[int, int] = {}
    remaining = sum(load.values())
    for worker in range(workers):
        wanted, got = remaining / (workers - worker), 0.0
        inside: dict[int, int] = {}  # links of what is left to this part
        near: list[tuple[int, int, int, int]] = []  # a heap, too
        while left:
            memory = first_of(near, left, inside)
            if memory is None:
                memory = first_of(seeds, left, outside)
            assert memory is not None
            if worker < workers - 1 and got + load[memory] / 2 > wanted:
                break
            worker_of[memory] = worker
            got += load[memory]
            del left[memory]
            for other, weight in links[memory].items():
                if other in left:
                    inside[other] = inside.get(other, 0) + weight
                    outside[other] += weight
                    heapq.heappush(near, (-inside[other], degree[other], len(near), other))
                    heapq.heappush(seeds, (-outside[other], degree[other], len(seeds), other))
        remaining -= got
    return [worker_of.get(home, -1) for home in homes]


def first_of(heap: list[tuple[int, int, int, int]], left: dict[int, None], links: dict[int, int]) -> int | None:
    """Return the memory of the first entry of a heap that says how many links it has now; None if there is none."""
    while heap:
        count, _, _, memory = heap[0]
        if memory in left and links[memory] == -count:
            return memory
        heapq.heappop(heap)
    return None


def with_waits(needs: Sequence[Sequence[int]], queues: Sequence[Sequence[int]]) -> list[list[Step]]:
    """Return the steps of each queue with what they wait for; the bytes of a queue lie in lines of their own."""
    place, position = placed(len(needs), queues)
    waits: dict[int, list[int]] = {}
    for number, queue in enumerate(queues):
        seen = [-1] * len(queues)  # of each queue, how far this one has waited for it
        for step in queue:
            last: dict[int, int] = {}
            for need in needs[step]:
                if place[need] != number and position[need] > last.get(place[need], seen[place[need]]):
                    last[place[need]] = position[need]
            for other, at in last.items():
                seen[other] = at
            waits[step] = [queues[other][at] for other, at in last.items()]
    awaited = {step for found in waits.values() for step in found}
    bytes_of: dict[int, int] = {}
    first = 0
    for queue in queues:
        mine = [step for step in queue if step in awaited]
        bytes_of.update({step: first + at for at, step in enumerate(mine)})
        first += -(-len(mine) // LINE) * LINE
    return [
        [Step(step, tuple([bytes_of[other] for other in waits[step]]), bytes_of.get(step, -1)) for step in queue]
        for queue in queues
    ]


def placed(count: int, queues: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """Return the queue of each step, and where it is in that; -1 for steps that are in none."""
    place, position = [-1] * count, [-1] * count
    for number, queue in enumerate(queues):
        for at, step in enumerate(queue):
            place[step], position[step] = number, at
    return place, position


def check(
    needs: Sequence[Sequence[int]], accesses: Sequence[Sequence[tuple[int, bool]]], queues: list[list[Step]]
) -> None:
    """Raise ScheduleError unless queues do all steps once, in the order that these need, and end.

    Parameters
    ----------
    needs : sequence of sequence of int
        The steps that each comes after.
    accesses : sequence of sequence of (int, bool)
        The memory that each step uses, and whether it writes there: of two steps that use the same, and one of which
        writes, the one with the smaller number must be first; but for steps that write it beside each other, which
        have the same `accesses` object.
    """
    count = len(needs)
    place, position = placed_once(count, queues)
    wanted = [list(found) for found in needs]
    known: dict[int, Uses] = {}
    for step in range(count):
        for memory, writes in accesses[step]:
            uses = known.setdefault(memory, Uses())
            if writes and not (uses.writers and accesses[uses.writers[0]] is accesses[step]):
                uses.before, uses.writers, uses.readers = [*uses.writers, *uses.readers], [], []
            wanted[step] += uses.before if writes else uses.writers
            (uses.writers if writes else uses.readers).append(step)

    def must_follow(step: int, clock: Any) -> None:
        mine, at = place[step], position[step]
        for before in wanted[step]:
            other = place[before]
            if (at - 1 if other == mine else clock[other]) < position[before]:
                raise ScheduleError(f"step {step} does not come after step {before}")

    run_in_thought(queues, must_follow)


class Uses:
    """The steps that wrote some memory last, beside each other, those that come `before` them, and those that read."""

    def __init__(self) -> None:
        self.before: list[int] = []
        self.writers: list[int] = []
        self.readers: list[int] = []


def placed_once(count: int, queues: list[list[Step]]) -> tuple[list[int], list[int]]:
    """Return the queue of each step and where it is in that; ScheduleError unless each is there once."""
    numbers = [step.number for queue in queues for step in queue]
    if sorted(numbers) != list(range(count)):
        raise ScheduleError("a step is missing, or is there twice")
    done = [step.done for queue in queues for step in queue if step.done >= 0]
    if len(set(done)) != len(done):
        raise ScheduleError("two steps have one byte")
    return placed(count, [[step.number for step in queue] for queue in queues])


def run_in_thought(queues: list[list[Step]], begins: Callable[[int, Any], None]) -> None:
    """Let `begins` know of each step, and how far every queue is, at least, when it begins.

    Raises
    ------
    ScheduleError
        A step never begins.
    """
    owner = {step.done: (number, at) for number, queue in enumerate(queues) for at, step in enumerate(queue)}
    clocks: dict[int, Any] = {}  # of the steps that others wait for, by their bytes
    now = [np.full(len(queues), -1, np.int64) for _ in queues]
    at = [0] * len(queues)
    moved = True
    while moved:
        moved = False
        for number, queue in enumerate(queues):
            while at[number] < len(queue):
                step = queue[at[number]]
                before = [owner.get(byte, (-1, 0)) for byte in step.waits]
                if any(other < 0 for other, _ in before):
                    raise ScheduleError(f"step {step.number} waits for a byte that nobody sets")
                if any(at[other] <= position for other, position in before):
                    break
                clock = now[number]
                for byte, (other, position) in zip(step.waits, before, strict=True):
                    np.maximum(clock, clocks[byte], out=clock)
                    clock[other] = max(clock[other], position)
                begins(step.number, clock)
                if step.done >= 0:
                    clocks[step.done] = clock.copy()
                clock[number] = at[number]
                at[number] += 1
                moved = True
    if any(position < len(queue) for position, queue in zip(at, queues, strict=True)):
        raise ScheduleError("queues wait for each other for ever")
