"""What the body of a kernel reads of variables around it: numbers become arguments, functions are compiled with it."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stf._engine.access import DataHandle
from stf.values.params import Param

__all__ = ["Captured", "code_key"]

MAX_BYTES = 1 << 20  # of an array that a kernel gets a copy of
NUMBERS = (int, float, complex, np.number, np.bool_, Param)


class Captured:
    """The variables around a function, as they are now.

    Attributes
    ----------
    names, values : list
        The variables of its closure, in the code's order, then its global variables that hold numbers or arrays. These
        are arguments of the compiled kernel, so that a new value compiles nothing again.
    free : int
        How many of these are the closure's.
    functions : dict
        Its global variables that hold functions, which are compiled with it.
    """

    def __init__(self, fn: types.FunctionType, where: str) -> None:
        self.names: list[str] = list(fn.__code__.co_freevars)
        self.values: list[Any] = []
        self.free = len(self.names)
        self.functions: dict[str, types.FunctionType] = {}
        for name, cell in zip(self.names, fn.__closure__ or (), strict=True):
            try:
                self.values.append(checked(name, cell.cell_contents, where))
            except ValueError:
                raise TypeError(f"{where}: the variable '{name}' has no value yet") from None
        for name in global_names(fn.__code__):
            value = fn.__globals__.get(name, fn)
            if isinstance(value, types.FunctionType) and value is not fn:
                self.functions[name] = value
            elif isinstance(value, NUMBERS) or type(value) is np.ndarray:
                self.names.append(name)
                self.values.append(checked(name, value, where))
            elif isinstance(value, DataHandle):
                checked(name, value, where)


def checked(name: str, value: Any, where: str) -> Any:
    """A value that a kernel may have; of an array a copy, as it is now."""
    if isinstance(value, DataHandle):
        raise TypeError(f"{where} uses {value.core.describe()} through '{name}' without an access; pass it")
    if isinstance(value, np.ndarray):
        if value.nbytes > MAX_BYTES:
            raise TypeError(
                f"{where} reads the array '{name}' of {value.nbytes} bytes, more than the {MAX_BYTES} that are copied "
                "for it; register it with ctx.logical_data and pass an access"
            )
        return value.copy()
    return value


@functools.lru_cache(maxsize=1024)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """The global variables that code reads, and code in it."""
    found: dict[str, None] = {}
    for one in codes_in(code):
        found |= {i.argval: None for i in dis.get_instructions(one) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return tuple(found)


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Code, and code in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def code_key(fn: Callable[..., Any]) -> tuple[Any, ...]:
    """What a function that is compiled with a kernel depends on: its code, and the values around it."""
    if not isinstance(fn, types.FunctionType):
        return (fn,)
    captured = Captured(fn, f"the function '{fn.__name__}'")
    values = [value.tobytes() if isinstance(value, np.ndarray) else key_of_value(value) for value in captured.values]
    inner = [code_key(function) for function in captured.functions.values()]
    return (fn.__code__, id(fn.__globals__), *values, *inner)


def key_of_value(value: Any) -> tuple[Any, ...]:
    """A value with its type, since 1, 1.0 and True are equal."""
    return (code_key(value),) if isinstance(value, types.FunctionType) else (type(value), value)
