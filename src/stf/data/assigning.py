"""Assignments: an expression of scalar data is computed into one of them, as a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stf._engine.access import DataHandle, check_mine
from stf.interop.results import check_number, holds, is_too_large, kind_of_number
from stf.tasks.checks import submit_known
from stf.tasks.placing import settle
from stf.tasks.repeats import KnownCall
from stf.values.conditions import (
    Computation,
    Condition,
    ConditionArgument,
    ConditionPlan,
    Expression,
    itself,
    sample_of,
)
from stf.values.params import Param

__all__ = ["assign"]


def assign(context: Any, target: Any, expression: Expression) -> None:
    """Compute an expression into `target`, as a task."""
    for leaf in (target, *expression.leaves()):
        check_mine(context.engine, leaf)
    must_hold(target, expression)
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
    settle(task)
    submit_known(context, task, HeldAssignment(plan, tuple(params)))


class HeldAssignment(KnownCall):
    """An assignment that is submitted: its plan, and the parameters of a graph in it."""

    def __init__(self, plan: ConditionPlan, params: tuple[Any, ...]) -> None:
        self.plan, self.params = plan, params
        self.what, self.fixed, self.plain = assign, tuple(parts_of(plan)), ()

    def __call__(self, task: Any) -> None:
        accesses, params = task.accesses, self.params
        is_on_device = task.engine.place(task.where).enqueues
        if is_on_device and not params:
            from stf.kernels import scalars  # not needed on a CPU

            if scalars.launch(task, self.plan, accesses):
                return
        task.run_queued(Computation(self.plan, len(accesses)), params, "cupy" if is_on_device else "numpy")


def parts_of(plan: ConditionPlan) -> Iterator[Any]:
    """Operations and operands of an expression, one after the other: equal for equal expressions."""
    yield plan.operation
    yield len(plan.operands)
    for operand in plan.operands:
        if isinstance(operand, ConditionPlan):
            yield from parts_of(operand)
        elif isinstance(operand, ConditionArgument):
            yield (operand.position,)
        else:
            yield operand


def must_hold(target: Any, expression: Expression) -> None:
    """Raise unless data take what an expression gives without loss, as they take what a task returns.

    Integers may be rounded to floats, too. The range of a number of Python's is checked if it is known.
    """
    dtype, label = np.dtype(target.core.layout.dtype), target.core.describe()
    if isinstance(expression, Condition):  # a truth value, which all take
        return
    number = expression.operands[0] if expression.operation is itself else None
    sample = sample_of(expression) if number is None or isinstance(number, (DataHandle, Param)) else number
    if not isinstance(sample, np.generic):
        kind = kind_of_number(sample)
        if kind is not None:
            check_number(sample, kind, dtype, f"the number for {label}")
        return
    if isinstance(number, (np.floating, np.complexfloating)) and is_too_large(number, dtype):
        raise OverflowError(f"{label} cannot hold {number!r}, which is infinite there; use a wider dtype")
    given = sample.dtype
    if not holds(dtype, given) and not (given.kind in "iu" and dtype.kind in "fcV"):
        mixed = (
            ", as it does all divisions, and signed with unsigned integers"
            if given.kind == "f" and dtype.kind in "iu"
            else ""
        )
        raise TypeError(
            f"{label} cannot hold this expression without loss: NumPy computes it as {given}{mixed}; convert it in a "
            f"task, `y[...] = np.{dtype}(...)`, or use data of {given}"
        )
