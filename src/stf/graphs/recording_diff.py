"""Sameness: whether two recordings of a function do the same, and where they do not (``STF_VALIDATE``)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np

from stf._engine.access import DataHandle
from stf.graphs.call_signature import key_of
from stf.kernels.launch_attributes import LaunchCapture
from stf.tasks.annotations import access_mode
from stf.tasks.bodies import Body
from stf.tasks.closures import AROUND, Variables
from stf.tasks.recapture import BlockCapture, BodyCapture, PlayedBody
from stf.values.containers import split
from stf.values.params import DerivedParam, Param
from stf.values.parts import Parts

__all__ = ["difference"]

ARGUMENTS = "arguments"  # of a kernel, which nobody could read
WORDS = {"copy": "a copy", "fill": "a fill", "launch": "the launch of a kernel"}


def difference(known: Any, known_data: int, now: Any, now_data: int) -> str | None:
    """Say where two recorded graphs differ first, of which one was recorded before; None if they do not.

    Data up to these numbers were there before. They are known by their number, others by the order of their first use.
    """
    describer = RecordingDescriber(known_data, {}, set())
    programs = known._recording.program, now._recording.program
    before = describer.program(programs[0])
    now_describer = RecordingDescriber(now_data, describer.described, set(describer.new))
    after = now_describer.program(programs[1])
    for number, (one, other) in enumerate(itertools.zip_longest(before, after)):
        if one != other:
            was = None if one is None else in_words(programs[0], number)
            is_now = None if other is None else in_words(programs[1], number)
            return f"node {number} of {len(after)}: {change(one, other, was, is_now)}"
    return differing_arrays(known._recording, describer.new, now._recording, now_describer.new)


def differing_arrays(known: Any, known_new: dict[int, int], now: Any, now_new: dict[int, int]) -> str | None:
    """Say which array that a function registers is another one each time, and changed, or has other content."""
    data_now = {now_new[use.data.id]: use.data for use in now.uses if use.data.id in now_new}
    for use in known.uses:
        order = known_new.get(use.data.id)
        other = None if order is None else data_now.get(order)
        if (
            other is None
            or use.data.private
            or use.data.home is None
            or other.home is None
            or not use.mode & access_mode.read
        ):
            continue
        if use.data.home.address == other.home.address:
            continue
        mine, its = content_of(use.data), content_of(other)
        if use.mode & access_mode.write or (mine is not None and its is not None and mine != its):
            return (
                f"it registers another array each time, of which only the first is replayed ({use.data.describe()}); "
                "make it with logical_data_zeros or logical_data_full, or register it outside"
            )
    return None


def content_of(data: Any) -> bytes | None:
    """Return what an array on the host holds; None if it is not there, or no array of NumPy's."""
    return data.owner.tobytes() if isinstance(data.owner, np.ndarray) else None


def change(one: Any, other: Any, was: str | None, now: str | None) -> str:
    """Return what became of one node, which is called `was` and `now`."""
    if was is None:
        return f"{now} is new"
    if now is None:
        return f"{was} is no longer there"
    if was != now:
        return f"{now} stands where {was} stood"
    if one[0] != other[0]:
        return f"{now} comes after nodes {other[0]}, and came after {one[0]}"
    if one[1] != other[1]:
        return f"{now} is at execution place {other[1]}, and was at {one[1]}"
    mine, its = leaves(other[2], one[2])
    if mine == its == ARGUMENTS:
        return f"{now} has other values among its arguments"
    return f"{now} has {mine} where it had {its}"


def working(program: Any) -> list[int]:
    """Return the numbers of the nodes that do something.

    Others order them, or stand for memory that was found elsewhere.
    """
    return [number for number, (_, operations) in enumerate(program.contents()) if operations]


def in_words(program: Any, number: int) -> str:
    """Return what a node does, for people: its task, if it knows that."""
    _, operations = program.contents()[working(program)[number]]
    for name, what in operations:
        again = what[0].again if isinstance(what[0], PlayedBody) else what[1] if name == "captured" else None
        if again is not None:
            return f"task {again.label} ({again.site})"
        task = getattr(what[0], "task", None) if name == "call" else None
        if task is not None:
            return f"task {task.label()} ({task.call_site})"
    names = [type(what[0]).__name__.lower() if name == "run" else WORDS.get(name, name) for name, what in operations]
    return " and ".join(names) or "a node without work"


def leaves(one: Any, other: Any) -> tuple[str, str]:
    """Return the first parts, in words, in which two descriptions of the same kind differ."""
    if is_value(one) and is_value(other) and one[0] is other[0]:
        return leaves(one[1], other[1])
    if not is_data(one) and type(one) is type(other):
        if isinstance(one, list | tuple) and len(one) == len(other):
            pairs = zip(one, other, strict=True)
        elif isinstance(one, dict) and one.keys() == other.keys():
            pairs = zip(one.values(), other.values(), strict=True)
        else:
            pairs = zip((), (), strict=True)
        for mine, its in pairs:
            if mine != its:
                return leaves(mine, its)
    return leaf(one), leaf(other)


