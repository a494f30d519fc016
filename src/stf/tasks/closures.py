"""What a task's function brings along besides its arguments: its closure, its globals, and what it asks stf for."""

from __future__ import annotations

import functools
import types
import warnings
import weakref

import cython

from stf._support.code_facts import Step, codes_in, facts_of
from stf.errors import AccessError
from stf.tasks.annotations import injected_kind, resolve_annotation
from stf.tasks.last_values import augmented_in, called_in, telling
from stf.tasks.lost_results import (
    description_of_dropped,
    description_of_rebound,
    description_of_untouched,
    lost_results_of,
)
from stf.tasks.not_accesses import is_data
from stf.values.params import refuse_hidden, refuse_reachable


def injections(fn):
    """Parameters annotated ``stf.Stream`` or ``stf.Task``: (name, ``"stream"`` or ``"task"``)."""
    annotations = getattr(fn, "__annotations__", None)
    if not annotations or not is_users(fn):  # our own bodies ask for neither
        return ()
    kinds = [
        (name, injected_kind(resolve_annotation(fn, kind) if isinstance(kind, str) else kind))
        for name, kind in annotations.items()
        if name != "return"
    ]
    return tuple([(name, kind) for name, kind in kinds if kind is not None])


def is_users(fn):
    """Return whether a body is the user's, and not one of stf."""
    return not (getattr(fn, "__module__", None) or "").startswith("stf.")


# -- what a function reads of its surroundings, as it is now -----------------------------------------------------------

names: dict = {}  # by the id of a code object
AROUND = ("__name__", "__builtins__", "__package__", "__spec__", "__file__")  # which Python looks for in globals

OTHER = object()
SHAPES = frozenset(("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides"))
LIKE = frozenset(("zeros_like", "ones_like", "empty_like", "shape", "ndim"))
LOOKERS = ("eval", "exec", "globals", "locals", "vars")  # which may look for any name


def snapshot(fn, task):
    """`fn` with its closure as it is now; data among it must be accesses of the task.

    What it wraps (`functools.wraps`, `functools.partial`) is taken with its own. A cell that one of them, or a function
    that they hold, assigns to (``nonlocal``) stays what all share, and so does one that is still empty.
    """
    scope = task.engine.scope
    if scope.records:
        refuse_params(fn)
        if scope.patient:
            refuse_reachable(fn)
    closure = getattr(fn, "__closure__", None)
    if closure is None or type(fn) is types.MethodType:
        return with_inner(fn, snapshot, task)
    reaches = False
    for name, cell in zip(fn.__code__.co_freevars, closure, strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            continue
        if is_data(content):
            reject_hidden_data(task, name, content)
        reaches = reaches or type(content) is types.FunctionType
    return copied(fn, shared_cells(fn) if reaches or names_in(fn.__code__).stored else ())


def with_inner(fn, change, *args):
    """Return a partial function, or a method, of what ``change(function, *args)`` makes of its function.

    Anything else is what it is.
    """
    if type(fn) is types.MethodType:
        inner = change(fn.__func__, *args)
        return fn if inner is fn.__func__ else types.MethodType(inner, fn.__self__)
    if type(fn) is not functools.partial:
        return fn
    inner = change(fn.func, *args)
    return fn if inner is fn.func else functools.partial(inner, *fn.args, **fn.keywords)


def copied(fn, shared):
    """Return a function with cells of its own, but for the `shared` ones, by id, and for empty ones.

    Its own name, which a decorator binds to the handle later, means the copy.
    """
    wrapped = fn.__dict__.get("__wrapped__")
    cells, own = [], None
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__, strict=True):
        try:
            content = cell.cell_contents
        except ValueError:  # bound later
            if name == fn.__code__.co_name:
                cell = own = types.CellType()
            cells.append(cell)
            continue
        if content is wrapped and type(content) is types.FunctionType and content.__closure__ is not None:
            content = copied(content, shared)
        cells.append(cell if id(cell) in shared else types.CellType(content))
    copy = with_cells(fn, tuple(cells))
    if own is not None:
        own.cell_contents = copy
    return copy


def with_cells(fn, cells, variables=None, code=None):
    """Return the same function with other cells, and perhaps other globals or other code."""
    around = fn.__globals__ if variables is None else variables
    copy = types.FunctionType(fn.__code__ if code is None else code, around, fn.__name__, fn.__defaults__, cells)
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__annotations__ = fn.__annotations__
    if fn.__dict__:
        copy.__dict__.update(fn.__dict__)
    return copy


def shared_cells(fn):
    """Return the ids of the cells that a function, or one that it reaches through cells, assigns to."""
    shared, seen, left = set(), set(), [fn]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        stored = names_in(one.__code__).stored
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
    """Globals of a function, some of which are what they were; the others are looked up `around`.

    `items` has those that were taken. Who asks for a name, or copies all, as kernels do, meets the others too.
    """

    __slots__ = ("around",)

    def __missing__(self, name):
        return self.around[name]

    def __contains__(self, name):
        return dict.__contains__(self, name) or name in self.around

    def __iter__(self):
        return iter(self.keys())

    def keys(self):
        return {**self.around, **dict(dict.items(self))}.keys()

    def get(self, name, default=None):
        return dict.get(self, name, self.around.get(name, default))


