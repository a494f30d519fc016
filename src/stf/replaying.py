"""Replay: a function whose tasks are recorded when it is called again, and launched as one graph from then on."""

from __future__ import annotations

import functools
import inspect
import logging
import numbers
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from stf import config
from stf._engine.access import DataHandle
from stf.errors import ContextClosedError, TaskStateError
from stf.graphs import TaskGraph
from stf.likeness import NUMBER, SEVERAL, Entry, Likeness, ReplayCore, mark_of
from stf.params import Param, ValueNeededError

__all__ = ["ReplayFunction", "replay"]

VARIADIC = inspect.Parameter.VAR_POSITIONAL
KEPT = 8  # recordings of a function; the ninth takes the place of the one that was used the longest ago
log = logging.getLogger("stf")


def replay(fn: Any = None, *, static: Iterable[str] = ()) -> Any:
    """Decorate a function of logical data whose calls are to be replayed.

    The first call with certain arguments runs as it is. The second is recorded, and launched; from the third on there
    is nothing but a launch. Other data, other values that are no numbers, another default place or other values in
    the function's closure are recorded anew.

    Numbers (not bool) are parameters: each launch may give other ones. A number whose value the function itself needs,
    as in ``range(n)``, is part of the signature; so are those named in `static`.

    Python in the function that is no task runs only when it is recorded.

    Parameters
    ----------
    fn : callable
        The function; left out, the result decorates.
    static : iterable of str
        Names of parameters whose values shape the graph.

    Returns
    -------
    ReplayFunction
        Call it as the function.

    Raises
    ------
    TypeError
        `fn` is no function, or has no parameter of that name.
    """
    if fn is None:
        return functools.partial(replay, static=tuple(static))
    return ReplayFunction(fn, tuple(static))


