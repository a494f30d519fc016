"""What a task's function brings along besides its arguments: its closure, its globals, and what it asks stf for."""

from __future__ import annotations

import dis
import functools
import types
import weakref

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

from stf._engine.access import Access, DataHandle
from stf.errors import AccessError
from stf.interop import adapters
from stf.params import refuse_hidden, refuse_reachable


def injections(fn):
    """Parameters annotated ``stf.Stream`` or ``stf.Task``: (name, kind)."""
    annotations = getattr(fn, "__annotations__", None)
    if not annotations:
        return ()
    kinds = [
        (name, adapters.resolve_annotation(fn, kind) if isinstance(kind, str) else kind)
        for name, kind in annotations.items()
        if name != "return"
    ]
    return tuple((name, kind) for name, kind in kinds if adapters.is_injected(kind))


# -- what a function reads of its surroundings, as it is now -----------------------------------------------------------

names: dict = {}  # by the id of a code object
CONSTANTS = (int, float, complex, bool, str, bytes, type(None))  # what may be kept, and keeps nothing alive
AROUND = ("__name__", "__builtins__", "__package__", "__spec__", "__file__")  # which Python looks for in globals


def snapshot(fn, task):
    """`fn` with its closure as it is now; data among it must be accesses of the task.

    Functions in it are taken with theirs. A cell that one of them assigns to (``nonlocal``) stays what all share.
    """
    scope = task.engine.scope
    if scope is not None:
        refuse_params(fn)
        if scope.patient:
            refuse_reachable(fn)
    closure = getattr(fn, "__closure__", None)
    if closure is None:
        return snapshot_of_partial(fn, task)
    if type(fn) is types.MethodType:
        return types.MethodType(snapshot(fn.__func__, task), fn.__self__)
    reaches = False
    for name, cell in zip(fn.__code__.co_freevars, closure, strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            continue
        if is_data(content):
            reject_hidden_data(task, name, content)
        reaches = reaches or is_copied(content)
    return copied(fn, shared_cells(fn), {}) if reaches or stored_names(fn) else copied(fn, (), None)


def snapshot_of_partial(fn, task):
    """A partial function of a function as it is now; anything else is what it is."""
    if type(fn) is not functools.partial:
        return fn
    inner = snapshot(fn.func, task)
    return fn if inner is fn.func else functools.partial(inner, *fn.args, **fn.keywords)


def is_copied(value):
    """Whether what a cell holds is a function that is taken as it is now: one with a closure, and no attributes."""
    return (
        type(value) is types.FunctionType
        and value.__closure__ is not None
        and (not value.__dict__ or value.__dict__.keys() == {"__wrapped__"})
    )


def copied(fn, shared, known):
    """A function with cells of its own, but for the `shared` ones, by id; `known` are the copies that there are."""
    cells = [cell if id(cell) in shared else types.CellType() for cell in fn.__closure__]
    copy = with_cells(fn, tuple(cells))
    if known is not None:
        known[id(fn)] = copy
    for cell, mine in zip(fn.__closure__, cells, strict=True):
        if cell is mine:
            continue
        try:
            content = cell.cell_contents
        except ValueError:
            continue
        if known is not None and is_copied(content):
            content = known.get(id(content)) or copied(content, shared, known)
        mine.cell_contents = content
    return copy


def with_cells(fn, cells, variables=None):
    """The same function with other cells, and perhaps other globals."""
    around = fn.__globals__ if variables is None else variables
    copy = types.FunctionType(fn.__code__, around, fn.__name__, fn.__defaults__, cells)
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__annotations__ = fn.__annotations__
    if fn.__dict__:
        copy.__dict__.update(fn.__dict__)
    return copy


def shared_cells(fn):
    """The ids of the cells that a function, or one that it reaches through cells, assigns to."""
    shared, seen, left = set(), set(), [fn]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        stored = stored_names(one)
        for name, cell in zip(one.__code__.co_freevars, one.__closure__, strict=True):
            if name in stored:
                shared.add(id(cell))
            try:
                content = cell.cell_contents
            except ValueError:
                continue
            if type(content) is types.FunctionType and content.__closure__ is not None:
                left.append(content)
    return shared


class Variables(dict):
    """Globals of a function, some of which are what they were; the others are looked up `around`."""

    __slots__ = ("around",)

    def __missing__(self, name):
        return self.around[name]


def with_globals(fn):
    """`fn` with the global variables that it reads, and does not assign to, as they are now.

    Modules, functions and classes under their own names are looked up when it runs, as ever.
    """
    if type(fn) is not types.FunctionType:
        return with_globals_of_partial(fn)
    known: Names = names_in(fn.__code__)
    if not known.read:
        return fn
    around = fn.__globals__
    taken = {}
    for name in known.read:
        if name in around:
            value = around[name]
            if type(value) is not types.ModuleType and getattr(value, "__name__", None) != name:
                taken[name] = value
    if not taken:
        return fn
    if known.last is fn and are_those(taken, known.last_taken):
        return known.last_copy
    variables = Variables(taken)
    variables.around = around
    for name in AROUND if known.imports else AROUND[:2]:
        if name in around:
            variables[name] = around[name]
    copy = with_cells(fn, fn.__closure__, variables)
    is_plain = fn.__closure__ is None and all([type(value) in CONSTANTS for value in taken.values()])
    known.last, known.last_taken, known.last_copy = (fn, taken, copy) if is_plain else (None, None, None)
    return copy


def with_globals_of_partial(fn):
    """A partial function of a function with its global variables as they are now; anything else is what it is."""
    if type(fn) is not functools.partial:
        return fn
    inner = with_globals(fn.func)
    return fn if inner is fn.func else functools.partial(inner, *fn.args, **fn.keywords)


def are_those(taken: dict, before: dict):
    """Whether variables are the very objects that they were."""
    same = [before.get(name, taken) is value for name, value in taken.items()]
    return len(taken) == len(before) and all(same)


def stored_names(fn):
    """The variables of functions around it that a function assigns to."""
    known: Names = names_in(fn.__code__)
    return known.stored


@cython.final
@cython.cclass
class Names:
    """What code, and code in it, does with variables of its surroundings.

    `stored` are the cells it assigns to, `read` the globals that it reads and does not assign to; it `imports`, or not.
    `last` is the function whose copy is `last_copy`, with the globals `last_taken`: a constant of a module need not be
    taken anew for each task.
    """

    def __init__(self, code):
        stored, read, assigned = set(), set(), set()
        self.imports = False
        self.last = self.last_taken = self.last_copy = None
        left = [code]
        while left:
            one = left.pop()
            left += [constant for constant in one.co_consts if type(constant) is types.CodeType]
            for instruction in dis.get_instructions(one):
                name = instruction.opname
                if name in ("STORE_DEREF", "DELETE_DEREF"):
                    stored.add(instruction.argval)
                elif name in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                    assigned.add(instruction.argval)
                elif name in ("LOAD_GLOBAL", "LOAD_NAME"):
                    read.add(instruction.argval)
                elif name == "IMPORT_NAME":
                    self.imports = True
        self.stored = stored.intersection(code.co_freevars)
        self.read = tuple(sorted(read - assigned))


def names_in(code):
    """What is known of code, as long as it lives."""
    key = id(code)
    known: Names = names.get(key)
    if known is None:
        known = names[key] = Names(code)
        known.reference = weakref.ref(code, functools.partial(forget_names, key))
    return known


def forget_names(key, reference):
    """The code is gone."""
    names.pop(key, None)


# -- mistakes ----------------------------------------------------------------------------------------------------------


def refuse_params(fn):
    """Raise for parameters of a graph that a body holds, which would be no numbers when it runs."""
    if type(fn) is functools.partial:
        refuse_hidden(fn.args)
        refuse_hidden(fn.keywords)
        fn = fn.func
    refuse_hidden(getattr(fn, "__defaults__", None) or ())
    refuse_hidden(getattr(fn, "__kwdefaults__", None) or {})
    for cell in getattr(fn, "__closure__", None) or ():
        try:
            refuse_hidden((cell.cell_contents,))
        except ValueError:
            continue
    return 0


def is_data(value):
    """Whether a value is logical data, of one array or of several."""
    return isinstance(value, DataHandle) or hasattr(value, "expand_mode")


def reject_hidden_data(task, name, handle):
    """Raise unless data that a body mentions are accesses of its task."""
    cores = [part.core for part in getattr(handle, "parts", (handle,))]
    for item in task.accesses:
        access: Access = item
        if access.core in cores:
            return
    raise AccessError(f"task {task.label()} uses logical data '{name}' without an access; pass it")


def check_globals(fn, task):
    """Raise for logical data that a body takes from its module, unless they are accesses of its task."""
    around = fn.__globals__
    for name in fn.__code__.co_names:
        if is_data(around.get(name)) and name in names_in(fn.__code__).read:
            reject_hidden_data(task, name, around[name])
