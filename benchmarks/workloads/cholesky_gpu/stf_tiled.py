"""The blocked factorization as a task flow: a task per block operation, at the place that owns the block column.

The lower triangle is cut into block columns of `tile` columns. Of each, the diagonal block is a data of its own, since
the critical path goes from one to the next; what is below is cut into chunks of `chunk` times `tile` rows, so that a
product is large enough to fill a GPU, and small enough for another GPU to begin before all of it is there. Block
columns are dealt out to the devices in turn (1-D block cyclic); who needs a chunk that is elsewhere gets it by
coherency, once.

    potrf(k) --> trsm(k, each chunk) --> syrk(k, j), gemm(k, j, each chunk)  for each j > k
                                              |
                                              '--> potrf(k + 1) --> ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kernels import CHAIN, NEXT, REST

import stf

__all__ = ["NAME", "Blocks", "factor", "operations"]

NAME = "stf"


@stf.task
def potrf(kernels: Any, a: stf.ReadWrite, level: int) -> None:
    kernels.potrf(a, level)


@stf.task
def trsm(kernels: Any, triangle: stf.Read, b: stf.ReadWrite, level: int) -> None:
    kernels.trsm(triangle, b, level)


@stf.task
def syrk(kernels: Any, a: stf.Read, row: int, c: stf.ReadWrite, level: int) -> None:
    kernels.syrk(a, row, c, level)


@stf.task
def gemm(kernels: Any, a: stf.Read, row: int, b: stf.Read, b_row: int, c: stf.ReadWrite, level: int) -> None:
    kernels.gemm(a, row, b, b_row, c, level)


@dataclass
class Blocks:
    """The lower triangle of a matrix of a context, in blocks.

    Attributes
    ----------
    order, tile, chunk
        Rows of the matrix, columns of a block column, tiles of a chunk.
    diagonal
        The diagonal blocks.
    below
        ``below[c, j]``: chunk c of block column j, from row ``first_row(c, j)`` on.
    """

    order: int
    tile: int
    chunk: int
    diagonal: list[Any] = field(default_factory=list)
    below: dict[tuple[int, int], Any] = field(default_factory=dict)

    @classmethod
    def register(cls, ctx: Any, column: Callable[[int], Any], order: int, tile: int, chunk: int) -> Blocks:
        """Register the blocks of a matrix; ``column(j)`` is its whole block column j, wherever it lies."""
        blocks = cls(order, tile, chunk)
        for j in range(blocks.count):
            whole = column(j)
            rows = slice(j * tile, blocks.end(j + 1))
            blocks.diagonal.append(ctx.logical_data(whole[rows], name=f"D[{j}]"))
            for c in blocks.chunks(j):
                rows = slice(blocks.first_row(c, j), blocks.end((c + 1) * chunk))
                blocks.below[c, j] = ctx.logical_data(whole[rows], name=f"L[{c},{j}]")
        return blocks

    @property
    def count(self) -> int:
        """How many block columns there are."""
        return -(-self.order // self.tile)

    def end(self, tiles: int) -> int:
        """The row after so many tiles."""
        return min(tiles * self.tile, self.order)

    def chunks(self, j: int) -> range:
        """The chunks below the diagonal block of column j."""
        return range((j + 1) // self.chunk, -(-self.count // self.chunk)) if j + 1 < self.count else range(0)

    def first_row(self, c: int, j: int) -> int:
        """The matrix row with which chunk c of column j begins."""
        return max(j + 1, c * self.chunk) * self.tile

    def all(self) -> Iterator[Any]:
        """Every data, by columns."""
        for j in range(self.count):
            yield self.diagonal[j]
            yield from (self.below[c, j] for c in self.chunks(j))


def factor(
    blocks: Blocks, kernels: Any, devices: int, order: str = "right", when_done: Any = None, auto: bool = False
) -> None:
    """Submit the factorization; it replaces the lower triangle by L.

    Parameters
    ----------
    blocks
        What to factor.
    kernels
        What the bodies call.
    devices
        Over how many devices of the context block columns are dealt out.
    order
        ``"right"``: the updates by a panel follow it, those of the next panel first; ``"left"``: a block column's
        updates come just before it is factored, which suits data that arrive column by column.
    when_done
        Called with every block after its last task was submitted.
    auto
        Tasks name no place: the context chooses.
    """
    submit = Submission(blocks, kernels, devices, when_done, auto)
    for name, k, j, level in operations(blocks.count, order):
        if name == "panel":
            submit.panel(k)
        else:
            submit.update(k, j, level)


def operations(count: int, order: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield ``("panel", k, k, level)`` and ``("update", k, j, level)``, the effect of panel k on block column j."""
    if order not in ("left", "right"):
        raise ValueError(f"the order is 'left' or 'right', got {order!r}")
    yield "panel", 0, 0, CHAIN
    for step in range(1, count):
        if order == "left":
            yield from (("update", k, step, REST) for k in range(step - 1))
        yield "update", step - 1, step, NEXT
        yield "panel", step, step, CHAIN
        if order == "right":
            yield from (("update", step - 1, j, REST) for j in range(step + 1, count))


class Submission:
    """Submits the tasks of panels and updates, at the devices that own the block columns."""

    def __init__(self, blocks: Blocks, kernels: Any, devices: int, when_done: Any, auto: bool = False) -> None:
        self.blocks, self.kernels, self.devices, self.when_done = blocks, kernels, devices, when_done
        functions = (potrf, trsm, syrk, gemm)
        self.at = [tuple(f if auto else f.on(i) for f in functions) for i in range(devices)]

    def panel(self, k: int) -> None:
        """Factor block column k, which has all its updates."""
        blocks, kernels = self.blocks, self.kernels
        factor_block, solve, _, _ = self.at[k % self.devices]
        factor_block(kernels, blocks.diagonal[k], CHAIN)
        done = [blocks.diagonal[k]]
        for c in blocks.chunks(k):
            is_first = (k + 1) // blocks.chunk == c  # the next diagonal block needs it
            solve(kernels, blocks.diagonal[k], blocks.below[c, k], CHAIN if is_first else NEXT)
            done.append(blocks.below[c, k])
        if self.when_done is not None:
            for block in done:
                self.when_done(block)

    def update(self, k: int, j: int, level: int) -> None:
        """Subtract what panel k contributes to block column j."""
        blocks, kernels = self.blocks, self.kernels
        _, _, multiply_own, multiply = self.at[j % self.devices]
        c = j // blocks.chunk
        across, row = blocks.below[c, k], j * blocks.tile - blocks.first_row(c, k)
        multiply_own(kernels, across, row, blocks.diagonal[j], CHAIN if level == NEXT else level)
        for c in blocks.chunks(j):
            target, offset = blocks.below[c, j], blocks.first_row(c, j) - blocks.first_row(c, k)
            multiply(kernels, blocks.below[c, k], offset, across, row, target, level)