def with_globals(fn):
    """`fn` with the numbers, strings and the like that it reads of global variables as they are now.

    So it is for its helpers: functions of its module that it calls by their names, and those that they call. A variable
    that one of them assigns to is looked up when the body runs, as all others are.
    """
    if type(fn) is not types.FunctionType:
        return with_inner(fn, with_globals)
    cells = fn.__closure__
    wrapped = fn.__dict__.get("__wrapped__") if cells is not None else None
    if type(wrapped) is types.FunctionType:
        inner = with_globals(wrapped)
        if inner is not wrapped:
            cells = tuple([types.CellType(inner) if holds(cell, wrapped) else cell for cell in cells])
    taken: Taken = Taken(fn)
    if taken.variables is None and cells is fn.__closure__:
        return fn
    return with_cells(fn, cells, taken.variables)


def holds(cell, value):
    """Return whether a cell contains just this value."""
    try:
        return cell.cell_contents is value
    except ValueError:
        return False


@cython.final
@cython.cclass
class Taken:
    """What a function takes of global variables: `variables` are its globals with those as they were, or None.

    `names` are all that it and its helpers read, `values` those of numbers, strings and functions, which tell whether
    it would take the same again; of other variables nothing is kept but that they are none of these (`OTHER`).
    """

    def __init__(self, fn):
        known: Names = names_in(fn.__code__)
        self.around = fn.__globals__
        self.names, self.values = [], []
        self.variables = self.copy = None
        if not known.read or not known.is_simple:
            return
        members = self.find_members(fn, known)
        taken = self.constants()
        if not taken:
            return
        for name in assigned_by_others(known, self.around):
            taken.pop(name, None)
        variables = Variables(taken)
        variables.around = self.around
        imports: cython.bint = False
        for name, one in members.items():
            other: Names = names_in(one.__code__)
            imports = imports or other.imports
            if name is not None:
                variables[name] = with_cells(one, one.__closure__, variables)
        for name in AROUND if imports else AROUND[:2]:
            if name in self.around:
                variables[name] = self.around[name]
        self.variables = variables

    def find_members(self, fn, known: Names):
        """Return the function, as None, and its helpers by name; what they read is noted."""
        members = {None: fn}
        left = [known]
        valued = set()  # functions that are used in other ways than by a call, which stay what they are
        seen = set()
        while left:
            one: Names = left.pop()
            for name in one.read:
                value = self.around.get(name, OTHER)
                if name not in seen:
                    seen.add(name)
                    is_compared = type(value) is types.FunctionType or is_constant(value)
                    self.names.append(name)
                    self.values.append(value if is_compared else OTHER)
                if type(value) is not types.FunctionType or value.__globals__ is not self.around:
                    continue
                other: Names = names_in(value.__code__)
                if name not in one.called:
                    valued.add(name)
                elif name not in members and other.is_simple:
                    members[name] = value
                    left.append(other)
        for name in valued:
            members.pop(name, None)
        return members

    def constants(self):
        """Return the numbers, strings and the like, by name."""
        pairs = zip(self.names, self.values, strict=True)
        return {name: value for name, value in pairs if value is not OTHER and is_constant(value)}

    def is_same(self):
        """Return whether the function would take the same now."""
        i: cython.Py_ssize_t
        for i in range(len(self.names)):
            if cython.compiled:
                found = PyDict_GetItemWithError(self.around, self.names[i])
                value = OTHER if found == cython.NULL else cython.cast(object, found)
            else:
                value = self.around.get(self.names[i], OTHER)
            known = self.values[i]
            if value is not known and (known is not OTHER or type(value) is types.FunctionType or is_constant(value)):
                return False
        return True


def constants_of(fn):
    """Return the numbers and strings that a function and its helpers read of global variables.

    None if there are none.
    """
    while type(fn) is functools.partial:
        fn = fn.func
    if type(fn) is not types.FunctionType:
        return None
    taken: Taken = Taken(fn)
    return taken.constants() or None


def assigned_by_others(known: Names, around):
    """The global variables that functions of a module assign to, of those that code with these names may call."""
    assigned, seen, left = set(), set(), list(known.read)
    while left:
        name = left.pop()
        value = around.get(name)
        if name in seen or type(value) is not types.FunctionType or value.__globals__ is not around:
            continue
        seen.add(name)
        other: Names = names_in(value.__code__)
        assigned.update(other.assigned)
        left += other.read
    return assigned


