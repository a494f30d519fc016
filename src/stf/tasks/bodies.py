"""Bodies: what a task runs, with its arrays in place of its data and its results stored where they belong."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import cython

from stf._port.native import NotNativeError
from stf._port.remote_arrays import REMOTE_GPU, here
from stf.errors import PlaceError
from stf.interop import adapters
from stf.interop.current import on_device
from stf.interop.jax_arrays import JaxCopy
from stf.tasks import validation
from stf.tasks.annotations import Stream
from stf.tasks.last_values import LastValues
from stf.values.params import Param
from stf.values.parts import Parts, replaced_in

tensors_made: list = adapters.tensors_made
LAST_VALUES: object = LastValues
NATIVE = {}  # by function: its steps in a loop, ``(args, workers)``


@cython.no_gc
@cython.cclass
class Body(QueuedBody):
    """A queued body: a function and its arguments.

    `written` are the arrays that results go to, or `writes` says which arguments these are; `to_fill` the partials to
    fill first, `check` a watch (STF_VALIDATE), `kinds` the kinds of the parameters where not all are positional,
    `around` makes a with-block that it runs in.
    """

    def prepare(self):
        """Fill new partials, so that they count for nothing if the body is skipped."""
        if self.to_fill is not None:
            for op, partial in self.to_fill:
                op.fill(partial)
        return 0

    def give_code(self, template, numbers):
        """Let compiled code do the same, where the body is no more than a call that nobody watches."""
        task = self.task
        if self.watched or self.to_fill is not None or self.check is not None or self.around is not None:
            return 0
        if task.uses is task.accesses:
            self.compiled = template.filled(task.replicas, numbers)
        return 0

    def took(self, ns):
        self.fn.took(ns)
        return 0

    def execute(self):
        if self.check is not None:
            return self.execute_watched()
        if self.around is None:
            return self.work()
        with self.around():
            return self.work()

    def execute_watched(self):
        """Run it, and see what it does (STF_VALIDATE)."""
        self.check.begin()
        try:
            with contextlib.nullcontext() if self.around is None else self.around():
                self.work()
        except BaseException:
            self.check.undo()
            raise
        self.check(self.task)

    def work(self):
        """Call the function and store its results; its task is open for it, also in a launch of a recording."""
        task: TaskCore = self.task
        if task is None or task.views is None:
            return self.work_alone()
        task.bodies += 1
        try:
            return self.work_alone()
        finally:
            task.bodies -= 1

    def work_alone(self):
        """Call the function of a body that does not ask for its task, and store its results."""
        given = self.args
        if self.late is not None:
            self.build_late()
        result = self.fn(*self.args) if self.kinds is None else self.call_general()
        if self.results is not None:
            if self.results.takes_out:
                return self.results.must_be_in_place(result, self.written, self.fn, self.args)
            items = self.results.items_in(result, self.fn)
            result = None  # so that the list alone holds what was returned
            return self.store_made(items)
        if (result is not None or self.owes) and not self.ignores:
            store_results(result, self.written_arrays(), self.fn, self.args, self.owes)
        elif self.late is not None:
            adapters.must_return(self.written, self.fn)
        if self.late is not None and self.written:
            self.check_containers(given)
        return None

    def written_arrays(self):
        """Return the arrays that results go to; an argument that is None is a token."""
        if self.writes is None:
            return self.written
        return [self.args[i] for i in self.writes if self.args[i] is not None]

    def store_made(self, items):
        """Store the new data that the function returned."""
        name = getattr(self.fn, "__name__", "body")
        written = self.written if self.made is None else [self.made]
        if len(items) != len(written):
            raise ValueError(f"task '{name}' returned {len(items)} results for {len(written)} new data")
        store_new(items, written, name)

    def check_containers(self, given):
        """Raise TypeError if something took the place of an array in a container whose arrays are written."""
        for index in self.late:
            parts, whole = given[index], self.args[index]
            if type(parts) is not Parts or not any([target is whole for target in self.written]):
                continue
            where = replaced_in(whole, parts.views, parts.shape)
            if where is not None:
                code = getattr(self.fn, "__code__", None)
                names = () if code is None else code.co_varnames
                what = f"{names[index] if index < len(names) else f'argument {index}'}{where}"
                label = getattr(self.fn, "__name__", "body")
                raise TypeError(
                    f"task '{label}' binds '{what}' to something else, and that ends with the body; write into an "
                    f"array, `{what}[...] = ...`, and change other values outside of tasks"
                )

    def travels(self):
        """Return what another process calls to run it: see `QueuedBody.travels`."""
        written = self.written_arrays()
        rest = (self.args, written, self.kinds, self.late, self.owes, self.ignores, self.to_fill, self.around)
        on_gpu: cython.bint = cython.cast("Engine", self.engine).place(self.task.where).kind == REMOTE_GPU
        return self.fn, run_on_gpu if on_gpu else run_there, rest

    def may_be_native(self):
        return native_of(self.fn) is not None

    def native(self, workers):
        """Return the steps of a loop that do the same; a body of stf's own says which."""
        own = native_of(self.fn)
        if own is None:
            kind, name = type(self.fn), getattr(self.fn, "__name__", None)
            what = f"a {kind.__name__}" if name is None else f"the Python function '{name}'"
            raise NotNativeError(f"calls {what}, and no compiled loop")
        plain: cython.bint = self.late is None and self.kinds is None and self.results is None
        if not plain or self.to_fill is not None or self.check is not None or self.looks is not None:
            raise NotNativeError("gets or returns more than arrays and numbers")
        if self.argument_sources is None:
            raise NotNativeError("asks for its task")
        return own(self.arguments_in(None, None), workers)

    def varying(self):
        return self.args, self.argument_sources

    def arguments_in(self, values, rebinding):
        return cython.cast(Body, self.again(values, rebinding)).args

    def again(self, values, rebinding):
        """Return the same body for one launch of a recording: with the parameters of that, and perhaps other data."""
        body: Body = Body.__new__(Body)
        self.copy_to(body)
        body.fn, body.kinds, body.written, body.to_fill = self.fn, self.kinds, self.written, self.to_fill
        body.writes = self.writes
        body.late, body.ignores, body.owes, body.around = self.late, self.ignores, self.owes, self.around
        body.results, body.made = self.results, self.made
        body.argument_sources = self.argument_sources
        body.args = self.args
        for argument in self.args:
            if isinstance(argument, Param):
                body.args = tuple([a.value_in(values) if isinstance(a, Param) else a for a in self.args])
                break
        if rebinding is not None and self.argument_sources is not None:
            body.rebind(rebinding)
        if self.looks is not None:
            body.check = self.looks.at(rebinding)
        return body

    def rebind(self, rebinding):
        """Work on other data than those that were recorded."""
        arguments = list(self.args)
        written = None if self.written is None else list(self.written)
        for position, replica, writeable, lib, part in self.argument_sources:
            other = rebinding.replica_for(replica)
            if other is replica and (part < 0 or not rebinding.wholes):
                continue
            recorded = self.args[position]
            copy = recorded.views[part] if part >= 0 else recorded
            view = copy.of(other) if type(copy) is JaxCopy else view_at(self.task, other, writeable, lib)
            if part >= 0:
                whole = recorded.like(rebinding.wholes) if arguments[position] is recorded else arguments[position]
                whole.views[part] = view
                view = whole
            for i in range(0 if written is None else len(written)):
                if self.written[i] is recorded:  # another one of those may have been this view
                    written[i] = view
            arguments[position] = view
        self.args, self.written = tuple(arguments), written

    def run_at(self, port, slot, pointer):
        """Use another slot, in a launch of a recording: its stream, by address, and JAX's copies on it."""
        others = {}
        args = []
        for argument in self.args:
            other = argument
            if type(argument) is Stream:
                other = Stream(argument.place, pointer)
            elif type(argument) is JaxCopy:
                other = argument.at(port, slot, pointer)
            elif type(argument) is Parts and any([type(view) is JaxCopy for view in argument.views]):
                views = [view.at(port, slot, pointer) if type(view) is JaxCopy else view for view in argument.views]
                other = Parts(views, argument.shape)
            others[id(argument)] = other
            args.append(other)
        self.args = tuple(args)
        if self.written is not None:
            self.written = [others.get(id(target), target) for target in self.written]
        return 0

    def refuses(self, data):
        """Return whether it works on some of the data, by number, and cannot on others in their place."""
        return self.argument_sources is None and any([number in data for number in self.data])

    @property
    def data(self):
        """The numbers of the data that a recorded body works on."""
        task: TaskCore = self.task
        return [] if task is None or task.cores is None else [core.id for core in task.cores]

    def build_late(self):
        """Build what is made of several arrays, now that their content is there."""
        args = list(self.args)
        for index in self.late:
            whole = args[index]()
            if self.written is not None and type(args[index]) is not JaxCopy:
                self.written = [whole if target is args[index] else target for target in self.written]
            args[index] = whole
        self.args = tuple(args)

    def call_general(self):
        """Call a function with ``*parts``, ``**named`` or keyword-only parameters."""
        positional = []
        named = {}
        out = []
        for (name, kind), value in zip(self.kinds, self.args, strict=True):
            if kind == "*":
                positional.extend(value)
            elif kind == "**":
                named.update(value)
            elif kind == "keyword":
                named[name] = value
            elif kind == "out":
                out.append(value)
            elif kind != "result":
                positional.append(value)
        if out:
            named["out"] = out[0] if len(out) == 1 else tuple(out)
        return self.fn(*positional, **named)


