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
    first_data: int

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
    once: bool
    owners: int
    is_part: bool
    closed: bool
    last: Any
    needed: Any
    is_shared: bool
    turn: Any
    holder: int
    graph: Any
    def __init__(self, engine: Any, parts: list[Any], once: bool) -> None: ...
    def run(self, launch: Any, slot: int) -> int: ...
    def put(self, launch: Any, slot: int) -> int: ...
    def calls(self) -> bool: ...
    def has_calls(self) -> bool: ...
    def flags(self) -> list[Any]: ...
    def close(self) -> None: ...
    def close_inside(self) -> None: ...

class ClosedFlag:
    story: str
    closed: bool
    def __init__(self, story: str) -> None: ...

class Recording(Routine):
    program: Any
    story: str
    touched: list[Any]
    held: list[Any]
    life: ClosedFlag
    def refusal(
        self, where: int, memory: int, looped: bool, unread: frozenset[Any], hosts: bool = ...
    ) -> str | None: ...

def open_scope(
    engine: Any, port: Any, thread: int, story: str, once: bool = ..., patient: bool = ..., owner: Any = ...
) -> Scope: ...
def open_in_turn(
    engine: Any, port: Any, thread: int, story: str, patient: bool, patience: float, owner: Any
) -> Scope | None: ...
def import_version(engine: Any, data: Any) -> Any: ...
def last_open(engine: Any) -> Any: ...
def release_dropped(engine: Any) -> None: ...
def join_tiles(engine: Any) -> None: ...
def close_scope(
    engine: Any, scope: Scope, patient: bool = ..., waiting: Any = ..., owner: Any = ...
) -> Recording | None: ...
def restore(engine: Any, scope: Scope, places: dict[int, list[int]]) -> None: ...
def outlive(engine: Any, what: Any) -> None: ...
def joined_uses(recordings: list[Any], may_not_run: tuple[Any, ...] = ...) -> list[Use]: ...
