"""Gathering scopes: tasks that are gathered and launched as one graph, once, by ``graph_ctx`` or ``graph_scope``."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any

from stf._engine import claims, recording_caches, thread_turns
from stf._engine.failures import Cancellation, Failure
from stf._engine.scope import Gathering
from stf._engine.thread_turns import STEP_S
from stf._recording import launches, recordings
from stf._support.sync import make_lock, must_have_room
from stf.errors import TaskStateError
from stf.graphs.blocks import PartBlock
from stf.tasks.checks import must_be_open
from stf.tasks.task import ContextCore

CLOSES = 120  # calls that it may take, of which some begin a task
MOST = 8192  # operations that a context launches as one graph; each takes about 1 KB until then
NO_BOUND = (1 << 31) - 1  # of what is one graph by the user's word
TRIES = 8  # to let dropped tiles go, while other threads gather
log = logging.getLogger("stf")


class GatheringScope(Gathering):
    """Records what it can, and launches it at its end, or when something else needs the results.

    Parameters
    ----------
    context : Context
        Whose tasks.
    implicit : bool
        It lasts as long as the context, for tasks of all threads; what waits launches it. Else it is of this thread.
    description : str
        What messages call it.
    around : GatheringScope, optional
        The one whose place it takes, and whose part its launch is if that is not implicit.
    """

    def __init__(
        self, context: ContextCore, implicit: bool, description: str, around: GatheringScope | None = None
    ) -> None:
        super().__init__(0 if implicit else threading.get_ident(), implicit, MOST if implicit else NO_BOUND)
        self._context = weakref.ref(context)  # which keeps the engine, and so this
        self.engine = context.engine
        self.description = description
        self.lock = make_lock(threading.RLock)
        self.is_over = False  # nothing more is gathered
        self.closed: Any = None  # what was recorded, until it is submitted
        self.around = around
        self.outer = None if around is None or around.implicit else around  # whose part it is

    def has(self, scope: Any) -> bool:
        """Return whether a scope is what it gathers, or what one around it does."""
        gathering: GatheringScope | None = self
        while gathering is not None and gathering.scope is not scope:
            gathering = gathering.around
        return gathering is not None

    def before(self, task: Any) -> None:
        """Record what comes, or launch what was recorded, as a task that is about to begin needs it.

        For a task that it `takes` there is nothing to do.
        """
        engine = self.engine
        if self.is_abandoned:
            self.give_way()
            if self.around is not None:
                self.around.before(task)
            return
        if self.thread not in (0, threading.get_ident()):
            return  # no part of this one
        scope = engine.scope
        if scope.thread == threading.get_ident() and not self.has(scope):
            return  # of a recording of this thread's, for which others may be waiting
        if task.kind == "wait" and not self.implicit:
            raise TaskStateError(f"wait inside {self.description}: {claims.NOTHING_RAN}")
        self._let_tiles_go()
        self._let_launch()
        if self.is_full() and self.has(engine.scope) and not engine.opened():
            self.flush()
            self._let_launch()
        own = self.implicit and (task.kind == "graph" or engine.places[task.where].is_callers_stream)
        if own or task.blocks_caller or task.kind == "wait":
            if self.has(engine.scope):
                self.flush(task)
                self._let_launch()  # another thread may have been first
        elif not self.is_over and not self.launcher and not any(d.parent is not None for d in engine.deferred):
            self._record()

    def _let_tiles_go(self) -> None:
        """Launch what was recorded before tiles that were dropped, so that they go."""
        engine = self.engine
        for _ in range(TRIES):
            if not self._drops_tiles() and not engine.dropped_tiles:
                break
            if self.has(engine.scope):
                self.flush()
            self._let_launch()
            recordings.release_dropped(engine)  # they go, and what they were cut from can be used again
            recording_caches.give_up_left(engine)
            if not engine.dropped:
                break
            self.dropped, self.last_dropped = 0, None  # another thread has begun to gather meanwhile

    def _drops_tiles(self) -> bool:
        """Return whether there are tiles among what the user dropped, or what waits for an outcome."""
        dropped, count = self.engine.dropped, self.dropped
        if count > len(dropped) or (count and dropped[count - 1] is not self.last_dropped):
            count = 0  # it was released, and these are others
        new = dropped[count:]
        self.dropped, self.last_dropped = len(dropped), dropped[-1] if dropped else None
        return any(is_of_tiles(item) for item in (*new, *self.engine.deferred))

    def _record(self) -> None:
        """Record from here on; tasks that a graph_scope is given are not run if it raises, so it waits for its turn."""
        engine, outer = self.engine, self.outer
        if self.implicit and engine.blocking:
            return  # each task runs inside its call
        if outer is not None and outer.scope is None:
            outer._record()
            if outer.scope is None:
                return
        waiting = thread_turns.Deadline(engine, thread_turns.PATIENCE_S)
        while True:
            with engine.gate:
                if not self._is_current():
                    return  # another thread has begun to gather, apart from the others
                if engine.scope is not (engine.root_scope if outer is None else outer.scope):
                    return
                if self.launcher or self.is_over or (self.implicit and engine.launching):
                    return
                opened = engine.opened()
                if not opened:
                    port, patient = engine.make_graph_port(engine.root), not self.implicit
                    recordings.open_scope(engine, port, self.thread, self.description, True, patient, self)
                    return
            if self.implicit or self.thread in {task.thread for task in opened}:
                return  # which runs where it stands, and so does what its body submits
            if waiting.is_over():
                waiting.refuse(self.description)
            time.sleep(STEP_S)

    def _is_current(self) -> bool:
        """Return whether it gathers now, or waits for the end of what stands inside of it."""
        gathering = self.engine.gathering
        while gathering is not None and gathering is not self:
            gathering = gathering.outer
        return gathering is self

    def suits(self, task: Any) -> bool:
        """Return whether a task may begin now, inside of the engine; else `before` is asked again."""
        if self.launcher and self._is_to_come():
            return False  # what it comes after was gathered, and is not submitted yet
        recorded = self.engine.scope is self.scope
        if not (self.implicit and recorded):
            return True
        own = task.blocks_caller or task.kind in ("wait", "graph")
        return not (own or self.engine.places[task.where].is_callers_stream)

    def step_out(self) -> None:
        """Launch what was recorded, if it is for no one to say when."""
        self.engine.submit_held()
        if self.implicit and self.has(self.engine.scope):
            self.flush()
        self._let_launch()

    def make_room(self) -> bool:
        """Launch what was recorded, so that its memory can be used for something else; whether there was any."""
        if not self.has(self.engine.scope) or not self._has_ended():
            return False  # a task that could not begin has touched data, and that is all
        self.flush()
        return True

    def take_back(self) -> None:
        """Give back the memory that a task got which is refused, if nothing else was recorded."""
        if self.has(self.engine.scope) and not self._has_ended() and not self.engine.opened():
            self.discard()

    def _has_ended(self) -> bool:
        """Return whether any task was recorded to its end, in it or around it."""
        recorded = self.scope is not None and self.scope.port.program.has_ended()
        return bool(recorded or (self.outer is not None and self.outer._has_ended()))

    def flush(self, waiting: Any = None) -> None:
        """Launch what was recorded, in it and around it, and go on.

        The task that is `waiting`, if any, needs no more of it than its data.
        """
        self.engine.submit_held()
        self.end(None if self.outer is not None else waiting)
        if self.outer is not None:
            self.outer.flush(waiting)

    def end(self, waiting: Any = None) -> None:
        """Launch what was recorded in it; where it is a part of another, as a part of that."""
        recording = None
        while recording is None:
            if self.scope is None:
                return
            self._wait_for_open_tasks()
            with self.lock:
                recording = self._close_and_launch(waiting)

    def _close_and_launch(self, waiting: Any) -> Any:
        """Submit what was recorded; other threads' tasks come after it. None if one of those is open just now."""
        if self.scope is None:
            return None
        must_have_room(CLOSES)
        before, task = self.launcher, None
        try:
            self.launcher = threading.get_ident()
            recording = recordings.close_scope(self.engine, self.scope, True, waiting, self)
            if recording is None:
                return None
            task = self._task()
            if self.engine.cancelled is not None:
                failure = Cancellation.of(task)
                self.engine.cancelled.append(failure)
                recording.poison(failure)
            elif recording.program.count:
                launches.submit(self.engine, task, recording)
            else:
                with self.engine.gate:
                    launches.spoil(self.engine, recording)
            self._close()
            if self.outer is None:
                recordings.release_dropped(self.engine)  # as long as nobody gathers
        except BaseException as error:
            if self.closed is not None:  # its tasks were given, and will not run
                task = task or self._task()
                self.closed.poison(Failure.of(task, error, True))
            raise
        finally:
            self._close()
            self.launcher = before
            self.dropped, self.last_dropped = 0, None  # which would live on
        return recording

    def _close(self) -> None:
        """Let go of what was submitted."""
        if self.closed is not None:
            closed, self.closed = self.closed, None
            closed.close()

    def _let_launch(self) -> None:
        """Wait while another thread launches what this one's tasks may depend on."""
        if self._is_to_come():
            with self.lock:
                pass

    def _is_to_come(self) -> bool:
        """Return whether another thread launches, and this one may wait for that: it is not what that waits for."""
        me = threading.get_ident()
        if self.launcher in (0, me) or self.thread not in (0, me):
            return False
        scope = self.engine.scope
        if scope.thread == me:
            return False
        return not claims.runs_body(self.engine, me) and not any(task.thread == me for task in self.engine.opened())

    def _task(self) -> Any:
        """Return the task of a launch."""
        context = self._context()
        if context is None:  # it was dropped, and is being finalized
            return self.engine.new_task("graph", 1)
        return context.make_launch_at("graph")

    def discard(self) -> None:
        """Forget what was recorded."""
        try:
            if self.scope is not None:
                self.scope.abandon()
        finally:
            scope, self.scope = self.scope, None
            if scope is not None:
                scope.leave()

    def give_way(self) -> None:
        """Forget what was recorded, and let the gathering around gather again."""
        if self.engine.window is not None:
            self.engine.window.forget_recorded()
        try:
            self.discard()
        finally:
            if self.engine.gathering is self:
                self.engine.gathering = self.around

    def _wait_for_open_tasks(self) -> None:
        """Let other threads end the tasks that they record."""
        while opened := self.engine.opened():
            task = opened[0]
            if task.thread == threading.get_ident():
                raise TaskStateError(
                    f"{self.description} cannot be launched while task {task.label()} ({task.call_site}) is open; "
                    "end it first"
                )
            time.sleep(STEP_S)


