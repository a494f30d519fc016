"""Tasks: with-blocks, builders, and functions whose parameters say how they are accessed.

Compiled, since every task passes through here. The engine orders a task; this module gives its body arrays.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import warnings

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

from stf._engine.access import Access, DataHandle, accumulate_access
from stf._engine.failures import Failure
from stf._engine.submit import TaskCore
from stf.errors import AccessError, PlaceError, TaskStateError
from stf.interop import adapters

if not cython.compiled:
    from stf._engine.access import make_access

    READ, WRITE, RW, ACCUMULATE, AFFINE = 1, 2, 3, 4, -1
    NEW, OPEN, ENDED = 0, 1, 2

active_places = adapters.active_places


class ContextCore:
    """What of a context every task needs; `stf.context` makes the whole."""

    def task(self, *args, name=None, symbol=None):
        """Return a task on the accesses `args`, with at most one place among them.

        Parameters
        ----------
        *args : Access or place
            ``lX.read()`` and the like; an execution place anywhere among them.
        name : str, optional
            What pictures and messages call the task.

        Returns
        -------
        Task
            A with-block, a builder to call with the body, or a handle for ``start`` and ``end``.

        Raises
        ------
        TypeError
            An argument is neither an access nor a place, or there are two places.
        """
        task: Task = self.make_task(args, name if symbol is None else symbol)
        task.find_site()
        task.bare = True
        return task

    def attach(self, engine, default_code):
        """Give the context its engine."""
        self.engine = engine
        self.default_code = default_code
        self.runs_inline = engine.port.runs_inline

    def make_host_task(self, args, symbol):
        """A task on the host, for `host_launch`."""
        task: Task = self.make_task(args, symbol)
        task.place = 0
        task.kind = "host_launch"
        task.set_site(sys._getframe(1 if cython.compiled else 2))
        return task

    def make_task_at(self, accesses, symbol):
        """A task of the context's own."""
        return self.make_task(accesses, symbol)

    def engine_stream(self, task: Task):
        """The driver's stream of an open task."""
        core: Task = task
        return self.engine.port.stream(core.slot)

    def engine_entry(self):
        """A with-block that enters the engine once, so that what was dropped is released."""
        return EngineEntry(self.engine)

    def make_task(self, args, symbol):
        task: Task = Task.__new__(Task)
        task.context = self
        task.engine = self.engine
        task.symbol = symbol
        task.place = self.default_code
        accesses = []
        placed = False
        for arg in args:
            if isinstance(arg, Access):
                accesses.append(arg)
            elif hasattr(arg, "expand"):
                if task.groups is None:
                    task.groups = [(i, 1, None) for i in range(len(accesses))]
                parts = arg.expand()
                task.groups.append((len(accesses), len(parts), arg.rebuild))
                accesses.extend(parts)
                continue
            elif isinstance(arg, DataHandle):
                raise TypeError(f"a task takes accesses, got {arg!r}; say how it is used: .read(), .write() or .rw()")
            elif placed:
                raise TypeError(f"a task runs at one place, got a second: {arg!r}")
            else:
                task.place = self.place_code(arg)
                placed = True
                continue
            if task.groups is not None:
                task.groups.append((len(accesses) - 1, 1, None))
        task.accesses = accesses
        if not placed and active_places[0]:
            task.place = self.current_place_code()
        return task

    def place_code(self, place):
        """The engine's number of an execution place; `Context` knows."""
        raise NotImplementedError

    def current_place_code(self):
        """The default place of this thread."""
        return self.default_code

    def submit_task(self, fn, *args, place=None, name=None):
        """Submit `fn(*args)` as a task, as calling ``stf.task(fn)`` would; see `stf.task`."""
        function = TaskFunction(fn, name)
        if place is not None:
            function = function.on(place)
        return function.call(self, args, {}, sys._getframe(0) if not cython.compiled else None)


if not cython.compiled:
    ContextCore.arrays = None
    ContextCore.blocking = False


class EngineEntry:
    """One entry to the engine."""

    def __init__(self, engine):
        self.engine = engine

    def __enter__(self):
        self.engine.enter()

    def __exit__(self, *exception):
        self.engine.gate.leave()


