"""How functions travel: once a worker, by value, and known by a number from then on.

The function of a body is pickled by value, so its file need not exist on the workers. Functions and classes of other
modules than ``__main__`` that it uses are pickled by name.

A function that was sent is known again as long as everything that it captures by value is the same: numbers and texts
are compared by identity, functions too, with what these capture. A function that captures anything else, a list for
example, is pickled for each call, since nobody can tell whether the list has changed. Equal bytes have one number.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
import types
from typing import Any

import numpy as np

from stf._drivers.remote.surroundings import run_within
from stf._support.code_facts import codes_in
from stf._support.constants import is_constant

MOST_KNOWN = 4096


class Functions:
    """The functions that a context has sent to its workers."""

    def __init__(self) -> None:
        self.known: dict[Any, tuple[Any, int, Any, bytes]] = {}  # (function, number, what it captures, bytes)
        self.by_hash: dict[bytes, int] = {}

    def number_of(self, fn: Any) -> tuple[int, bytes]:
        """Return the number of a function, and its bytes.

        Raises
        ------
        TypeError
            It cannot travel, and which of its variables keeps it.
        """
        key = key_of(fn)
        entry = self.known.get(key)
        if entry is not None and all(scope.get(name) is value for scope, name, value in entry[2]):
            return entry[1], entry[3]
        content = pickled_by_value(fn)
        digest = hashlib.sha256(content).digest()
        number = self.by_hash.setdefault(digest, len(self.by_hash) + 1)
        captured = steady_captures(fn)
        if captured is not None:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[key] = (fn, number, captured, content)
        return number, content


def key_of(fn: Any) -> Any:
    """Return what tells functions apart: copies with the same code, globals and captured values are one."""
    if type(fn) is not types.FunctionType:
        return id(fn)
    cells = fn.__closure__
    if cells is None:
        held: tuple[int, ...] = ()
    else:
        try:
            held = tuple([id(cell.cell_contents) for cell in cells])
        except ValueError:
            return id(fn)
    around = fn.__globals__
    return id(fn.__code__), id(around), id(fn.__defaults__), held


def steady_captures(fn: Any) -> list[tuple[dict[str, Any], str, Any]] | None:
    """Return the globals that a function reads, (scope, name, value); None if one of them may change in place."""
    found: list[tuple[dict[str, Any], str, Any]] = []
    return found if is_steady(fn, found, set()) else None


def is_steady(value: Any, found: list[Any], seen: set[int]) -> bool:
    """Whether a captured value is the same as long as nothing in `found`, which is added to, is bound anew."""
    if (
        id(value) in seen
        or is_constant(value)
        or isinstance(value, types.ModuleType | type | types.BuiltinFunctionType)
    ):
        return True
    seen.add(id(value))
    if isinstance(value, functools.partial):
        return not value.keywords and all(is_steady(each, found, seen) for each in (value.func, *value.args))
    if type(value) is not types.FunctionType:
        return type(value).__module__.startswith("numpy") and callable(value)  # a ufunc
    if value.__dict__.keys() - {"__wrapped__"} or value.__kwdefaults__:
        return False
    try:
        held = [cell.cell_contents for cell in value.__closure__ or ()]
    except ValueError:
        return False
    for code in codes_in(value.__code__):
        for name in code.co_names:
            content = value.__globals__.get(name)
            if content is not None:
                found.append((value.__globals__, name, content))
                held.append(content)
    return all(is_steady(each, found, seen) for each in (*held, *(value.__defaults__ or ())))


def pickled_by_value(fn: Any) -> bytes:
    """Return a function as bytes, with its code."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            if type(obj) is types.FunctionType and type(obj.__globals__) is not dict:
                return self._dynamic_function_reduce(with_plain_globals(obj))
            if obj is fn and type(fn) is types.FunctionType:
                return self._dynamic_function_reduce(obj)
            return super().reducer_override(obj)

    buffer = io.BytesIO()
    try:
        Pickler(buffer, protocol=5).dump(fn)
    except Exception as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        culprit = culprit_in(fn)
        where = f"its variable '{culprit[0]}' holds a {type(culprit[1]).__name__}" if culprit else str(error)
        raise TypeError(
            f"the body of task '{name}' cannot be sent to a remote worker: {where}, which cannot be pickled; make it "
            "in the body, or pass what it is made of"
        ) from error
    return buffer.getvalue()


