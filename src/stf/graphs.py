"""Graphs: tasks that are recorded once and launched many times, and loops and branches of them."""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from stf import options
from stf._engine import claims, playing
from stf._engine.access import DataHandle
from stf._engine.rebinding import Rebinding
from stf._engine.routines import Branch, Flag, Repeat, While
from stf.composite import in_arrays
from stf.conditions import Condition, is_operand
from stf.epochs import GraphScope
from stf.errors import CaptureError, ContextClosedError, GraphClosedError, TaskStateError
from stf.launches import GraphCore, submit_routine
from stf.params import Param
from stf.places import DataPlace
from stf.recorders import RecordingBuilder

if TYPE_CHECKING:
    from stf.contexts import Context
    from stf.data import LogicalData

__all__ = ["TaskGraph"]


class Graphs:
    """What of a context records."""

    __slots__ = ()

    engine: Any
    _must_be_open: Any
    _graphs: Any

    def _as_context(self) -> Context:
        return cast("Context", self)

    def graph_scope(self) -> GraphScope:
        """Return a with-block whose tasks become one graph, launched once, at its end.

        It may stand in any context. If its body raises, nothing of it is run, and no data are poisoned. Inside of a
        loop, a branch, a graph that is recorded, or another graph_scope, it is a part of that, and runs if that does;
        a body that raises takes back its own part alone. What waits (``wait``, ``synchronize``, ``fence``) is refused
        inside. What cannot be recorded and is done where it stands (with-blocks on a CPU, ``freeze``, ``release``,
        splitting) launches what came before it, and so does want of memory: that has run then, whatever raises later.
        """
        return GraphScope(self._as_context())

    def task_graph(self, name: str | None = None, *, symbol: str | None = None) -> TaskGraph:
        """Return a graph to record once and launch many times.

        ``with g:`` records, and runs nothing; ``g.launch()`` runs it, ordered with all other tasks by its data.

        Parameters
        ----------
        name, symbol : str, optional
            What pictures and messages call its launches.
        """
        self._must_be_open()
        return TaskGraph(cast("Context", self), options.name_of(name, symbol) or "graph")

    def repeat(self, count: int) -> RepeatBlock:
        """Return a with-block whose tasks are recorded and run `count` times.

        Raises
        ------
        TypeError, ValueError
            `count` is no integer, or negative.
        """
        self._must_be_open()
        return RepeatBlock(self._as_context(), options.count_of(count))

    def while_loop(self, condition: Condition | None = None, *, max_iterations: int | None = None) -> Loop:
        """Return a with-block whose tasks are recorded, and run as long as a condition holds.

        Parameters
        ----------
        condition : Condition, optional
            Such as ``residual > tol``: tested before each iteration, the first too. Without, the body runs once, and
            then as long as what it passes to ``loop.continue_while`` holds.
        max_iterations : int, optional
            Stop after so many.
        """
        self._must_be_open()
        limit = None if max_iterations is None else options.count_of(max_iterations)
        tested = None if condition is None else must_be_condition(condition, "while_loop")
        return Loop(self._as_context(), tested, limit)

    def if_(self, condition: Condition) -> BranchBlock:
        """Return a with-block whose tasks are recorded, and run if a condition holds when they are reached.

        ``with ctx.if_(c) as br:``, and behind it, perhaps, ``with br.else_():``, which goes by what was found there.
        """
        self._must_be_open()
        return BranchBlock(self._as_context(), must_be_condition(condition, "if_"))


def must_be_condition(condition: Any, who: str) -> Condition:
    """A condition, or scalar data of truth values; else TypeError."""
    if isinstance(condition, DataHandle) and is_operand(condition) and condition.core.layout.dtype == np.bool_:
        return Condition(operator.ne, condition, False)
    if not isinstance(condition, Condition):
        hint = "; == and != compare objects: use stf.equal(a, b), ~stf.equal(a, b)"
        raise TypeError(
            f"{who} takes a condition of logical data, such as residual > tol, or a scalar of dtype bool, got "
            f"{condition!r}{hint if isinstance(condition, bool) else ''}"
        )
    return condition


def recorded_in(engine: Any) -> Any:
    """The recording that tasks become a part of which runs again and again, or may not run; None if there is none."""
    scope = engine.scope
    return None if scope is None or scope.once or scope.thread != threading.get_ident() else scope


