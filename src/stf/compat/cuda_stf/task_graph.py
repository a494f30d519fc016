"""`task_graph`: tasks that are recorded once and launched many times."""

from __future__ import annotations

from typing import Any

from stf.compat.cuda_stf.driver_graphs import Launchable
from stf.compat.cuda_stf.stackable import LaunchableGraph, stackable_context

NOT_LAUNCHED = {  # by state; the one that is missing is "recorded"
    "new": "task graph has no recorded graph yet; use `with graph:` first",
    "recording": "task graph is currently recording",
    "failed": "task graph recording failed; create a new task_graph()",
    "reset": "task graph has been reset; create a new task_graph()",
    "finalized": "task graph has been finalized; create a new task_graph()",
}


class GuardedContext:
    """The context of a `TaskGraph`: its tasks are those of the recording."""

    def __init__(self, owner: TaskGraph, ctx: stackable_context) -> None:
        self._owner = owner
        self._ctx = ctx

    @property
    def raw(self) -> stackable_context:
        """The context itself."""
        return self._ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def task(self, *args: Any, **options: Any) -> Any:
        """Return a task of the recording.

        Raises
        ------
        RuntimeError
            Nothing is recorded now.
        """
        if self._owner._state != "recording":
            raise RuntimeError(
                "ctx.task(...) is only valid while the owning task_graph is recording: use `with graph:`"
            )
        return self._ctx.task(*args, **options)

    def finalize(self) -> None:
        """Finalize the graph, and with it the context."""
        self._owner.finalize()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._ctx!r})"


class TaskGraph(Launchable):
    """A graph with a context of its own: ``with graph:`` records its tasks, `launch` runs them.

    Attributes
    ----------
    context : object
        Where data are made at any time, and tasks while it records.
    """

    def __init__(self) -> None:
        self.context = GuardedContext(self, stackable_context())
        self._raw_graph: LaunchableGraph | None = None
        self._state = "new"

    def __enter__(self) -> None:
        if self._state in ("reset", "finalized"):
            raise RuntimeError(NOT_LAUNCHED[self._state])
        if self._state == "recording":
            raise RuntimeError("task graph is already recording")
        if self._state != "new":
            raise RuntimeError("task graph has already been recorded; create a new task_graph()")
        self._state = "failed"
        self.context.raw._push(True)
        self._state = "recording"

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._state = "failed"
        if error is None:
            self._raw_graph = self.context.raw.pop_prologue_shared()
            self._state = "recorded"
        else:
            self.context.raw._pushed("pop").__exit__(kind, error, trace)

    @property
    def raw(self) -> LaunchableGraph:
        """The graph that was recorded."""
        if self._raw_graph is None or self._state != "recorded":
            raise RuntimeError(NOT_LAUNCHED[self._state])
        return self._raw_graph

    def _launched(self) -> Any:
        return self.raw._launched()

    def reset(self) -> None:
        """Give the graph up; without one, and once more, this does nothing."""
        if self._state == "recording":
            raise RuntimeError("cannot reset a task graph while recording")
        if self._state == "recorded":
            self.raw.reset()
            self._state = "reset"

    def finalize(self) -> None:
        """Give the graph up and finalize the context; once more does nothing."""
        if self._state == "recording":
            raise RuntimeError("cannot finalize a task graph while recording")
        if self._state == "finalized":
            return
        try:
            self.reset()
        finally:
            self.context.raw.finalize()
            self._state = "finalized"


def task_graph() -> TaskGraph:
    """Return a graph to record once and launch many times."""
    return TaskGraph()