def written_values(task: TaskCore, values: Any) -> Any:
    """Return the arrays that a body's results go to: those opened for writing, in order."""
    if task.groups is not None:
        return None
    written = []
    position = 0
    for i, item in enumerate(task.accesses):
        access: Access = item
        if task.replica_at(i) is None:
            continue
        if access.mode != READ:
            written.append(values[position])
        position += 1
    return written


def store_results(result: Any, written: Any, fn: Any, given: Any = (), owes: bool = False) -> int:
    """Store what a body returned into the data that it writes; it may be what its parameters are bound to in the end.

    A body that `owes` a result does not use all that it writes.
    """
    if type(result) is tuple and len(result) > 1 and type(result[0]) is LAST_VALUES:
        result[0].check(result, given, fn)
        result = None
    name = getattr(fn, "__name__", "body")
    if result is None and owes and written:
        raise TypeError(
            f"task '{name}' returned None this time, and does not use all the arrays that it writes; return a value on "
            "each way through the function, or write into the arrays"
        )
    if result is None or isinstance(result, TaskCore):  # the handle of a task that the body has submitted
        return 0
    if written is None:
        raise TypeError(
            f"task '{name}' returned {type(result).__name__}, and has data made of several arrays; change them in "
            "place, and return nothing"
        )
    if not written:
        raise TypeError(
            f"task '{name}' returned {type(result).__name__} but writes nothing; annotate a parameter stf.Write"
        )
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(written):
        raise ValueError(f"task '{name}' returned {len(results)} results for {len(written)} written parameters")
    results = adapters.copies_of_aliases(results, written)
    for i, (value, target) in enumerate(zip(results, written, strict=True)):
        adapters.store(value, target, name, i)
    return 0


