"""Running: how the body of a task is begun, submitted and ended.

Where a body runs depends on the place, on what stands before it, and on whether it is recorded:

===============================  ===============================  ==================================  ==================
task                             its body runs                    flags                               begun by
===============================  ===============================  ==================================  ==================
function, on a CPU               on a worker, when data are ready                                     `begin_body`
function, on a device            in the call, and only enqueues   `runs_in_call`                      `begin_body`
the same, behind a host body     on a worker, behind that         (`runs_in_call` is taken back)      `begin_body`
with-block or wait, on a CPU     where it stands, after a wait    `blocks_caller`                     `Task.open`
with-block, on a device          where it stands                                                      `Task.open`
launch of a kernel, copy, fill   nowhere: the slot has it all                                         `outcomes.begins`
===============================  ===============================  ==================================  ==================

In a recording a function is kept for each launch (`recapture`), and a kernel is a node. What `blocks_caller` cannot be
recorded. There, so does what has several streams (`outside_recordings`), or data with an interface of the user's own.

Other flags say what a body is: `in_graphs`, on the host it uses no CUDA and may be a node of a graph of the driver's;
`is_single_launch`, it is a launch whose bodies say themselves how they went; `remote`, some data are elsewhere.

The first two steps are the same for all bodies that run in the thread of the caller: `begin_here` claims the data, and
`enter_here` waits for what the body must not overtake. Between them a function may still be moved to a worker. What a
worker runs is claimed by `Engine.begin_queued`, which waits for nothing.
"""

from __future__ import annotations

import functools
import inspect
import logging

import cython

from stf._engine import host_waits, outcomes
from stf._engine.failures import Failure
from stf._support.library_errors import is_uncapturable, uncapturable
from stf.errors import CaptureError, PlaceError, TaskFailedError
from stf.interop import adapters
from stf.interop.jax_arrays import JaxCopy
from stf.tasks import capsules
from stf.tasks.annotated_bodies import library_asked
from stf.tasks.annotations import inject
from stf.tasks.bodies import stream_block
from stf.tasks.closures import check_globals, injections, is_users
from stf.values.parts import Parts

TOKEN: object = adapters.TOKEN
tensors_made: list = adapters.tensors_made
recapture_module: object = None
block_capture: object = None  # of that module
log = logging.getLogger("stf")
NOTHING: tuple = ()
NO_FUNCTION: cython.int = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def submit_body(task: TaskCore, fn, extra, lib=None):
    """Submit `task` with a queued body that calls `fn` on the task's arrays and `extra`."""
    task.warns_if_unused = False
    if task.where < 0 and not can_be_held(task):
        settle(task)
    check_body(task, fn, extra)
    injected = injections(fn)
    if lib is None and task.context is not None and getattr(fn, "__annotations__", None) and is_users(fn):
        lib = library_asked(fn, arguments_of(task))
    engine = cython.cast("Engine", task.engine)
    if engine.scope.submitted is not None:
        engine.scope.submitted.append(fn)
    if engine.watches:
        offer(task, fn, extra)
    fn = snapshot(fn, task)
    if task.where < 0:
        return hold(task, held_body(with_globals(fn), extra, lib, injected))
    return go_on(task, fn, extra, lib, injected, False)


def submit_own(task: TaskCore, fn, extra, lib="numpy", template=None):
    """Submit `task` with a body of stf's own, as `submit_body` does: an object with no variables around it to keep.

    It writes into arrays, of NumPy if nothing else is said, returns nothing, and nothing is left to be checked of it.
    `template` makes compiled code that does the same, if there is such.
    """
    task.warns_if_unused = False
    if task.where < 0 and not can_be_held(task):
        settle(task)
    scope = cython.cast("Engine", task.engine).scope
    if scope.submitted is not None:
        scope.submitted.append(fn)
    if task.where < 0:
        return hold(task, held_body(fn, extra, lib, NOTHING))
    if scope.records or task.runs_in_call or task.groups is not None:
        return go_on(task, fn, extra, lib, NOTHING, False)
    try:
        begin_body(task)
        views = views_of(task, lib)
        if task.kind == "task":
            task.views = views
        body = make_body(task, fn, without_tokens(views) + extra, None)
        if template is not None:
            body.give_code(template, extra)
    except BaseException as error:
        take_back(task)
        if isinstance(error, TaskFailedError):
            return outcomes.skip(cython.cast("Engine", task.engine), task, error)
        raise
    submit(task, body)
    if body.compiled is not None:
        port = cython.cast("Engine", task.engine).root
        port.let_go_compiled(False)
    return 0


def held_body(fn, extra, lib, injected):
    """Return what submits the body of a task that is held until it is planned."""
    return functools.partial(go_on, fn=fn, extra=extra, lib=lib, injected=injected, was_held=True)


