"""`stackable_context`: nested graphs, loops, and graphs that are launched again and again.

A scope is a graph scope, a loop or a recorded graph of stf's. One difference is bridged here: a with-block of a task on
a CPU runs where it stands, so no recording can hold it. A graph scope of stf's launches what it has gathered then, and
goes on. A scope of `push` may become a graph that is launched later, so it records; at the first such task it launches
what it has, and is no graph that `pop_prologue_shared` could give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stf
from stf.compat.cuda_stf.contexts import ContextBase
from stf.compat.cuda_stf.data import cond, stackable_logical_data
from stf.compat.cuda_stf.driver_graphs import Launchable
from stf.compat.cuda_stf.errors import NegativeCountError, NotHereError
from stf.compat.cuda_stf.tasks import TaskBase, must_be_of, stackable_task


class stackable_context(ContextBase):
    """A context with scopes: `graph_scope`, `while_loop`, `repeat`, and graphs that are launched again."""

    _data_type = stackable_logical_data
    _task_type = stackable_task

    def __init__(self) -> None:
        self._scopes: list[Any] = []
        self._graphs = 0  # LaunchableGraph objects that were not reset
        self._own(stf.context())

    def graph_scope(self) -> Scope:
        """Return a with-block whose tasks are one graph, launched once, at its end."""
        return Scope(self, lambda: self._open_inner("graph_scope").graph_scope())

    def while_loop(self) -> WhileLoop:
        """Return a with-block whose tasks run until what it says by ``continue_while`` does not hold."""
        return WhileLoop(self, lambda: self._open_inner("while_loop").while_loop())

    def repeat(self, count: int) -> Scope:
        """Return a with-block whose tasks run `count` times.

        Raises
        ------
        ValueError, OverflowError
            `count` is negative.
        """
        if isinstance(count, int) and count < 0:
            raise NegativeCountError(f"a number of times is not negative, got {count}")
        made = self._open_inner("repeat").repeat(count)
        return Scope(self, lambda: made)

    def launchable_graph_scope(self) -> LaunchableGraphScope:
        """Return a with-block that records tasks, and launches them as often as it is told to."""
        return LaunchableGraphScope(self, lambda: self._open_inner("launchable_graph_scope").task_graph())

    def push(self) -> None:
        """Open a graph scope, which `pop` or `pop_prologue_shared` ends."""
        self._push(False)

    def _push(self, is_to_be_launched: bool) -> None:
        inner = self._open_inner("push")
        scope = Scope(self, inner.graph_scope) if self._scopes else PushedScope(self, inner, is_to_be_launched)
        scope.__enter__()

    def pop(self) -> None:
        """Launch what was submitted since `push`."""
        self._pushed("pop").__exit__(None, None, None)

    def pop_prologue_shared(self) -> LaunchableGraph:
        """Return what was submitted since `push` as a graph; nothing of it has run."""
        scope = self._pushed("pop_prologue_shared")
        if not isinstance(scope, PushedScope):
            raise stf.TaskStateError("pop_prologue_shared inside of another scope; it ends an outermost push()")
        return LaunchableGraph(self, scope._take())

    def _pushed(self, what: str) -> Any:
        if not self._scopes:
            raise stf.TaskStateError(f"{what} without push()")
        return self._scopes[-1]

    def _before(self, one: TaskBase) -> None:
        in_place = not self._context.on_cuda or (one._place is not None and one._place.kind == "host")
        if in_place and self._scopes and isinstance(self._scopes[-1], PushedScope):
            self._scopes[-1]._run_in_place()

    def fence(self) -> int:
        """Return a stream that comes after all work so far; outside of all scopes."""
        self._must_be_outside("fence")
        return super().fence()

    def _must_be_finalizable(self) -> None:
        if not self._is_finalized:
            self._must_be_outside("finalize")

    def _must_be_outside(self, what: str) -> None:
        count = len(self._scopes) + (self._graphs if what == "finalize" else 0)
        if count:
            raise stf.TaskStateError(
                f"cannot {what} a stackable_context with {count} open scope(s); leave each graph_scope, while_loop and "
                "repeat, and reset each LaunchableGraph first"
            )

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:  # which says more than that scopes are open
            self._scopes.clear()
            self._graphs = 0
        super().__exit__(kind, error, trace)


class Scope:
    """A with-block of stf's, made anew each time that it is entered, as a scope of a context."""

    def __init__(self, ctx: stackable_context, make: Callable[[], Any]) -> None:
        self._ctx, self._make = ctx, make
        self._block: Any = None

    def __enter__(self) -> Any:
        block = self._make()
        block.__enter__()
        self._block = block
        self._ctx._scopes.append(self)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self in self._ctx._scopes:
            self._ctx._scopes.remove(self)
        self._block.__exit__(kind, error, trace)


