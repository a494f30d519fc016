"""The programs that are timed: empty tasks in the shapes of the cases of the same names for CUDA.

A case is written once per form, as a user writes it, and runs on whatever has the methods of a context and of logical
data: stf, or the compiled objects of ``baseline.pyx``. For schedulers that want to be told which task follows which,
`Case.predecessors` says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["CASES", "Case"]

TOKENS = 64
WIDTH, STEPS = 32, 300  # of the stencil


@dataclasses.dataclass(frozen=True)
class Case:
    """A program of n empty tasks.

    ``blocks(context, data, n)`` submits them as with-blocks, ``calls(fn, data, n)`` as calls of a function with the
    parameters `modes`; ``accesses(n)`` gives what each task reads and what it writes, as indices into the data.
    """

    id: str
    says: str
    data_count: int
    tokens: bool
    modes: tuple[str, ...]
    blocks: Callable[[Any, list, int], None]
    calls: Callable[[Any, list, int], None]
    accesses: Callable[[int], Iterator[tuple[tuple[int, ...], tuple[int, ...]]]]
    most: int = 10_000
    unit: int = 1

    def count(self, wanted: int) -> int:
        """Return how many tasks the case has when `wanted` are asked for: whole rows of a stencil."""
        return max(min(wanted, self.most) // self.unit, 1) * self.unit

    def predecessors(self, count: int) -> list[list[int]]:
        """Return for each task those that it must follow: the rule of sequential task flow, worked out ahead."""
        writers: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        found = []
        for task, (reads, writes) in enumerate(self.accesses(count)):
            before = {writers[i] for i in reads if i in writers}
            for i in writes:
                before.update(readers.get(i) or [writers[i]] if i in writers else readers.get(i, ()))
            found.append(sorted(before))
            for i in reads:
                readers.setdefault(i, []).append(task)
            for i in writes:
                writers[i] = task
                readers[i] = []
        return found


def chain_blocks(ctx, data, n):
    x = data[0]
    for _ in range(n):
        with ctx.task(x.rw()):
            pass


def chain_calls(fn, data, n):
    x = data[0]
    for _ in range(n):
        fn(x)


def chain_accesses(n):
    for _ in range(n):
        yield (0,), (0,)


def two_blocks(ctx, data, n):
    x, y = data
    for _ in range(n):
        with ctx.task(x.read(), y.rw()):
            pass


def two_calls(fn, data, n):
    x, y = data
    for _ in range(n):
        fn(x, y)


def two_accesses(n):
    for _ in range(n):
        yield (0, 1), (1,)


def tokens_blocks(ctx, data, n):
    for i in range(n):
        with ctx.task(data[i % TOKENS].rw()):
            pass


def tokens_calls(fn, data, n):
    for i in range(n):
        fn(data[i % TOKENS])


def tokens_accesses(n):
    for i in range(n):
        yield (i % TOKENS,), (i % TOKENS,)


def stencil_blocks(ctx, data, n):
    old, new = data[:WIDTH], data[WIDTH:]
    for _ in range(n // WIDTH):
        for i in range(WIDTH):
            with ctx.task(old[i - 1].read(), old[i].read(), old[i + 1 - WIDTH].read(), new[i].write()):
                pass
        old, new = new, old


def stencil_calls(fn, data, n):
    old, new = data[:WIDTH], data[WIDTH:]
    for _ in range(n // WIDTH):
        for i in range(WIDTH):
            fn(old[i - 1], old[i], old[i + 1 - WIDTH], new[i])
        old, new = new, old


def stencil_accesses(n):
    old, new = 0, WIDTH
    for _ in range(n // WIDTH):
        for i in range(WIDTH):
            yield (old + (i - 1) % WIDTH, old + i, old + (i + 1) % WIDTH), (new + i,)
        old, new = new, old


CASES = [
    Case("chain_token", "chain on one token", 1, True, ("rw",), chain_blocks, chain_calls, chain_accesses),
    Case("chain_data", "chain on one array", 1, False, ("rw",), chain_blocks, chain_calls, chain_accesses),
    Case("two_accesses", "one read, one rw", 2, False, ("read", "rw"), two_blocks, two_calls, two_accesses),
    Case("tokens64_rw", "64 tokens in turn", TOKENS, True, ("rw",), tokens_blocks, tokens_calls, tokens_accesses),
    Case(
        "stencil_2rows",
        f"3 reads and 1 write, 2 rows of {WIDTH}",
        2 * WIDTH,
        False,
        ("read", "read", "read", "write"),
        stencil_blocks,
        stencil_calls,
        stencil_accesses,
        most=WIDTH * STEPS,
        unit=WIDTH,
    ),
]
