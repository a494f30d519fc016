"""What travels by value: the variables, defaults, attributes and arguments that a worker has copies of.

A function travels by value, and so do the functions and classes of ``__main__`` that it uses, with what those use in
turn. The worker changes its copies, and nobody else would see that: the program would compute other numbers than on a
CPU, without an error. So one walk finds everything that travels by value, and two questions are asked about it:

- on the client, before a call: has something changed since the function was sent (`Functions`)?
- on a worker, after a body: has the body changed something (`Watched`)? Then it fails.

The walk gives *bindings*, places that have a value: a global variable, a cell, a default, an attribute of a class, an
argument. A function or class that travels by value is a value with bindings of its own. Other objects are compared by a
digest of their pickle, numbers and texts by identity first. In a digest a function or class counts by its name and
code alone, as its bindings are compared beside it.

Modules that can be imported travel by name, with their functions and classes. They are not looked into: each process
has a module of its own, in which it may keep what it likes.

Tried before: only the variables of the function itself. A counter in a helper, a list given as an argument, a mutable
default and an attribute of a class were lost in silence. Arrays that a function captures are made read-only, as a
digest of each after each body costs too much; an array that is an argument was sent with this call, and is compared.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import pickle
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from stf._support.code_facts import codes_in, facts_of
from stf._support.constants import is_constant

ABSENT = object()  # the value of a variable that is not there
QUICK = frozenset((int, bool, float, complex, str, bytes, type(None)))
WRAPPERS = (staticmethod, classmethod)
FOLLOWED = (  # looked into by `parts_of`, or there by name
    type,
    types.ModuleType,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
    functools.cached_property,
    property,
    *WRAPPERS,
)


class Binding(NamedTuple):
    """A place that has a value; `label` is how an error names it.

    `get` returns the value that is there now. A default, or an argument, has no other in its place, and no `get`.
    """

    label: str
    value: Any
    get: Callable[[], Any] | None = None
    is_attribute: bool = False

    def now(self) -> Any:
        """Return the value that is there now, ABSENT if there is none."""
        return self.value if self.get is None else self.get()


def bound(label: str, get: Callable[[], Any], is_attribute: bool = False) -> Binding:
    """Return a binding of a place whose value can be another one later."""
    return Binding(label, get(), get, is_attribute)


def content_of(cell: types.CellType) -> Any:
    """Return the value of a variable of a function around."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def getter(names: Any, name: str) -> Callable[[], Any]:
    """Return what returns a variable."""
    return functools.partial(names.get, name, ABSENT)


def count_of_attributes(kind: type) -> int:
    """Return how many attributes of a class the user has made."""
    return sum([not is_kept(each) for each in vars(kind)])