def is_of_tiles(dropped: Any) -> bool:
    """Return whether a data that was dropped is a tile, or a recording uses some."""
    parts = [use.data for use in dropped.uses] if hasattr(dropped, "uses") else [dropped]
    return any(data.parent is not None for data in parts)


def await_launches(gathering: GatheringScope | None) -> None:
    """Wait for what other threads have begun to launch of what was gathered."""
    while gathering is not None:
        if gathering.launcher not in (0, threading.get_ident()):
            if gathering.lock.acquire(timeout=thread_turns.PATIENCE_S):
                gathering.lock.release()
            else:
                log.warning("finalize waits no longer for what another thread launches of %s", gathering.description)
        gathering = gathering.around


class GraphScope:
    """``with ctx.graph_scope():`` what is submitted inside becomes one graph, launched once, at the end.

    Inside of another one it is a part of that, which is there or not as a whole; so it is in what runs again and again.
    """

    _gathering: GatheringScope | None = None
    _part: PartBlock | None = None  # where it runs in every launch of what is recorded around it

    def __init__(self, context: ContextCore) -> None:
        self._context = context

    def __enter__(self) -> GraphScope:
        context, engine = self._context, self._context.engine
        must_be_open(context)
        if self._gathering is not None or self._part is not None:
            raise TaskStateError("the with-block of this graph_scope is entered already; make another one")
        thread_turns.forget_left(engine)
        engine.submit_held()
        recordings.join_tiles(engine)
        if thread_turns.is_repeated(engine):
            self._part = PartBlock(context, "graph_scope").__enter__()
            return self
        waiting = thread_turns.Deadline(engine, thread_turns.PATIENCE_S)
        try:
            while not self._begin():
                if waiting.is_over():
                    waiting.refuse("graph_scope")
                time.sleep(STEP_S)
        except BaseException:
            self._leave()
            raise
        return self

    def _begin(self) -> bool:
        """Gather from here on, after what the context has gathered; False if another thread does."""
        engine, me = self._context.engine, threading.get_ident()
        if engine.gathering is not None:
            engine.gathering.step_out()
        recordings.join_tiles(engine)
        with engine.gate:
            opened = [task for task in engine.opened() if task.thread == me]
            if opened:
                label, site = opened[0].label(), opened[0].call_site
                raise TaskStateError(f"graph_scope cannot be opened while task {label} ({site}) is open; end it first")
            around = engine.gathering
            if (around is None or around.thread != me) and (
                engine.scope.records or (around is not None and not around.implicit)
            ):
                return False
            self._gathering = engine.gathering = GatheringScope(self._context, False, "graph_scope", around)
        return True

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if self._part is not None:
                part, self._part = self._part, None
                part.__exit__(kind, error, trace)
            elif self._gathering is not None and error is None:
                self._context.engine.submit_held()
                self._gathering.end()
        finally:
            self._leave()  # if it was not launched

    def _leave(self) -> None:
        """Gather no more, and forget what was not launched."""
        if self._gathering is not None:
            try:
                self._gathering.give_way()
            finally:
                self._gathering.is_abandoned = True
                self._gathering = None

    def __del__(self) -> None:
        if self._gathering is not None:
            self._gathering.is_abandoned = True
