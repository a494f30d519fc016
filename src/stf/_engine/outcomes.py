"""Outcomes: what a failed task does to those that need its data."""

from __future__ import annotations

from stf._engine import parts
from stf._engine.versions import Copied
from stf.errors import CaptureError, TaskFailedError


def inherit(task: TaskCore, version: Version):
    """Look at how the writing of an input went: unless it went well, look again before the task runs."""
    outcome: Outcome = version.outcome
    failure = outcome.failed()
    if failure is not None and version.recover():
        outcome = version.outcome
        failure = None if outcome is None else outcome.failed()
    if outcome is None or (failure is None and not is_open(outcome)):
        version.outcome = None
        return 0
    if type(outcome) is Copied and failure is None:
        outcome = outcome.before  # of copies the task needs those that make its replica: see `inherit_copies`
        if outcome is None or not is_open(outcome):
            return 0
    if task.inputs is None:
        task.inputs = []
        untrack(task.inputs)  # as outcomes are not tracked either
    task.inputs.append(outcome)
    return 0


def inherit_copies(task: TaskCore, outcome, place):
    """Look at how the copies from other processes went that make a replica of a task, before the task runs."""
    copies = outcome.copies_to(place)
    if copies:
        task.inputs = [*(task.inputs or ()), *copies]
    return 0


def refuse_poison(engine: EngineState, task: TaskCore):
    """Before a task begins: raise if an input is known to be poisoned; so is then what it was to write.

    Nothing is moved for it, and no task is recorded. A with-block raises; other forms `skip` the task.
    """
    failure = poison_of(task)
    if failure is None:
        return 0
    task.outcome = Outcome(False, failure)
    task.outcome.skipped = True
    poison(engine, task, task.uses)
    raise_poison(engine, task, failure)


def spoil(engine: EngineState, task: TaskCore, failure):
    """Poison what a task was to write that never began, and never will."""
    task.outcome = Outcome(False, failure)
    task.outcome.skipped = engine.scope.records
    engine.gate.enter()
    try:
        poison(engine, task, task.accesses)
    finally:
        engine.gate.leave()


def poison(engine: EngineState, task: TaskCore, accesses):
    """Let the outcome of a task that did not run be that of what it was to write."""
    for item in accesses:
        use: Access = item
        if use.mode == READ:
            continue
        version = use.core.version
        if version.scope is not engine.scope:
            version = engine.scope.version_for(use.core)
        version.set_writer(task.symbol, task.code, task.lasti, task.outcome)
        version.outcome = task.outcome
        if use.core.linked is not None:
            engine.coherency.tick += 1
            parts.note_write(engine, task, use.core)
    return 0


def check_inputs(engine: EngineState, task: TaskCore):
    """After the inputs of an open task are complete: raise if one of them is poisoned (the task is failed then)."""
    failure = poison_of(task)
    if failure is not None:
        spoilt = poisoned_inputs(task, failure)
        engine.fail(task, failure)
        task.outcome.skipped = True
        raise_poison(engine, task, failure, spoilt)
    return 0


def poison_of(task: TaskCore):
    """Return the failure that spoils an input of a task, as far as is known; None if there is none."""
    if task.inputs is not None:
        for item in task.inputs:
            outcome: Outcome = item
            failure = outcome.failed()
            if failure is not None:
                return failure
    return None


def raise_poison(engine: EngineState, task: TaskCore, failure, spoilt=None):
    """Raise for a task that a failure keeps from running, and so tell of that."""
    spoilt = poisoned_inputs(task, failure) if spoilt is None else spoilt
    take_failure(engine, failure)
    raise failure.error_of_reader(task.label(), " and ".join(spoilt) or "its input")


def begins(engine: EngineState, task: TaskCore):
    """Begin a task, unless it is skipped; say whether it is open now."""
    try:
        engine.begin(task)
    except TaskFailedError as error:
        skip(engine, task, error)
        return False
    return True


def skip(engine: EngineState, task: TaskCore, error):
    """Let a task go that was not run as an input is poisoned; raise other errors, with STF_BLOCKING that one too.

    The failure is told by who asks next, also if it was told before.
    """
    outcome = task.outcome
    if engine.blocking or outcome is None or not outcome.skipped:
        raise error
    failure = outcome.failure
    engine.gate.enter()
    try:
        skipped = f"task {task.label()} ({task.call_site})"
        if not failure.was_delivered:
            tell_again(engine, failure, failure.skipped)
        elif parts.is_copy(task):
            pass  # whoever needs it is skipped, too, and tells it
        elif not engine.scope.records:
            tell_again(engine, failure, skipped)
        else:
            engine.scope.skips.append((failure, skipped))
    finally:
        engine.gate.leave()
    return 0


def tell_again(engine: EngineState, failure, skipped):
    """Let a failure be told, perhaps once more because of a task that was `skipped`."""
    failure.delivered = False
    failure.skipped = skipped
    if failure not in engine.failures:
        engine.failures.append(failure)
    return 0


def spoilt_in(scope):
    """Return what tasks of a recording were to write that were skipped, and no task of it wrote: data and versions."""
    found = []
    for item in scope.touched:
        data: Data = item
        version, outcome = data.version, data.version.outcome
        if outcome is None or not outcome.skipped or version.joined & WRITE:
            continue
        if outcome is not version.parent.outcome:  # else it was so before
            found.append((data, version))
    return found


def poisoned_inputs(task: TaskCore, failure):
    """Return what the task reads and `failure` spoilt; the copy to its place may have an outcome of its own since."""
    spoilt = []
    for item in task.uses:
        use: Access = item
        outcome = use.core.version.outcome
        if use.mode & READ and outcome is not None and outcome.failed() is failure:
            spoilt.append(use.core.describe())
    return spoilt


def refuse_capture(task: TaskCore, reason):
    """Raise, for a task that a caller's capture cannot hold, with what to do."""
    hint = "run it on a device"
    if task.kind == "wait":
        hint = "read the data after the graph was launched"
    elif task.where == 0:
        hint = "give its body as a function (@stf.task, ctx.host_launch)"
    raise CaptureError(
        f"task {task.label()} ({task.call_site}) cannot be captured: {reason}; {hint}, or use a stream that is not "
        "being captured"
    ) from None


def refuse_blocking(task: TaskCore, scope):
    """Raise for a with-block on a CPU, or a wait, inside of what is recorded."""
    if task.kind == "wait":
        raise CaptureError(
            f"{task.symbol} ({task.call_site}) inside of {scope.description}: nothing that is recorded has run yet; "
            "read the data after it, and use ctx.if_ or ctx.while_loop where the program depends on them"
        )
    if task.stays_outside_recordings():
        reason = "runs on several places" if task.outside_recordings else "uses data with an interface of its own"
        raise CaptureError(
            f"task {task.label()} ({task.call_site}) {reason}, which {scope.description} cannot hold; leave it out of "
            "that, or submit a task per place"
        )
    raise CaptureError(
        f"task {task.label()} ({task.call_site}) is a with-block on a CPU, whose body runs where it stands, and "
        f"{scope.description} records; give the body as a function (@stf.task)"
    )


def take_failures(engine: EngineState):
    """Return what failed and was not told yet."""
    taken = []
    while engine.failures:
        failure = engine.failures.pop(0)
        if not failure.delivered:
            taken.append(failure)
    return taken


def take_failure(engine: EngineState, failure):
    """A failure is told to who asked for it."""
    failure.deliver()
    if failure in engine.failures:
        engine.failures.remove(failure)
    return 0