# -- graphs by hand ------------------------------------------------------------------------------------------------


class TaskGraph(GraphCore):
    """Tasks that were recorded, to be launched many times; made by `Context.task_graph`.

    Attributes
    ----------
    name : str
        What its launches are called.
    launches : int
        How often it was launched.
    """

    def __init__(self, context: Context, name: str) -> None:
        super().__init__(name, weakref.ref(context))
        self._recorder: RecordingBuilder | None = None
        self._closed = False
        self._patience: float | None = None  # if others wait for its recording: how many seconds it waits for them
        context._graphs[id(self)] = weakref.ref(self)

    def param(self, name: str, default: Any) -> Param:
        """Return a value that tasks take when they are recorded, and that each launch may give anew.

        Raises
        ------
        ValueError
            There is one of that name.
        TaskStateError
            The graph was recorded already.
        """
        if self._recording is not None:
            raise TaskStateError(f"graph '{self.name}' is recorded; its parameters are made before, or while, it is")
        self._must_not_be_closed()
        self._context._must_be_open()
        if not isinstance(name, str):
            raise TypeError(f"a parameter of a graph has a name, got {name!r}; g.launch(name=value) gives it a value")
        if name in self._params:
            raise ValueError(f"graph '{self.name}' has a parameter '{name}' already")
        param = self._params[name] = Param(name, default, weakref.ref(self))
        return param

    def __enter__(self) -> TaskGraph:
        if self._closed:
            self._must_not_be_closed()
        if self._recording is not None:
            raise TaskStateError(f"graph '{self.name}' is recorded already; make another one with ctx.task_graph()")
        context = self._context_ref() or self._context
        context._must_be_open()
        recorder = RecordingBuilder(context, f"graph '{self.name}'")
        recorder.launch_before()
        story = claims.recorded_story(context.engine, threading.get_ident())
        if story is not None:
            raise TaskStateError(
                f"graph '{self.name}' cannot be recorded inside of {story}; record it before, and launch it there"
            )
        try:
            recorder.open(self._patience is not None, self._patience)
            self._recorder, self._made_before = recorder, list(self._params)
        except BaseException:
            recorder.leave()
            raise
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        try:
            if error is None:
                self._recording = recorder.close()
                if self._params:
                    self._in_kernels = [number for param in self._params.values() for number in param.in_kernels]
                    self._derived = list({id(one): one for one in self._take_derived()}.values())
            else:
                recorder.discard()
                self._params = {name: self._params[name] for name in self._made_before}  # it may be recorded again
                self._take_derived()
        finally:
            self._recorder = None
            recorder.leave()

    def _take_derived(self) -> list[Any]:
        """What was computed from the parameters for no kernel; they know it no more, which would be a circle."""
        known = {id(number) for number in self._in_kernels}
        found = [one for param in self._params.values() for one in param.derived if id(one) not in known]
        for param in self._params.values():
            param.derived = []
        return found

    def _must_know(self, names: Iterable[str]) -> None:
        """Raise TypeError unless these are parameters."""
        for name in names:
            if name not in self._params:
                known = ", ".join(self._params) or "none"
                raise TypeError(f"graph '{self.name}' has no parameter '{name}'; it has {known}")

    def _launch_with_other(
        self, data: Mapping[LogicalData, LogicalData], context: Context, values: dict[str, Any]
    ) -> None:
        """Launch with other data than those that were recorded."""
        if not isinstance(data, Mapping):
            raise TypeError(
                f"graph '{self.name}' takes a mapping of recorded data to others, as in g.launch({{lX: lY}}), got "
                f"{type(data).__name__}; parameters are given by name"
            )
        rebinding = self._rebinding(data)
        try:
            self.launch_rebound(context, values, rebinding)
        finally:
            rebinding.release(context.engine)

    @property
    def _context(self) -> Context:
        context = self._context_ref()
        if context is None:
            raise ContextClosedError(f"the context of graph '{self.name}' is gone; keep a reference to it")
        return context

    @property
    def nodes(self) -> int:
        """How many nodes it has."""
        return 0 if self._recording is None else int(self._recording.program.count)

    def _rebinding(self, data: Mapping[LogicalData, LogicalData]) -> Rebinding:
        """What a launch with other data needs, if they can stand for those that were recorded."""
        context = self._context
        story = claims.recorded_story(context.engine, threading.get_ident())
        if story is not None:
            raise CaptureError(
                f"graph '{self.name}' cannot be launched with other data inside of {story}; launch it before or after"
            )
        if self._recording.holders:
            raise CaptureError(f"graph '{self.name}' is part of another one, which has its memory; record it once more")
        cores: dict[int, Any] = {}
        given: dict[int, Any] = {}
        pairs, wholes = in_arrays(data)
        for old, new in pairs:
            for handle in (old, new):
                context._check_mine(handle)
            one, other = old.core, new.core
            if given.setdefault(one.id, other) is not other:
                raise ValueError(
                    f"{one.describe()} is part of several data that others stand for, and these differ in it; give "
                    "others that have it in common too"
                )
            if one is other:
                continue
            if one.token != other.token or (
                not one.token and (one.layout.shape, one.layout.dtype) != (other.layout.shape, other.layout.dtype)
            ):
                raise ValueError(
                    f"{other.describe()} cannot stand for {one.describe()}: give data of the same shape and dtype"
                )
            if not any(use.data is one for use in self._recording.uses):
                raise ValueError(f"{one.describe()} is not used by graph '{self.name}'")
            cores[one.id] = other
        if len({id(core) for core in cores.values()}) < len(cores):
            raise ValueError(
                f"graph '{self.name}' was given the same data twice; different data stand for different ones"
            )
        rebinding = Rebinding(cores, wholes)
        rebinding.must_suit(self._recording)
        return rebinding

    @property
    def handle(self) -> int:
        """The address of a CUDA graph (CUgraph) that does what a launch does with default values, while this lives.

        To look at (``cuGraphDebugDotPrint``), to instantiate, or to make a child of a graph of yours. stf knows nothing
        of launches that are not its own: nothing else may use the data meanwhile, and each must be where the first task
        that uses it is, since only a launch of stf's brings it there. So where tasks at several places use the same
        data, launch the graph with `launch`.

        Tasks on the host are host nodes of it. Their bodies may use Python and NumPy but no CUDA, which refuses its
        calls there; those that `launch` runs may. What they raise is told by the context, as ever, or given to
        ``sys.unraisablehook`` once it is finalized; the rest of such a launch cannot be skipped.

        Raises
        ------
        TaskStateError
            Nothing was recorded, or the graph is closed.
        CaptureError
            It is not one CUDA graph; the message says why.
        """
        self._must_be_recorded()
        context, graph = self._context, self._recording.graph
        context._must_be_open()
        try:
            launch = playing.make_launch(context.engine, context.make_launch_at(self.name), None)
            return int(graph.export(launch, self._recording).handle)
        except CaptureError as reason:
            raise CaptureError(f"graph '{self.name}' is no CUDA graph: {reason}") from None

    def _must_be_recorded(self) -> None:
        if self._recording is None:
            self._must_not_be_closed()
            raise TaskStateError(f"graph '{self.name}' is not recorded; submit its tasks inside of `with g:` first")

    def _must_not_be_closed(self) -> None:
        if self._closed:
            context = self._context_ref()
            if context is not None:
                context._must_be_open()
            raise GraphClosedError(f"graph '{self.name}' is closed; record a new one with ctx.task_graph()")

    def close(self) -> None:
        """Give its memory up; launches that were submitted go on. Closing it again does nothing."""
        if self._recorder is not None:
            raise TaskStateError(f"graph '{self.name}' is being recorded; close it afterwards")
        self._closed = True
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.close()

    def __del__(self) -> None:
        reference = getattr(self, "_context_ref", None)
        context = None if reference is None else reference()
        if context is not None:
            context._graphs.pop(id(self), None)
        recording = getattr(self, "_recording", None)
        if recording is not None:  # a finalizer does nothing but say so
            recording.engine.dropped.append(recording)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "empty" if self._recording is None else f"{self.nodes} nodes"
        return f"<stf.TaskGraph '{self.name}', {state}, launched {self.launches} times>"