class HostLaunch:
    """A builder of a host function's task: call it with the function, or decorate one."""

    def __init__(self, task, extra):
        self.task = task
        self.extra = extra

    def __call__(self, fn):
        if not callable(fn):
            raise TypeError(f"host_launch takes a function, got {type(fn).__name__}")
        if self.task.symbol is None:
            self.task.symbol = getattr(fn, "__name__", None)
        submit_body(self.task, fn, self.extra)
        return fn

    def set_symbol(self, symbol):
        """Name the task; return the builder."""
        self.task.symbol = symbol
        return self


class Task(TaskCore):
    """A task, as ``ctx.task(...)`` returns it.

    Use it as a with-block, call it with a body (or decorate one), or drive it with `start` and `end`.
    """

    _stf_injected = "task"

    # -- before it starts --------------------------------------------------------------------------------------

    def add_deps(self, *accesses):
        """Add accesses; before the task starts. Returns the task."""
        self.must_be_new("add_deps")
        for access in accesses:
            if not isinstance(access, Access):
                raise TypeError(f"add_deps takes accesses such as lX.read(), got {type(access).__name__}")
            self.accesses.append(access)
            if self.groups is not None:
                self.groups.append((len(self.accesses) - 1, 1, None))
        return self

    add_dep = add_deps

    def set_exec_place(self, place):
        """Say where the task runs; before it starts. Returns the task."""
        self.must_be_new("set_exec_place")
        self.place = self.context.place_code(place)
        return self

    on = set_exec_place

    def set_symbol(self, symbol):
        """Name the task. Returns the task."""
        self.symbol = symbol
        return self

    def must_be_new(self, what):
        if self.state != NEW:
            raise TaskStateError(f"{what} on task {self.label()}, which has {'ended' if self.state == ENDED else 'started'}")

    # -- its life ----------------------------------------------------------------------------------------------

    def open(self):
        """Begin, and wait for the inputs where the body runs in place."""
        if self.state != NEW:
            self.must_be_new("start")
        engine = self.engine
        engine.begin(self)
        if self.context.runs_inline:
            try:
                engine.port.enter(self.slot)
            except BaseException as error:
                engine.fail(self, Failure(self.label(), self.call_site, error, self.written(), True))
                raise
            if self.inputs is not None:
                engine.check_inputs(self)
        if self.partials is not None:
            fill_partials(self)
        if engine.validate:
            self.restore = adapters.watch(self)
        return 0

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, kind, error, trace):
        if self.state != OPEN:
            return
        if error is None:
            self.end()
        else:
            self.abandon(error)

    def start(self):
        """Start the task: claim its data, and wait for them where the body runs in place. Returns the task.

        Raises
        ------
        TaskStateError
            It was started before, or needs data that this thread holds in another open task.
        """
        self.open()
        return self

    def end(self):
        """End the task; what it wrote is now what later tasks see."""
        if self.state != OPEN:
            state = "was not started" if self.state == NEW else "has ended"
            raise TaskStateError(f"end on task {self.label()}, which {state}")
        if self.restore is not None:
            self.check_watched()
        self.engine.end(self)
        if self.context.blocking:
            self.context.synchronize()

    def abandon(self, error):
        """End a task whose body raised: what it was to write is poisoned."""
        self.restore = None
        self.engine.fail(self, Failure(self.label(), self.call_site, error, self.written(), True))

    def check_watched(self):
        restore, self.restore = self.restore, None
        try:
            restore()
        except BaseException as error:
            self.abandon(error)
            raise

    def submit_body(self, fn, extra):
        """Submit with a late body (for tasks of the context's own)."""
        submit_body(self, fn, extra)

    def run_empty(self):
        """Begin and end: the copies that the accesses need are all the work."""
        self.engine.begin(self)
        self.engine.end(self)

    def replica_of(self, index):
        """The replica of access `index`."""
        return self.replica_at(index)

    def find_site_outside(self):
        """The innermost line outside stf submits this task."""
        frame = sys._getframe(0)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("stf."):
            frame = frame.f_back
        self.set_site(frame)

    # -- as a builder ------------------------------------------------------------------------------------------

    def __call__(self, fn):
        """Submit `fn(*arrays)` as this task's body; return `fn`, so that this also decorates.

        Tokens bring no argument. The body runs when its data are ready: on a worker, on a CPU.
        """
        self.must_be_new("call")
        if not callable(fn):
            raise TypeError(f"a task's body is a function, got {type(fn).__name__}")
        if self.symbol is None:
            self.symbol = getattr(fn, "__name__", None)
        submit_body(self, fn, ())
        return fn

    # -- what the body sees ------------------------------------------------------------------------------------

    def arrays(self, lib=None):
        """Return the task's data as a tuple of arrays, tokens skipped.

        Parameters
        ----------
        lib : str, optional
            ``"numpy"``, ``"cupy"``, ``"torch"`` or ``"numba"``; by default the context's, else NumPy on a CPU.

        Returns
        -------
        tuple
            One array per access, in order; a read's NumPy array is not writeable.
        """
        self.must_be_open("arrays")
        return tuple([v for v in self.values(lib) if v is not adapters.TOKEN])

    def numpy(self):
        """Return the task's data as NumPy arrays; see `arrays`."""
        return self.arrays("numpy")

    def cupy(self):
        """Return the task's data as CuPy arrays; see `arrays`."""
        return self.arrays("cupy")

    def torch(self):
        """Return the task's data as tensors; see `arrays`."""
        return self.arrays("torch")

    def numba(self):
        """Return the task's data as Numba arrays; see `arrays`."""
        return self.arrays("numba")

    def values(self, lib=None):
        views = [view_of(self, i, lib) for i in range(len(self.accesses))]
        return views if self.groups is None else regroup(self.groups, views)

    def get_arg(self, index):
        """Return the address of access `index` (tokens counted) as an int."""
        self.must_be_open("get_arg")
        replica = self.replica_at(self.check_index(index))
        if replica is None:
            raise TypeError(f"access {index} of task {self.label()} is a token; it has no address")
        return replica.address

    def get_arg_cai(self, index):
        """Return access `index` as an object with ``__cuda_array_interface__``."""
        raise PlaceError(f"task {self.label()} runs at {self.place_name}, which is no CUDA device; use t.numpy() there")

    def args_cai(self):
        """Return the task's data as objects with ``__cuda_array_interface__``."""
        return self.get_arg_cai(0)

    def __getitem__(self, index):
        self.must_be_open("indexing")
        index = self.check_index(index)
        if self.groups is not None:
            return self.values()[index]
        view = view_of(self, index, None)
        return None if view is adapters.TOKEN else view

    def __len__(self):
        return len(self.accesses if self.groups is None else self.groups)

    def check_index(self, index):
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"task {self.label()} has {count} accesses, got index {index}")
        return index % count

    def must_be_open(self, what):
        if self.state != OPEN:
            state = "has not started" if self.state == NEW else "has ended"
            raise TaskStateError(f"{what} on task {self.label()}, which {state}; its data are there between both")

    @property
    def stream(self):
        """The stream that the task's work goes to."""
        return self.context.stream_of(self)

    def stream_ptr(self):
        """Return the address of the task's CUDA stream."""
        raise PlaceError(f"task {self.label()} runs at {self.place_name}, which has no CUDA stream")

    @property
    def exec_place(self):
        """Where the task runs, as a place."""
        return self.context.exec_place_of(self.place)

    def __del__(self):
        if self.bare and self.state == NEW:
            warnings.warn(
                f"task {self.label()} built at {self.call_site} was given no body; call it with one, or use it in a "
                "with-block",
                RuntimeWarning,
                stacklevel=1,
            )

    def __repr__(self):
        state = ("new", "open", "ended")[self.state]
        return f"<task {self.label()} at {self.place_name}, {state}>"


