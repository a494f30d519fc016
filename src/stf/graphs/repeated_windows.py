"""Automatic replay: windows of tasks that a program submits again and again are recorded, and launched as one task.

``stf.context(replay="auto")``. `tasks.repeats` finds the windows; here they are held, recorded and launched::

    found ──its tasks are held, and all are there──▶ recorded, with the data and numbers of that turn, and launched
      ▲                                                  │
      │ its data are moved, memory runs out, or          ▼
      └────it no longer suits what comes───────────  launched, with other data (`Rebinding`) and numbers in each turn

**What a program sees** is what it would see without. The tasks of a window are held until it is whole; whatever asks
for what they do, begins something else or waits has them submitted one by one, in their order. So does `Clerk`, where
nothing comes for `IDLE_S`. A window that cannot be recorded or launched is submitted so, too. What its launch cannot do
as the tasks would is not launched: data that are known to be poisoned, other context variables in one of its tasks.

**Numbers** are recorded as they are. One that has another value in a later turn has the window recorded once more, with
a parameter in its place.

**Errors.** A body is recorded with the line of its call, and names it when it fails. All that its window was to write
is poisoned then, as for each launch of a graph, and the handles of its tasks tell of the failure. That is more than one
by one, and no wrong value; so a window in which a task failed is not replayed again.

**Handles** of tasks in a launch are done when that is. None of them can be cancelled.

**Threads.** One thread's tasks are looked at, those that came one after the other. A release by another thread, which
begins a task or asks, comes before what that does.
"""

from __future__ import annotations

import collections
import contextlib
import threading
import time
from typing import Any

from stf._engine import recording_caches
from stf._engine.thread_turns import TurnError
from stf._port.late_values import UNASKED
from stf._recording import launches
from stf._recording.rebinding import Rebinding, all_parts
from stf.errors import ContextClosedError, OutOfMemoryError
from stf.graphs.call_signature import key_of
from stf.graphs.closure_variables import Variable
from stf.graphs.names_read import Reached
from stf.graphs.task_graph import TaskGraph
from stf.tasks.pure_calls import PureCall, pure_call
from stf.tasks.repeats import Held, RepeatedWindow, RepeatFinder, join_launches, run_with
from stf.tasks.task import ContextCore
from stf.tasks.window import Clerk, Window, taken_out
from stf.values.params import ValueNeededError

__all__ = ["RepeatedWindows"]

RECORDINGS = 16  # that are kept; the next one takes the place of the one that was used the longest ago
MOST_KNOWN = 64  # windows
PATIENCE_S = 0.1  # how long a recording waits for tasks and recordings of other threads
REST_S = 1.0  # how long nothing is recorded after that was in vain, or memory was short
MOST_ANEW = 8  # recordings of one window, after which it is not replayed
MOST_BROKEN = 4  # times in a row that a recorded window was broken by other data or arguments: it is learned anew
USELESS = 16  # times in a row that a window was broken before it was ever whole again: nobody looks for it any more
FIRST = 16  # a number of windows, among their tokens; see `tasks.repeats`
MOST_TURNS = 3  # how often a window is made to begin elsewhere
CUT = "a wait, a with-block or another call of the context came"
NEW = 0  # the state of a task


class Told:
    """What is told of a window, and how it goes."""

    def __init__(self) -> None:
        self.site = ""  # where it begins
        self.label = ""
        self.met = 0  # how often it was whole
        self.launched = 0
        self.recordings = 0
        self.broken: collections.Counter[str] = collections.Counter()  # by reason
        self.in_a_row = 0  # since it was whole
        self.outcome: Any = None  # of the last launch, where bodies run later
        self.cut_at = 0  # how many tasks were held when a wait came last
        self.turns = 0  # how often it was made to begin elsewhere
        self.reason = "seen twice; the next one is recorded"
        self.is_refused = False
        self.takes_others = True  # its bodies can be done with other data
        self.params: list[tuple[str, int, int]] = []  # name, step, position
        self.watched: list[tuple[Variable, Any]] = []  # what its bodies read, and what that was


