"""Replay: a function whose tasks are recorded when it is called again, and launched as one graph from then on."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from stf import config
from stf._engine import claims, recording_caches
from stf._engine.thread_turns import OutsideError, TurnError, must_not_end
from stf._support import arguments
from stf.errors import CaptureError, ContextClosedError, GraphClosedError, OutOfMemoryError, TaskStateError
from stf.graphs import recording_diff, returned_data
from stf.graphs.call_pattern import (
    CallEntry,
    CallPattern,
    HeldError,
    Path,
    ReplayCore,
    marks_of,
    pattern_by_identity,
    pattern_of,
    replayed,
)
from stf.graphs.call_signature import (
    Itself,
    Signature,
    SignaturePart,
    VaryingNumbers,
    covers,
    differences,
    given_in,
    key_of,
    names_of_static,
    params_of,
)
from stf.graphs.closure_variables import Variable, is_function, variables_of
from stf.graphs.executed import Executed
from stf.graphs.names_read import Reached, random_kinds
from stf.graphs.plan_times import plans_again
from stf.graphs.task_graph import TaskGraph, must_be_backend
from stf.observe.html import lines_html, never_raises
from stf.places.table import exec_place_of
from stf.tasks import comparing
from stf.tasks.checks import must_be_open
from stf.tasks.placing import wanted
from stf.tasks.task import ContextCore
from stf.values.containers import data_in, is_container
from stf.values.params import NotComputedError, Param, ValueNeededError, is_of_parameters, refuse_reachable

__all__ = ["ReplayFunction", "replay"]

KEPT = 8  # recordings of a function; the ninth takes the place of the one that was used the longest ago
MOST_MET = 256  # names that are found while recording
KNOWN = 64  # signatures that are known, with a recording or without
PATIENCE_S = 0.1  # how long a recording waits for tasks and recordings of other threads, before the call runs as it is
REST_S = 1.0  # how long calls run as they are then
log = logging.getLogger("stf")

_P = ParamSpec("_P")
_R = TypeVar("_R")


@overload
def replay(fn: Callable[_P, _R], *, static: Iterable[str] = (), backend: str = "auto") -> ReplayFunction[_P, _R]: ...


@overload
def replay(
    fn: None = None, *, static: Iterable[str] = (), backend: str = "auto"
) -> Callable[[Callable[_P, _R]], ReplayFunction[_P, _R]]: ...


def replay(fn: Any = None, *, static: Iterable[str] = (), backend: str = "auto") -> Any:
    """Decorate a function of logical data whose calls are to be replayed.

    The first call with certain arguments runs. The second is recorded, and launched. From the third on, each call is a
    launch. Other arguments, another default place or other values in the function's closure are
    recorded anew.

    **Numbers.** A number (not bool) of which three values were seen becomes a parameter: one recording serves all
    values, and each launch gives its own. A number whose value the function needs, as in ``range(n)`` or ``if n > 2``,
    stays part of the signature; so do those named in `static`. If something cannot be computed from a number, as
    ``1 / k`` of 0, the call runs without recording.

    **What is compared.** Lists, dicts, sets, namespaces and dataclasses are compared by what they contain. A NumPy
    array must be the same one, with the same content (up to 1 MiB). Other objects that cannot be hashed must be the
    same. This holds for arguments, and for variables in the closures of the function, of those that it decorates or was
    bound to (``functools.partial``), and of the functions among its variables. Global variables and attributes that
    the code names (``o.rate``; properties are called) are compared too, also in functions that it calls and in bodies
    of its tasks. Functions that come from a list, a default argument, a factory or an object are seen while they run
    in a recording; with a profile function of yours (``cProfile``) names alone lead there.

    **What is not compared.** A container in a closure or a global variable that the functions change, as in
    ``log.append(x)``; that runs when the call is recorded, and no more. Names that bodies look up by other means are
    not seen. ``STF_VALIDATE=1`` runs the function at each call and compares what it submits; of a body that was
    recorded on a device, also how much it puts on its stream.

    **Results.** Every call returns the same objects as the recorded call, except for data that the function makes. If
    somebody holds these, a call makes other data and returns them, so that what you hold does not change.

    A function that reads the time, the environment, or the random state of NumPy or Python runs without recording,
    which is logged once. Python code of the function that is no task runs only when it is recorded. A call that raises
    while it is recorded runs none of its tasks; a call without recording runs those before the error.

    Parameters
    ----------
    fn : callable
        The function; left out, the result decorates.
    static : iterable of str
        Names of parameters whose values shape the graph.
    backend : str
        How a launch is done; see `Context.task_graph`.

    Returns
    -------
    ReplayFunction
        Call it as the function.

    Raises
    ------
    TypeError
        `fn` is no function, or has no parameter of that name.
    ValueError
        There is no such backend.
    TaskStateError
        A call waits for results while it is recorded.
    ContextClosedError
        A call uses data of a context that was finalized.

    Examples
    --------
    >>> @stf.task
    ... def step(rate, x: stf.ReadWrite):
    ...     x += rate
    >>> @stf.replay
    ... def steps(x, rate):
    ...     for _ in range(3):
    ...         step(rate, x)
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_zeros(2)
    ...     for k in range(4):
    ...         steps(x, float(k))
    ...     print(x.numpy())
    ...     print(steps.explain().splitlines()[0])
    [18. 18.]
    steps: 1 recordings, 1 signatures known
    """
    names = names_of_static(static)
    if fn is None:
        return functools.partial(replay, static=names, backend=backend)
    return ReplayFunction(fn, names, backend)


class ReplayFunction(ReplayCore, Generic[_P, _R]):
    """A function whose calls are recorded and replayed; made by `replay`."""

    _decorator = "stf.replay"

    if TYPE_CHECKING:

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...

    def __init__(self, fn: Callable[_P, _R], static: tuple[str, ...], backend: str = "auto") -> None:
        if not callable(fn):
            raise TypeError(f"{self._decorator} decorates a function, got {type(fn).__name__}")
        arguments.refuse_generator(f"@{self._decorator}", fn)
        super().__init__()
        functools.update_wrapper(self, fn)
        self._fn, self._backend = fn, must_be_backend(backend)
        self._name = getattr(fn, "__name__", "replay")
        self._signature = inspect.signature(fn)
        unknown = [name for name in static if name not in self._signature.parameters]
        if unknown:
            raise TypeError(f"'{self._name}' has no parameter '{unknown[0]}' to be static")
        self._numbers = VaryingNumbers(static)
        self._changed: set[str] = set()  # variables whose content does not count: calls of the function change it
        self._met: dict[tuple[Any, ...], Variable] = {}  # what ran, or was submitted, in a recording reads by names
        self._entries: dict[Signature, CallEntry] = {}  # what was used the longest ago first
        self._lock = threading.RLock()  # of what is known; not held while a call goes on
        self._recordings = 0
        self._given_up = 0
        self._planned_again: Counter[Signature] = Counter()
        self._new = 0  # signatures
        self._compared: list[CallEntry] = []  # with what is recorded anew just now
        self._rests_until = 0.0  # when a recording is tried again that got no turn, or no memory
        self._last_key: Signature | None = None
        self._before: Signature | None = None
        self._around: tuple[dict[str, Any], list[Variable], Reached] | None = None  # of a call that goes on
        self._has_logged = False  # that calls run as they are

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _call_whole(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call with a look at all of the arguments."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:  # of what is decorated; the decorator may give it more
            self._signature = inspect.signature(self._fn, follow_wrapped=False)
            bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return self._call_bound(bound, args, kwargs)
        finally:
            self._around = None

    def _call_bound(self, bound: inspect.BoundArguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call with arguments that are bound to their names."""
        context = self._context_of(bound.arguments)
        engine = context.engine
        if (
            engine.wants_finite
            or comparing.current
            or claims.recorded_description(engine, threading.get_ident()) is not None
        ):
            return self._fn(*args, **kwargs)  # each body is looked at; or it is a part of what is recorded there
        while True:
            entry = self._entry_for(context, bound.arguments)
            entry.calls += 1
            graph = entry.graph
            if graph is not None and not plans_again(self, entry, graph):
                return self._replay(context, entry, graph, bound, None if kwargs else len(args))
            try:
                if entry.calls > 1 and not entry.is_plain and time.monotonic() >= self._rests_until:
                    return self._record(context, entry, bound)
                return self._fn(*args, **kwargs)
            except ValueNeededError as error:
                if not self._must_know(entry, error.names):
                    raise  # they are no parameters of this function
            finally:
                self._note_changed_cells(context, entry, bound.arguments)

    def _replay(
        self, context: Any, entry: CallEntry, graph: TaskGraph, bound: inspect.BoundArguments, given: int | None
    ) -> Any:
        """Launch what is recorded; `given` arguments were given, all of them by position, unless it is None."""
        if config.validate:
            graph = self._compare(context, entry, graph, bound)
        if given is not None and not config.validate and graph._plan_times is None:
            self._remember(entry, bound.arguments, given)
        must_be_open(context)
        try:
            return replayed(context, graph, entry, given_in(entry.key, bound.arguments))
        except HeldError as error:
            entry.reason = f"not replayed while you hold what a call returned: {error}"
        except GraphClosedError:
            must_be_open(context)
            if context.engine.ending:
                must_not_end(context.engine)
            if self._entries.get(entry.key) is entry:
                raise
            return self._call_whole(bound.args, bound.kwargs)  # another thread has given it up meanwhile
        except Exception as error:
            if not is_of_parameters(error):
                raise
        return self._fn(*bound.args, **bound.kwargs)  # nothing has begun, and the function may handle it

    def _take(self, like: CallPattern) -> bool:
        """Let the call be the latest that is like an earlier one, if that is known still."""
        with self._lock:
            if like not in self._patterns:
                return False
            self._patterns = [like, *[other for other in self._patterns if other is not like]]
            self._use(like.entry)
            self._note_key(like.entry.key)
            self._latest = like
        return True

    def _forget_patterns(self) -> None:
        """Look at all of the next call, whatever it is: a recording was given up."""
        self._patterns, self._latest = [], None

    def _note_key(self, key: Signature) -> None:
        """Remember the signatures of the last two calls that differ in it."""
        if key != self._last_key:
            self._last_key, self._before = key, self._last_key

    def _remember(self, entry: CallEntry, arguments: dict[str, Any], given: int) -> None:
        """Know calls that are like this one again: `given` arguments by position, and the defaults of others."""
        marks = marks_of(self._signature.parameters, arguments, given, params_of(entry.key))
        if marks is None:
            return
        cells = []
        for variable in self._variables(arguments):
            content = variable.content
            mark = (pattern_of if self._is_compared(variable, content) else pattern_by_identity)(content)
            if mark is None:
                return
            cells.append((variable.cell, mark))
        like = CallPattern(entry, marks, cells)
        with self._lock:
            if self._entries.get(entry.key) is entry:
                self._patterns = [like, *self._patterns[: KEPT - 1]]

    # -- signatures --------------------------------------------------------------------------------------------

    def _context_of(self, arguments: dict[str, Any]) -> Any:
        contents = [variable.content for variable in self._variables(arguments)]
        for values in (list(arguments.values()), contents):
            for handle in data_in(values):
                context = handle.core.engine.context()
                if context is None:
                    raise ContextClosedError(f"the context of {handle.core.describe()} is gone; keep a reference to it")
                return context
            for value in values:
                if isinstance(value, ContextCore):
                    return value
        raise TypeError(
            f"'{self._name}' was called without logical data, so its context is unknown; pass some, or the context"
        )

    def _key(self, context: Any, arguments: dict[str, Any]) -> Signature:
        place = exec_place_of(context.engine, wanted(context, None))
        parts = [SignaturePart("context", id(context.engine)), SignaturePart("default place", place)]
        parts += [self._numbers.part_of(name, value) for name, value in arguments.items()]
        for variable in self._variables(arguments):
            content = variable.content
            key = key_of(content) if self._is_compared(variable, content) else (type(content), Itself(content))
            parts.append(SignaturePart(cell_name(variable), *key))
        return tuple(parts)

    def _variables(self, arguments: dict[str, Any]) -> list[Variable]:
        """Return what the function, and those among its arguments, know beside those."""
        return self._look_around(arguments)[0]

    def _look_around(self, arguments: dict[str, Any]) -> tuple[list[Variable], Reached]:
        """Return the same, and what is reached by names; once a call, whose arguments these are."""
        around = self._around
        if around is None or around[0] is not arguments:
            given = [(f"{name}.", value) for name, value in arguments.items() if is_function(value)]
            reached = Reached([("", self._fn, arguments), *((way, value, {}) for way, value in given)])
            named = self._met | reached.variables
            around = arguments, [*variables_of([("", self._fn), *given]), *named.values()], reached
            self._around = around
        return around[1:]

    def _is_compared(self, variable: Variable, content: Any) -> bool:
        """Return whether what a variable of the closure contains is part of the signature, and not just what it is."""
        return (variable.is_watched and variable.name not in self._changed) or not is_container(content)

    def _entry_for(self, context: Any, arguments: dict[str, Any]) -> CallEntry:
        """Return what is known of the calls with the signature of this one."""
        with self._lock:
            self._numbers.see(arguments)
            key = self._key(context, arguments)
            self._latest = None
            entry = self._entries.get(key)
            if entry is not None and entry.context() is not context:
                self._drop([entry])  # of a context that is gone; this one has its address
                entry = None
            if entry is None:
                self._forget_finalized()
                entry = self._entries[key] = self._new_entry(key, context)
                known = [*arguments.items(), *((each.name, each.content) for each in self._variables(arguments))]
                kinds = (Iterator, *random_kinds())  # each use makes something else of these
                changing = next((name for name, value in known if isinstance(value, kinds)), None)
                if changing is not None:
                    entry.is_plain = True
                    entry.reason = f"not recorded, since '{changing}' is another one after each use"
                else:
                    self._look_at_world(context, entry, self._look_around(arguments)[1])
            else:
                self._use(entry)
            self._note_key(key)
            given_up = self._given_up_for(entry)
        for graph in given_up:
            graph.close()
        return entry

    def _look_at_world(self, context: Any, entry: CallEntry, reached: Reached) -> None:
        """Let calls run as they are that read the time, the environment or random state; say so once."""
        world = reached.world or (reached.world_of_bodies if context.on_cuda else None)
        if world is None:
            return
        entry.is_plain, entry.reason = True, f"not recorded, since it reads {world}"
        if not self._has_logged:
            self._has_logged = True
            log.warning(
                "'%s' is not replayed, since it reads %s, which is another one in each call; pass what it gives as an "
                "argument",
                self._name,
                world,
            )

    def _use(self, entry: CallEntry) -> None:
        """Let an entry be the one that was used last."""
        self._entries.pop(entry.key, None)
        self._entries[entry.key] = entry

    def _new_entry(self, key: Signature, context: Any) -> CallEntry:
        """Return what is known of calls whose signature is new; those that it covers count as earlier ones."""
        self._new += 1
        if self._new == KEPT + 1 and not self._recordings:
            what = f"called {self._new} times with something new, so nothing is replayed"
            self._warn(what, differences(self._last_key, key))
        return CallEntry(key, context, sum(known.calls for known in self._entries.values() if covers(key, known.key)))

    def _warn(self, what: str, changed: str) -> None:
        """Say that calls are not alike, and what to do."""
        text = "'%s' was %s; what changed last: %s. Pass numbers that change as arguments, and the same data"
        log.warning(text, self._name, what, changed)

    def _given_up_for(self, used: CallEntry) -> list[TaskGraph]:
        """Forget what was used the longest ago, where there is too much; return the graphs of that."""
        recorded = [entry for entry in self._entries.values() if entry.graph is not None]
        oldest = recorded[: max(len(recorded) - KEPT, 0)]
        oldest += list(self._entries.values())[: max(len(self._entries) - KNOWN, 0)]
        graphs = self._drop([entry for entry in oldest if entry is not used])
        self._given_up += len(graphs)
        return graphs

    def _drop(self, entries: Iterable[CallEntry]) -> list[TaskGraph]:
        """Forget what is known of calls; return the graphs of that, to be closed where nothing is locked."""
        known = [entry for entry in entries if self._entries.pop(entry.key, None) is not None]
        graphs = [graph for entry in known if (graph := entry.graph) is not None]
        if graphs:
            self._forget_patterns()
        return graphs

    def make_room(self, engine: Any) -> bool:
        """Give up the recording of a context that was used the longest ago, for its memory; False if there is none."""
        with self._lock:
            known = [entry for entry in self._known_in(engine) if entry not in self._compared]
            graphs = self._drop([entry for entry in known if entry.graph is not None][:1])
            if not graphs:
                return False
            self._given_up += 1
            self._rests_until = time.monotonic() + REST_S
        graphs[0].close()
        log.debug("%s: a recording was given up, since memory ran out", self._name)
        return True

    def end(self, engine: Any) -> None:
        """Let go of what was recorded in a context that is over."""
        with self._lock:
            for entry in self._known_in(engine):
                entry.end()
            self._forget_patterns()

    def _known_in(self, engine: Any) -> list[CallEntry]:
        """Return what is known of calls in a context; what was used the longest ago first."""
        contexts = [(entry, entry.context()) for entry in self._entries.values()]
        return [entry for entry, context in contexts if context is not None and context.engine is engine]

    def give_up(self, engine: Any, data: Any, rests: bool = True) -> None:
        """Give up the recordings of a context that use a data, which is to be moved; record nothing for a while."""
        with self._lock:
            graphs = self._drop([entry for entry in self._entries.values() if self._uses(entry, engine, data)])
            self._given_up += len(graphs)
            if graphs and rests:
                self._rests_until = time.monotonic() + REST_S
        for graph in graphs:
            graph.close()

    @staticmethod
    def _uses(entry: CallEntry, engine: Any, data: Any) -> bool:
        graph = entry.graph
        recording = None if graph is None else graph._recording  # None: closed just now
        return recording is not None and recording.engine is engine and any(item is data for item in recording.touched)

    def _kept_of(self, context: Any, arguments: dict[str, Any]) -> list[Any]:
        """Return what kernels of a recording may work on besides data."""
        values = [*arguments.values(), *(variable.content for variable in self._variables(arguments))]
        return [value for value in values if value is not context and next(data_in([value]), None) is None]

    def _forget_finalized(self) -> None:
        """Forget what was recorded in contexts that are over."""
        contexts = [(entry, entry.context()) for entry in self._entries.values()]
        self._drop([entry for entry, context in contexts if context is None or context.engine.closed is not None])

    def _must_know(self, entry: CallEntry, names: Iterable[str]) -> bool:
        """Let numbers be part of the signature, as the function needs their values; False if none is a parameter."""
        with self._lock:
            needed = params_of(entry.key) & set(names)
            if not needed:
                return False
            self._numbers.are_needed(needed)
            self._entries.pop(entry.key, None)
            self._forget_patterns()
        log.debug("%s: the values of %s shape the graph", self._name, sorted(needed))
        return True

    def _note_changed_cells(self, context: Any, entry: CallEntry, arguments: dict[str, Any]) -> None:
        """Compare no containers in the closure that the function has changed itself."""
        if self._entries.get(entry.key) is not entry:
            return
        before: dict[str, list[Any]] = {}  # some of several functions have the same name
        for part in entry.key:
            before.setdefault(part.name, []).append(part[1:3])
        changed, graph = set(), None
        for variable in self._variables(arguments):
            content = variable.content
            if not self._is_compared(variable, content) or key_of(content) in before.get(cell_name(variable), ()):
                continue
            if is_container(content):
                changed.add(variable.name)
                continue
            with self._lock:
                entry.is_plain, entry.reason = True, f"not recorded, since it changes '{variable.name}' of its closure"
                graph, entry.graph = entry.graph, None
                self._forget_patterns()
        if graph is not None:
            graph.close()
        if changed:
            with self._lock:
                self._changed |= changed
                self._name_anew(context, entry, arguments)

    def _name_anew(self, context: Any, entry: CallEntry, arguments: dict[str, Any]) -> None:
        """Let an entry have the signature of what is compared by now, with the parameters that it has."""
        count = 2 + len(arguments)  # context and place come first
        self._entries.pop(entry.key, None)
        entry.key = entry.key[:count] + self._key(context, arguments)[count:]
        self._entries[entry.key] = entry
        self._forget_patterns()

    # -- recording ---------------------------------------------------------------------------------------------

    def _record(self, context: Any, entry: CallEntry, bound: inspect.BoundArguments) -> Any:
        """Record the call, and launch it."""
        first_data = context.engine.next_data
        executed = Executed()
        try:
            graph, result = self._recorded(context, entry, bound, executed)
        except (ValueNeededError, ContextClosedError):
            raise
        except (TurnError, OutOfMemoryError) as error:  # a plain call may need less memory, and nobody's turn
            self._rests_until = time.monotonic() + REST_S
            entry.reason = f"not recorded yet: {error}"
            return self._fn(*bound.args, **bound.kwargs)
        except NotComputedError as error:
            entry.reason = f"not recorded yet: {error}"
            return self._fn(*bound.args, **bound.kwargs)
        except OutsideError as error:
            entry.is_plain, entry.reason = True, f"not recorded: {error}"
            return self._fn(*bound.args, **bound.kwargs)
        except Exception as error:
            entry.reason = f"not recorded, since it raised {type(error).__name__}: {error}"
            raise
        with self._lock:
            mine = entry.graph is None  # else another thread has recorded it meanwhile
            if mine:
                self._recordings += 1
                entry.graph, entry.result, entry.first_data = graph, result, first_data
                self._learn(context, entry, bound.arguments, executed)
                entry.kept = self._kept_of(context, bound.arguments)
                entry.reason = f"recorded: {graph.nodes} nodes"
                recording = graph._recording
                others = [known for known in self._entries.values() if known is not entry]
                graphs = self._drop([known for known in others if covers(entry.key, known.key)])
                graphs += self._given_up_for(entry)
            else:
                graphs, graph = [graph], entry.graph or graph
        if mine:
            recording_caches.add(context.engine, self, recording)
        for other in graphs:
            other.close()
        if mine and self._recordings == KEPT + 1:
            self._warn(f"recorded {self._recordings} times", differences(self._before, self._last_key))
        try:
            return self._replay(context, entry, graph, bound, None)
        finally:
            if entry.is_plain and mine:
                entry.graph = None
                graph.close()

    def _learn(self, context: Any, entry: CallEntry, arguments: dict[str, Any], executed: Executed) -> None:
        """Compare, from now on, what the functions read by names that ran in a recording, and the bodies in it."""
        reached = self._look_around(arguments)[1]
        before = reached.variables
        reached.learn(executed.functions(), executed.submitted)
        self._met.update({mark: one for mark, one in reached.variables.items() if mark not in before})
        self._around = None
        self._look_at_world(context, entry, reached)
        if not executed.is_whole or len(self._met) > MOST_MET:
            entry.is_plain, entry.reason = True, "not recorded, since it reads too many names to compare at each call"
            self._met.clear()
        self._name_anew(context, entry, arguments)

    def _recorded(
        self, context: Any, entry: CallEntry, bound: inspect.BoundArguments, executed: Executed
    ) -> tuple[TaskGraph, Any]:
        """Record the call, with parameters for some numbers; ValueNeededError if the function needs theirs.

        What is `executed` meanwhile is noted.
        """
        graph = context.task_graph(self._name, backend=self._backend)
        graph._patience = PATIENCE_S
        params = {name: graph.param(name, value) for name, value in given_in(entry.key, bound.arguments).items()}
        for param in params.values():
            param.is_optional = True
        call = self._signature.bind_partial()
        call.arguments.update({**bound.arguments, **params})
        try:
            with graph:
                context.engine.scope.submitted = executed.submitted
                with executed:
                    result = self._fn(*call.args, **call.kwargs)
                refuse_reachable(result)
        except Exception as error:
            if not isinstance(error, TaskStateError):
                raise_if_needed(params, error)
            raise_if_spoilt(params)
            raise
        try:
            raise_if_needed(params, None)
            raise_if_spoilt(params)
        except (ValueNeededError, NotComputedError):
            graph.close()
            raise
        return graph, returned_data.kept(result, graph._recording.touched)

    def _compare(self, context: Any, entry: CallEntry, recorded: TaskGraph, bound: inspect.BoundArguments) -> TaskGraph:
        """Record again, see that it is the same (STF_VALIDATE), and return what is to be launched.

        That is the new recording: if the function keeps data that it makes in an object, these are there now.
        """
        first_data = context.engine.next_data
        self._compared.append(entry)  # whose memory nobody takes meanwhile
        try:
            graph, result = self._recorded(context, entry, bound, Executed())
        except (TurnError, OutOfMemoryError, NotComputedError):
            return recorded  # another thread records, or has a task open; there is no room for two; it will run plainly
        finally:
            self._compared.remove(entry)
        spare = graph
        try:
            found = recording_diff.difference(recorded, entry.first_data, graph, first_data)
            if found is not None:
                raise TaskStateError(
                    f"'{self._name}' submits other tasks than when it was recorded: {found}; it depends on something "
                    "that is no argument: pass that, or name it static"
                )
            with self._lock:
                if entry.graph is recorded:  # else another thread has given it up, or compared it, meanwhile
                    spare = recorded
                    entry.launched += recorded.launches
                    entry.graph, entry.result, entry.first_data = graph, result, first_data
                    recording_caches.add(context.engine, self, graph._recording)
        finally:
            spare.close()
        return entry.graph or recorded

    # -- telling -----------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Say what was recorded, how often it was replayed, and why calls were not."""
        recordings = f"{self._recordings} recordings" + (f", {self._given_up} given up" if self._given_up else "")
        lines = [f"{self._name}: {recordings}, {len(self._entries)} signatures known"]
        if self._numbers.params:
            lines.append(f"  parameters: {', '.join(sorted(self._numbers.params))}")
        if self._numbers.static:
            lines.append(f"  values that shape the graph: {', '.join(sorted(self._numbers.static))}")
        if self._before is not None:
            lines.append(f"  what changed last: {differences(self._before, self._last_key)}")
        if not self._recordings and len(self._entries) > 2:
            lines.append("  no two calls were alike: pass numbers that change as arguments, and the same data")
        places = {entry.key[1].kind for entry in self._entries.values()}
        described: dict[str, int] = {}
        for entry in self._entries.values():
            launched = entry.launched + (0 if entry.graph is None else entry.graph.launches)
            given = ", ".join(part.describe() for part in entry.key[2:] if part.is_described)
            where = f" on {entry.key[1].kind!r}" if len(places) > 1 else ""
            reason = entry.reason
            if entry.graph is None and not entry.is_plain and time.monotonic() < self._rests_until:
                reason = f"{reason}, but not within a second of one that was given up, or had no room or turn"
            parts = [f"  {given}{where}: {entry.calls} calls, {reason}, launched {launched} times"]
            if entry.graph is not None and entry.graph._recording is not None:
                parts += [f"    {text}" for text in entry.graph.how_launched()]
            text = "\n".join(parts)
            described[text] = described.get(text, 0) + 1
        lines += [text if count == 1 else f"{text} (and {count - 1} more like it)" for text, count in described.items()]
        return "\n".join(lines)

    def close(self) -> None:
        """Give up what was recorded; the function records again when it is called again."""
        with self._lock:
            graphs = self._drop(list(self._entries.values()))
        for graph in graphs:
            graph.close()

    def __dir__(self) -> list[str]:
        return ["close", "explain"]

    @never_raises
    def _repr_html_(self) -> str | None:
        return lines_html(self.explain())

    def __repr__(self) -> str:
        return f"<{self._decorator} {self._name}>"


