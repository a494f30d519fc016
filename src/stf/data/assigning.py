"""Assignments: an expression of scalar data is computed into one of them, as a task."""

from __future__ import annotations

from typing import Any

import numpy as np

from stf._engine.access import check_mine
from stf.values.conditions import Computation, Expression, signs_mixed_in
from stf.values.params import Param

__all__ = ["assign"]


def assign(context: Any, target: Any, expression: Expression) -> None:
    """Compute an expression into `target`, as a task."""
    for leaf in (target, *expression.leaves()):
        check_mine(context.engine, leaf)
    must_keep_bits(target, expression)
    reads = {leaf.core.id: leaf for leaf in expression.leaves()}
    first = target.rw() if reads.pop(target.core.id, None) is not None else target.write()
    cores = [target.core, *(leaf.core for leaf in reads.values())]
    params = list({id(param): param for param in expression.leaves(Param)}.values())
    for param in params:
        param.must_be_recorded()
    positions = {id(given): position for position, given in enumerate([*cores, *params])}
    accesses = [first, *(leaf.read() for leaf in reads.values())]
    plan = expression.planned(positions)
    task = context.make_task_at(accesses, "assign")
    task.find_site_outside()
    is_on_device = context.engine.places[task.where].enqueues
    if is_on_device and not params:
        from stf.kernels import scalars  # not needed on a CPU

        if scalars.launch(task, plan, accesses):
            return
    task.run_queued(Computation(plan, len(cores)), tuple(params), "cupy" if is_on_device else "numpy")


def must_keep_bits(target: Any, expression: Expression) -> None:
    """Raise TypeError for integers that an expression would compute as floats: of signed and unsigned ones."""
    dtype = target.core.layout.dtype
    mixed = signs_mixed_in(expression) if np.dtype(dtype).kind in "iu" else None
    if mixed is not None:
        one, other = mixed
        raise TypeError(
            f"{target.core.describe()} cannot hold this expression: NumPy computes {one} with {other} as float64, "
            f"which loses bits; convert one of them first, into data of dtype {dtype}: `c.assign(x)`"
        )
