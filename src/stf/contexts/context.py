"""Contexts: where tasks are submitted and data are registered. The one place that wires a backend to a driver."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

from stf import config
from stf._backends.closed import ClosedPort
from stf._backends.graph import GraphBackend
from stf._backends.stream import StreamBackend
from stf._backends.timed import TimedBackend
from stf._engine import claims, handover, invariants, lifetime, recording_caches, retiring, thread_turns
from stf._engine.engine import Engine
from stf._engine.failures import story_of_cancelled
from stf._engine.fault_suspects import Suspects
from stf._recording import abandoning
from stf._support import loader
from stf._support.arguments import name_of, sequence, truth
from stf._support.sync import must_have_room
from stf.contexts import arguments, callers
from stf.contexts.observing import Observing, observes_times
from stf.contexts.resources import Resources
from stf.data.creation import Creation
from stf.data.filling import Filling
from stf.data.freezing import Lending
from stf.data.logical_data import LogicalData
from stf.data.registry import Registering, Registry
from stf.data.waiting import Waiting
from stf.devices.make import devices_module, make_driver, stream_is_captured
from stf.devices.spec import DeviceSpec
from stf.errors import (
    CaptureError,
    ContextClosedError,
    ContextMismatchError,
    OutOfMemoryError,
    PlaceError,
    TaskStateError,
    not_copied,
)
from stf.graphs.graph_scope import Epoch, await_launches
from stf.graphs.task_graph import Graphs, close_graphs
from stf.interop.arrays import producer_of
from stf.interop.current import return_owed
from stf.interop.libraries import check_library
from stf.kernels.kernel_task import KernelTask
from stf.places import places
from stf.places.places import Grid
from stf.places.table import Placing
from stf.tasks import validation
from stf.tasks.functions import TaskFunction
from stf.tasks.grid_task import GridTask
from stf.tasks.host_task import HostLaunch, must_be_host
from stf.values.reducers import UNWRITTEN

__all__ = [
    "Context",
    "context",
]

LANES_PER_PLACE = 64
MOST_SPARE = 1 << 28  # bytes for each place: memory of dropped data that new data take over
log = logging.getLogger("stf")


def context(
    use_graph: bool = False,
    *,
    devices: Any = None,
    stream: Any = None,
    graph: Any = None,
    resources: Resources | None = None,
    arrays: str | None = None,
    memory_limit: int | None = None,
    max_pending: int | None = None,
    observe: str | bool = False,
    name: str | None = None,
) -> Context:
    """Open a context.

    Parameters
    ----------
    use_graph : bool
        Gather tasks and launch them as graphs, whenever something waits for their results.
    devices : str, sequence of int, or None
        ``"cpu"`` (one device that works in host memory), ``"cpu:4"`` (four emulated devices with memories of their
        own); by default that of `stream`, else ``STF_DEVICES``, else all of CUDA's, else this CPU.
    stream : int or object with ``__cuda_stream__``, optional
        A caller's CUDA stream: work starts after what is on it now, and what comes there after `Context.finalize` comes
        after all the work; the host waits for neither. May be one that is being captured; tasks on the host are host
        nodes of the graph then, as with `graph`.
    graph : int or object with ``handle``, optional
        A caller's CUDA graph (CUgraph): the tasks become nodes of it, after none that it has, until
        `Context.finalize`. Nothing runs before its owner launches it; what the tasks need lives as long as it. Bodies
        on the host are called by CUDA in each launch, and may use no CUDA; what they raise goes to
        ``sys.unraisablehook`` once the context is finalized.
    resources : Resources, optional
        Workers and memory shared with other contexts.
    arrays : str, optional
        Library of the arrays that bodies get; by default NumPy on CPUs and CuPy on GPUs.
    memory_limit : int, optional
        Bytes that arrays of logical data take on each device. Beyond it replicas are evicted, and submission waits for
        memory that is about to be freed. On device ``"cpu"``, which works in host memory, it waits only.
    max_pending : int, optional
        Bodies in flight before submission waits for the oldest; 8,192 by default.
    observe : bool or str
        ``"dot"``, ``"trace"`` or True for both: record what `Context.dot` and `Context.trace` show.
    name : str, optional
        For messages and pictures.

    Returns
    -------
    Context
        A with-block; or call its `Context.finalize`.

    Raises
    ------
    PlaceError
        `devices` names devices that are not there.
    TypeError, ValueError
        Another option, or an ``STF_…`` variable, is malformed.
    """
    config.check()
    arguments.check_graphs(use_graph, graph, stream)
    if resources is not None:
        arguments.check_resources(resources)
    if arrays is not None:
        check_library(arrays)
    if graph is None:
        caller, spec = callers.caller_of(stream, devices, resources)
    else:
        caller, spec = callers.filler_of(graph, devices, resources)
    limit = memory_limit if memory_limit is not None else config.memory_limit
    bound = arguments.pending_limit(max_pending if max_pending is not None else config.max_pending)
    label = None if name is None else name_of(name)
    gathers = bool(use_graph) and graph is None
    return Context(spec, resources, arrays, limit, bound, observe, label, None, caller, gathers)  # keywords cost 0.2 us


class Context(Placing, Registering, Creation, Filling, Lending, Waiting, Observing, Graphs):
    """Data, tasks and what orders them. Made by `stf.context`."""

    __slots__ = (  # with a dict, Python 3.12 would look every method up twice
        "_caller",
        "_device_times",
        "_dot",
        "_driver",
        "_finished",
        "_graphs",
        "_loans",
        "_more_places",
        "_observers",
        "_resources",
        "_sections",
        "_spec",
        "_suspects",
        "_trace",
        "name",
    )

    def __init__(
        self,
        spec: DeviceSpec,
        resources: Resources | None = None,
        arrays: str | None = None,
        memory_limit: int | None = None,
        max_pending: int = arguments.MAX_PENDING,
        observe: str | bool = False,
        name: str | None = None,
        driver: Any = None,
        caller: callers.Caller | None = None,
        use_graph: bool = False,
    ) -> None:
        self._finished = True  # until it is whole
        loader.log_if_uncompiled()
        self.name = name
        self._spec = spec
        self.on_cuda = spec.driver == "cuda"
        self._caller = caller
        if caller is not None and resources is None:
            resources = callers.shared
        self._resources = resources
        if driver is None:
            driver = resources.driver(spec) if resources is not None else make_driver(spec)
        self._driver = driver
        try:
            self._build(driver, arrays, memory_limit, max_pending, observe, use_graph)
        except BaseException:
            if resources is None:
                driver.close()
            raise
        lifetime.watch(self)

    def _build(
        self,
        driver: Any,
        arrays: str | None,
        memory_limit: int | None,
        max_pending: int,
        observe: str | bool,
        use_graph: bool,
    ) -> None:
        """Make what orders the tasks, on a driver."""
        spec, caller, resources = self._spec, self._caller, self._resources
        backend = TimedBackend if driver.stamps is not None and observes_times(observe) else StreamBackend
        port = backend(driver, LANES_PER_PLACE, resources is None)
        bound = arguments.memory_bound(memory_limit)
        limits = [bound if spec.shares_host else 0, *([bound] * spec.count)]
        numbers = [-1, *spec.numbers]
        engine = Engine(
            port, spec.place_names, spec.affine, limits, driver.max_workers, max_pending, numbers, spec.function_keys
        )
        engine.unwritten = UNWRITTEN
        self._more_places: dict[Any, int] = {}
        engine.context, engine.arrays = weakref.ref(self), arrays
        engine.make_graph_port, engine.ask_producer = GraphBackend, producer_of
        engine.validate = config.validate or config.hostile is not None
        if not engine.validate and caller is None:
            for pool in engine.coherency.pools:
                pool.most_spare = MOST_SPARE
        engine.blocking = config.blocking and not (caller is not None and caller.captured)
        several = spec.driver == "cuda" and spec.count > 1
        codes = {ordinal: code for code, ordinal in enumerate(spec.numbers, 1)} | {"host": 0}
        self.attach(engine, 1 if spec.count else 0, codes, devices_module().current_ordinal if several else None)
        if caller is not None:
            self._start_after(caller)
        self.registry = Registry()
        self._graphs: dict[int, weakref.ref[Any]] = {}  # by id; they take themselves out
        if use_graph:
            engine.epoch = Epoch(self, True, "the graph of this context")
        self._observers = None
        self._setup_observers(observe)
        self._suspects = Suspects(engine)
        driver.watch_loss(self._suspects)
        self._finished = False

    def _start_after(self, caller: callers.Caller) -> None:
        """Begin on a caller's stream; its device is the default place."""
        self.attach(self.engine, self.codes[caller.ordinal], self.codes)
        try:
            self.engine.port.start_after(self.default_code, caller.pointer, caller.captured)
        except BaseException:
            self.engine.port.shutdown()
            raise

    # -- tasks that the context itself submits -----------------------------------------------------------------

    def host_launch(
        self,
        *args: Any,
        fn: Any = None,
        name: str | None = None,
        symbol: str | None = None,
        uses_cuda: bool = True,
        **others: Any,
    ) -> Any:
        """Run a function on the host when its data are there, without blocking.

        Parameters
        ----------
        *args : Access
            What the function uses; it gets NumPy arrays, tokens skipped.
        fn : callable, optional
            The function; without it, call the result with it, or use it as a decorator.
        args : sequence, optional
            Further arguments for `fn`, as keyword ``args=``.
        name : str, optional
            What pictures and messages call the task.
        uses_cuda : bool, optional
            Whether the function may call CUDA, or a library that does. A graph can have a function that does not as a
            node of its own, so that it is launched as one; for others the host steps in between two graphs.
        """
        extra = sequence("args", others.pop("args", ()))
        if others:
            raise TypeError(f"host_launch got unknown arguments: {', '.join(others)}")
        task = self.make_host_task(args, name or symbol, truth("uses_cuda", uses_cuda))
        must_be_host(task, args)
        launch = HostLaunch(task, extra)
        return launch(fn) if fn is not None else launch

    def cuda_kernel(self, *args: Any, name: str | None = None, symbol: str | None = None) -> KernelTask:
        """Return a task of kernel launches, as a with-block whose ``launch`` calls form a chain.

        Parameters
        ----------
        *args : Access or place
            As for `task`.
        name, symbol : str, optional
            What pictures and messages call the task.
        """
        task = self.make_task_at(args, name_of(name, symbol))
        if task.where < 0:
            raise PlaceError("kernels of ctx.cuda_kernel run at one place, got a grid; use ctx.task(grid, ...).streams")
        task.find_site_outside()
        return KernelTask(task)

    def submit_task(
        self, fn: Any, *args: Any, place: Any = None, name: str | None = None, symbol: str | None = None
    ) -> None:
        """Submit ``fn(*args)`` as a task, as calling ``stf.task(fn)`` would.

        Parameters
        ----------
        fn : callable
            A function annotated as for `stf.task`, or one made by it.
        *args
            Its arguments; accesses, such as ``x.read()``, for parameters without an annotation.
        place : place, optional
            Where it runs.
        name, symbol : str, optional
            What pictures and messages call the task.
        """
        function = fn if isinstance(fn, TaskFunction) else TaskFunction(fn)
        chosen = name_of(name, symbol)
        function = function if chosen is None else function.named(chosen)
        function = function.on(place) if place is not None else function
        task = self.make_task_at((), None)
        task.find_site_outside()
        function.call(self, task, list(args), {})

    def grid_task(self, args: Any, symbol: str | None) -> Any:
        """A task on several places."""
        grid = next(arg for arg in args if isinstance(arg, Grid))
        return GridTask(self, grid, [arg for arg in args if arg is not grid], symbol)

    def _task_of_kind(self, kind: str, accesses: list[Any], name: str, near: Any = None, place: Any = None) -> Any:
        task = self.make_task_at(accesses, name)
        task.kind = kind
        task.find_site_outside()
        if place is not None:
            task.where = self.place_code(place)
        elif near is not None:
            task.where = self.current_place_code()
        return task

    # -- the end -----------------------------------------------------------------------------------------------

    def refresh(self, data: LogicalData) -> None:
        """What `LogicalData.write_back` does."""
        self._check_mine(data)
        self._must_be_outside("write_back")
        if data.core.home is None:
            raise ValueError(f"{data.core.describe()} was made from a shape; there is no array to write back to")
        self.engine.patiently(retiring.refresh, data.core)
        retiring.raise_if_poisoned(data.core)

    def release(self, data: LogicalData) -> None:
        """What `LogicalData.release` does."""
        self._check_mine(data)
        recording_caches.give_up_recordings(self.engine, data.core)
        if config.validate:
            validation.await_home(self.engine, data.core)
        self.engine.patiently(retiring.release_data, data.core)

    def accept(self, data: LogicalData) -> None:
        """What `LogicalData.accept` does."""
        self._check_mine(data)
        self._must_not_be_in_a_body("accept")
        self.engine.patiently(retiring.accept, data.core)

    def finalize(self) -> None:
        """Run everything, write back, release; calling it again does nothing.

        Raises
        ------
        TaskFailedError, ExceptionGroup
            What failed and was not told yet; the context is finalized all the same.
        """
        if self._finished:
            return
        self._must_be_outside("finalize", False)  # which launches, when it has abandoned what others left open
        self._finish()
        self.check_errors()

    def _finish(self, knows_stream: bool = True) -> None:
        """Finalize, whoever is inside: nobody can use the context any more.

        A context that nobody finalized `knows_stream` no more: a caller's stream may be gone by then.
        """
        must_have_room()
        thread_turns.begin_ending(self.engine)
        try:
            fault = None if self._finished else self._retire(knows_stream)  # else by another thread meanwhile
        finally:
            self.engine.ending = 0
        if fault is not None:
            raise fault

    def _retire(self, knows_stream: bool) -> BaseException | None:
        """Run everything, write back, release, close; return what became of the device, if it is lost."""
        try:
            thread_turns.await_others(self.engine)
            caller = self._caller
            if caller is not None and caller.captured and not (knows_stream and stream_is_captured(caller.pointer)):
                self._end_lost_capture()
            self._end_graphs()
            if caller is None or not knows_stream:
                retiring.retire_all(self.engine)
            else:
                self._hand_over(caller)
        except (KeyboardInterrupt, TaskStateError):
            raise  # not finished: the data are still there, and finalize can be called again
        except BaseException as error:
            if isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
                raise  # likewise
            self._give_up()
            raise
        fault = self._driver.fault() if self._caller is None else None
        self._close()
        return fault

    def _end_graphs(self) -> None:
        """Launch what was gathered, and give up what was recorded."""
        engine = self.engine
        if engine.epoch is not None and engine.epoch.implicit:
            engine.epoch.is_over = True
            if engine.epoch.scope is not None:
                retiring.abandon_open_tasks(engine)
            engine.epoch.flush()
        await_launches(engine.epoch)
        if self._graphs:
            close_graphs(self._graphs)
        while engine.scope is not None:
            abandoning.discard_scope(engine, engine.scope)
        engine.epoch = None

    def _end_lost_capture(self) -> None:
        """Give up what was gathered for a capture that is over: launched now, it would run."""
        engine = self.engine
        if engine.epoch is not None and engine.epoch.implicit:
            engine.epoch.is_over = True
            retiring.abandon_open_tasks(engine)
            engine.epoch.discard()
        raise CaptureError(
            f"{self!r} is on a stream that was being captured, and was not finalized during the capture; finalize the "
            "context before the capture ends. Nothing was written back"
        )

    def _hand_over(self, caller: callers.Caller) -> None:
        """Let the caller's stream come after all work."""
        handover.hand_over(self.engine, self.default_code, caller.pointer)

    def _give_up(self) -> None:
        """Close after a failure; what fails on the way is less than what failed before."""
        try:
            retiring.forget_all(self.engine)
        except Exception as error:
            log.debug("%r: %s", self, error)
        self._close()

    def _close(self) -> None:
        try:
            story = f"{self!r} was finalized; make a new one with stf.context()"
        except MemoryError:
            story = "the context was finalized; make a new one with stf.context()"
        with self.engine.gate:  # what begins beside this has seen that it ends, or sees this
            self._finished = True
            self.engine.closed = story
        try:
            lifetime.forget(self)
            self._driver.ignore_loss(self._suspects)
            recording_caches.end(self.engine)
        finally:
            self.engine.port.shutdown()
        self._more_places.clear()
        if self._caller is not None:
            if self._caller.filling is not None:
                self._caller.filling.end()
            self._caller = self._caller._replace(owner=None, filling=None)
        self._write_pictures()
        self._tell_idle_devices()

    def abandon_after_fork(self) -> None:
        """In the child of a fork nothing of the parent's context may be used."""
        self._finished = True
        story = "forked: this context belongs to the parent process; make a new one in the child"
        retiring.abandon(self.engine, ClosedPort(story), story)

    def __enter__(self) -> Context:
        places.contexts().append(self)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self in places.contexts():
            places.contexts().remove(self)
        if error is not None:
            self._end_after(error)
            return
        try:
            self.finalize()
        except KeyboardInterrupt as interrupt:  # what an interrupt in the block does, too
            self._end_after(interrupt)
            raise

    def _end_after(self, error: BaseException) -> None:
        """Finalize after an exception: tasks whose bodies have not begun are cancelled."""
        engine = self.engine
        cancelled = engine.cancelled = []  # and it stays so: what is left of the context is its end
        try:
            abandoning.abandon_own(engine)
            lifetime.abandon_open(engine)
            self.finalize()
        except BaseException as late:
            error.add_note(f"while the context was finalized: {type(late).__name__}: {late}")
        if cancelled:
            error.add_note(story_of_cancelled(cancelled))

    def __del__(self) -> None:
        if not getattr(self, "_finished", True):
            lifetime.collected(self)

    def check_state(self) -> None:
        """Verify every cross-link of the engine; raise AssertionError with the story if one is broken."""
        invariants.check_state(self.engine)

    def _tell_idle_devices(self) -> None:
        if self._spec.count < 2:
            return
        used = [0] * self._spec.count
        for pool in self.engine.coherency.pools[1:]:
            used[max(self.engine.affine[pool.place], 1) - 1] += pool.tasks
        if sum(1 for n in used if n) == 1 and sum(used) > 1:
            where = next(i for i, n in enumerate(used) if n)
            log.info("all %d tasks ran on device(%d) of %d; use .on(place)", sum(used), where, len(used))

    def _check_mine(self, data: Any) -> None:
        if not isinstance(data, LogicalData):
            raise TypeError(f"logical data is needed, got {type(data).__name__}")
        if data.core.engine is not self.engine:
            raise ContextMismatchError(f"{data.core.describe()} belongs to another context")

    def _check_array(self, data: Any) -> None:
        self._check_mine(data)
        if data.is_token:
            raise TypeError(f"{data.core.describe()} has no content; use logical data with a shape")

    def _must_be_open(self) -> None:
        if self.engine.closed is not None:
            raise ContextClosedError(self.engine.closed)

    def _must_not_be_in_a_body(self, what: str) -> None:
        if self.engine.runs_body(threading.get_ident()):
            raise TaskStateError(f"{what} inside the body of a task: it could wait for itself; call it outside")

    def _must_be_outside(self, what: str, launch: bool = True) -> None:
        """Blocking calls inside a body would wait for themselves; what was gathered for a graph is launched."""
        self._must_be_open()
        return_owed()
        abandoning.forget_left(self.engine)
        inside = claims.inside(self.engine, threading.get_ident())
        if inside is not None:
            raise TaskStateError(f"{what} inside {inside}")
        if launch and self.engine.epoch is not None:
            self.engine.epoch.step_out()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise not_copied(repr(self), "open another one with stf.context(), and pickle arrays: lX.numpy()")

    def __repr__(self) -> str:
        return f"<stf.Context{f' {self.name!r}' if self.name else ''} on {self._spec.text}>"


def stream_ctx(**options: Any) -> Context:
    """Return ``stf.context(use_graph=False, ...)``."""
    return context(False, **options)


def graph_ctx(**options: Any) -> Context:
    """Return ``stf.context(use_graph=True, ...)``."""
    return context(True, **options)
