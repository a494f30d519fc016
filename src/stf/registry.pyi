"""Which memory is registered; compiled."""

from typing import Any

class Registry: ...

class Protected:
    def __init__(self, array: Any) -> None: ...

def register(
    context: Any,
    obj: Any,
    data_place: Any,
    name: str | None,
    symbol: str | None,
    write_back: bool,
    readonly: bool,
) -> Any: ...
