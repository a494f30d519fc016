"""Outcomes: what a failed task does to those that need its data."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

from stf._engine.access import Access, Data
from stf._engine.scopes import Outcome, Version, derived_outcome, is_open
from stf._engine.task import TaskCore
from stf.errors import CaptureError

if not cython.compiled:
    INVALID, SHARED, MODIFIED = 0, 1, 2
    READ, WRITE, RW, ACCUMULATE, AFFINE = 1, 2, 3, 4, -1


def inherit(engine: Engine, task: TaskCore, version: Version, data: Data):
    """Look at how the writing of an input went: fail now, or remember to look again."""
    outcome = version.outcome
    failure = outcome.failed()
    if failure is not None:
        if failure.delivered or task.outcome is None:
            failure.delivered = True
            spoil(engine, task, failure)
            raise failure.error_of_reader(task.label(), data.describe())
        if task.inputs is None:
            task.inputs = []
        task.inputs.append(outcome)
    elif is_open(outcome):
        if task.inputs is None:
            task.inputs = []
        task.inputs.append(outcome)
    else:
        version.outcome = None
    return 0


def spoil(engine: Engine, task: TaskCore, failure):
    """A task that will not run leaves what it was to write poisoned."""
    outcome = Outcome(False, failure)
    outcome.skipped = True
    for item in task.uses:
        use: Access = item
        if use.mode != READ and use.core.engine is engine:
            version = use.core.version
            version.set_writer(task.symbol, task.code, task.lasti, outcome)
            version.outcome = outcome
    return 0


def check_inputs(engine: Engine, task: TaskCore):
    """After a task's inputs are complete: raise if one of them is poisoned (the task is failed then)."""
    for item in task.inputs or ():
        failure = item.failed()
        if failure is not None:
            failure.delivered = True
            if failure in engine.failures:
                engine.failures.remove(failure)
            spoilt = poisoned_inputs(task, failure)
            engine.fail(task, failure)
            task.outcome.skipped = True
            raise failure.error_of_reader(task.label(), " and ".join(spoilt) or "its input")
    return 0


def poisoned_inputs(task: TaskCore, failure):
    """What the task reads and `failure` spoilt; the copy to its place may have an outcome of its own since."""
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


def refuse_in_place(task: TaskCore, scope):
    """Raise for a with-block on a CPU, or a wait, inside of what is recorded."""
    if task.kind == "wait":
        raise CaptureError(
            f"{task.symbol} ({task.call_site}) inside of {scope.story}: nothing that is recorded has run yet; read the "
            "data after it, and use ctx.if_ or ctx.while_loop where the program depends on them"
        )
    if task.stays_apart():
        reason = "runs on several places" if task.apart else "uses data with an interface of its own"
        raise CaptureError(
            f"task {task.label()} ({task.call_site}) {reason}, which {scope.story} cannot hold; leave it out of "
            "that, or submit a task per place"
        )
    raise CaptureError(
        f"task {task.label()} ({task.call_site}) is a with-block on a CPU, whose body runs where it stands, and "
        f"{scope.story} records; give the body as a function (@stf.task)"
    )


def take_failures(engine: Engine):
    """What failed and was not told yet."""
    taken = []
    while engine.failures:
        failure = engine.failures.pop(0)
        if not failure.delivered:
            taken.append(failure)
    return taken


def derive(engine: Engine, task: TaskCore):
    """The outcome of what a task computes from inputs that may still fail."""
    return derived_outcome(task.inputs)
