"""What the body of a kernel reads of variables around it: numbers become arguments, functions are compiled with it."""

from __future__ import annotations

import builtins
import contextvars
import copy
import enum
import functools
import itertools
import linecache
import marshal
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stf._engine.access import DataHandle
from stf._support.code_facts import codes_in, facts_of
from stf._support.code_writing import closing_over
from stf.values.params import Param

__all__ = [
    "Captured",
    "NotKeptError",
    "around_key",
    "as_known",
    "attribute_names",
    "closed_over",
    "code_key",
    "is_linked",
    "is_users_module",
    "linked_files",
    "text_of",
    "variables_read",
    "with_functions",
]

GLOBAL = "\U00020000"  # before the names of global variables in kernels: a letter that sorts after those of the closure
MAX_BYTES = 1 << 20  # of an array that a kernel gets a copy of
LOOKED_AT = 64  # of the items of a container
CONSTANTS = (int, float, complex, str, bytes, type(None), np.number, np.bool_)
LIBRARIES = ("builtins", "cmath", "math", "numba", "numpy", "operator")
MISSING: Any = object()
TWO_63 = 1 << 63
NUMBERS = (int, float, complex, np.number, np.bool_, Param)


class Captured:
    """The variables around a function, as they are now.

    Attributes
    ----------
    names, values : list
        The variables of its closure, in the code's order, then its global variables that hold numbers or arrays. These
        are arguments of the compiled kernel, so that a new value compiles nothing again. Those that code inside it
        reads, such as a comprehension, are among the constants.
    free : int
        How many of these are the closure's.
    variables : tuple of str
        The names as kernels have them.
    functions : dict
        Its global variables that hold functions, which are compiled with it.
    constants : dict
        Its other global variables, such as modules and tuples, whose values are compiled in.
    attributes : frozenset of str
        Names of attributes that the code reads, of its modules too.
    """

    def __init__(self, fn: types.FunctionType, where: str) -> None:
        self.names: list[str] = list(fn.__code__.co_freevars)
        self.values: list[Any] = []
        self.free = len(self.names)
        self.functions: dict[str, types.FunctionType] = {}
        self.constants: dict[str, Any] = {}
        for name, cell in zip(self.names, fn.__closure__ or (), strict=True):
            try:
                self.values.append(checked(name, cell.cell_contents, where))
            except ValueError:
                raise TypeError(f"{where}: the variable '{name}' has no value yet") from None
        self.attributes = attribute_names(fn.__code__)
        inside = {name for code in codes_in(fn.__code__) if code is not fn.__code__ for name in global_names(code)}
        for name in global_names(fn.__code__):
            value = fn.__globals__.get(name, MISSING)
            if value is MISSING:
                must_be_builtin(fn.__code__, name, where)
            elif isinstance(value, types.FunctionType):
                self.functions[name] = value
            elif (isinstance(value, NUMBERS) or type(value) is np.ndarray) and name not in inside:
                self.names.append(name)
                self.values.append(checked(name, value, where))
            else:
                refuse_data(name, value, where)
                self.constants[name] = value
        self.variables = (*self.names[: self.free], *[f"{GLOBAL}{name}" for name in self.names[self.free :]])

    def without_values(self) -> Captured:
        """Return what a compiler needs of it, which keeps no array alive."""
        other = copy.copy(self)
        other.values = []
        return other


def checked(name: str, value: Any, where: str) -> Any:
    """Return a value that a kernel may have; of an array a copy, as it is now."""
    refuse_data(name, value, where)
    if isinstance(value, np.ndarray):
        if value.nbytes > MAX_BYTES:
            raise TypeError(
                f"{where} reads the array '{name}' of {value.nbytes} bytes, more than the {MAX_BYTES} that are copied "
                "for it; register it with ctx.logical_data and pass an access"
            )
        own = value.copy()
        own.flags.writeable = False  # what a body writes to it would be lost
        return own
    return as_known(value, f"{where} reads '{name}'")


