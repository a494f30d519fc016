# cython: annotation_typing=False, binding=True
"""Builders of tasks on the host, as `Context.host_launch` returns them."""

from __future__ import annotations

from typing import Any

import cython

from stf._engine import outcomes
from stf._engine.access import Access
from stf._support.arguments import name_of, sequence, truth
from stf.errors import PlaceError
from stf.places.places import is_auto
from stf.places.table import place_code, place_code_of_task
from stf.tasks.after import accesses_after
from stf.values.params import Param


def host_launch(
    context: Any,
    *args: Any,
    fn: Any = None,
    name: str | None = None,
    symbol: str | None = None,
    uses_cuda: bool = True,
    after: Any = None,
    **others: Any,
) -> Any:
    """Run a function on the host when its data are there, without blocking.

    Parameters
    ----------
    *args : Access
        The data that the function uses; it gets NumPy arrays, tokens skipped.
    fn : callable, optional
        The function; without it, call the result with it, or use it as a decorator.
    args : sequence, optional
        Further arguments for `fn`, as keyword ``args=``.
    name : str, optional
        The task's name in pictures and messages.
    uses_cuda : bool, optional
        Whether the function may call CUDA, or a library that does. A graph can have a function that does not as a
        node of its own, so that it is launched as one; for others the host steps in between two graphs.
    after : Event or sequence of Event, optional
        Events of `Context.event` that it comes after.

    Raises
    ------
    PlaceError
        A place is given that is not the host.
    TypeError
        An argument is no access, `args` no list or tuple, or the body no ordinary function.
    UninitializedDataError
        Nobody has written data that are read.
    AccessError
        Its data are split into tiles or released, or another live context uses memory that it writes.
    ContextMismatchError
        Data belong to another context.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data_ones(3)
    ...     ctx.host_launch(x.read(), args=("sum",))(lambda x, what: print(what, x.sum()))
    ...     ctx.synchronize()
    sum 3.0
    """
    extra = ()
    if others:
        extra = sequence("args", others.pop("args", ()))
        if others:
            raise TypeError(f"host_launch got unknown arguments: {', '.join(others)}")
    if after is not None:
        args += accesses_after(after)
    task = context.make_host_task(args, name or symbol, uses_cuda is True or truth("uses_cuda", uses_cuda))
    must_be_host(task, args)
    launch = HostLaunch(task, extra)
    return launch(fn) if fn is not None else launch


class HostLaunch:
    """A builder of a host function's task: call it with the function, or decorate one."""

    def __init__(self, task, extra):
        self.task = task
        self.extra = extra

    def __call__(self, fn):
        self.task.must_be_new("host_launch")
        fn = body_of(fn)
        if not callable(fn):
            raise TypeError(f"host_launch takes a function, got {type(fn).__name__}")
        self.task.warns_if_unused = False
        for value in self.extra:
            if isinstance(value, Param):
                value.must_be_recorded()
        if self.task.symbol is None:
            self.task.symbol = getattr(fn, "__name__", None)
        submit_body(self.task, fn, self.extra)
        keep_body(self.task, fn)
        return self.task

    def on(self, place):
        """Say where it runs: the host, and nothing else. Return the builder."""
        if not is_auto(place) and place_code(self.task.context, place) != 0:
            raise PlaceError(f"host_launch runs on the host, got {place!r}; use ctx.task(place, ...) for a device")
        return self

    def set_symbol(self, symbol):
        """Name the task; return the builder."""
        self.task.symbol = name_of(symbol)
        return self


def call_on_host(task: Task, fn, first, library):
    """Submit a task of the context's own on the host, which calls ``fn(first, *arrays)`` when its data are there.

    Such a function is none of the user's: nothing is asked about it.
    """
    engine = cython.cast("Engine", task.engine)
    try:
        begin_body(task)
        if engine.scope.records:
            outcomes.refuse_blocking(task, engine.scope)
        values = without_tokens(views_of(task, library))
        body = make_body(task, fn, (first, *values), None)
    except BaseException:
        take_back(task)
        raise
    submit(task, body)


def must_be_host(task: Task, args):
    """Raise if one of the arguments of ``host_launch`` is a place, and not the host's."""
    for arg in args:
        if isinstance(arg, Access) or hasattr(arg, "expand") or is_auto(arg):  # the host is all the choice there is
            continue
        if place_code_of_task(task.context, arg) != 0:
            task.warns_if_unused = False
            raise PlaceError(f"host_launch runs on the host, got {arg!r}; use ctx.task(place, ...) for a device")