def native_of(fn):
    """Return what makes steps of a loop of a body of stf's own, from its arguments and the workers; else None."""
    if type(fn) is types.FunctionType:
        return NATIVE.get(fn)
    return getattr(fn, "native", None) if type(fn).__module__.startswith("stf.") else None


def run_there(fn, args, written, kinds, late, owes, ignores, to_fill, around):
    """Run a body that came from another process; with None for the function, do what must be done if it is skipped."""
    body: Body = Body.__new__(Body)
    body.fn, body.args, body.written, body.kinds, body.late = fn, args, written, kinds, late
    body.owes, body.ignores, body.to_fill, body.around = owes, ignores, to_fill, around
    body.prepare()
    if fn is not None:
        body.execute()


def run_on_gpu(fn, *rest):
    """Run a body that came from another process on the GPU's stream that it is on."""
    pointer, ordinal = here.stream
    with on_device(ordinal):
        borrowed = borrow(pointer, ordinal)
        try:
            run_there(fn, *rest)
        finally:
            borrowed.give_back()


def must_be_there(task: TaskCore):
    """Raise PlaceError unless all memory of a task is that of the process where it runs."""
    engine = cython.cast("Engine", task.engine)
    memory = engine.place(task.where).memory
    for replica in task.held_replicas():
        what = ""
        if replica.layout.interface is not None:
            what = "has an interface of its own, whose objects are in this process"
        elif replica.place != memory:
            what = f"is asked for in the memory of {engine.place(replica.place).name}, which is another process's"
        if what:
            raise PlaceError(
                f"task {task.label()} ({task.call_site}) cannot travel to {engine.place(task.where).name}: "
                f"{replica.data.describe()} {what}; leave the data place out, or run the task on exec_place.host()"
            )


def make_body(task: TaskCore, fn, args, written, kinds=None, late=None, argument_sources=None, owes=False):
    """Return the queued body of an open task."""
    body: Body = Body.__new__(Body)
    body.adopt(task)
    engine = cython.cast("Engine", task.engine)
    if engine.place(task.where).is_remote:
        must_be_there(task)
    body.fn = fn
    body.args = tuple(args)
    untrack(body.args)  # only the body has them, which the collector does not look into either
    body.written = written
    body.kinds = kinds
    body.late = late
    body.owes = owes
    if tensors_made[0] or task.remote:
        body.around = adapters.around(task, args)
    body.in_graphs = task.in_graphs
    body.ignores = not written and task.kind == "host_launch"  # its result goes nowhere, as in C++
    if task.partials is not None:
        body.to_fill = views_to_fill(task)
    if engine.scope.records:
        body.argument_sources = argument_sources
        targets = task.targets()
        body.targets = targets[0] if len(targets) == 1 else targets  # a list for each of a million tasks is 88 MB
    if engine.watches:
        body.check = validation.watch(task, engine.scope.records or engine.root.captured)
        if engine.scope.records:
            body.looks = validation.launches_looked_at(task)
            if engine.scope.runs_once and body.looks is not None and not engine.root.captured:
                body.check = body.looks.at(None)
    return body


def stream_block(port, pointer, ordinal, around):
    """Return what makes the with-block of a queued body on a device: `Body.around`, and the stream of its slot.

    The stream is current there, as for a body that runs in its call. The body runs once.
    """
    inner = contextlib.nullcontext() if around is None else around()
    device = on_device(ordinal).remember()  # the slot's, which is current now

    @contextlib.contextmanager
    def block():
        port.deliver()
        with device:
            borrowed = borrow(pointer, ordinal)
            try:
                with inner:
                    yield
            finally:
                borrowed.give_back()

    return block
