"""Bodies: what a task runs, with its arrays in place of its data and its results stored where they belong."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]

from stf._engine import host_waits, outcomes
from stf._engine.access import Access
from stf._engine.failures import Failure
from stf._engine.queued_bodies import QueuedBody
from stf._engine.task import TaskCore
from stf._port.events import EventSet
from stf._port.late_values import are_same
from stf._recording.recordings import Routine
from stf._support.call_sites import site_text
from stf._support.library_errors import is_out_of_memory, is_uncapturable, tells_of_capture, uncapturable
from stf.errors import CaptureError, TaskFailedError
from stf.interop import adapters
from stf.interop.captures import PrivatePools
from stf.interop.current import Borrowed, on_device
from stf.interop.jax_arrays import JaxCopy
from stf.tasks import validation
from stf.tasks.annotations import Stream
from stf.tasks.closures import check_globals, injections
from stf.values.params import Param
from stf.values.parts import Parts, replaced_in

TOKEN: object = adapters.TOKEN
tensors_made: list = adapters.tensors_made
log = logging.getLogger("stf")
NO_FUNCTION: cython.int = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR

if not cython.compiled:
    from stf._support.sync import PyThread_get_thread_ident
    from stf._support.untracked import untrack
    from stf.interop.captures import are_needed, kept_pools
    from stf.interop.current import borrow
    from stf.tasks.closures import constants_of, reaches, refuse_lost, snapshot, with_globals, with_last_values
    from stf.tasks.results import store_results, written_values
    from stf.tasks.undeclared import refuse_arrays, refuse_undeclared
    from stf.tasks.views import group, sources_in, view_at, views_of, views_to_fill

    READ, WRITE, RW, ACCUMULATE, AFFINE = 1, 2, 3, 4, -1
    NEW, OPEN, ENDED = 0, 1, 2
    RUN = 6


@cython.no_gc
@cython.cclass
class Body(QueuedBody):
    """A queued body: a function and its arguments.

    `written` are the arrays that results go to, `to_fill` the partials to fill first, `check` a watch (STF_VALIDATE),
    `kinds` the kinds of the parameters where not all are positional, `around` makes a with-block that it runs in.
    """

    if not cython.compiled:
        fn = args = written = to_fill = check = kinds = late = argument_sources = data = around = None
        ignores = owes = False

    def prepare(self):
        """Fill new partials, so that they count for nothing if the body is skipped."""
        if self.to_fill is not None:
            for op, partial in self.to_fill:
                op.fill(partial)
        return 0

    def execute(self):
        if self.check is not None:
            return self.execute_watched()
        if self.around is None:
            return self.work()
        with self.around():
            return self.work()

    def execute_watched(self):
        """The same, and see what it does (STF_VALIDATE)."""
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
        """The same for a body that does not ask for its task."""
        given = self.args
        if self.late is not None:
            self.build_late()
        result = self.fn(*self.args) if self.kinds is None else self.call_general()
        if (result is not None or self.owes) and not self.ignores:
            store_results(result, self.written, self.fn, self.args, self.owes)
        elif self.late is not None:
            adapters.must_return(self.written, self.fn)
        if self.late is not None and self.written:
            self.check_containers(given)
        return None

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

    def again(self, values, rebinding):
        """The same body for one launch of a recording: with the parameters of that, and perhaps other data."""
        body: Body = Body.__new__(Body)
        self.copy_to(body)
        body.fn, body.kinds, body.written, body.to_fill = self.fn, self.kinds, self.written, self.to_fill
        body.late, body.ignores, body.owes, body.around = self.late, self.ignores, self.owes, self.around
        body.argument_sources, body.data = self.argument_sources, self.data
        body.args = self.args
        for argument in self.args:
            if isinstance(argument, Param):
                body.args = tuple([a.value_in(values) if isinstance(a, Param) else a for a in self.args])
                break
        if rebinding is not None and self.argument_sources is not None:
            body.rebind(rebinding)
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
            view = view_at(self.task, other, writeable, lib)
            if part >= 0:
                whole = recorded.like(rebinding.wholes) if arguments[position] is recorded else arguments[position]
                whole.views[part] = view
                view = whole
            for i in range(0 if written is None else len(written)):
                if self.written[i] is recorded:  # another one of those may have been this view
                    written[i] = view
            arguments[position] = view
        self.args, self.written = tuple(arguments), written

    def refuses(self, data):
        """Whether it works on some of the data, by number, and cannot on others in their place."""
        return self.argument_sources is None and any([number in data for number in self.data or ()])

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


def make_body(task: TaskCore, fn, args, written, kinds=None, late=None, argument_sources=None, owes=False):
    """The queued body of an open task."""
    body: Body = Body.__new__(Body)
    body.adopt(task)
    engine = cython.cast("Engine", task.engine)
    body.fn = fn
    body.args = tuple(args)
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
        body.data = [access.data_id for access in task.accesses]
        body.argument_sources = argument_sources
        body.targets = task.targets()
    if engine.validate:
        body.check = validation.watch(task, engine.scope.records or engine.root.captured)
    return body


def submit_body(task: TaskCore, fn, extra, lib=None):
    """Submit `task` with a queued body that calls `fn` on the task's arrays and `extra`."""
    task.warns_if_unused = False
    if hasattr(fn, "__code__"):
        if fn.__code__.co_flags & NO_FUNCTION:
            raise TypeError(f"a task's body is an ordinary function, got the coroutine or generator '{fn.__name__}'")
        check_globals(fn, task)
    if task.context is not None and not (getattr(fn, "__module__", None) or "").startswith("stf."):
        refuse_undeclared(fn, task)
        for value in extra:
            refuse_arrays(value, "an argument", task)
    injected = injections(fn)
    engine = cython.cast("Engine", task.engine)
    if engine.scope.submitted is not None:
        engine.scope.submitted.append(fn)
    fn = snapshot(fn, task)
    try:
        begin_body(task, None if injected else fn)
        values = views_of(task, lib)
        if task.groups is not None:
            values = group(task.groups, values)
        if task.kind == "task" and not task.runs_in_call:
            task.views = values  # for a body that asks its task: by then that has ended for the engine
        values = [v for v in values if v is not TOKEN]
        late = [i for i, v in enumerate(values) if type(v) is Parts or type(v) is JaxCopy]
        kinds = None
        written = written_values(task, values)
        takes_task: cython.bint = "task" in [adapters.injected_kind(kind) for _, kind in injected]
        owes: cython.bint = False
        if not takes_task and (hasattr(fn, "__code__") or type(fn) is functools.partial):
            modes = modes_of(task)
            owes = refuse_lost(fn, task.symbol or "body", modes)
            fn = with_last_values(fn, modes)
        arguments = values + list(extra)
        if injected:
            kinds = [("", "plain")] * len(arguments) + [(name, "keyword") for name, _ in injected]
            arguments += [adapters.inject(kind, task) for _, kind in injected]
        argument_sources = None
        if engine.scope.records and not takes_task and not reaches(fn, task):
            argument_sources = sources_in(task, lib)
        if not task.runs_in_call:
            fn = with_globals(fn)
        body = make_body(task, fn, arguments, written, kinds, late or None, argument_sources, owes)
    except TaskFailedError as error:
        take_back(task)
        return outcomes.skip(engine, task, error)
    except BaseException:
        take_back(task)
        raise
    submit(task, body)


