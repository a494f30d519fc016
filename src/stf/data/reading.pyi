"""The host's copy of one array; compiled."""

from typing import Any, overload

import numpy as np

from stf.data.logical_data import LogicalData
from stf.places.places import DataPlace
from stf.tasks.task import ContextCore

@overload
def wait(
    context: ContextCore, data: LogicalData, *, data_place: DataPlace | None = None, arrays: None = None
) -> np.ndarray[Any, Any]: ...
@overload
def wait(context: ContextCore, data: Any, *, data_place: DataPlace | None = None, arrays: str | None = None) -> Any: ...
def read_if_quiet(context: Any, data: Any) -> Any: ...
def read_if_there(context: Any, data: Any) -> tuple[Any] | None: ...
def read_on_host(context: Any, data: Any) -> Any: ...