def close_graphs(graphs: dict[int, weakref.ref[TaskGraph]]) -> None:
    """For a context that ends."""
    for reference in list(graphs.values()):
        graph = reference()
        if graph is None:
            continue
        if graph._recorder is not None:
            graph._recorder.discard()
            graph._recorder = None
        graph.close()


# -- loops and branches --------------------------------------------------------------------------------------------


class Block:
    """A with-block that records its body.

    `_start` is the recording that sets `_counter`, with which a device counts what it does; None elsewhere.
    """

    def __init__(self, context: Context, story: str) -> None:
        self._context = context
        self._recorder = RecordingBuilder(context, story)
        self._start: Any = None
        self._counter: Any = None
        self._counted: Any = None  # its home, when the context is finalized

    def _begin(self) -> None:
        self._context._must_be_open()
        self._recorder.open()

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._recorder.discard()
            raise
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if error is not None:
                self._recorder.discard()
                self._forget()
            elif self._recorder.scope is not None:
                self._end()
        finally:
            self._recorder.leave()

    def _open(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError

    def _forget(self) -> None:
        """Give up what was recorded before a body that raised."""
        if self._start is not None:
            self._start.close()

    def _record_start(self, value: int) -> None:
        """Record what sets the counter, where a device can count."""
        context = self._context
        if context.engine.port_enqueues(max(context.current_place_code(), 0)):
            self._counted = np.zeros((), np.uint64)
            self._counter = context.logical_data(self._counted, name="iterations")
            self._counter.core.private = True
            self._start = self._record(lambda: context.fill(self._counter, value))

    def _record(self, submit: Callable[[], None]) -> Any:
        """Return the recording of what `submit` submits."""
        self._begin()
        try:
            submit()
        except BaseException:
            self._recorder.discard()
            self._forget()
            raise
        return self._recorder.close()

    @property
    def _count_core(self) -> Any:
        return None if self._counter is None else self._counter.core

    def _finish(self, routine: Any, name: str) -> None:
        """Submit; who runs it holds it then."""
        try:
            submit_routine(self._context, routine, name)
        finally:
            routine.close()


class RepeatBlock(Block):
    """What ``with ctx.repeat(n):`` records."""

    def __init__(self, context: Context, count: int) -> None:
        super().__init__(context, "repeat")
        self._count = count

    def _open(self) -> None:
        self._record_start(0)
        self._begin()

    def _end(self) -> None:
        body = self._recorder.close(needed={})
        if self._count == 0:  # so that nothing is written
            body.close()
            self._forget()
            return
        self._finish(Repeat(body, self._count, self._start, self._count_core), "repeat")


class Tested(Block):
    """A with-block with a condition, which is computed into a flag that the host reads.

    `_test` is the recording that computes the flag; None where the body itself does.
    """

    def __init__(self, context: Context, story: str) -> None:
        super().__init__(context, story)
        self._flag: Any = None
        self._test: Any = None

    def _enter(self, compute: Callable[[], None] | None) -> None:
        """Record what tests, then the body."""
        if self._flag is None:
            self._flag = self._context.logical_data_empty((), np.bool_, name="condition")
            self._flag.core.private = True
        if compute is not None:
            self._test = self._record(compute)
        try:
            self._begin()
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        super()._forget()
        if self._test is not None:
            self._test.close()

    def _close_body(self) -> Any:
        """The recording of the body, after which all is again where it, and the test, need it."""
        needed = {} if self._test is None else {use.data.id: use.entries for use in self._test.uses}
        try:
            return self._recorder.close(needed=needed)
        except BaseException:
            self._forget()
            raise

    def _compute(self, condition: Condition) -> None:
        """Submit what computes the flag, and brings it to the host."""
        condition.submit(self._context, self._flag)
        self._bring_flag()

    def _bring_flag(self) -> None:
        """Let the host have the flag, if it is there to decide."""
        if not self._context.engine.root.captured:
            self._context.prefetch(self._flag, DataPlace("host"))

    def _holds(self) -> bool:
        """Read the flag, which is on the host now."""
        from stf.data import view_for_host

        replicas = self._flag.core.version.replicas
        return bool(view_for_host(next(replica for replica in replicas if replica.place == 0), None))

    def _as_flag(self) -> Flag:
        return Flag(self._flag.core, self._holds)


class Loop(Tested):
    """What ``with ctx.while_loop(condition) as loop:`` records."""

    def __init__(self, context: Context, condition: Condition | None, limit: int | None) -> None:
        super().__init__(context, "while_loop")
        self._condition = condition
        self._limit = limit
        self._continued = False
        self._iterations: int | None = 0  # None: the device has counted them

    @property
    def iterations(self) -> int:
        """How often the body ran, in the last run that is over.

        Raises
        ------
        TaskStateError
            Tasks are being recorded, which may be those of the loop: nothing of them has run yet.
        """
        story = claims.recorded_story(self._context.engine, threading.get_ident())
        if story is not None:
            raise TaskStateError(
                f"iterations of a while_loop inside of {story}: nothing that is recorded has run yet; read them before "
                "it or after, and use ctx.if_ or ctx.while_loop where the program depends on data"
            )
        if self._iterations is not None:
            return self._iterations
        return int(self._counted if self._context.engine.closed is not None else self._counter)

    def _open(self) -> None:
        self._record_start(0 if self._condition is not None else 1)
        condition = self._condition
        self._continued = False
        self._enter(None if condition is None else lambda: self._compute(condition))

    def continue_while(self, condition: Condition) -> None:
        """Say, once in the body of a loop without a condition, when it goes on.

        Raises
        ------
        TaskStateError
            The loop has a condition, or it was said already, or the loop is over; or it is said in a block inside of
            the body, which may not run.
        """
        scope = self._recorder.scope
        if self._condition is not None or self._continued or scope is None:
            raise TaskStateError("continue_while is called exactly once, in the body of a while_loop without condition")
        if self._context.engine.scope is not scope:
            raise TaskStateError(
                f"continue_while inside of {self._context.engine.scope.story}, which may not run each time; say it in "
                "the body of the while_loop itself, of data that the block inside writes"
            )
        self._compute(must_be_condition(condition, "continue_while"))
        self._continued = True

    def _end(self) -> None:
        if self._condition is None and not self._continued:
            self._recorder.discard()
            self._forget()
            raise TaskStateError("a while_loop without condition calls loop.continue_while(condition) in its body")
        body = self._close_body()
        flag, start, counter = self._as_flag(), self._start, self._count_core
        self._finish(While(self._test, body, flag, self._limit, self._count, start, counter), "while_loop")

    def _count(self, iterations: int | None) -> None:
        self._iterations = iterations


class BranchBlock(Tested):
    """What ``with ctx.if_(condition) as br:`` records; ``with br.else_():`` may come behind it."""

    def __init__(self, context: Context, condition: Condition) -> None:
        super().__init__(context, "if_")
        self._condition = condition
        self._is_over = False
        self._around: Any = None  # the recording that it is a part of

    def _open(self) -> None:
        self._around = recorded_in(self._context.engine)
        self._enter(lambda: self._compute(self._condition))

    def _end(self) -> None:
        body = self._close_body()
        self._finish(Branch(self._test, body, self._as_flag(), True), "if_")
        self._is_over = True

    def else_(self) -> ElseBlock:
        """Return a with-block whose tasks run if the condition did not hold when the block of ``if_`` was reached.

        Raises
        ------
        TaskStateError
            The block of ``if_`` has not ended yet, or raised, or has an ``else_`` already.
        """
        if not self._is_over or self._around is not recorded_in(self._context.engine):
            raise TaskStateError(
                "else_ comes behind the block of ctx.if_, once, in the same recording, and not if that raised"
            )
        self._is_over = False
        return ElseBlock(self._context, self._flag)


class ElseBlock(Tested):
    """What ``with br.else_():`` records."""

    def __init__(self, context: Context, flag: Any) -> None:
        super().__init__(context, "else_")
        self._flag = flag

    def _open(self) -> None:
        self._enter(self._look_at_flag)

    def _look_at_flag(self) -> None:
        """Let the flag be where it is decided; on a device it is read there by a task that does no more."""
        self._bring_flag()
        if self._context.engine.root.captured:
            with self._context.task(self._flag.read(), name="else_"):
                pass

    def _end(self) -> None:
        body = self._close_body()
        self._finish(Branch(self._test, body, self._as_flag(), False), "else_")
