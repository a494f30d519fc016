"""The host looks at what a device has written; compiled."""

from typing import Any

def await_array(engine: Any, core: Any) -> int: ...
