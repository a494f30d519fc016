"""Fills, copies and prefetches: tasks of the context's own, which need no array library on a CUDA device."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from stf._engine import reductions
from stf._port.replicas import Layout, Replica, make_replica
from stf.data.composite import CompositeData
from stf.data.logical_data import LogicalData, know_layout
from stf.data.native_steps import native_copy, native_fill, native_fill_with_number
from stf.interop.adapters import BITS
from stf.interop.dtypes import carrier, dtype_of, is_narrow
from stf.interop.known_arrays import describe_numpy
from stf.interop.results import check_value, converts, kind_of_number, must_have_no_mask, surely_holds
from stf.places.places import CompositePlace, DataPlace, ReplicatedPlace
from stf.places.table import data_place_code, place_of_code
from stf.tasks.bodies import NATIVE
from stf.tasks.checks import check_array, must_be_settled, submit_known, task_of_kind
from stf.tasks.group import Tasks, joined
from stf.tasks.placing import settle
from stf.tasks.repeats import KnownCall
from stf.tasks.task import ContextCore, Task
from stf.values.params import Param
from stf.values.reducers import Reducer

if TYPE_CHECKING:
    from stf.data.partitioned import DataPart, PartitionedData


def copy(context: ContextCore, src: Any, dst: Any) -> Task | Tasks:
    """Submit a task that copies the content of one data to another of the same shape; return its handle.

    Data made of several arrays are copied to others with parts of the same shapes and dtypes.

    Raises
    ------
    TypeError
        ``src`` or ``dst`` is no logical data, or a token. Or the dtype of ``dst`` is of a lower kind than that of
        ``src``, such as integers for floats; it may be a narrower one of the same kind.
    ValueError
        Their shapes differ.
    AccessError
        ``dst`` is read-only, one of them is split into tiles or released, or another live context uses the memory of
        ``dst``.
    UninitializedDataError
        Nobody has written data that are read.
    ContextMismatchError
        Data belong to another context.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x, y = ctx.logical_data_full(3, 7.0), ctx.logical_data_empty(3)
    ...     ctx.copy(x, y)
    ...     print(y.numpy())
    [7. 7. 7.]
    """
    if type(src) is LogicalData and type(dst) is LogicalData:
        return submit_copy(context, [src], [dst], None)
    if are_alike(src, dst):
        pairs = zip(src.parts.ravel(), dst.parts.ravel(), strict=True)
        return joined([submit_copy(context, [source], [target], target.exec_place) for source, target in pairs])
    sources, targets = parts_of(context, src), parts_of(context, dst)
    if isinstance(src, CompositeData) or isinstance(dst, CompositeData):
        check_equal_parts(src, dst)
    return submit_copy(context, sources, targets, dst.exec_place if is_part(dst) else None)


def submit_copy(context: ContextCore, sources: list[Any], targets: list[Any], place: Any) -> Task:
    alike = True
    for source, target in zip(sources, targets, strict=True):
        check_array(context, source)
        check_array(context, target)
        given, wanted = know_layout(source), know_layout(target)
        if given.shape != wanted.shape:
            raise ValueError(
                f"cannot copy {source!r} to {target!r}: the shapes {source.shape} and {target.shape} differ"
            )
        if given.dtype is not wanted.dtype:
            must_convert(source, target)
            alike = alike and given.dtype == wanted.dtype
    accesses = [source.read() for source in sources] + [target.write() for target in targets]
    task = task_of_kind(context, "copy", accesses, "copy", place)
    settle(task)
    call = COPY_BY_DRIVER if alike and is_native(context, task, sources + targets) else COPY_IN_A_BODY
    submit_known(context, task, call)
    return task


class HeldCopy(KnownCall):
    """A copy that is submitted: by the driver, or in a body."""

    def __init__(self, by_driver: bool) -> None:
        self.what, self.fixed, self.plain = copy_into, (by_driver,), ()

    def __call__(self, task: Task) -> None:
        if self.fixed[0]:
            task.run_native(copy_replicas)
        else:
            task.run_queued(copy_into, ())


def must_convert(source: Any, target: Any) -> None:
    """Raise TypeError if a copy would drop what is after the point, a sign or an imaginary part."""
    given, wanted = source.dtype, target.dtype
    if converts(wanted, given):
        return
    how = "np.rint(x)" if given.kind == "f" and wanted.kind in "iu" else "x.real" if given.kind == "c" else "x"
    raise TypeError(
        f"cannot copy {source!r} to {target!r} without loss: {wanted} does not hold all values of {given}; convert "
        f"them in a task, `y[...] = {how}.astype(y.dtype)`, or use data of {given}"
    )


def are_alike(src: Any, dst: Any) -> bool:
    """Return whether two data are partitioned alike, over the same places."""
    if not (is_partitioned(src) and is_partitioned(dst)) or src is dst:
        return False
    pairs = zip(src.parts.ravel(), dst.parts.ravel(), strict=False)
    alike = src.grid.places == dst.grid.places and src.shape == dst.shape and src.context is dst.context
    return alike and all(one.region == other.region for one, other in pairs)


def is_partitioned(data: Any) -> TypeGuard[PartitionedData]:
    """Return whether `data` are partitioned over a grid."""
    if not is_linked(data):
        return False
    from stf.data.partitioned import PartitionedData

    return isinstance(data, PartitionedData)


def is_part(data: Any) -> TypeGuard[DataPart]:
    """Return whether `data` are a part of partitioned data."""
    if not is_linked(data):
        return False
    from stf.data.partitioned import DataPart

    return isinstance(data, DataPart)


def is_linked(data: Any) -> bool:
    """Return whether `data` are partitioned, or a part of such data; other data go without that module."""
    return isinstance(data, LogicalData) and data.core.linked is not None


def parts_of(context: ContextCore, data: Any) -> list[LogicalData]:
    """Return the arrays that a data is made of: itself, or its parts."""
    parts = data.parts if isinstance(data, CompositeData) else [data]
    for part in parts:
        check_array(context, part)
    return parts


def fill(context: ContextCore, data: LogicalData, value: Any) -> Task | Tasks:
    """Submit a task that fills the data with `value`: a number, a parameter of a graph, or what broadcasts.

    Returns
    -------
    Task or Tasks
        Its handle.

    Raises
    ------
    TypeError
        It is no logical data, or a token. Or the dtype does not take `value` without loss, as in what a task returns:
        it takes no floats for integers.
    ValueError
        `value` does not broadcast to the shape, or is nothing that the dtype holds.
    OverflowError
        `value` is out of the range of the dtype.
    AccessError
        The data are read-only, split into tiles or released, or another live context uses their memory.
    ContextMismatchError
        Data belong to another context.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_empty((2, 3))
    ...     ctx.fill(x, [1.0, 2.0, 3.0])
    ...     print(x.numpy())
    [[1. 2. 3.]
     [1. 2. 3.]]
    """
    if type(data) is LogicalData:
        return submit_fill(context, data, value, None, None)
    if isinstance(data, CompositeData):
        raise TypeError(
            f"fill takes data of one array, got {data!r}; fill a part of it, as in ctx.fill(lC.parts[0], value), "
            "or write it in a task"
        )
    if not is_partitioned(data):
        return submit_fill(context, data, value, None, data.exec_place if is_part(data) else None)
    check_array(context, data)
    values = value
    if not isinstance(value, Param) and np.ndim(value):
        values = np.broadcast_to(content_of(value, data), data.core.layout.shape)
    tasks = []
    for part in data.parts.ravel():
        own = value if values is value else values[part.region.indices()]
        tasks.append(submit_fill(context, part, own, None, part.exec_place))
    return joined(tasks)


def submit_fill(context: ContextCore, data: LogicalData, value: Any, where: DataPlace | None, place: Any) -> Task:
    check_array(context, data)
    if where is not None:
        data_place_code(context, where)
    is_param = isinstance(value, Param)
    if is_param:
        value.must_be_recorded()
    if is_param and is_narrow(data.dtype):
        value.refuse()  # its bits are what is filled with
    values = content_of(value.value_in(None) if is_param else value, data)
    if place is None and where is not None and where.kind in ("device", "host"):
        place = where.index if where.kind == "device" else "host"
    task = task_of_kind(context, "fill", [data.write(where)], "fill", place)
    settle(task)
    by_driver = is_native(context, task, [data]) and (where is None or where.kind != "host")
    submit_known(context, task, HeldFill(value if is_param else values, data.dtype, by_driver))
    return task


class HeldFill(KnownCall):
    """A fill that is submitted, with an array of values or with a parameter of a graph."""

    def __init__(self, values: Any, dtype: np.dtype[Any], by_driver: bool) -> None:
        self.values, self.dtype = values, dtype
        is_number = type(values) is np.ndarray and values.ndim == 0
        own = () if is_number or isinstance(values, Param) else (values.dtype.str, values.shape, values.tobytes())
        self.what, self.fixed = fill_with, (str_of(dtype), by_driver, *own)
        self.plain: tuple[Any, ...] = () if own else (values[()] if is_number else values,)

    def __call__(self, task: Task) -> None:
        values, by_driver = self.values, self.fixed[1]
        if isinstance(values, Param):
            task.run_queued(fill_with_number, (values,), "cupy" if task.engine.place(task.where).enqueues else "numpy")
        elif by_driver:
            task.run_native(functools.partial(fill_replica, values=values))
        elif is_narrow(self.dtype):  # of which libraries know little, and which are bits to be repeated
            bits = values.view(carrier(self.dtype))
            task.run_queued(fill_with, (bits.item() if bits.size == 1 else bits,), BITS)
        else:
            task.run_queued(fill_with, (values[()],))

    def with_plain(self, plain: tuple[Any, ...]) -> HeldFill:
        """Return the same fill with another value."""
        return HeldFill(plain[0], self.dtype, self.fixed[1]) if plain else self


@functools.lru_cache(maxsize=64)
def str_of(dtype: np.dtype[Any]) -> str:
    """Return how a dtype is written, which NumPy makes anew each time."""
    return dtype.str


def fill_when_used(context: ContextCore, data: LogicalData, content: Reducer) -> None:
    """Have the data filled where they are first used."""
    task = task_of_kind(context, "fill", (), "fill")
    reductions.fill_later(data.core, content, task)


def filled_with(values: np.ndarray) -> Reducer:
    """Return what data are filled with when they are used: the neutral element of a reduction without contributions."""
    return Reducer("fill", lambda dtype: values, lambda a, b, out: None)


@functools.lru_cache(maxsize=64)
def filled_by(make: Any, dtype: np.dtype[Any]) -> Reducer:
    """Return the same for what NumPy makes data of: ``np.zeros``, ``np.ones``."""
    return filled_with(make((), dtype))


def is_recorded(context: ContextCore, value: Any) -> bool:
    """Return whether a fill is part of what is recorded: each launch has data of its own, or a value of its own."""
    scope = context.engine.scope
    while scope.records and scope.runs_once:
        scope = scope.parent
    return scope.records or isinstance(value, Param)


def is_native(context: ContextCore, task: Any, data: list[LogicalData]) -> bool:
    """Return whether a driver can do it, on the task's stream."""
    if not context.engine.places[task.where].enqueues:
        return False
    return all([part.core.layout.interface is None for part in data])


