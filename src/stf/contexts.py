"""Contexts: where tasks are submitted and data are registered. The one place that wires a backend to a driver."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

import numpy as np

from stf import _loader, config, lifetime, options, places
from stf._backends.stream import StreamBackend
from stf._engine import invariants, release
from stf._engine.access import AFFINE_PLACE
from stf._engine.submit import Engine
from stf.composite import CompositeData
from stf.creation import Creation
from stf.data import LogicalData
from stf.devices import DeviceSpec, Resources, parse_devices
from stf.drivers import configured_devices, cuda_current, cuda_devices, cuda_place_of, make_driver
from stf.errors import ContextClosedError, ContextMismatchError, PlaceError, TaskStateError
from stf.functions import TaskFunction
from stf.interop import adapters
from stf.kernels.launching import KernelTask, Launching
from stf.loans import Lending
from stf.observing import Observing
from stf.places import DataPlace, ExecPlace, Grid, as_exec_place
from stf.registry import Registry
from stf.tasks import HostLaunch
from stf.waiting import Waiting

__all__ = [
    "Context",
    "context",
]

LANES_PER_PLACE = 64
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
        Run the tasks as CUDA graphs. This version records none.
    devices : str, sequence of int, or None
        ``"cpu"`` (one device that works in host memory), ``"cpu:4"`` (four emulated devices with memories of their
        own); by default ``STF_DEVICES``, else this CPU.
    stream, graph : optional
        A caller's CUDA stream or graph; need CUDA.
    resources : Resources, optional
        Workers and memory shared with other contexts.
    arrays : str, optional
        Library of the arrays that bodies get; NumPy by default.
    memory_limit : int, optional
        Bytes per device, beyond which replicas are evicted.
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
    CaptureError
        `use_graph` or `graph` asks for graphs.
    TypeError, ValueError
        Another option, or an ``STF_…`` variable, is malformed.
    """
    config.check()
    options.refuse_graphs(use_graph, graph)
    if stream is not None:
        raise PlaceError("stream= takes a CUDA stream, and this version runs on the CPU only; leave it out")
    options.check_resources(resources)
    if arrays is not None:
        adapters.check_library(arrays)
    spec = parse_devices(devices, cuda_devices=cuda_devices) if devices is not None else configured_devices()
    limit = memory_limit if memory_limit is not None else config.memory_limit
    return Context(
        spec,
        resources=resources,
        arrays=arrays,
        memory_limit=limit,
        max_pending=options.pending_limit(max_pending if max_pending is not None else config.max_pending),
        observe=observe,
        name=options.name_of(name),
    )


