"""Adoption: an array that a body on the host returns becomes the memory of new data, without a copy.

Data that a task returns need no memory when the task is submitted, if their readers get their arrays when they run
(`TaskCore.binds_late`). So the replica waits for what the body returns. Whoever needs an address before gets memory at
once, and the body stores its result there::

    awaits_result ──the body returns an array that nobody else has──▶ adopted
         │
         └──somebody needs an address: a copy, a kernel, a recording, a device──▶ allocated, as all others are

Both happen inside the engine's gate, so that there is one memory and no other. Bodies that are yet to run ask the
replica for its array; so it keeps its address when the data are given up, and says for good that it awaited a result.
Allocated memory is freed behind these bodies, as always. An adopted array is Python's: it is in no pool, is never
evicted, and goes with the last who uses it. So nothing is adopted at a place with a limit, or where a
driver knows only what it allocated (`Driver.adopts`).

Of data whose shape the body finds (``-> stf.New``) the layout is open, without a dtype, until somebody waits for it
(`know_layout`): before, only bodies that get their arrays when they run can use them, whether the task has run or not.

Tried before: memory for each new data at its submission, which cost three quarters of the task, and a copy of each
result.
"""

from __future__ import annotations

from stf._engine import host_waits


def may_wait(task, use, replica):
    """Return whether an access of a task can do with a replica whose memory is still to come."""
    return task.binds_late and replica.awaits_result and use.mode & READ != 0


def may_come_later(task, data, replica, mode):
    """Return whether a replica that is provided for a task needs no memory yet; one of new data awaits its result."""
    if task is None or not task.binds_late:
        return False
    if mode & READ:
        return replica.awaits_result
    if mode == WRITE and data.is_result and (data.layout.nbytes > 0 or data.layout.dtype is None):
        replica.awaits_result = True
        return True
    return False


def result_replica(task, use, version, place):
    """Return the replica of new data that awaits what the body of a task returns; None if this is no such access."""
    data = use.core
    if not task.binds_late or use.mode != WRITE or not data.is_result or len(version.replicas) > 0:
        return None
    if data.layout.nbytes == 0 and data.layout.dtype is not None:
        return None
    replica = make_replica(data, place, data.layout.packed())
    replica.awaits_result = True
    version.replicas.append(replica)
    return replica


def adopt(gate, replica, array, address):
    """Let an array be the memory of a replica; return False if that has memory by now."""
    views = {True: array}
    gate.enter()
    try:
        if not replica.awaits_result or replica.has_memory():
            return False
        replica.address = address
        replica.owner = array
        replica.views = views
        replica.adopted = True
        return True
    finally:
        gate.leave()


def forget_result(version: Version):
    """Let replicas of a version have memory when they are used next: what was to return it has failed."""
    for item in version.replicas:
        replica: Replica = item
        if not replica.has_memory():
            replica.awaits_result = False
    return 0


def know_layout(engine, data: Data):
    """Let data lie as the array that a body has returned for them; pause until it has."""
    version = data.version
    if version.may_fail():
        raise host_waits.Pause(version.writers)
    for item in version.replicas:
        replica: Replica = item
        if replica.adopted and not version.is_poisoned():
            data.layout = replica.layout
            data.is_result = False
