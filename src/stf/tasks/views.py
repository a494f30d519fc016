"""Views: the arrays of a task, as its body gets them, and what those of a recorded one are made of."""

from __future__ import annotations

import cython

from stf.errors import PlaceError
from stf.interop import adapters, cuda_arrays, jax_arrays
from stf.interop.current import HostStream
from stf.interop.streams import handed_out
from stf.places.stream_pools import lend_stream
from stf.tasks.annotations import Stream
from stf.values.parts import Parts, built

TOKEN: object = adapters.TOKEN
tensors_made: list = adapters.tensors_made


def stream_of(streams, place, handle):
    """Return the object of a stream at a place, made once: `streams` are those that there are, by address."""
    stream = streams.get(handle)
    if stream is None or stream.place is not place:
        stream = streams[handle] = Stream(place, handle)
    return stream


def pointer_of_stream(task: TaskCore):
    """Return the address of the CUDA stream of an open task."""
    pointer = handed_out(task.own_stream())
    if pointer is None:
        raise PlaceError(f"task {task.label()} runs at {task.place_name}, which has no CUDA stream")
    return pointer


def stream_on_host(task: TaskCore):
    """Return the address of a CUDA stream for callbacks of a with-block on the host; None where there is none.

    The task has it to its end, which comes after what is on it.
    """
    engine = cython.cast("Engine", task.engine)
    if task.context is None or not task.context.on_cuda or engine.scope.records or engine.root.captured:
        return None
    task.borrow()
    if not isinstance(task.borrowed, HostStream):
        task.borrowed = HostStream(task.borrowed, lend_stream(task.context._spec.numbers))
    return task.borrowed.address


def views_to_fill(task: TaskCore):
    """(operator, array) of each partial that the task must fill first."""
    views = []
    engine = cython.cast("Engine", task.engine)
    for index in task.partials_to_fill():
        access: Access = task.uses[index]
        replica: Replica = task.replicas[index]
        if replica.place != 0 and engine.place(replica.place).enqueues:
            view = adapters.DeviceFill(engine, task.slot, replica)
            if not engine.place(task.where).enqueues:
                view = view.on_host()
        else:
            view = adapters.view(replica, True, "numpy")
        views.append((access.op, view))
    return views


def library_of(task: TaskCore, lib):
    """The one library of a task's arrays: `lib`, the context's, or that of tensors among its data; None if it is open.

    Arrays of two libraries do not mix: ``y += x`` then makes an object of x's library, and y stays as it was.
    """
    if lib is not None or not tensors_made[0] or task.context is None:
        return lib
    engine = cython.cast("Engine", task.engine)
    if engine.arrays is not None:
        return engine.arrays
    for access in task.accesses:
        known: Access = access
        if known.core.layout is not None and known.core.layout.library is not None:
            return known.core.layout.library
    return None


def view_of(task: TaskCore, index, lib):
    """Return the array of one access; `TOKEN` for a token."""
    replica = task.replica_at(index)
    return TOKEN if replica is None else view_at(task, replica, task.joined_mode(index) != READ, lib)


def views_between(task: TaskCore, first, count, lib, token):
    """Return the arrays of so many accesses, in order; `token` for each that is to a token."""
    i: cython.int
    uses: tuple = task.uses
    replicas: list = task.replicas
    joined: cython.bint = uses is not task.accesses
    found = []
    for i in range(first, first + count):
        position: cython.int = task.position_of(i) if joined else i
        replica = cython.cast(Replica, replicas[position])
        if replica is None:
            found.append(token)
        else:
            found.append(view_at(task, replica, cython.cast(Access, uses[position]).mode != READ, lib))
    return found


def view_at(task, replica, writeable, lib):
    """Return the array of a replica that a task works on."""
    engine = cython.cast("Engine", task.engine)
    if lib is None and task.context is not None:
        lib = engine.arrays
        if lib is None:
            lib = replica.layout.library
    on_device: cython.bint = replica.place != 0 and engine.place(replica.place).enqueues
    if on_device and replica.views is not None and not task.remote:
        view = replica.views.get("cupy" if lib is None else lib)
        if view is not None:
            return view
    is_numpy: cython.bint = lib == "numpy"
    if not is_numpy and lib == "jax" and replica.layout.interface is None:
        return jax_copy_of(task, replica)
    if task.remote and replica.place != engine.place(task.where).memory and engine.place(1).enqueues:
        return remote_view(task, replica, writeable, lib)
    if on_device:
        return adapters.device_view(replica, lib, engine.place(replica.place).ordinal)
    if replica.views is not None and (is_numpy or (lib is None and task.context is not None)):
        view = replica.write_array if writeable else replica.read_array
        if view is not None:
            return view
        view = replica.views.get(writeable)
        if view is not None:
            if writeable:
                replica.write_array = view
            else:
                replica.read_array = view
            return view
    return adapters.view(replica, writeable, lib)


def jax_copy_of(task, replica):
    """Return what makes a JAX array of an access when the body runs."""
    engine = cython.cast("Engine", task.engine)
    number: cython.int = engine.place(replica.place).ordinal
    if number >= 0 and engine.place(replica.place).enqueues:
        return jax_arrays.JaxCopy(replica, number, pointer_of_stream(task), engine.root, task.slot)
    if engine.place(task.where).enqueues:
        engine.port.drain(task.slot)
    return jax_arrays.JaxCopy(replica, -1)