def refuse_data(name: str, value: Any, where: str, depth: int = 3) -> None:
    """Raise TypeError for logical data, also in a list, tuple or dict, that come with no access."""
    if isinstance(value, DataHandle):
        raise TypeError(f"{where} uses {value.core.describe()} through '{name}' without an access; pass it")
    if depth > 0 and issubclass(type(value), list | tuple | dict):  # isinstance takes parameters for their defaults
        for item in itertools.islice(value.values() if isinstance(value, dict) else value, LOOKED_AT):
            refuse_data(name, item, where, depth - 1)


def as_known(value: Any, where: str) -> Any:
    """A number as compilers know it, also in a tuple: of large integers and members of enumerations; else the value.

    Raises
    ------
    TypeError
        It is an integer of more than 64 bits.
    """
    if issubclass(type(value), enum.Enum) and isinstance(value, int):
        value = int(value)
    if type(value) is int and not -TWO_63 <= value < TWO_63:
        if not 0 < value < 2 * TWO_63:
            raise TypeError(
                f"{where}, an integer that needs more than 64 bits, which kernels have: {value}; use a float"
            )
        return np.uint64(value)
    if type(value) is tuple or hasattr(type(value), "_make"):
        items = [as_known(item, where) for item in value]
        if any(one is not other for one, other in zip(items, value, strict=True)):
            return tuple(items) if type(value) is tuple else type(value)._make(items)
    return value


def must_be_builtin(code: types.CodeType, name: str, where: str) -> None:
    """Raise NameError, with the line, if a global variable that is not there is no builtin either."""
    if hasattr(builtins, name) or name.startswith("_stf_"):
        return
    reads = [step for one in codes_in(code) for step in facts_of(one).loads("global", "name") if step.name == name]
    line = reads[0].line if reads else code.co_firstlineno
    text = linecache.getline(code.co_filename, line).strip()
    raise NameError(f"{where} reads '{name}', which is not defined, in line {line}: {text}")


@functools.lru_cache(maxsize=1024)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the global variables that code reads, and code in it."""
    return tuple({step.name: None for one in codes_in(code) for step in facts_of(one).loads("global", "name")})


@functools.lru_cache(maxsize=1024)
def attribute_names(code: types.CodeType) -> frozenset[str]:
    """Return the attributes that code reads, and code in it, of whatever object."""
    steps = [step for one in codes_in(code) for step in facts_of(one).steps]
    return frozenset([s.name for s in steps if s.is_load("attribute") or (s.does == "import" and s.of == "name")])


@functools.lru_cache(maxsize=1024)
def closed_over(code: types.CodeType, variables: tuple[str, ...]) -> types.CodeType:
    """Code with these variables of its closure, which it reads in place of global ones.

    It is for compilers, which follow its bytes; nobody runs it.
    """
    free = tuple(sorted(variables))  # as Python has them
    return closing_over(code, free, {name.removeprefix(GLOBAL): name for name in free if name.startswith(GLOBAL)})


def code_key(fn: Callable[..., Any]) -> tuple[Any, ...]:
    """Return what a function that is compiled with a kernel depends on: its code, and the values around it.

    Raises
    ------
    TypeError
        It calls itself.
    """
    if not isinstance(fn, types.FunctionType):
        return (fn,)
    where = f"the function '{fn.__name__}'"
    if fn in (outer := being_keyed.get()):
        raise TypeError(f"{where} calls itself, which functions of kernels cannot; write a loop")
    token = being_keyed.set((*outer, fn))
    try:
        captured = Captured(fn, where)
        return (fn.__code__, value_key(fn.__defaults__ or ()), *map(value_key, captured.values), *around_key(captured))
    finally:
        being_keyed.reset(token)


being_keyed: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar("being_keyed", default=())


def around_key(captured: Captured) -> tuple[Any, ...]:
    """Return what of the variables around a function is compiled in."""
    functions = [(name, code_key(function)) for name, function in captured.functions.items()]
    constants = [
        (name, module_key(v, captured.attributes) if is_users_module(v) else value_key(v))
        for name, v in captured.constants.items()
    ]
    return (tuple(captured.names), *functions, *constants)


def is_users_module(value: Any) -> bool:
    """Return whether a value is a module whose attributes may change: none of a library that kernels know."""
    return isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] not in LIBRARIES


def module_key(module: types.ModuleType, attributes: frozenset[str]) -> tuple[Any, ...]:
    """Return what of a user's module is compiled in."""
    found = [(name, value) for _, name, value in variables_read(module, attributes)]
    return ("module", module.__name__, *[(name, value_key(v)) for name, v in found if not is_users_module(v)])