def prefetch(context: ContextCore, data: LogicalData | CompositeData, data_place: DataPlace) -> Task | Tasks:
    """Submit a copy of the data to a place, so that a later task finds it there; return its handle.

    Raises
    ------
    TypeError
        `place` is no data place, or it is no logical data.
    PlaceError
        The context does not have that place.
    AccessError
        The data are split into tiles, or released.
    UninitializedDataError
        Nobody has written data that are read.
    ContextMismatchError
        Data belong to another context.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data(np.ones(3))
    ...     ctx.prefetch(x, stf.data_place.device(1))
    ...     ctx.synchronize()
    ...     print(sum(ctx.statistics().copies.values()))
    1
    """
    if isinstance(data_place, ReplicatedPlace):
        return joined([prefetch(context, data, place.affine_data_place) for place in data_place.grid])
    if isinstance(data_place, CompositePlace) and is_partitioned(data) and data_place == data.data_place:
        parts = data.parts.ravel()
        return joined([prefetch(context, part, part.exec_place.affine_data_place) for part in parts])
    code = data_place_code(context, data_place)
    parts = data.parts if isinstance(data, CompositeData) else [data]
    for part in parts:
        must_be_settled(context, part)
    accesses = [part.read(data_place) for part in parts]
    on_device = code > 0 and context.engine.places[code].ordinal >= 0
    if not on_device:  # of a device, whose stream waits for no worker
        code = context.default_code if context.engine.places[context.default_code].enqueues else 0
    task = task_of_kind(context, "prefetch", accesses, "prefetch", place_of_code(context, code))
    task.run_empty()
    return task