if not cython.compiled:
    Task.context = Task.groups = Task.restore = None
    Task.bare = False


def view_of(task: Task, index, lib):
    """The array of one access; `adapters.TOKEN` for a token."""
    replica = task.replica_at(index)
    if replica is None:
        return adapters.TOKEN
    return adapters.view(replica, task.joined_mode(index) != READ, lib or task.context.arrays)


def regroup(groups, views):
    """Put the parts of composite data together."""
    return [
        views[first] if rebuild is None else rebuild(views[first : first + count]) for first, count, rebuild in groups
    ]


def fill_partials(task: Task):
    """Give new partials of a reduction their neutral value."""
    for index in task.fresh_partials():
        access: Access = task.uses[index]
        access.op.fill(adapters.view(task.replicas[index], True, "numpy"))


# -- late bodies ---------------------------------------------------------------------------------------------------


def submit_body(task: Task, fn, extra):
    """Submit `task` with a late body that calls `fn` on the task's arrays and `extra`."""
    fn = snapshot(fn, task)
    injected = injections(fn)

    def prepare(task):
        values = [v for v in task.values() if v is not adapters.TOKEN]
        check = adapters.watch(task) if task.engine.validate else None
        fresh = [(task.uses[i].op, adapters.view(task.replicas[i], True, "numpy")) for i in task.fresh_partials()]
        written = written_values(task, values)
        named = {name: adapters.inject(kind, task) for name, kind in injected}

        def body():
            for op, partial in fresh:
                op.fill(partial)
            if check is not None:
                check.begin()
            store_results(fn(*values, *extra, **named), written, fn)
            if check is not None:
                check()

        return body

    task.engine.submit(task, prepare)
    if task.context.blocking:
        task.context.synchronize()