def leaf(part: Any) -> str:
    """Return a part of a description, in words."""
    if isinstance(part, bytes):
        return ARGUMENTS
    if isinstance(part, CodeType):
        return f"function '{part.co_name}' ({part.co_filename}:{part.co_firstlineno})"
    if is_data(part):
        return f"{part[0]} #{part[1]}"
    return f"{part[1]!r} ({part[0].__name__})" if is_value(part) else repr(part)


def is_value(part: Any) -> bool:
    """Return whether a part of a description is a plain value."""
    return isinstance(part, tuple) and len(part) == 2 and isinstance(part[0], type)


def is_data(part: Any) -> bool:
    """Return whether a part of a description is data."""
    return isinstance(part, tuple) and len(part) == 2 and part[0] in ("data", "new data")


def besides(kind: str, what: Any) -> Any:
    """Return what a container is beside its items, to be compared."""
    if kind == "dataclass":
        return type(what[0]), what[1]
    return [key_of(key) for key in what] if kind == "dict" else what


class RecordingDescriber:
    """Tells what programs do in values to be compared.

    `described` are the descriptions of objects, by identity, since bodies that run meanwhile may change these; `made`
    are the numbers of data that the program made when it was recorded first, and that are there still.
    """

    def __init__(self, first_data: int, described: dict[int, tuple[Any, Any]], made: set[int]) -> None:
        self.described = described
        self.new: dict[int, int] = {}
        self._first_data = first_data
        self._made = made
        self._mentions = 0  # of new data
        self._around: list[int] = []  # what is being told, by identity
        self._are_views = False  # arrays are those of data, which are told elsewhere

    def program(self, program: Any) -> list[Any]:
        """(nodes before, place, operations) of each node that does something."""
        contents = program.contents()
        place_of = {number: position for position, number in enumerate(working(program))}
        before: list[list[int]] = []  # of each node, those that do something
        described = []
        for number, (place, operations) in enumerate(contents):
            needs = program.needs_of(number)
            direct = {place_of[need] for need in needs if need in place_of}
            before.append(sorted(direct.union(*(before[need] for need in needs if need not in place_of))))
            if operations:
                described.append((before[-1], place, [(name, self.operation(name, what)) for name, what in operations]))
        return described

    def operation(self, name: str, what: tuple[Any, ...]) -> Any:
        """Return what one operation does."""
        if name == "launch":
            return self.launch(*what)
        if name == "copy":
            return [self.replica(replica) for replica in what[:2]]
        if name == "fill":
            return self.replica(what[0]), what[1]
        if name == "call":
            return self.body(what[0])
        if name == "captured":
            return self.captured(*what)
        if name == "run":
            return self.routine(what[0]), self.value(what[1])
        return None  # what is kept alive

    def data(self, number: int) -> Any:
        """Return a data, by its number."""
        if number <= self._first_data and number not in self._made:
            return "data", number
        self._mentions += 1
        return "new data", self.new.setdefault(number, len(self.new))

    def replica(self, replica: Any) -> Any:
        """Return a replica: of which data, and where."""
        return self.data(replica.data.id), replica.place

    def launch(self, launch: Any, arguments: Any = None) -> Any:
        """Return the launch of a kernel."""
        if launch is None:
            return None
        shape, content, pointers = launch
        late = [] if arguments is None else [(index, self.value(param)) for index, param in arguments.late]
        return shape, content, [(offset, self.replica(replica)) for offset, replica in pointers], late

    def captured(self, captured: Any, again: Any) -> Any:
        """Return a body that put its work on a stream."""
        if isinstance(again, BodyCapture):
            is_fixed = captured is not None and not again.varies  # else each value may put other work there
            taken = {name: self.value(value) for name, value in (again.taken or {}).items()}
            return self.body(again.body), f"{captured.node_count} operations" if is_fixed else None, taken
        if isinstance(again, LaunchCapture):
            how, content, pointers, late = again.parts()
            where = [(offset, self.replica(replica)) for offset, replica in pointers]
            return how, content, where, [(index, self.value(param)) for index, param in late]
        nodes = None if captured is None else captured.node_count
        return nodes if not isinstance(again, BlockCapture) else (nodes, [self.data(number) for number in again.data])

    def routine(self, routine: Any) -> Any:
        """Return a nested graph, loop or branch."""
        program = getattr(routine, "program", None)
        own = [] if program is None else self.program(program)
        if isinstance(routine, PlayedBody):
            return self.captured(None, routine.again)
        how = [getattr(routine, name, None) for name in ("count", "limit", "wanted")]
        return type(routine).__name__, how, own, [self.routine(part) for part in routine.parts]

    def body(self, body: Any) -> Any:
        """Return a body that Python runs."""
        is_body: bool = isinstance(body, Body)
        if not is_body:
            return self.function(getattr(body, "body", None) or body)
        arrays: dict[int, list[Any]] = {}
        for position, replica, is_written, library, _ in body.argument_sources or ():
            arrays.setdefault(position, []).append((self.replica(replica), is_written, library))
        given: list[Any] = []
        for position, value in enumerate(body.args):
            if position in arrays:
                given.append((arrays[position], self.shape(value.shape) if isinstance(value, Parts) else None))
            elif body.argument_sources is None and hasattr(value, "dtype") and hasattr(value, "shape"):
                given.append((value.dtype, value.shape))  # of data that are told below
            else:
                given.append(self.value(value))
        return self.function(body.fn), given, [self.data(number) for number in body.data or ()]

    def shape(self, shape: Any) -> Any:
        """Return what a container is made of beside its arrays; see `Parts`."""
        if shape is None:
            return None
        kind, what, parts = shape
        if kind == "plain":
            return kind, self.value(what)
        if kind == "flat":
            return kind, what, parts
        if kind == "parts":
            return kind, what, self.value(parts.obj)
        return kind, besides(kind, what), [self.shape(part) for part in parts]

    def within(self, thing: Any, tell: Callable[[Any], Any]) -> Any:
        """Return what `tell` says of a thing, which may be in itself; which one around it is, where it is told."""
        if id(thing) in self._around:
            return self._around.index(id(thing))
        self._around.append(id(thing))
        try:
            return tell(thing)
        finally:
            self._around.pop()

    def function(self, fn: Any) -> Any:
        """Return a function, with what it holds."""
        return self.within(fn, self.parts_of)

    def parts_of(self, fn: Any) -> Any:
        """Return what a function is made of."""
        if isinstance(fn, functools.partial):
            return self.function(fn.func), self.value(fn.args), self.value(fn.keywords)
        owner = getattr(fn, "__self__", None)
        if owner is not None and hasattr(fn, "__func__"):
            return self.function(fn.__func__), self.once(owner, self.fields)
        if hasattr(fn, "py_func"):  # compiled by Numba
            return type(fn), self.function(fn.py_func)
        code = getattr(fn, "__code__", None)
        if code is None or not hasattr(fn, "__closure__"):
            return type(fn), {name: self.value(value) for name, value in getattr(fn, "__dict__", {}).items()}
        cells: list[Any] = []
        for cell in fn.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                cells.append(None)
                continue
            before, self._are_views = self._are_views, (getattr(fn, "__module__", None) or "").startswith("stf.")
            cells.append(self.value(content))
            self._are_views = before
        return code, self.value(fn.__defaults__), self.value(fn.__kwdefaults__), cells, self.variables(fn.__globals__)

    def variables(self, around: Any) -> Any:
        """Return the global variables that a function took when it was submitted."""
        if not isinstance(around, Variables) or id(around) in self._around:  # those of a helper, which it holds itself
            return None
        taken = [(name, value) for name, value in around.items() if name not in AROUND]
        return self.within(around, lambda _: {name: self.value(value) for name, value in taken})

    def once(self, thing: Any, tell: Callable[[Any], Any]) -> Any:
        """Return what `tell` says of a thing, or was told of the very same one."""
        if id(thing) in self.described:
            return self.described[id(thing)][1]
        before = self._mentions
        description = tell(thing)
        if self._mentions == before:  # else it has numbers that are this program's
            self.described[id(thing)] = thing, description
        return description

    def fields(self, owner: Any) -> Any:
        """Return an object whose method is a body: what of it are plain values."""
        kinds = (bool, int, float, complex, str, np.generic, np.ndarray, list, tuple, dict, DataHandle, type(None))
        known = vars(owner) if hasattr(owner, "__dict__") else {}
        return type(owner), {name: self.value(item) for name, item in known.items() if isinstance(item, kinds)}

    def container(self, value: Any) -> Any:
        """Return what a list, tuple or dict contains."""
        found: Any = split(value)
        kind, what, items = found
        return besides(kind, what), [self.value(item) for item in items]

    def value(self, value: Any) -> Any:
        """Return a value that a body gets or holds."""
        if isinstance(value, DerivedParam):
            operation = value.operation  # one of `with_params` is another function each time
            how = self.function(operation) if hasattr(operation, "__code__") else operation
            return how, [self.value(operand) for operand in value.operands]
        if isinstance(value, Param):
            return "parameter", value.name
        if isinstance(value, (list, tuple, dict)):
            return self.once(value, lambda value: self.within(value, self.container))
        if callable(value) and hasattr(value, "__code__"):
            return self.function(value)
        if isinstance(value, DataHandle):
            return self.data(value.core.id)
        if isinstance(value, np.ndarray) and value.dtype != object:
            return value.dtype.str, value.shape, None if self._are_views else value.tobytes()
        if hasattr(value, "__cuda_array_interface__"):
            return type(value)
        known_by_itself = getattr(type(value), "__hash__", None) is object.__hash__
        return type(value) if known_by_itself else key_of(value)