def with_plain_globals(fn: types.FunctionType) -> types.FunctionType:
    """Return a function with a dict of all the globals that it reads; a task's function has some of them elsewhere."""
    names = {name for code in codes_in(fn.__code__) for name in code.co_names} | {"__name__", "__package__"}
    around: dict[str, Any] = {}
    for name in names:
        try:
            around[name] = fn.__globals__[name]
        except KeyError:
            continue
    plain = types.FunctionType(fn.__code__, around, fn.__name__, fn.__defaults__, fn.__closure__)
    plain.__kwdefaults__ = fn.__kwdefaults__
    plain.__dict__.update(fn.__dict__)
    plain.__module__, plain.__qualname__ = fn.__module__, fn.__qualname__
    return plain


def culprit_in(fn: Any) -> tuple[str, Any] | None:
    """Return the variable that keeps a function from being pickled, as (name, value); None if it is none of them."""
    import cloudpickle

    code = getattr(fn, "__code__", None)
    if code is None:
        return None
    variables = {}
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        try:
            variables[name] = cell.cell_contents
        except ValueError:
            continue
    for inner in codes_in(code):
        variables |= with_plain_globals(fn).__globals__ if inner is code else {}
    for name, value in variables.items():
        try:
            cloudpickle.dumps(value)
        except Exception:
            return name, value
    return None


def pickled_arguments(run: Any, rest: Any, fn: Any, surroundings: Any) -> bytes:
    """Return the arguments of a body as bytes; TypeError, with the place of the argument, if one cannot travel."""
    call = (run, rest) if surroundings is None else (run_within, (surroundings, run, *rest))
    try:
        return pickle.dumps(call, 5)
    except Exception:
        pass  # a lambda, or something of `__main__`
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(call, 5))
    except Exception as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        code = getattr(fn, "__code__", None)
        for i, value in enumerate(rest[0] if rest else ()):
            try:
                cloudpickle.dumps(value)
            except Exception:
                names = code.co_varnames if code is not None else ()
                what = f"argument '{names[i]}'" if i < len(names) else f"argument {i}"
                raise TypeError(
                    f"{what} of task '{name}' cannot be sent to a remote worker: a {type(value).__name__} cannot be "
                    "pickled; make it in the body, or pass what it is made of"
                ) from error
        raise TypeError(f"task '{name}' cannot be sent to a remote worker: {error}") from error


class Captured:
    """The variables that a function has brought to a worker, where changes of them would get lost.

    The function has copies there: of a list that it appends to, or of a counter that it increments, nobody else would
    see anything. So a body that does this fails. Arrays among them are read-only.
    """

    def __init__(self, fn: Any) -> None:
        self.fn = fn if type(fn) is types.FunctionType else getattr(fn, "func", None)
        self.before: list[Any] = []
        if type(self.fn) is not types.FunctionType:
            self.fn = None
            return
        for _, value in self.variables():
            if type(value) is np.ndarray:
                value.flags.writeable = False
        self.before = [(name, self.state(value)) for name, value in self.variables()]

    def variables(self) -> list[tuple[str, Any]]:
        """Return the variables, with their values now."""
        fn: Any = self.fn
        found = []
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                found.append((name, cell.cell_contents))
            except ValueError:
                continue
        for code in codes_in(fn.__code__):
            found += [(name, fn.__globals__[name]) for name in code.co_names if name in fn.__globals__]
        return [item for item in found if not isinstance(item[1], types.ModuleType | type | types.FunctionType)]

    def state(self, value: Any) -> Any:
        """Return what tells whether a value has changed."""
        if is_constant(value) or type(value) is np.ndarray:
            return value
        try:
            return pickle.dumps(value, 5)
        except Exception:
            return value

    def check(self) -> None:
        """Raise TypeError if a variable has changed, or holds another value."""
        if self.fn is None or not self.before:
            return
        for (name, before), (_, value) in zip(self.before, self.variables(), strict=False):
            now = self.state(value)
            if now is not before and (type(now) is not bytes or now != before):
                self.before = [(each, self.state(value)) for each, value in self.variables()]
                raise TypeError(
                    f"task '{self.fn.__name__}' changes its variable '{name}', a {type(value).__name__}, and runs on a "
                    "remote worker, which has a copy: the change would get lost; use logical data for what tasks write"
                )