def modes_of(task: TaskCore):
    """How each array that a body gets may be used; several that make up one object are only read, for who asks."""
    if task.groups is not None:
        return [task.accesses[first].mode if rebuild is None else READ for first, _, rebuild in task.groups]
    return [access.mode for i, access in enumerate(task.accesses) if task.replica_at(i) is not None]


def begin_body(task, movable=None):
    """Begin a task whose body runs late, on a worker, or now, where it only enqueues; `take_back` it if this raises.

    Where it would have to wait for a body on the host, a `movable` function is put behind that, to run on a worker.
    """
    engine = cython.cast("Engine", task.engine)
    if not engine.place(task.where).enqueues:
        engine.begin_queued(task)
        return 0
    if movable is not None:
        engine.hold_back_if_due()  # before it has claims
    task.runs_in_call = True
    if engine.gathering is not None or engine.scope.records:
        task.blocks_caller = task.stays_outside_recordings()
    engine.begin(task)
    if task.blocks_caller and engine.scope.records:
        outcomes.refuse_blocking(task, engine.scope)
    if movable is not None and is_held_up(engine, task) and not reaches(movable, task):
        task.runs_in_call = False
        engine.make_queued(task)
        if engine.observer is not None:
            engine.observer.ended(task.id)
        return 0
    host_waits.enter(engine.port, task, task.slot, engine.pending() != 0)
    if task.inputs is not None:
        outcomes.check_inputs(engine, task)
    return 0


