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
    def play(self, program: Any, slot: int, runs_once: bool) -> int: ...
    def wait(self) -> int: ...
    def look(self) -> None: ...

def make_launch(engine: Any, task: Any, values: dict[str, Any] | None) -> Launch: ...
