"""Epochs: tasks that are gathered and launched as one graph, once. A context on graphs, or ``ctx.graph_scope()``."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from stf._engine import discarding, launching, recordings, turns
from stf._engine.gathering import Gathering
from stf._engine.turns import STEP_S
from stf.errors import TaskStateError

if TYPE_CHECKING:
    from stf.contexts import Context

log = logging.getLogger("stf")


class Epoch(Gathering):
    """Records what it can, and launches it when something else needs the results.

    Parameters
    ----------
    context : Context
        Whose tasks.
    implicit : bool
        It lasts as long as the context, for tasks of all threads; what waits launches it.
    story : str
        What messages call it.
    """

    def __init__(self, context: Context, implicit: bool, story: str) -> None:
        super().__init__(0 if implicit else threading.get_ident(), implicit, context.engine.callers_streams)
        self._context = weakref.ref(context)  # which keeps the engine, and so this
        self.engine = context.engine
        self.story = story
        self.lock = threading.RLock()
        self.is_over = False  # nothing more is gathered
        self.around: Epoch | None = None  # whose place it has

    def before(self, task: Any) -> None:
        """Record what comes, or launch what was recorded, as a task that is about to begin needs it.

        For a task that it `takes` there is nothing to do.
        """
        engine = self.engine
        if self.is_left:
            self.give_way()
        if self.thread not in (0, threading.get_ident()):
            return  # no part of this one
        scope = engine.scope
        if scope is not None and scope.thread == threading.get_ident() and scope is not self.scope:
            return  # of a recording of this thread's, for which others may be waiting
        if self._drops_tiles():  # they go, and what they were cut from can be used again
            if self.scope is not None and engine.scope is self.scope:
                self.flush()
            self._let_launch()
            recordings.release_dropped(engine)
        self._let_launch()
        own = self.implicit and (task.kind == "graph" or (self.streams and task.where in self.streams))
        if own or task.in_place or task.kind == "wait":
            if self.scope is not None and engine.scope is self.scope:
                self.flush(task)
                self._let_launch()  # another thread may have been first
        elif self.is_over:
            return
        elif engine.scope is None and not self.launcher and not any(d.parent is not None for d in engine.deferred):
            self._record()

    def _drops_tiles(self) -> bool:
        """Whether there are tiles among what the user dropped, or what waits for an outcome."""
        dropped, count = self.engine.dropped, self.dropped
        if count > len(dropped) or (count and dropped[count - 1] is not self.last_dropped):
            count = 0  # it was released, and these are others
        new = dropped[count:]
        self.dropped, self.last_dropped = len(dropped), dropped[-1] if dropped else None
        return any(getattr(item, "parent", None) is not None for item in (*new, *self.engine.deferred))

    def _record(self) -> None:
        """Record from here on; tasks that a graph_scope is given are not run if it raises, so it waits for its turn."""
        engine = self.engine
        waiting = turns.Patience(engine, turns.PATIENCE_S)
        while True:
            with engine.gate:
                open_task = recordings.last_open(engine)
                if engine.epoch is not self:
                    return  # another thread has begun to gather, apart from the others
                if engine.scope is not None or self.launcher or self.is_over or (self.implicit and engine.launching):
                    return
                if open_task is None:
                    port, patient = engine.make_graph_port(), not self.implicit
                    recordings.open_scope(engine, port, self.thread, self.story, True, patient, self)
                    return
            if self.implicit or self.thread in {task.thread for task in engine.opened()}:
                return  # which runs where it stands, and so does what its body submits
            if waiting.is_over():
                waiting.refuse(self.story)
            time.sleep(STEP_S)

    def suits(self, task: Any) -> bool:
        """Whether a task may begin now, inside of the engine; else `before` is asked again."""
        if self.launcher and self._is_to_come():
            return False  # what it comes after was gathered, and is not submitted yet
        recorded = self.engine.scope is not None and self.engine.scope is self.scope
        if not (self.implicit and recorded):
            return True
        own = task.in_place or task.kind in ("wait", "graph")
        return not (own or (self.streams and task.where in self.streams))

    def step_out(self) -> None:
        """Launch what was recorded, if it is for no one to say when."""
        if self.implicit and self.scope is not None and self.engine.scope is self.scope:
            self.flush()
        self._let_launch()

    def make_room(self) -> bool:
        """Launch what was recorded, so that its memory can be used for something else; whether there was any."""
        if self.scope is None or self.engine.scope is not self.scope or not self.scope.port.program.has_work():
            return False  # a task that could not begin has touched data, and that is all
        self.flush()
        return True

    def flush(self, waiting: Any = None) -> None:
        """Launch what was recorded; the task that is `waiting`, if any, needs no more of it than its data."""
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
        before, self.launcher = self.launcher, threading.get_ident()
        try:
            recording = recordings.close_scope(self.engine, self.scope, True, waiting)
            if recording is None:
                return None
            self.scope = None
            task = self._task()
            try:
                if recording.program.count:
                    launching.submit(self.engine, task, recording)
            except BaseException as error:
                recordings.poison(self.engine, recording, task, error)  # its tasks were given, and will not run
                raise
            finally:
                recording.close()
        finally:
            self.launcher = before
        return recording

    def _let_launch(self) -> None:
        """Wait while another thread launches what this one's tasks may depend on."""
        if self._is_to_come():
            with self.lock:
                pass

    def _is_to_come(self) -> bool:
        """Whether another thread launches, and this one may wait for that: it is not what that waits for."""
        me = threading.get_ident()
        if self.launcher in (0, me) or self.thread not in (0, me):
            return False
        scope = self.engine.scope
        if scope is not None and scope.thread == me:
            return False
        return not self.engine.runs_body(me) and not any(task.thread == me for task in self.engine.opened())

    def _task(self) -> Any:
        """The task of a launch."""
        context = self._context()
        if context is None:  # it was dropped, and is being finalized
            return self.engine.new_task("graph", 1)
        return context.make_launch_at("graph")

    def discard(self) -> None:
        """Forget what was recorded."""
        try:
            if self.scope is not None:
                discarding.abandon_scope(self.engine, self.scope)
        finally:
            scope, self.scope = self.scope, None
            if scope is not None:
                discarding.leave(scope)

    def give_way(self) -> None:
        """Forget what was recorded, and let the epoch around gather again."""
        try:
            self.discard()
        finally:
            if self.engine.epoch is self:
                self.engine.epoch = self.around

    def _wait_for_open_tasks(self) -> None:
        """Let other threads end the tasks that they record."""
        while (task := recordings.last_open(self.engine)) is not None:
            if task.thread == threading.get_ident():
                raise TaskStateError(
                    f"{self.story} cannot be launched while task {task.label()} ({task.call_site}) is open; end it "
                    "first"
                )
            time.sleep(STEP_S)


