"""Call sites: the file and line of a call, from the code object and the instruction that made it."""

from __future__ import annotations

from types import CodeType


def site_text(code: CodeType | None, lasti: int) -> str:
    """``file.py:12`` from a code object and an instruction offset; "" if there is none."""
    if code is None:
        return ""
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= lasti < end and number is not None:
            line = number
            break
    return f"{code.co_filename.rsplit('/', 1)[-1]}:{line}"
