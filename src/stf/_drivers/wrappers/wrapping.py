"""A driver around another: every verb is passed on. Subclasses add what they are for to the verbs they override."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stf._drivers.base import Driver

# What nobody asks a driver around another for, and its end: it does not rest, and what it is for ends with it.
OWN = ("begin_readback", "end_readback", "retire")


class WrappingDriver(Driver):
    """Passes every verb on to `inner`; other attributes are those of `inner`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.device_count = inner.device_count
        self.home = inner.home
        self.shares_host = inner.shares_host
        self.runs_inline = inner.runs_inline
        self.name = inner.name
        self.stamps = inner.stamps
        self.values = inner.values
        self.kernels = inner.kernels
        self.graphs = inner.graphs
        self.parcels = inner.parcels
        self.has_callers = inner.has_callers
        self.records_late = inner.records_late

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


def passed_on(name: str) -> Callable[..., Any]:
    """Return a verb that is that of the inner driver."""

    def verb(self: WrappingDriver, *arguments: Any) -> Any:
        return getattr(self.inner, name)(*arguments)

    return verb


for name, verb in list(vars(Driver).items()):
    if callable(verb) and not name.startswith("_") and name not in OWN:
        setattr(WrappingDriver, name, passed_on(name))
