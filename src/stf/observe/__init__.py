"""Listen to the engine: task graphs, traces, statistics; `observe.draw` makes pictures of them.

A name's module is loaded when the name is first used: a program that watches nothing pays for none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dot import DotOptions, DotRecorder
    from .observer import ObservedAccess, ObservedTask, Observer, Observers
    from .statistics import DriverStatistics, ResourceStatistics, Statistics
    from .trace import TraceRecorder

__all__ = [
    "DotOptions",
    "DotRecorder",
    "DriverStatistics",
    "ObservedAccess",
    "ObservedTask",
    "Observer",
    "Observers",
    "ResourceStatistics",
    "Statistics",
    "TraceRecorder",
]

_MODULES = {
    "draw": (),
    "dot": ("DotOptions", "DotRecorder"),
    "observer": ("ObservedAccess", "ObservedTask", "Observer", "Observers"),
    "statistics": ("DriverStatistics", "ResourceStatistics", "Statistics"),
    "trace": ("TraceRecorder",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name == module:
            return import_module(f"{__name__}.{name}")
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
