"""Steps whose bodies submit tasks themselves, while memory is short and the main thread asks for some too."""

from __future__ import annotations

import threading

from arithmetic import READ, RW, WRITE, apply, flat
from drivers import ON_CUDA
from machine import PATIENCE_S, Machine

import stf
from stf import exec_place


class NestedSteps(Machine):
    """What a program may do with bodies that submit."""

    def step_nested(self):
        """A queued body submits a task, whose body submits one, …; meanwhile the main thread submits another.

        A submission that finds no memory is repeated when the bodies are through, so that the model need not know
        who was first. With memory that the driver itself limits, the first body goes on when the driver has said no.
        """
        if self.open or any(i.poison for i in self.items):
            return
        plans = [self.nested_plan() for _ in range(self.rng.randint(2, 3))]
        if None in plans:
            return
        for plan in plans:
            if ON_CUDA:
                plan.place = exec_place.host()  # where bodies are queued
        nest = Nest(self, plans)
        taken = {use.item for plan in plans for use in plan.uses}
        other = self.nested_plan()
        if other is not None and taken & {use.item for use in other.uses}:
            other = None
        self.tell(f"nested, {nest!r}" + (f"; meanwhile {other!r}" if other is not None else ""))
        patient = self.bounded and self.calm_queue and not ON_CUDA  # there `other` may wait for the first body
        if self.blocking:
            nest.go.set()
        if not self.attempt(lambda: nest.submit(0, strict=True), [use.item for use in plans[0].uses]):
            return
        if patient:
            self.driver.refused = nest.go
        else:
            nest.go.set()
        repeat = []
        try:
            if other is not None and not self.try_late(other):
                repeat.append(other)
        finally:
            nest.go.set()
            assert nest.done.wait(PATIENCE_S), "a body that submits does not come to its end"
            self.driver.refused = None
            self.driver.end_failures()
        if nest.error is not None:
            raise nest.error
        if other is not None and not repeat:
            self.model(other)
        count = len(plans) if nest.refused is None else nest.refused
        for plan in plans[:count]:
            self.model(plan)
        for plan in plans[count:] + repeat:
            self.tell(f"    (again {plan.name})")
            if self.attempt(lambda p=plan: self.submit("builder", p, False), [use.item for use in plan.uses]):
                self.model(plan)

    def nested_plan(self):
        return self.plan(2, modes=(READ, WRITE, RW), fails=0)

    def try_late(self, plan):
        """Submit a task while memory may be short because of others; False if it was."""
        try:
            self.submit("builder", plan, False)
        except stf.OutOfMemoryError:
            return False
        return True

    @property
    def calm_queue(self):
        """Whether a submission never waits for bodies but where memory is short."""
        return not self.blocking and not self.throttled


class Nest:
    """Tasks of which each is submitted by the body of the one before.

    Attributes
    ----------
    go : threading.Event
        The first body waits for it.
    done : threading.Event
        The last task was submitted, or one was refused for want of memory (`refused` is its number), or `error`.
    """

    def __init__(self, machine, plans):
        rng = machine.rng
        self.machine, self.plans = machine, plans
        self.go, self.done = threading.Event(), threading.Event()
        self.refused = self.error = None
        self.arguments = [machine.arguments(plan) for plan in plans]
        fails = machine.hostile is not None and machine.ctx.engine.window is None  # which tells of failures later
        self.failing = [
            rng.choice([0, 0, 1, 2, 30]) if i and fails and rng.random() < 0.3 else 0 for i in range(len(plans))
        ]
        self.runs_in_call = [i > 0 and rng.random() < 0.3 and self.alone(i) for i in range(len(plans))]

    def alone(self, number):
        """Whether a task shares no data with those whose bodies are around it: those it must not wait for."""
        mine = {use.item for use in self.plans[number].uses}
        return not any(use.item in mine for plan in self.plans[:number] for use in plan.uses)

    def submit(self, number, strict=False):
        """Submit a task, from the body of the one before it."""
        machine, plan = self.machine, self.plans[number]
        arguments, self.arguments[number] = self.arguments[number], None
        try:
            if self.failing[number]:
                machine.driver.fail_allocations(1, self.failing[number])
            task = machine.ctx.task(*arguments, name=plan.name)
            arguments.clear()
            if self.runs_in_call[number]:
                with task:
                    apply(flat(task.arrays()), *plan.details()[:3])
            else:
                task(NestedBody(self, number))
        except stf.OutOfMemoryError:
            if strict or (machine.limit is None and not any(self.failing)):
                self.error = None
                self.done.set()
                raise
            self.refused = number
            self.done.set()
            return
        except BaseException as error:
            self.error = error
            self.done.set()
            raise
        if number + 1 == len(self.plans):
            self.done.set()
        elif self.runs_in_call[number]:
            self.submit(number + 1)

    def __repr__(self):
        parts = []
        for plan, inline, failing in zip(self.plans, self.runs_in_call, self.failing, strict=True):
            parts.append(f"{'with ' if inline else ''}{plan!r}{f' ({failing} allocations fail)' if failing else ''}")
        return " submits ".join(parts)


class NestedBody:
    """The body of one task of a nest; an object, so that its closure hides nothing from the check for hidden data."""

    __name__ = "nested"

    def __init__(self, nest, number):
        self.nest, self.number = nest, number

    def __call__(self, *values):
        nest, number = self.nest, self.number
        if number == 0:
            assert nest.go.wait(PATIENCE_S)
        apply(flat(values), *nest.plans[number].details()[:3])
        if number + 1 < len(nest.plans):
            nest.submit(number + 1)
