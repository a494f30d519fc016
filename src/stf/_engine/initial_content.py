"""What recordings go on from where nobody has written yet.

A reduction adds to what each launch finds, which is the neutral element where there is no content. And what a branch
may leave unwritten is not written by it alone: it stays what it was, in all places, whatever that is. What runs again
finds its data where it found them the first time.
"""

from __future__ import annotations

import cython

from stf._engine import reductions
from stf.errors import UninitializedDataError


def must_have_content(engine: EngineState, task: TaskCore, use: Access):
    """Nobody reads what nobody wrote; but a launch that goes on from nothing has that made."""
    if use.core.version.is_poisoned():
        return  # the task that was to write it was skipped, and so is this one
    if use.op is None:
        raise UninitializedDataError(
            f"{use.core.describe()} is read by task {task.label()} before anything wrote it; write it first, or create "
            "it with logical_data_zeros"
        )
    if expect_content(use.core, use.op):
        return
    place: cython.int = engine.place(task.where).memory if use.place == AFFINE else use.place
    reductions.fill(engine, use.core, place, use.op)


def expect_content(data: Data, op):
    """In a recording, go on from what a launch finds; False outside of recordings, where it is known what there is.

    Sums in data that are made in a recording begin with nothing there, each time.
    """
    marked: cython.bint = False
    version = data.version
    while not version.scope.runs_once and version.partials is None:
        if version.valid == 0:
            if data.id >= version.scope.first_data and op is not data.engine.keep_previous:
                break
            version.phantom, version.valid, version.neutral_op = True, 1, op
            marked = True
        elif version.joined == 0 and not marked:
            version.neutral_op = op  # other data may stand for these, with no content
        else:
            break
        version = version.parent
    return marked


def adds_in_place(engine: EngineState, task: TaskCore, use: Access):
    """Whether a task that accumulates adds to the data itself: where one device does all, which folds no partials.

    What is recorded goes on from what each launch finds.
    """
    expect_content(use.core, use.op)
    if engine.scope.runs_once or use.place not in (AFFINE, engine.place(task.where).memory):
        return False
    if not engine.place(task.where).enqueues or len({place.memory for place in engine.places if place.number}) > 1:
        return False
    if use.core.version.valid == 0:
        must_have_content(engine, task, use)
    return True


def in_place(task: TaskCore, use: Access):
    """Return the access of a task that accumulates as one that reads and writes.

    In the place of the one that it was given.
    """
    mine: Access = make_access_like(use, RW)
    mine.op = None
    task.uses = tuple([mine if item is use else item for item in task.uses])
    return mine


def restore(engine: EngineState, scope, places):
    """Let what a scope wrote be valid again where it has to be when the scope is run once more.

    `places` are those that others need, by the data's id.
    """
    for data in list(scope.touched):
        version: Version = data.version
        if version.partials is not None:
            reductions.combine(engine, data)
        if data.token or not version.joined & WRITE:
            continue
        for place in [*(version.entries or ()), *places.get(data.id, ())]:
            restore_at(engine, scope, data, place)


def restore_at(engine: EngineState, scope, data: Data, place):
    """Copy the content of a data to a place, unless it is there."""
    version: Version = data.version
    replica: Replica = version.find(place)
    if replica is None:
        replica = scope.replica_for(data, version, place, 0)
    if replica.state == INVALID:
        engine.coherency.fetch(data, version, replica)
