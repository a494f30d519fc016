"""Graphs: tasks that are recorded once and launched many times."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stf._engine import claims
from stf._engine.access import check_mine, drop
from stf._recording import playback, segments
from stf._recording.persistent import Loops
from stf._recording.rebinding import Rebinding
from stf._support import arguments
from stf._support.completion import Shown
from stf.data.composite import in_arrays
from stf.errors import CaptureError, ContextClosedError, GraphClosedError, PlaceError, TaskStateError, not_copied
from stf.graphs.blocks import BranchBlock, Loop, RepeatBlock, count_of, must_be_condition
from stf.graphs.graph_scope import GraphScope
from stf.graphs.handed_out import HandedOut
from stf.graphs.launchable import GraphCore
from stf.graphs.plan_times import PlanTimes
from stf.graphs.recorder import RecordingBuilder
from stf.observe import html
from stf.tasks.annotations import Stream
from stf.tasks.checks import must_be_open
from stf.tasks.task import ContextCore, Task
from stf.values.conditions import Condition
from stf.values.params import Param

if TYPE_CHECKING:
    from stf.data.logical_data import LogicalData

__all__ = ["TaskGraph"]


def graph_scope(context: ContextCore) -> GraphScope:
    """Return a with-block whose tasks become one graph, launched once, at its end.

    It may stand in any context. If its body raises, none of its tasks runs, and no data are poisoned. Inside of a loop,
    a branch, a graph that is recorded, or another graph_scope, it is a part of that, and runs if that does. If its body
    raises there, only its own tasks are taken back.

    Calls that wait (``wait``, ``synchronize``, ``fence``) are refused inside. With-blocks on a CPU, ``freeze``,
    ``release`` and splitting are done where they stand: the tasks before them are launched then, and stay done if the
    body raises later. The same happens when memory is short.

    Raises
    ------
    TaskStateError
        Something in it waits for results.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_empty(3)
    ...     with ctx.graph_scope():
    ...         ctx.fill(x, 1.0)
    ...         ctx.fill(x, 2.0)
    ...     print(x.numpy())
    [2. 2. 2.]
    """
    return GraphScope(context)


def task_graph(
    context: ContextCore, name: str | None = None, *, symbol: str | None = None, backend: str = "auto"
) -> TaskGraph:
    """Return a graph to record once and launch many times.

    ``with g:`` records, and runs nothing; ``g.launch()`` runs it, ordered with all other tasks by its data.

    Parameters
    ----------
    name, symbol : str, optional
        The name of its launches in pictures and messages.
    backend : str
        How a launch is done. The results are the same:

        - ``"auto"`` chooses.
        - ``"persistent"``: one loop of compiled bodies, on the workers of a CPU without Python, or on a GPU in one
          kernel whose blocks wait for each other.
        - ``"graph"``: one graph of the device's library; from the second launch on where no body was captured.
        - ``"play"``: task by task.

        What cannot be done as asked is done as by ``"auto"``; ``g.explain()`` says why.

    Raises
    ------
    TypeError
        The name is no text.
    ValueError
        There is no such backend.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_zeros(3)
    ...     g = ctx.task_graph("steps")
    ...     a = g.param("a", 1.0)
    ...     with g:
    ...         ctx.fill(x, a)
    ...     g.launch(a=4.0)
    ...     print(x.numpy(), g.launches)
    [4. 4. 4.] 1
    """
    must_be_open(context)
    return TaskGraph(context, arguments.name_of(name, symbol) or "graph", must_be_backend(backend))


BACKENDS = ("auto", "persistent", "graph", "play")


def must_be_backend(backend: Any) -> str:
    """Return by which name launches are done; ValueError if it is none."""
    if backend not in BACKENDS:
        raise ValueError(f"a graph is launched by one of {', '.join(BACKENDS)}, got backend={backend!r}")
    return str(backend)


def repeat(context: ContextCore, count: int) -> RepeatBlock:
    """Return a with-block whose tasks are recorded and run `count` times.

    Raises
    ------
    TypeError, ValueError
        `count` is no integer, or negative.
    TaskStateError
        Its body waits for results.
    CaptureError
        Its body holds a with-block of a task on a CPU.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     s = ctx.logical_data(np.array(1.0))
    ...     with ctx.repeat(5):
    ...         s.assign(2 * s)
    ...     print(ctx.wait(s))
    32.0
    """
    must_be_open(context)
    return RepeatBlock(context, count_of(count))


def while_loop(context: ContextCore, condition: Condition | None = None, *, max_iterations: int | None = None) -> Loop:
    """Return a with-block whose tasks are recorded, and run as long as a condition holds.

    Parameters
    ----------
    condition : Condition, optional
        Such as ``residual > tol``: tested before each iteration, the first too. Without, the body runs once, and
        then as long as what it passes to ``loop.continue_while`` holds.
    max_iterations : int, optional
        Stop after so many.

    Raises
    ------
    TypeError
        `condition` is no condition of scalar data, or `max_iterations` no integer.
    TaskStateError
        Its body waits for results, or does not call ``continue_while`` where there is no condition.
    CaptureError
        Its body holds a with-block of a task on a CPU.
    UninitializedDataError
        Nobody has written data of the condition.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     s = ctx.logical_data(np.array(1.0))
    ...     with ctx.while_loop(s < 100) as loop:
    ...         s.assign(2 * s)
    ...     print(ctx.wait(s), loop.iterations)
    128.0 7
    """
    must_be_open(context)
    limit = None if max_iterations is None else count_of(max_iterations)
    tested = None if condition is None else must_be_condition(condition, "while_loop")
    return Loop(context, tested, limit)


def if_(context: ContextCore, condition: Condition) -> BranchBlock:
    """Return a with-block whose tasks are recorded, and run if a condition holds when they are reached.

    ``with ctx.if_(c) as br:``, and behind it, perhaps, ``with br.else_():``, which goes by what was found there.

    Raises
    ------
    TypeError
        `condition` is no condition of scalar data.
    TaskStateError
        Its body waits for results.
    CaptureError
        Its body holds a with-block of a task on a CPU.
    UninitializedDataError
        Nobody has written data of the condition.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     s, x = ctx.logical_data(np.array(2.0)), ctx.logical_data_empty(())
    ...     with ctx.if_(s > 1) as branch:
    ...         ctx.fill(x, 10.0)
    ...     with branch.else_():
    ...         ctx.fill(x, 20.0)
    ...     print(ctx.wait(x))
    10.0
    """
    must_be_open(context)
    return BranchBlock(context, must_be_condition(condition, "if_"))


def choose(recording: Any, backend: str) -> None:
    """Let a recording be launched by a backend."""
    if backend == "auto":
        return
    recording.loops = Loops() if backend == "persistent" else None
    recording.plays = backend == "play"
    for part in recording.parts:  # loops and branches in it, which are launched as parts of it
        if not hasattr(part, "program"):
            choose(part, backend)
            for inner in part.parts:
                choose(inner, backend)


# -- graphs by hand ------------------------------------------------------------------------------------------------


_T = TypeVar("_T")


class TaskGraph(Shown, GraphCore):
    """Tasks that were recorded, to be launched many times; made by `Context.task_graph`.

    Attributes
    ----------
    name : str
        The name of its launches.
    launches : int
        How often it was launched.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_zeros(3)
    ...     g = ctx.task_graph("steps")
    ...     with g:
    ...         ctx.task(x.rw(), name="step")(lambda x: x + 1)
    ...     for _ in range(3):
    ...         g.launch()
    ...     print(x.numpy(), g.name, g.launches)
    [3. 3. 3.] steps 3
    """

    _shown = ["close", "exec_handle", "explain", "handle", "launch", "launches", "name", "nodes", "param", "stream"]

    def __init__(self, context: ContextCore, name: str, backend: str = "auto") -> None:
        super().__init__(name, weakref.ref(context))
        self._backend = backend
        self._recorder: RecordingBuilder | None = None
        self._closed = False
        self._plan_times: PlanTimes | None = None
        self._patience: float | None = None  # if others wait for its recording: how many seconds it waits for them
        context._graphs[id(self)] = weakref.ref(self)

    def param(self, name: str, default: _T) -> _T:
        """Return a value that tasks take when they are recorded, and that each launch may give anew.

        Raises
        ------
        ValueError
            There is one of that name.
        TaskStateError
            The graph was recorded already.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_zeros(3)
        ...     g = ctx.task_graph()
        ...     a = g.param("a", 1.0)
        ...     with g:
        ...         ctx.fill(x, 2 * a + 1)
        ...     g.launch(a=4.0)
        ...     print(x.numpy())
        [9. 9. 9.]
        """
        if self._recording is not None:
            raise TaskStateError(f"graph '{self.name}' is recorded; its parameters are made before, or while, it is")
        self._must_not_be_closed()
        must_be_open(self._context)
        if not isinstance(name, str):
            raise TypeError(f"a parameter of a graph has a name, got {name!r}; g.launch(name=value) gives it a value")
        if name in self._params:
            raise ValueError(f"graph '{self.name}' has a parameter '{name}' already")
        param = self._params[name] = Param(name, default, weakref.ref(self))
        return cast("_T", param)  # a number wherever it goes

    def __enter__(self) -> TaskGraph:
        if self._closed:
            self._must_not_be_closed()
        if self._recording is not None:
            raise TaskStateError(f"graph '{self.name}' is recorded already; make another one with ctx.task_graph()")
        context = self._context_ref() or self._context
        must_be_open(context)
        recorder = RecordingBuilder(context, f"graph '{self.name}'")
        recorder.launch_before()
        description = claims.recorded_description(context.engine, threading.get_ident())
        if description is not None:
            raise TaskStateError(
                f"graph '{self.name}' cannot be recorded inside of {description}; record it before, and launch it there"
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
                choose(self._recording, self._backend)
                self._plan_times = recorder.plan_times
                if self._params:
                    self._in_kernels = [number for param in self._params.values() for number in param.in_kernels]
                    self._derived = list({id(one): one for one in self._take_derived()}.values())
            else:
                recorder.discard()
                self._forget_new_params()  # it may be recorded again
                self._take_derived()
        finally:
            self._recorder = None
            recorder.leave()

    def _forget_new_params(self) -> None:
        """Have the parameters from before the recording."""  # no closure in `__exit__`, which would need memory first
        self._params = {name: self._params[name] for name in self._made_before}
        self._draws.clear()

    def _take_derived(self) -> list[Any]:
        """Return what was computed from the parameters for no kernel; they know it no more, which would be a circle."""
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
        self, data: Mapping[LogicalData, LogicalData], context: ContextCore, values: dict[str, Any]
    ) -> Task:
        """Launch with other data than those that were recorded."""
        if not isinstance(data, Mapping):
            raise TypeError(
                f"graph '{self.name}' takes a mapping of recorded data to others, as in g.launch({{lX: lY}}), got "
                f"{type(data).__name__}; parameters are given by name"
            )
        rebinding = self._rebinding(data)
        try:
            return self.launch_rebound(context, values, rebinding)
        finally:
            rebinding.release(context.engine)

    @property
    def _context(self) -> Any:
        context = self._context_ref()
        if context is None:
            raise ContextClosedError(f"the context of graph '{self.name}' is gone; keep a reference to it")
        return context

    @property
    def nodes(self) -> int:
        """How many nodes it has.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_zeros(3)
        ...     g = ctx.task_graph()
        ...     with g:
        ...         ctx.fill(x, 1.0)
        ...         ctx.fill(x, 2.0)
        ...     print(g.nodes > 0)
        True
        """
        return 0 if self._recording is None else int(self._recording.program.count)

    def explain(self) -> str:
        """Say how launches are done, and which tasks prevent that it is done better; known after the first launches.

        Returns
        -------
        str
            Lines of text.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_zeros(3)
        ...     g = ctx.task_graph("steps", backend="persistent")
        ...     with g:
        ...         @ctx.parallel_for(x.shape, x.rw())
        ...         def add(i, x):
        ...             x[i] += 1
        ...     g.launch()
        ...     print(g.explain())
        steps: 1 nodes, launched 1 times, backend persistent
          a persistent loop: 1 steps, 1 queues, 0 waits
        """
        head = f"{self.name}: {self.nodes} nodes, launched {self.launches} times, backend {self._backend}"
        return "\n".join([head, *[f"  {text}" for text in self.how_launched()]])

    def how_launched(self) -> list[str]:
        """Return how launches are done, and why not otherwise, in lines; private."""
        recording = self._recording
        if recording is None:
            return []
        found = [] if recording.loops is None else recording.loops.describe()
        return [*found, *segments.reasons(recording).values()]

    def _rebinding(self, data: Mapping[LogicalData, LogicalData]) -> Rebinding:
        """Return what a launch with other data needs, if they can stand for those that were recorded."""
        context = self._context
        description = claims.recorded_description(context.engine, threading.get_ident())
        if description is not None:
            raise CaptureError(
                f"graph '{self.name}' cannot be launched with other data inside of {description}; launch it "
                "before or after"
            )
        if self._recording.holders:
            raise CaptureError(f"graph '{self.name}' is part of another one, which has its memory; record it once more")
        cores: dict[int, Any] = {}
        given: dict[int, Any] = {}
        pairs, wholes = in_arrays(data)
        for old, new in pairs:
            for handle in (old, new):
                check_mine(context.engine, handle)
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

        Use it to look at the graph (``cuGraphDebugDotPrint``), to instantiate it, or to make it a child of a graph of
        yours. stf does not see launches of your own. So nothing else may use the data meanwhile, and all data must be
        where the first task that uses them runs, since only `launch` brings them there. If tasks at several places
        use the same data, launch the graph with `launch`.

        Tasks on the host are host nodes of it. Their bodies may use Python and NumPy but no CUDA, which refuses its
        calls there; bodies that `launch` runs may. The context raises their errors, or ``sys.unraisablehook`` gets them
        once it is finalized. The rest of such a launch cannot be skipped.

        Raises
        ------
        TaskStateError
            Nothing was recorded, or the graph is closed.
        CaptureError
            It is not one CUDA graph; the message says why.

        Examples
        --------
        >>> with stf.context(devices="cuda:0") as ctx:  # needs a GPU
        ...     x = ctx.logical_data_zeros(3)
        ...     g = ctx.task_graph()
        ...     with g:
        ...         ctx.fill(x, 1.0)
        ...     print(g.handle != 0)
        True
        """
        self._must_be_recorded()
        context, graph = self._context, self._recording.graph
        must_be_open(context)
        try:
            frame = playback.make_frame(context.engine, context.make_launch_at(self.name), None)
            return int(graph.export(frame, self._recording).handle)
        except CaptureError as reason:
            raise CaptureError(f"graph '{self.name}' is no CUDA graph: {reason}") from None

    @property
    def exec_handle(self) -> int:
        """The address of an executable CUDA graph (CUgraphExec) of `handle`: the same each time, while this lives.

        Launch it on `stream`. What holds for launches of `handle` holds for these: stf does not see them. So `launch`
        and `close` wait for that stream first. Wait for it yourself before other tasks use the data.

        Raises
        ------
        TaskStateError
            Nothing was recorded, or the graph is closed.
        CaptureError
            It is not one CUDA graph; the message says why.
        DriverError
            CUDA refuses to instantiate it.

        Examples
        --------
        >>> with stf.context(devices="cuda:0") as ctx:  # needs a GPU
        ...     x = ctx.logical_data_zeros(3)
        ...     g = ctx.task_graph()
        ...     with g:
        ...         ctx.fill(x, 1.0)
        ...     g.launch()
        ...     print(g.exec_handle == g.exec_handle != 0)
        True
        """
        handle = self.handle
        if self._handed_out is None:
            self._handed_out = HandedOut()
        return int(self._handed_out.executable_of(handle))

    @property
    def stream(self) -> Stream:
        """A CUDA stream for launches of `exec_handle`: the same each time, and after all work submitted so far.

        It has ``__cuda_stream__``, and ``int(g.stream)`` is its address. It is there until the graph is closed.

        Raises
        ------
        TaskStateError
            Nothing was recorded, or the graph is closed; or it is asked for inside a task or a recording.
        PlaceError
            The context is on a CPU.

        Examples
        --------
        >>> with stf.context(devices="cuda:0") as ctx:  # needs a GPU
        ...     x = ctx.logical_data_zeros(3)
        ...     g = ctx.task_graph()
        ...     with g:
        ...         ctx.fill(x, 1.0)
        ...     print(int(g.stream) == int(g.stream) != 0)
        True
        """
        self._must_be_recorded()
        context = self._context
        if not context.on_cuda:
            raise PlaceError(
                f"graph '{self.name}' is launched on no CUDA stream: its context is on a CPU; use launch()"
            )
        fence = int(context.fence())
        if self._handed_out is None:
            self._handed_out = HandedOut()
        return Stream(repr(context), self._handed_out.stream_after(fence))

    def _must_be_recorded(self) -> None:
        if self._recording is None:
            self._must_not_be_closed()
            raise TaskStateError(f"graph '{self.name}' is not recorded; submit its tasks inside of `with g:` first")

    def _must_not_be_closed(self) -> None:
        if self._closed:
            context = self._context_ref()
            if context is not None:
                must_be_open(context)
            raise GraphClosedError(f"graph '{self.name}' is closed; record a new one with ctx.task_graph()")

    def close(self) -> None:
        """Give its memory up; launches that were submitted go on. Closing it again does nothing.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_zeros(3)
        ...     g = ctx.task_graph()
        ...     with g:
        ...         ctx.fill(x, 1.0)
        ...     g.launch()
        ...     g.close()
        ...     print(x.numpy())
        [1. 1. 1.]
        """
        if self._recorder is not None:
            raise TaskStateError(f"graph '{self.name}' is being recorded; close it afterwards")
        self._closed = True
        handed_out, self._handed_out = self._handed_out, None
        recording, self._recording = self._recording, None
        if handed_out is not None:
            handed_out.close()
        if recording is not None:
            recording.close()

    def __del__(self) -> None:
        reference = getattr(self, "_context_ref", None)
        context = None if reference is None else reference()
        recording = getattr(self, "_recording", None)
        if recording is not None:  # a finalizer does nothing but say so
            drop(recording.engine.dropped, recording)
        if context is not None:
            try:
                context._graphs.pop(id(self), None)
            except MemoryError:
                pass  # what stays there is a reference to nothing

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise not_copied(repr(self), "record another one with ctx.task_graph()")

    def __repr__(self) -> str:
        state = "closed" if self._closed else "empty" if self._recording is None else f"{self.nodes} nodes"
        return f"<stf.TaskGraph '{self.name}', {state}, launched {self.launches} times>"

    @html.never_raises
    def _repr_html_(self) -> str | None:
        rows: list[tuple[str, object]] = [
            ("launches", self.launches),
            ("nodes", 0 if self._recording is None else self.nodes),
        ]
        rows += [(f"parameter {name}", param.default) for name, param in self._params.items()]
        recording = self._recording
        rows += [("on the host", text) for text in (segments.reasons(recording) if recording else {}).values()]
        return f"<p><b>{html.text(repr(self).strip('<>'))}</b></p>{html.table(('', ''), rows)}"


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
