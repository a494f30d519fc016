"""Builders of tasks whose body is a kernel written in Python: what `parallel_for` and `launch` have in common."""

from __future__ import annotations

import types
from typing import Any

import cython

from stf._engine.task import make_access_like
from stf._port.remote_arrays import REMOTE_GPU
from stf._support.arguments import name_of, sequence
from stf._support.call_sites import site_text
from stf.kernels.body_arguments import BodySignature, accessed
from stf.kernels.body_checks import must_be_plain, must_not_fail
from stf.kernels.captured import Captured, as_known
from stf.kernels.compile.python import must_be_there
from stf.kernels.cpp_bodies import cpp_text
from stf.kernels.kernels_there import KernelThere
from stf.kernels.loop_tasks import NothingToRun
from stf.kernels.owned_parts import loops_beyond_parts, loops_over_parts
from stf.kernels.plans import CpuBody, remember
from stf.kernels.reductions import Reduction
from stf.places.partition import blocked_partition, part_of, positions_of
from stf.places.places import Grid
from stf.tasks import capsules
from stf.tasks.group import Tasks
from stf.tasks.not_accesses import refuse_data
from stf.tasks.repeats import KnownCall
from stf.tasks.running import submit_own
from stf.tasks.task import Task
from stf.tasks.undeclared import refuse_undeclared
from stf.values.random_numbers import Random

FUNCTION: object = types.FunctionType
REDUCTION: object = Reduction
NOTHING: tuple = ()


@cython.no_gc
@cython.cclass
class KernelBuilder:
    """A builder of a task that runs a body for each index, or thread: call it with the body.

    `construct` is what makes a kernel of the body, `over` the index space or the hierarchy.
    """

    def __reduce__(self):
        raise TypeError(f"{self!r} is a step of a program, and cannot be copied")

    def __repr__(self):
        return f"<{self.construct.what} of {self.task!r}>"

    def on(self, place: Any) -> KernelBuilder:
        """Say where it runs, a grid too; return the builder."""
        self.grid = place if isinstance(place, Grid) else None
        if self.grid is None:
            place_at(self.task, self.task.context, place)
        return self

    def set_symbol(self, symbol: Any) -> KernelBuilder:
        """Name the task; return the builder."""
        self.task.symbol = name_of(symbol)
        return self

    def __call__(self, body: Any) -> Task | Tasks:
        """Submit the task with its body; return its handle."""
        if type(body) is not FUNCTION:
            body = body_of(body)
        task = self.task
        if task.state != NEW or task.is_held:
            task.must_be_new(self.construct.what)
        task.warns_if_unused = False
        given = body
        if type(body) is not FUNCTION:
            body = self.construct.function_of(body)
        if task.symbol is None:
            name = body.__name__
            task.symbol = self.construct.what if name == "<lambda>" else name
        if self.grid is None:
            self.submit(body)
            keep_body(task, given)
            return task
        tasks = [part(body) for part in self.on_each_place(body)]
        return tasks[0] if len(tasks) == 1 else Tasks(tasks)

    def submit(self, body):
        """Submit the task at its place."""
        engine = cython.cast("Engine", self.task.engine)
        if engine.scope.submitted is not None:
            engine.scope.submitted.append(body)
        if engine.watches:
            self.offer(body)
        if self.task.where < 0:
            if can_be_held(self.task):
                enqueues: cython.bint = engine.place(1).enqueues
                found = planned_for(self.task, body, self.over, self.arguments, self.extra, enqueues)
                if found is not None:  # else it is compiled first, for a place that is chosen now
                    return hold(self.task, HeldKernel(found[0], self.arguments, found[1]))
            settle(self.task)
        place = engine.place(self.task.where)
        if place.is_remote and place.kind == REMOTE_GPU:
            return self.submit_there(body)
        finder = cython.cast(ContextCore, self.task.context).finder
        if finder is not None and self.is_taken(finder, body):
            return 0
        if submit_planned(self.task, body, self.over, self.arguments, self.extra):
            return 0
        task = self.task
        where, items, captured = self.checked(body)
        signature = BodySignature(body, captured, items, self.extra, where)
        made = self.made_of(signature)
        plan: LaunchPlan = LaunchPlan(task, body, self.over, self.arguments, self.extra, made)
        plan = made.planned(plan, self.arguments)
        plan.is_for = self.construct.holds_for(task, self.over)
        plan.run(task, self.arguments, made.numbers)
        remember(plan, body, captured)
        return 0

    def made_of(self, signature):
        """Return a body as a kernel for the place of the task; TypeError with its line if it cannot be compiled."""
        task = self.task
        if task.engine.place(task.where).enqueues:
            must_not_fail(signature.body, signature.where)
            if signature.in_cpp is None:
                must_be_there()
            return self.construct.kernel(task, self.over, signature)
        if task.engine.root.values is not None:  # its tasks are planned, and not run
            return CpuBody(NothingToRun(), signature)
        return self.construct.loop(task, self.over, signature)

    def checked(self, body):
        """Return how messages call the body, its arguments without tokens, and what it captures, as it may be used."""
        task, code = self.task, body.__code__
        site = site_text(code, 0) if cpp_text(body) is None else site_text(task.code, task.lasti)
        where = f"the body of {self.construct.what} at {site}"
        items = tuple([item for item in self.arguments if not accessed(item).data.core.token])
        if cpp_text(body) is None:
            must_be_plain(body, where)
        self.construct.check(self, body, items, where)
        refuse_undeclared(body, task)
        captured = Captured(body, where)
        self.extra = tuple([as_known(value, f"{where} gets args=") for value in self.extra])
        return where, items, captured

    def submit_there(self, body):
        """Submit the task to the process that has its GPU, which compiles the body."""
        _, items, _ = self.checked(body)
        text = cpp_text(body)
        there = KernelThere(make_builder, self.construct, self.over, items, body if text is None else text)
        submit_own(self.task, there, self.extra, "cupy")
        return 0

    def is_taken(self, finder, body):
        """Return whether the task is held for a window that comes again, or submitted in its turn."""
        if not finder.look(self.task, body.__code__):
            return False
        enqueues: cython.bint = self.task.engine.place(self.task.where).enqueues
        found = planned_for(self.task, body, self.over, self.arguments, self.extra, enqueues)
        if found is None:  # it is compiled first
            finder.pass_by(self.task)
            return False
        finder.hold(self.task, HeldKernel(found[0], self.arguments, found[1]))
        return True

    def offer(self, body):
        """Tell what may save the task what it is made of."""
        text = cpp_text(body)
        pieces = {"body": body if text is None else text, "over": self.over, "args": self.extra}
        capsules.offer(self.task, self.construct.what, {**pieces, "accesses": self.arguments}, body)

    def like(self, over, arguments):
        """Return a builder for a part of this one's work."""
        own: KernelBuilder = make_builder(
            self.task.context, self.construct, over, arguments, self.extra, self.task.symbol
        )
        own.task.warns_if_unused = False
        own.task.priority = self.task.priority
        return own

    def on_each_place(self, body):
        """Return a builder for each place that has a part of the work.

        Of partitioned data each place has its own part, and all run beside each other. Of other data each has a share,
        and later ones go on from what the first have written.
        """
        loops = loops_over_parts(self, body) or loops_beyond_parts(self, body)
        shares = self.shares() if loops is None else loops
        if len(shares) > 1:
            self.task.kind = "part"
        found: list = []
        for number, (place, over, given) in enumerate(shares):
            if number:
                given = [continued(item) if loops is None or isinstance(item, Reduction) else item for item in given]
            own: KernelBuilder = self.like(over, tuple(given))
            if loops is not None:
                own.task.kind = self.task.kind
            elif number == 0:
                own.task = self.task
            found.append(own.on(place))
        first: KernelBuilder = found[0]
        self.task = first.task  # so that this builder, too, has run its body
        return found

    def shares(self):
        """Return what each place of the grid runs over that has a part of the whole, and its arguments."""
        grid = self.grid
        partition = self.partition or grid.partition or blocked_partition()
        whole = self.construct.whole(self)
        positions = zip(positions_of(grid.dims), grid.places, strict=True)
        parts = [(place, part_of(partition, whole, where, grid.dims)) for where, place in positions]
        parts = [item for item in parts if item[1].size] or parts[:1]
        return [(place, self.construct.part(self.over, part), self.arguments) for place, part in parts]


