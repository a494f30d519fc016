"""Steps that submit tasks, in every way that there is, and the bodies of those tasks."""

from __future__ import annotations

import contextlib
import inspect
import threading

from arithmetic import ACCUMULATE, READ, REDUCERS, RW, WRITE, apply, effect, flat, is_in_order
from drivers import ON_CUDA
from helpers import QUICK, library, runs_kernels
from machine import Machine
from model import Boom

import stf
from stf import data_place


class TaskSteps(Machine):
    """What a program may do with tasks."""

    # -- how tasks are said ----------------------------------------------------------------------------------------

    def place_of(self, plan):
        """The place of a plan in one of the ways to say it."""
        if plan.place is None or plan.place.kind == "host":
            return plan.place
        return self.rng.choice([plan.place, plan.place.index])

    def arguments(self, plan):
        rest = [u.access() for u in plan.uses]
        if plan.place is not None:
            rest.insert(self.rng.randint(0, len(rest)), self.place_of(plan))
        return rest

    # -- tasks -----------------------------------------------------------------------------------------------------

    def step_with(self):
        plan = self.plan()
        if plan is None:
            return
        self.tell(f"with {plan!r}")
        details = plan.details()
        bad = self.inputs_poisoned(plan)

        def action():
            try:
                with self.ctx.task(*self.arguments(plan), name=plan.name) as t:
                    assert not bad, "a task with a poisoned input ran"
                    run_body(flat(t.arrays()), details)
            except Boom:
                assert plan.failing
            except stf.TaskFailedError as error:
                assert bad, error
                self.hear(error)
            else:
                assert not bad and not plan.failing, "a failure was not raised"

        if self.injecting(action, [u.item for u in plan.uses]):
            self.model(plan)

    def step_start(self):
        """A low-level task that stays open over other steps."""
        plan = self.plan(3, fails=0.15)
        if plan is None or self.inputs_poisoned(plan) or len(self.open) >= 2:
            return
        self.tell(f"start {plan!r}")
        task = None

        def action():
            nonlocal task
            task = self.ctx.task(name=plan.name)
            accesses = [u.access() for u in plan.uses]
            task.add_deps(*accesses)
            if plan.place is not None:
                task.set_exec_place(plan.place)
            task.start()

        if self.injecting(action, [u.item for u in plan.uses]):
            for u in plan.uses:
                u.item.claims.append((plan, u.mode))
                if u.mode == ACCUMULATE:
                    self.begin_partial(u.item, u.op)
                else:
                    u.item.partials = None
            self.open.append((plan, task))

    def step_end(self):
        plan, task = self.open.pop(self.rng.randrange(len(self.open)))
        self.tell(f"end {plan.name}")
        if self.rng.random() < 0.2:
            in_thread(lambda: self.finish_open(plan, task))
        else:
            self.finish_open(plan, task)
        for u in plan.uses:
            u.item.claims = [c for c in u.item.claims if c[0] is not plan]
        self.model(plan)

    def finish_open(self, plan, task):
        error = None
        try:
            run_body(flat(task.arrays()), plan.details())
        except Boom as boom:
            error = boom
        if error is None:
            task.end()
        else:
            task.__exit__(Boom, error, None)

    def step_late(self):
        kind = self.rng.choice(["builder", "function", "host_launch", "submit_task", "returns"])
        if kind == "function":
            order = (READ, WRITE, RW)
            plan = self.plan(modes=order, limit=order)
        elif kind == "returns":
            plan = self.plan(modes=(READ, WRITE, RW), fails=0)
        else:
            plan = self.plan()
        if plan is None:
            return
        if kind in ("returns", "submit_task") and len({u.item for u in plan.uses}) < len(plan.uses):
            kind = "builder"
        if kind == "host_launch":
            plan.place = None
        self.tell(f"{kind} {plan!r}")
        bad = self.inputs_poisoned(plan)
        if plan.failing and not bad:
            self.failed.add(plan.name)
            self.untold.add(plan.name)
        if self.injecting(lambda: self.submit(kind, plan, bad), [u.item for u in plan.uses]):
            self.model(plan)
        else:
            self.untold.discard(plan.name)

    def step_scope(self):
        """Tasks in a graph_scope; now and then it raises, and then they never were."""
        if self.open or self.tight or self.blocking:
            return
        leaves = self.rng.random() < 0.3
        self.tell("graph_scope" + (", which raises" if leaves else ""))
        if ON_CUDA:  # what fails while it is launched has spoilt what was captured
            try:
                self.ctx.synchronize()
            except (stf.TaskFailedError, ExceptionGroup) as error:
                self.hear(error)
        before = [(item, item.state()) for item in self.items]
        with contextlib.suppress(Boom), self.ctx.graph_scope():
            for _ in range(self.rng.randint(1, 4)):
                plan = self.plan(3, fails=0)
                if plan is not None:
                    plan.place = None if ON_CUDA else plan.place
                    self.tell(f"    {plan!r}")
                    # not all that bodies on a device do can be captured
                    self.submit("host_launch" if ON_CUDA else "builder", plan, self.inputs_poisoned(plan))
                    self.model(plan)
            if leaves:
                raise Boom
        if leaves:
            for item, state in before:
                item.set_state(state)

    def submit(self, kind, plan, bad):
        details = plan.details()
        self.skips = self.skips or bad
        try:
            if kind == "host_launch":
                self.ctx.host_launch(*[u.access() for u in plan.uses], name=plan.name)(late_body(details))
            elif kind == "function":
                groups = [[u.access() for u in plan.uses if u.mode == mode] for mode in (READ, WRITE, RW)]
                groups = [contained(group, details[2] + i) for i, group in enumerate(groups)]
                function = grouped.named(plan.name)
                if plan.place is not None and details[2] % 2:
                    with plan.place:
                        function(details, *groups)
                elif plan.place is None and details[2] % 3 == 0:
                    function.on(plan.uses[0].item.handle)(details, *groups)
                else:
                    (function.on(plan.place) if plan.place is not None else function)(details, *groups)
            elif kind == "submit_task":
                self.ctx.submit_task(*self.annotated(plan, details), place=plan.place, name=plan.name)
            else:
                body = returning_body if kind == "returns" and any(u.mode & WRITE for u in plan.uses) else late_body
                self.ctx.task(*self.arguments(plan), name=plan.name)(body(details))
        except (stf.TaskFailedError, ExceptionGroup) as error:
            assert self.blocking or (plan.failing and not bad and self.enqueues(plan.place)), error
            self.hear(error)

    def annotated(self, plan, details):
        """A function made for this task, with one annotated parameter per access, and its arguments."""
        names = {READ: stf.Read, WRITE: stf.Write, RW: stf.ReadWrite}

        def body(*values):
            run_body(flat(values), details)

        kinds = [stf.Accumulate[REDUCERS[u.op][0]] if u.mode == ACCUMULATE else names[u.mode] for u in plan.uses]
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        body.__signature__ = inspect.Signature(
            [inspect.Parameter(f"p{i}", positional, annotation=kind) for i, kind in enumerate(kinds)]
        )
        arguments = [u.item.handle if u.mode == ACCUMULATE or u.place is None else u.access() for u in plan.uses]
        return [body, *arguments]

    def step_small(self):
        """Tasks of the context's own: fill, copy, prefetch."""
        rng = self.rng
        kind = rng.choice(["fill", "copy", "prefetch"])
        free = [i for i in self.items if not i.token and not i.tiles and i.frozen is None and not i.claims]
        writeable = [i for i in free if not i.readonly]
        if not writeable:
            return
        item = rng.choice(writeable)
        if kind == "fill":
            self.tell(f"fill {item.name}")
            value = rng.randrange(2)
            action = lambda: self.ctx.fill(item.handle, value)  # noqa: E731
            if self.runs_as_loop(item):
                self.tell("by parallel_for")
                action = lambda: self.loop_over(item, item.handle.write(), args=(value,))(LOOPS[item.value.ndim][0])  # noqa: E731
            if self.injecting(action, [item]):
                item.value[...] = value
                item.valid, item.known, item.poison, item.partials = True, True, False, None
        elif kind == "copy":
            same_kind = [i for i in free if i.value.shape == item.value.shape and i.value.dtype == item.value.dtype]
            source = rng.choice(same_kind)
            if source is item or not source.readable() or (source.poison and self.blocking):
                return
            self.tell(f"copy {source.name} to {item.name}")
            self.skips = self.skips or source.poison
            action = lambda: self.ctx.copy(source.handle, item.handle)  # noqa: E731
            if self.runs_as_loop(item):
                self.tell("by parallel_for")
                accesses = source.handle.read(), item.handle.write()
                action = lambda: self.loop_over(item, *accesses)(LOOPS[item.value.ndim][1])  # noqa: E731
            if self.injecting(action, [item, source]):
                source.partials = item.partials = None
                item.valid, item.known, item.poison = True, not source.poison, source.poison
                if item.known:
                    item.value[...] = source.value
        elif item.readable() and not item.poison:
            where = data_place.device(rng.randrange(self.count))
            self.tell(f"prefetch {item.name} to {where}")
            if self.injecting(lambda: self.ctx.prefetch(item.handle, where), [item]):
                item.partials = None

    def runs_as_loop(self, item):
        """Whether a step is done by a compiled loop, for some types and shapes alone: compiling takes time."""
        suits = item.value.ndim in LOOPS and item.value.dtype.str in ("<f8", "<f4", "<i4", "|b1")
        return not QUICK and suits and hasattr(item.handle, "reduce") and self.rng.random() < 0.5

    def loop_over(self, item, *accesses, **options):
        """A loop over an item's elements, on the host or a device."""
        places = [stf.exec_place.host(), *(self.ctx.devices if runs_kernels(self.ctx) else [])]
        return self.ctx.parallel_for(self.rng.choice(places), item.value.shape, *accesses, **options)