def is_held_up(engine, task):
    """Whether the body of an open task may run later, and would have to wait for one on the host."""
    if engine.scope.records or engine.validate or task.blocks_caller or task.partials is not None:
        return False
    if engine.place(task.where).is_callers_stream:  # work there waits here, to stay in the user's order
        return False
    return engine.port.defers(task.slot, None)


def take_back(task):
    """Take back a task whose body cannot run, if it has begun."""
    engine = cython.cast("Engine", task.engine)
    if task.state == OPEN:
        engine.withdraw(task)
    return 0


def submit(task, body):
    """Queue the body of an open task, or run it now, where it only enqueues."""
    engine = cython.cast("Engine", task.engine)
    if task.runs_in_call:
        run_now(engine, task, body)
    else:
        if engine.place(task.where).enqueues:
            queued = cython.cast(Body, body)
            pointer = engine.port.stream(task.slot)
            queued.around = StreamBlock(engine.port, pointer, engine.place(task.where).ordinal, queued.around)
            queued.watched = False  # its work has time stamps
        queue_body(engine, task, body)
    return 0


class StreamBlock:
    """What a queued body on a device runs in: the stream of its slot is current, as for one that runs in its call."""

    def __init__(self, port, pointer, ordinal, around):
        self.port = port
        self.pointer = pointer
        self.ordinal = ordinal
        self.around = contextlib.nullcontext() if around is None else around()
        self.device = on_device(ordinal).remember()  # the slot's, which is current now
        self.borrowed = None

    def __call__(self):
        """What `Body.around` asks for: the body runs once."""
        return self

    def __enter__(self):
        self.port.deliver()
        self.device.__enter__()
        try:
            self.borrowed = borrow(self.pointer, self.ordinal)
            self.around.__enter__()
        except BaseException:
            self.leave()
            raise

    def __exit__(self, *exception):
        try:
            self.around.__exit__(*exception)
        finally:
            self.leave()

    def leave(self):
        """Make current what was."""
        try:
            if self.borrowed is not None:
                self.borrowed.give_back()
        finally:
            self.device.__exit__(None, None, None)


def run_now(engine, task, body):
    """Run a body that enqueues work on the task's stream, which is current in the array libraries meanwhile."""
    error: BaseException = None
    borrowed: Borrowed = None
    try:
        if engine.scope.records:
            body.prepare()  # a node before that of the body
        borrowed = borrow(engine.port.stream(task.slot), engine.place(task.where).ordinal)
        if not engine.scope.records:
            body.prepare()
            body.execute()
        else:
            record_body(engine, body)
    except BaseException as exception:
        error = exception
        if borrowed is not None and is_playable(engine, body, error):
            give_back(engine, task, borrowed)
            borrowed = None
            error = None
            play_later(engine, body, exception)
    return end_now(engine, task, borrowed, error)


def runs_plainly(task, args):
    """Whether a task's body is no more than a call: it runs now, and nothing is recorded, checked or filled first."""
    engine = cython.cast("Engine", task.engine)
    return (
        task.runs_in_call
        and not engine.scope.records
        and not engine.validate
        and task.partials is None
        and not (tensors_made[0] and adapters.uses_tensors(args))
    )


