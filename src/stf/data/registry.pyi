"""Which memory is registered; compiled."""

from typing import Any

from stf.data.reading import Reading
from stf.places.places import DataPlace

class Registry: ...

class Protected:
    def __init__(self, array: Any) -> None: ...

class Registering(Reading):
    registry: Registry
    on_cuda: bool
    def logical_data(
        self,
        obj: Any,
        data_place: DataPlace | None = None,
        *,
        name: str | None = None,
        symbol: str | None = None,
        write_back: bool = True,
        readonly: bool = False,
    ) -> Any: ...

def handle_of(engine: Any, data: Any) -> Any: ...
