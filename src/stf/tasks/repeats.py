"""Repeats: windows of tasks that a program submits again and again, found while they are submitted. Compiled.

Only tasks count whose body is known (`KnownCall`): to skip it in Python loses nothing. Each has three tokens:

=========  ==========================================================================================
kind       the line, the body, the place, the modes of the accesses
exact      the same, and which data they are of
relative   the kind, and how many tokens ago these data were used: equal where data are made anew
=========  ==========================================================================================

::

    looking ──the token of p tasks ago, p times (relative: 2 p times)──▶ a window of p tasks is expected
       │ ▲
       │ └── another task, or whatever else begins, waits or asks: what is held is submitted one by one
       ▼
    following: tasks that suit it are held ──all p are there──▶ the keeper records it, or launches what is recorded

A token that was seen p tasks ago makes p a candidate; a few are tried at a time, and each costs one comparison a task.
Whatever else begins or waits is a token of its own (`BREAK`), and so is a window that was replayed. So a loop that
reads a value in each turn has a period, too: its windows are what lies between.

Tokens only find. A window is followed by what `Step` compares: a hash never decides what runs. The first task of a
window gives a number to each of its data, in the order of their use. So a window suits other data, if they are the same
where they were the same.

Rejected: suffix arrays over a buffer of tokens (Legion's Apophenia) find longer windows, and cost a search now and then
that a submitting thread would wait for. Tokens of data by number alone find no window whose data are made anew.
"""

from __future__ import annotations

import contextvars
from typing import Any

import cython
import numpy as np

from stf._engine import host_waits

MASK: object = (1 << 64) - 1
STRANGE: cython.int = 32  # tasks of one other thread, after which that is looked at
SCALARS: dict = {}  # by type: whether it is one of numbers that launches can give


@cython.cclass
class KnownCall:
    """The rest of a call whose body is known: called with the task, it submits that.

    `what` is the body, `fixed` what else is the same in each turn, `plain` the values that it gets, which may be others
    in each turn if they are numbers.
    """

    def __call__(self, task):
        """Submit the task."""
        raise NotImplementedError

    def with_plain(self, plain):
        """Return the same call with other values; itself, if it takes none."""
        return self


@cython.final
@cython.cclass
class Step:
    """What a task of a window must be, but for its data and its numbers."""

    def __init__(self, task: TaskCore, call: KnownCall, slots, given):
        self.code, self.lasti, self.where, self.priority = task.code, task.lasti, task.where, task.priority
        self.symbol = task.symbol
        self.what, self.fixed, self.plain = call.what, call.fixed, call.plain
        self.uses = [without_handle(access) for access in task.accesses]
        self.slots, self.given = slots, given


