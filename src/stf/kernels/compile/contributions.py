"""What a body contributes to a reduction, as compilers see it: it is converted to the dtype that is combined in.

Without that a compiler finds a type for both: float64 for signed and unsigned integers, which loses bits. What would
lose values is refused: 0.6 for integers, or -1 for the least of unsigned ones, or nothing on one path.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stf.kernels.compile.python import intrinsics

__all__ = ["MARK", "READ_OF", "TakenContribution", "error_of", "taker_of"]

KINDS = ("bool", "int", "float", "complex")  # each can be converted to those after it
OF_DTYPES = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
MARK = "\N{LEFT SQUARE BRACKET WITH QUILL}"
LINE = re.compile(r"During: typing of [^\n]* at (?!<loop over |<kernel of )[^\n]* \((\d+)\)")
MEMBER = re.compile(r"Cannot cast IntEnum<\w+>\(([\w.]+)\)")
MARKED = re.compile(f"{MARK}(.*?){MARK}", re.DOTALL)
READ_OF = "ElementReducedBy_"  # before the operator, in the name of the type of what is read; see `reduced_arrays`
HOW = {  # an element of an array that is reduced into is changed by these forms
    "sum": "h[i] += value",
    "product": "h[i] *= value",
    "minval": "h[i] = min(h[i], value)",
    "maxval": "h[i] = max(h[i], value)",
    "logical_and": "h[i] = np.logical_and(h[i], value)",
    "logical_or": "h[i] = np.logical_or(h[i], value)",
    "bitwise_and": "h[i] &= value",
    "bitwise_or": "h[i] |= value",
    "bitwise_xor": "h[i] ^= value",
}


class TakenContribution(NamedTuple):
    """How contributions are taken.

    Attributes
    ----------
    rule : str
        ``"truth"`` for an operator that asks whether they are zero, ``"modulo"`` for one that is exact for integers
        whatever their sign, as long as the bits are kept; ``"order"`` for one that compares them; ``"own"`` for a
        user's, of which nothing is known.
    dtype : str
        What is combined in.
    data : str
        The dtype of the data, for messages.
    """

    rule: str
    dtype: str
    data: str


@functools.cache
def taker_of(of_gpu: bool, taken: TakenContribution) -> Any:
    """Return a function for kernels that gives what it gets as the dtype that is combined in."""
    if of_gpu:
        intrinsics()
        from numba.cuda.extending import overload
    else:
        from numba.extending import overload

    def take(found: Any) -> Any:
        return found

    @overload(take, strict=False)
    def typed(found: Any) -> Any:
        own = str(getattr(found, "literal_type", found))
        reason = why_not(own, taken)
        if reason is not None:
            raise TypeError(f"{MARK}{reason}{MARK}")
        return conversion(own, taken)

    return take


def why_not(found: str, taken: TakenContribution) -> str | None:
    """Return why what a compiler calls `found` is not taken; None if it is."""
    if found == "none" or found.startswith(("OptionalType", "omitted")):
        return "it returns nothing on one path; return what is neutral for the operator there"
    kind, dtype = kind_of(found), np.dtype(taken.dtype)
    if kind is None:
        return f"it contributes {found}, where a number is reduced"
    target = OF_DTYPES.get(dtype.kind)
    if target is None or taken.rule == "truth":
        return None
    own = np.dtype(taken.data)
    refused = f"it contributes {found}, which data of {own} cannot take"
    if KINDS.index(kind) > KINDS.index(target):
        mixed = ", of each number in it, since a signed and an unsigned one make a float" if dtype.kind == "u" else ""
        how = "return whether it is true, `value != 0`" if target == "bool" else f"convert it, np.{own}(value){mixed}"
        return f"{refused}; {how}, or use data of {found}"
    if taken.rule in ("order", "own") and dtype.kind == "u" and found.startswith("int"):
        return f"{refused}, since it may be negative; convert it, np.{own}(value), or use data of {found}"
    if taken.rule == "own" and dtype.kind == "i" and found == "uint64":
        return f"{refused}, since it may be too large; convert it, np.{own}(value), or use data of {found}"
    return None


def kind_of(found: str) -> str | None:
    """Return which of `KINDS` a compiler's type is."""
    return next((name for name in KINDS if found.removeprefix("u").startswith(name)), None)


def conversion(found: str, taken: TakenContribution) -> Callable[[Any], Any]:
    """Return a function that converts from what a compiler calls `found`, to be compiled.

    For an operator that compares, what is beyond the range of integers is the end of that.
    """
    dtype, kind = np.dtype(taken.dtype), kind_of(found)
    if taken.rule in ("truth", "own") or dtype.name in (found, "float16") or dtype.kind not in "iufc":
        return lambda found: found
    number = dtype.type
    if taken.rule == "order" and dtype.kind in "iu" and kind == "int":
        own, limits = np.iinfo(np.dtype(found)), np.iinfo(dtype)
        if own.max > limits.max:
            wide = np.uint64 if found.startswith("u") else np.int64
            least, most = wide(max(limits.min, own.min)), wide(limits.max)
            return lambda found: number(least if found < least else most if found > most else found)
    return lambda found: number(found)


def error_of(error: Exception, where: str) -> TypeError:
    """Return the error for who wrote a body that a compiler refused; raise what is no refusal."""
    reason = reason_in(str(error))
    if reason is None and not type(error).__module__.startswith("numba"):
        raise error
    return TypeError(f"{where} cannot be compiled: {reason or error}")


def reason_in(text: str) -> str | None:
    """Return the reason in a compiler's message, which has much around it; None if there is none."""
    line = LINE.search(text)
    where = f" in line {line[1]}" if line is not None else ""
    found = MARKED.search(text)
    if found is not None:
        return found[1].replace("{where}", where)
    if READ_OF in text:
        name = text.split(READ_OF, 1)[1]
        name = next(known for known in HOW if name.startswith(known))
        return (
            f"it uses{where} the content of an array that stf.reducer.{name} reduces into, which is not known yet; "
            f"change elements by `{HOW[name]}` alone, and read them in the next task"
        )
    member = MEMBER.search(text)
    if member is not None:
        return f"it uses a member of {member[1]} as a number, which is none for compilers; write its value, `.value`"
    if "Cannot modify readonly array" in text:
        return f"it writes{where} to an array that it only reads; pass that with rw() or write()"
    return None
