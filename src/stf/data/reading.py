"""The host's copy of one array, waited for: what `Context.wait` mostly is.

Compiled, since a program that looks at a scalar in every step passes here as often.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, overload

import cython
import numpy as np

from stf._engine.access import check_mine
from stf.data.logical_data import LogicalData, view_for_host
from stf.data.waiting import wait_in_general
from stf.interop import adapters
from stf.tasks.checks import check_errors
from stf.tasks.lent import BORROWERS

if TYPE_CHECKING:
    from stf.places.places import DataPlace
    from stf.tasks.task import ContextCore

NO_ARGUMENTS: tuple = ()
NOT_QUIET: object = object()
LOGICAL_DATA: object = LogicalData
ITEM: object = "item"  # among a replica's views: what reads a scalar
LENT: dict = BORROWERS
scalars: dict = {}  # by dtype: what makes a Python scalar of bytes; None for what has none


@overload
def wait(
    context: ContextCore, data: LogicalData, *, data_place: DataPlace | None = None, arrays: None = None
) -> np.ndarray[Any, Any]: ...
@overload
def wait(context: ContextCore, data: Any, *, data_place: DataPlace | None = None, arrays: str | None = None) -> Any: ...
@cython.binding(True)
def wait(context, data, *, data_place=None, arrays=None):
    """Block until the data is there and return its content.

    Parameters
    ----------
    data : LogicalData, CompositeData or container
        The data to wait for; nothing else is waited for. A list, tuple, dict or dataclass of data gives one of what is
        returned for each; other values in it stay.
    data_place : DataPlace, optional
        Where to read it; host memory by default.
    arrays : str, optional
        Library of the result.

    Returns
    -------
    numpy.ndarray, scalar or None
        A copy; a Python scalar for zero-dimensional data; None for a token; an object made of copies for data made
        of several arrays.

    Raises
    ------
    TaskFailedError
        A task failed that was to write it, or another one whose failure was not told yet.
    UninitializedDataError
        Nobody has written data that are read.
    AccessError
        The data are split into tiles, or released.
    TaskStateError
        It is called inside a task or a recording.
    TypeError
        It is no logical data, and contains none.
    ContextMismatchError
        Data belong to another context.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     print(ctx.wait(ctx.logical_data_ones(3)))
    ...     print(ctx.wait(ctx.logical_data(np.array(2.5))))
    [1. 1. 1.]
    2.5
    """
    if data_place is not None or arrays is not None:
        return wait_in_general(context, data, data_place, arrays)
    result = read_if_quiet(context, data)
    if result is NOT_QUIET:
        return wait_in_general(context, data, None, None)
    if context.engine.failures:
        check_errors(context)
    return result


def read_if_quiet(context, data):
    """Return what `read_on_host` returns, if this is one array, and nobody is inside of anything; else NOT_QUIET."""
    engine = context.engine
    if type(data) is not LOGICAL_DATA or LENT or data.core.is_result or not engine.is_quiet():
        return NOT_QUIET
    if cython.cast(DataHandle, data).core.engine is not engine:
        check_mine(engine, data)
    return read_on_host(context, data)


def read_if_there(context, data):
    """Return the content of one array in a tuple, if the host has it and nobody would wait for it; else None."""
    engine: Engine = context.engine
    if type(data) is not LOGICAL_DATA or cython.cast(DataHandle, data).core.engine is not engine:
        return None
    if not is_on_host(engine, cython.cast(DataHandle, data).core):
        return None
    content = read_if_quiet(context, data)
    return None if content is NOT_QUIET else (content,)


def read_on_host(context, data):
    """Wait for the host's copy of a data and return its content, for a thread that is inside of nothing.

    A NumPy array of its own; a Python scalar without axes; None for a token.
    """
    task: Task = context.make_task(NO_ARGUMENTS, "wait")
    access = make_access(data, READ, None)
    if not data.core.token:
        access.place = 0
    task.accesses = (access,)
    task.kind = "wait"
    task.binds_late = True  # what it reads is there when it looks
    place_on_host(task)
    task.find_site_outside()
    engine: Engine = task.engine
    if engine.window is not None:
        engine.submit_held()
    if engine.root.readback is not None:
        task.warns_if_unused = False
        content = read_back(engine, task, data.core)
        if content is not None:
            return content_in(data.core.layout, content)
    task.open()
    try:
        await_array(engine, data.core)
        result = content_of(task.replica_at(0))
    except BaseException as error:
        task.abandon(error)
        raise
    task.close()
    return result


def content_of(replica):
    """Return a copy of a host replica; None for a token."""
    if replica is None:
        return None
    if replica.views is not None:
        item = replica.views.get(ITEM)
        if item is not None:
            return item()
    layout = replica.layout
    if layout.shape == () and layout.dtype.kind in "biufc":
        item = adapters.view(replica, False, "numpy").item
        replica.views[ITEM] = item
        return item()
    return view_for_host(replica, None)


def content_in(layout, content):
    """Return what `content_of` returns, of bytes that were read back."""
    if len(layout.shape) == 0:
        dtype = layout.dtype
        scalar = scalars.get(dtype, NOT_QUIET)
        if scalar is NOT_QUIET:
            scalar = scalars[dtype] = scalar_of(dtype)
        if scalar is not None:
            return scalar(content)[0]
    array = np.frombuffer(content, layout.dtype).reshape(layout.shape).copy()
    return array.item() if layout.shape == () and layout.dtype.kind in "biufc" else array


def scalar_of(dtype):
    """Return what unpacks a number of Python's from its bytes; None for what struct does not know."""
    if dtype.kind not in "iuf" or dtype.itemsize not in (4, 8):
        return None
    code = {"i4": "i", "i8": "q", "u4": "I", "u8": "Q", "f4": "f", "f8": "d"}[f"{dtype.kind}{dtype.itemsize}"]
    return struct.Struct((">" if dtype.str[0] == ">" else "<") + code).unpack
