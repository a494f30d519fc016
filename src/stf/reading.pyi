"""The host's copy of one array; compiled."""

from typing import Any

def read_on_host(context: Any, data: Any) -> Any: ...