def end_now(engine, task, borrowed, error):
    """End the task of a body that has run; one that raised fails."""
    close_pools(task)
    if task.borrowed is not None:  # by a body that asked for its task
        inner: Borrowed = task.borrowed
        task.borrowed = None
        give_back(engine, task, inner)
    if borrowed is not None:
        give_back(engine, task, borrowed)
    if error is not None:
        fail_body(engine, task, error)
    elif not engine.scope.records:
        engine.end(task)
    else:
        end_recorded(engine, task)
    return 0


def give_back(engine, task, borrowed):
    """Give back the streams that a body borrowed, before the task ends, which makes current what was before it.

    CuPy does that for the current device only, and the body may have left another one current.
    """
    try:
        if borrowed.cupy is not None and not borrowed.on_other_device:
            engine.port.stream(task.slot)
        borrowed.return_streams()
    except Exception as error:
        log.debug("device %d is not made current: %s", borrowed.ordinal, error)  # the end of the task says why
        borrowed.give_back()
    return 0


def fail_body(engine, task, error):
    """End the task of a body that raised; say so."""
    refused = isinstance(error, Exception) and is_uncapturable(task, error)
    is_forgotten = engine.scope.records and engine.scope.thread != 0  # with what is recorded, as the block raises
    failure = Failure(task.label(), task.call_site, error, () if is_forgotten else task.written(), True)
    interrupts = isinstance(error, KeyboardInterrupt)
    if interrupts:
        failure.forget_frames()
    engine.fail(task, failure)
    if refused:
        raise uncapturable(task, error) from error
    if interrupts:
        raise error
    error = failure.error()
    failure.forget_frames()
    raise error


def queue_body(engine, task, body):
    """Put a body on the task's slot, which runs later."""
    try:
        engine.queue(task, body)
    except BaseException as error:
        if task.state == OPEN:
            fail_with(engine, task, error)
        raise


def fail_with(engine, task, error):
    """Let an open task fail with an error that the caller raises; its frames hold the data, and so are let go."""
    failure = Failure(task.label(), task.call_site, error, task.written(), True)
    engine.fail(task, failure)
    failure.forget_frames()
    return 0


def open_pools(engine, task):
    """Let what a task allocates while it is recorded be the graph's, until `close_pools`."""
    if task.pools is None and are_needed():
        pools = kept_pools(engine.port)
        pools.open()
        task.pools = pools
    return 0


def close_pools(task):
    """Let array libraries allocate as before."""
    if task.pools is not None:
        pools: PrivatePools = task.pools
        task.pools = None
        pools.close()
    return 0


def record_body(engine, body):
    """Run a body whose work is captured: what it allocates is the graph's."""
    run_body = cython.cast(Body, body.again(None, None))
    run_body.check = cython.cast(Body, body).check
    task = cython.cast(TaskCore, body.task)
    open_pools(engine, task)
    run_body.execute()
    if not engine.scope.runs_once:
        number = engine.place(task.where).ordinal
        engine.port.capture_again(task.slot, BodyCapture(engine.root, body, task.where, number))
    return 0


def is_playable(engine, body, error):
    """Whether a body that failed while it was captured can run at each launch instead."""
    task = cython.cast(TaskCore, cython.cast(Body, body).task)
    if not engine.scope.records or engine.root.captured or task.borrowed is not None:
        return False
    if cython.cast(Body, body).argument_sources is None:  # it asks its task for what is there only while that is open
        return False
    return isinstance(error, Exception) and is_uncapturable(task, error)


def play_later(engine, body, error):
    """Let the node of a body run it at each launch."""
    task = cython.cast(TaskCore, cython.cast(Body, body).task)
    mine = cython.cast(Body, body)
    mine.to_fill = mine.check = None  # what it adds to is filled by a node before
    mine.watched = False  # its work has time stamps
    if engine.scope.runs_once:
        engine.make_queued(task)
        mine.outcome, mine.inputs = task.outcome, task.inputs
    engine.port.drop_capture(task.slot)
    again = BodyCapture(engine.root, body, task.where, engine.place(task.where).ordinal)
    played = PlayedBody(engine, again, error)
    engine.port.run(task.slot, (RUN, played, None, None, None))
    engine.port.program.blocks.append(again)  # which says what other data it can have
    engine.scope.parts.append(played)
    played.holders += 1
    return 0


