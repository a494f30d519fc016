"""Compiled only: CUDA graphs."""

from typing import Any

def is_recorded_on(pointer: int) -> bool: ...

class Filling:
    pointer: int
    fills: Any
    def __init__(self, ordinal: int, graph: int, fills: Any) -> None: ...
    def end(self) -> None: ...
