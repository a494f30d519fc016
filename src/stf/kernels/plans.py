"""What was found out about a kernel at its first submission, so that the next ones take microseconds.

A plan holds for calls with the same code, places of the same kind, the same space, arrays that lie alike, and numbers
of the same types. Numbers may have other values. All else that the code reads must be the same objects as before.
Compiled, since this runs at each submission.
"""

from __future__ import annotations

import types

import cython
import numpy as np

from stf import config
from stf.kernels.captured import attribute_names, global_names, is_users_module, variables_read
from stf.kernels.foreign_kernels import order_of
from stf.kernels.loops import jitted
from stf.kernels.reductions import Reduction
from stf.tasks.running import submit_own
from stf.values.params import Param

TWO_63 = 1 << 63
MOST = 4096  # codes with plans
MOST_EACH = 64  # plans of a code
MISSING: object = object()
NOTHING: tuple = ()
FUNCTION: object = types.FunctionType
REDUCTION: object = Reduction
PARAM: object = Param
NUMBERS = frozenset(
    {
        *(int, float, bool, np.bool_, np.int8, np.int16, np.int32, np.int64),
        *(np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64),
    }
)
plans = {}  # lists of plans, by the identities of code


class PlannedAccess:
    """What a plan knows of an access, or a reduction: how it is used, and how its array lies in memory."""

    def __init__(self, item):
        reduces: cython.bint = type(item) is REDUCTION
        access: Access = accessed_in(item)
        self.op, self.accumulates = (item.op, item.accumulates) if reduces else (None, False)
        self.mode = access.mode
        self.layout = None if access.core.token else access.core.layout
        self.order = None if self.layout is None or is_packed(access.core) else order_of(access)

    def suits(self, item):
        """Return whether another one is alike."""
        if type(item) is REDUCTION:
            if item.op is not self.op or item.accumulates != self.accumulates:
                return False
            item = item.access
        elif self.op is not None:
            return False
        access: Access = item
        if access.mode != self.mode:
            return False
        mine, layout = self.layout, access.core.layout
        if mine is None or access.core.token:
            return mine is None and access.core.token
        if layout is not mine and (
            layout.shape != mine.shape
            or layout.strides != mine.strides
            or layout.dtype != mine.dtype
            or (layout.interface is None) != (mine.interface is None)
        ):
            return False
        if is_packed(access.core):
            return self.order is None
        return self.order is not None and order_of(access) == self.order


def is_packed(core: Data):
    """Return whether data lie without gaps wherever they are, at home too."""
    layout, home = core.layout, core.home
    if layout.packed() is not layout:
        return False
    return home is None or home.layout is layout or home.layout.packed() is home.layout


class CpuBody:
    """A compiled body on a CPU, and how a task runs it.

    Parameters
    ----------
    run : LoopTask, MemoryTask or BarrierTask
    signature : BodySignature
    widths : tuple of int
        Of the levels of a hierarchy.

    Attributes
    ----------
    numbers : tuple
        What the body gets now for its further arguments and the variables around it.
    """

    def __init__(self, run, signature, widths=NOTHING):
        self.run = run
        self.extras = len(signature.extra)
        self.widths = widths
        self.numbers = (*signature.extra, *map(jitted, signature.captured.values))
        self.has_params = any([isinstance(value, PARAM) for value in self.numbers])  # else no call like it has any
        self.ready = (None, None, False)

    def planned(self, plan, arguments):
        """Return the plan, which says all."""
        return plan

    def submit(self, task, numbers):
        """Submit a task with these numbers of the body's."""
        if self.has_params:
            for value in numbers:
                if isinstance(value, PARAM):
                    value.must_be_recorded()
        port = cython.cast("Engine", task.engine).root
        ready: tuple = self.ready  # which another thread may change
        if ready[0] is not port:
            run = self.run.at(port)
            self.ready = ready = (port, run, hasattr(run, "template"))
        if self.widths:
            numbers = (*numbers[: self.extras], *self.widths, *numbers[self.extras :])
        submit_own(task, ready[1], numbers, "numpy", ready[1].template if ready[2] else None)
        return 0


