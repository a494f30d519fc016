"""Random schedules, and ones that were changed, beside an oracle that walks through their graph.

A schedule is right if each step is there once, nothing waits for ever, and all that must be in order is. The product
decides by vector clocks (`stf._recording.schedules.check`). The oracle makes a graph of all steps, with an edge from a
step to the next one of its queue, and from each step to those that wait for its byte. It is right where the graph has
no circle, and a path for each pair that must be in order. They must agree.

    python tests/properties/schedules.py 0 100000
"""

from __future__ import annotations

import itertools
import random
import sys
from typing import Any

from stf._recording.schedules import ScheduleError, Step, check, homes_of, planned, spread, with_waits


def random_steps(rng: random.Random) -> tuple[list[list[int]], list[list[tuple[int, bool]]]]:
    """Return what steps need by what they access, as an engine orders them; some edges are left to transitivity."""
    count, memories = rng.randint(1, 14), rng.randint(1, 4)
    accesses: list[list[tuple[int, bool]]] = []
    needs: list[list[int]] = []
    writers: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    while len(needs) < count:
        mine = [(m, rng.random() < 0.5) for m in rng.sample(range(memories), rng.randint(1, memories))]
        before: set[int] = set()
        for memory, writes in mine:
            last = writers.get(memory, [])
            before.update((readers.get(memory) or last) if writes else last)
        parts = rng.choice([1, 1, 1, 2, 3])  # steps that do one task beside each other
        numbers = list(range(len(needs), len(needs) + parts))
        needs += [sorted(before) for _ in numbers]
        accesses += [mine for _ in numbers]
        for memory, writes in mine:
            if writes:
                writers[memory], readers[memory] = numbers, []
            else:
                readers.setdefault(memory, []).extend(numbers)
    return needs, accesses


def random_queues(
    rng: random.Random, needs: list[list[int]], accesses: list[list[tuple[int, bool]]]
) -> list[list[Step]]:
    """Return a schedule as the product makes it."""
    costs = [rng.choice([1.0, 50.0, 1000.0, 50_000.0]) for _ in needs]
    workers = rng.randint(1, 8)
    homes = homes_of(costs, accesses, workers) if rng.random() < 0.5 else None
    queues = spread(needs, costs, workers, None, accesses, homes)[0]
    if rng.random() < 0.3:
        queues = planned(needs, costs, workers, rng.choice([None, accesses]))
    return with_waits(needs, [queue for queue in queues if queue])


def changed(rng: random.Random, queues: list[list[Step]]) -> list[list[Step]]:
    """Return the queues with something changed, which may be wrong now, or not."""
    found = [list(queue) for queue in queues]
    for _ in range(rng.choice([1, 1, 2])):
        queue = rng.choice(found)
        if not queue:
            continue
        at = rng.randrange(len(queue))
        kind = rng.choice(["wait", "wait", "wait", "other", "swap", "move", "drop", "twice", "byte"])
        step = queue[at]
        if kind == "wait" and step.waits:
            gone = rng.randrange(len(step.waits))
            queue[at] = step._replace(waits=step.waits[:gone] + step.waits[gone + 1 :])
        elif kind == "other" and step.waits:
            bytes_of = [one.done for mine in found for one in mine if one.done >= 0]
            waits = list(step.waits)
            waits[rng.randrange(len(waits))] = rng.choice(bytes_of) if bytes_of and rng.random() < 0.9 else 12345
            queue[at] = step._replace(waits=tuple(waits))
        elif kind == "swap" and len(queue) > 1:
            other = rng.randrange(len(queue))
            queue[at], queue[other] = queue[other], queue[at]
        elif kind == "move":
            target = rng.choice(found)
            target.insert(rng.randint(0, len(target)), queue.pop(at))
        elif kind == "drop" and rng.random() < 0.3:
            queue.pop(at)
        elif kind == "twice" and rng.random() < 0.3:
            rng.choice(found).append(step)
        elif kind == "byte" and rng.random() < 0.3:
            queue[at] = step._replace(done=-1)
    return found


def is_right(needs: Any, accesses: Any, queues: list[list[Step]]) -> bool:
    """Return whether a schedule is right, as the oracle sees it."""
    steps = [step for queue in queues for step in queue]
    if sorted(step.number for step in steps) != list(range(len(needs))):
        return False
    after: dict[int, set[int]] = {step.number: set() for step in steps}
    owner = {step.done: step.number for step in steps if step.done >= 0}
    if len(owner) < sum(step.done >= 0 for step in steps):
        return False
    for queue in queues:
        for one, other in itertools.pairwise(queue):
            after[one.number].add(other.number)
    for step in steps:
        for byte in step.waits:
            if byte not in owner:
                return False
            after[owner[byte]].add(step.number)
    reached: dict[int, set[int]] = {}
    for start in after:
        seen: set[int] = set()
        left = list(after[start])
        while left:
            node = left.pop()
            if node not in seen:
                seen.add(node)
                left += after[node]
        reached[start] = seen
    if any(node in seen for node, seen in reached.items()):
        return False
    pairs = {(need, step) for step, mine in enumerate(needs) for need in mine}
    for step, mine in enumerate(accesses):
        for before in range(step):
            if accesses[before] is not mine and conflicts(accesses[before], mine):
                pairs.add((before, step))
    return all(step in reached[before] for before, step in pairs)


def conflicts(one: list[tuple[int, bool]], other: list[tuple[int, bool]]) -> bool:
    return any(a == b and (first or second) for a, first in one for b, second in other)


def accepts(needs: Any, accesses: Any, queues: list[list[Step]]) -> bool:
    """Return whether the product accepts a schedule."""
    try:
        check(needs, accesses, queues)
    except ScheduleError:
        return False
    return True


def run(seed: int, changes: int = 8) -> tuple[int, int]:
    """Check one random schedule, and changed ones; return how many of these there were, and how many were wrong."""
    rng = random.Random(seed)
    needs, accesses = random_steps(rng)
    queues = random_queues(rng, needs, accesses)
    assert accepts(needs, accesses, queues), f"{seed}: a planned schedule is refused"
    assert is_right(needs, accesses, queues), f"{seed}: a planned schedule is wrong"
    wrong = 0
    for number in range(changes):
        other = changed(rng, queues)
        right = is_right(needs, accesses, other)
        assert accepts(needs, accesses, other) == right, (
            f"{seed}, change {number}: {right}\n{needs}\n{accesses}\n{other}"
        )
        wrong += not right
    return changes, wrong


def main() -> None:
    first, last = int(sys.argv[1]), int(sys.argv[2])
    found = [run(seed) for seed in range(first, last)]
    print(f"{last - first} schedules, {sum(c for c, _ in found)} changed, {sum(w for _, w in found)} of these wrong")


if __name__ == "__main__":
    main()