def await_launches(epoch: Epoch | None) -> None:
    """Wait for what other threads have begun to launch of what was gathered."""
    while epoch is not None:
        if epoch.launcher not in (0, threading.get_ident()):
            if epoch.lock.acquire(timeout=turns.PATIENCE_S):
                epoch.lock.release()
            else:
                log.warning("finalize waits no longer for what another thread launches of %s", epoch.story)
        epoch = epoch.around


class GraphScope:
    """``with ctx.graph_scope():`` what is submitted inside becomes one graph, launched once, at the end."""

    _epoch: Epoch | None = None

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> GraphScope:
        context = self._context
        context._must_be_open()
        discarding.forget_left(context.engine)
        recordings.join_tiles(context.engine)
        waiting = turns.Patience(context.engine, turns.PATIENCE_S)
        try:
            while not self._is_part() and not self._begin():
                if waiting.is_over():
                    waiting.refuse("graph_scope")
                time.sleep(STEP_S)
        except BaseException:
            self._leave()
            raise
        return self

    def _is_part(self) -> bool:
        """Whether this thread records already."""
        engine, me = self._context.engine, threading.get_ident()
        return (engine.scope is not None and engine.scope.thread == me) or (
            engine.epoch is not None and engine.epoch.thread == me
        )

    def _begin(self) -> bool:
        """Gather from here on, after what the context has gathered; False if another thread does."""
        engine = self._context.engine
        if engine.epoch is not None:
            engine.epoch.step_out()
        recordings.join_tiles(engine)
        me = threading.get_ident()
        with engine.gate:
            opened = next((task for task in engine.opened() if task.thread == me), None)
            if opened is not None:
                raise TaskStateError(
                    f"graph_scope cannot be opened while task {opened.label()} ({opened.call_site}) is open; end it "
                    "first"
                )
            if engine.scope is not None or (engine.epoch is not None and not engine.epoch.implicit):
                return False
            self._epoch = Epoch(self._context, False, "graph_scope")
            self._epoch.around = engine.epoch
            engine.epoch = self._epoch
        return True

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        epoch = self._epoch
        if epoch is None:
            scope = self._context.engine.scope
            while error is not None and scope is not None:
                scope.torn = f"a graph_scope in it raised {type(error).__name__}"
                scope = scope.parent
            return
        try:
            if error is None:
                epoch.flush()
        finally:
            self._leave()  # if it was not launched

    def _leave(self) -> None:
        """Gather no more, and forget what was not launched."""
        if self._epoch is not None:
            try:
                self._epoch.give_way()
            finally:
                self._epoch.is_left = True
                self._epoch = None

    def __del__(self) -> None:
        if self._epoch is not None:
            self._epoch.is_left = True