@cython.final
@cython.cclass
class RepeatedWindow:
    """A window of tasks that came again, and what was recorded of it."""

    def __init__(self, tokens):
        i: cython.Py_ssize_t
        self.tokens = tokens
        self.length = len(tokens)
        if not cython.compiled:
            self.kinds = list(tokens)
        for i in range(len(tokens)):
            self.kinds[i] = tokens[i]
        self.steps: Any = None
        self.graph: Any = None
        self.told: Any = None
        self.number = 0
        self.cores = []
        self.varying, self.new_numbers = set(), set()

    def learn(self, tasks, calls):
        """Know the tasks that it is recorded with; numbers that have changed are given by each launch from now on."""
        self.varying |= self.new_numbers
        self.new_numbers = set()
        slots: dict = {}
        self.cores = []
        steps: list = []
        for index, (task, call) in enumerate(zip(tasks, calls, strict=True)):
            mine = []
            for access in cython.cast(TaskCore, task).accesses:
                core: Data = cython.cast(Access, access).core
                if core.id not in slots:
                    slots[core.id] = len(slots)
                    self.cores.append(core)
                mine.append(slots[core.id])
            given = [(index, i) in self.varying for i in range(len(cython.cast(KnownCall, call).plain))]
            steps.append(Step(task, call, mine, given))
        self.steps = steps

    def unlearn(self):
        """Be recorded anew when it comes again."""
        self.steps = self.graph = None
        self.cores = []

    def trouble(self, cores):
        """Return why a launch would not do with some data as its tasks do; None if it would."""
        for item in cores:
            core: Data = item
            version = core.version
            if version.outcome is not None and version.is_poisoned():
                return "data are poisoned"
            if core.released or core.tiles or core.linked is not None or version.frozen:
                return "data are partitioned, frozen, split or released"
        return None

    def suits(self, at, task, call, binding):
        """Return whether a task may be the one at a position, with data that are bound so far."""
        i: cython.Py_ssize_t
        step = cython.cast(Step, self.steps[at])
        if task.code is not step.code or task.lasti != step.lasti or task.where != step.where:
            return False
        if task.priority != step.priority or (task.symbol is not step.symbol and task.symbol != step.symbol):
            return False
        if call.what is not step.what or not are_alike(call.fixed, step.fixed):
            return False
        accesses = task.accesses
        if accesses is None or len(accesses) != len(step.uses) or len(call.plain) != len(step.plain):
            return False  # it has none where another thread has submitted it
        for i in range(len(accesses)):
            access = cython.cast(Access, accesses[i])
            use = cython.cast(Access, step.uses[i])
            if access.mode != use.mode or access.place != use.place or access.op is not use.op:
                return False
            if not self.binds(access.core, use, step.slots[i], binding):
                return False
        for i in range(len(call.plain)):
            value, known = call.plain[i], step.plain[i]
            if value is known:
                continue
            if type(value) is not type(known):
                return False
            if step.given[i] or is_same(value, known):
                continue
            if not is_number(value):
                return False
            self.new_numbers.add((at, i))
        return True

    def binds(self, core, use, slot, binding):
        """Return whether data may stand for those of a slot, and bind them."""
        if slot < len(binding):
            return binding[slot] is core
        for known in binding:
            if known is core:
                return False  # these are several data in the window
        recorded = use.core
        if core is not recorded:
            if core.token != recorded.token or core.readonly != recorded.readonly:
                return False
            if core.linked is not None or recorded.linked is not None:
                return False
            layout, other = core.layout, recorded.layout
            if layout is not other and (
                layout is None
                or other is None
                or layout.shape != other.shape
                or layout.dtype != other.dtype
                or layout.strides != other.strides
                or layout.library != other.library
                or layout.interface is not None
                or other.interface is not None
            ):
                return False
        binding.append(core)
        return True


