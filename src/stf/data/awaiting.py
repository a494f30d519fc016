"""Waiting in coroutines: others go on meanwhile."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from stf._engine.access import check_mine
from stf.data.composite import CompositeData
from stf.data.logical_data import LogicalData, copy_of
from stf.data.reading import read_if_there
from stf.data.waiting import HOST, container_of, has_data, submit, wait_in_general
from stf.tasks import handles, host_task
from stf.tasks.checks import task_of_kind
from stf.tasks.lent import is_lent
from stf.tasks.task import ContextCore
from stf.values.containers import join


@overload
async def wait_async(context: ContextCore, data: LogicalData, *, arrays: None = None) -> np.ndarray[Any, Any]: ...
@overload
async def wait_async(context: ContextCore, data: Any, *, arrays: str | None = None) -> Any: ...
async def wait_async(context: ContextCore, data: Any, *, arrays: str | None = None) -> Any:
    """Wait for data in a coroutine, and return their content; other coroutines go on meanwhile.

    Parameters
    ----------
    data : LogicalData or CompositeData
        What to wait for; nothing else is waited for. ``await lX`` is the same.
    arrays : str, optional
        ``"numpy"``, or another library that has arrays in the memory of the host.

    Returns
    -------
    numpy.ndarray, scalar or None
        As `wait` returns it: the content that the tasks submitted before this call have written.

    Raises
    ------
    TaskFailedError
        A task failed that was to write it.
    UninitializedDataError
        Nobody has written data that are read.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> import asyncio
    >>> import numpy as np, stf
    >>> @stf.task
    ... def square(x: stf.ReadWrite):
    ...     x *= x
    >>> async def main():
    ...     with stf.context(devices="cpu") as ctx:
    ...         a, b = (ctx.logical_data(np.full(2, value)) for value in (2.0, 3.0))
    ...         square(a), square(b)
    ...         print(await ctx.wait_async(a), await b)
    >>> asyncio.run(main())
    [4. 4.] [9. 9.]
    """
    if not isinstance(data, (LogicalData, CompositeData)):
        kind, what, items = container_of(data, "wait_async")
        return join(
            kind, what, [await wait_async(context, item, arrays=arrays) if has_data(item) else item for item in items]
        )
    there = read_if_there(context, data) if arrays is None else None
    if there is not None:
        return there[0]
    parts = data.parts if isinstance(data, CompositeData) else [data]
    for part in parts:
        check_mine(context.engine, part)
        layout = part.core.layout
        if is_lent(part) or part.core.is_result or (layout is not None and layout.interface is not None):
            import asyncio  # which few programs need, and which takes its time

            return await asyncio.to_thread(wait_in_general, context, data, None, arrays)
    accesses = [part.read() if part.core.token else part.read(HOST) for part in parts]
    task = context.make_host_task(tuple(accesses), "wait_async", True)
    task.kind, task.warns_if_unused = "wait", False
    found: list[Any] = []
    host_task.call_on_host(task, add_copies, found, arrays or "numpy")
    await task
    if isinstance(data, CompositeData):
        return data.rebuild([np.asarray(one) if arrays in (None, "numpy") else one for one in found])
    return found[0] if found else None


def add_copies(found: list[Any], *views: Any) -> None:
    """Add copies of arrays on the host to a list."""
    for view in views:
        found.append(copy_of(view) if isinstance(view, np.ndarray) else view.clone())


async def all_done(context: ContextCore) -> None:
    """Wait in a coroutine until everything submitted so far has run, and what that submits."""
    engine = context.engine
    submit(context)
    while True:
        tails = engine.tails()
        done, tell_loop = handles.loop_future()
        engine.call_after(task_of_kind(context, "fence", [], "fence", "host"), tails, tell_loop)
        await done
        if not engine.pending():
            return