@cython.final
@cython.cclass
class HeldKernel(KnownCall):
    """A kernel whose task is held: how it is submitted, and the numbers that it gets."""

    def __init__(self, plan, arguments, numbers):
        self.plan, self.arguments = plan, arguments
        self.what, self.fixed, self.plain = plan, NOTHING, numbers

    def __call__(self, task):
        self.plan.run(task, self.arguments, self.plain)

    def with_plain(self, plain):
        """Return the same call with other numbers."""
        return HeldKernel(self.plan, self.arguments, plain)


def make_builder(context: ContextCore, construct, over, arguments, extra, name):
    """Return a builder whose task has these accesses and reductions."""
    builder: KernelBuilder = KernelBuilder.__new__(KernelBuilder)
    builder.construct, builder.over = construct, over
    builder.extra = extra if type(extra) is tuple else sequence("args", extra)
    builder.partition = builder.grid = None
    plain: cython.bint = True
    for item in arguments:
        if type(item) is Random:
            arguments = draw_for(context, builder, construct, arguments)
            break
    for item in arguments:
        if type(item) is not Access:
            plain = False
            if type(item) is not REDUCTION:
                refuse_access(construct.what, item)
            must_be_alone(item, arguments)
    builder.arguments = arguments
    task = context.make_task(arguments if plain else tuple(map(accessed, arguments)), name)
    task.find_site_outside()
    task.warns_if_unused = True
    builder.task = task
    return builder


def draw_for(context, builder: KernelBuilder, construct, arguments):
    """Count a use of each generator among arguments, and have the body get its key; return the other arguments."""
    others = tuple([item for item in arguments if type(item) is not Random])
    if others != arguments[: len(others)]:
        raise TypeError(f"{construct.what} takes generators of stf.Random last, after the accesses, got {arguments!r}")
    if not hasattr(builder.over, "randoms"):
        raise TypeError(
            f"{construct.what} has no generators of stf.Random; use parallel_for, or fill data by rng.uniform"
        )
    keys = [item.draw(context).key for item in arguments[len(others) :]]
    builder.over = builder.over._replace(randoms=len(keys))
    builder.extra = (*keys, *builder.extra)
    return others


def refuse_access(what, item):
    """Raise TypeError for what is no access: perhaps the method that would give one."""
    refuse_data(what, item)
    raise TypeError(f"{what} takes accesses last, got {item!r}; say lX.read() or such")


def must_be_alone(item, arguments):
    """Raise ValueError if the data of a reduction are used otherwise, too."""
    for other in arguments:
        if other is not item and accessed(other).data.core is item.access.data.core:
            raise ValueError(
                f"{item.access.data.core.describe()} is reduced into, and is another argument, too; use other data"
            )
    return 0


def continued(item):
    """Return an argument of a part that comes after others: it goes on from what they have written."""
    if isinstance(item, Reduction):
        return Reduction(make_access_like(item.access, READ | WRITE), item.op, True)
    return make_access_like(item, READ | WRITE) if item.mode == WRITE else item
