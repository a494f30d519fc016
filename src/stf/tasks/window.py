"""Windows: tasks that are held until enough of them are known to plan where and in which order they run.

`graphs.repeated_windows` holds tasks by the same class, until a window of them is whole that is replayed.

With `stf.placement.planned`, a task function, a kernel and a `parallel_for` without a place do not begin in their
calls. Their arguments, accesses and variables are taken there; the rest of the call, which `hold` is given, waits in
the window. It is released, which means planned and submitted in the order of the plan:

==================================  ==============================================================================
released by                         where
==================================  ==============================================================================
it is full                          `hold`; half of it, and the rest is planned again with what comes
anything else that begins           `Engine.begin`: a with-block, a wait, a copy, a task that names its place
whoever asks how far things are     `EngineState.submit_held`: handles, events, `freeze`, `release`, statistics, `on(x)`
a recording that opens or closes    `graphs.recorder`, `graphs.graph_scope`
nobody, for `IDLE_S`                `Clerk`, a thread; not on simulated devices, whose plans are the same every time
==================================  ==============================================================================

So what a program sees is what it would see without a window, but that bodies begin later, and in another order.

**Two windows.** Tasks that run may be released by any thread. Tasks of a recording belong to the thread that records,
and all of them are planned at once when the recording closes: they are never released elsewhere, and are forgotten
with a recording that is given up.

**Threads.** One thread releases at a time, and another one that begins a task meanwhile waits, since it may come after
what is being submitted. It waits only as long as that goes on: the one that submits may itself wait for memory, or for
data that the other one holds (`PATIENCE_S`). But a task whose data are used by what is not submitted yet waits in any
case: it would overtake that, and both would have wrong values. Where that has no end it is an error (`LONG_S`). What
bodies submit is not held. It comes after what is held.

**Errors.** A window is submitted or dropped, never half. Where a task cannot begin, what it was to write is poisoned,
the others are submitted, and the first error is raised then. The `Clerk` keeps it for the next release by a user's
thread. After an interrupt, what is left of the window is dropped and poisoned. So is all of it where a context ends
after an exception.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from stf._engine import host_waits, outcomes
from stf._engine.access import READ
from stf._engine.failures import Cancellation, Failure
from stf._engine.parts import whole_of
from stf._engine.task import NEW  # type: ignore[attr-defined]  # of the .pxd
from stf._engine.thread_turns import TurnError
from stf._support.context_variables import variables_here
from stf._support.sync import make_lock
from stf.placement.plans import plan
from stf.tasks.capsules import is_asked
from stf.tasks.placing import place_as_planned
from stf.tasks.repeats import Held

IDLE_S = 200e-6
PATIENCE_S = 0.05
LONG_S = 30.0
STEP_S = 0.001
TOLD = 4  # errors of one release


class Window:
    """Holds tasks of a context until they are planned.

    Parameters
    ----------
    engine : Engine
        Whose tasks.
    placement : Placement
        What plans them.
    size : int
        How many tasks it holds at most, outside of recordings.
    """

    until = "until it was planned"

    def __init__(self, engine: Any, placement: Any, size: int) -> None:
        self.engine, self.placement, self.size = engine, placement, size
        self.held: list[Held] = []
        self.recorded: list[Held] = []  # of a recording
        self.lock = make_lock(threading.RLock)
        self.submitter = 0  # the thread that submits; 0 for none
        self.submitted = 0  # how many tasks it has submitted: it goes on
        self.left: dict[int, Held] = {}  # what it has not submitted yet
        self.errors: list[BaseException] = []  # that nobody was told
        self.planned_s: dict[Any, float] | None = None  # the times that a recording was planned with
        self.clerk: Clerk | None = None
        self.is_simulated = engine.root.values is not None

    def takes(self) -> bool:
        """Return whether a task of this thread can be held."""
        engine, me = self.engine, threading.get_ident()
        if engine.blocking or engine.closed is not None or engine.ending or engine.cancelled is not None:
            return False
        if engine.watches and is_asked(engine.context()):
            return False
        if self.submitter == me or me in host_waits.RUNNING:
            return False  # a body goes on with what it has begun
        if engine.opened():  # it may need what is open; then the error names its own line
            return False
        return self.records_here() or not self.is_recorded()

    def is_waiting(self) -> bool:
        """Return whether this thread would submit something if it asked."""
        return bool(self.recorded if self.is_recorded() else self.held) and self.submitter != threading.get_ident()

    def is_recorded(self) -> bool:
        """Return whether a thread records, and nobody else's tasks are taken."""
        scope, gathering = self.engine.scope, self.engine.gathering
        return bool(scope.thread or (gathering is not None and gathering.thread))

    def records_here(self) -> bool:
        """Return whether this thread records."""
        me, gathering = threading.get_ident(), self.engine.gathering
        return self.engine.scope.thread == me or (gathering is not None and gathering.thread == me)

    def hold(self, task: Any, submit: Callable[[Any], object]) -> None:
        """Hold a task; ``submit(task)`` is the rest of its call, once it has a place."""
        self.placement.number_task(task)
        held = Held(task, submit, variables_here())
        if self.records_here():
            self.recorded.append(held)
            return
        self.held.append(held)
        if len(self.held) >= self.size:
            self.release((self.size + 1) // 2)
            self.engine.hold_back_if_due()
        elif len(self.held) == 1 and not self.is_simulated:
            if self.clerk is None:
                self.clerk = Clerk(self)
            self.clerk.watch()

    # -- releasing ---------------------------------------------------------------------------------------------

    def release(self, count: int | None = None) -> None:
        """Submit what is held, in the order of its plan; raise what went wrong, also earlier.

        With a `count` these are the first tasks of the plan; the others are planned again, with those that come.
        """
        if self.submitter == threading.get_ident():
            return  # these are its own tasks
        if self.is_recorded():
            if self.recorded and self.records_here():
                self.submit(self.recorded, len(self.recorded))
        elif (self.held or self.submitter) and self.get_turn():
            try:
                self.submit(self.held, len(self.held) if count is None else count)
            finally:
                self.lock.release()
        if self.errors:
            self.tell()

    def release_before(self, task: Any) -> None:
        """Submit what is held before a task begins, and wait for what another thread submits of its data."""
        self.release()
        self.wait_for_data_of(task)

    def is_submitted_by(self, thread: int) -> bool:
        """Return whether a thread submits what was held."""
        return self.submitter == thread

    def wait_for_data_of(self, task: Any) -> None:
        """Wait until nothing is left, of what another thread submits now, that a task would overtake.

        Raises
        ------
        TurnError
            That thread does not go on, as it may wait for this one.
        """
        if self.submitter in (0, threading.get_ident()):
            return
        modes = modes_of(task)
        end = time.monotonic() + LONG_S
        while self.submitter and self.is_overtaken(modes):
            if time.monotonic() > end:
                raise TurnError(
                    f"task {task.label()} ({task.call_site}) comes after tasks on the same data that were held "
                    f"{self.until}, and the thread that submits these waits, perhaps for this one; call "
                    "ctx.synchronize() before the task whose body submits it"
                )
            self.release()  # which waits for its turn

    def is_overtaken(self, modes: dict[int, int]) -> bool:
        """Return whether a task that uses data so would overtake one that is not submitted yet."""
        return any(conflict(modes, modes_of(one.task)) for one in [*self.left.values(), *self.held])

    def get_turn(self) -> bool:
        """Take the lock; False where who has it does not go on, as it may wait for this thread."""
        if self.lock.acquire(False):
            return True
        patience, seen = PATIENCE_S, -1
        while not self.lock.acquire(timeout=STEP_S):
            patience = patience - STEP_S if seen == self.submitted else PATIENCE_S
            seen = self.submitted
            if patience <= 0:
                return False
        return True

    def submit(self, held: list[Held], count: int) -> None:
        """Take the tasks out of a list that are to be submitted, and submit them in their order."""
        if not held:
            return
        before, self.submitter = self.submitter, threading.get_ident()  # before `held` is empty for other threads
        tasks, outer = taken_out(held), self.left
        left = self.left = dict(enumerate(tasks))
        try:
            order, places = self.order([one.task for one in tasks], count)
            if held is self.recorded and self.placement is not None:
                self.planned_s = self.placement.planned_s
            if count < len(tasks):
                chosen = set(order)
                held[:0] = [one for index, one in enumerate(tasks) if index not in chosen]
                left = self.left = {index: tasks[index] for index in order}
            for index in order:
                one = tasks[index]
                if places is None:
                    one.task.is_held = False
                else:
                    place_as_planned(one.task, places[index])
                try:
                    one.run()
                except Exception as error:
                    self.note(one, error)
                del left[index]
                self.submitted += 1
        except BaseException as error:
            for one in left.values():
                self.poison(one, error)
            raise
        finally:
            self.submitter, self.left = before, outer

    def take_planned(self) -> dict[Any, float] | None:
        """Return the times that a recording was planned with, once."""
        found, self.planned_s = self.planned_s, None
        return found

    def order(self, tasks: list[Any], count: int) -> tuple[Iterable[int], list[int] | None]:
        """Return which of the tasks are submitted, in their order, and the place of each."""
        return plan(self.placement, tasks, count)

    def note(self, one: Held, error: Exception) -> None:
        """Remember what kept a task from being submitted; what it was to write is poisoned."""
        self.poison(one, error)
        error.add_note(f"raised by task {one.task.label()} ({one.task.call_site}), which was held {self.until}")
        self.errors.append(error)

    def poison(self, one: Held, error: BaseException) -> None:
        """Poison what a task was to write that will not be submitted."""
        one.task.is_held = False
        if one.task.state == NEW:
            outcomes.spoil(self.engine, one.task, Failure.of(one.task, error, True))

    def tell(self) -> None:
        """Raise the first error that was not told; not in the clerk, nor in a body, which has not made it."""
        if threading.current_thread() is not self.clerk and threading.get_ident() not in host_waits.RUNNING:
            errors, self.errors = self.errors, []
            if len(errors) > TOLD:
                errors[0].add_note(f"{len(errors) - TOLD} more tasks could not begin either")
            for other in errors[1:TOLD]:
                errors[0].add_note(
                    "\n".join([f"and {type(other).__name__}: {other}", *getattr(other, "__notes__", ())])
                )
            try:
                if errors:
                    raise errors[0]
            finally:
                errors = other = None  # type: ignore[assignment]  # else its traceback keeps it, and what tasks hold

    # -- dropping ----------------------------------------------------------------------------------------------

    def forget_recorded(self) -> None:
        """Forget the tasks of a recording that is given up: they never were."""
        if self.records_here():
            self.recorded.clear()

    def drop(self) -> None:
        """Cancel what is held: its context ends after an exception. What that was to write is poisoned."""
        with self.lock:
            left = taken_out(self.held)
        self.recorded.clear()
        for one in left:
            failure = Cancellation.of(one.task)
            self.engine.cancelled.append(failure)
            outcomes.spoil(self.engine, one.task, failure)


def modes_of(task: Any) -> dict[int, int]:
    """Return how a task uses data, by the identity of what these are tiles or parts of."""
    found: dict[int, int] = {}
    for access in task.accesses or ():  # a task that is done has none left
        core = whole_of(access.core)
        while core.parent is not None:
            core = core.parent
        found[id(core)] = found.get(id(core), 0) | access.mode
    return found


def conflict(modes: dict[int, int], others: dict[int, int]) -> bool:
    """Return whether two tasks use the same data, and one of them writes."""
    return any(key in others and (mode | others[key]) & ~READ for key, mode in modes.items())


def taken_out(held: list[Held]) -> list[Held]:
    """Take all out of a list that other threads may add to meanwhile."""
    count = len(held)
    taken = held[:count]
    del held[:count]
    return taken


class Clerk(threading.Thread):
    """Releases a window whose user does something else."""

    def __init__(self, window: Window) -> None:
        super().__init__(name="stf-window", daemon=True)
        self.window = weakref.ref(window)
        self.bell = threading.Event()
        self.start()

    def watch(self) -> None:
        """Look after a window that holds something now."""
        if not self.bell.is_set():
            self.bell.set()

    def run(self) -> None:
        """Wait for something that is held, and release it if nothing more comes."""
        while self.bell.wait() and self.window() is not None:
            self.bell.clear()
            while self.waits_for_more():
                time.sleep(IDLE_S)

    def waits_for_more(self) -> bool:
        """Return whether the window has something more than a moment ago; release what it has if not."""
        window = self.window()
        if window is None or not window.held:
            return False
        last = window.held[-1]
        time.sleep(IDLE_S)
        held = window.held
        if held and held[-1] is last and not window.submitter and window.engine.closed is None:
            try:
                window.release()
            except BaseException as error:  # a release keeps the errors of tasks; this one interrupted it
                window.errors.append(error)
        return bool(window.held)