class Context(Launching, Creation, Lending, Waiting, Observing):
    """Data, tasks and what orders them. Made by `stf.context`."""

    def __init__(
        self,
        spec: DeviceSpec,
        *,
        resources: Resources | None = None,
        arrays: str | None = None,
        memory_limit: int | None = None,
        max_pending: int = options.MAX_PENDING,
        observe: str | bool = False,
        name: str | None = None,
        driver: Any = None,
    ) -> None:
        self._finished = True  # until it is whole
        _loader.log_if_uncompiled()
        self.name = name
        self._spec = spec
        self.on_cuda = spec.driver == "cuda"
        self._resources = resources
        self.arrays = arrays
        if driver is None:
            driver = resources.driver(spec) if resources is not None else make_driver(spec)
        self._driver = driver
        port = StreamBackend(self._driver, LANES_PER_PLACE, resources is None)
        names = ["host", *(f"device({i})" for i in spec.numbers)]
        affine = [0, *(0 if spec.shares_host else i + 1 for i in range(spec.count))]
        limits = [0, *([options.memory_bound(memory_limit, spec)] * spec.count)]
        engine = Engine(port, names, affine, limits, self._driver.max_workers, max_pending)
        engine.place_numbers = [-1, *spec.numbers]
        engine.context = weakref.ref(self)
        engine.validate = config.validate or config.hostile is not None
        engine.blocking = config.blocking
        self.attach(engine, 1 if spec.count else 0)
        self.registry = Registry()
        self._observers = None
        self._setup_observers(observe)
        self._finished = False
        lifetime.watch(self)

    # -- places ------------------------------------------------------------------------------------------------

    def place_of_code(self, code: int) -> ExecPlace:
        """The execution place that an engine number means."""
        return ExecPlace("device", self.engine.place_numbers[code]) if code else ExecPlace("host")

    @property
    def devices(self) -> Grid:
        """The devices of this context: ``len``, iteration, ``[i]``, ``.reshape``."""
        return Grid([ExecPlace("device", i) for i in self._spec.numbers])

    def place_code(self, place: Any) -> int:
        """The engine's number of an execution place."""
        chosen = as_exec_place(place)
        if chosen.kind == "host":
            return 0
        if chosen.kind == "current_device":
            return self.current_device_code()
        if isinstance(chosen, Grid):
            if chosen.size == 1:
                return self.place_code(chosen[0])
            raise PlaceError(f"a task runs at one place, got a grid of {chosen.size}; loop over it, one task per place")
        if chosen.index not in self._spec.numbers:
            known = ", ".join(repr(p) for p in self.devices)
            raise PlaceError(f"{chosen!r} is not in this context; it has {known}")
        return self._spec.numbers.index(chosen.index) + 1

    def place_of_memory(self, memory: Any) -> int:
        """The engine's number of the data place that memory of the user's is at."""
        if not memory.address_of_device:
            return 0
        number = cuda_place_of(memory.address) if memory.address else self._spec.numbers[0]
        if number not in self._spec.numbers:
            known = ", ".join(repr(place) for place in self.devices)
            raise PlaceError(
                f"{type(memory.owner).__name__} lies on device({number}), which is not in this context; it has {known}"
            )
        return self._spec.numbers.index(number) + 1

    def where_code(self, where: Any) -> int:
        """The place that ``.on(where)`` means: a place, or where a data is valid."""
        if isinstance(where, CompositeData):
            where = max(where.parts, key=lambda part: part.nbytes)
        if not isinstance(where, LogicalData):
            return self.place_code(where)
        self._check_mine(where)
        valid = [r.place for r in where.core.version.replicas if r.state]
        if where.core.token or not valid:
            return self.current_place_code()
        affine = self.engine.affine
        return affine.index(valid[-1], 1) if valid[-1] in affine[1:] else 0

    def current_place_code(self) -> int:
        """The default place of this thread: the innermost ``with place``, else the first device."""
        stack = places.defaults()
        return self.place_code(stack[-1]) if stack else int(self.default_code)

    def current_device_code(self) -> int:
        """The current device of this thread: that of the innermost ``with device``, else the first."""
        devices = [place for place in places.defaults() if place.kind == "device"]
        if devices:
            return self.place_code(devices[-1])
        if self._spec.driver == "cuda" and (ordinal := cuda_current()) in self._spec.numbers:
            return self._spec.numbers.index(ordinal) + 1
        return int(self.default_code)

    def data_place_code(self, place: Any) -> int:
        """The engine's number of a data place."""
        if isinstance(place, ExecPlace):
            raise TypeError(f"a data place is needed, got the execution place {place!r}; use its affine_data_place")
        if not isinstance(place, DataPlace):
            raise TypeError(f"a data place is needed, got {place!r}; use data_place.host() or data_place.device(i)")
        if place.kind == "affine":
            return AFFINE_PLACE
        if place.kind in ("host", "managed"):
            return 0
        if place.kind == "current_device":
            return self.engine.affine[self.current_device_code()]
        if place.index not in self._spec.numbers:
            raise PlaceError(f"{place!r} is not in this context; it has {self._spec.count} device(s)")
        return self.engine.affine[self._spec.numbers.index(place.index) + 1]

    # -- tasks that the context itself submits -----------------------------------------------------------------

    def host_launch(
        self, *args: Any, fn: Any = None, name: str | None = None, symbol: str | None = None, **others: Any
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
        """
        extra = tuple(others.pop("args", ()))
        if others:
            raise TypeError(f"host_launch got unknown arguments: {', '.join(others)}")
        task = self.make_host_task(args, name or symbol)
        launch = HostLaunch(task, extra)
        return launch(fn) if fn is not None else launch

    def cuda_kernel(self, *args: Any, name: str | None = None) -> KernelTask:
        """Return a task of kernel launches, as a with-block whose ``launch`` calls form a chain.

        Parameters
        ----------
        *args : Access or place
            As for `task`.
        name : str, optional
            What pictures and messages call the task.
        """
        task = self.make_task(args, options.name_of(name))
        task.find_site_outside()
        return KernelTask(task)

    def submit_task(self, fn: Any, *args: Any, place: Any = None, name: str | None = None) -> None:
        """Submit ``fn(*args)`` as a task, as calling ``stf.task(fn)`` would.

        Parameters
        ----------
        fn : callable
            A function annotated as for `stf.task`, or one made by it.
        *args
            Its arguments.
        place : place, optional
            Where it runs.
        name : str, optional
            What pictures and messages call the task.
        """
        function = fn if isinstance(fn, TaskFunction) else TaskFunction(fn)
        function = function.named(name) if name is not None else function
        function = function.on(place) if place is not None else function
        task = self.make_task((), None)
        task.find_site_outside()
        function.call(self, task, args, {})

    def copy(self, src: Any, dst: Any) -> None:
        """Submit a task that copies the content of one data to another of the same shape.

        Data made of several arrays are copied to others with parts of the same shapes and dtypes.
        """
        sources, targets = self._parts_of(src), self._parts_of(dst)
        if isinstance(src, CompositeData) or isinstance(dst, CompositeData):
            check_equal_parts(src, dst)
        for source, target in zip(sources, targets, strict=True):
            if source.shape != target.shape:
                raise ValueError(
                    f"cannot copy {source!r} to {target!r}: the shapes {source.shape} and {target.shape} differ"
                )
        accesses = [source.read() for source in sources] + [target.write() for target in targets]
        task = self._task_of_kind("copy", accesses, "copy", dst)
        task.run_late(copy_into, ())

    def _parts_of(self, data: Any) -> list[LogicalData]:
        """The arrays that a data is made of: itself, or its parts."""
        parts = data.parts if isinstance(data, CompositeData) else [data]
        for part in parts:
            self._check_array(part)
        return parts

    def fill(self, data: LogicalData, value: Any) -> None:
        """Submit a task that fills the data with `value`."""
        if isinstance(data, CompositeData):
            raise TypeError(
                f"fill takes data of one array, got {data!r}; fill a part of it, as in ctx.fill(lC.parts[0], value), "
                "or write it in a task"
            )
        self._fill(data, value, None, None)

    def _fill(self, data: LogicalData, value: Any, where: DataPlace | None, place: Any) -> None:
        self._check_array(data)
        np.broadcast_to(np.asarray(value, data.dtype), data.core.layout.shape)
        if place is None and where is not None and where.kind == "device":
            place = where.index
        task = self._task_of_kind("fill", [data.write(where)], "fill", None, place)
        task.run_late(fill_with, (value,))

    def prefetch(self, data: LogicalData | CompositeData, data_place: DataPlace) -> None:
        """Submit a copy of the data to a place, so that a later task finds it there."""
        code = self.data_place_code(data_place)
        parts = data.parts if isinstance(data, CompositeData) else [data]
        for part in parts:
            self._check_mine(part)
        accesses = [part.read(data_place) for part in parts]
        task = self._task_of_kind(
            "prefetch", accesses, "prefetch", None, self._spec.numbers[code - 1] if code else "host"
        )
        task.run_empty()

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
        events = self.engine.patiently(release.refresh, data.core)
        self.engine.wait_events(events, -1.0)
        release.raise_if_poisoned(data.core)

    def release(self, data: LogicalData) -> None:
        """What `LogicalData.release` does."""
        self._check_mine(data)
        self.engine.patiently(release.release_data, data.core)

    def accept(self, data: LogicalData) -> None:
        """What `LogicalData.accept` does."""
        self._check_mine(data)
        self._must_not_be_in_a_body("accept")
        self.engine.patiently(release.accept, data.core)

    def finalize(self) -> None:
        """Run everything, write back, release; calling it again does nothing.

        Raises
        ------
        TaskFailedError, ExceptionGroup
            What failed and was not told yet; the context is finalized all the same.
        """
        if self._finished:
            return
        self._must_be_outside("finalize")
        self._finish()
        self.check_errors()

    def _finish(self) -> None:
        """Finalize, whoever is inside: nobody can use the context any more."""
        try:
            release.abandon_open_tasks(self.engine)
            release.retire_all(self.engine)
        except (KeyboardInterrupt, TaskStateError):
            raise  # not finished: the data are still there, and finalize can be called again
        except BaseException:
            self._close()
            raise
        self._close()

    def _close(self) -> None:
        self._finished = True
        lifetime.forget(self)
        self.engine.closed = f"{self!r} was finalized; make a new one with stf.context()"
        self.engine.port.shutdown()
        self._write_pictures()
        self._tell_idle_devices()

    def abandon_after_fork(self) -> None:
        """In the child of a fork nothing of the parent's context may be used."""
        self._finished = True
        self.engine.closed = "forked: this context belongs to the parent process; make a new one in the child"

    def __enter__(self) -> Context:
        places.contexts().append(self)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self in places.contexts():
            places.contexts().remove(self)
        if error is None:
            self.finalize()
            return
        try:
            self.finalize()
        except BaseException as late:
            error.add_note(f"while the context was finalized: {type(late).__name__}: {late}")

    def __del__(self) -> None:
        if not getattr(self, "_finished", True):
            lifetime.collected(self)

    def check_state(self) -> None:
        """Verify every cross-link of the engine; raise AssertionError with the story if one is broken."""
        invariants.check_state(self.engine)

    def _tell_idle_devices(self) -> None:
        used = [pool.tasks for pool in self.engine.coherency.pools[1:]]
        if len(used) > 1 and sum(1 for n in used if n) == 1 and sum(used) > 1:
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

    def _must_be_outside(self, what: str) -> None:
        """Blocking calls inside a body would wait for themselves."""
        inside = self.engine.inside(threading.get_ident())
        if inside is not None:
            raise TaskStateError(f"{what} inside {inside}: it would wait for itself; call it after the task has ended")

    def __repr__(self) -> str:
        return f"<stf.Context{f' {self.name!r}' if self.name else ''} on {self._spec}>"


def check_equal_parts(src: Any, dst: Any) -> None:
    """Raise unless two data made of several arrays have parts that correspond."""
    if not (isinstance(src, CompositeData) and isinstance(dst, CompositeData)):
        raise TypeError(f"cannot copy {src!r} to {dst!r}: only one is made of several arrays; copy its parts (.parts)")
    described = [[(part.shape, part.dtype) for part in data.parts] for data in (src, dst)]
    if described[0] != described[1]:
        one, other = (", ".join(f"{dtype} {shape}" for shape, dtype in parts) for parts in described)
        raise ValueError(f"cannot copy {src!r} to {dst!r}: their parts differ, {one} and {other}")


def copy_into(*arrays: Any) -> None:
    """Body of `Context.copy`: the first half of the arrays are copied to the others."""
    half = len(arrays) // 2
    for source, target in zip(arrays[:half], arrays[half:], strict=True):
        target[...] = source


def fill_with(target: Any, value: Any) -> None:
    """Body of `Context.fill`."""
    target[...] = value
