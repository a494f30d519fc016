"""Listen to the engine: task graphs, traces, statistics; `observe.draw` makes pictures of them."""

from typing import TYPE_CHECKING

from stf._support.late_names import late_names

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

__getattr__ = late_names(__name__, _MODULES)