def content_of(value: Any, data: LogicalData) -> np.ndarray:
    """Return what a data is filled with, as an array of its own of that dtype."""
    dtype = know_layout(data).dtype
    if surely_holds(dtype, value):
        return np.array(value, dtype)
    try:
        must_have_no_mask(value, "the value")
        asked = np.asarray(value)
        if asked.dtype.kind in "US" and data.dtype.kind not in "USM":
            raise ValueError("it is text")
        if asked.dtype.hasobject and any(each is None for each in asked.flat):
            raise TypeError("None is no number; np.nan is one for what is missing")
        must_hold(value, asked, data.dtype)
        values = np.array(value, data.dtype)  # which the caller may change
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"{data!r} is filled with what its dtype can hold, got {value!r}: {error}") from None
    try:
        if values.ndim:
            np.broadcast_to(values, data.core.layout.shape)
    except ValueError:
        raise ValueError(f"{data!r} is filled with what broadcasts to its shape, got shape {values.shape}") from None
    return values


def must_hold(value: Any, asked: Any, dtype: np.dtype[Any]) -> None:
    """Raise unless a dtype of numbers takes what data are filled with, as it takes what a task returns.

    The value is known, so single integers of a library count as Python's. Truth values may be given as 0 and 1.
    """
    if dtype.kind not in "biufc" and not is_narrow(dtype):
        return
    if asked.ndim == 0 and asked.dtype.kind in "iu":
        number = int(asked)
        value = bool(number) if dtype.kind == "b" and number in (0, 1) else number
    if asked.dtype.hasobject and kind_of_number(value) is None and not isinstance(value, (list, tuple)):
        if dtype.kind in "biu" and (asked != asked.astype(dtype)).any():  # fractions and their like
            raise TypeError(f"{dtype} does not hold it; round it")
        return
    check_value(value, dtype, "the value")


