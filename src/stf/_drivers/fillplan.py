"""How an array is filled with one value in few calls of a driver that sets bytes, 16-bit and 32-bit words.

A plan is a list of rectangles: rows of words, some way apart. A value whose bytes repeat with a period of one, two or
four is set in runs; one that does not is set word by word, each word of all elements in one go.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

from stf._drivers.copyplan import plan_copy

MAX_CALLS = 4096
UNITS = (4, 2, 1)


class Rectangle(NamedTuple):
    """`height` rows, `pitch` bytes apart, of `width` words of `unit` bytes, each set to `value`."""

    offset: int
    pitch: int
    unit: int
    value: int
    width: int
    height: int


@functools.lru_cache(1024)
def plan_fill(
    shape: tuple[int, ...], strides: tuple[int, ...], pattern: bytes, alignment: int
) -> tuple[Rectangle, ...] | None:
    """Return how to fill an array with an element of the bytes `pattern`; None where that takes too many calls.

    Parameters
    ----------
    shape, strides : tuple of int
        Extents, and steps in bytes.
    pattern : bytes
        The bytes of one element.
    alignment : int
        A power of two that divides the array's address.
    """
    if 0 in shape or not pattern:
        return ()
    unit = word_size(shape, strides, pattern, alignment)
    if pattern == pattern[:unit] * (len(pattern) // unit):
        return runs(shape, strides, len(pattern), 0, pattern[:unit])
    rectangles: list[Rectangle] = []
    for start, end, word in equal_words(pattern, unit):
        more = runs(shape, strides, end - start, start, word)
        if more is None or len(rectangles) + len(more) > MAX_CALLS:
            return None
        rectangles.extend(more)
    return tuple(rectangles)


def word_size(shape: tuple[int, ...], strides: tuple[int, ...], pattern: bytes, alignment: int) -> int:
    """Return the widest word that all elements are made of; the narrowest that repeats, where one does."""
    steps = [step for n, step in zip(shape, strides, strict=True) if n > 1]
    able = [u for u in UNITS if alignment % u == 0 and all(step % u == 0 for step in [*steps, len(pattern)])]
    repeating = [u for u in able if pattern == pattern[:u] * (len(pattern) // u)]
    return repeating[-1] if repeating else able[0]


def equal_words(pattern: bytes, unit: int) -> list[tuple[int, int, bytes]]:
    """(start, end, word) of each run of equal words in an element."""
    words = [pattern[i : i + unit] for i in range(0, len(pattern), unit)]
    found = []
    start = 0
    for word, group in itertools.groupby(words):
        end = start + unit * len(list(group))
        found.append((start, end, word))
        start = end
    return found


def runs(
    shape: tuple[int, ...], strides: tuple[int, ...], nbytes: int, start: int, word: bytes
) -> tuple[Rectangle, ...] | None:
    """Set `nbytes` of each element, from its byte `start` on, to copies of `word`."""
    plan = plan_copy(shape, strides, strides, nbytes)
    # the longer axis first: there are rectangles, but no blocks, to be set in one call
    rows, slices = sorted((plan.rows, plan.slices), key=lambda axis: axis.extent, reverse=True)
    if len(plan.offsets) * slices.extent > MAX_CALLS:
        return None
    unit, value = len(word), int.from_bytes(word, "little")
    width = plan.width // unit
    pitch = rows.target if rows.extent > 1 else plan.width
    return tuple(
        Rectangle(offset + i * slices.target + start, pitch, unit, value, width, rows.extent)
        for offset, _ in plan.offsets
        for i in range(slices.extent)
    )