def is_kept(name: str) -> bool:
    """Return whether an attribute of a class is Python's or `abc`'s; `pickle` adds one, too."""
    return name.startswith(("__", "_abc_")) and name.endswith(("__", "_impl", "_cache", "_registry", "_version"))


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, a text, None, or a tuple of these: every process has the same."""
    kind = type(value)
    if kind is tuple:
        return all([is_plain(item) for item in value])
    return kind in QUICK or (kind.__module__ == "numpy" and isinstance(value, np.generic | np.dtype))


def is_task_function(value: Any) -> bool:
    """Return whether it is a task function, which travels as the function that it is made of."""
    return type(value).__module__.startswith("stf.") and hasattr(type(value), "made_of")


def name_of(fn: Any) -> str:
    """Return how an error names a body."""
    return str(getattr(fn, "__name__", type(fn).__name__))


def is_by_value(value: Any) -> bool:
    """Return whether a function or class travels with its code: it cannot be imported."""
    found: Any = sys.modules.get(value.__module__ or "")
    if found is None or value.__module__ == "__main__":
        return True
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not value


# -- the walk ----------------------------------------------------------------------------------------------------------


def reached_from(roots: Iterable[Binding]) -> Iterator[Binding]:
    """Return bindings, and those of what they hold that travels by value."""
    todo, seen = list(roots), set()
    for each in todo:  # it grows
        yield each
        if id(each.value) not in seen and not is_plain(each.value):
            seen.add(id(each.value))
            todo += parts_of(each.value, each.label)


def roots_of(fn: Any) -> list[Binding]:
    """Return the bindings of the function of a body; a body of stf's own has the user's function as `func`."""
    if type(fn) is types.FunctionType or isinstance(fn, functools.partial | types.MethodType):
        return parts_of(fn, is_root=True)
    if type(fn).__module__.partition(".")[0] == "stf":
        inner = getattr(fn, "func", None)
        return parts_of(inner, is_root=True) if type(inner) is types.FunctionType else []
    return [Binding("itself", fn)]


def parts_of(value: Any, label: str = "", is_root: bool = False) -> list[Binding]:
    """Return the bindings of a function or class that travels by value, or of what is made of functions."""
    if type(value) is types.FunctionType:
        return parts_of_function(value, is_root) if is_root or is_by_value(value) else []
    if isinstance(value, type):
        return parts_of_class(value) if is_by_value(value) else []
    inner: list[tuple[str, Any]] = []
    if isinstance(value, functools.partial):
        inner = [("func", value.func), *enumerate(value.args), *value.keywords.items()]  # type: ignore[list-item]
    elif isinstance(value, types.MethodType):
        inner = [("__func__", value.__func__), ("__self__", value.__self__)]
    elif isinstance(value, types.BuiltinFunctionType):  # of an object, as that of ``from random import random``
        its_self = value.__self__
        inner = [] if its_self is None or isinstance(its_self, types.ModuleType) else [("__self__", its_self)]
    elif isinstance(value, WRAPPERS):
        inner = [("__func__", value.__func__)]
    elif isinstance(value, functools.cached_property):
        inner = [("func", value.func)]
    elif is_task_function(value):
        inner = [("fn", value.fn)]
    elif isinstance(value, property):
        inner = [("fget", value.fget), ("fset", value.fset), ("fdel", value.fdel)]
    if is_root:
        found = []
        for name, one in inner:
            is_function = type(one) is types.FunctionType
            where = f"its argument '{name}'" if isinstance(name, str) else f"its argument {name}"
            found += parts_of_function(one, True) if is_function else [Binding(where, one)]
        return found
    return [Binding(label, one) for _, one in inner]


def parts_of_function(fn: types.FunctionType, is_root: bool) -> list[Binding]:
    """Return what a function uses of variables and defaults."""
    of = "" if is_root else f" of '{fn.__name__}'"
    its = "its " if is_root else ""
    code, defaults = fn.__code__, fn.__defaults__ or ()
    cells = zip(code.co_freevars, fn.__closure__ or (), strict=True)
    found = [bound(f"{its}variable '{name}'{of}", functools.partial(content_of, cell)) for name, cell in cells]
    names = globals_of(code)
    found += [bound(f"{its}variable '{name}'{of}", getter(fn.__globals__, name)) for name in names]
    if "globals" in names:  # a body may make some that its code does not name
        found.append(bound(f"{its}global variables{of}", functools.partial(len, fn.__globals__)))
    first = code.co_argcount - len(defaults)
    for i, value in enumerate(defaults):
        name = code.co_varnames[first + i]
        found.append(Binding(f"the default of {its}parameter '{name}'{of}", value))
    for name in fn.__kwdefaults__ or ():
        found.append(bound(f"the default of {its}parameter '{name}'{of}", getter(fn.__kwdefaults__, name)))
    for name in fn.__dict__:
        found.append(bound(f"{its}attribute '{name}'{of}", getter(fn.__dict__, name), True))
    return [*found, bound(f"the attributes of '{fn.__name__}'", functools.partial(len, fn.__dict__))]


@functools.lru_cache(maxsize=1024)
def globals_of(code: types.CodeType) -> tuple[str, ...]:
    """Return the global variables that code, and code in it, loads, binds or deletes."""
    names = {step.name: None for each in codes_in(code) for step in facts_of(each).steps if step.of == "global"}
    return tuple(names)


def parts_of_class(kind: type) -> list[Binding]:
    """Return the attributes of a class, and of its bases; not those that Python and `abc` keep for themselves."""
    import enum

    found = [Binding(f"class '{base.__name__}'", base) for base in kind.__bases__]
    if isinstance(kind, enum.EnumType):  # whose members nobody changes; it keeps combined flags
        return found
    for name, value in list(vars(kind).items()):
        if type(value) is types.FunctionType or not is_kept(name):
            found.append(bound(f"attribute '{name}' of class '{kind.__name__}'", getter(vars(kind), name), True))
    count = functools.partial(count_of_attributes, kind)
    return [*found, bound(f"the attributes of class '{kind.__name__}'", count)]


# -- has it changed? ---------------------------------------------------------------------------------------------------


def is_steady(value: Any) -> bool:
    """Return whether a value is the same as long as what it reaches is bound to the same objects."""
    return (
        value is None
        or value is ABSENT
        or type(value) is object
        or is_constant(value)
        or isinstance(value, FOLLOWED)
        or is_task_function(value)
        or (type(value).__module__.startswith("numpy") and callable(value))  # a ufunc
    )


class Digest(pickle.Pickler):
    """A pickler whose bytes tell whether a value has changed; nobody reads them back.

    `met` are the functions and classes in it that travel by value.
    """

    def __init__(self) -> None:
        self.buffer, self.digest = io.BytesIO(), hashlib.blake2b(digest_size=16)
        self.met: list[Any] = []
        super().__init__(self.buffer, 5, buffer_callback=self.add)

    def add(self, buffer: pickle.PickleBuffer) -> bool:
        """Add the content of an array, without a copy of it."""
        self.digest.update(buffer.raw())
        return False

    def reducer_override(self, obj: Any) -> Any:
        """Let functions, classes and modules count by their names, cells by their content."""
        kind = type(obj)
        if kind is types.FunctionType:
            self.met.append(obj)
            return len, (obj.__qualname__, hash(obj.__code__))
        if issubclass(kind, type):
            self.met.append(obj)
            return len, (obj.__module__, obj.__qualname__)
        if kind is types.ModuleType:
            return len, (obj.__name__,)
        if kind is object:
            return len, (id(obj),)
        if kind is types.CellType:
            return len, (content_of(obj),)
        if kind is types.MappingProxyType:
            return len, (dict(obj),)
        if kind is functools.cached_property:
            return len, (obj.attrname, obj.func)
        cached = cached_in(kind)  # type: ignore[arg-type]
        return without_caches(obj, cached) if cached else NotImplemented

    def of(self, value: Any) -> bytes:
        """Return the digest of a value."""
        try:
            self.dump(value)
        except Exception:  # a lock that the worker has made
            return id(value).to_bytes(8, "little")
        self.digest.update(self.buffer.getbuffer())
        return self.digest.digest()


@functools.lru_cache(maxsize=1024)
def cached_in(kind: type) -> frozenset[str]:
    """Return the properties of a class that objects keep once they were asked for (`functools.cached_property`)."""
    every = [item for base in kind.__mro__ for item in vars(base).items()]
    return frozenset([name for name, value in every if isinstance(value, functools.cached_property)])


def without_caches(value: Any, cached: frozenset[str]) -> Any:
    """Return what an object is pickled as, without properties that a body may have asked for first."""
    reduced = value.__reduce_ex__(5)
    if type(reduced) is not tuple or len(reduced) < 3 or type(reduced[2]) is not dict:
        return NotImplemented
    state = {name: item for name, item in reduced[2].items() if name not in cached}
    return (*reduced[:2], state, *reduced[3:])


class Watched:
    """What travelled by value to a worker, where changes of it would get lost.

    Parameters
    ----------
    roots : list of Binding
        What came: the bindings of a function, or the arguments of a body.
    protects : bool
        Arrays that are variables or defaults become read-only, and need no digest.
    """

    def __init__(self, roots: list[Binding], protects: bool = False) -> None:
        self.roots, self.protects = roots, protects
        self.arrays: list[str] = []
        self.before = self.states()
        self.is_steady = all([digest is None for _, digest in self.before.values()])

    def states(self) -> dict[tuple[str, int], tuple[Binding, bytes | None]]:
        """Return all bindings as they are now, with the digests of what can change in place."""
        found: dict[tuple[str, int], tuple[Binding, bytes | None]] = {}
        met: list[Binding] = []
        self.arrays = []
        count: dict[str, int] = {}
        seen: set[int] = set()
        todo, skipped = [each._replace(value=each.now()) for each in self.roots], 0
        while todo:
            for each in itertools.islice(reached_from(todo), skipped, None):
                number = count[each.label] = count.get(each.label, -1) + 1
                found[each.label, number] = each, self.digest_of(each, met)
            todo = []
            for each in met:
                if id(each.value) not in seen:
                    seen.add(id(each.value))
                    todo.append(each)
            met.clear()
            skipped = len(todo)  # they are no places of a value
        return found

    def digest_of(self, each: Binding, met: list[Binding]) -> bytes | None:
        """Return the digest of a value, and add what it has met; None if identity says all."""
        value = each.value
        if is_steady(value):
            return None
        is_array = type(value) is np.ndarray and not value.dtype.hasobject
        if self.protects and is_array and not each.is_attribute:
            value.flags.writeable = False
            self.arrays.append(each.label)
            return None
        digest = Digest()
        content = digest.of(value)
        met += [Binding(each.label, one) for one in digest.met if is_by_value(one)]
        return content

    def change(self) -> Binding | None:
        """Return a binding whose value has changed, with its value now; None if all is as it was."""
        if self.is_steady and all([each.now() is each.value for each, _ in self.before.values()]):
            return None
        before, now = self.before, self.states()
        self.before = now
        for key, (each, digest) in now.items():
            if key not in before:
                return each
            was, digest_before = before[key]
            if each.value is was.value and digest == digest_before:
                continue
            if kept_as(each.value, digest) != kept_as(was.value, digest_before):
                return each
        gone = before.keys() - now.keys()
        return None if not gone else before[min(gone)][0]._replace(value=ABSENT)

    def check(self, fn: Any) -> None:
        """Raise TypeError if a body has changed something."""
        changed = self.change()
        if changed is None:
            return
        what = "deleted" if changed.value is ABSENT else type(changed.value).__name__
        way_out = "use logical data for what tasks write"
        if is_generator(changed.value):
            way_out = "draw from a generator of ctx.random (stf.Random), or make a generator in the body"
        raise TypeError(
            f"task '{name_of(fn)}' changes {changed.label} ({what}) and runs on a remote worker, which has a copy: the "
            f"change would get lost; {way_out}"
        )

    def explain(self, error: BaseException) -> None:
        """Add to the error of an array that is read-only which arrays are."""
        if self.arrays and isinstance(error, ValueError) and "read-only" in str(error):
            error.add_note(
                f"the function brought copies of arrays to this worker, which are read-only: {', '.join(self.arrays)}; "
                "use logical data for what tasks write"
            )


def kept_as(value: Any, digest: bytes | None) -> Any:
    """Return what is compared of a value that is another object than before."""
    if digest is not None:
        return digest
    if type(value) is types.FunctionType:
        return value.__qualname__, value.__code__
    if isinstance(value, type):
        return value.__module__, value.__qualname__
    if type(value) is object or value is ABSENT or type(value) is np.ndarray or isinstance(value, types.ModuleType):
        return id(value)
    return type(value), Digest().of(value)


def is_generator(value: Any) -> bool:
    """Return whether it draws random numbers, and keeps how many it has drawn."""
    import random

    return isinstance(value, np.random.Generator | np.random.RandomState | np.random.BitGenerator | random.Random)