@cython.final
@cython.cclass
class RepeatFinder:
    """Looks at the tasks of a thread, and has those held that follow a window.

    It is the engine's window: `release` is called by whatever begins, waits or asks.
    """

    def __init__(self, engine, keeper, call_of):
        self.engine, self.keeper, self.call_of = engine, keeper, call_of
        self.held = keeper.held
        self.starts, self.binding = {}, []
        if not cython.compiled:
            self.may_start = [False] * KNOWN
            self.kinds, self.exacts, self.relatives = [0] * RING, [0] * RING, [0] * RING
            self.last_exact, self.last_relative = [0] * KNOWN, [0] * KNOWN
            self.seen_id, self.seen_at = [0] * KNOWN, [0] * KNOWN
            self.periods, self.exact_runs, self.relative_runs = [[0] * CANDIDATES for _ in range(3)]

    # -- what the engine and the rooms ask of its window -------------------------------------------------------

    def release(self):
        """Submit what is held, unless the task that begins was looked at."""
        if self.passing:
            self.passing = False
            return
        self.keeper.release()

    def release_before(self, task):
        """Submit what is held before a task begins, and wait for what another thread submits of its data."""
        if self.passing and not self.keeper.submitter:
            self.passing = False
            return
        self.release()
        self.keeper.wait_for_data_of(task)

    def __getattr__(self, name):
        """All else that a window is asked, the keeper answers."""
        return getattr(self.keeper, name)

    # -- a task comes ------------------------------------------------------------------------------------------

    def look(self, task, what):
        """Return whether a task with a known body is to be held, by `hold`. Else it begins now."""
        thread: cython.ulong = PyThread_get_thread_ident()
        if thread != self.thread and not self.takes_over(thread):
            return False
        self.is_busy = True  # until `hold` is over
        found: cython.bint = self.look_at(task, what)
        self.is_busy = found
        return found

    def look_at(self, task, what):
        """Return what `look` does, for a task of the thread whose tasks are looked at."""
        i: cython.Py_ssize_t
        engine = self.engine
        if (
            engine.observer is not None
            or engine.watches
            or engine.gathering is not None
            or engine.scope.records
            or engine.blocking
            or engine.closed is not None
            or engine.cancelled is not None
            or engine.ending
        ):
            return False
        self.strangers = 0
        self.looked += 1
        accesses = task.accesses
        kind: cython.ulonglong
        if cython.compiled:
            kind = mixed(mixed(stf_address(task.code), stf_address(what)), task.lasti * 64 + task.where)
        else:
            kind = mixed(mixed(id(task.code), id(what)), task.lasti * 64 + task.where)
        for i in range(len(accesses)):
            kind = mixed(kind, cython.cast(Access, accesses[i]).mode)
        if kind < HASHES:
            kind += HASHES
        self.kind = kind
        if self.current is not None:
            if self.current.kinds[self.at] == kind or self.switch(kind):
                return True
            self.break_off("another task came")
        if self.may_start[kind & (KNOWN - 1)] and self.start(kind):
            return True
        self.see(kind, accesses)
        self.passing = not self.keeper.submitter  # else it comes after what another thread submits just now
        return False

    def takes_call(self, task, function, fn, values, shapes):
        """Return whether a call of a pure function is held, or submitted in its turn."""
        if not self.look(task, None):  # the line is its token: what is called is compared when a window is followed
            return False
        call: KnownCall = self.call_of(function, task, fn, values, shapes)
        if call is None:
            self.pass_by(task)
            return False
        self.hold(task, call)
        return True

    def takes_over(self, thread):
        """Return whether tasks of another thread are looked at from now on: they came one after the other."""
        self.strangers += 1
        if (self.thread and self.strangers < STRANGE) or thread in host_waits.RUNNING:
            return False
        if self.is_busy or self.current is not None or self.held:  # the other thread is about to hold, or to replay
            return False
        self.forget()
        self.thread = thread
        return True

    def start(self, kind):
        """Return whether a task is the first one of a window, and follow that."""
        known = self.starts.get(kind)
        if known is None or self.engine.last_open is not None or self.thread in host_waits.RUNNING:
            return False
        self.current, self.at, self.binding = known[0], 0, []
        return True

    def switch(self, kind):
        """Return whether what is held, and a task of this kind, suits another window; follow that then."""
        window: RepeatedWindow
        for other in self.starts.get(self.current.tokens[0], ()):
            window = other
            if window is self.current or window.length <= self.at or window.kinds[self.at] != kind:
                continue
            if self.follows(window, self.at):
                return True
        return False

    def follows(self, window, count):
        """Return whether the first tasks that are held suit a window, and follow it then."""
        i: cython.Py_ssize_t
        held: list = list(self.held)  # another thread may submit it meanwhile
        if len(held) != count:
            return False
        binding: list = []
        for i in range(count):
            one = held[i]
            if window.steps is None:
                if window.kinds[i] != self.current.kinds[i]:
                    return False
            elif not window.suits(i, one.task, one.submit, binding):
                return False
        self.current, self.binding = window, binding
        return True

    def hold(self, task, call):
        """Hold a task that `look` has said follows a window, or submit it if it does not suit that after all."""
        window = self.current
        try:
            if window is None or len(self.held) != self.at:  # another thread has submitted what was held
                self.break_off("another thread asked for what is held")
            elif window.steps is None or window.suits(self.at, task, call, self.binding):
                self.passing = False
                self.at += 1
                task.is_held = True
                self.held.append(hold_here(task, call))
                if len(self.held) == 1:
                    self.keeper.watch()
                if self.at == window.length:
                    self.whole(window)
                return 0
            else:
                self.break_off("other data or arguments")
            self.pass_by(task)
            call(task)
        finally:
            self.is_busy = False
        return 0

    def whole(self, window):
        """Have a window replayed, all of which is held."""
        binding = self.binding
        self.leave()
        self.push(window.number, window.number, window.number, 0)
        self.keeper.whole(window, binding)
        return 0

    def pass_by(self, task):
        """Let a task begin now that `look` wanted to hold."""
        if self.current is not None:
            self.break_off("a task whose body or arguments are not known")
        self.see(self.kind, task.accesses)
        self.passing = not self.keeper.submitter
        self.is_busy = False
        return 0

    def break_off(self, reason):
        """Submit what is held one by one, and say why."""
        self.leave_for(reason)
        self.keeper.release()
        return 0

    def leave_for(self, reason):
        """Follow no window, for a reason that is told; what is held counts as tasks that were looked at."""
        i: cython.Py_ssize_t
        window, at = self.current, self.at
        held: list = list(self.held)  # another thread may submit it meanwhile
        self.leave()
        if window is None:
            return 0
        self.keeper.broken(window, reason, at)
        if len(held) == at:
            for i in range(at):
                self.see(window.kinds[i], cython.cast(TaskCore, held[i].task).accesses or ())
        return 0

    def leave(self):
        """Follow no window."""
        self.current, self.at, self.binding = None, 0, []
        return 0

    def note_break(self):
        """Remember that something came which belongs to no window."""
        thread: cython.ulong = PyThread_get_thread_ident()
        if thread == self.thread and self.kinds[self.count & (RING - 1)] != BREAK:
            self.push(BREAK, BREAK, BREAK, 0)

    # -- finding -----------------------------------------------------------------------------------------------

    def expect(self, window: RepeatedWindow):
        """Have tasks held from now on that follow a window."""
        self.starts.setdefault(window.tokens[0], []).insert(0, window)
        self.may_start[window.tokens[0] & (KNOWN - 1)] = True

    def expect_no_more(self, window: RepeatedWindow):
        """Look for a window no more."""
        known = self.starts.get(window.tokens[0])
        if known is not None and window in known:
            known.remove(window)
            if not known:
                del self.starts[window.tokens[0]]

    def prefer(self, window: RepeatedWindow):
        """Follow a window first, of those that begin alike."""
        known: list = self.starts.get(window.tokens[0])
        if known is not None and len(known) > 1 and known[0] is not window:
            known.remove(window)
            known.insert(0, window)

    def see(self, kind, accesses):
        """Remember a task that is not held."""
        i: cython.Py_ssize_t
        exact: cython.ulonglong = kind
        relative: cython.ulonglong = kind
        far: cython.longlong = 0
        position: cython.longlong = self.count + 1
        for i in range(len(accesses)):
            access = cython.cast(Access, accesses[i])
            ident: cython.longlong = access.core.id
            at: cython.int = ident & (KNOWN - 1)
            exact = mixed(exact, ident)
            distance: cython.longlong = RING
            if self.seen_id[at] == ident and self.seen_at[at] > self.floor:
                distance = position - self.seen_at[at]
            elif access.mode == WRITE:
                distance = 0
            if distance > far:
                far = distance
            relative = mixed(relative, distance)
        for i in range(len(accesses)):
            ident = cython.cast(Access, accesses[i]).core.id
            at = ident & (KNOWN - 1)
            self.seen_id[at], self.seen_at[at] = ident, position
        return self.push(kind, exact, relative, far)

    def push(self, kind, exact, relative, far):
        """Remember a token, and look whether it is the one of some tokens ago."""
        self.count += 1
        position: cython.longlong = self.count
        here: cython.int = position & (RING - 1)
        self.kinds[here], self.exacts[here], self.relatives[here] = kind, exact, relative
        best: cython.int = self.period_at(position, exact, relative, far)
        at: cython.int = exact & (KNOWN - 1)
        last: cython.longlong = self.last_exact[at]
        if last > self.floor and position - last < RING and exact == self.exacts[last & (RING - 1)]:
            self.propose(position - last)
        self.last_exact[at] = position
        at = relative & (KNOWN - 1)
        last = self.last_relative[at]
        if last > self.floor and position - last < RING and relative == self.relatives[last & (RING - 1)]:
            self.propose(position - last)
        self.last_relative[at] = position
        if best:
            self.found(best)
        return 0

    def period_at(self, position, exact, relative, far):
        """Compare a token with that of a period ago, for each period; return the one that is whole now, or 0."""
        k: cython.int
        best: cython.int = 0
        nearly: cython.int = 0
        runs: cython.bint = False  # a period repeats with the same data
        for k in range(CANDIDATES):
            period: cython.int = self.periods[k]
            if period == 0:
                continue
            before: cython.int = (position - period) & (RING - 1)
            known: cython.bint = position - period > self.floor
            self.exact_runs[k] = self.exact_runs[k] + 1 if known and exact == self.exacts[before] else 0
            alike: cython.bint = known and relative == self.relatives[before] and far < 2 * period
            self.relative_runs[k] = self.relative_runs[k] + 1 if alike else 0
            if self.exact_runs[k] >= period and (best == 0 or period < best):
                best = period
            if self.relative_runs[k] >= 2 * period and (nearly == 0 or period < nearly):
                nearly = period
            if self.exact_runs[k] >= SHORTEST:
                runs = True
            if self.exact_runs[k] == 0 and self.relative_runs[k] == 0:
                self.periods[k] = 0
        return nearly if best == 0 and not runs else best

    def propose(self, distance):
        """Try a period: a token was seen so many tokens ago."""
        k: cython.int
        free: cython.int = -1
        period: cython.longlong = distance
        while period < SHORTEST:
            period += distance
        if period > LONGEST or self.count - period <= self.floor:
            return 0
        for k in range(CANDIDATES):
            if self.periods[k] == period:
                return 0
            if self.periods[k] == 0:
                free = k
        if free < 0:
            return 0
        here: cython.int = self.count & (RING - 1)
        before: cython.int = (self.count - period) & (RING - 1)
        self.periods[free] = period
        self.exact_runs[free] = self.exacts[here] == self.exacts[before]
        self.relative_runs[free] = self.relatives[here] == self.relatives[before]
        if self.count - period - 1 > self.floor:  # of two tokens that share a place of a table, one proposes nothing
            here, before = (here - 1) & (RING - 1), (before - 1) & (RING - 1)
            self.exact_runs[free] += self.exact_runs[free] and self.exacts[here] == self.exacts[before]
            self.relative_runs[free] += self.relative_runs[free] and self.relatives[here] == self.relatives[before]
        return 0

    def found(self, period):
        """Expect the windows of a period: all of it, or what lies between tokens that are no tasks."""
        tokens: list = [self.kinds[(self.count - period + 1 + i) & (RING - 1)] for i in range(period)]
        self.forget_candidates()
        apart = [i for i in range(period) if tokens[i] < HASHES]
        if not apart:
            self.keeper.found([tokens])
            return 0
        tokens = tokens[apart[0] + 1 :] + tokens[: apart[0] + 1]
        parts: list = [[]]
        for token in tokens:
            if token < HASHES:
                parts.append([])
            else:
                parts[len(parts) - 1].append(token)
        self.keeper.found([part for part in parts if len(part) >= SHORTEST])
        return 0

    def forget_candidates(self):
        """Try no period."""
        k: cython.int
        for k in range(CANDIDATES):
            self.periods[k] = 0
        return 0

    def forget(self):
        """Let nothing count that came before."""
        self.floor = self.count
        self.forget_candidates()
        return 0