class PlayedBody(Routine):
    """A recorded body that its library does not capture: it runs in the call of each launch, on a stream.

    What is before, between and behind such bodies is graphs of the driver's, as with bodies on the host.
    """

    def __init__(self, engine, again, error):
        Routine.__init__(self, engine, [], engine.scope.runs_once)
        self.again = again
        self.description = f"task {again.label}"
        self.reason = f"task {again.label} ({again.site}) calls what its library does not capture ({error})"

    def run(self, frame):
        """Run the body behind what is on the slot."""
        self.again.play(frame)

    def put(self, frame):
        """A graph cannot have it."""
        raise CaptureError(self.reason)

    def refusal(self, where, memory, looped, unread, hosts=False):
        """Why it cannot be one graph of the driver's."""
        return self.reason


@cython.cclass
class Recaptured:
    """What was captured of a task, and may be captured anew for a launch.

    Called with what was captured of the recording, the values of a launch and its data, it returns what is captured
    for these.
    """

    def replicas(self):
        """The recorded replicas that others take the place of when it is captured anew for other data."""
        return []

    def can_play(self, error):
        """Whether it can run in the call of a launch, where capturing it has failed with an error."""
        return False

    def describe(self, task: TaskCore):
        """Remember what messages call the task."""
        self.symbol, self.id, self.code, self.lasti = task.symbol, task.id, task.code, task.lasti

    @property
    def label(self):
        return f"'{self.symbol}'" if self.symbol else f"#{self.id}"

    @property
    def site(self):
        return site_text(self.code, self.lasti)


@cython.final
@cython.cclass
class BlockCapture(Recaptured):
    """A with-block that was captured where it stood: it cannot be captured again."""

    def __init__(self, task: TaskCore):
        self.describe(task)
        self.varies = False
        self.data = tuple([cython.cast(Access, access).core.id for access in task.accesses])  # the collector skips it
        untrack(self)  # numbers, names and code

    def refuses(self, data):
        """Whether it works on some of the data, by number, and cannot on others in their place."""
        return any([number in data for number in self.data])

    def __call__(self, first, values, rebinding=None):
        return first


