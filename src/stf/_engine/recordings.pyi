from typing import Any

class Scope:
    engine: Any
    once: bool
    parts: list[Any]
    port: Any
    parent: Scope | None
    thread: int
    story: str
    touched: list[Any]
    held: list[tuple[Any, Any]]
    after: Any
    temporaries: list[Any]

class Use:
    data: Any
    mode: int
    entries: list[int]
    finals: list[int] | None
    had_content: bool
    version: Any

class Recording:
    engine: Any
    program: Any
    story: str
    uses: list[Use]
    touched: list[Any]
    held: list[Any]
    after: Any
    temporaries: list[Any]
    closed: bool
    parts: list[Any]
    once: bool
    def calls(self) -> bool: ...
    def has_calls(self) -> bool: ...
    def run(self, launch: Any, slot: int) -> int: ...
    def close(self) -> None: ...
    def close_inside(self) -> None: ...

def open_scope(engine: Any, port: Any, thread: int, story: str, once: bool = ...) -> Scope: ...
def check_thread(engine: Any, task: Any) -> int: ...
def check_outside(engine: Any, action: Any) -> None: ...
def import_version(engine: Any, data: Any) -> Any: ...
def last_open(engine: Any) -> Any: ...
def release_dropped(engine: Any) -> None: ...
def close_scope(engine: Any, scope: Scope) -> Recording: ...
def discard_scope(engine: Any, scope: Scope) -> None: ...
def restore(engine: Any, scope: Scope, places: dict[int, list[int]]) -> None: ...
def joined_uses(recordings: list[Any]) -> list[Use]: ...
