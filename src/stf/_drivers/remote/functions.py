"""How functions travel: once a worker, by value, and known by a number from then on.

The function of a body is pickled by value, so its file need not exist on the workers. Functions and classes of other
modules than ``__main__`` that it uses are pickled by name.

A function that was sent is known again as long as everything that it captures by value is the same (`captures`):
numbers and texts are compared by identity, functions too, with what these capture. A function that captures anything
else, a list for example, is pickled for each call, since nobody can tell whether the list has changed. Equal bytes have
one number.

With a function go the objects that it captures, as a list. An argument that is one of them is sent as its place in that
list. So it is the same object on the worker, too, and a body may ask ``if e is MISSING``.
"""

from __future__ import annotations

import functools
import hashlib
import io
import pickle
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from stf._drivers.remote.captures import (
    QUICK,
    Binding,
    is_by_value,
    is_generator,
    is_plain,
    is_steady,
    is_task_function,
    name_of,
    parts_of,
    reached_from,
)
from stf._drivers.remote.surroundings import run_within
from stf._port.remote_arrays import RemoteArray, array_here
from stf._support.code_facts import codes_in
from stf._support.constants import is_constant

MOST_KNOWN = 4096


class Sent(NamedTuple):
    """A function that was sent: its number, its bytes, and the objects that it captures, their places by their ids."""

    number: int
    content: bytes
    objects: list[Any]
    places: dict[int, int]


class Functions:
    """The functions that a context has sent to its workers."""

    def __init__(self) -> None:
        # (function, what was sent, what returns each value that it captures, and that value)
        self.known: dict[Any, tuple[Any, Sent, list[tuple[Callable[[], Any], Any]]]] = {}
        self.by_hash: dict[bytes, int] = {}

    def sent(self, fn: Any) -> Sent:
        """Return a function with its number.

        Raises
        ------
        TypeError
            It cannot travel, and which of its variables keeps it.
        """
        key = key_of(fn)
        entry = self.known.get(key)
        if entry is not None:
            for get, value in entry[2]:
                if get() is not value:
                    break
            else:
                return entry[1]
        captured = list(reached_from(parts_of(fn, is_root=True)))
        objects = objects_among(captured)
        content = pickled_by_value(fn, objects)
        digest = hashlib.sha256(content).digest()
        number = self.by_hash.setdefault(digest, len(self.by_hash) + 1)
        sent = Sent(number, content, objects, {id(value): i for i, value in enumerate(objects)})
        if all([is_steady(each.value) for each in captured]) and is_made_of_functions(fn):
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[key] = (fn, sent, [(each.get, each.value) for each in captured if each.get is not None])
        return sent


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


def is_made_of_functions(fn: Any) -> bool:
    """Return whether a body is a function, or arguments of one: nothing else in it can change."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return type(fn) is types.FunctionType


def objects_among(captured: list[Binding]) -> list[Any]:
    """Return the objects among what a function captures that an argument may be, too."""
    found = {id(each.value): each.value for each in captured if type(each.value) is object or not is_steady(each.value)}
    return list(found.values())


@functools.cache
def pickler() -> Any:
    """Return the class of picklers that send functions and classes of ``__main__`` by value."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self, buffer: io.BytesIO, fn: Any, met: list[Any]) -> None:
            super().__init__(buffer, protocol=5)
            self.fn, self.met = fn, met  # `met` gets the functions and classes that it has sent by value

        def reducer_override(self, obj: Any) -> Any:
            reduced = self.reduced(obj)
            if reduced is not NotImplemented and isinstance(obj, type | types.FunctionType):
                self.met.append(obj)
            return reduced

        def reduced(self, obj: Any) -> Any:
            if type(obj) is types.FunctionType:
                if type(obj.__globals__) is not dict:
                    return self._dynamic_function_reduce(with_plain_globals(obj))
                if obj is self.fn:
                    return self._dynamic_function_reduce(obj)
            if is_task_function(obj) and is_by_value(obj.fn):
                return obj.made_of()
            if type(obj) is functools.cached_property:  # it has a lock in Python 3.11
                return functools.cached_property, (obj.func,), {"attrname": obj.attrname}
            reduced = super().reducer_override(obj)
            return without_tracker(reduced) if isinstance(obj, type) else reduced

    return Pickler


def without_tracker(reduced: Any) -> Any:
    """Return what cloudpickle makes of a class, without the number by which it finds it again where it has been before.

    With that number the class of a function that was sent earlier would get the attributes that it has now.
    """
    if type(reduced) is not tuple or len(reduced[1]) < 2 or reduced[1][-1] is not None:
        return reduced
    given = reduced[1]
    is_number = type(given[-2]) is str and len(given[-2]) == 32
    return (reduced[0], (*given[:-2], None, None), *reduced[2:]) if is_number else reduced


@functools.cache
def argument_pickler() -> Any:
    """Return the class of picklers of arguments, which send an object that the function captures as its place."""

    class ArgumentPickler(pickler()):  # type: ignore[misc]
        def __init__(self, buffer: io.BytesIO, places: dict[int, int]) -> None:
            super().__init__(buffer, None, [])
            self.places = places

        def persistent_id(self, obj: Any) -> int | None:
            return self.places.get(id(obj))

    return ArgumentPickler


class ArgumentReader(pickle.Unpickler):
    """Reads arguments, with the objects that their function has brought."""

    def __init__(self, content: bytes, objects: list[Any]) -> None:
        super().__init__(io.BytesIO(content))
        self.objects = objects

    def persistent_load(self, place: int) -> Any:
        """Return an object that the function captures."""
        return self.objects[place]