class RepeatedWindows(Window):
    """Holds tasks that follow a repeated window, and replays it.

    Parameters
    ----------
    engine : Engine
        Whose tasks.
    """

    until = "until its window was whole"

    def __init__(self, engine: Any) -> None:
        super().__init__(engine, None, 0)
        self.windows: list[RepeatedWindow] = []  # the one that was used last is the last
        self.finder = RepeatFinder(engine, self, pure_call)
        self.replayed = 0  # tasks
        self.rests_until = 0.0
        self.recorded_now: RepeatedWindow | None = None
        self.made = 0  # windows so far

    # -- what the finder asks ----------------------------------------------------------------------------------

    def watch(self) -> None:
        """Look after the first task that is held, of which no other thread knows."""
        if self.clerk is None:
            self.clerk = Clerk(self)
        self.clerk.watch()

    def found(self, parts: list[list[int]]) -> None:
        """Expect windows with these tokens, unless they are known."""
        for tokens in parts:
            if any(known.tokens == tokens for known in self.windows):
                continue
            window = RepeatedWindow(tokens)
            window.told = Told()
            self.made += 1
            window.number = FIRST + self.made
            self.windows.append(window)
            self.finder.expect(window)
        for window in self.windows[: max(len(self.windows) - MOST_KNOWN, 0)]:
            self._forget(window)

    def broken(self, window: RepeatedWindow, reason: str, at: int) -> None:
        """Note why the tasks that came do not make up a window, of which so many were held."""
        told = window.told
        told.in_a_row += 1
        if reason:
            told.broken[reason] += 1
        if reason == CUT and at and told.cut_at == at and told.turns < MOST_TURNS:
            self._turn(window, at)
            return
        told.cut_at = at if reason == CUT else 0
        if told.in_a_row % MOST_BROKEN == 0 and window.steps is not None:
            self._close(window, "recorded anew, since it was broken several times in a row")
        if told.in_a_row >= USELESS:
            told.is_refused, told.reason = True, "given up, since it was not whole again"
            self.finder.expect_no_more(window)

    def _turn(self, window: RepeatedWindow, at: int) -> None:
        """Let a window begin where a wait has cut it twice: what comes after the wait is a whole one then."""
        tokens = window.tokens[at:] + window.tokens[:at]
        self._forget(window)
        self.found([tokens])
        told = self.windows[-1].told
        told.turns, told.met, told.launched = window.told.turns + 1, window.told.met, window.told.launched
        told.broken = window.told.broken

    def whole(self, window: RepeatedWindow, binding: list[Any]) -> None:
        """Replay a window whose tasks are all held, or submit them one by one."""
        if not self.get_turn():
            self.release()
            return
        try:
            before, self.submitter = self.submitter, threading.get_ident()
            try:
                if len(self.held) != window.length:  # another thread has asked for them meanwhile
                    self.submit(self.held, len(self.held))
                else:
                    self._take(window, binding)
            finally:
                self.submitter = before
        finally:
            self.lock.release()
        if self.errors:
            self.tell()

    # -- releasing ---------------------------------------------------------------------------------------------

    def release(self, count: int | None = None) -> None:
        """Submit what is held one by one, in its order; raise what went wrong, also earlier."""
        me = threading.get_ident()
        if self.submitter == me:
            return
        if me == self.finder.thread:
            if self.held:
                self.finder.leave_for(CUT)
            else:
                self.finder.note_break()
        super().release(None)

    def order(self, tasks: list[Any], count: int) -> tuple[Any, None]:
        """Return all, as they came: they have their places."""
        return range(len(tasks)), None

    def is_recorded(self) -> bool:
        """Return False: what is recorded is not held, and what is held was submitted before."""
        return False

    # -- replaying ---------------------------------------------------------------------------------------------

    def _take(self, window: RepeatedWindow, binding: list[Any]) -> None:
        """Launch all that is held, or submit it one by one."""
        told = window.told
        told.met += 1
        told.in_a_row = 0
        tasks = taken_out(self.held)
        try:
            if not told.is_refused and self._suits(window, tasks) and self._replay(window, tasks, binding):
                self.replayed += len(tasks)
                return
        except BaseException as error:
            for one in tasks:
                self.poison(one, error)
            raise
        self.held[:0] = tasks
        self.submit(self.held, len(tasks))

    def _suits(self, window: RepeatedWindow, tasks: list[Held]) -> bool:
        """Return whether a launch would do as the tasks do, whatever its window is."""
        if all(one.variables is None for one in tasks):
            return True
        first = tasks[0].variables
        if any(one.variables is not first and not same_variables(one.variables, first) for one in tasks):
            return self._not_now(window, "its tasks have several context variables")
        return True

    def _not_now(self, window: RepeatedWindow, reason: str) -> bool:
        """Note why a whole window is submitted one by one; False."""
        window.told.broken[reason] += 1
        return False

    def _replay(self, window: RepeatedWindow, tasks: list[Held], binding: list[Any]) -> bool:
        """Launch a window, recorded just now if it must be; return False where nothing was submitted."""
        told = window.told
        if told.outcome is not None and told.outcome.failed() is not None:
            return self._refuse(window, "a task failed in it, which one by one poisons less")
        if told.watched and window.steps is not None and any(key_of(each.content) != key for each, key in told.watched):
            self._close(window, "recorded anew, since a variable that a body reads has changed")
            binding = []
        graph = window.graph
        trouble = window.trouble(binding or {access.core for one in tasks for access in one.task.accesses})
        if trouble is not None:
            return self._not_now(window, trouble)
        if graph is None or graph._recording is None or window.new_numbers:
            if not self._record(window, tasks):
                return False
            graph, binding = window.graph, window.cores
        rebinding = None
        if binding != window.cores:
            if not told.takes_others:
                return self._not_now(window, "other data, which its bodies were not recorded for")
            pairs = zip(window.cores, binding, strict=True)
            rebinding = Rebinding({old.id: new for old, new in pairs if old is not new}, {})
        values = None
        if told.params:
            values = {name: tasks[index].submit.plain[i] for name, index, i in told.params}
        return self._launch(window, graph, tasks, values, rebinding)

    def _launch(self, window: RepeatedWindow, graph: TaskGraph, tasks: list[Held], values: Any, rebinding: Any) -> bool:
        """Launch what is recorded in place of tasks; return False if nothing has begun."""
        engine, recording = self.engine, graph._recording
        task = engine.context().make_launch_at(graph.name)
        try:
            for param in graph._in_kernels:
                param.number_in(values)
            run_with(tasks[0].variables, launches.submit, engine, task, recording, values, rebinding)
        except ContextClosedError:
            raise
        except Exception as error:
            if task.state == NEW and (task.outcome is None or task.outcome.pending):
                self._not_now(window, f"{type(error).__name__}: {error}")
                return False
            error.add_note(f"raised in tasks that were launched as one, the first of them at {window.told.site}")
            self.errors.append(error)
        finally:
            for param in graph._in_kernels:
                param.asked = UNASKED
            if rebinding is not None:
                rebinding.release(engine)
        graph.launches += 1
        window.told.launched += 1
        window.told.outcome = task.outcome
        join_launches(tasks, task)
        self._use(window)
        return True

    def _record(self, window: RepeatedWindow, tasks: list[Held]) -> bool:
        """Record the tasks of a window; return False where that cannot be."""
        told = window.told
        if time.monotonic() < self.rests_until:
            return self._not_now(window, "nothing is recorded for a second after there was no room or turn")
        if told.recordings >= MOST_ANEW:
            return self._refuse(window, f"it was recorded {told.recordings} times, and then did not suit any more")
        self._close(window, told.reason)
        told.site, told.label = tasks[0].task.call_site, tasks[0].task.label()
        window.learn([one.task for one in tasks], [one.submit for one in tasks])
        graph = TaskGraph(self.engine.context(), f"window at {told.site}")
        graph._patience = PATIENCE_S
        told.recordings += 1
        self.recorded_now = window
        try:
            self._look_at_bodies(window, tasks)
            told.params = [(f"{index} {i}", index, i) for index, i in sorted(window.varying)]
            params = {(index, i): graph.param(name, tasks[index].submit.plain[i]) for name, index, i in told.params}
            with graph:
                for index, one in enumerate(tasks):
                    call = one.submit
                    plain = tuple([params.get((index, i), value) for i, value in enumerate(call.plain)])
                    (call.with_plain(plain) if params else call)(one.task.again())
        except (TurnError, OutOfMemoryError) as error:
            told.recordings -= 1
            self.rests_until = time.monotonic() + REST_S
            window.unlearn()
            return self._not_now(window, f"not recorded yet: {error}")
        except ContextClosedError:
            raise
        except ValueNeededError:
            return self._refuse(window, "a body needs the value of a number that is another one in each turn")
        except Exception as error:
            return self._refuse(window, f"{type(error).__name__}: {error}")
        finally:
            self.recorded_now = None
        window.graph = graph
        recording = graph._recording
        told.takes_others = not any(
            hasattr(body, "refuses") and body.refuses({core.id: core for core in window.cores})
            for part in all_parts(recording)
            for body in part.program.bodies()
        )
        told.reason = f"recorded: {graph.nodes} nodes"
        recording_caches.add(self.engine, self, recording)
        self._use(window)
        used = [known for known in self.windows if known.graph is not None]
        for known in used[: max(len(used) - RECORDINGS, 0)]:
            self._close(known, "given up: 16 others were used later; recorded anew when it comes again")
        return True

    def _look_at_bodies(self, window: RepeatedWindow, tasks: list[Held]) -> None:
        """Know what the functions of pure tasks read by names: containers and objects, which may change."""
        known: Any = [one.submit for one in tasks if type(one.submit) is PureCall]
        functions = {id(call.fn): call.fn for call in known}
        reached = Reached([])
        reached.learn([], list(functions.values()))
        world = reached.world or reached.world_of_bodies
        if world is not None:
            raise TypeError(f"a pure task reads {world}, which is another one in each turn; pass it as an argument")
        window.told.watched = [(each, key_of(each.content)) for each in reached.variables.values()]

    # -- what is kept ------------------------------------------------------------------------------------------

    def _use(self, window: RepeatedWindow) -> None:
        """Let a window be the one that was used last."""
        if self.windows and self.windows[-1] is not window and window in self.windows:
            self.windows.remove(window)
            self.windows.append(window)
        self.finder.prefer(window)

    def _refuse(self, window: RepeatedWindow, reason: str) -> bool:
        """Replay a window no more; False."""
        self._close(window, f"not replayed: {reason}")
        window.told.is_refused = True
        self.finder.expect_no_more(window)
        return False

    def _close(self, window: RepeatedWindow, reason: str) -> None:
        """Give up what is recorded of a window."""
        graph = window.graph
        window.unlearn()
        window.told.reason = reason
        if graph is not None:
            graph.close()

    def _forget(self, window: RepeatedWindow) -> None:
        """Know a window no more."""
        self.windows.remove(window)
        self.finder.expect_no_more(window)
        self._close(window, "forgotten")

    def make_room(self, engine: Any) -> bool:
        """Give up the recording that was used the longest ago, for its memory; False if there is none."""
        for window in self.windows:
            if window.graph is not None and window is not self.recorded_now:
                self.rests_until = time.monotonic() + REST_S
                self._close(window, "given up, since memory ran out")
                return True
        return False

    def end(self, engine: Any) -> None:
        """Let go of what was recorded: the context is over."""
        for window in self.windows:
            self._close(window, window.told.reason)

    def give_up(self, engine: Any, data: Any, rests: bool = True) -> None:
        """Give up the recordings that use a data, which is to be moved."""
        for window in list(self.windows):
            recording = None if window.graph is None else window.graph._recording
            if recording is not None and any(item is data for item in recording.touched):
                if rests:
                    self.rests_until = time.monotonic() + REST_S
                self._close(window, "given up, since data of it were moved or released")

    # -- telling -----------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Say which windows there are, how often each was launched, and why it was not."""
        looked = self.finder.looked  # type: ignore[attr-defined]  # of the .pxd
        lines = [f"replay='auto': {self.replayed} of {looked} tasks replayed, {len(self.windows)} windows"]
        for window in self.windows:
            told = window.told
            where = f" from {told.site}, task {told.label}" if told.site else ""
            lines.append(f"  {window.length} tasks{where}: whole {told.met} times, {told.reason}")
            lines[-1] += f", launched {told.launched} times"
            if told.params:
                lines.append(f"    {len(told.params)} numbers are given by each launch")
            for reason, count in told.broken.most_common():
                lines.append(f"    submitted one by one {count} times: {reason}")
        return "\n".join(lines)