class LaunchPlan:
    """How a kernel is submitted again.

    `code` is the body's, `submit` a function of the task, its accesses and reductions without tokens, and the numbers
    that the kernel gets. A `CpuBody` is in its place, or a GPU's kernel that is all that the task does: it is launched
    with `before`, the accesses, the numbers and `after`. `functions` has for each variable of the closure a function
    that it holds, and what the kernel gets for that; or None. `names` are global variables with numbers that the kernel
    gets, `watched` what must be the same: (globals, name, value), and (cell, None, value). `is_for`, if any, says
    whether it holds for a task.
    """

    def __init__(self, task, body, construct, items, extra, made):
        closure = body.__closure__ or ()
        self.code, self.around = body.__code__, body.__globals__
        self.enqueues = task.engine.places[task.where].enqueues
        self.symbol = task.symbol if self.enqueues else None
        self.validate = config.validate
        self.construct = construct
        self.items = [PlannedAccess(item) for item in items]
        self.has_tokens = None in [item.layout for item in self.items]
        self.extras = len(extra)
        self.kinds = (*[kind_of_number(value) for value in extra], *[type(cell.cell_contents) for cell in closure])
        self.on_cpu = made if isinstance(made, CpuBody) else None
        self.submit = made.submit if self.on_cpu is None else None
        self.kernel = self.config = self.before = self.after = self.order = None
        self.names = self.watched = self.functions = ()
        self.is_for = None

    def launches(self, kernel, shape, before, after, order):
        """Say that it is one launch of a kernel, which gets the arguments in this `order` if it is given.

        Returns this.
        """
        self.kernel, self.config, self.before, self.after, self.order = kernel, shape, before, after, order
        return self

    def holds(self, task, body, construct, items, extra, enqueues):
        """Return whether another call is alike, but for the values of numbers."""
        if body.__globals__ is not self.around or enqueues != self.enqueues:
            return False
        if task.symbol != self.symbol if self.enqueues else config.validate != self.validate:
            return False
        if len(items) != len(self.items) or len(extra) != self.extras:
            return False
        for i in range(len(items)):
            if not cython.cast(PlannedAccess, self.items[i]).suits(items[i]):
                return False
        for i in range(self.extras):
            if not is_of_kind(extra[i], self.kinds[i]):
                return False
        if construct is not self.construct and construct != self.construct:
            return False
        return self.is_for is None or (task.where >= 0 and bool(self.is_for(task)))

    def numbers(self, body, extra):
        """Return what the kernel gets now; None if the plan does not hold any more."""
        for item in self.watched:
            one: tuple = item
            if one[1] is None:
                now = one[0].cell_contents
            elif type(one[0]) is dict:
                now = cython.cast(dict, one[0]).get(one[1], MISSING)
            else:  # variables as a task's body sees them
                now = one[0].get(one[1], MISSING)
            if now is not one[2]:
                return None
        closure = body.__closure__
        if closure is None and not self.names:
            return extra
        found = list(extra)
        at: cython.Py_ssize_t = self.extras
        if closure is not None:
            for cell in closure:
                value = cell.cell_contents
                kind = self.kinds[at]
                if kind is FUNCTION:
                    known: tuple = self.functions[at - self.extras]
                    if value is not known[0]:
                        return None
                    found.extend(known[1])
                elif type(value) is not kind or is_wide(value):
                    return None
                else:
                    found.append(value)
                at += 1
        for name, kind in self.names:
            value = self.around.get(name)
            if type(value) is not kind or is_wide(value):
                return None
            found.append(value)
        return tuple(found)

    def run(self, task, items, numbers):
        """Submit a task."""
        if self.on_cpu is not None:
            return self.on_cpu.submit(task, numbers)
        if self.kernel is not None:
            if self.order is not None:
                items = tuple([accessed_in(items[i]) for i in self.order])
                task.accesses = items  # arguments are found by where they are among these
            given: tuple = self.before + items
            if numbers:
                given += numbers
            launch_alone(task, self.kernel, self.config, given + self.after if self.after else given)
            return 0
        if self.has_tokens:
            items = tuple([item for i, item in enumerate(items) if self.items[i].layout is not None])
        self.submit(task, items, numbers)
        return 0


def accessed_in(item):
    """Return the access of an argument."""
    return item.access if type(item) is REDUCTION else item


def kind_of_number(value):
    """Return the type of a number; of a parameter of a graph also that of the number that it is by default."""
    return (PARAM, type(value.default)) if isinstance(value, PARAM) else type(value)


def is_of_kind(value, kind):
    """Return whether a number, or a parameter, is one for kernels that were compiled for this kind."""
    if type(value) is kind:
        return not is_wide(value)
    if type(kind) is not tuple or not isinstance(value, PARAM):
        return False
    return type(value.default) is cython.cast(tuple, kind)[1] and not is_wide(value.default)