# -- bodies ------------------------------------------------------------------------------------------------------------


def fill_row(i, x, value):
    x[i] = value


def copy_row(i, x, y):
    y[i] = x[i]


def fill_plane(i, j, x, value):
    x[i, j] = value


def copy_plane(i, j, x, y):
    y[i, j] = x[i, j]


LOOPS = {1: (fill_row, copy_row), 2: (fill_plane, copy_plane)}  # by the number of axes


def run_body(arrays, details):
    """The body of every task."""
    modes, ops, seed, failing = details
    if failing == "early":
        raise Boom
    apply(arrays, modes, ops, seed)
    if failing == "late":
        raise Boom


def late_body(details):
    def body(*values):
        run_body(flat(values), details)

    return body


def returning_body(details):
    def body(*values):
        modes, ops, seed, _ = details
        if not is_in_order(flat(values)):
            return apply(flat(values), modes, ops, seed)
        results = effect(flat(values), modes, ops, seed)
        changed = [library(v).asarray(r, v.dtype) for r, v in zip(results, flat(values), strict=True) if r is not None]
        return tuple(changed) or None

    return body


@stf.task
def grouped(details, reads: stf.Read, writes: stf.Write, changes: stf.ReadWrite):
    """A function task; its arrays come in containers."""
    run_body(flat([reads, writes, changes]), details)


def contained(accesses, number):
    """Accesses in a container, some in one inside it."""
    if number % 4 == 0:
        return tuple(accesses)
    if number % 4 == 1:
        return {f"k{i}": access for i, access in enumerate(accesses)}
    return [accesses[:1], {"rest": tuple(accesses[1:])}] if number % 4 == 2 else accesses


def in_thread(action):
    """Do something in another thread; raise what it raised."""
    errors = []

    def run():
        try:
            action()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors.pop()
