"""New data at a call: how they lie, what the user gets of them, and arrays that are known when a body runs.

`new_data` says what a function returns; this is what each call does. Programs return data by the million, so nothing
here makes a list, or an object that is not kept. The memory of new data may be what their body returns
(`_engine.adoption`).

A body that reads such data has a `LateView` among its arguments, which is called before the body is. A body that makes
new data has a `ResultSlot` for each among the arrays that its results go to.

An array is adopted if nobody else can change it or see it change: it owns its memory, it lies as the data should, and
what holds it is the list of results alone. Anything else is copied: views, arrays that the body keeps, numbers, lists.
"""

from __future__ import annotations

import sys

import cython
import numpy as np

from stf._engine.access import handle_type, must_have_shape
from stf._port.replicas import Layout
from stf.interop import adapters
from stf.interop.memory import numpy_view
from stf.interop.results import check_result, must_have_no_mask
from stf.tasks.placing import place_by_number

HANDLE_TYPE: list = handle_type
NO_ARGUMENTS: tuple = ()
NDARRAY: object = np.ndarray
tensors_made: list = adapters.tensors_made


def layout_like(value):
    """Return the layout of new data that are like an argument; None where that is no packed array."""
    if not isinstance(value, DataHandle):
        return None
    layout: Layout = cython.cast(DataHandle, value).core.layout
    if layout is not None and layout.dtype is None:
        raise must_have_shape(cython.cast(DataHandle, value).core)
    if layout is None or layout.library is not None or layout.interface is not None:
        return None
    return layout.packed()


def new_handle(core):
    """Return what the user holds of new data."""
    kind = HANDLE_TYPE[0]
    handle: DataHandle = stf_new(kind, NO_ARGUMENTS) if cython.compiled else kind.__new__(kind)
    handle.core = core
    return handle


def first_of(values, count):
    """Return the first items of a list as a tuple."""
    i: cython.int
    if not cython.compiled:
        return tuple(values[:count])
    found: tuple = PyTuple_New(count)
    for i in range(count):
        value = values[i]
        Py_INCREF(value)
        PyTuple_SET_ITEM(found, i, value)
    return found


@cython.freelist(1024)
@cython.final
@cython.no_gc
@cython.cclass
class LateView:
    """Makes the array of a replica when a body runs."""

    def __call__(self):
        return numpy_view(self.replica, self.writeable)


@cython.freelist(1024)
@cython.final
@cython.no_gc
@cython.cclass
class ResultSlot:
    """Where a body's result goes: it becomes the memory of a replica, unless that has some by now."""

    def store(self, value, is_alone, name, position):
        """Store one result; `is_alone` says that nobody but the list of results holds it."""
        replica = self.replica
        if not replica.has_memory():
            layout = replica.layout
            memory: Memory = None
            if layout.dtype is None:
                value = packed_array(value, is_alone, name)
                is_alone = True
                layout = Layout(value.shape, value.strides, value.dtype, value.dtype.itemsize)
                replica.layout = layout
            if is_alone and type(value) is NDARRAY and value.base is None and value.dtype == layout.dtype:
                memory = numpy_memory(value)
            if memory is None or memory.shape != layout.shape or memory.strides != layout.strides or memory.readonly:
                check_result(value, layout.shape, layout.dtype, name, position)
                found = np.ndarray(layout.shape, layout.dtype, np.empty(layout.nbytes, np.uint8), 0, layout.strides)
                found[...] = np.asarray(value, layout.dtype if isinstance(value, list) else None)
                memory = numpy_memory(found)
            if adopt(self.gate, replica, memory.owner, memory.address):
                return 0
        adapters.store(value, numpy_view(replica, True), name, position)
        return 0


def packed_array(value, is_alone, name):
    """Return a result of any shape as an array that nobody else has.

    Raises
    ------
    TypeError
        It is no array of numbers, or has a mask.
    """
    if value is None:
        raise TypeError(f"task '{name}' returned None this time, and is to return new data")
    if type(value) is not NDARRAY:
        must_have_no_mask(value, f"the result of task '{name}'")
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(f"task '{name}' returned {type(value).__name__}, which is no array of plain elements")
    is_own = is_alone and type(value) is NDARRAY and value.base is None and value.flags.c_contiguous
    return value if is_own and value.flags.writeable else array.copy(order="C")


