from typing import Any

UNKNOWN: Any
UNASKED: tuple[Any, Any]

class Asked:
    asked: tuple[Any, Any]

def is_same(value: Any, other: Any) -> bool: ...
def are_fixed(values: dict[str, Any] | None) -> bool: ...
def is_as_before(values: dict[str, Any] | None, last: Any) -> bool: ...