def go_on(task, fn, extra, lib, injected, was_held):
    """Begin a task whose place is settled, and submit its body; one that `was_held` has the variables it reads."""
    engine = cython.cast("Engine", task.engine)
    asked = [kind for _, kind in injected]
    try:
        begin_body(task, fn if may_move(engine, asked) else None)
        values = views_of(task, lib)
        if task.groups is not None:
            values = group(task.groups, values)
        if task.kind == "task" and not task.runs_in_call:
            task.views = values  # for a body that asks its task: by then that has ended for the engine
        values = [v for v in values if v is not TOKEN]
        late = [i for i, v in enumerate(values) if type(v) is Parts or type(v) is JaxCopy]
        kinds = None
        written = written_values(task, values)
        takes_task: cython.bint = "task" in asked
        owes: cython.bint = False
        if not takes_task:
            fn, owes = seeing_results(task, fn)
        arguments = values + list(extra)
        if injected:
            kinds = [("", "plain")] * len(arguments) + [(name, "keyword") for name, _ in injected]
            arguments += [injected_value(kind, task) for kind in asked]
        argument_sources = None
        once: cython.bint = gathers(engine.scope) and not task.runs_in_call
        if engine.scope.records and not once and not takes_task and not reaches(fn, task):
            argument_sources = sources_in(task, lib)
        if not task.runs_in_call and not was_held:
            fn = with_globals(fn)
        body = make_body(task, fn, arguments, written, kinds, late or None, argument_sources, owes)
    except BaseException as error:
        take_back(task)
        if isinstance(error, TaskFailedError):
            return outcomes.skip(engine, task, error)
        raise
    return submit(task, body)


def offer(task: TaskCore, fn, extra):
    """Tell what may save the task what it is made of, unless a kernel has, or it is a task of the context's own."""
    if not is_users(fn):
        return 0
    if task.groups is None:
        capsules.offer(task, task.kind, {"body": fn, "args": extra, "accesses": task.accesses}, fn)
    else:
        capsules.refuse(task, "a body on data that are made of several arrays")
    return 0


def may_move(engine, kinds):
    """Return whether a function on a device may run in another thread, by what it is given: ``"stream"``, ``"task"``.

    The thread of a device calls bodies in the order of their streams, so it may give them these.
    """
    return not kinds or (engine.port.spreads and "task" not in kinds)


def injected_value(kind, task):
    """Return what a body is given that asks for its stream or its task; one that is moved does not hold its task."""
    engine = cython.cast("Engine", task.engine)
    if kind == "stream" and not task.runs_in_call and (task.where == 0 or engine.place(task.where).enqueues):
        return task.stream_of_queued_body()
    return inject(kind, task)


def check_body(task: TaskCore, fn, extra):
    """Raise for a body that is no ordinary function, or that uses data which it does not declare."""
    if hasattr(fn, "__code__"):
        if fn.__code__.co_flags & NO_FUNCTION:
            raise TypeError(f"a task's body is an ordinary function, got the coroutine or generator '{fn.__name__}'")
        check_globals(fn, task)
    if task.context is not None and is_users(fn):
        refuse_undeclared(fn, task)
        for value in extra:
            refuse_arrays(value, "an argument", task)


def arguments_of(task: TaskCore):
    """Return the accesses that each argument of a builder's body is made of, tokens left out."""
    accesses = list(task.accesses)
    if task.groups is None:
        return [[access] for access in accesses if not access.data.core.token]
    return [accesses[first : first + count] for first, count, _ in task.groups if not accesses[first].data.core.token]


def seeing_results(task: TaskCore, fn):
    """Return a body from which results that would get lost are seen, and whether it owes one."""
    if not hasattr(fn, "__code__") and type(fn) is not functools.partial:
        return fn, False
    modes = modes_of(task)
    owes = refuse_lost(fn, task.symbol or "body", modes)
    return with_last_values(fn, modes), owes


def modes_of(task: TaskCore):
    """Return how each array that a body gets may be used; several that make up one object count as read."""
    if task.groups is not None:
        return [task.accesses[first].mode if rebuild is None else READ for first, _, rebuild in task.groups]
    return [access.mode for i, access in enumerate(task.accesses) if task.replica_at(i) is not None]


def begin_here(engine, task):
    """Begin a task whose body runs in this thread; where it does not only enqueue, that waits for its data.

    Raises
    ------
    PlaceError
        The body would have to run in another process.
    """
    place = engine.place(task.where)
    if place.is_remote and task.kind != "wait":
        raise PlaceError(
            f"task {task.label()} ({task.call_site}) is a with-block, whose body cannot travel to {place.name} in "
            "another process; write a task function (@stf.task), or run the block on exec_place.host()"
        )
    blocks: cython.bint = not place.enqueues
    task.blocks_caller = blocks
    if engine.gathering is not None or engine.scope.records:
        task.blocks_caller = blocks or task.stays_outside_recordings()
    return engine.begin(task)


def enter_here(engine, task):
    """Wait for what the body of an open task must come after in this thread; refuse one that would, in a recording."""
    if not engine.scope.records:
        if engine.root.values is not None and task.kind != "wait":
            engine.root.expect_block(task.slot, task.symbol or task.kind, task.data_nbytes())
        host_waits.enter(engine.port, task, task.slot, engine.pending() != 0)
    elif task.blocks_caller:
        outcomes.refuse_blocking(task, engine.scope)
    if task.inputs is not None:
        outcomes.check_inputs(engine, task)
    return 0


