"""`task_graph`: tasks that are recorded once and launched many times."""

from __future__ import annotations

from typing import Any

from stf.compat.cuda_stf.driver_graphs import Launchable
from stf.compat.cuda_stf.stackable import LaunchableGraph, stackable_context


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
        if not self._owner._recording:
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
        self._recording = self._record_attempted = self._failed = self._reset = self._finalized = False

    def _must_be_usable(self) -> None:
        if self._finalized:
            raise RuntimeError("task graph has been finalized; create a new task_graph()")
        if self._reset:
            raise RuntimeError("task graph has been reset; create a new task_graph()")

    def __enter__(self) -> None:
        self._must_be_usable()
        if self._recording:
            raise RuntimeError("task graph is already recording")
        if self._record_attempted:
            raise RuntimeError("task graph has already been recorded; create a new task_graph()")
        self._record_attempted = True
        self.context.raw._push(True)
        self._recording = True

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._recording = False
        self._failed = True
        if error is None:
            self._raw_graph = self.context.raw.pop_prologue_shared()
            self._failed = False
        else:
            self.context.raw._pushed("pop").__exit__(kind, error, trace)

    def _launched(self) -> LaunchableGraph:
        self._must_be_usable()
        if self._recording:
            raise RuntimeError("task graph is currently recording")
        if self._failed:
            raise RuntimeError("task graph recording failed; create a new task_graph()")
        if self._raw_graph is None:
            raise RuntimeError("task graph has no recorded graph yet; use `with graph:` first")
        return self._raw_graph

    @property
    def raw(self) -> LaunchableGraph:
        """The graph that was recorded."""
        return self._launched()

    def reset(self) -> None:
        """Give the graph up; without one, and once more, this does nothing."""
        if self._recording:
            raise RuntimeError("cannot reset a task graph while recording")
        if self._finalized or self._reset or self._raw_graph is None:
            return
        self._raw_graph.reset()
        self._reset = True

    def finalize(self) -> None:
        """Give the graph up and finalize the context; once more does nothing."""
        if self._recording:
            raise RuntimeError("cannot finalize a task graph while recording")
        if self._finalized:
            return
        try:
            self.reset()
        finally:
            self.context.raw.finalize()
            self._finalized = True


def task_graph() -> TaskGraph:
    """Return a graph to record once and launch many times."""
    return TaskGraph()
