"""What a body contributes to a reduction, as compilers see it: its type is checked, and nothing else happens.

Without the check a compiler converts the result, so that 0.6 counts as 0, or leaves undefined what a path does not
return.
"""

from __future__ import annotations

import functools
import re
from typing import Any

__all__ = ["reason_in", "taker_of"]

KINDS = ("bool", "int", "float", "complex")  # each can be converted to those after it
OF_DTYPES = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
MARK = "\N{LEFT SQUARE BRACKET WITH QUILL}"
LINE = re.compile(r"During: typing of \w+ at [^\n]* \((\d+)\)")
MARKED = re.compile(f"{MARK}(.*?){MARK}", re.DOTALL)


@functools.cache
def taker_of(of_gpu: bool, kind: str) -> Any:
    """A function for kernels that gives back what it gets, if data of that kind of dtype can take it."""
    if of_gpu:
        from numba.cuda.extending import overload
    else:
        from numba.extending import overload

    def take(found: Any) -> Any:
        return found

    @overload(take)
    def typed(found: Any) -> Any:
        reason = why_not(str(getattr(found, "literal_type", found)), kind)
        if reason is not None:
            raise TypeError(f"{MARK}{reason}{MARK}")

        def implementation(found: Any) -> Any:
            return found

        return implementation

    return take


def why_not(found: str, kind: str) -> str | None:
    """Why data of a kind of dtype do not take what a compiler calls `found`; None if they do."""
    if found == "none" or found.startswith(("OptionalType", "omitted")):
        return "it returns nothing on one path; return what is neutral for the operator there"
    own = next((name for name in KINDS if found.removeprefix("u").startswith(name)), None)
    if own is None:
        return f"it returns {found}, where a number is reduced"
    target = OF_DTYPES.get(kind)
    if target in (None, "bool") or KINDS.index(own) <= KINDS.index(target):
        return None
    return f"it returns {found}, which data of a dtype of kind {kind!r} cannot take; convert it, or use other data"


def reason_in(text: str) -> str | None:
    """The reason in a compiler's message, which has much around it; None if there is none."""
    found = MARKED.search(text)
    if found is not None:
        return found[1]
    if "Cannot modify readonly array" in text:
        line = LINE.search(text)
        where = f" in line {line[1]}" if line is not None else ""
        return f"it writes{where} to an array that it only reads; pass that with rw() or write()"
    return None