def written_values(task: Task, values):
    """The arrays that a body's results go to: those opened for writing, in order."""
    if task.groups is not None:
        return None
    written = []
    position = 0
    for i, access in enumerate(task.accesses):
        if task.replica_at(i) is None:
            continue
        if access.mode != READ:
            written.append(values[position])
        position += 1
    return written


def store_results(result, written, fn):
    """Store what a body returned into the data that it writes."""
    if result is None:
        return
    name = getattr(fn, "__name__", "body")
    if not written:
        raise TypeError(f"task '{name}' returned {type(result).__name__} but writes nothing; annotate a parameter stf.Write")
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(written):
        raise ValueError(f"task '{name}' returned {len(results)} results for {len(written)} written parameters")
    for i, (value, target) in enumerate(zip(results, written, strict=True)):
        adapters.store(value, target, name, i)


def injections(fn):
    """Parameters annotated ``stf.Stream`` or ``stf.Task``: (name, kind)."""
    annotations = getattr(fn, "__annotations__", None)
    if not annotations:
        return ()
    return tuple((name, kind) for name, kind in annotations.items() if adapters.is_injected(kind))


def snapshot(fn, task: Task):
    """`fn` with its closure as it is now; data among it must be accesses of the task."""
    closure = getattr(fn, "__closure__", None)
    if closure is None:
        return fn
    cells = []
    for name, cell in zip(fn.__code__.co_freevars, closure, strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            cells.append(cell)
            continue
        if isinstance(content, DataHandle):
            reject_hidden_data(task, name, content)
        cells.append(types.CellType(content))
    copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, tuple(cells))
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__annotations__ = fn.__annotations__
    return copy


def reject_hidden_data(task: Task, name, handle):
    for access in task.accesses:
        if access.data is handle:
            return
    raise AccessError(f"task {task.label()} uses logical data '{name}' without an access; pass it")


def check_globals(fn):
    """Names of logical data that a body takes from its module: a mistake."""
    for name in fn.__code__.co_names:
        if isinstance(fn.__globals__.get(name), DataHandle):
            raise AccessError(f"task '{fn.__name__}' uses logical data '{name}' without an access; pass it")


# -- task functions ------------------------------------------------------------------------------------------------


class Parameter:
    """One parameter of a task function: its access mode, or 0."""

    def __init__(self, name, kind, mode=0, op=None, library=None):
        self.name = name
        self.kind = kind
        self.mode = mode
        self.op = op
        self.library = library