class ReplayFunction(ReplayCore):
    """A function whose calls are recorded and replayed; made by `replay`."""

    def __init__(self, fn: Callable[..., Any], static: tuple[str, ...]) -> None:
        if not callable(fn):
            raise TypeError(f"stf.replay decorates a function, got {type(fn).__name__}")
        super().__init__()
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._name = getattr(fn, "__name__", "replay")
        self._signature = inspect.signature(fn)
        unknown = [name for name in static if name not in self._signature.parameters]
        if unknown:
            raise TypeError(f"'{self._name}' has no parameter '{unknown[0]}' to be static")
        self._static = set(static)
        self._entries: OrderedDict[Any, Entry] = OrderedDict()
        self._lock = threading.RLock()  # of what is known; not held while a call goes on
        self._recordings = 0
        self._last_key: Any = None
        self._before: Any = None

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _call_whole(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call with a look at all of the arguments."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        context = self._context_of(bound.arguments)
        if context.engine.scope is not None and context.engine.scope.thread:
            return self._fn(*args, **kwargs)  # a part of what is recorded there
        entry = self._entry_for(context, bound.arguments)
        entry.calls += 1
        if entry.graph is None:
            if entry.calls == 1:
                return self._fn(*args, **kwargs)
            return self._record(context, entry, bound)
        if config.validate:
            self._compare(context, entry, bound)
        elif not kwargs:
            self._remember(context, entry, bound.arguments, len(args))
        entry.graph.launch(**self._values(bound.arguments))
        return entry.result

    def _take(self, like: Likeness) -> bool:
        """Let the call be the latest that is like an earlier one, if that is known still."""
        with self._lock:
            if like not in self._likenesses:
                return False
            self._likenesses = [like, *(other for other in self._likenesses if other is not like)]
            self._entries.move_to_end(like.entry.key)
            self._note_key(like.entry.key)
            self._latest = like
        return True

    def _forget_likenesses(self) -> None:
        """Look at all of the next call, whatever it is: a recording was given up."""
        self._likenesses, self._latest = [], None

    def _note_key(self, key: Any) -> None:
        """Remember the signatures of the last two calls that differ in it."""
        if key != self._last_key:
            self._last_key, self._before = key, self._last_key

    def _remember(self, context: Any, entry: Entry, arguments: dict[str, Any], given: int) -> None:
        """Know calls that are like this one again: `given` arguments by position, and the defaults of others."""
        if any(parameter.kind == VARIADIC for parameter in self._signature.parameters.values()):
            return
        values, numbers = [], {}
        for position, (name, value) in enumerate(arguments.items()):
            is_param = self._is_param(name, value)
            mark = (NUMBER, type(value)) if is_param else mark_of(value)
            if mark is None:
                return
            if position < given:
                values.append((*mark, name))
            elif is_param:
                numbers[name] = value
            elif mark[0] == SEVERAL:  # a default that may change in place
                return
        cells = []
        for cell, (_, content) in zip(getattr(self._fn, "__closure__", None) or (), closure_of(self._fn), strict=True):
            mark = mark_of(content)
            if mark is None:
                return
            cells.append((cell, mark))
        like = Likeness(entry, context, values, numbers, cells)
        with self._lock:
            if self._entries.get(entry.key) is entry:
                self._likenesses = [like, *self._likenesses[: KEPT - 1]]

    # -- signatures --------------------------------------------------------------------------------------------

    def _context_of(self, arguments: dict[str, Any]) -> Any:
        for handle in data_in(arguments.values()):
            context = handle.core.engine.context()
            if context is None:
                raise ContextClosedError(f"the context of {handle.core.describe()} is gone; keep a reference to it")
            return context
        raise TypeError(f"'{self._name}' was called without logical data, so its context is unknown; pass some")

    def _is_param(self, name: str, value: Any) -> bool:
        return is_number(value) and name not in self._static

    def _values(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The numbers that a launch gives."""
        return {name: value for name, value in arguments.items() if self._is_param(name, value)}

    def _key(self, context: Any, arguments: dict[str, Any]) -> tuple[Any, ...]:
        parts = [("context", id(context.engine)), ("place", context.current_place_code())]
        for name, value in arguments.items():
            parts.append((name, type(value) if self._is_param(name, value) else key_of(value)))
        for name, cell in closure_of(self._fn):
            by_identity = isinstance(cell, (list, dict, set))  # which functions write to
            parts.append((f"{name} (closure)", ("object", id(cell)) if by_identity else key_of(cell)))
        return tuple(parts)

    def _entry_for(self, context: Any, arguments: dict[str, Any]) -> Entry:
        key = self._key(context, arguments)
        with self._lock:
            self._latest = None
            entry = self._entries.get(key)
            if entry is not None and entry.context() is not context:
                del self._entries[key]  # of a context that is gone; this one has its address
                self._forget_likenesses()
                entry = None
            if entry is None:
                self._forget_finalized()
                values = [value for value in arguments.values() if not self._holds_data(value)]
                cells = [cell for _, cell in closure_of(self._fn) if not self._holds_data(cell)]
                entry = self._entries[key] = Entry(key, context, values + cells)
                if len(self._entries) > KEPT:
                    _, oldest = self._entries.popitem(last=False)
                    self._forget_likenesses()
                    if oldest.graph is not None:
                        oldest.graph.close()
            else:
                self._entries.move_to_end(key)
            self._note_key(key)
        return entry

    @staticmethod
    def _holds_data(value: Any) -> bool:
        return next(data_in([value]), None) is not None

    def _forget_finalized(self) -> None:
        """Forget what was recorded in contexts that are over."""
        for key, entry in list(self._entries.items()):
            context = entry.context()
            if context is None or context.engine.closed is not None:
                del self._entries[key]
                self._forget_likenesses()

    # -- recording ---------------------------------------------------------------------------------------------

    def _record(self, context: Any, entry: Entry, bound: inspect.BoundArguments) -> Any:
        """Record the call, and launch it; a number that the function needs becomes part of the signature."""
        while True:
            try:
                graph, entry.result = self._recorded(context, bound)
                break
            except ValueNeededError as error:
                needed = error.names & self._values(bound.arguments).keys()
                if not needed:
                    raise  # it is no parameter of this function
                self._static |= needed
                self._forget_likenesses()
                entry = self._entry_for(context, bound.arguments)
                log.debug("%s: the values of %s shape the graph", self._name, sorted(needed))
        entry.graph = graph
        entry.reason = f"recorded: {graph.nodes} nodes"
        self._recordings += 1
        if self._recordings == KEPT + 1:
            log.warning(
                "'%s' was recorded %d times; what changed last: %s. Make such values parameters, or pass the same data",
                self._name,
                self._recordings,
                difference(self._before, self._last_key),
            )
        graph.launch(**self._values(bound.arguments))
        return entry.result

    def _recorded(self, context: Any, bound: inspect.BoundArguments) -> tuple[TaskGraph, Any]:
        graph = context.task_graph(self._name)
        passed = dict(bound.arguments)
        for name, value in self._values(bound.arguments).items():
            passed[name] = graph.param(name, value)
        call = self._signature.bind_partial()
        call.arguments.update(passed)
        try:
            with graph:
                result = self._fn(*call.args, **call.kwargs)
        except TaskStateError as error:
            error.add_note(
                f"'{self._name}' is recorded for replay: it cannot wait for data, or branch on them, on the host; use "
                "ctx.if_ or ctx.while_loop, or leave that out of the function"
            )
            raise
        return graph, result

    def _compare(self, context: Any, entry: Entry, bound: inspect.BoundArguments) -> None:
        """Record again, and see that it is the same (STF_VALIDATE)."""
        graph, _ = self._recorded(context, bound)
        known, now = entry.graph._recording.program, graph._recording.program  # type: ignore[union-attr]
        same = known.edges() == now.edges() and known.operations() == now.operations()
        graph.close()
        if not same:
            raise TaskStateError(
                f"'{self._name}' submits other tasks than when it was recorded ({now.count} nodes, then "
                f"{known.count}): it depends on something that is no argument; pass that, or name it static"
            )

    # -- telling -----------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Say what was recorded, how often it was replayed, and which numbers are part of the signature."""
        lines = [f"{self._name}: {self._recordings} recordings, {len(self._entries)} signatures known"]
        if self._static:
            lines.append(f"  values that shape the graph: {', '.join(sorted(self._static))}")
        for entry in self._entries.values():
            launched = 0 if entry.graph is None else entry.graph.launches
            lines.append(f"  {entry.calls} calls, {entry.reason}, launched {launched} times")
        return "\n".join(lines)

    def close(self) -> None:
        """Give up what was recorded; the function records again when it is called again."""
        with self._lock:
            known = list(self._entries.values())
            self._entries.clear()
            self._forget_likenesses()
        for entry in known:
            if entry.graph is not None:
                entry.graph.close()

    def __repr__(self) -> str:
        return f"<stf.replay {self._name}>"


def is_number(value: Any) -> bool:
    """Whether it is a number, and no truth value."""
    return isinstance(value, (numbers.Number, np.number)) and not isinstance(value, (bool, np.bool_, Param))


def data_in(values: Iterable[Any]) -> Iterator[Any]:
    """Logical data among arguments, in containers too."""
    for value in values:
        if isinstance(value, DataHandle):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from data_in(value)
        elif isinstance(value, dict):
            yield from data_in(value.values())
        elif hasattr(value, "parts") and hasattr(value, "expand_mode"):
            yield from value.parts


def key_of(value: Any) -> Any:
    """What must be equal for a recording to hold."""
    if isinstance(value, DataHandle):
        return ("data", value.core.id)
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(key_of(item) for item in value))
    if isinstance(value, dict):
        return (dict, tuple((key, key_of(item)) for key, item in value.items()))
    if isinstance(value, float) and not value:
        return (type(value), str(value))  # zeros may differ in their signs
    try:
        hash(value)
    except TypeError:
        return ("object", id(value))
    return (type(value), value)


def closure_of(fn: Any) -> Iterator[tuple[str, Any]]:
    """Names and contents of the cells of a function's closure."""
    names = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(fn, "__closure__", None) or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            yield name, None


def difference(one: Any, other: Any) -> str:
    """What differs between two signatures."""
    before = dict(one or ())
    names = [str(name) for name, value in other if before.get(name, value) != value]
    return ", ".join(names) or "nothing that is known"