class WhileLoop(Scope):
    """What `stackable_context.while_loop` returns."""

    @property
    def cond_handle(self) -> int:
        """Raise: a loop of stf's has no such handle."""
        raise NotHereError(
            "loops have no cond_handle here; say loop.continue_while(condition), of data that you compute"
        )

    def continue_while(self, *args: Any) -> None:
        """Say, once, when the loop goes on: ``continue_while(lX > 0.1)``, or ``continue_while(lX, ">", 0.1)``.

        Raises
        ------
        TypeError
            It is no condition.
        ValueError
            There are neither one nor three arguments, or the data belong to another context.
        """
        if len(args) not in (1, 3):
            raise ValueError(
                f"continue_while takes a condition, or (data, operator, threshold); got {len(args)} values"
            )
        if len(args) == 1 and not isinstance(args[0], cond):
            raise TypeError(f"continue_while takes a condition expression such as lX > 0.1, got {args[0]!r}")
        condition = args[0] if len(args) == 1 else cond(*args)
        for ld, *_ in condition.terms:
            must_be_of(ld, self._ctx)
        self._block.continue_while(condition._for_stf())

    def condition_task(self, *args: Any) -> Any:
        """Return a task that computes what the condition compares."""
        return self._ctx.task(*args)


# -- graphs that are launched again ----------------------------------------------------------------------------------


class PushedScope(Scope):
    """A scope of `push`, which records."""

    def __init__(self, ctx: stackable_context, inner: Any, is_to_be_launched: bool) -> None:
        super().__init__(ctx, inner.task_graph)
        self._is_to_be_launched = is_to_be_launched

    def _take(self) -> Any:
        """Return the graph, recorded."""
        if self._block is None:
            raise stf.CaptureError(
                "a task ran where it stands, on the CPU, so what was pushed is no graph; submit it by ctx.host_launch, "
                "or as a function: ctx.task(lX.rw())(fn)"
            )
        super().__exit__(None, None, None)
        return self._block

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._block is not None:
            super().__exit__(kind, error, trace)
            if error is None:
                self._block.launch()
            self._block.close()
        else:
            self._ctx._scopes.remove(self)

    def _run_in_place(self) -> None:
        """Launch what was recorded so far; what comes runs as it is submitted."""
        if self._block is None or self._is_to_be_launched:
            return
        block, self._block = self._block, None
        block.__exit__(None, None, None)
        if block.nodes:
            block.launch()
        block.close()


class LaunchableGraphScope(Launchable, Scope):
    """What `stackable_context.launchable_graph_scope` returns: the first launch ends the recording."""

    _is_recorded = False

    def _launched(self) -> Any:
        if not self._is_recorded:
            self._block.__exit__(None, None, None)
            self._is_recorded = True
        return self._block

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._is_recorded:
            self._ctx._scopes.remove(self)
        else:
            super().__exit__(kind, error, trace)
        self._block.close()


class LaunchableGraph(Launchable):
    """A graph to launch again and again, until `reset`; made by `stackable_context.pop_prologue_shared`."""

    _graph: Any = None  # of stf, until `reset`

    def __init__(self, ctx: stackable_context, graph: Any) -> None:
        self._ctx, self._graph = ctx, graph
        ctx._graphs += 1

    def _launched(self) -> Any:
        if self._graph is None:
            raise stf.TaskStateError("LaunchableGraph has been reset; record another one")
        return self._graph

    @property
    def valid(self) -> bool:
        """Whether it can be launched."""
        return self._graph is not None and not self._ctx._is_finalized

    def reset(self) -> None:
        """Give the graph up; once more does nothing."""
        graph, self._graph = self._graph, None
        if graph is not None:
            self._ctx._graphs -= 1
            graph.close()

    def __enter__(self) -> LaunchableGraph:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.reset()

    def __del__(self) -> None:
        if self._graph is not None:
            self._ctx._graphs -= 1
