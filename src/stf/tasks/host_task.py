"""Builders of tasks on the host, as `Context.host_launch` returns them."""

from __future__ import annotations

from stf._engine.access import Access
from stf._support.arguments import name_of
from stf.errors import PlaceError
from stf.tasks.bodies import submit_body
from stf.values.params import Param


class HostLaunch:
    """A builder of a host function's task: call it with the function, or decorate one."""

    def __init__(self, task, extra):
        self.task = task
        self.extra = extra

    def __call__(self, fn):
        self.task.must_be_new("host_launch")
        if not callable(fn):
            raise TypeError(f"host_launch takes a function, got {type(fn).__name__}")
        self.task.bare = False
        for value in self.extra:
            if isinstance(value, Param):
                value.must_be_recorded()
        if self.task.symbol is None:
            self.task.symbol = getattr(fn, "__name__", None)
        submit_body(self.task, fn, self.extra)
        return fn

    def on(self, place):
        """Say where it runs: the host, and nothing else. Return the builder."""
        if self.task.context.place_code(place) != 0:
            raise PlaceError(f"host_launch runs on the host, got {place!r}; use ctx.task(place, ...) for a device")
        return self

    def set_symbol(self, symbol):
        """Name the task; return the builder."""
        self.task.symbol = name_of(symbol)
        return self


def must_be_host(task: Task, args):
    """Raise if one of the arguments of ``host_launch`` is a place, and not the host's."""
    for arg in args:
        if not isinstance(arg, Access) and not hasattr(arg, "expand") and task.context.place_code_of_task(arg) != 0:
            task.bare = False
            raise PlaceError(f"host_launch runs on the host, got {arg!r}; use ctx.task(place, ...) for a device")
