"""Loops and launches on the GPU of another process: the body of a task submits them there.

A kernel is compiled for the GPU that it runs on, by the process that has it. So the body travels as a function, and the
worker runs it as a program here would: in a context on the stream of the task's body, which comes after what the body
needs, and before what needs it. Nothing waits there.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import types
import zlib
from typing import Any, NamedTuple

from stf._engine.access import READ, WRITE
from stf._port.remote_arrays import context_makers, here
from stf.kernels.body_arguments import accessed
from stf.kernels.captured import Captured, is_users_module
from stf.kernels.reductions import Reduction
from stf.values.params import Param

__all__ = ["KernelThere"]


class Use(NamedTuple):
    """How a kernel uses an array: the mode of its access, and how it reduces into it, if it does."""

    mode: int
    op: Any
    accumulates: bool


class KernelThere:
    """The body of a task: it gets arrays of the worker's GPU, and numbers, and submits a kernel that gets these.

    Parameters
    ----------
    make : callable
        Makes a builder in the process that has the arrays: `builders.make_builder`.
    construct : Elements or the like
        What makes a kernel of a body.
    over : IndexSpace or Hierarchy
        What it runs over.
    items : tuple of Access and Reduction
        What it gets, but for tokens.
    body : function or str
        The body of the kernel, which gets the values that variables around it have now.
    """

    def __init__(self, make: Any, construct: Any, over: Any, items: tuple[Any, ...], body: Any) -> None:
        self.make, self.construct, self.over, self.body = make, construct, over, body
        self.__name__ = getattr(body, "__name__", construct.what)
        if type(body) is types.FunctionType:
            self.body = Sealed().function(body, Captured(body, f"the body of {construct.what}"))
        self.uses = [use_of(item) for item in items]

    def __getstate__(self) -> dict[str, Any]:
        """Return all, and the text of the body: `launch` reads it, and the file is not there."""
        found = dict(self.__dict__)
        if type(self.body) is types.FunctionType:
            code = self.body.__code__
            with contextlib.suppress(OSError, TypeError):  # it has no source: `launch` says so
                found["source"] = code.co_filename, code.co_firstlineno, inspect.getsource(code)
        return found

    def __setstate__(self, state: dict[str, Any]) -> None:
        source = state.pop("source", None)
        self.__dict__.update(state)
        if source is not None:
            path, first, text = source
            lines = ["\n"] * (first - 1) + text.splitlines(keepends=True)
            name = f"{path}[{zlib.crc32(f'{first} {text}'.encode()):08x}]"  # there may be other versions of the file
            linecache.cache[name] = len(text), None, lines, name
            self.body.__code__ = self.body.__code__.replace(co_filename=name)

    def __call__(self, *values: Any) -> None:
        """Submit the kernel in the process that has the arrays."""
        (context,) = context_makers
        stream = getattr(here, "stream", None)
        count = len(self.uses)
        options = {"devices": "cpu"} if stream is None else {"stream": stream[0]}
        with context(**options) as ctx:
            known: dict[Any, Any] = {}  # an array may be there twice
            written = {place_of(array) for array, use in zip(values, self.uses, strict=False) if use.mode != READ}
            items = []
            for array, use in zip(values[:count], self.uses, strict=True):
                key = place_of(array)
                if key not in known:
                    known[key] = ctx.logical_data(array, readonly=key not in written)
                items.append(item_of(known[key], use))
            self.make(ctx, self.construct, self.over, tuple(items), values[count:], None)(self.body)


class Sealed:
    """Makes copies of functions that have the variables around them as they are now, and that are pickled by value.

    Whoever changes one of these later, in a module too, does not change a task that was submitted before.
    """

    def __init__(self) -> None:
        self.functions: dict[Any, types.FunctionType] = {}
        self.modules: dict[Any, types.ModuleType] = {}

    def function(self, fn: types.FunctionType, captured: Captured) -> types.FunctionType:
        """Return the copy of a function."""
        cells = tuple([types.CellType() for _ in range(captured.free)])
        around: dict[str, Any] = {}
        copy = types.FunctionType(fn.__code__, around, fn.__name__, fn.__defaults__, cells)
        copy.__module__ = "__main__"  # whose functions travel with their code
        self.functions[fn] = copy
        values = [self.value(value, captured) for value in captured.values]
        for cell, value in zip(cells, values, strict=False):
            cell.cell_contents = value
        around.update(zip(captured.names[captured.free :], values[captured.free :], strict=True))
        for name, value in {**captured.functions, **captured.constants}.items():
            around[name] = self.value(value, captured)
        return copy

    def value(self, value: Any, captured: Captured) -> Any:
        """Return a value, or the copy of a function or of a user's module."""
        if isinstance(value, types.FunctionType):
            known = self.functions.get(value)
            return known or self.function(value, Captured(value, f"the function '{value.__name__}'"))
        if isinstance(value, Param):
            raise TypeError(
                f"the body of a kernel for a GPU of another process reads {value!r} of variables around it; give it by "
                "args="
            )
        if not is_users_module(value):
            return value
        key = value, captured.attributes
        if key not in self.modules:
            copy = self.modules[key] = types.ModuleType(f"{value.__name__} as it was")  # by value: it has no file
            for name in captured.attributes & vars(value).keys():
                setattr(copy, name, self.value(vars(value)[name], captured))
        return self.modules[key]


def use_of(item: Any) -> Use:
    """Return how an argument of a kernel is used."""
    op, accumulates = (item.op, item.accumulates) if isinstance(item, Reduction) else (None, False)
    return Use(accessed(item).mode, op, accumulates)


def item_of(data: Any, use: Use) -> Any:
    """Return the argument of a kernel that uses data so."""
    if use.op is not None:
        return data.reduce(use.op, accumulate=use.accumulates)
    return data.read() if use.mode == READ else data.write() if use.mode == WRITE else data.rw()


def place_of(array: Any) -> Any:
    """Return what tells arrays apart: where they lie, and how."""
    told = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return told["data"][0], array.shape, array.strides, array.dtype
