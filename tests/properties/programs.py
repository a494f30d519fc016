"""Random STF programs, run beside a model that does one task at a time in NumPy.

A program is a seed. Each step is drawn from what the model says is possible, done to the context and to the model, and
written to the story that a failure prints. After each step the engine's state is verified; at the end the results are
compared, the recorded order is proven, and nothing may be left over. Draws depend on the model only, never on timing.

    python tests/properties/programs.py 17            # run program 17 and print its story
    python tests/properties/programs.py 0 1000        # run programs 0 … 999
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import traceback

import numpy as np

import stf
import stf.testing
from stf import config, data_place, exec_place

READ, WRITE, RW, ACCUMULATE = 1, 2, 3, 4
DTYPES = ["f8", "f4", "i4", "i8", "i2", "u1", "i1", "c16", "?"]
REDUCERS = {
    "sum": (stf.reducer.sum, np.add),
    "max": (stf.reducer.maxval, np.maximum),
    "min": (stf.reducer.minval, np.minimum),
    "or": (stf.reducer.bitwise_or, np.bitwise_or),
}
DEVICES = ["cpu", "cpu:2", "cpu:3"]


class Boom(Exception):
    """What failing bodies raise."""


class Pair:
    """An object made of two arrays."""

    def __init__(self, a, b):
        self.a, self.b = a, b


stf.register_data_interface(Pair, flatten=lambda p: (p.a, p.b), unflatten=lambda p, parts: Pair(*parts))


# -- what bodies compute; the same for the context and for the model ------------------------------------------------


def checksum(array):
    return int(np.nan_to_num(array.real).astype(np.int64).sum() % 1009) if array.size else 0


def mixed(old, seed):
    """New content from old content and a number, exact in every dtype."""
    kind = old.dtype.kind
    if kind == "c":
        return (old.real + seed) % 1009 + 1j * ((old.imag + seed + 1) % 97)
    if kind == "f":
        return (old + seed) % 1009
    if kind == "b":
        return (old.astype(int) + seed) % 2 == 1
    return ((old.astype(np.int64) + seed) % 97).astype(old.dtype)


def fresh(array, seed):
    ramp = np.arange(array.size).reshape(array.shape)
    return mixed(ramp.astype(array.dtype), seed)


def effect(arrays, modes, ops, seed):
    """Return what each array becomes, or None where it is only read; nothing is written."""
    total = seed + sum(checksum(a) for a, mode in zip(arrays, modes, strict=True) if mode & READ)
    results = []
    for i, (array, mode, op) in enumerate(zip(arrays, modes, ops, strict=True)):
        if mode == ACCUMULATE:
            value = np.asarray(seed % 5 + i).astype(array.dtype)
            results.append(REDUCERS[op][1](array, value))
        elif mode == WRITE:
            results.append(fresh(array, total + i))
        elif mode == RW:
            results.append(mixed(array, total + i))
        else:
            results.append(None)
    return results


def apply(arrays, modes, ops, seed):
    for array, result in zip(arrays, effect(arrays, modes, ops, seed), strict=True):
        if result is not None:
            array[...] = result


def flat(values):
    """Arrays out of lists and pairs, without tokens."""
    result = []
    for value in values:
        if isinstance(value, Pair):
            result += [value.a, value.b]
        elif isinstance(value, (list, tuple)):
            result += flat(value)
        elif value is not None:
            result.append(value)
    return result


# -- the model ------------------------------------------------------------------------------------------------------


class Item:
    """One logical data: its handle, and what the model knows of it."""

    def __init__(self, name, handle, value, home=None, valid=True):
        self.name = name
        self.handle = handle
        self.value = value
        self.home = home
        self.valid = valid
        self.known = True
        self.poison = False
        self.frozen = None
        self.tiles = []
        self.parent = None
        self.claims = []
        self.partials = None
        self.readonly = False
        self.write_back = True
        self.pair = False

    @property
    def token(self):
        return self.value is None

    @property
    def nbytes(self):
        return 0 if self.token else self.value.nbytes

    def readable(self):
        return (self.valid or self.token or self.partials is not None) and self.known


class Use:
    """One access of a task, before it is made."""

    def __init__(self, item, mode, op=None, place=None):
        self.item, self.mode, self.op, self.place = item, mode, op, place

    def access(self):
        where = () if self.place is None else (self.place,)
        if self.mode == ACCUMULATE:
            return self.item.handle.accumulate(REDUCERS[self.op][0], *where)
        return {READ: self.item.handle.read, WRITE: self.item.handle.write, RW: self.item.handle.rw}[self.mode](*where)

    def __repr__(self):
        mode = {READ: "read", WRITE: "write", RW: "rw", ACCUMULATE: f"accumulate[{self.op}]"}[self.mode]
        return f"{self.item.name}.{mode}({self.place or ''})"


class Plan:
    """A task: its accesses, its place, a number for its arithmetic, and how its body fails."""

    def __init__(self, name, uses, place, seed, failing=None):
        self.name, self.uses, self.place, self.seed, self.failing = name, uses, place, seed, failing

    def arrays_in_model(self):
        return [u.item.value for u in self.uses if not u.item.token]

    def details(self):
        uses = [u for u in self.uses if not u.item.token]
        joined = {}
        for u in uses:
            joined[id(u.item)] = joined.get(id(u.item), 0) | u.mode
        modes = [u.mode for u in uses]
        return modes, [u.op for u in uses], self.seed, self.failing

    def __repr__(self):
        place = f" on {self.place}" if self.place is not None else ""
        failing = f", raises {self.failing}" if self.failing else ""
        return f"{self.name}{place}: {', '.join(map(repr, self.uses))}{failing}"


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
        results = effect(flat(values), modes, ops, seed)
        changed = [np.asarray(r).astype(v.dtype) for r, v in zip(results, flat(values), strict=True) if r is not None]
        return tuple(changed) or None

    return body


@stf.task
def grouped(details, reads: stf.Read, writes: stf.Write, changes: stf.ReadWrite):
    """A function task; its arrays come in lists."""
    run_body(flat([reads, writes, changes]), details)


# -- the machine ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def settings(**values):
    """Settings of stf for a while."""
    before = {name: getattr(config, name) for name in values}
    for name, value in values.items():
        setattr(config, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


class Machine:
    """Runs one random program."""

    def __init__(self, seed, length=None, calm=None, devices=None):
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.length = length or rng.randint(6, 26)
        self.devices = devices or rng.choice(DEVICES)
        self.count = 1 if self.devices == "cpu" else int(self.devices[4:])
        hostile = rng.random() < 0.6 if calm is None else not calm
        self.hostile = seed if hostile else None
        self.tight = self.devices != "cpu" and rng.random() < 0.4
        self.accumulates = rng.random() < 0.5
        self.limit = (9 if self.accumulates else rng.choice([4, 5, 6])) * 128 if self.tight else None
        bounded = self.tight and rng.random() < 0.3
        options = {"memory_limit": self.limit} if self.tight and not bounded else {}
        if rng.random() < 0.2:
            options["max_pending"] = rng.choice([1, 2, 5])
        self.story = [f"seed {seed}: {self.devices}, hostile={self.hostile}, limit={self.limit}, {options}"]
        self.blocking, self.validate = rng.random() < 0.05, rng.random() < 0.1
        self.story[0] += f", blocking={self.blocking}, validate={self.validate}"
        self.workers = rng.choice([1, 2, 4])
        with settings(blocking=self.blocking, validate=self.validate):
            self.ctx = stf.testing.context(
                self.devices,
                hostile=self.hostile,
                capacity=self.limit if bounded else 0,
                workers=self.workers,
                **options,
            )
        self.items = []
        self.pairs = []
        self.finished = []  # items that are released; their homes are compared at the end
        self.open = []
        self.failed = set()
        self.untold = set()
        self.serial = 0

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self):
        ctx = self.ctx
        try:
            for _ in range(self.rng.randint(1, 3)):
                self.step_register()
            for _ in range(self.length):
                self.step()
                ctx.check_state()
            self.close()
        except BaseException as error:
            error.add_note("\n".join(self.story))
            self.stop()
            raise
        return self.story

    def close(self):
        while self.open:
            self.step_end()
            self.ctx.check_state()
        for item in self.items:
            if item.frozen is not None:
                item.frozen.unfreeze()
        self.tell("finalize")
        try:
            self.ctx.finalize()
        except (stf.TaskFailedError, ExceptionGroup) as error:
            self.hear(error)
        assert not self.untold, f"failures that nobody was told: {self.untold}"
        self.compare_homes()
        assert not self.ctx.engine.opened(), "tasks are listed as open"
        assert not self.ctx.engine.coherency.data, "data were not forgotten"
        assert all(pool.used == 0 for pool in self.ctx.engine.coherency.pools), "memory is counted as used"
        stf.testing.settle(self.ctx.driver)
        stf.testing.check_order(self.ctx.recording)

    def stop(self):
        """After a failure: end what can be ended, so that the next program starts clean."""
        self.ctx._finished = True

    def compare_homes(self):
        for item in [*self.finished, *self.items]:
            whole = item
            while whole.parent is not None:
                whole = whole.parent
            if whole.home is None or item is not whole or item.poison or not item.known:
                continue
            if any_tile(item, lambda t: t.poison or not t.known or not t.valid):
                continue
            self.ctx.recording.host_access(item.home, False)
            if item.write_back:
                assert same(item.home, item.value), f"{item.name}: {item.home!r}, expected {item.value!r}"

    def step(self):
        kinds = {
            self.step_register: 8,
            self.step_create: 6,
            self.step_with: 22,
            self.step_late: 30,
            self.step_start: 6,
            self.step_end: 10 if self.open else 0,
            self.step_wait: 8,
            self.step_small: 6,
            self.step_give_up: 5,
            self.step_write_back: 3,
            self.step_freeze: 5,
            self.step_tiles: 5,
            self.step_join_tiles: 4,
            self.step_heal: 5 if any(i.poison for i in self.items) else 0,
            self.step_whole: 3,
            self.step_mistake: 4,
            # a body that submits may have to wait for another body, which needs a worker of its own
            self.step_nested: 3 if self.limit is None and self.workers > 1 else 0,
            self.step_again: 0 if self.validate else 3,
        }
        self.rng.choices(list(kinds), list(kinds.values()))[0]()

    def tell(self, text):
        self.story.append(f"  {len(self.story)}. {text}")

    def hear(self, error):
        """Note which failures an exception tells of; each must be one of this program's."""
        for one in error.exceptions if isinstance(error, ExceptionGroup) else [error]:
            if not isinstance(one, stf.TaskFailedError):
                raise error
            name = one.task.strip("'")
            assert name in self.failed, f"{one} tells of a task that did not fail"
            assert isinstance(one.__cause__, Boom), one.__cause__
            self.untold.discard(name)

    def attempt(self, action, items=()):
        """Do something that memory may be too short for; False if it rightly was."""
        try:
            action()
            return True
        except stf.OutOfMemoryError:
            if self.limit is None:
                raise
            needed = sum({id(i): i.nbytes for i in items}.values())
            pinned = sum(i.nbytes for i in self.items if i.claims or i.frozen is not None)
            partials = sum(i.nbytes * 2 * (self.count + 1) for i in self.items if i.partials is not None)
            if needed + pinned + partials <= self.limit:
                raise
            self.tell("    (no room)")
            self.ctx.check_state()
            return False

    def injecting(self, action, items=()):
        """Attempt something; now and then let a copy or allocations fail in it, then do it again."""
        rng = self.rng
        driver = self.ctx.driver.inner
        if self.hostile is None or rng.random() > 0.15:
            return self.attempt(action, items)
        self.tell("    (with failing calls)")
        ahead = rng.randint(1, 3)
        if rng.random() < 0.5:
            driver.fail_copy = {driver.copies + ahead}
        else:
            driver.fail_alloc = set(range(driver.allocs + ahead, driver.allocs + ahead + rng.choice([1, 2, 30])))
        try:
            action()
            return True
        except (stf.OutOfMemoryError, stf.DriverError) as error:
            if "is to fail" not in str(error) + str(error.__cause__) and self.limit is None:
                raise
        finally:
            driver.fail_copy = driver.fail_alloc = ()
        self.tell("    (failed, again)")
        self.ctx.check_state()
        return self.attempt(action, items)

    # -- choosing --------------------------------------------------------------------------------------------------

    def name(self, prefix):
        self.serial += 1
        return f"{prefix}{self.serial}"

    def pick(self, want):
        found = [i for i in self.items if want(i)]
        return self.rng.choice(found) if found else None

    def shape(self):
        if self.tight:
            return self.rng.choice([(16,), (4, 4), (2, 8), (8,), (2, 2, 4)])
        return self.rng.choice([(), (), (0,), (3, 0), (1,), (5,), (7,), (3, 4), (4, 1), (2, 3, 2), (16,), (1, 1, 1)])

    def dtype(self):
        return np.dtype("f8" if self.tight else self.rng.choice(DTYPES))

    def data_place(self):
        choice = self.rng.randrange(10 + self.count)
        return data_place.device(choice - 10) if choice >= 10 else data_place.host() if choice == 9 else None

    def place(self):
        return self.rng.choice([None, None, exec_place.host(), *(exec_place.device(i) for i in range(self.count))])

    def modes_of(self, item, clean):
        """The modes that a task may use an item in without an error."""
        modes = []
        if item.frozen is not None:
            return [READ] if item.frozen.mode == READ and item.readable() and not (clean and item.poison) else []
        claimed = bool(item.claims)
        if item.readable() and not (clean and item.poison) and all(mode == READ for _, mode in item.claims):
            modes += [READ, READ]
        if item.readonly or (claimed and any(mode != ACCUMULATE for _, mode in item.claims)):
            return modes
        if not claimed:
            modes.append(WRITE)
            if item.readable() and not (clean and item.poison):
                modes += [RW, RW]
        if self.accumulates and not item.token and item.known:
            open_op = item.partials if claimed else None
            if item.value.dtype.kind != "c" and (open_op is None or item.partials == open_op):
                modes.append(ACCUMULATE)
        return modes

    def uses(self, most, modes=(READ, WRITE, RW, ACCUMULATE), pairs=True):
        """Accesses of a task; at most one of the data read is poisoned, and then nothing else is odd."""
        rng = self.rng
        clean = rng.random() < 0.8
        result = []
        for _ in range(rng.randint(1, most)):
            item = self.pick(lambda i: not i.tiles and set(self.modes_of(i, clean)) & set(modes))
            if item is None:
                break
            mode = rng.choice([m for m in self.modes_of(item, clean) if m in modes])
            mine = [u for u in result if u.item is item]
            place = None if item.token else self.data_place()
            if mine:
                first = mine[0]
                if ACCUMULATE in (mode, first.mode):
                    if mode != first.mode:
                        continue
                    op = first.op
                    result.append(Use(item, mode, op, first.place))
                    continue
                if item.frozen is None and not self.modes_allow(item, mode | first.mode, clean):
                    continue
                result.append(Use(item, mode, None, first.place))
                continue
            result.append(Use(item, mode, self.op_for(item) if mode == ACCUMULATE else None, place))
        return result

    def modes_allow(self, item, mode, clean):
        return mode in self.modes_of(item, clean)

    def op_for(self, item):
        if item.claims and item.partials is not None:
            return item.partials
        ops = ["sum", "max", "min"] + (["or"] if item.value.dtype.kind in "iub" else [])
        return self.rng.choice(ops)

    def plan(self, most=4, modes=(READ, WRITE, RW, ACCUMULATE), fails=0.1, limit=None):
        rng = self.rng
        uses = self.uses(most, modes)
        if limit is not None:
            uses.sort(key=lambda u: limit.index(u.mode))
        if not uses:
            return None
        failing = rng.choice(["early", "late"]) if rng.random() < fails else None
        return Plan(self.name("t"), uses, self.place(), rng.randrange(1000), failing)

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

    # -- the model's side of a task ----------------------------------------------------------------------------------

    def inputs_poisoned(self, plan):
        joined = {}
        for u in plan.uses:
            joined[u.item] = joined.get(u.item, 0) | (u.mode & 3)
        return any(mode & READ and item.poison for item, mode in joined.items())

    def model(self, plan):
        """Do the task in the model; return "ran", "poisoned" or "failed"."""
        joined = {}
        for u in plan.uses:
            joined[u.item] = joined.get(u.item, 0) | u.mode
        bad = self.inputs_poisoned(plan)
        for item, mode in joined.items():
            if mode & READ or mode == WRITE:
                item.partials = None
            if mode == ACCUMULATE:
                self.begin_partial(item, next(u.op for u in plan.uses if u.item is item))
        modes, ops, seed, failing = plan.details()
        if not bad and failing != "early":
            apply(plan.arrays_in_model(), modes, ops, seed)
        for item, mode in joined.items():
            if mode == READ:
                continue
            if mode == ACCUMULATE and item.poison:
                item.known = False  # it is not combined with spoiled content
            if bad or failing:
                item.poison = True
                if bad or failing == "early":
                    item.known = item.known and mode == RW
                if mode == ACCUMULATE:
                    item.known = False
            elif mode != ACCUMULATE:
                item.poison = False
                item.known = True
            item.valid = True
        if bad:
            return "poisoned"
        if failing:
            self.failed.add(plan.name)
            return "failed"
        return "ran"

    def begin_partial(self, item, op):
        """An accumulation starts from the neutral element where there is no content yet."""
        if not item.valid:
            REDUCERS[op][0].fill(item.value)
            item.valid = True
        item.partials = op

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

    def step_nested(self):
        """A body that submits another task, on data that nobody else uses meanwhile."""
        inner = self.plan(2, modes=(READ, WRITE, RW), fails=0)
        if inner is None or self.open or self.inputs_poisoned(inner) or any(i.poison for i in self.items):
            return
        outer = self.name("t")
        self.tell(f"nested {outer} submits {inner!r}")
        submit = late_body(inner.details())
        done = threading.Event()
        arguments = self.arguments(inner)

        def body():
            try:
                self.ctx.task(*arguments, name=inner.name)(submit)
            finally:
                done.set()

        self.ctx.host_launch(name=outer)(body)
        done.wait()
        arguments.clear()
        self.model(inner)

    def step_again(self):
        """Release an array and register it anew."""
        item = self.pick(lambda i: self.at_rest(i) and i.home is not None and not i.poison and i.known and i.write_back)
        if item is None or item.readonly:
            return
        self.tell(f"release and register again {item.name}")
        if self.attempt(item.handle.release, [item]):
            item.partials = None
            item.handle = self.ctx.logical_data(item.home, name=item.name)

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

    def submit(self, kind, plan, bad):
        details = plan.details()
        try:
            if kind == "host_launch":
                self.ctx.host_launch(*[u.access() for u in plan.uses], name=plan.name)(late_body(details))
            elif kind == "function":
                groups = [[u.access() for u in plan.uses if u.mode == mode] for mode in (READ, WRITE, RW)]
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
            assert bad or self.blocking, error
            self.hear(error)

    def annotated(self, plan, details):
        """A function made for this task, with one annotated parameter per access, and its arguments."""
        names = {READ: stf.Read, WRITE: stf.Write, RW: stf.ReadWrite}

        def body(*values):
            run_body(flat(values), details)

        import inspect

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
            if self.injecting(lambda: self.ctx.fill(item.handle, value), [item]):
                item.value[...] = value
                item.valid, item.known, item.poison, item.partials = True, True, False, None
        elif kind == "copy":
            same_kind = [i for i in free if i.value.shape == item.value.shape and i.value.dtype == item.value.dtype]
            source = rng.choice(same_kind)
            if source is item or not source.readable() or source.poison:
                return
            self.tell(f"copy {source.name} to {item.name}")
            if self.injecting(lambda: self.ctx.copy(source.handle, item.handle), [item, source]):
                item.value[...] = source.value
                source.partials = item.partials = None
                item.valid, item.known, item.poison = True, True, False
        elif item.readable() and not item.poison:
            where = data_place.device(rng.randrange(self.count))
            self.tell(f"prefetch {item.name} to {where}")
            if self.injecting(lambda: self.ctx.prefetch(item.handle, where), [item]):
                item.partials = None

    # -- data ------------------------------------------------------------------------------------------------------

    def step_register(self):
        rng = self.rng
        if len(self.items) > 12:
            return
        name = self.name("d")
        kind = rng.choice(["array", "array", "array", "pair", "token"])
        if kind == "token":
            self.tell(f"{name} = token")
            self.items.append(Item(name, self.ctx.token(name=name), None))
            return
        if kind == "pair":
            homes = [self.home_array() for _ in range(2)]
            self.tell(f"{name} = pair of {[h.shape for h in homes]}")
            pair = self.ctx.logical_data(Pair(*homes), name=name)
            for part, home in zip(pair.parts, homes, strict=True):
                self.items.append(Item(part.name, part, home.copy(), home))
            return
        home = self.home_array()
        readonly = rng.random() < 0.1
        write_back = rng.random() < 0.85
        self.tell(
            f"{name} = logical_data({home.dtype}, {home.shape}, strides {home.strides}, {readonly=}, {write_back=})"
        )
        handle = self.ctx.logical_data(home, name=name, readonly=readonly, write_back=write_back)
        item = Item(name, handle, home.copy(), home)
        item.readonly = readonly
        item.write_back = write_back
        assert self.ctx.logical_data(home) is handle
        self.items.append(item)

    def home_array(self):
        """An array of the user's: often not contiguous."""
        rng = self.rng
        shape, kind = self.shape(), self.dtype()
        form = rng.choice(["C", "F", "step", "reverse", "inner"])
        if form == "step":
            base = np.zeros([2 * n for n in shape], kind)
            home = base[(*(slice(None, None, 2) for _ in shape), ...)]
        elif form == "reverse":
            home = np.zeros(shape, kind)[(*(slice(None, None, -1) for _ in shape), ...)]
        elif form == "inner":
            home = np.zeros([n + 2 for n in shape], kind)[(*(slice(1, n + 1) for n in shape), ...)]
        else:
            home = np.zeros(shape, kind, order=form)
        home[...] = fresh(home, rng.randrange(100))
        return home

    def step_create(self):
        rng = self.rng
        if len(self.items) > 12:
            return
        name, shape, kind = self.name("e"), self.shape(), self.dtype()
        value = np.zeros(shape, kind)
        if rng.random() < 0.6:
            self.tell(f"{name} = logical_data_empty({shape}, {kind})")
            handle = self.ctx.logical_data_empty(shape, kind, name=name)
            self.items.append(Item(name, handle, value, valid=False))
        else:
            self.tell(f"{name} = logical_data_full({shape}, 1, {kind})")
            where = exec_place.device(rng.randrange(self.count)) if rng.random() < 0.5 else None
            made = []

            def action():
                made.append(self.ctx.logical_data_full(shape, 1, kind, name=name, exec_place=where))

            item = Item(name, None, value + np.ones((), kind))
            item.value = np.ones(shape, kind)
            if self.attempt(action, [item]):
                item.handle = made.pop()
                self.items.append(item)

    def step_wait(self):
        item = self.pick(lambda i: i.readable() and not i.tiles and not i.claims and not frozen_for(i, RW))
        if item is None or self.open:
            return
        self.tell(f"wait {item.name}")
        result = []

        def action():
            result[:] = ["raised"]
            try:
                result[:] = [self.ctx.wait(item.handle)]
            except (stf.TaskFailedError, ExceptionGroup) as error:
                assert item.poison or self.untold, error
                self.hear(error)
            else:
                assert not item.poison, "wait returned poisoned content"

        if self.injecting(action, [item]):
            item.partials = None
            got = result[0]
            if item.token or isinstance(got, str):
                return
            assert np.array_equal(got, item.value), f"{item.name} is {got!r}, expected {item.value!r}"

    def step_write_back(self):
        item = self.pick(lambda i: i.home is not None and self.at_rest(i))
        if item is None or self.open:
            return
        self.tell(f"write_back {item.name}")

        def action():
            try:
                item.handle.write_back()
            except (stf.TaskFailedError, ExceptionGroup) as error:
                assert item.poison, error
                self.hear(error)
            else:
                assert not item.poison

        if self.injecting(action, [item]):
            item.partials = None
            if not item.poison and item.known:
                self.ctx.recording.host_access(item.home, False)
                assert same(item.home, item.value), f"{item.name}: {item.home!r}, expected {item.value!r}"

    def at_rest(self, item):
        return not item.token and not item.tiles and not item.claims and item.frozen is None

    def step_give_up(self):
        item = self.pick(lambda i: not i.tiles and not i.claims and i.frozen is None)
        if item is None:
            return
        drop = self.rng.random() < 0.5
        self.tell(f"{'del' if drop else 'release'} {item.name}")
        handle = item.handle
        if not drop:
            if not self.attempt(handle.release, [item]):
                return
            handle.release()
        item.handle = handle = None
        self.gone(item)

    def gone(self, item):
        self.items.remove(item)
        item.partials = None
        if item.parent is not None:
            parent = item.parent
            parent.tiles.remove(item)
            parent.poison |= item.poison
            parent.known &= item.known and not item.poison  # what is poisoned does not come home
            if not item.poison and not item.valid:
                parent.unwritten = True
            if not parent.tiles:
                parent.valid = parent.valid or not parent.unwritten
        else:
            self.finished.append(item)

    # -- freezing and tiles ----------------------------------------------------------------------------------------

    def step_freeze(self):
        frozen = [i for i in self.items if i.frozen is not None]
        if frozen and self.rng.random() < 0.6:
            return self.step_unfreeze(self.rng.choice(frozen))
        item = self.pick(lambda i: self.at_rest(i) and i.readable() and not i.poison)
        if item is None or (item.valid is False and item.partials is None):
            return
        mode = "read" if item.readonly else self.rng.choice(["read", "rw"])
        where = self.rng.choice([data_place.host(), *(data_place.device(i) for i in range(self.count))])
        self.tell(f"freeze {item.name} {mode} at {where}")
        made = []
        if self.attempt(lambda: made.append(self.ctx.freeze(item.handle, mode, where)), [item]):
            item.partials = None
            item.frozen = made.pop()

    def step_unfreeze(self, item):
        frozen = item.frozen
        got = []
        self.tell(f"unfreeze {item.name}")
        if not item.claims and self.attempt(lambda: got.append(frozen.get()), [item]):
            view = got.pop()
            assert same(view, item.value), f"frozen {item.name} is {view!r}, expected {item.value!r}"
            self.ctx.recording.host_access(view, frozen.mode == RW)
            if frozen.mode == RW:
                item.value[...] = mixed(item.value, 3)
                view[...] = item.value
        frozen.unfreeze()
        item.frozen = None

    def step_tiles(self):
        item = self.pick(
            lambda i: self.at_rest(i) and not i.poison and i.known and i.value.size > 1 and not depth(i) > 1
        )
        if item is None or len(self.items) > 14:
            return
        extents = tuple(self.rng.randint(max(1, n // 2), n) for n in item.value.shape)
        self.tell(f"tiles {item.name} {extents}")
        made = []
        if not self.attempt(lambda: made.append(item.handle.tiles(extents)), [item]):
            return
        item.partials = None
        item.unwritten = False
        tiles = made.pop()
        for index in np.ndindex(tiles.shape):
            window = tuple(slice(i * b, (i + 1) * b) for i, b in zip(index, extents, strict=True))
            tile = Item(tiles[index].name, tiles[index], item.value[window], valid=item.valid)
            tile.parent = item
            tile.readonly = item.readonly
            item.tiles.append(tile)
            self.items.append(tile)

    def step_join_tiles(self):
        item = self.pick(lambda i: i.tiles and all(self.at_rest(t) for t in i.tiles))
        if item is None:
            return
        self.tell(f"join {item.name}")
        for tile in list(item.tiles):
            if self.rng.random() < 0.5:
                tile.handle.release()
            tile.handle = None
            self.gone(tile)

    # -- the rest --------------------------------------------------------------------------------------------------

    def step_heal(self):
        item = self.pick(lambda i: i.poison and self.at_rest(i))
        if item is None:
            return
        if self.rng.random() < 0.5 and item.known:
            self.tell(f"accept {item.name}")
            self.settle_failures(item)
            item.handle.accept()
            item.poison = False
            if item.partials is not None:
                item.known = False
        elif not item.readonly:
            self.tell(f"heal {item.name}")
            plan = Plan(self.name("t"), [Use(item, WRITE)], None, self.rng.randrange(100))
            if self.attempt(lambda: self.submit("builder", plan, False), [item]):
                self.model(plan)

    def settle_failures(self, item):
        """Hear of the failures first: `accept` itself raises nothing."""
        if self.open:
            return
        try:
            self.ctx.synchronize()
        except (stf.TaskFailedError, ExceptionGroup) as error:
            self.hear(error)

    def step_whole(self):
        kind = self.rng.choice(["synchronize", "fence", "check_errors"])
        if self.open:
            return
        self.tell(kind)
        try:
            if kind == "fence":
                fence = self.ctx.fence()
                fence.synchronize()
                assert fence.done
            else:
                getattr(self.ctx, kind)()
        except (stf.TaskFailedError, ExceptionGroup) as error:
            self.hear(error)
        if kind == "synchronize":
            assert not self.untold, f"synchronize did not tell of {self.untold}"

    def step_mistake(self):
        """Something that is refused, and changes nothing."""
        rng = self.rng
        mistakes = []
        for item in self.items:
            handle = item.handle
            if item.tiles:
                mistakes.append((stf.AccessError, "read split", lambda h=handle: self.begin_end(h.read())))
            elif item.frozen is not None:
                if not item.readonly:
                    mistakes.append((stf.AccessError, "write frozen", lambda h=handle: self.begin_end(h.rw())))
            elif item.claims:
                if not item.readonly:
                    mistakes.append((stf.TaskStateError, "conflict", lambda h=handle: self.begin_end(h.write())))
                mistakes.append((stf.TaskStateError, "release open", handle.release))
            elif not item.valid and not item.poison and item.partials is None:
                mistakes.append((stf.UninitializedDataError, "read empty", lambda h=handle: self.begin_end(h.read())))
                mistakes.append((stf.UninitializedDataError, "late empty", lambda h=handle: self.late_noop(h.rw())))
                mistakes.append((stf.UninitializedDataError, "freeze empty", lambda h=handle: self.ctx.freeze(h)))
                if item.home is None and item.parent is None and not self.open:
                    mistakes.append((ValueError, "write back", handle.write_back))
            if item.readonly:
                mistakes.append((stf.AccessError, "write read-only", handle.rw))
            if self.open:
                mistakes.append((stf.TaskStateError, "wait inside", lambda h=handle: self.ctx.wait(h)))
        if not mistakes:
            return
        error, what, action = rng.choice(mistakes)
        self.tell(f"mistake: {what}")
        try:
            action()
        except error:
            return
        raise AssertionError(f"{what} was not refused")

    def begin_end(self, access):
        with self.ctx.task(access):
            pass

    def late_noop(self, access):
        self.ctx.task(access)(lambda *values: None)


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


def frozen_for(item, mode):
    return item.frozen is not None and item.frozen.mode == mode


def any_tile(item, want):
    return any(want(t) or any_tile(t, want) for t in item.tiles)


def depth(item):
    return 0 if item.parent is None else 1 + depth(item.parent)


def same(a, b):
    return (
        a.shape == b.shape and a.dtype == b.dtype and bool(np.array_equal(a, b))
        if a.size or b.size
        else a.shape == b.shape
    )


# -- several host threads -------------------------------------------------------------------------------------------


def run_threads(seed):
    """Several threads submit tasks on shared data; the model repeats them in the order in which they were begun."""
    rng = random.Random(seed)
    devices = rng.choice(DEVICES)
    count = 1 if devices == "cpu" else int(devices[4:])
    hostile = seed if rng.random() < 0.6 else None
    ctx = stf.testing.context(devices, hostile=hostile, workers=rng.choice([1, 2, 4]))
    homes = [np.arange(rng.randrange(1, 6), dtype="f8") for _ in range(rng.randint(1, 5))]
    values = [home.copy() for home in homes]
    handles = [ctx.logical_data(home, name=f"d{i}") for i, home in enumerate(homes)]
    plans = {}
    lists = []
    for thread in range(rng.randint(2, 4)):
        mine = []
        for n in range(rng.randint(2, 8)):
            name = f"t{thread}.{n}"
            chosen = rng.sample(range(len(homes)), rng.randint(1, min(3, len(homes))))
            modes = [rng.choice([READ, WRITE, RW]) for _ in chosen]
            plans[name] = (chosen, modes, rng.randrange(1000))
            mine.append((name, rng.choice(["with", "late", "wait"]), rng.randrange(count)))
        lists.append(mine)
    errors = []

    def body(mine):
        try:
            for name, kind, device in mine:
                chosen, modes, number = plans[name]
                details = (modes, [None] * len(modes), number, None)
                accesses = [
                    {READ: handles[c].read, WRITE: handles[c].write, RW: handles[c].rw}[m]()
                    for c, m in zip(chosen, modes, strict=True)
                ]
                place = exec_place.device(device)
                if kind == "late":
                    ctx.task(place, *accesses, name=name)(late_body(details))
                else:
                    with ctx.task(place, *accesses, name=name) as t:
                        run_body(t.arrays(), details)
                if kind == "wait":
                    ctx.wait(handles[chosen[0]])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(mine,)) for mine in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        if errors:
            raise errors[0]
        ctx.check_state()
        ctx.finalize()
        order = [entry[3] for entry in ctx.recording.entries if entry[0] == "task" and entry[3] in plans]
        assert sorted(order) == sorted(plans)
        for name in order:
            chosen, modes, number = plans[name]
            apply([values[c] for c in chosen], modes, [None] * len(modes), number)
        for home, value in zip(homes, values, strict=True):
            ctx.recording.host_access(home, False)
            assert same(home, value), f"{home}, expected {value}"
        stf.testing.settle(ctx.driver)
        stf.testing.check_order(ctx.recording)
    except BaseException as error:
        error.add_note(f"threads, seed {seed}: {devices}, hostile={hostile}, {plans}")
        ctx._finished = True
        raise


def run_program(seed):
    """Run one program: every eighth with several host threads."""
    if seed % 8 == 7:
        run_threads(seed)
    else:
        Machine(seed).run()


def main():
    first = int(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    failures = 0
    for seed in range(first, first + count):
        try:
            if count == 1 and seed % 8 != 7:
                print("\n".join(Machine(seed).run()))
            else:
                run_program(seed)
        except BaseException as error:
            failures += 1
            if isinstance(error, KeyboardInterrupt):
                raise
            print(f"--- seed {seed}: {type(error).__name__}: {str(error)[:200]}")
            if count == 1:
                traceback.print_exc()
            else:
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"    {where.filename.split('/')[-1]}:{where.lineno} in {where.name}")
    print(f"{count} programs, {failures} failed")
    return failures


if __name__ == "__main__":
    sys.exit(bool(main()))
