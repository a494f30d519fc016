"""Which memory is registered; compiled."""

from typing import Any, Protocol, overload

import numpy as np
from typing_extensions import Buffer

from stf.data.logical_data import LogicalData
from stf.places.places import DataPlace
from stf.tasks.task import ContextCore

class Registry: ...

class _OnDevice(Protocol):
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class _DLPack(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

_Array = np.ndarray[Any, Any] | np.generic | complex | Buffer | _OnDevice | _DLPack

@overload
def logical_data(
    context: ContextCore,
    obj: _Array,
    data_place: DataPlace | None = None,
    *,
    name: str | None = None,
    symbol: str | None = None,
    write_back: bool = True,
    readonly: bool = False,
) -> LogicalData: ...
@overload
def logical_data(
    context: ContextCore,
    obj: Any,
    data_place: DataPlace | None = None,
    *,
    name: str | None = None,
    symbol: str | None = None,
    write_back: bool = True,
    readonly: bool = False,
) -> Any: ...
def handle_of(engine: Any, data: Any) -> Any: ...