def remote_view(task, replica, writeable, lib):
    """Return the array of an access to memory elsewhere than where the task runs, on CUDA."""
    engine = cython.cast("Engine", task.engine)
    number: cython.int = engine.place(replica.place).ordinal
    enqueues: cython.bint = engine.place(task.where).enqueues
    on_grid: cython.bint = task.outside_recordings  # its arrays are of the devices where they lie
    if enqueues and number < 0 and (on_grid or lib == "numpy" or replica.layout.interface is not None):
        engine.port.drain(task.slot)  # a body for a device looks at host memory: what is there must have come
        return adapters.view(replica, writeable, None if lib == "cupy" else lib)
    if on_grid or not enqueues:
        return adapters.view(replica, writeable, lib) if number < 0 else adapters.device_view(replica, lib, number)
    must_reach(task, replica)
    return adapters.device_view(replica, lib, engine.place(task.where).ordinal, True)


def reach_all(task):
    """Raise PlaceError unless a task can use all its data where they are."""
    for replica in task.held_replicas():
        must_reach(task, replica)
    return 0


def must_reach(task, replica):
    """Raise PlaceError unless what a task enqueues can use data where it is; user's memory is pinned for it."""
    engine = cython.cast("Engine", task.engine)
    if replica.place == engine.place(task.where).memory or not engine.place(task.where).enqueues:
        return 0
    if task.outside_recordings:  # which of its places use the data is for the user to say
        return 0
    engine.enter()
    try:
        able = engine.port.may_use(task.where, replica)
    finally:
        engine.gate.leave()
    if able:
        return 0
    why = "CUDA cannot pin that host memory"
    if replica.place != 0:
        why = f"there is no access from {task.place_name} to the memory of {engine.place(replica.place).name}"
    raise PlaceError(
        f"task {task.label()} on {task.place_name} cannot use {replica.data.describe()} where it is: {why}; leave the "
        "data place out, so that it is copied"
    )


def position_of(task: TaskCore, index):
    """Return where the array of an access stands among all of a task.

    Data made of several arrays have no single one.
    """
    if task.groups is None:
        return index
    first, _, rebuild = task.groups[index]
    if rebuild is not None:
        raise TypeError(
            f"access {index} of task {task.label()} is to data made of several arrays, each with an address of its "
            f"own; t[{index}] is the object, and t.args_cai() has the arrays of all"
        )
    return first


def address_of(task: TaskCore, index):
    """Return the address of what an access was given."""
    position = position_of(task, index)
    if task.state == ENDED:
        view = task.views[index]
        if view is TOKEN:
            raise no_address(task, index)
        return adapters.address_of(view)
    replica: Replica = task.replica_at(position)
    if replica is None:
        raise no_address(task, index)
    if task.remote:
        must_reach(task, replica)
    return replica.address


def no_address(task: TaskCore, index):
    """Return the error for whoever asks for a token's memory."""
    return TypeError(f"access {index} of task {task.label()} is a token; it has no address")


def memory_of(task: TaskCore, position, on_stream=True):
    """One of an open task's arrays as an object with ``__cuda_array_interface__``; None for a token.

    `on_stream`: its user may put work on the task's stream, which is current from here on.
    """
    engine = cython.cast("Engine", task.engine)
    if task.outside_recordings:
        return task.memory_at(position)
    stream = task.cuda_stream() if on_stream else None
    if stream is None and (on_stream or not engine.place(task.where).enqueues):
        raise PlaceError(f"task {task.label()} runs at {task.place_name}, which is no CUDA device; use t.numpy() there")
    replica: Replica = task.replica_at(position)
    if task.remote and replica is not None:
        must_reach(task, replica)
    if on_stream:
        task.borrow()
    if replica is None:
        return None
    number: cython.int = engine.place(replica.place).ordinal
    number = number if number >= 0 else engine.place(task.where).ordinal  # managed memory is every device's
    return cuda_arrays.device_memory(replica, number, stream)


def values_of(task: TaskCore, lib):
    """Return what a body gets: the arrays of all accesses, in order; data made of several arrays put together."""
    views: list = views_of(task, lib)
    return views if task.groups is None else built(group(task.groups, views))


def views_of(task, lib):
    """Return the arrays of all accesses, in order.

    Those that make up one object are of the library that it was made of.
    """
    shared = library_of(task, lib)
    views = views_between(task, 0, len(task.accesses), shared, TOKEN)
    if shared is not lib and task.groups is not None:
        for first, count, rebuild in task.groups:
            if rebuild is not None:
                views[first : first + count] = views_between(task, first, count, lib, TOKEN)
    return views


def without_tokens(views):
    """Return what a body gets: a token is nothing."""
    for view in views:
        if view is TOKEN:
            return tuple([each for each in views if each is not TOKEN])
    return tuple(views)


def group(groups, views):
    """Return the arrays, with `Parts` in place of those that make up one object."""
    grouped = []
    for first, count, rebuild in groups:
        whole = None if rebuild is None else Parts(views[first : first + count], ("parts", count, rebuild))
        grouped.append(views[first] if whole is None else whole)
    return grouped


def sources_in(task: TaskCore, lib):
    """Return what the arguments of a recorded body are made of, which come in the order of its accesses."""
    found = []
    position = 0
    shared = library_of(task, lib)
    for first, count, rebuild in task.groups or [(i, 1, None) for i in range(len(task.accesses))]:
        if rebuild is not None:
            found.extend(sources_of(task, first, count, [lib] * count, position))
        elif task.replica_at(first) is not None:
            found.append(source_of(task, first, shared, position))
        else:
            continue
        position += 1
    return found


def sources_of(task, first, count, libs, position):
    """Return what an argument of several arrays is made of, which are of the libraries `libs`; tokens are nothing."""
    return [
        source_of(task, first + part, libs[part], position, part)
        for part in range(count)
        if task.replica_at(first + part) is not None
    ]


def source_of(task: TaskCore, index, lib, position, part=-1):
    """Return what an argument of a recorded body is made of, or one part of it; see `Body.argument_sources`."""
    return (position, task.recorded_replica(index), task.joined_mode(index) != READ, lib, part)