class TaskFunction:
    """A function whose calls are tasks; made by ``@stf.task``."""

    def __init__(self, fn, symbol=None, arrays=None, where=None):
        if not callable(fn):
            raise TypeError(f"@stf.task decorates a function, got {type(fn).__name__}")
        self.fn = fn
        self.symbol = symbol or getattr(fn, "__name__", "task")
        self.arrays_of = arrays
        self.where = where
        self.parameters = None
        self.closes = getattr(fn, "__closure__", None) is not None

    def __getattr__(self, name):
        """``__name__`` and the like are the function's."""
        return getattr(self.fn, name)

    @property
    def __wrapped__(self):
        return self.fn

    def on(self, place):
        """Return the same function running at `place`, or where a logical data is valid."""
        copy: TaskFunction = self.copy()
        copy.where = place
        return copy

    def named(self, symbol):
        """Return the same function whose tasks are called `symbol`."""
        copy: TaskFunction = self.copy()
        copy.symbol = symbol
        return copy

    def copy(self):
        copy: TaskFunction = TaskFunction(self.fn, self.symbol, self.arrays_of, self.where)
        copy.parameters = self.parameters
        copy.signature = self.signature
        return copy

    def __call__(self, *args, **kwargs):
        return self.call(None, args, kwargs, None)

    def call(self, context, args, kwargs, frame):
        """Submit one task."""
        if self.parameters is None:
            self.parse()
        if kwargs or len(args) != len(self.parameters):
            args = self.bind(args, kwargs)
        task: Task = Task.__new__(Task)
        task.accesses = []
        task.symbol = self.symbol
        if frame is None:
            task.find_site()
        else:
            task.set_site(frame)
        slots = self.walk(task, args)
        self.adopt(task, context, args)
        fn = snapshot(self.fn, task) if self.closes else self.fn
        task.engine.submit(task, BodyMaker(self, fn, list(args), slots))
        if task.context.blocking:
            task.context.synchronize()

    def walk(self, task: Task, args):
        """Turn arguments into accesses; return (argument, first access, shape) for each that has some."""
        slots = []
        i: cython.int
        for i in range(len(args)):
            parameter: Parameter = self.parameters[i]
            value = args[i]
            if parameter.mode:
                first = len(task.accesses)
                if isinstance(value, DataHandle):
                    self.add(task, parameter, value)
                    slots.append((i, first, None, parameter.library))
                else:
                    shape = self.add_container(task, parameter, value)
                    slots.append((i, first, shape, parameter.library))
            elif isinstance(value, (DataHandle, Access)):
                raise TypeError(
                    f"parameter '{parameter.name}' of task '{self.symbol}' has no access mode, got {value!r}; annotate "
                    "it stf.Read, stf.Write or stf.ReadWrite"
                )
        return slots

    def add(self, task: Task, parameter, value):
        if parameter.mode == ACCUMULATE:
            task.accesses.append(accumulate_access(value, parameter.op))
        else:
            task.accesses.append(make_access(value, parameter.mode, None))

    def add_container(self, task: Task, parameter, value):
        """Accesses for a list, tuple, dict or dataclass of data; the shape tells how to build it again."""
        if isinstance(value, DataHandle):
            self.add(task, parameter, value)
            return None
        if isinstance(value, Access):
            if value.mode & ~parameter.mode:
                raise TypeError(
                    f"parameter '{parameter.name}' of task '{self.symbol}' is opened for less than the access passed: "
                    f"{value!r}"
                )
            task.accesses.append(value)
            return None
        if hasattr(value, "expand_mode"):
            parts = value.expand_mode(parameter.mode)
            task.accesses.extend(parts)
            return ("parts", len(parts), value.rebuild)
        if isinstance(value, (list, tuple)):
            kind = type(value)
            return ("sequence", kind, [self.add_container(task, parameter, item) for item in value])
        if isinstance(value, dict):
            return ("dict", list(value), [self.add_container(task, parameter, item) for item in value.values()])
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return ("dataclass", (value, names), [self.add_field(task, parameter, getattr(value, n)) for n in names])
        if hasattr(value, "ravel") and getattr(value, "dtype", None) == object:
            return ("object array", value.shape, [self.add_container(task, parameter, v) for v in value.ravel()])
        raise TypeError(
            f"parameter '{parameter.name}' of task '{self.symbol}' takes logical data (or a list, tuple, dict or "
            f"dataclass of them), got {type(value).__name__}; register the array with ctx.logical_data"
        )

    def add_field(self, task: Task, parameter, value):
        """A dataclass may mix data and plain values."""
        if isinstance(value, (DataHandle, Access, list, tuple, dict)) or hasattr(value, "expand_mode"):
            return self.add_container(task, parameter, value)
        return ("plain", value, None)

    def adopt(self, task: Task, context, args):
        """The context comes from the data, the place from `.on`, or from the context."""
        if context is None:
            if not task.accesses:
                raise TypeError(
                    f"task '{self.symbol}' was called without logical data, so its context is unknown; pass some, or use "
                    "ctx.submit_task"
                )
            access: Access = task.accesses[0]
            context = access.core.engine.context()
            if context is None:
                raise TypeError(f"the context of {access.core.describe()} is gone; keep a reference to it")
        owner: ContextCore = context
        task.context = owner
        task.engine = owner.engine
        if self.where is not None:
            task.place = owner.where_code(self.where)
        elif active_places[0]:
            task.place = owner.current_place_code()
        else:
            task.place = owner.default_code

    # -- the signature -----------------------------------------------------------------------------------------

    def parse(self):
        """Read the access modes off the annotations, once."""
        fn = self.fn
        self.signature = inspect.signature(fn)
        if hasattr(fn, "__code__"):
            check_globals(fn)
        parameters = []
        for name, parameter in self.signature.parameters.items():
            parameters.append(read_annotation(fn, name, parameter))
        self.parameters = parameters

    def bind(self, args, kwargs):
        """Put keyword, default and injected arguments where they belong."""
        injected = {p.name: None for p in self.parameters if p.kind in ("stream", "task")}
        try:
            bound = self.signature.bind_partial(*args, **kwargs) if injected else self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"task '{self.symbol}': {error}") from None
        bound.apply_defaults()
        missing = [p.name for p in self.parameters if p.name not in bound.arguments and p.name not in injected]
        if missing:
            raise TypeError(f"task '{self.symbol}' misses arguments: {', '.join(missing)}")
        return [bound.arguments.get(p.name) for p in self.parameters]

    def __repr__(self):
        return f"<stf.task {self.symbol}>"


