"""Contexts: where tasks are submitted and data are registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stf import config
from stf._engine import invariants, lifetime
from stf._port.remote_arrays import context_makers
from stf._support import loader
from stf._support.arguments import name_of
from stf._support.completion import Shown
from stf._support.late_names import LateModule
from stf.contexts import arguments, callers, ending, observing, planned
from stf.contexts.next_uses import Foreseen, NextUses
from stf.contexts.resources import Resources
from stf.contexts.wiring import cut_off, wire
from stf.data import awaiting, creation, filling, reading, registry, waiting
from stf.devices.make import make_driver
from stf.devices.spec import DeviceSpec, with_workers
from stf.errors import not_copied
from stf.interop.arrays import library_named
from stf.places import places, table
from stf.places.places import is_auto
from stf.tasks import capsules, checks, comparing, decorators, host_task
from stf.tasks.task import ContextCore

if TYPE_CHECKING:
    from stf.contexts import calibration
    from stf.data import checkpoints, events, freezing, random_filling
    from stf.graphs import repeated_windows
    from stf.graphs import task_graph as graphs
    from stf.kernels import kernel_task, launch, launching, parallel_for
    from stf.placement.rules import Rule
else:  # loaded with the first call of one of their methods
    calibration = LateModule("stf.contexts.calibration")
    checkpoints, events = LateModule("stf.data.checkpoints"), LateModule("stf.data.events")
    freezing, random_filling = LateModule("stf.data.freezing"), LateModule("stf.data.random_filling")
    graphs, repeated_windows = LateModule("stf.graphs.task_graph"), LateModule("stf.graphs.repeated_windows")
    kernel_task, launch = LateModule("stf.kernels.kernel_task"), LateModule("stf.kernels.launch")
    launching, parallel_for = LateModule("stf.kernels.launching"), LateModule("stf.kernels.parallel_for")

__all__ = [
    "Context",
    "context",
]


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
    workers: int | None = None,
    nan: str | None = None,
    observe: str | bool = False,
    name: str | None = None,
    place: Any = None,
    placement: Any = None,
    plan: Foreseen | None = None,
    submit_threads: bool | None = None,
    replay: str | None = None,
) -> Context:
    """Open a context.

    Parameters
    ----------
    use_graph : bool
        Gather tasks and launch them as graphs, whenever something waits for their results, or there are thousands.
    devices : str, sequence of int, `stf.remote`, or None
        ``"cpu"`` (one device that works in host memory), ``"cpu:4"`` (four emulated devices with memories of their
        own), ``"sim:8xH200"`` (simulated devices: bodies are counted, not run; see `stf.plan`), ``"ray:8"`` (eight
        actors of a Ray cluster; ``"ray:4xgpu"``: four with a GPU each), `stf.remote` (the workers of a Dask cluster);
        by default that of `stream`, else ``STF_DEVICES``, else all of CUDA's, else this CPU.
    stream : int or object with ``__cuda_stream__``, optional
        A CUDA stream of yours. The work starts after everything that is on it now. Everything that you put there after
        `Context.finalize` comes after the work. The host waits for neither. The stream may be one that is being
        captured; tasks on the host are host nodes of the graph then, as with `graph`.
    graph : int or object with ``handle``, optional
        A CUDA graph (CUgraph) of yours. Until `Context.finalize`, the tasks become nodes of it, after the nodes that
        are there already. Nothing runs before you launch it, and everything that the tasks need lives as long as the
        graph. CUDA calls bodies on the host in each launch; they may not use CUDA.
        Once the context is finalized, their errors go to ``sys.unraisablehook``.
    resources : Resources, optional
        Workers and memory shared with other contexts.
    arrays : str, optional
        Library of the arrays that bodies get; by default NumPy on CPUs and CuPy on GPUs.
    memory_limit : int, optional
        Bytes that arrays of logical data take on each device. Beyond it replicas are evicted, and submission waits for
        memory that is about to be freed. On device ``"cpu"``, which works in host memory, it waits only.
    max_pending : int, optional
        Bodies in flight before submission waits for the oldest; 8,192 by default.
    workers : int, optional
        Threads that run bodies on the host; ``STF_CPU_WORKERS``, or one a core, by default. Bodies that wait, for a
        download or a device, can have more than there are cores.
    nan : str, optional
        ``"error"``: the first task that writes a NaN or an infinity, which none of its inputs had, fails with a
        `FloatingPointError` that names the data and the index. Each task's data are looked at before and after it, so
        this is for finding mistakes. Replayed functions run as they are then. Of graphs that you record, bodies on
        the host and on CPUs are looked at in each launch; what is captured for a GPU is not. By default ``STF_NAN``.
    observe : bool or str
        ``"dot"``, ``"trace"`` or True for both: record what `Context.dot` and `Context.trace` show. ``"durations"``:
        keep how long tasks take, for `Context.calibrate`; so does True. ``"cupti"``: all of these, and
        the kernels and copies of GPUs, as CUPTI records them (``pip install cupti-python``); a profiler cannot run at
        the same time.
    name : str, optional
        For messages and pictures.
    place : place, optional
        Where tasks run that name no place, outside of every ``with place``; by default the current device, or the
        first. With ``"auto"``, the place of each task is chosen when it begins. It stays that place. On one device
        there is nothing to choose. ``"auto"`` is the default on remote devices.
    placement : Rule or callable, optional
        How places are chosen: `stf.placement.eft`, which is the default, `stf.placement.planned`, which also orders
        the tasks, `stf.placement.owner`, or a function
        ``choose(task, places)`` that returns one of `places`. Each of `places` says when it is free, and what copies
        the task would need there (`stf.placement.Candidate`). Without `place`, it is for tasks that name none.
    plan : Plan, optional
        A plan of the program that is about to run, from `stf.plan`. It knows which task uses which data next. So
        where memory runs out, the replica goes that is needed last, and not the one that was used longest ago. If the
        program is another one than the plan's, a warning says from which task on, and eviction goes by last use.
    submit_threads : bool, optional
        Let a thread for each of several GPUs call the bodies of its functions, in the order of their submission. Bodies
        that spend their time in libraries then run side by side. They run later than their call, as on a CPU: errors
        come with the next wait, and a list that you change afterwards is changed for the body. With-blocks, and
        functions that take a `stf.Task` or a `stf.Stream`, run where they stand. By default ``STF_SUBMIT_THREADS``,
        else False. On one GPU, on a CPU and with `stream` or `graph` it changes nothing.
    replay : str, optional
        ``"auto"``: windows of tasks that the program submits again and again are recorded, and launched as one task,
        with other data and numbers. That is done with tasks whose bodies are known: `Context.parallel_for`,
        `Context.launch`, `Context.launch_kernel` and `stf.kernel`, fills, copies, assignments, and functions of
        ``@stf.task(pure=True)``. They are held until their window is whole; whatever waits or asks has them submitted
        one by one. `Context.explain` tells the windows. It changes nothing in graph contexts, on remote devices, with
        `stream`, `graph` or `observe`, and while bodies are watched (``STF_VALIDATE``, `nan`).

    Returns
    -------
    Context
        A with-block; or call its `Context.finalize`.

    Raises
    ------
    PlaceError
        `devices` names devices that are not there, or `place` is none of them.
    TypeError, ValueError
        Another option, or an ``STF_…`` variable, is malformed.

    Examples
    --------
    >>> Y = np.zeros(3)
    >>> with stf.context(devices="cpu:2", name="demo") as ctx:
    ...     y = ctx.logical_data(Y, name="y")
    ...     ctx.fill(y, 2.0)
    >>> Y
    array([2., 2., 2.])
    """
    config.check()
    if comparing.current and comparing.current[-1].devices is not None:
        devices = comparing.current[-1].devices
    if use_graph is not False or graph is not None:
        arguments.check_graphs(use_graph, graph, stream)
    if resources is not None:
        arguments.check_resources(resources)
    if arrays is not None:
        library_named(arrays)
    rehearsal = planned.current[-1] if planned.current else None
    if rehearsal is not None:
        caller, (spec, resources) = None, rehearsal.options(stream, graph, workers)
        observe = observe or rehearsal.observe
    else:
        caller, spec = callers.caller_of(stream, devices, resources, graph)
        if workers is not None:
            spec = with_workers(spec, arguments.worker_count(workers))
    limit = memory_limit if memory_limit is not None else config.memory_limit
    bound = arguments.pending_limit(max_pending)
    spreads = arguments.wants_submit_threads(submit_threads, spec, caller is not None)
    if plan is not None:
        arguments.check_plan(plan)
    label = None if name is None else name_of(name)
    wants_finite = arguments.wants_finite(nan, use_graph, spec)
    gathers = bool(use_graph) and graph is None
    replays = arguments.wants_replay(replay, placement)
    placed = () if place is None and placement is None else arguments.how_placed(place, placement)
    made = Context(spec, resources, arrays, limit, bound, observe, label, None, caller, gathers, *placed)
    if plan is not None and not (rehearsal is not None and rehearsal.notes_uses):
        made.engine.next_uses = NextUses(made.engine, plan.uses())
    made.engine.port.spreads = spreads
    if replays:
        from stf.graphs import repeated_windows

        repeated_windows.start(made)
    made.engine.wants_finite = wants_finite
    if wants_finite or config.capsule is not None or comparing.current:
        made.engine.watches = True
    if rehearsal is not None:
        rehearsal.take_in(made)
    return made


class Context(Shown, ContextCore):
    """Data, tasks and what orders them. Made by `stf.context`.

    Examples
    --------
    >>> with stf.context(devices="cpu:2", name="demo") as ctx:
    ...     print(ctx.name, len(ctx.devices))
    ...     x = ctx.logical_data_zeros(3, name="x")
    ...     ctx.fill(x, 1.0)
    ...     print(x.numpy())
    demo 2
    [1. 1. 1.]

    In a coroutine, ``async with`` lets others go on while the tasks run.

    >>> import asyncio
    >>> async def main():
    ...     async with stf.context(devices="cpu:2") as ctx:
    ...         x = ctx.logical_data_zeros(3)
    ...         ctx.fill(x, 1.0)
    ...         return await x
    >>> asyncio.run(main())
    array([1., 1., 1.])
    """

    __slots__ = ("_driver",)  # with a dict, Python 3.12 would look every method up twice

    # places
    devices = property(table.devices)

    # data
    logical_data = registry.logical_data
    logical_data_empty = creation.logical_data_empty
    logical_data_full = creation.logical_data_full
    logical_data_zeros = creation.logical_data_zeros
    logical_data_ones = creation.logical_data_ones
    token = logical_token = creation.token
    copy = filling.copy
    fill = filling.fill
    prefetch = filling.prefetch
    event = events.event
    freeze = freezing.freeze
    checkpoint = checkpoints.checkpoint
    restore = checkpoints.restore
    random = random_filling.random

    # tasks; `task` itself is ContextCore's
    submit_task = decorators.submit_task
    map = decorators.map_tasks
    host_launch = host_task.host_launch
    parallel_for = parallel_for.parallel_for
    launch = launch.launch
    launch_kernel = launching.launch_kernel
    cuda_kernel = kernel_task.cuda_kernel
    calibrate = calibration.calibrate

    capsule = capsules.capsule

    # graphs
    task_graph = graphs.task_graph
    graph_scope = graphs.graph_scope
    repeat = graphs.repeat
    while_loop = graphs.while_loop
    if_ = graphs.if_
    explain = repeated_windows.explain

    # waiting
    wait = reading.wait
    wait_async = awaiting.wait_async
    _are_ready = waiting.ready
    _fill_randomly = random_filling.fill_randomly
    synchronize = waiting.synchronize
    fence = task_fence = waiting.fence
    submit = waiting.submit
    cancel = waiting.cancel
    check_errors = checks.check_errors
    finalize = ending.finalize

    # looking
    dot = observing.dot
    dot_section = observing.dot_section
    trace = observing.trace
    report = observing.report
    statistics = observing.statistics
    why = observing.why_in
    _repr_html_ = observing.html_of_context

    # what rooms below ask a context for
    _finish = ending.finish
    _html_of_task = staticmethod(observing.html_of_task)
    _read_device_times = observing.read_device_times

    _shown = ["arrays", "check_state", "name", "task", *(name for name in dir() if not name.startswith("_"))]

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
        place: places.ExecPlace | None = None,
        rule: Rule | None = None,
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
            wire(self, driver, arrays, memory_limit, max_pending, observe, use_graph)
            if place is not None or spec.count > 1:
                self._place_tasks(place, rule)
            self._finished = False
        except BaseException:
            if resources is None:
                driver.close()
            raise
        lifetime.watch(self)

    def _place_tasks(self, place: places.ExecPlace | None, rule: Rule | None) -> None:
        """Say where tasks run that name no place, and how a place is chosen where there are several."""
        if self._spec.count > 1:
            from stf.placement.decisions import decisions_for
            from stf.placement.model import Placement
            from stf.placement.rules import EARLIEST_FINISH

            rule = rule or EARLIEST_FINISH
            known = self._driver.times() or arguments.model_of(rule)
            timings = None if self._durations is None else self._durations.timings
            owner = "cuda" if self.on_cuda else self._driver  # whose devices are the same in all contexts
            devices = [(owner, number) for number in self._spec.numbers]
            decisions = decisions_for(config.placement)
            by_itself = is_auto(place) if place is not None else self._spec.driver == "remote"
            stamps = self._driver.stamps if self._driver.values is None else None
            spans = None if stamps is None else stamps.spans
            model = Placement(self.engine, self._spec.count, rule, known, timings, devices, decisions, spans)
            self.choose_places(model, by_itself)
            if rule.window and self._caller is None:
                from stf.tasks.window import Window

                self.hold_tasks(Window(self.engine, self.placement, rule.window))
        if place is not None and not is_auto(place):
            self.attach(self.engine, table.place_code(self, place), self.codes)

    def _grid_task(self, args: Any, symbol: str | None) -> Any:
        """Return a task on several places."""
        from stf.data import partitioned
        from stf.tasks.grid_task import GridTask

        grid = next(arg for arg in args if isinstance(arg, places.Grid))
        accesses = [partitioned.access_on(arg, grid) for arg in args if arg is not grid]
        return GridTask(self, grid, accesses, symbol)

    def __enter__(self) -> Context:
        places.contexts().append(self)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        entered = places.contexts()
        if self in entered:
            entered.remove(self)
        if error is not None:
            ending.end_after(self, error)
            return
        try:
            self.finalize()
        except KeyboardInterrupt as interrupt:  # what an interrupt in the block does, too
            ending.end_after(self, interrupt)
            raise

    async def __aenter__(self) -> Context:
        return self.__enter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Let other coroutines go on until all tasks have run; then finalize, as a with-block does."""
        if error is None and not self._finished and self._caller is None:  # whose stream the host does not wait for
            try:
                await awaiting.all_done(self)
            except BaseException as interrupt:  # the coroutine was cancelled, for one
                self.__exit__(type(interrupt), interrupt, None)
                raise
        self.__exit__(kind, error, trace)

    def _abandon_after_fork(self) -> None:
        """In the child of a fork nothing of the parent's context may be used."""
        self._finished = True
        cut_off(self, "was forked: it belongs to the parent process; make a new one in the child")

    def __del__(self) -> None:
        if self._finished is False:
            lifetime.collected(self)

    def check_state(self) -> None:
        """Verify every cross-link of the engine; raise an AssertionError that names one that is broken.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     ctx.fill(ctx.logical_data_empty(3), 1.0)
        ...     ctx.check_state()
        """
        with self.engine.gate:  # another thread may begin tasks meanwhile
            invariants.check_state(self.engine)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise not_copied(repr(self), "open another one with stf.context(), and pickle arrays: lX.numpy()")

    def __repr__(self) -> str:
        return f"<stf.Context{f' {self.name!r}' if self.name else ''} on {self._spec.text}>"


def stream_ctx(**options: Any) -> Context:
    """Return ``stf.context(use_graph=False, ...)``.

    Examples
    --------
    >>> with stf.stream_ctx(devices="cpu") as ctx:
    ...     print(ctx.logical_data_ones(3).numpy())
    [1. 1. 1.]
    """
    return context(False, **options)


def graph_ctx(**options: Any) -> Context:
    """Return ``stf.context(use_graph=True, ...)``.

    Examples
    --------
    >>> with stf.graph_ctx(devices="cpu") as ctx:
    ...     x = ctx.logical_data_ones(3)
    ...     ctx.fill(x, 2.0)  # gathered, and launched as one graph when something waits
    ...     print(x.numpy())
    [2. 2. 2.]
    """
    return context(True, **options)


context_makers.append(context)
