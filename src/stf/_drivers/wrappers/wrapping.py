"""A driver around another: every verb is passed on. Subclasses add what they are for to the verbs they override."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stf._drivers.base import Driver

# Attributes that `Driver` has too, and which are those of the inner driver.
SAME = "device_count home shares_host runs_inline name stamps values kernels graphs parcels has_callers records_late"
# What nobody asks a driver around another for, and its end: it does not rest, and what it is for ends with it.
OWN = ("begin_readback", "end_readback", "retire")


class WrappingDriver(Driver):
    """Passes every verb on to `inner`; other attributes are those of `inner`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        for name in SAME.split():
            setattr(self, name, getattr(inner, name))

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
