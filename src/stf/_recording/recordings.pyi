from typing import Any

class RecordingScope:
    engine: Any
    runs_once: bool
    patient: bool
    parts: list[Any]
    port: Any
    parent: Any
    thread: int
    description: str
    touched: list[Any]
    held: list[tuple[Any, Any]]
    after: Any
    temporaries: list[Any]
    first_data: int
    def discard(self) -> None: ...
    def abandon(self) -> None: ...
    def leave(self) -> None: ...

class Use:
    data: Any
    mode: int
    entries: list[int]
    finals: list[int] | None
    had_content: bool
    version: Any
    conditional: bool

class Routine:
    engine: Any
    uses: list[Use]
    after: Any
    parts: list[Any]
    runs_once: bool
    owners: int
    holders: int
    closed: bool
    last: Any
    needed: Any
    is_shared: bool
    turn: Any
    holder: int
    graph: Any
    def __init__(self, engine: Any, parts: list[Any], runs_once: bool) -> None: ...
    def run(self, frame: Any) -> None: ...
    def put(self, frame: Any) -> None: ...
    def calls(self) -> bool: ...
    def has_calls(self) -> bool: ...
    def flags(self) -> list[Any]: ...
    def poison(self, failure: Any) -> None: ...
    def close(self) -> None: ...
    def close_inside(self) -> None: ...

class ClosedFlag:
    description: str
    closed: bool
    def __init__(self, description: str) -> None: ...

class Recording(Routine):
    program: Any
    description: str
    touched: list[Any]
    held: list[Any]
    life: ClosedFlag
    def refusal(
        self, where: int, memory: int, looped: bool, unread: frozenset[Any], hosts: bool = ...
    ) -> str | None: ...

def open_scope(
    engine: Any, port: Any, thread: int, description: str, runs_once: bool = ..., patient: bool = ..., owner: Any = ...
) -> RecordingScope: ...
def open_in_turn(
    engine: Any, port: Any, thread: int, description: str, patient: bool, patience: float, owner: Any
) -> RecordingScope | None: ...
def last_open(engine: Any) -> Any: ...
def release_dropped(engine: Any) -> None: ...
def join_tiles(engine: Any) -> None: ...
def close_scope(
    engine: Any, scope: RecordingScope, patient: bool = ..., waiting: Any = ..., owner: Any = ...
) -> Recording | None: ...
def joined_uses(recordings: list[Any], may_not_run: tuple[Any, ...] = ...) -> list[Use]: ...
