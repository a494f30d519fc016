"""NumPy arrays over raw addresses, and how arrays lie in them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from stf._port.remote_arrays import RemoteArray, array_makers
from stf._port.replicas import Layout
from stf.interop.unknown_arrays import view_without_values

FLOAT64 = np.dtype(np.float64)
MOST_LAYOUTS = 1024  # that are kept
layouts: dict[tuple[tuple[int, ...], int], Layout] = {}  # by shape, and identity of the dtype, which they keep alive


def view_at(address: int, shape: Any, strides: Any, dtype: Any, owner: Any, writeable: bool) -> np.ndarray[Any, Any]:
    """Return a NumPy array over raw memory that keeps `owner` alive."""
    low = high = 0
    for n, step in zip(shape, strides, strict=True):
        if n == 0:
            array = np.empty(shape, dtype)
            array.flags.writeable = writeable
            return array
        if step < 0:
            low += (n - 1) * step
        else:
            high += (n - 1) * step
    if address == 0:
        raise ValueError(f"an array of shape {tuple(shape)} has no memory: its address is 0; allocate it again")
    buffer = (ctypes.c_char * (high - low + dtype.itemsize)).from_address(address + low)
    buffer._stf_owner = owner
    array = np.ndarray(shape, dtype, buffer, -low, strides)
    if not writeable:
        array.flags.writeable = False
    return array


def numpy_view(replica: Any, writeable: bool) -> Any:
    """Return the NumPy view of a host-visible replica, made once per replica and mode."""
    views = replica.views
    if views is None:
        views = replica.views = {}
    view = views.get(writeable)
    if view is None:
        layout = replica.layout
        if layout.interface is not None:
            view = layout.interface.view(replica.instance)
        elif replica.adopted:
            view = replica.owner
            if not writeable:
                view = view.view()
                view.flags.writeable = False
        elif replica.address < 0:
            make = array_makers.get(replica.data.engine.places[replica.place].kind)
            made = None if make is None else (make, "cupy")
            view = RemoteArray(replica.address, layout.shape, layout.strides, layout.dtype, writeable, made)
        elif (given := replica.data.engine.root.values) is not None:
            view = view_without_values(replica, given)
        else:
            view = view_at(replica.address, layout.shape, layout.strides, layout.dtype, replica.owner, writeable)
        views[writeable] = view
    return view


def c_strides(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Strides in bytes of a C-ordered array."""
    strides, step = [], dtype.itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def layout_for(shape: tuple[int, ...], dtype: np.dtype[Any] | None) -> Layout:
    """Return the layout of new data, in C order: the same one for the same shape and dtype, where that is known."""
    kind = FLOAT64 if dtype is None else dtype
    key = shape, id(kind)
    known = layouts.get(key)
    if known is not None and known.dtype is kind:
        return known
    if len(layouts) >= MOST_LAYOUTS:
        layouts.clear()
    found = layouts[key] = Layout(shape, c_strides(shape, kind), kind, kind.itemsize)
    return found
