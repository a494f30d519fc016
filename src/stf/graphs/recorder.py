"""What opens and ends the recordings of graphs, loops and branches, whatever exceptions come between."""

from __future__ import annotations

import threading
from typing import Any

from stf._engine import initial_content, thread_turns
from stf._recording import recordings
from stf.errors import TaskStateError
from stf.graphs.plan_times import PlanTimes
from stf.tasks.task import ContextCore


class RecordingBuilder:
    """Opens one recording after the other."""

    scope: Any = None
    plan_times: PlanTimes | None = None

    def __init__(self, context: ContextCore, description: str) -> None:
        self.engine = context.engine
        self.description = description

    def open(self, patient: bool = True, patience: float | None = None) -> None:
        """Record from here on, when other threads have ended their tasks and recordings.

        They wait for this one, if it is `patient`. TaskStateError if they don't let it for so many seconds.
        """
        if self.scope is not None:
            raise TaskStateError(f"the with-block of this {self.description} is entered already; make another one")
        self.engine.submit_held()
        port, thread = self.engine.make_graph_port(self.engine.root), threading.get_ident()
        patience = thread_turns.PATIENCE_S if patience is None else patience
        self.launch_before()
        recordings.join_tiles(self.engine)
        try:
            while self.scope is None:
                self.launch_before()
                thread_turns.forget_left(self.engine)
                recordings.open_in_turn(self.engine, port, thread, self.description, patient, patience, self)
        except BaseException:
            self.leave()
            raise

    def close(self, needed: Any = None) -> Any:
        """Return what was recorded; with `needed`, what others need by data, so that it can run again."""
        try:
            self.engine.submit_held()  # a recording is planned as a whole
            planned_s = None if self.engine.window is None else self.engine.window.take_planned()
            self.plan_times = PlanTimes(planned_s) if planned_s else None
            if needed is not None:
                with self.engine.gate:
                    initial_content.restore(self.engine, self.scope, needed)
            return recordings.close_scope(self.engine, self.scope)
        except BaseException:
            self.scope.abandon()
            raise
        finally:
            self.leave()

    def discard(self) -> None:
        """Forget what was recorded."""
        try:
            if self.engine.window is not None:
                self.engine.window.forget_recorded()
            if self.scope is not None:
                self.scope.abandon()
        finally:
            self.leave()

    def leave(self) -> None:
        """Record no more; whatever is open still will be forgotten."""
        scope, self.scope = self.scope, None
        if scope is not None:
            scope.leave()

    def __del__(self) -> None:
        self.leave()

    def launch_before(self) -> None:
        """Launch what a gathering scope has gathered: what comes is a launch of its own."""
        gathering = self.engine.gathering
        if gathering is not None and gathering.implicit:
            gathering.flush()
