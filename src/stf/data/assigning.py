"""Assignments: an expression of scalar data is computed into one of them, as a task."""

from __future__ import annotations

from typing import Any

from stf._engine.access import check_mine
from stf.values.conditions import Computation, Expression
from stf.values.params import Param

__all__ = ["assign"]


def assign(context: Any, target: Any, expression: Expression) -> None:
    """Compute an expression into `target`, as a task."""
    for leaf in (target, *expression.leaves()):
        check_mine(context.engine, leaf)
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
