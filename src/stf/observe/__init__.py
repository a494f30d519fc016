"""Listen to the engine: task graphs, traces, statistics; `observe.draw` makes pictures of them."""

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
