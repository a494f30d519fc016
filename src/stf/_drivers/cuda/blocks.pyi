"""Compiled and private: not typed further."""

from typing import Any

def __getattr__(name: str) -> Any: ...
