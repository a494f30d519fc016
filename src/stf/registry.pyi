"""Which memory is registered; compiled."""

from typing import Any

class Registry: ...

class Protected:
    def __init__(self, array: Any) -> None: ...

def register(context: Any, obj: Any, name: str | None, data_place: Any, write_back: bool, readonly: bool) -> Any: ...
