from collections.abc import Callable
from typing import Any

AROUND: tuple[str, ...]

class Variables(dict[str, Any]):
    around: dict[str, Any]

def injections(fn: Callable[..., Any]) -> tuple[tuple[str, str], ...]: ...
def snapshot(fn: Callable[..., Any], task: Any) -> Callable[..., Any]: ...
def check_globals(fn: Callable[..., Any]) -> None: ...