class BodyMaker:
    """Makes the late body of one call, once the task's replicas are known."""

    def __init__(self, function, fn, args, slots):
        self.function = function
        self.fn = fn
        self.args = args
        self.slots = slots

    def __call__(self, task: Task):
        function: TaskFunction = self.function
        args = self.args
        written = []
        for index, first, shape, library in self.slots:
            lib = library or function.arrays_of
            if shape is None:
                args[index] = adapters.drop_token(view_of(task, first, lib))
            else:
                args[index], _ = rebuild(task, first, shape, lib)
            if function.parameters[index].mode != READ and args[index] is not None:
                written.append(args[index])
        names = None
        for i, parameter in enumerate(function.parameters):
            if parameter.kind in ("stream", "task"):
                args[i] = adapters.inject(parameter.kind, task)
            elif parameter.kind in ("*", "**", "keyword"):
                names = True
        fresh = [(task.uses[i].op, adapters.view(task.replicas[i], True, "numpy")) for i in task.fresh_partials()]
        check = adapters.watch(task) if task.engine.validate else None
        if names is not None:
            return GeneralBody(self.fn, args, function, written, fresh, check)
        return Body(self.fn, args, written, fresh, check)


class Body:
    """A call that is ready to run."""

    def __init__(self, fn, args, written, fresh, check):
        self.fn = fn
        self.args = args
        self.written = written
        self.fresh = fresh
        self.check = check

    def __call__(self):
        for op, partial in self.fresh:
            op.fill(partial)
        if self.check is not None:
            self.check.begin()
        result = self.run()
        if result is not None:
            store_results(result, self.written, self.fn)
        if self.check is not None:
            self.check()

    def run(self):
        return self.fn(*self.args)


class GeneralBody(Body):
    """A call of a function with ``*parts``, ``**named`` or keyword-only parameters."""

    def __init__(self, fn, args, function, written, fresh, check):
        Body.__init__(self, fn, args, written, fresh, check)
        self.kinds = [(p.name, p.kind) for p in function.parameters]

    def run(self):
        positional = []
        named = {}
        for (name, kind), value in zip(self.kinds, self.args, strict=True):
            if kind == "*":
                positional.extend(value)
            elif kind == "**":
                named.update(value)
            elif kind == "keyword":
                named[name] = value
            else:
                positional.append(value)
        return self.fn(*positional, **named)


def rebuild(task: Task, first, shape, lib):
    """Build a container again, of arrays this time; return it and the next access."""
    if shape is None:
        return adapters.drop_token(view_of(task, first, lib)), first + 1
    kind, what, parts = shape
    if kind == "plain":
        return what, first
    if kind == "parts":
        return parts([view_of(task, first + i, lib) for i in range(what)]), first + what
    values = []
    for part in parts:
        value, first = rebuild(task, first, part, lib)
        values.append(value)
    if kind == "sequence":
        return (what(*values) if hasattr(what, "_fields") else what(values)), first
    if kind == "dict":
        return dict(zip(what, values, strict=True)), first
    if kind == "dataclass":
        return dataclasses.replace(what[0], **dict(zip(what[1], values, strict=True))), first
    return adapters.object_array(values, what), first


def read_annotation(fn, name, parameter):
    """The access mode, operator and library that an annotation says."""
    kinds = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**", parameter.KEYWORD_ONLY: "keyword"}
    kind = kinds.get(parameter.kind, "plain")
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = adapters.resolve_annotation(fn, annotation)
    if adapters.is_injected(annotation):
        return Parameter(name, adapters.injected_kind(annotation))
    mode = getattr(annotation, "_stf_mode", 0)
    if not mode:
        return Parameter(name, kind)
    return Parameter(name, kind, mode, getattr(annotation, "op", None), getattr(annotation, "library", None))