def start(context: Any) -> None:
    """Have repeated windows of a context replayed, where its devices let them."""
    engine = context.engine
    is_remote = any(place.is_remote for place in engine.places)
    if context._caller is None and engine.gathering is None and engine.root.values is None and not is_remote:
        context.look_for_repeats(RepeatedWindows(engine).finder)


def explain(context: ContextCore) -> str:
    """Say which windows of tasks were found (``replay="auto"``), how often each was launched, and why it was not.

    Returns
    -------
    str
        A line for each window: how many tasks, where they begin, how often they were all there, what is recorded, and
        how often that was launched. Below it: how often its tasks were submitted one by one, and why.

    Examples
    --------
    >>> @stf.task(pure=True)
    ... def step(rate, x: stf.ReadWrite):
    ...     x += rate
    >>> with stf.context(devices="cpu", replay="auto") as ctx:
    ...     x = ctx.logical_data_zeros(2)
    ...     for k in range(50):
    ...         step(1.0, x)
    ...     print(x.numpy())
    ...     print("1 windows" in ctx.explain())
    [50. 50.]
    True
    """
    finder = context.finder
    if finder is None:
        return "no windows are replayed in this context; open it with stf.context(replay='auto')"
    return str(finder.keeper.explain())


def same_variables(one: Any, other: Any) -> bool:
    """Return whether two tasks were submitted with the same context variables."""
    if one is None or other is None:
        return one is other
    with contextlib.suppress(Exception):  # of a comparison that is the user's
        return dict(one) == dict(other)
    return False
