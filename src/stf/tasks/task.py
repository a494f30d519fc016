"""Tasks as with-blocks and builders: the engine orders a task, and this gives its body arrays. Compiled."""

from __future__ import annotations

import os
import sys
import time
import types

import cython

from stf._engine import outcomes, thread_turns
from stf._engine.failures import Failure
from stf._support.arguments import name_of, priority_of, refuse_name, warn_bare
from stf._support.library_errors import is_uncapturable, uncapturable
from stf._support.with_blocks import bind_lightly
from stf.errors import TaskStateError
from stf.interop import adapters
from stf.interop.current import without_grad
from stf.interop.streams import handed_out
from stf.places.table import exec_place_of
from stf.tasks import capsules, handles, validation
from stf.tasks.after import accesses_after
from stf.tasks.group import Tasks
from stf.tasks.not_accesses import refuse_data
from stf.tasks.parameters import must_have_elements
from stf.tasks.placing import PlacingContext, place_by_number
from stf.values.parts import add_group, built

FOLDER = os.path.dirname(os.path.dirname(__file__)) + os.sep  # code there submits no tasks of its own
TOKEN: object = adapters.TOKEN
FUNCTION: object = types.FunctionType
PUBLIC = """
    add_dep add_deps add_done_callback args_cai arrays call_site cancel cancelled cupy device done end exception
    exec_place get get_arg get_arg_cai get_graph get_stream graph id label numba numpy on place place_name record_event
    result
    running set_exec_place set_symbol start stream stream_ptr stream_ptrs streams symbol torch values
"""


class ContextCore(PlacingContext):
    """What of a context every task needs; `stf.context` makes the whole."""

    def task(self, *args, name=None, symbol=None, after=None, priority=0):
        """Return a task on the accesses `args`, with at most one place among them.

        Parameters
        ----------
        *args : Access or place
            ``lX.read()`` and the like; an execution place anywhere among them.
        name : str, optional
            The task's name in pictures and messages.
        after : Event or sequence of Event, optional
            Events of `Context.event` that it comes after.
        priority : int, optional
            Where several tasks could run, a smaller number comes first; it is clipped to what the device has
            (``ctx.devices[0].priorities``). A hint: on a GPU it is the priority of the task's stream, on a CPU the
            order in which workers take bodies. Recorded tasks have none.

        Returns
        -------
        Task
            A with-block, a builder to call with the body, or a handle for ``start`` and ``end``.

        Raises
        ------
        TypeError, PlaceError
            An argument is neither an access nor a place, there are two places, the priority is no integer, or the
            context does not have that place.
        """
        if after is not None:
            args += accesses_after(after)
        task: Task = self.prepare(Task.__new__(Task), args, name if symbol is None else symbol)
        if priority != 0:
            task.priority = priority_of(priority)
        if task.where == SEVERAL:
            return self._grid_task(args, task.symbol)
        task.find_site()
        task.warns_if_unused = True
        return task

    @property
    def arrays(self):
        """The library of bodies' arrays that the user chose; None for NumPy's on a CPU and CuPy's on a device."""
        return self.engine.arrays

    def attach(self, engine, default_code, codes=None, ordinal_of_current=None):
        """Give the context its engine, and say what its places and its default place are."""
        PlacingContext.attach(self, engine, default_code, codes, ordinal_of_current)
        self.streams = {}

    def make_host_task(self, args, symbol, uses_cuda):
        """Return a task on the host, for `host_launch`."""
        task: Task = self.make_task(args, symbol)
        place_on_host(task)
        task.kind = "host_launch"
        task.in_graphs = not uses_cuda
        task.warns_if_unused = True
        task.find_site_outside()
        return task

    def make_task_at(self, accesses, symbol):
        """Return a task of the context's own, for modules that are not compiled."""
        return self.make_task(tuple(accesses), symbol)

    def make_launch_at(self, name):
        """As `make_launch`, for modules that are not compiled."""
        return self.make_launch(name)

    def make_launch(self, name):
        """Return a task of the context's own that launches what was recorded."""
        if owed:
            return_owed()
        task: Task = Task.__new__(Task)
        task.context = self
        task.engine = self.engine
        task.symbol = name
        place_launch(task, self)
        task.kind = "graph"
        task.find_site_outside()
        return task

    def make_task(self, args, symbol):
        return self.prepare(Task.__new__(Task), args, symbol)

    def prepare(self, task: Task, args, symbol):
        """Give a task that was made its accesses and its place; return it."""
        if owed:
            return_owed()
        task.context = self
        task.engine = self.engine
        if symbol is not None and not isinstance(symbol, str):
            refuse_name(symbol)
        task.symbol = symbol
        task.accesses = args
        for arg in args:
            if not isinstance(arg, Access):
                self.sort_arguments(task, args)
                return task
        place_here(task, self)
        return task

    def sort_arguments(self, task: Task, args):
        """The rarer arguments of a task: a place, data made of several arrays, and mistakes."""
        accesses = []
        placed = False
        for arg in args:
            if isinstance(arg, Access):
                accesses.append(arg)
            elif hasattr(arg, "expand"):
                task.groups = add_group(task.groups, accesses, arg)
                continue
            else:
                refuse_data("a task", arg)
                if placed:
                    raise TypeError(f"a task runs at one place, got a second: {arg!r}")
                place_as_argument(task, self, arg)
                placed = True
                continue
            if task.groups is not None:
                task.groups.append((len(accesses) - 1, 1, None))
        task.accesses = tuple(accesses)
        if not placed:
            place_here(task, self)
        return 0


