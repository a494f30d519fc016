from typing import Any

class Frame:
    engine: Any
    task: Any
    launch: Any
    port: Any
    slot: int
    values: dict[str, Any] | None
    unread: Any
    def play(self, program: Any) -> Any: ...
    def play_on(self, port: Any, things: list[Any]) -> Frame: ...
    def wait(self) -> int: ...

def make_frame(engine: Any, task: Any, values: dict[str, Any] | None) -> Frame: ...