@cython.freelist(64)
@cython.final
@cython.cclass
class Held:
    """A task that was submitted and has not begun, and what submits it then."""

    def __init__(self, task, submit, variables):
        self.task, self.submit, self.variables = task, submit, variables

    def run(self):
        """Submit the task, with the context variables of who called it."""
        run_with(self.variables, self.submit, self.task)


def hold_here(task, call):
    """Return a task that is held, with the context variables of this thread."""
    held: Held = Held.__new__(Held)
    held.task, held.submit, held.variables = task, call, variables_here()
    return held


def run_with(variables, fn, *args):
    """Call a function with the context variables of who submitted a task."""
    if variables is None and variables_here() is None:
        fn(*args)
    else:
        (variables or contextvars.Context()).run(fn, *args)


def join_launches(held, launch: TaskCore):
    """Let tasks that were held be done when the launch is of which they are a part; none can be called off any more."""
    for item in held:
        task: TaskCore = cython.cast(Held, item).task
        task.is_held = False
        task.id, task.event, task.outcome = launch.id, launch.event, launch.outcome
        task.fate, task.state = BEGUN, launch.state
        task.accesses, task.uses, task.context = (), None, None


def without_handle(access: Access):
    """Return an access that keeps no handle of its data alive."""
    use: Access = Access.__new__(Access)
    use.data, use.core, use.mode, use.place, use.op = None, access.core, access.mode, access.place, access.op
    return use


def mixed(token, value):
    """Return the hash of a token and one more value."""
    token = (token ^ value) * cython.cast(cython.ulonglong, 0x1E3779B97F4A7C15)  # Knuth, TAOCP 3, 6.4
    if not cython.compiled:
        token &= MASK
    return token ^ (token >> 29)


def are_alike(one, other):
    """Return whether what is fixed in two calls is the same."""
    i: cython.Py_ssize_t
    if one is other:
        return True
    if len(one) != len(other):
        return False
    for i in range(len(one)):
        mine, its = one[i], other[i]
        if mine is not its and not is_same(mine, its):
            return False
    return True


def is_number(value):
    """Return whether a value is a number that each launch may give: no truth value, and no array."""
    if type(value) is float or type(value) is int:
        return True
    known = SCALARS.get(type(value))
    if known is None:
        known = SCALARS[type(value)] = isinstance(value, (np.integer, np.floating))
    return known