def has_open(task: TaskCore):
    """Return whether some of a task's data have no shape yet."""
    for item in task.accesses:
        core: Data = cython.cast(Access, item).core
        if core.is_result and core.layout.dtype is None:
            return True
    return False


def settle_open(task: TaskCore):
    """Choose the place of an automatic task at once, if some of its data have no shape yet.

    These cannot be copied before a body has returned them, and nobody knows how much there is to move. So the task runs
    where they will be, and at the default place if it is the first.
    """
    if not has_open(task):
        return
    engine: Engine = task.engine
    for item in task.accesses:
        core: Data = cython.cast(Access, item).core
        if not core.is_result or core.layout.dtype is not None:
            continue
        for known in core.version.replicas:
            replica: Replica = known
            if replica.awaits_result and core.version.writers.count:
                for place in engine.places:
                    if place.memory == replica.place:
                        place_by_number(task, place.number)
                        return
    place_by_number(task, task.context.default_place_code())


def access_when_known(handle: DataHandle, mode):
    """Return an access to data whose shape is known when the body runs."""
    access: Access = Access.__new__(Access)
    access.data, access.core, access.mode, access.place = handle, handle.core, mode, AFFINE
    return access


def must_bind_late(engine: Engine, task: TaskCore, name):
    """Raise TypeError unless a task, of whose data some have no shape yet, gets its arrays when it runs."""
    is_late: cython.bint = task.binds_late and not engine.scope.records and engine.gathering is None
    for item in task.accesses:
        core: Data = cython.cast(Access, item).core
        if not core.is_result or core.layout.dtype is not None:
            continue
        replica: Replica = core.version.find(engine.place(task.where).memory)
        if core.version.writers.count:
            if not is_late or replica is None or not replica.awaits_result:  # it is elsewhere, and cannot be copied yet
                raise must_have_shape(core)
        elif not is_late:
            raise TypeError(
                f"task '{name}' returns stf.New, whose shape is known when it has run: that is for bodies on a CPU "
                "that get NumPy's arrays, outside of recordings, in a context without a memory limit; write -> "
                "stf.New['(n)->(n,2)'], or a function of the data"
            )
    return 0


def late_array(task: TaskCore, index, is_result):
    """Return what stands for the array of an access until the body runs; None where the array is there."""
    replica: Replica = task.replica_at(index)
    if replica is None or not replica.awaits_result:
        return None
    if not is_result:
        view: LateView = LateView.__new__(LateView)
        view.replica, view.writeable = replica, task.joined_mode(index) != READ
        return view
    slot: ResultSlot = ResultSlot.__new__(ResultSlot)
    slot.replica, slot.gate = replica, cython.cast("Engine", task.engine).gate
    return slot


def store_new(items, written, name):
    """Store the results of a body where they go; the list is all that holds them, but for the body itself."""
    i: cython.Py_ssize_t
    for i in range(len(items)):
        value = items[i]
        if type(written[i]) is ResultSlot:
            cython.cast(ResultSlot, written[i]).store(value, references(value) == IN_A_LIST, name, i)
        else:
            adapters.store(value, written[i], name, i)
    return 0


def references(value):
    """Return how many references there are, as this form of the module counts them; see `IN_A_LIST`."""
    return Py_REFCNT(value) if cython.compiled else sys.getrefcount(value)


def count_in_a_list():
    """Return what `references` says in `store_new` of an array that only the list holds."""
    items = [np.empty(1)]
    value = items[0]
    return references(value)


IN_A_LIST: cython.Py_ssize_t = count_in_a_list()


def is_of_numpy(engine: Engine, task: TaskCore):
    """Return whether the arrays of a task are NumPy's in host memory, and its body runs later."""
    return (
        (engine.arrays is None or engine.arrays == "numpy")
        and not tensors_made[0]
        and not engine.place(task.where).enqueues
    )
