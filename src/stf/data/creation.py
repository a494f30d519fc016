"""Making logical data: from arrays, from shapes, from registered types, as tiles, and tokens."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from stf._port.replicas import Layout
from stf._support.arguments import is_integer, name_of
from stf.data.composite import CompositeData
from stf.data.filling import content_of, fill_when_used, filled_by, filled_with, is_recorded, submit_fill
from stf.data.logical_data import LogicalData, new_handle
from stf.devices.make import cuda_is_managed
from stf.errors import PlaceError
from stf.interop.dtypes import dtype_of
from stf.interop.known_arrays import Memory
from stf.interop.memory import layout_for
from stf.places.places import DataPlace
from stf.places.table import data_place_code, place_of_code, place_of_memory
from stf.tasks.checks import must_be_open
from stf.tasks.task import ContextCore

FLOAT64 = np.dtype(np.float64)


def check_memory_is_at(context: ContextCore, obj: Any, memory: Memory, data_place: DataPlace) -> None:
    """Raise if memory is elsewhere than the user says."""
    said = data_place_code(context, data_place)
    if said < 0 or 0 in memory.shape:
        return
    name = type(obj).__name__
    if context.on_cuda and data_place.kind == "managed":
        if not cuda_is_managed(memory.address):
            raise ValueError(
                f"{name} is registered as managed memory, and its memory is not; leave data_place out, or "
                "allocate it as managed memory"
            )
        return
    place = place_of_memory(context, memory)
    if place != said:
        found = f"on {context.engine.places[place].name}" if place else "in host memory"
        raise PlaceError(f"{name} lies {found}, not on {data_place!r}; leave data_place out")


def custom_data(
    context: ContextCore, obj: Any, custom: Any, name: str | None, write_back: bool, readonly: bool, register: Any
) -> Any:
    kind, first, unflatten = custom
    if kind == "simple":
        arrays = first(obj)
        if not isinstance(arrays, Sequence):
            raise TypeError(
                f"flatten of {type(obj).__name__} gives a sequence of arrays, got {type(arrays).__name__}; of one "
                "array, give a tuple: (array,)"
            )
        parts = [
            register(context, part, name=f"{name or type(obj).__name__}.{i}", write_back=write_back, readonly=readonly)
            for i, part in enumerate(arrays)
        ]
        if not parts:
            raise ValueError(
                f"flatten of {type(obj).__name__} gave no arrays; give at least one, or register an interface="
            )
        return CompositeData(obj, parts, unflatten, name)
    interface = InterfaceAdapter(first(obj), context)
    nbytes = interface.interface.nbytes(obj)
    if not is_integer(nbytes) or not 0 <= int(nbytes) <= sys.maxsize:
        raise TypeError(f"nbytes of {type(obj).__name__}'s interface= is a number of bytes from 0 on, got {nbytes!r}")
    layout = Layout((), (), np.dtype(object), 0, interface, int(nbytes))
    handle = new_handle(context.engine, layout, name)
    handle.core.readonly = readonly
    handle.core.write_back = write_back and not readonly
    context.engine.set_home(handle.core, 0, 0, obj)
    handle.core.home.instance = obj
    return handle


def logical_data_empty(
    context: ContextCore, shape: Any, dtype: Any = None, *, name: str | None = None, symbol: str | None = None
) -> LogicalData:
    """Return data with no content; no memory until first use.

    Parameters
    ----------
    shape : int or tuple of int
        Extents; 0 axes and extents of 0 are fine.
    dtype : dtype, optional
        NumPy's, torch's or JAX's, or a name such as ``"bfloat16"``; float64 by default.
    name : str, optional
        For messages and pictures.

    Raises
    ------
    TypeError
        An extent is no integer, or `dtype` holds Python objects.
    ValueError
        An extent is negative.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data_empty((2, 3), np.int32, name="x")
    ...     ctx.fill(x, 7)
    ...     print(x.numpy())
    [[7 7 7]
     [7 7 7]]
    """
    must_be_open(context)
    extents = check_shape(shape)
    kind = FLOAT64 if dtype is None else dtype_of(dtype)
    if kind.hasobject:
        raise TypeError(f"logical data needs plain elements, got dtype {kind} which holds Python objects")
    try:
        layout = layout_for(extents, kind)
    except OverflowError:
        raise OverflowError(
            f"data of shape {extents} and {kind.itemsize} bytes an element are too large for memory"
        ) from None
    return new_handle(context.engine, layout, name_of(name, symbol))


def logical_data_full(
    context: ContextCore,
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    *,
    where: DataPlace | None = None,
    exec_place: Any = None,
    name: str | None = None,
    symbol: str | None = None,
) -> LogicalData:
    """Return data filled with `fill_value`: where a task first uses them, and no memory before.

    Parameters
    ----------
    shape : int or tuple of int
        Extents.
    fill_value : scalar
        The value; its NumPy dtype is the default `dtype`.
    dtype : dtype, optional
        Element type.
    where : DataPlace, optional
        The memory to fill, now.
    exec_place : place, optional
        Where a task fills them, now.
    name : str, optional
        For messages and pictures.

    Raises
    ------
    TypeError
        An extent is no integer, or `dtype` holds Python objects, or does not hold `fill_value` without loss.
    ValueError
        An extent is negative.
    OverflowError
        `fill_value` is out of the range of `dtype`.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     print(ctx.logical_data_full(3, 2.5).numpy())
    [2.5 2.5 2.5]
    """
    kind = np.asarray(fill_value).dtype if dtype is None else dtype_of(dtype)
    data = logical_data_empty(context, shape, kind, name=name_of(name, symbol))
    if where is None and exec_place is None and not is_recorded(context, fill_value) and np.ndim(fill_value) == 0:
        fill_when_used(context, data, filled_with(content_of(fill_value, data)))
    else:
        submit_fill(context, data, fill_value, where, exec_place)
    return data


def logical_data_zeros(context: ContextCore, shape: Any, dtype: Any = None, **options: Any) -> LogicalData:
    """Return data filled with 0; see `logical_data_full`.

    Raises
    ------
    TypeError
        An extent is no integer, or `dtype` holds Python objects.
    ValueError
        An extent is negative.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     print(ctx.logical_data_zeros(3, np.int64).numpy())
    [0 0 0]
    """
    return logical_data_filled(context, shape, dtype, np.zeros, options)


def logical_data_ones(context: ContextCore, shape: Any, dtype: Any = None, **options: Any) -> LogicalData:
    """Return data filled with 1; see `logical_data_full`.

    Raises
    ------
    TypeError
        An extent is no integer, or `dtype` holds Python objects.
    ValueError
        An extent is negative.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     print(ctx.logical_data_ones((2, 2)).numpy())
    [[1. 1.]
     [1. 1.]]
    """
    return logical_data_filled(context, shape, dtype, np.ones, options)


def logical_data_filled(
    context: ContextCore, shape: Any, dtype: Any, make: Any, options: dict[str, Any]
) -> LogicalData:
    """Return the data of `logical_data_zeros` and `logical_data_ones`, whose content is made once for each dtype."""
    kind = FLOAT64 if dtype is None else dtype_of(dtype)
    if options.keys() - {"name", "symbol"} or is_recorded(context, None):
        return logical_data_full(context, shape, make((), kind), kind, **options)
    data = logical_data_empty(context, shape, kind, **options)
    fill_when_used(context, data, filled_by(make, kind))
    return data


def token(context: ContextCore, *, name: str | None = None, symbol: str | None = None) -> LogicalData:
    """Return data without content, which only orders tasks; it may be read at once.

    Raises
    ------
    TypeError
        The name is no text.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> log = []
    >>> with stf.context(devices="cpu") as ctx:
    ...     order = ctx.token(name="order")
    ...     ctx.host_launch(order.rw())(lambda: log.append("first"))
    ...     ctx.host_launch(order.rw())(lambda: log.append("second"))
    >>> log
    ['first', 'second']
    """
    must_be_open(context)
    return new_handle(context.engine, None, name_of(name, symbol), True)


class InterfaceAdapter:
    """A custom data interface, as the backend calls it."""

    def __init__(self, interface: Any, owner: Any) -> None:
        self.interface = interface
        self.engine = owner.engine
        self.copy = interface.copy
        self.view = interface.view
        self.to_host = interface.to_host

    def allocate(self, code: int) -> Any:
        """Return an instance at the data place with this number."""
        place = place_of_code(self.engine.context(), code)
        place = place if isinstance(place, DataPlace) else place.affine_data_place
        instance = self.interface.allocate(place)
        if instance is None:
            raise MemoryError(f"allocate({place!r}) of {type(self.interface).__name__} returned None")
        return instance


def check_shape(shape: Any) -> tuple[int, ...]:
    """Return a tuple of extents from an int or a sequence."""
    if type(shape) is int and shape >= 0:  # by far the most frequent, and temporaries are made by the million
        return (shape,)
    is_sequence = hasattr(shape, "__iter__") and getattr(shape, "ndim", 1) > 0  # NumPy's arrays have __index__, too
    items: Sequence[Any] = tuple(shape) if is_sequence else (shape,)
    if not is_sequence and not hasattr(shape, "__index__"):
        raise TypeError(f"shape must be an integer or an iterable of integers, got {shape!r}")
    if any(isinstance(n, bool) or not hasattr(n, "__index__") for n in items):
        raise TypeError(f"shape dimensions must be integers, got {shape!r}")
    extents = tuple(int(n) for n in items)
    if any(n < 0 for n in extents):
        raise ValueError(f"shape dimensions must not be negative, got {extents}")
    return extents