def variables_read(module: types.ModuleType, attributes: frozenset[str]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Each variable of a module, and of modules in it, that code with such attributes may read: where, name, value."""
    for name in sorted(attributes & vars(module).keys()):
        value = vars(module)[name]
        yield vars(module), name, value
        if is_users_module(value) and value is not module:
            yield from variables_read(value, attributes - {name})


def value_key(value: Any) -> Any:
    """Return a value with its type, since 1, 1.0 and True are equal; what has no value of its own by its identity."""
    if isinstance(value, types.FunctionType):
        return code_key(value)
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, tuple):
        return (type(value), *map(value_key, value))
    if isinstance(value, float | complex | np.inexact):  # 0.0 and -0.0 are equal, and a NaN is not
        return (type(value), repr(value))
    return (type(value), value) if isinstance(value, CONSTANTS) else (type(value), Identity(value))


class Identity:
    """An object as itself, whatever it is equal to."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value


def with_functions(module: types.ModuleType, attributes: frozenset[str], compiled: Callable[[Any], Any]) -> Any:
    """Return a user's module as kernels see it: `compiled` makes what they call of the functions in it."""
    functions = {
        name: compiled(value)
        for name, value in vars(module).items()
        if name in attributes and isinstance(value, types.FunctionType)
    }
    if not functions:
        return module
    found = types.ModuleType(module.__name__)
    vars(found).update({**vars(module), **functions})
    return found


def is_linked(value: Any) -> bool:
    """Return whether a value is what kernels of Numba call by its name, and whose code is in files, as of cuda.coop."""
    kind = type(value)
    return hasattr(kind, "files") and callable(value) and isinstance(value.files, list)


def linked_files(*values: Any) -> tuple[str, ...]:
    """Return the paths of the files with the code of functions, and of what functions in Python call, however far."""
    found: dict[str, None] = {}
    seen: dict[int, Any] = {}
    queue: list[Any] = list(values)
    while queue:
        value = queue.pop()
        kind = type(value)  # isinstance takes parameters for their defaults
        if kind.__module__.partition(".")[0] == "numba":
            value = getattr(value, "py_func", value)
            kind = type(value)
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if is_linked(value):
            found.update(dict.fromkeys(value.files))
        elif issubclass(kind, tuple):
            queue += value
        elif kind is types.FunctionType:
            names, attributes = global_names(value.__code__), attribute_names(value.__code__)
            around = [value.__globals__.get(name) for name in names]
            around += [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
            modules = [one for one in around if isinstance(one, types.ModuleType) and is_users_module(one)]
            queue += around + [v for module in modules for _, _, v in variables_read(module, attributes)]
    return tuple(found)


class NotKeptError(Exception):
    """Something is compiled in that another process may know by no name."""


def text_of(key: Any) -> bytes:
    """Return a key as a text that another process finds again.

    Raises
    ------
    NotKeptError
        It has an object that has no name.
    """
    if isinstance(key, types.CodeType):
        return marshal.dumps(key.replace(co_filename="", co_firstlineno=0))
    if isinstance(key, Identity):
        return text_of_object(key.value)
    if isinstance(key, tuple):
        return b"(" + b",".join(map(text_of, key)) + b")"
    if isinstance(key, type) or callable(key):
        return text_of_object(key)
    return repr(key).encode()


def text_of_object(value: Any) -> bytes:
    """Return a module, a class or a function by its name, if it is of a library whose version is part of every key."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    home = name if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    if name is None or home is None or home.partition(".")[0] not in LIBRARIES:
        raise NotKeptError
    return f"{home}.{name}".encode()
