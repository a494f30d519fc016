"""Which memory is registered; compiled."""

from typing import Any

from stf.places.places import DataPlace
from stf.tasks.task import ContextCore

class Registry: ...

class Protected:
    def __init__(self, array: Any) -> None: ...

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