def pickled_by_value(fn: Any, objects: list[Any]) -> bytes:
    """Return a function as bytes, with its code, and the objects that it captures.

    The functions and classes that are sent with it are added to the objects, which are pickled last.
    """
    buffer = io.BytesIO()
    try:
        pickler()(buffer, fn, objects).dump((fn, objects))
    except Exception as error:
        culprit = culprit_in(fn)
        where = f"{culprit.label} holds a {type(culprit.value).__name__}" if culprit else str(error)
        raise TypeError(
            f"the body of task '{name_of(fn)}' cannot be sent to a remote worker: {where}, which cannot be pickled; "
            "make it in the body, or pass what it is made of"
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


def culprit_in(fn: Any) -> Binding | None:
    """Return what keeps a function from being pickled of that which it captures; None if it is none of that."""
    import cloudpickle

    for each in parts_of(fn, is_root=True):
        try:
            cloudpickle.dumps(each.value)
        except Exception:
            return each
    return None


def pickled_arguments(
    run: Any, rest: Any, fn: Any, surroundings: Any, places: dict[int, int]
) -> tuple[bytes, tuple[tuple[int, str], ...] | None]:
    """Return the arguments of a body as bytes, and which of them may change in place; None if all are plain.

    Raises
    ------
    TypeError
        One cannot travel, or would be another thing there.
    """
    if surroundings is None:
        call, is_plain_call = (run, rest), rest[6] is None
    else:  # NumPy may call a function of the script for an error
        call, is_plain_call = (run_within, (surroundings, run, *rest)), rest[6] is None and surroundings[1] is None
    args = rest[0]
    for value in args:
        if type(value) is not RemoteArray and not is_same_there(value):
            is_plain_call = False
            break
    if is_plain_call:
        try:
            return pickle.dumps(call, 5), None
        except Exception:
            pass  # a lambda
    kinds = rest[2]
    code = getattr(fn, "__code__", None)
    names = [name for name, _ in kinds] if kinds else code.co_varnames[: code.co_argcount] if code is not None else ()
    watched = []
    for i, value in enumerate(args):
        if is_same_there(value):
            continue
        label = label_of(i, names)
        if not type(value).__module__.startswith("stf."):
            refuse_what_changes(value, label, fn, places)
            if not is_constant(value):
                watched.append((i, f"its {label}"))
    buffer = io.BytesIO()
    try:
        argument_pickler()(buffer, places).dump(call)
    except Exception as error:
        raise what_cannot_travel(args, names, fn, error) from error
    return buffer.getvalue(), tuple(watched)


def plain_call(run: Any, rest: Any) -> tuple[Any, ...] | None:
    """Return a call whose arguments are arrays, numbers and texts, to be pickled with its batch; None for others.

    Of an argument it has the description of the array, or the value alone, and of each array that is written which
    argument it is. A batch has a description once, whatever calls are in it.
    """
    args, written, kinds, late, owes, ignores, to_fill, around = rest
    if late is not None or to_fill is not None or around is not None:
        return None
    given = []
    for value in args:
        if type(value) is RemoteArray:
            given.append(value.description())
        elif type(value) in QUICK or is_plain(value):
            given.append((value,))
        else:
            return None
    places = None
    if written is not None:
        places = [i for target in written for i, value in enumerate(args) if value is target]
        if len(places) != len(written):
            return None
    return run, given, places, kinds, owes, ignores


def read_call(run: Any, given: Any, places: Any, kinds: Any, owes: bool, ignores: bool) -> tuple[Any, tuple[Any, ...]]:
    """Return who runs a body, and with what else, of what `plain_call` has made."""
    known: dict[int, Any] = {}
    args = []
    for item in given:
        if len(item) == 1:
            args.append(item[0])
        else:
            array = known.get(id(item))
            if array is None:
                array = known[id(item)] = array_here(*item)
            args.append(array)
    written = None if places is None else [args[i] for i in places]
    return run, (tuple(args), written, kinds, None, owes, ignores, None, None)


def is_same_there(value: Any) -> bool:
    """Return whether an argument is a plain value, logical data, or a list or tuple of data: no copy of the user's."""
    kind = type(value)
    if (kind is list or kind is tuple) and len(value) > 0 and all([type(item) is RemoteArray for item in value]):
        return True
    return kind is RemoteArray or is_plain(value)


def refuse_what_changes(value: Any, label: str, fn: Any, places: dict[int, int]) -> None:
    """Raise TypeError for an argument of which a copy is of no use: a generator, or an object that is only itself."""
    if is_generator(value):
        raise TypeError(
            f"{label} of task '{name_of(fn)}' is a {type(value).__name__}, and the task runs on a remote worker, which "
            "would draw from a copy: other tasks would get the same numbers; pass a generator of ctx.random "
            "(stf.Random), or make a generator in the body, of a seed that you pass"
        )
    if type(value) is object and id(value) not in places:
        raise TypeError(
            f"{label} of task '{name_of(fn)}' is a bare object(), and the task runs on a remote worker, where a copy "
            "is another object; pass None, a text, or a member of an enumeration"
        )


def what_cannot_travel(args: Any, names: Any, fn: Any, error: Exception) -> TypeError:
    """Return the error that says which argument cannot be pickled."""
    import cloudpickle

    for i, value in enumerate(args):
        try:
            cloudpickle.dumps(value)
        except Exception:
            return TypeError(
                f"{label_of(i, names)} of task '{name_of(fn)}' cannot be sent to a remote worker: a "
                f"{type(value).__name__} cannot be pickled; make it in the body, or pass what it is made of"
            )
    return TypeError(f"task '{name_of(fn)}' cannot be sent to a remote worker: {error}")


def label_of(number: int, names: Any) -> str:
    """Return how an error names an argument."""
    return f"argument '{names[number]}'" if number < len(names) else f"argument {number}"