@cython.final
@cython.cclass
class BodyCapture(Recaptured):
    """A recorded body, captured anew for a launch with other values of its parameters, or with other data."""

    def __init__(self, root, body, where, ordinal):
        mine: Body = body
        self.describe(mine.task)
        self.varies = any([isinstance(argument, Param) for argument in mine.args])
        if self.varies and any([isinstance(argument, TaskCore) for argument in mine.args]):
            raise CaptureError(
                f"task {self.label} ({self.site}) takes itself (stf.Task) and a parameter of the graph, for which it "
                "is captured again when it has ended; take the stream (stf.Stream) instead"
            )
        self.root = root
        self.body = body
        self.where = where
        self.ordinal = ordinal
        self.last = None
        self.taken = constants_of(mine.fn)

    def refuses(self, data):
        """Whether it works on some of the data, by number, and cannot on others in their place."""
        body: Body = self.body
        return body.refuses(data)

    def replicas(self):
        """The recorded replicas that others take the place of when it is captured anew for other data."""
        body: Body = self.body
        return [source[1] for source in body.argument_sources or ()]

    def __call__(self, first, values, rebinding=None):
        """What is captured for the values and the data of a launch; `first` is that of the defaults."""
        body: Body = self.body
        defaults = [a.value_in(None) for a in body.args if isinstance(a, Param)]
        wanted = [a.value_in(values) for a in body.args if isinstance(a, Param)]
        others = [] if rebinding is None else rebinding.addresses([source[1] for source in body.argument_sources or ()])
        if not others and are_same(wanted, defaults):
            return first
        last: tuple = self.last
        if last is None or others != last[1] or not are_same(wanted, last[0]):
            self.last = None
            last = (wanted, others, self.capture_patiently(owner_of(first), values, rebinding))
            others_last = self.last
            self.last = last
            del others_last  # another thread's goes when this one is there
        return last[2]

    def can_play(self, error):
        """Whether it can run in the call of a launch, where capturing it has failed with an error."""
        return tells_of_capture(error)

    def play(self, frame):
        """Run it for a launch, behind what is on the slot; what is launched once says itself how it went."""
        once: cython.bint = self.body.outcome is not None
        body: Body = self.body if once else self.body.again(frame.values, frame.launch.rebinding)
        engine, slot = frame.engine, frame.slot
        thread: object = PyThread_get_thread_ident()
        around = host_waits.RUNNING.get(thread)
        host_waits.enter(engine.root, frame.task, slot, engine.pending() != 0)
        pointer = engine.root.stream(slot)
        body.args = tuple([Stream(a.place, pointer) if type(a) is Stream else a for a in body.args])
        body.around = StreamBlock(engine.root, pointer, self.ordinal, body.around)
        body.watched = False
        engine.queued += 1
        try:
            if once:
                body()
            else:
                self.play_part(frame, body)
        finally:
            if around is not None:
                host_waits.RUNNING[thread] = around
            engine.root.stream(slot)  # the body may have left another device current
        return 0

    def play_part(self, frame, body: Body):
        """Run it as a part of a launch, unless that has failed; raise what it raises, if nobody is told of it later."""
        engine, launch = frame.engine, frame.launch
        failure = None
        try:
            failure = launch.attempt(body)
        finally:
            engine.ran += 1
        if failure is None or launch.outcome is not None:
            return 0
        if failure in engine.failures:
            engine.failures.remove(failure)
        failure.delivered = True
        if isinstance(failure.exception, KeyboardInterrupt):
            raise failure.exception
        raise failure.error()

    def capture_patiently(self, owner, values, rebinding):
        """Capture it; if memory runs out, again when the launches before are done, which keep what bodies allocated."""
        body: Body = self.body
        try:
            return self.capture(owner, body.again(values, rebinding))
        except TaskFailedError as error:
            if not is_out_of_memory(error.__cause__) or not self.outlast_launches():
                raise
        return self.capture(owner, body.again(values, rebinding))

    def outlast_launches(self):
        """Wait for all that was submitted; False if that would never end."""
        task: TaskCore = self.body.task
        engine = cython.cast("Engine", task.engine)
        events = EventSet()
        engine.gate.enter()
        try:
            engine.root.tails(events)
        finally:
            engine.gate.leave()
        return host_waits.settles(engine.root, events)

    def capture(self, owner, body: Body):
        root: Port = self.root
        capture = root.begin_capture(self.where, owner)
        try:
            borrowed: Borrowed = borrow(capture.pointer, self.ordinal)
            try:
                body.args = tuple([Stream(a.place, capture.pointer) if type(a) is Stream else a for a in body.args])
                pools = PrivatePools()
                with pools:
                    body.execute()
            except Exception as error:
                task: TaskCore = body.task
                raise Failure(task.label(), task.call_site, error, task.written(), True).error() from error
            finally:
                capture.make_current()  # the body may have left another device current
                borrowed.give_back()
        finally:
            captured = capture.end()
        if captured is not None:
            captured.memory = pools  # what the body allocated, for these values
            captured.owner = capture.owner
        return captured


def owner_of(captured):
    """The owner of the stream on which something was captured, to capture more on it; None if nothing was."""
    return None if captured is None else captured.owner


def end_recorded(engine, task):
    """End a task whose work was captured, unless that was spoilt."""
    if not engine.scope.runs_once and not task.runs_in_call:
        engine.port.capture_again(task.slot, BlockCapture(task))
    try:
        engine.end(task)
    except CaptureError as reason:
        error = CaptureError(
            f"task {task.label()} ({task.call_site}) cannot be recorded: {reason}. Leave it out of the graph, or let "
            "it enqueue all its work on the task's stream (t.stream, or the library's current stream)"
        )
        engine.fail(task, Failure(task.label(), task.call_site, error, task.written(), True))
        raise error from None
    except BaseException as error:
        fail_with(engine, task, error)
        raise
    return 0