def check_equal_parts(src: Any, dst: Any) -> None:
    """Raise unless two data made of several arrays have parts that correspond."""
    if not (isinstance(src, CompositeData) and isinstance(dst, CompositeData)):
        raise TypeError(f"cannot copy {src!r} to {dst!r}: only one is made of several arrays; copy its parts (.parts)")
    described = [[(part.shape, part.dtype) for part in data.parts] for data in (src, dst)]
    if described[0] != described[1]:
        one, other = (", ".join(f"{dtype} {shape}" for shape, dtype in parts) for parts in described)
        raise ValueError(f"cannot copy {src!r} to {dst!r}: their parts differ, {one} and {other}")


def copy_replicas(task: Any) -> None:
    """Work of `Context.copy` on a CUDA device: the first half of the data are copied to the others."""
    half = len(task) // 2
    for i in range(half):
        task.engine.port.copy(task.slot, task.replica_of(half + i), task.replica_of(i))


def copy_into(*arrays: Any) -> None:
    """Body of `Context.copy`: the first half of the arrays are copied to the others."""
    half = len(arrays) // 2
    for source, target in zip(arrays[:half], arrays[half:], strict=True):
        target[...] = source


def fill_replica(task: Any, values: Any) -> None:
    """Work of `Context.fill` on a CUDA device; an array of values, which is broadcast, is copied from the host."""
    replica = task.replica_of(0)
    port = task.engine.port
    if values.ndim or not port.fill(task.slot, replica, values.tobytes()):
        port.copy(task.slot, replica, staged(replica, values))


def staged(replica: Any, values: Any) -> Replica:
    """Return an array on the host of what a replica is to hold."""
    layout = replica.layout
    content = np.ascontiguousarray(np.broadcast_to(values, layout.shape)).reshape(layout.shape)
    source: Any = make_replica(replica.data, 0, Layout(layout.shape, content.strides, layout.dtype, layout.itemsize))
    source.address = describe_numpy(content, False).address
    source.owner = content
    return source


def fill_with_number(target: Any, value: Any) -> None:
    """Body of `Context.fill` with a parameter, whose value is known when it runs."""
    dtype = dtype_of(target.dtype)
    must_hold(value, np.asarray(value), dtype)
    target[...] = value


def fill_with(target: Any, value: Any) -> None:
    """Body of `Context.fill`."""
    target[...] = value


NATIVE[fill_with] = lambda args, _: native_fill(fill_with, args)
NATIVE[fill_with_number] = lambda args, _: native_fill_with_number(fill_with_number, must_hold, args)
NATIVE[copy_into] = lambda args, _: native_copy(copy_into, args)
COPY_BY_DRIVER, COPY_IN_A_BODY = HeldCopy(True), HeldCopy(False)  # which never change
