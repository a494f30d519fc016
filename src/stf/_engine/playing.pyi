from typing import Any

class Launch:
    engine: Any
    port: Any
    task: Any
    values: dict[str, Any] | None
    slot: int
    failure: Any
    marks: list[Any] | None
    unread: Any
    def __init__(self, engine: Any, task: Any, values: dict[str, Any] | None) -> None: ...
    def play(self, program: Any, slot: int, once: bool) -> int: ...
    def wait(self) -> int: ...
    def look(self) -> None: ...