def cell_name(variable: Variable) -> str:
    """Return what a variable of a closure, or a name, is called in a signature."""
    return variable.name if isinstance(variable.cell, Path) else f"{variable.name} (closure)"


def raise_if_needed(params: dict[str, Param], error: Exception | None) -> None:
    """Raise ValueNeededError if a recording asked for values of parameters, or failed on what may be no number."""
    needed = {name for name, param in params.items() if param.is_needed}
    if not needed and error is not None and params and blames_types(error):
        needed = set(params)
    if needed and not (isinstance(error, ValueNeededError) and error.names <= needed):
        raise ValueNeededError(f"the values of {', '.join(sorted(needed))} were needed", needed) from error


def raise_if_spoilt(params: dict[str, Param]) -> None:
    """Raise NotComputedError if the recording met an error that other values would not give."""
    spoilt = [f"{name} = {param.default!r}" for name, param in params.items() if param.is_spoilt]
    if spoilt:
        raise NotComputedError(f"something could not be computed with {', '.join(spoilt)}")


def blames_types(error: BaseException | None) -> bool:
    """Return whether an error, or what it came from, says that an object is not of the kind that it should be."""
    while error is not None:
        if isinstance(error, (TypeError, AttributeError)) and not isinstance(error, CaptureError):
            return True
        error = error.__cause__ or error.__context__
    return False
