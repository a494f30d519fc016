from collections.abc import Callable
from typing import Any

NUMBER: int
SEVERAL: int

class Likeness:
    entry: Any
    context: Callable[[], Any]
    def __init__(
        self, entry: Any, context: Any, values: list[Any], numbers: dict[str, Any], cells: list[Any]
    ) -> None: ...
    def numbers_of(self, args: tuple[Any, ...]) -> dict[str, Any] | None: ...

def mark_of(value: Any) -> tuple[int, Any] | None: ...
