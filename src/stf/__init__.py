"""stf: Sequential Task Flow for Python.

Write a program as a sequence of tasks and say how each reads and writes its data; stf finds the parallelism and moves
the data. The first page: `context`, `logical_data`, `task`, ``.on``, `wait`.
"""

from typing import TYPE_CHECKING

from stf import config  # isort: split

from stf._support import loader, tracebacks  # noqa: F401  # isort: split
from stf._support.late_names import late_names

from stf import placement  # isort: skip
from stf.contexts.context import Context, context, graph_ctx, stream_ctx
from stf.contexts.observing import why
from stf.contexts.resources import Resources
from stf.data.composite import CompositeData, register_data_interface
from stf.data.logical_data import LogicalData
from stf.errors import (
    AccessError,
    CaptureError,
    ContextClosedError,
    ContextMismatchError,
    DriverError,
    Error,
    OutOfMemoryError,
    PlaceError,
    PlanError,
    TaskCancelledError,
    TaskFailedError,
    TaskStateError,
    UninitializedDataError,
    WorkerLostError,
)
from stf.places.foreign import green_places
from stf.places.places import DataPlace, ExecPlace, Grid
from stf.tasks.annotations import Accumulate, Data, Read, ReadWrite, Stream, Write, access_mode
from stf.tasks.decorators import task
from stf.tasks.new_data import Like, New, Result
from stf.tasks.task import Task
from stf.values.conditions import Condition, equal
from stf.values.random_numbers import Random
from stf.values.reducers import Reducer, reducer

if TYPE_CHECKING:
    from stf.contexts.calibration import Calibration
    from stf.contexts.progress import progress
    from stf.data.checkpoints import Checkpoint
    from stf.data.completion import as_completed
    from stf.data.events import Event
    from stf.data.freezing import Frozen
    from stf.data.mapping import map, reduce
    from stf.data.partitioned import DataPart, PartitionedData, Parts
    from stf.data.raw_view import view
    from stf.devices.remote import remote
    from stf.graphs.algorithm import algorithm
    from stf.graphs.replay import replay
    from stf.graphs.task_graph import TaskGraph
    from stf.kernels.foreign_kernels import kernel
    from stf.kernels.hierarchy import con, hw_scope, mem, par
    from stf.kernels.index_spaces import box
    from stf.places.attributes import PlaceAttributes
    from stf.places.evaluation import Evaluation
    from stf.places.namespaces import data_place, exec_place
    from stf.places.owned import OwnedArray
    from stf.places.partition import blocked_partition, cyclic_partition, null_partition, tiled_partition
    from stf.places.structured import partition
    from stf.planning.difference import Difference, diff
    from stf.planning.plan import Plan, plan
    from stf.tasks.stream_events import StreamEvent

__all__ = [
    "AccessError",
    "Accumulate",
    "Calibration",
    "CaptureError",
    "Checkpoint",
    "CompositeData",
    "Condition",
    "Context",
    "ContextClosedError",
    "ContextMismatchError",
    "Data",
    "DataPart",
    "DataPlace",
    "Difference",
    "DriverError",
    "Error",
    "Evaluation",
    "Event",
    "ExecPlace",
    "Frozen",
    "Grid",
    "Like",
    "LogicalData",
    "New",
    "OutOfMemoryError",
    "OwnedArray",
    "PartitionedData",
    "Parts",
    "PlaceAttributes",
    "PlaceError",
    "Plan",
    "PlanError",
    "Random",
    "Read",
    "ReadWrite",
    "Reducer",
    "Resources",
    "Result",
    "Stream",
    "StreamEvent",
    "Task",
    "TaskCancelledError",
    "TaskFailedError",
    "TaskGraph",
    "TaskStateError",
    "UninitializedDataError",
    "WorkerLostError",
    "Write",
    "access_mode",
    "algorithm",
    "as_completed",
    "blocked_partition",
    "box",
    "con",
    "config",
    "context",
    "cyclic_partition",
    "data_place",
    "diff",
    "equal",
    "exec_place",
    "graph_ctx",
    "green_places",
    "hw_scope",
    "kernel",
    "map",
    "mem",
    "null_partition",
    "par",
    "partition",
    "placement",
    "plan",
    "progress",
    "reduce",
    "reducer",
    "register_data_interface",
    "remote",
    "replay",
    "stream_ctx",
    "task",
    "tiled_partition",
    "view",
    "why",
]

_LATE = {  # what a first program goes without, by the module that has it
    "contexts.calibration": ("Calibration",),
    "contexts.progress": ("progress",),
    "data.checkpoints": ("Checkpoint",),
    "data.completion": ("as_completed",),
    "data.events": ("Event",),
    "data.freezing": ("Frozen",),
    "data.mapping": ("map", "reduce"),
    "data.partitioned": ("DataPart", "PartitionedData", "Parts"),
    "data.raw_view": ("view",),
    "devices.remote": ("remote",),
    "graphs.algorithm": ("algorithm",),
    "graphs.replay": ("replay",),
    "graphs.task_graph": ("TaskGraph",),
    "kernels.foreign_kernels": ("kernel",),
    "kernels.hierarchy": ("con", "hw_scope", "mem", "par"),
    "kernels.index_spaces": ("box",),
    "places.attributes": ("PlaceAttributes",),
    "places.evaluation": ("Evaluation",),
    "places.namespaces": ("data_place", "exec_place"),
    "places.owned": ("OwnedArray",),
    "places.partition": ("blocked_partition", "cyclic_partition", "null_partition", "tiled_partition"),
    "places.structured": ("partition",),
    "planning.difference": ("Difference", "diff"),
    "planning.plan": ("Plan", "plan"),
    "tasks.stream_events": ("StreamEvent",),
}


tracebacks.install()
tracebacks.install_in_notebook()


_find = late_names(__name__, _LATE)


def __getattr__(name: str) -> object:
    return _find(name) if name != "__version__" else _version()


def __dir__() -> list[str]:
    return __all__


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("sequential-task-flow")
    except PackageNotFoundError:  # the sources, by PYTHONPATH
        return "0+unknown"