@cython.no_gc
@cython.cclass
class Task(TaskCore):
    """A task, as ``ctx.task(...)`` returns it, or a call of a task function.

    Use it as a with-block, call it with a body (or decorate one), or drive it with `start` and `end`.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x, y = ctx.logical_data_ones(3), ctx.logical_data_zeros(3)
    ...     with ctx.task(1, x.read(), y.rw(), name="add") as t:  # a with-block
    ...         a, b = t.numpy()  # or t.arrays(), t.torch(), t.cupy(), t.numba()
    ...         b += a
    ...         print(t.symbol, t.place, t.device, len(t.streams))
    ...     u = ctx.task().add_deps(x.read(), y.rw()).set_symbol("add again").on(1)  # by hand
    ...     u = u.start()
    ...     u[1][:] += u[0]  # u[0] is u.get(0), and u.values()[0]
    ...     print(u.label(), u.get_arg(0) == u[0].ctypes.data)
    ...     u.end()
    ...     print(y.numpy(), u.id > t.id)
    ...     u.add_done_callback(lambda task: print("done"))  # as a handle
    ...     print(u.result(), u.exception(), u.done(), u.running(), u.cancel(), u.cancelled())
    add exec_place.device(1) 1 1
    'add again' True
    [2. 2. 2.] True
    done
    None None True False False False
    """

    _stf_injected = "task"

    # -- before it starts --------------------------------------------------------------------------------------

    def add_deps(self, *accesses):
        """Add accesses; before the task starts. Returns the task."""
        self.must_be_new("add_deps")
        joined = list(self.accesses)
        try:
            for access in accesses:
                if hasattr(access, "expand"):
                    self.groups = add_group(self.groups, joined, access)
                    continue
                if not isinstance(access, Access):
                    raise TypeError(f"add_deps takes accesses such as lX.read(), got {type(access).__name__}")
                joined.append(access)
                if self.groups is not None:
                    self.groups.append((len(joined) - 1, 1, None))
        finally:  # what stands before a mistake was added, and `groups` knows it
            self.accesses = tuple(joined)
            self.uses = None  # what it was to begin with, if it tried to
        return self

    add_dep = add_deps

    def set_exec_place(self, place):
        """Say where the task runs; before it starts. Returns the task."""
        self.must_be_new("set_exec_place")
        place_at(self, self.context, place)
        return self

    on = set_exec_place

    def set_symbol(self, symbol):
        """Name the task. Returns the task."""
        self.symbol = name_of(symbol)
        return self

    def must_be_new(self, what):
        """Raise unless the task has not started."""
        if self.state != NEW or self.is_held:
            state = "ended" if self.state == ENDED else "started"
            raise TaskStateError(f"{what} on task {self.label()}, which has {state}")

    # -- its life ----------------------------------------------------------------------------------------------

    def open(self):
        """Begin, and wait for the inputs where the body runs in place."""
        if self.state != NEW or self.is_held:
            self.must_be_new("start")
        is_block: cython.bint = self.warns_if_unused  # by the user, and so no wait
        self.warns_if_unused = False
        if self.where < 0:
            settle(self)
        engine = cython.cast(Engine, self.engine)
        try:
            begin_here(engine, self)
            if not is_block and self.blocks_caller and self.kind == "wait" and not engine.scope.records:
                thread_turns.yield_to_recorders(engine, self)
            enter_here(engine, self)
            if self.partials is not None:
                for op, partial in views_to_fill(self):
                    op.fill(partial)
            if engine.watches:
                capsules.refuse(self, "a with-block or launches of compiled kernels")
                self.restore = validation.watch(self, engine.scope.records or engine.root.captured)
        except BaseException:
            if self.borrowed is not None or self.pools is not None:
                self.give_back()
            if self.state == OPEN:
                engine.withdraw(self)
            take_back_place(self)
            raise
        if engine.observer is not None and not engine.place(self.where).enqueues and engine.root.values is None:
            self.opened_ns = time.perf_counter_ns()
        return 0

    def __enter__(self):
        self.open()
        return self

    def __exit__(self, kind, error, trace):
        if self.state != OPEN:
            return
        if error is None:
            self.close()
        else:
            refused = isinstance(error, Exception) and is_uncapturable(self, error)
            self.abandon(error)
            if refused:
                raise uncapturable(self, error) from error

    def start(self):
        """Start the task: claim its data, and wait for them where the body runs in place. Returns the task.

        Raises
        ------
        TaskStateError
            It was started before, or needs data that this thread holds in another open task.
        """
        self.open()
        if self.restore is not None:
            self.restore.start()
        return self

    def end(self):
        """End the task, in any thread; what it wrote is now what later tasks see.

        The device and the streams that were current in the thread that started it are current again when that thread
        submits or waits next.
        """
        if self.state != OPEN:
            state = "was not started" if self.state == NEW else "has ended"
            raise TaskStateError(f"end on task {self.label()}, which {state}")
        self.close()

    def close(self):
        """End an open task."""
        if self.borrowed is not None or self.pools is not None:
            self.give_back()
        if self.restore is not None:
            try:
                self.restore(self)  # what the body did that its accesses do not allow (STF_VALIDATE)
            except BaseException as error:
                self.abandon(error)
                raise
            self.restore = None
        engine = cython.cast(Engine, self.engine)
        if self.opened_ns:
            self.tell_span()
        if not engine.scope.records:
            engine.end(self)
        else:
            end_recorded(engine, self)
        return 0

    def tell_span(self):
        """Tell the observer how long a body ran in place."""
        start, self.opened_ns = self.opened_ns, 0
        span = (self.id, self.symbol or self.kind, self.where - 1, self.thread, start, time.perf_counter_ns(), "task")
        cython.cast(Engine, self.engine).observer.ran(*span)

    def abandon(self, error):
        """End a task whose body raised: what it was to write is poisoned."""
        if self.restore is not None:
            self.restore.undo()
            self.restore = None
        if self.borrowed is not None or self.pools is not None:
            self.give_back()
        engine = cython.cast(Engine, self.engine)
        if self.opened_ns:
            self.tell_span()
        failure = Failure.of(self, error, True)
        engine.fail(self, failure)  # first: whoever interrupts what comes after leaves no task open
        failure.forget_frames()

    def again(self):
        """Return a task like this one, which has not begun: it is recorded in place of this."""
        task: Task = Task.__new__(Task)
        task.context, task.engine = self.context, self.engine
        task.accesses, task.groups = self.accesses, self.groups
        task.code, task.lasti, task.symbol, task.kind = self.code, self.lasti, self.symbol, self.kind
        task.priority, task.in_graphs = self.priority, self.in_graphs
        place_by_number(task, self.where)
        return task

    def run_queued(self, fn, extra, lib=None):
        """Submit with a queued body (for tasks of the context's own)."""
        settle(self)
        if lib is None and self.engine.arrays == "jax":  # which cannot be written into
            lib = "cupy" if self.engine.place(self.where).enqueues else "numpy"
        submit_body(self, fn, extra, lib)

    def run_empty(self):
        """Begin and end: the copies that the accesses need are all the work."""
        settle(self)
        if outcomes.begins(self.engine, self):
            cython.cast(Engine, self.engine).end(self)

    def run_native(self, work):
        """Begin, put ``work(task)`` on the slot, and end; nothing is waited for."""
        settle(self)
        engine = cython.cast(Engine, self.engine)
        if not outcomes.begins(engine, self):
            return
        try:
            work(self)
        except BaseException:
            engine.withdraw(self)
            raise
        engine.end(self)

    def replica_of(self, index):
        """Return the replica of access `index`."""
        return self.replica_at(index)

    def find_site_outside(self):
        """The innermost line outside stf submits this task."""
        if cython.compiled:
            self.code = stf_call_site_outside(FOLDER, cython.address(self.lasti))
        else:
            frame = sys._getframe(0)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(FOLDER):
                frame = frame.f_back
            self.code, self.lasti = frame.f_code, frame.f_lasti
        return 0

    # -- as a builder ------------------------------------------------------------------------------------------

    def __call__(self, *args, **others):
        """Submit ``fn(*arrays)`` as this task's body; return the task, which is its handle. This also decorates.

        Tokens bring no argument. The body runs when its data are ready: on a worker, on a CPU. A handle stands for its
        body where a body is asked for, and can be called as the body is.
        """
        if self.state != NEW and self.body is not None and (len(args) != 1 or type(args[0]) is not FUNCTION):
            return body_of(self)(*args, **others)
        self.must_be_new("call")
        self.warns_if_unused = False
        fn = body_of(args[0]) if len(args) == 1 and not others else None
        if not callable(fn):
            raise TypeError(f"a task's body is a function, got {', '.join([type(arg).__name__ for arg in args])}")
        if self.symbol is None:
            self.symbol = getattr(fn, "__name__", None)
        submit_body(self, fn, ())
        keep_body(self, fn)
        return self

    # -- what the body sees ------------------------------------------------------------------------------------

    def arrays(self, lib=None):
        """Return the task's data as a tuple of arrays, tokens skipped.

        Parameters
        ----------
        lib : str, optional
            ``"numpy"``, ``"cupy"``, ``"torch"``, ``"numba"`` or ``"jax"`` (copies, for reading); by default the
            context's, else NumPy on a CPU.

        Returns
        -------
        tuple
            One array per access, in order; a read's NumPy array is not writeable.
        """
        return self.arrays_in(lib)

    def arrays_in(self, lib):
        """Return what `arrays` returns."""
        values = self.views_in(lib)
        if lib is None and self.context is not None:  # a queued body's task has ended and knows its arrays
            engine = cython.cast(Engine, self.engine)
            lib = engine.arrays
            if lib is None and adapters.tensors_made[0] and adapters.uses_tensors(values):
                lib = "torch"
        return self.adapt(values, lib) if lib == "jax" or lib == "torch" else values

    def views_in(self, lib):
        """Return the task's arrays, tokens skipped; its stream is the current one from here on."""
        if self.state != OPEN:
            self.must_be_open("arrays")
        if self.views is None and self.groups is None and len(self.accesses) == 1:
            view = view_of(self, 0, lib)  # alone, so of its own library
            values = () if view is TOKEN else (view,)
        else:
            values = without_tokens(self.values(lib))
        self.borrow()
        return values

    def adapt(self, values, library):
        """Return what two libraries want of a with-block: copies for JAX; for torch, autograd off on a CPU too."""
        if library == "jax":
            return adapters.copies_of(self, values)
        if library == "torch" and self.borrowed is None and self.state == OPEN:
            self.borrowed = without_grad()
        return values

    def borrow(self):
        """Make the task's stream current in CuPy and torch until the body ends; nothing on a CPU."""
        engine = cython.cast(Engine, self.engine)
        if self.borrowed is not None:
            if not cython.cast(Borrowed, self.borrowed).is_current():
                self.renew(self.borrowed)
        elif self.state == OPEN and engine.place(self.where).enqueues:
            pointer = engine.port.stream(self.slot)
            if pointer is not None:
                self.borrowed = borrow(pointer, engine.place(self.where).ordinal)
                if engine.scope.records:
                    open_pools(engine, self)
        elif self.state == OPEN and self.remote:
            self.borrowed = adapters.host_use(self)
        return 0

    def renew(self, borrowed):
        """Do again what `borrow` did, for the same device: another task, or thread, may have come between."""
        engine = cython.cast(Engine, self.engine)
        if self.state == OPEN and engine.port.stream(self.slot) is not None:
            borrowed.renew()
            if self.pools is not None:
                cython.cast(PrivatePools, self.pools).renew()
        return 0

    def give_back(self):
        """Undo `borrow`."""
        borrowed: Borrowed = self.borrowed
        self.borrowed = None
        close_pools(self)
        if borrowed is not None:
            borrowed.keep_torch()
            give_back(self.engine, self, borrowed)
        return 0

    def numpy(self):
        """Return the task's data as NumPy arrays; see `arrays`."""
        return self.arrays_in("numpy")

    def cupy(self):
        """Return the task's data as CuPy arrays; see `arrays`."""
        return self.views_in("cupy")

    def torch(self):
        """Return the task's data as tensors; see `arrays`."""
        return self.arrays_in("torch")

    def numba(self):
        """Return the task's data as Numba arrays; see `arrays`."""
        return self.arrays_in("numba")

    def values(self, lib=None):
        """Return the arrays of all accesses, tokens included."""
        return values_of(self, lib) if self.views is None else built(self.views)

    def keep_views(self):
        """Keep the arrays for a queued body that asked for its task: by then the task has ended for the engine."""
        self.views = values_of(self, None)

    def get_arg(self, index):
        """Return the address of access `index` (tokens counted) as an int."""
        self.must_be_open("get_arg")
        return address_of(self, self.check_index(index))

    def get_arg_cai(self, index):
        """Return access `index` (tokens counted) as an object with ``__cuda_array_interface__`` and DLPack."""
        self.must_be_open("get_arg_cai")
        memory = memory_of(self, position_of(self, self.check_index(index)))
        if memory is None:
            raise no_address(self, index)
        return memory

    def args_cai(self):
        """Return the task's arrays as a tuple of objects with ``__cuda_array_interface__``, tokens skipped."""
        self.must_be_open("args_cai")
        found = [memory_of(self, i) for i in range(len(self.accesses or self.views or ()))]
        return tuple([memory for memory in found if memory is not None])

    def cuda_stream(self):
        """Return the address of the CUDA stream of an open task; None elsewhere."""
        engine = cython.cast(Engine, self.engine)
        if self.state != OPEN:
            return None
        pointer = engine.port.stream(self.slot)
        if pointer is not None and engine.scope.records:
            open_pools(engine, self)
        return pointer

    def __getitem__(self, index):
        self.must_be_open("indexing")
        index = self.check_index(index)
        is_single: cython.bint = self.groups is None and self.views is None
        one = view_of(self, index, library_of(self, None)) if is_single else self.values()[index]
        self.borrow()
        return adapters.drop_token(one)

    def __bool__(self):
        return True  # whatever its length

    def __len__(self):
        if self.views is not None:
            return len(self.views)
        return len(self.accesses or () if self.groups is None else self.groups)

    def check_index(self, index):
        """Return a position from the start, or raise IndexError."""
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"task {self.label()} has {count} accesses, got index {index}")
        return index % count

    def must_be_open(self, what):
        """Raise unless the task is open."""
        if self.state_in_body() != OPEN:
            remedy = "start it first" if self.state == NEW else "read the data that it writes, lX.numpy()"
            state = "has not started" if self.state == NEW else "has ended"
            raise TaskStateError(f"{what} on task {self.label()}, which {state}; {remedy}")

    @property
    def stream(self):
        """The stream that the task's work goes to."""
        self.must_be_open("stream")
        known = {} if self.context is None else cython.cast(ContextCore, self.context).streams
        return stream_of(known, self.place_name, self.own_stream())

    def own_stream(self):
        """Return the address of the CUDA stream of an open task; on the host one for callbacks, None without CUDA."""
        pointer = self.cuda_stream()
        is_on_host = pointer is None and self.state == OPEN and self.where == 0
        return stream_on_host(self) if is_on_host else pointer

    def stream_of_queued_body(self):
        """Return the stream for a body that is about to be queued: the thread that runs it makes it current."""
        engine = cython.cast(Engine, self.engine)
        known = {} if self.context is None else cython.cast(ContextCore, self.context).streams
        return stream_of(known, self.place_name, engine.port.stream(self.slot))

    def get_stream(self):
        """Return `stream`."""
        return self.stream

    @property
    def streams(self):
        """The stream, alone: that of each place, as tasks on several have them."""
        return [self.stream]

    def stream_ptrs(self):
        """Return the address of the CUDA stream, alone; None at a place that has none."""
        self.must_be_open("stream_ptrs")
        return [handed_out(self.own_stream())]

    @property
    def graph(self):
        """A CUDA graph of the task's own, to be filled: see `OwnGraph`."""
        from stf.tasks.body_graph import graph_of

        self.own_graph = graph_of(self, self.own_graph)
        return self.own_graph

    def get_graph(self):
        """Return `graph`."""
        return self.graph

    def record_event(self):
        """Return an event that is recorded here on the task's stream: see `StreamEvent`."""
        from stf.tasks.stream_events import record_on

        self.must_be_open("record_event")
        return record_on(self.cuda_stream(), f"task {self.label()}")

    def get(self, index, dtype=None):
        """Return access `index`, as ``t[index]``.

        Parameters
        ----------
        index : int
            Which access, tokens counted.
        dtype : dtype, optional
            Of the elements, as in ``t.get(0, np.float32)``: what the code after it relies on.

        Raises
        ------
        TypeError
            The elements are of another type.
        """
        if dtype is not None:
            must_have_elements(self, self.check_index(index), dtype)
        return self[index]

    def stream_ptr(self):
        """Return the address of the task's CUDA stream, as an int that has ``__cuda_stream__``."""
        self.must_be_open("stream_ptr")
        return pointer_of_stream(self)

    @property
    def place(self):
        """Where the task runs."""
        if self.is_held:
            self.engine.submit_held()
        engine = cython.cast(Engine, self.engine)
        return exec_place_of(engine, self.where)

    @property
    def exec_place(self):
        """Where the task runs: another name of `place`."""
        return self.place

    def __dealloc__(self):
        if self.borrowed is not None or self.pools is not None:
            borrowed: Borrowed = self.borrowed
            if borrowed is not None:  # it was never ended, and its device is not the current one
                borrowed.on_other_device = True
            self.give_back()
        if self.warns_if_unused and self.state == NEW and self.uses is None:
            warn_bare(self.label(), self.call_site)

    def __dir__(self):
        return PUBLIC.split()

    # -- as a handle -------------------------------------------------------------------------------------------

    done, running, cancelled, cancel = handles.is_done, handles.is_running, handles.is_cancelled, handles.cancel
    exception, result, add_done_callback = handles.exception, handles.result, handles.add_done_callback

    def __await__(self):
        return handles.awaitable(self)

    _state, _condition, _waiters = map(property, (handles.state, handles.condition, handles.waiters))

    def _repr_html_(self):
        context = cython.cast(Engine, self.engine).context()
        return None if context is None else context._html_of_task(self)

    def __repr__(self):
        state = "open" if self.state_in_body() == OPEN else handles.description(self)
        return f"<task {self.label()} at {self.place_name}, {state}>"


def body_of(given):
    """Return the body of a handle that is given as a body; other things as they are."""
    if not isinstance(given, (Task, Tasks)):
        return given
    if given.body is None:
        raise TypeError(f"a body is a function, got {given!r}, which keeps none; give the function itself")
    return given.body


def keep_body(task: Task, fn):
    """Let a handle know its body, but for one that refers to itself by name: nobody would free the two."""
    code = None if getattr(fn, "__closure__", None) is None else getattr(fn, "__code__", None)
    if code is None or code.co_name not in code.co_freevars:
        task.body = fn
    return 0


if not cython.compiled:
    Task.__del__ = Task.__dealloc__

bind_lightly(Task)
