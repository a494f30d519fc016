"""The model: logical data as NumPy arrays, tasks as arithmetic on them, one at a time.

`Model` knows what each data holds, whether it is valid, poisoned, frozen, split or in use, and so which accesses are
legal; it draws tasks from those (a `Plan`), and does them. It knows stf only as far as to say an access or a place.
"""

from __future__ import annotations

import os

import numpy as np
from arithmetic import ACCUMULATE, READ, REDUCERS, RW, WRITE, apply, content_at, fresh
from drivers import ON_CUDA

from stf import data_place, exec_place

DTYPES = ["f8", "f4", "i4", "i8", "i2", "u1", "i1", "c16", "?"]
FORMS = os.environ.get("STF_TEST_FORMS", "C,F,step,reverse,inner").split(",")  # how the user's arrays lie


class Boom(Exception):
    """What failing bodies raise."""


# -- data and tasks ----------------------------------------------------------------------------------------------------


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

    def state(self):
        """What `set_state` goes back to."""
        value = None if self.token else self.value.copy()
        return value, self.valid, self.known, self.poison, self.partials

    def set_state(self, state):
        value, self.valid, self.known, self.poison, self.partials = state
        if value is not None:
            self.value[...] = value

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


# -- the model ------------------------------------------------------------------------------------------------------


class Model:
    """What a sequential program knows of its data, and the tasks that it may do next.

    Parameters
    ----------
    rng : random.Random
        All draws.
    count : int
        Devices.
    tight : bool
        Data are of similar small sizes, so that a limit of memory is hit and can be met.
    accumulates : bool
        Tasks may accumulate.
    """

    def __init__(self, rng, count, tight=False, accumulates=True):
        self.rng, self.count, self.tight, self.accumulates = rng, count, tight, accumulates
        self.items = []
        self.finished = []  # items that are released; their homes are compared at the end
        self.failed = set()
        self.serial = 0

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
        if ON_CUDA and self.ctx.engine.window is not None:  # a body that only enqueues raises where it is released
            failing = None
        return Plan(self.name("t"), uses, self.place(), rng.randrange(1000), failing)

    def home_array(self):
        """An array of the user's: often not contiguous; on CUDA some lie on a device."""
        rng = self.rng
        shape, kind = self.shape(), self.dtype()
        form = rng.choice(FORMS)
        number = rng.randrange(100)
        where = rng.randrange(self.count) if ON_CUDA and rng.random() < 0.2 else None
        if where is None:
            return array_of(np, shape, kind, form, number)
        import cupy

        with cupy.cuda.Device(where):
            return array_of(cupy, shape, kind, form, number)

    # -- doing ------------------------------------------------------------------------------------------------------

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

    def at_rest(self, item):
        return not item.token and not item.tiles and not item.claims and item.frozen is None

    def gone(self, item):
        self.items.remove(item)
        item.partials = None
        if item.parent is not None:
            parent = item.parent
            parent.tiles.remove(item)
            parent.poison |= item.poison
            parent.known &= item.known and not item.poison  # what is poisoned does not come home
            if not item.poison and not item.valid:
                parent.keep_previous = True
            if not parent.tiles:
                parent.valid = parent.valid or not parent.keep_previous
        else:
            self.finished.append(item)


def frozen_for(item, mode):
    return item.frozen is not None and item.frozen.mode == mode


def any_tile(item, want):
    return any(want(t) or any_tile(t, want) for t in item.tiles)


def depth(item):
    return 0 if item.parent is None else 1 + depth(item.parent)


def array_of(xp, shape, kind, form, number):
    """An array of NumPy or CuPy with some content, laid out as `form` says."""
    if form == "step":
        base = xp.zeros([2 * n for n in shape], kind)
        home = base[(*(slice(None, None, 2) for _ in shape), ...)]
    elif form == "reverse":
        home = xp.zeros(shape, kind)[(*(slice(None, None, -1) for _ in shape), ...)]
    elif form == "inner":
        home = xp.zeros([n + 2 for n in shape], kind)[(*(slice(1, n + 1) for n in shape), ...)]
    else:
        home = xp.zeros(shape, kind, order=form)
    home[...] = fresh(home, number)
    return home


def same(a, b):
    """Whether two arrays, the first of whatever place, hold the same."""
    if a.shape != b.shape or not a.size:
        return a.shape == b.shape
    return a.dtype == b.dtype and bool(np.array_equal(content_at(a), b))
