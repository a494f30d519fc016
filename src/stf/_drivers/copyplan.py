"""How a strided copy is done in few calls of a driver that knows rows, and slices of rows.

A plan is a block of ``width`` bytes times ``height`` rows times ``depth`` slices, and the byte offsets, in target and
source, at which the block is copied. The source of the limits: CUDA's ``cuMemcpy3D``, whose pitches are positive, at
least the width, and whose slices are whole numbers of rows apart.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

MAX_PITCH = (1 << 31) - 1


class CopyAxis(NamedTuple):
    """An extent, and the steps in bytes that it takes in target and source."""

    extent: int
    target: int
    source: int


ONE = CopyAxis(1, 0, 0)


class CopyPlan(NamedTuple):
    """A block, and where it is copied: offsets in bytes."""

    width: int
    rows: CopyAxis
    slices: CopyAxis
    offsets: tuple[tuple[int, int], ...]


KEPT, KEPT_CALLS = 4096, 1024  # plans that are kept, and the calls of the longest that is
plans: dict[tuple[Any, ...], CopyPlan] = {}


def plan_copy(
    shape: tuple[int, ...], target_strides: tuple[int, ...], source_strides: tuple[int, ...], itemsize: int
) -> CopyPlan:
    """Return what `make_plan` returns, kept where it is short.

    An array against its direction takes a call per element.
    """
    key = (shape, target_strides, source_strides, itemsize)
    plan = plans.get(key)
    if plan is None:
        plan = make_plan(*key)
        if len(plan.offsets) <= KEPT_CALLS:
            if len(plans) >= KEPT:
                plans.clear()
            plans[key] = plan
    return plan


def make_plan(
    shape: tuple[int, ...], target_strides: tuple[int, ...], source_strides: tuple[int, ...], itemsize: int
) -> CopyPlan:
    """Return how to copy an array of `shape` between two places where it lies with other strides.

    Parameters
    ----------
    shape : tuple of int
        Extents.
    target_strides, source_strides : tuple of int
        Steps in bytes, of either sign.
    itemsize : int
        Bytes of an element.

    Returns
    -------
    CopyPlan
        ``offsets`` is empty for an empty array.
    """
    if 0 in shape or itemsize == 0:
        return CopyPlan(0, ONE, ONE, ())
    axes, target_start, source_start = upwards(
        [CopyAxis(*axis) for axis in zip(shape, target_strides, source_strides, strict=True) if axis[0] > 1]
    )
    axes = merged(sorted(axes, key=lambda axis: (-abs(axis.target), -abs(axis.source))))
    width = itemsize
    if axes and axes[-1].target == axes[-1].source == itemsize:
        width = axes.pop().extent * itemsize
    rows, slices = choose(axes, width)
    axes = [axis for axis in axes if axis is not rows and axis is not slices]
    offsets = tuple(
        (
            target_start + sum(i * axis.target for i, axis in zip(index, axes, strict=True)),
            source_start + sum(i * axis.source for i, axis in zip(index, axes, strict=True)),
        )
        for index in itertools.product(*(range(axis.extent) for axis in axes))
    )
    return CopyPlan(width, rows, slices, offsets)


def upwards(axes: list[CopyAxis]) -> tuple[list[CopyAxis], int, int]:
    """Walk axes that go down in both arrays the other way round; say where that starts."""
    result = []
    target_start = source_start = 0
    for axis in axes:
        if axis.target < 0 and axis.source < 0:
            target_start += (axis.extent - 1) * axis.target
            source_start += (axis.extent - 1) * axis.source
            axis = CopyAxis(axis.extent, -axis.target, -axis.source)
        result.append(axis)
    return result, target_start, source_start


def merged(axes: list[CopyAxis]) -> list[CopyAxis]:
    """Neighbours that are one axis in both arrays, as one."""
    result: list[CopyAxis] = []
    for axis in axes:
        outer = result[-1] if result else None
        if (
            outer is not None
            and outer.target == axis.extent * axis.target
            and outer.source == axis.extent * axis.source
        ):
            result[-1] = CopyAxis(outer.extent * axis.extent, axis.target, axis.source)
        else:
            result.append(axis)
    return result


def choose(axes: list[CopyAxis], width: int) -> tuple[CopyAxis, CopyAxis]:
    """Return the axes for rows and slices that leave the fewest calls."""
    best = (ONE, ONE)
    for rows in axes:
        if fits_rows(rows, width):
            for slices in [ONE, *(axis for axis in axes if axis is not rows and fits_slices(axis, rows))]:
                best = max(best, (rows, slices), key=lambda pair: pair[0].extent * pair[1].extent)
    return best


def fits_rows(axis: CopyAxis, width: int) -> bool:
    """Return whether rows of `width` bytes may be as far apart as an axis says."""
    return width <= axis.target <= MAX_PITCH and width <= axis.source <= MAX_PITCH


def fits_slices(axis: CopyAxis, rows: CopyAxis) -> bool:
    """Return whether slices may be as far apart as an axis says."""
    return all(
        step >= rows.extent * pitch and step % pitch == 0
        for step, pitch in ((axis.target, rows.target), (axis.source, rows.source))
    )