def begin_body(task, movable=None):
    """Begin a task whose body runs late, on a worker, or now, where it only enqueues; `take_back` it if this raises.

    Where it would have to wait for a body on the host, a `movable` function is put behind that, to run on a worker.
    """
    engine = cython.cast("Engine", task.engine)
    if not engine.place(task.where).enqueues:
        return engine.begin_queued(task)
    if movable is not None:
        engine.hold_back_if_due(True)  # before it has claims
        if engine.port.spreads:
            engine.port.keep_pace(task.where)
    task.runs_in_call = True
    begin_here(engine, task)
    if movable is not None and is_held_up(engine, task) and not reaches(movable, task):
        task.runs_in_call = False
        engine.make_queued(task)
        if engine.observer is not None:
            engine.observer.ended(task.id)
        return 0
    return enter_here(engine, task)


def is_held_up(engine, task):
    """Return whether the body of an open task may run later, and would have to wait for one on the host."""
    if engine.scope.records or engine.watches or task.blocks_caller or task.partials is not None:
        return False
    if engine.place(task.where).is_callers_stream:  # work there waits here, to stay in the user's order
        return False
    return engine.port.spreads or engine.port.defers(task.slot, None)


def take_back(task):
    """Take back a task whose body cannot run, if it has begun."""
    engine = cython.cast("Engine", task.engine)
    if task.state == OPEN:
        engine.withdraw(task)
    take_back_place(task)
    return 0


def submit(task, body):
    """Queue the body of an open task, or run it now, where it only enqueues."""
    engine = cython.cast("Engine", task.engine)
    if task.runs_in_call:
        run_now(engine, task, body)
    else:
        if engine.place(task.where).enqueues:
            pointer = engine.port.stream(task.slot)
            body.around = stream_block(engine.port, pointer, engine.place(task.where).ordinal, body.around)
            body.watched = False  # its work has time stamps
        queue_body(engine, task, body)
    return 0


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
    """Return whether a body is no more than a call: it runs now, and nothing is recorded, checked or filled first."""
    engine = cython.cast("Engine", task.engine)
    return (
        task.runs_in_call
        and not engine.scope.records
        and not engine.watches
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
            if engine.place(task.where).is_remote and isinstance(error, (TypeError, PlaceError)):
                engine.withdraw(task)  # it cannot travel: nothing has changed
            else:
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
        port: RecordingPort = engine.port
        pools = pools_of(port.program.pools)
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


def recapture():
    """Return the module of what captures and plays again, which is loaded with the first recording."""
    global recapture_module, block_capture
    if recapture_module is None:
        from stf.tasks import recapture as module

        block_capture = module.block_capture
        recapture_module = module
    return recapture_module


def block_of(task):
    """Return what stands for a with-block that was captured."""
    if block_capture is None:
        recapture()
    return block_capture(task)


def record_body(engine, body):
    """Run a body whose work is captured: what it allocates is the graph's."""
    task, run_body = body.task, cython.cast(Body, body.again(None, None))
    run_body.check = body.check
    open_pools(engine, task)
    run_body.execute()
    if not engine.scope.runs_once:
        number = engine.place(task.where).ordinal
        port: RecordingPort = engine.port
        port.capture_again(task.slot, recapture().BodyCapture(engine.root, body, task.where, number))
    return 0


def is_playable(engine, body, error):
    """Return whether a body that failed while it was captured can run at each launch instead."""
    task = body.task
    if not engine.scope.records or engine.root.captured or task.borrowed is not None:
        return False
    if body.argument_sources is None:  # it asks its task for what is there only while that is open
        return False
    if not isinstance(error, Exception):
        return False
    port: RecordingPort = engine.port
    return is_uncapturable(task, error) or bool(port.is_spoilt(task.slot))  # cuFFT's tell nothing of captures


def play_later(engine, body, error):
    """Let the node of a body run it at each launch."""
    task = body.task
    body.to_fill = body.check = None  # what it adds to is filled by a node before
    body.watched = False  # its work has time stamps
    if engine.scope.runs_once:
        engine.make_queued(task)
        body.outcome, body.inputs = task.outcome, task.inputs
    port: RecordingPort = engine.port
    port.drop_capture(task.slot)
    again = recapture().BodyCapture(engine.root, body, task.where, engine.place(task.where).ordinal)
    played = recapture().PlayedBody(engine, again, error)
    port.run(task.slot, (RUN, played, None, None, None))
    port.keep_body(again)
    engine.scope.parts.append(played)
    played.holders += 1
    return 0


def end_recorded(engine, task):
    """End a task whose work was captured, unless that was spoilt."""
    if not engine.scope.runs_once and not task.runs_in_call:
        port: RecordingPort = engine.port
        port.capture_again(task.slot, block_of(task))
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
