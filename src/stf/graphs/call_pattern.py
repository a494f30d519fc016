"""Calls of replayed functions that are like an earlier one, known without a look at all of their arguments."""

from __future__ import annotations

import inspect
import types
import weakref

import cython
import numpy as np

from stf import config
from stf.errors import CaptureError, ContextClosedError, GraphClosedError
from stf.graphs.returned_data import given, hold, in_use
from stf.tasks.placing import wanted
from stf.values.containers import is_container, is_plain_container
from stf.values.params import is_of_parameters

settings: dict = config.__dict__
METHODS: object = types.MethodType
DEEPEST = 5  # containers in one another
MISSING = object()  # what a name is that leads nowhere


class HeldError(CaptureError):
    """Raised where a launch cannot make other data for what its user holds of the last one."""


@cython.final
@cython.cclass
class Path:
    """A name that is read at each call: attributes, from an object, or from the global variable of this name."""

    def __init__(self, around, base, attributes):
        self.around = around
        self.base = base
        self.attributes = attributes

    def read(self):
        """Return what it is now; `MISSING` if it cannot be read."""
        value = self.base
        if self.around is not None:
            if cython.compiled:
                found = PyDict_GetItemWithError(self.around, self.base)
                if found == cython.NULL:
                    return MISSING
                value = cython.cast(object, found)
            else:
                value = self.around.get(self.base, MISSING)
        if len(self.attributes) == 0 or value is MISSING:
            return value
        try:
            for name in self.attributes:
                value = getattr(value, name)
        except Exception:
            return MISSING
        return value

    @property
    def cell_contents(self):
        """The same, as a variable of a closure has it."""
        return self.read()


@cython.final
@cython.cclass
class CallEntry:
    """What is known of the calls with one signature.

    It keeps no context alive, and, once there is a recording, what was given to that: kernels may work on it.
    """

    def __init__(self, key, context, calls):
        self.key = key
        self.context = weakref.ref(context)
        self.kept = None
        self.calls = calls
        self.first_data = self.launched = 0
        self.graph = None
        self.result = None
        self.reason = "called once; the next call is recorded"
        self.is_plain = False

    def end(self):
        """The context is over: what is told of its calls stays."""
        if self.graph is not None:
            self.launched += self.graph.launches
            self.graph = None
        self.kept = self.result = None


@cython.final
@cython.cclass
class CallPattern:
    """What the positional arguments of a call must be, and what its function closes over.

    That is data, or lists, tuples and dicts of data and of values that cannot change, in one another; their context;
    numbers that are parameters; and other values: the same objects, or equal numbers and strings. A closure has methods
    of the same object, too.
    """

    def __init__(self, entry, marks, cells):
        self.entry = entry
        self.place = wanted(entry.context(), None)
        self.values, self.numbers = marks  # (kind, known, name) each; numbers that are defaults
        self.cells = cells

    def numbers_of(self, args: tuple):
        """Return the values of the parameters, if a call with these arguments is like the earlier one; None if not."""
        i: cython.Py_ssize_t
        context: ContextCore = self.entry.context()
        if len(args) != len(self.values) or context is None:
            return None
        engine = context.engine
        if engine.closed is not None or (engine.scope.records and engine.scope.thread):
            return None
        numbers: dict = None
        for i in range(len(args)):
            mark: tuple = self.values[i]
            kind: cython.int = mark[0]
            if kind == NUMBER:
                if type(args[i]) is not mark[1]:
                    return None
                if numbers is None:
                    numbers = self.numbers.copy()
                numbers[mark[2]] = args[i]
            elif not is_like(args[i], kind, mark[1]):
                return None
        for i in range(len(self.cells)):
            known: tuple = self.cells[i]
            mark = known[1]
            if not is_like_content(known[0], mark[0], mark[1]):
                return None
        place: cython.int = context.place_here()
        if place != self.place:
            return None
        return self.numbers if numbers is None else numbers


@cython.cclass
class ReplayCore:
    """What of a replayed function every call goes through; `ReplayFunction` is the whole."""

    def __init__(self):
        self._patterns = []  # the last one used is the first
        self._latest = None  # that of the last call

    def __call__(self, *args, **kwargs):
        i: cython.Py_ssize_t
        if not kwargs and not settings["validate"]:
            likenesses = self._patterns
            for i in range(len(likenesses)):
                like = cython.cast(CallPattern, likenesses[i])
                values = like.numbers_of(args)
                if values is not None and (like is self._latest or self._take(like)):
                    try:
                        return again(like, values)
                    except (GraphClosedError, HeldError):
                        break  # another thread has given it up meanwhile; or the function runs as it is
                    except Exception as error:
                        if not is_of_parameters(error):
                            raise
                        like.entry.calls -= 1  # it is the same call that is looked at as a whole
                        break
        return self._call_whole(args, kwargs)


def again(like, values):
    """Replay what an earlier call was."""
    entry = like.entry
    context: ContextCore = entry.context()
    if entry.graph is None or context is None:
        raise ContextClosedError("the context of the data of a replayed function is gone; keep a reference to it")
    entry.calls += 1
    return replayed(context, entry.graph, entry, values)