@cython.final
@cython.cclass
class Names:
    """What code, and code in it, does with variables of its surroundings.

    `stored` are the cells it assigns to, `read` and `assigned` the globals, `called` those of the former that it does
    nothing with but call them; it `imports`, or not. It `is_simple` if it looks global variables up in no other way,
    and assigns to none. Of `rebound`, `untouched`, `dropped` and `returns` see `LostResults`. If it has `augmented`
    parameters, `telling` is the code that tells what they are bound to in the end, by the modes of all.
    `looked_into` are variables of either kind of which it does not just ask the shape and the like, `looked_at` the
    global ones that it does not just call; `keys` are, of those from which it takes items alone, the constant keys.
    """

    def __init__(self, code):
        read, assigned, valued, looked_into = set(), set(), set(), set()
        keys: dict = {}
        steps = [step for one in codes_in(code) for step in facts_of(one).steps]
        for step in steps:
            if step.of == "global" and step.does == "load":
                read.add(step.name)
                if not step.is_called:
                    valued.add(step.name)
            elif step.of == "global":
                assigned.add(step.name)
            if step.is_load("global", "cell"):
                user = step.user
                if user.is_load("item") and len(user.parts) == 2 and user.parts[1].is_load("constant"):
                    keys.setdefault(step.name, set()).add(user.parts[1].name)
                elif not is_about_shape(step, user):
                    looked_into.add(step.name)
        self.stored = stored_in(code)
        self.rebound, self.untouched, self.dropped, self.returns = lost_results_of(code)
        self.augmented = bool(augmented_in(code) or called_in(code))
        self.telling = {}
        self.read = tuple(sorted(read - assigned))
        self.called = frozenset(read - valued)
        self.keys = {name: tuple(used) for name, used in keys.items() if name not in looked_into}
        looked_into.update(keys)
        self.looked_into = frozenset(looked_into)
        self.looked_at = tuple(sorted(looked_into & (valued | assigned)))
        self.assigned = tuple(sorted(assigned))
        self.imports = any([step.does == "import" for step in steps])
        has_class = any([step.is_load("name") for step in steps])  # the body of which looks names up
        self.is_simple = not assigned and not has_class and read.isdisjoint(LOOKERS)


def is_about_shape(step: Step, user: Step) -> bool:
    """Return whether a use of a variable asks for what never changes: ``x.shape``, ``len(x)``, ``x is None``."""
    if user.is_load("attribute"):
        return user.name in SHAPES
    if user.does == "jump":
        return user.of == "none"
    if user.of == "is":
        return user.parts[1].is_none
    if not user.is_plain_call(1) or user.parts[1] is not step:
        return False
    callee = user.parts[0]
    return callee.name == "len" if callee.is_load("global") else callee.is_load("attribute") and callee.name in LIKE


def stored_in(code):
    """Return the cells of functions around it that code assigns to, itself or in a function in it."""
    stored = {step.name for step in facts_of(code).steps if step.of == "cell" and step.does != "load"}
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            stored |= stored_in(constant)
    return stored.intersection(code.co_freevars)


def names_in(code):
    """Return what is known of code, as long as it lives."""
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


def refuse_lost(fn, label, modes, first=0, warns=False):
    """Raise for a body that cannot write a parameter with a mode that writes; return whether it owes a result.

    `modes` are those of the parameters from `first` on. A body that owes one does not use a parameter of which the old
    content is gone, so it has to return what is to be there. `warns`: say which computed value it drops.
    """
    if type(fn) is functools.partial and not fn.keywords:
        return refuse_lost(fn.func, label, modes, first + len(fn.args), warns)
    if type(fn) is types.MethodType:
        return refuse_lost(fn.__func__, label, modes, first + 1, warns)
    if type(fn) is not types.FunctionType:
        return False
    known: Names = names_in(fn.__code__)
    may_owe: cython.bint = len(known.untouched) > 0 and WRITE in modes
    if not known.rebound and not may_owe and (known.dropped is None or not warns):
        return False
    owes: cython.bint = False
    written = set()
    for name, mode in zip(facts_of(fn.__code__).parameters[first:], modes, strict=False):
        if mode & ~READ:
            written.add(name)
            if name in known.rebound:
                raise TypeError(description_of_rebound(label, name, fn.__code__, known.rebound[name]))
        if mode == WRITE and name in known.untouched:
            if not known.returns:
                raise TypeError(description_of_untouched(label, name))
            owes = True
    if warns and not known.returns and known.dropped is not None and not written.isdisjoint(known.dropped[0]):
        names_of_dropped, line = known.dropped
        message = description_of_dropped(label, min(written & names_of_dropped))
        module = fn.__module__ or "__main__"  # for None nothing is said
        warnings.warn_explicit(message, RuntimeWarning, fn.__code__.co_filename, line, module)
    return owes


def with_last_values(fn, modes):
    """`fn`, or a copy that returns what it has bound its written parameters to, if that may be something else."""
    if type(fn) is not types.FunctionType:
        return fn
    known: Names = names_in(fn.__code__)
    if not known.augmented:
        return fn
    key = tuple(modes)
    code = known.telling.get(key, OTHER)
    if code is OTHER:
        code = known.telling[key] = telling(fn.__code__, key)
    return fn if code is None else with_cells(fn, fn.__closure__, None, code)


def reaches(fn, value):
    """Return whether a function has a value in its closure, or in a global variable that it names."""
    if type(fn) is not types.FunctionType:
        return False
    for cell in fn.__closure__ or ():
        if holds(cell, value):
            return True
    known: Names = names_in(fn.__code__)
    return any([fn.__globals__.get(name) is value for name in known.read])


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