def is_wide(value):
    """Return whether an integer has another type in kernels than most."""
    if type(value) is not int:
        return False
    if not cython.compiled:
        return not -TWO_63 <= value < TWO_63
    overflow: cython.int = 0
    PyLong_AsLongLongAndOverflow(value, cython.address(overflow))
    return overflow != 0


def submit_planned(task, body, construct, items, extra):
    """Submit a task by a plan; whether there was one."""
    enqueues: cython.bint = cython.cast("Engine", task.engine).place(task.where).enqueues
    found = planned_for(task, body, construct, items, extra, enqueues)
    if found is None:
        return False
    cython.cast(LaunchPlan, found[0]).run(task, items, found[1])
    return True


def planned_for(task, body, construct, items, extra, enqueues):
    """Return a plan for a task at a place that `enqueues` or not, and what the kernel gets now; None if there is none.

    Where the task has no place yet, only a plan for all such places will do.
    """
    known = plans.get(id(body.__code__))
    if known is None:
        return None
    mine: list = known
    for i in range(len(mine)):
        plan: LaunchPlan = mine[i]
        if plan.holds(task, body, construct, items, extra, enqueues):
            try:
                numbers = plan.numbers(body, extra)
            except ValueError:  # a variable has no value
                return None
            if numbers is not None:
                return plan, numbers
    return None


def remember(plan, body, captured):
    """Keep a plan, if all that the kernel gets are numbers."""
    given = dict(zip(captured.names[captured.free :], captured.values[captured.free :], strict=True))
    free = captured.values[: captured.free]
    kinds = [kind[1] if type(kind) is tuple else kind for kind in plan.kinds[: plan.extras]]
    if not NUMBERS.issuperset([*kinds, *map(type, given.values())]):
        return 0
    if not all([type(value) in NUMBERS or type(value) is FUNCTION for value in free]):
        return 0
    if plan.kinds[plan.extras :] != tuple(map(type, free)):  # a number that kernels have as another type
        return 0
    plan.functions = tuple(
        [
            (value, NOTHING if plan.enqueues else (jitted(value),)) if type(value) is FUNCTION else None
            for value in free  # a GPU's kernels have functions in them
        ]
    )
    plan.names = tuple([(name, type(value)) for name, value in given.items()])
    seen: set = set()
    watched = seen_by(body, seen, given)
    others = [getattr(plan.construct, "coordinates", None)]
    for item in plan.items:
        op = cython.cast(PlannedAccess, item).op
        others.append(None if op is None else op.of_scalars)
    for other in others:
        if type(other) is FUNCTION:
            watched += seen_by(other, seen, None)
    for _, _, value in watched:
        if not is_steady(value):
            return 0
    plan.watched = tuple(watched)
    if len(plans) >= MOST:
        plans.clear()
    mine = plans.setdefault(id(plan.code), [])
    if len(mine) >= MOST_EACH:
        mine.clear()
    mine.insert(0, plan)
    return 0


def seen_by(fn, seen, given):
    """Return the global variables that a function reads, and those of the functions that it calls, and their closures.

    `given` are those that the kernel gets, of a body, and None for other functions. Of a body's own closure only what
    its functions see: another body of the same code has other variables.
    """
    found: list = []
    if id(fn) in seen:
        return found
    seen.add(id(fn))
    for name in global_names(fn.__code__):
        if given is not None and name in given:
            continue
        value = fn.__globals__.get(name, MISSING)
        found.append((fn.__globals__, name, value))
        if type(value) is FUNCTION:
            found += seen_by(value, seen, None)
        elif is_users_module(value):
            for item in variables_read(value, attribute_names(fn.__code__)):
                found.append(item)
                if type(item[2]) is FUNCTION:
                    found += seen_by(item[2], seen, None)
    for cell in fn.__closure__ or ():
        value = cell.cell_contents
        if given is None:
            found.append((cell, None, value))
        if type(value) is FUNCTION:
            found += seen_by(value, seen, None)
    for value in fn.__defaults__ or ():
        if type(value) is FUNCTION:
            found += seen_by(value, seen, None)
    return found


def is_steady(value):
    """Return whether a value that is compiled in stays as it is while it is the same object."""
    if isinstance(value, tuple):
        return all([is_steady(item) for item in value])
    return not isinstance(value, np.ndarray)