def replayed(context, graph, entry, values):
    """Launch what was recorded of a call; with other data for what its user holds of the last one."""
    result = entry.result
    held = None if result is None else hold(graph, result)
    try:
        others = None if held is None else in_use(result, entry.first_data)
        if not others:
            graph.launch_with(context, values)
            return None if result is None else given(result)
        try:
            graph.launch(others, **values)
        except CaptureError as error:
            raise HeldError(str(error)) from error
        return given(result, {old.core.id: new for old, new in others.items()})
    finally:
        if held is not None:
            held.close()


def is_like_content(cell, kind, known):
    """Return whether what a variable of a closure, or a name, is now is what `pattern_of` marked."""
    if type(cell) is Path:
        return is_like(cython.cast(Path, cell).read(), kind, known)
    if cython.compiled:
        content = PyCell_GET(cell)
        return content != cython.NULL and is_like(cython.cast(object, content), kind, known)
    try:
        return is_like(cell.cell_contents, kind, known)
    except ValueError:  # it is empty now
        return False


def is_like(value, kind, known):
    """Return whether a value is what `pattern_of` marked."""
    if kind == DATA:
        return isinstance(value, DataHandle) and cython.cast(DataHandle, value).core is known
    if kind == NESTED:
        return is_like_container(value, known[0], known[1], known[2])
    if kind == WEAK:
        return value is not None and known() is value
    if kind == METHOD:  # a new object each time it is read
        return type(value) is METHODS and value.__self__ is known[0]() and value.__func__ is known[1]
    return value is known or (kind == EQUAL and is_same(value, known))


def is_like_container(value, kind, names, marks):
    """Return whether a list, a tuple or a dict of a type has such items, and, where it is a dict, these names."""
    i: cython.Py_ssize_t
    if type(value) is not kind or len(value) != len(marks):
        return False
    if names is not None:
        for name, known in zip(value, names, strict=False):
            if not is_same(name, known):
                return False
    items: list = list(value if names is None else value.values())
    if len(items) != len(marks):  # another thread has changed it meanwhile
        return False
    for i in range(len(items)):
        mark: tuple = marks[i]
        if not is_like(items[i], mark[0], mark[1]):
            return False
    return True


def is_unchanging(value):
    """Return whether a value is a number, a text or the like, or a tuple of these."""
    if type(value) is tuple:
        return all([is_unchanging(part) for part in value])
    return is_same(value, value) or isinstance(value, np.dtype)


def pattern_of(value, depth=0):
    """By what a value is known again, (kind, known); None if only a look at all of it tells.

    It is in so many containers; in more than a few may be one that contains itself.
    """
    if depth > DEEPEST:
        return None
    if isinstance(value, DataHandle):
        return DATA, value.core
    if isinstance(value, (list, tuple)):
        if not is_plain_container(value):
            return None  # it may have attributes
        return (OBJECT, value) if is_unchanging(value) else pattern_of_items(type(value), None, value, depth)
    if type(value) is dict:
        names = list(value)
        are_plain = all([is_same(name, name) for name in names])
        return pattern_of_items(dict, names, value.values(), depth) if are_plain else None
    if is_unchanging(value):
        return EQUAL, value
    if depth:
        return None  # a pattern leads from what it knows to what that reads, and would keep it alive
    if type(value) is METHODS:
        kind, known = pattern_by_identity(value.__self__)
        return (METHOD, (known, value.__func__)) if kind == WEAK else None
    if type(value).__hash__ not in (None, object.__hash__) or is_container(value):
        return None  # it may change, and be another one then
    return pattern_by_identity(value)


def pattern_by_identity(value):
    """Return the pattern of an object, which may hold data: it keeps none alive that can be known otherwise."""
    try:
        return WEAK, weakref.ref(value)
    except TypeError:
        return OBJECT, value


def pattern_of_items(kind, names, items, depth):
    """Return the pattern of a container with such items, and names where it is a dict; None as `pattern_of`."""
    marks = []
    for item in items:
        mark = pattern_of(item, depth + 1)
        if mark is None:
            return None
        marks.append(mark)
    return NESTED, (kind, names, marks)


def marks_of(parameters, arguments, given, params):
    """By what the arguments of a call are known again; None if only a look at all of them tells.

    Those that were `given` by position come first, as (kind, known, name); `params` are those whose number each launch
    gives. The second value holds the numbers that are defaults.
    """
    values, numbers = [], {}
    for position, (name, value) in enumerate(arguments.items()):
        kind = parameters[name].kind
        if kind == inspect.Parameter.VAR_KEYWORD:
            continue  # there are none
        if kind == inspect.Parameter.VAR_POSITIONAL:
            for item in value:
                mark = mark_of(item)
                if mark is None:
                    return None
                values.append((*mark, name))
            continue
        is_param = name in params
        mark = (NUMBER, type(value)) if is_param else mark_of(value)
        if mark is None:
            return None
        if position < given and kind != inspect.Parameter.KEYWORD_ONLY:
            values.append((*mark, name))
        elif is_param:
            numbers[name] = value
        elif mark[0] == NESTED:  # a default that may change in place
            return None
    return values, numbers


def mark_of(value):
    """Return the pattern of an argument; none of a method, whose object would stay alive."""
    return None if type(value) is METHODS else pattern_of(value)
