"""Algorithms: functions that submit tasks, whose calls run inline, as one task, or as a graph that is kept."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, overload

from stf import config
from stf.graphs.call_signature import names_of_static
from stf.graphs.replay import ReplayFunction

__all__ = ["Algorithm", "algorithm"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

WAYS = ("auto", "inline", "task", "graph")


@overload
def algorithm(fn: Callable[_P, _R], *, mode: str = "auto", static: Iterable[str] = ()) -> Algorithm[_P, _R]: ...


@overload
def algorithm(
    fn: None = None, *, mode: str = "auto", static: Iterable[str] = ()
) -> Callable[[Callable[_P, _R]], Algorithm[_P, _R]]: ...


def algorithm(fn: Any = None, *, mode: str = "auto", static: Iterable[str] = ()) -> Any:
    """Decorate a function that submits tasks, so that its calls run in the way that suits the context.

    The tasks, their order and the results are the same in every way:

    ============  =========================================================================================
    `mode`        a call
    ============  =========================================================================================
    ``"inline"``  submits its tasks, as without the decorator
    ``"task"``    is one task: its tasks are one graph, launched once, or none of them runs (`Context.graph_scope`)
    ``"graph"``   is a launch of a graph that is kept from an earlier call (`replay`)
    ``"auto"``    is ``"inline"`` in a context that gathers its tasks as one graph, and ``"graph"`` elsewhere
    ============  =========================================================================================

    Inside of a recording, and of another algorithm that is recorded, the tasks become a part of that.
    ``STF_ALGORITHM_INLINE=1`` runs every algorithm inline, to look for an error.

    Parameters
    ----------
    fn : callable
        The function; left out, the result decorates.
    mode : {"auto", "inline", "task", "graph"}
        The way.
    static : iterable of str
        Names of parameters whose values shape the graph; see `replay`.

    Returns
    -------
    Algorithm
        Call it as the function. `Algorithm.explain` says which way the calls went.

    Raises
    ------
    TypeError
        `fn` is no function, or has no parameter of that name; or a call has no logical data and no context.
    ValueError
        `mode` is none of these.
    TaskStateError
        A call waits for results while it is recorded.
    ContextClosedError
        A call uses data of a context that was finalized.

    Examples
    --------
    >>> @stf.task
    ... def axpy(a, x: stf.Read, y: stf.ReadWrite):
    ...     y += a * x
    >>> @stf.algorithm
    ... def twice(x, y):
    ...     axpy(1.0, x, y)
    ...     axpy(0.5, x, y)
    >>> for use_graph in (False, True):
    ...     with stf.context(devices="cpu", use_graph=use_graph) as ctx:
    ...         x, y = ctx.logical_data_ones(2), ctx.logical_data_zeros(2)
    ...         for _ in range(4):
    ...             twice(x, y)
    ...         print(y.numpy())
    [6. 6.]
    [6. 6.]
    >>> print(twice.explain().splitlines()[0])
    twice: mode 'auto', 4 calls inline, 0 as one task, 4 by graphs
    """
    if mode not in WAYS:
        raise ValueError(f"mode= is 'auto', 'inline', 'task' or 'graph', got {mode!r}")
    names = names_of_static(static)
    if fn is None:
        return functools.partial(algorithm, mode=mode, static=names)
    return Algorithm(fn, names, mode)


class Algorithm(ReplayFunction[_P, _R]):
    """A function whose calls run inline, as one task, or as a graph; made by `algorithm`.

    It is a replayed function that looks at the context first. The graphs, and all that is compared, are those of
    `ReplayFunction`: a call that is like an earlier one, whose graph is kept, does not come here.

    Attributes
    ----------
    mode : str
        The way that was asked for.
    """

    _decorator = "stf.algorithm"

    def __init__(self, fn: Callable[_P, _R], static: tuple[str, ...], mode: str) -> None:
        super().__init__(fn, static)
        self.mode = mode
        self._calls = {"inline": 0, "task": 0}

    def _call_whole(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.mode == "inline" or config.algorithm_inline:  # which needs no context
            return self._run_inline(args, kwargs)
        return super()._call_whole(args, kwargs)

    def _call_bound(self, bound: inspect.BoundArguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        context = self._context_of(bound.arguments)
        gathering = context.engine.gathering
        if self.mode == "auto" and gathering is not None and gathering.implicit:
            return self._run_inline(args, kwargs)
        if self.mode == "task":
            self._calls["task"] += 1
            with context.graph_scope():
                return self._fn(*args, **kwargs)
        return super()._call_bound(bound, args, kwargs)

    def _run_inline(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._calls["inline"] += 1
        return self._fn(*args, **kwargs)

    def explain(self) -> str:
        """Say which way the calls went; of graphs also what was recorded, how often it was launched, and why not."""
        with self._lock:
            by_graphs = sum(entry.calls for entry in self._entries.values())
        ways = f"{self._calls['inline']} calls inline, {self._calls['task']} as one task, {by_graphs} by graphs"
        lines = [f"{self._name}: mode {self.mode!r}, {ways}"]
        if by_graphs:
            lines.append(super().explain())
        return "\n".join(lines)

    def __dir__(self) -> list[str]:
        return ["close", "explain", "mode"]
