"""Listen to the engine: task graphs, traces, statistics; `observe.draw` makes pictures of them."""

from .dot import DotOptions, DotRecorder
from .observer import ObservedAccess, ObservedTask, Observer, Observers
from .statistics import Statistics
from .trace import TraceRecorder

__all__ = [
    "DotOptions",
    "DotRecorder",
    "ObservedAccess",
    "ObservedTask",
    "Observer",
    "Observers",
    "Statistics",
    "TraceRecorder",
]
