from typing import Any

class Arguments:
    def packed(self, values: dict[str, Any] | None, recorded: bytes) -> bytes: ...
