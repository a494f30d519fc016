"""What a function reaches by names: global variables, and attributes of objects, that its code reads.

A replayed call is right as long as everything is the same that Python read while the call was recorded. Arguments and
closures are compared elsewhere (`call_pattern`, `closure_variables`). This module finds the names behind which the rest
lies, as ``RATE``, ``config.step`` or ``self.model.alpha``. Each is a `Path`, which is read again at each call.

1. `reads_of` asks the code of one function for its names (`Read`). A local variable that is bound once, to such a name,
   stands for that name. What the code stores there before it reads it is its own.
2. `Reached` goes from each name to its value. A function of the user's there is looked at, too; so are the bodies of
   tasks. Of a method, the object is known, and so are the names that its first parameter leads to.
3. A value without a name (an item, a result of a call) may be any object that the function can get hold of. So each
   chain of attributes of such values (`_chains`) is tried on each object that was found (`_objects`), until nothing new
   comes of it.
4. After the call was recorded, `learn` looks at the functions that really ran (see `executed`): names do not lead to a
   function from a list, or to one that a factory made.

Not compared are: containers that the code itself changes (a log, a counter); what is made anew at each reading (a
property that gives a new object); modules and classes of libraries. Some values make each call another one: the time,
random state, files, the environment. A function that reads these is not recorded, and says so (`world`).

Names alone are known before the first call, and cost little at each. A profile function would tell only after a call,
and nothing under a profiler of the user's. So there are both: docs/design/recordings.md.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
import os
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from stf._engine.access import DataHandle
from stf._support.code_facts import NOTHING, Step, facts_of
from stf.graphs.call_pattern import MISSING, Path
from stf.graphs.call_signature import key_of
from stf.graphs.closure_variables import CHANGING, FUNCTIONS, Variable, is_of_users, own_variables, wrapped_by
from stf.tasks.functions import TaskFunction
from stf.tasks.task import ContextCore
from stf.values.containers import is_container

__all__ = ["Reached", "Read", "reads_of"]

OPAQUE = frozenset(("numpy", "stf", "cupy", "numba", "jax", "jaxlib", "builtins"))  # libraries of values
NOW = ("now", "utcnow", "today")
RANDOM = (("random", "Random"), ("numpy.random", "Generator"), ("numpy.random", "RandomState"))
MOST = 256  # functions
MOST_ITEMS = 64  # of a container


class Read(NamedTuple):
    """A name that code reads: a "global", "free", "param" or "module" variable, and attributes from there.

    Of "any", which has no name, only the attributes are known: those of an item, or of what a call returns.
    """

    kind: str
    name: str
    attributes: tuple[str, ...]
    is_called_plainly: bool = False  # without arguments


@functools.lru_cache(maxsize=1024)
def reads_of(code: types.CodeType) -> tuple[Read, ...]:
    """Return what code, and code in it, reads by names, but for what it stores there before."""
    found: dict[Read, int] = {}
    stored: dict[tuple[str, str, tuple[str, ...]], int] = {}
    facts = facts_of(code)
    bound = [step.name for step in facts.steps if step.of == "local" and step.does == "store"]
    own = bound_once(bound, facts.parameters)
    aliases: dict[str, Read] = {}
    followed: set[Step] = set()  # attributes of variables
    module = NOTHING  # that was imported last
    for i, step in enumerate(facts.steps):
        if step.does == "enter":
            found.setdefault(Read("any", "", (step.of,)), i)  # a method that it calls
        elif step.does == "import":
            module = step if step.of == "module" else module
            if (alias := imported(step, module)) is not None and step.user.does == "store" and step.user.name in own:
                aliases[step.user.name] = alias
        elif step.is_load("attribute") and step not in followed:
            found.setdefault(Read("any", "", tuple([each.name for each in chain_from(step)])), i)
        root = root_of(step, code, facts.parameters, bound, aliases)
        if root is None:
            continue
        chain = chain_from(step)
        followed.update(chain)
        last, user = chain[-1], chain[-1].user
        whole = root._replace(attributes=(*root.attributes, *[each.name for each in chain[1:]]))
        found.setdefault(whole._replace(is_called_plainly=user.is_plain_call(0)), i)
        if user.of == "attribute" and user.does in ("store", "delete") and user.parts[-1] is last:
            stored.setdefault((root.kind, root.name, (*whole.attributes, user.name)), i)
        elif user.does == "store" and user.of == "local" and user.name in own:
            aliases[user.name] = whole
    for read in reads_inside(code, facts.parameters, aliases):
        found.setdefault(read, len(facts.steps))
    return tuple([read for read, i in found.items() if stored.get(read[:3], i) >= i])


def bound_once(bound: list[str], parameters: tuple[str, ...]) -> set[str]:
    """Return the local variables that are given a value at one place alone, and are no parameters."""
    return {name for name in bound if name not in parameters and bound.count(name) == 1}


def reads_inside(code: types.CodeType, parameters: tuple[str, ...], aliases: dict[str, Read]) -> Iterator[Read]:
    """Return what the code in it reads, where this code knows what the names mean."""
    for inner in [part for part in code.co_consts if isinstance(part, types.CodeType)]:
        for read in reads_of(inner):
            alias = aliases.get(read.name)
            if read.kind == "param":
                yield read._replace(name="")
            elif read.kind != "free" or read.name in code.co_freevars:
                yield read
            elif read.name in parameters:
                yield read._replace(kind="param")
            elif alias is not None:
                yield alias._replace(attributes=alias.attributes + read.attributes)
            else:
                yield read._replace(kind="any", name="")


def imported(step: Step, module: Step) -> Read | None:
    """Return what a step imports, a module or a name of it; None where that has another name in Python's table."""
    if module is NOTHING or module.parts[0].name != 0:  # of a package's own
        return None
    if step is module:
        return Read("module", module.name, ()) if "." not in module.name else None
    return None if module.parts[1].is_none else Read("module", module.name, (step.name,))


def chain_from(step: Step) -> list[Step]:
    """Return a step, and those that load an attribute of its value, an attribute of that, and so on."""
    chain = [step]
    while chain[-1].user.is_load("attribute"):
        chain.append(chain[-1].user)
    return chain


def root_of(
    step: Step, code: types.CodeType, parameters: tuple[str, ...], bound: list[str], aliases: dict[str, Read]
) -> Read | None:
    """Return what of the surroundings a step loads; None if it loads nothing of them."""
    name = step.name
    if step.is_load("global", "name"):
        return Read("global", name, ())
    if step.is_load("cell"):
        return (
            Read("free", name, ())
            if name in code.co_freevars
            else Read("param", name, ())
            if name in parameters
            else None
        )
    if step.is_load("local", "cleared"):
        return aliases.get(name) or (Read("param", name, ()) if name in parameters and name not in bound else None)
    return None


class Reached:
    """The variables that a function reaches by names, and what of the world makes each call another one.

    `world` is what Python in the function, and in those that it calls, reads of it; `world_of_bodies` is what bodies of
    tasks do.

    Parameters
    ----------
    functions : iterable of (str, callable, dict)
        The way to a function, the function, and its arguments by name.
    """

    def __init__(self, functions: Iterable[tuple[str, Any, dict[str, Any]]]) -> None:
        self.world: str | None = None
        self.world_of_bodies: str | None = None
        self._found: dict[tuple[Any, ...], Variable] = {}
        self._changed: set[tuple[Any, ...]] = set()  # of these, containers that the code changes
        self._seen: set[tuple[int, int]] = set()
        self._left: list[tuple[str, types.FunctionType, dict[str, Any], bool, bool]] = []
        self._chains: dict[tuple[str, ...], None] = {}  # attributes of parameters of functions that it calls
        self._objects: list[tuple[str, Any, Any, tuple[str, ...]]] = []  # what it may give to those, as of `_note`
        for way, fn, arguments in functions:
            self._follow(way, fn, arguments, False, False)
        self._go_on()

    def learn(
        self, ran: Iterable[tuple[types.CodeType, dict[str, Any], dict[str, Any]]], bodies: Iterable[Any]
    ) -> None:
        """Look at functions that ran, by code, globals and objects that they were given, and at bodies of tasks."""
        for code, around, objects in ran:
            self._look_at(f"{code.co_name}.", code, around, objects, False, True)
        for body in bodies:
            self._follow(f"{getattr(body, '__name__', 'body')}.", body, {}, True, True)
        self._go_on()

    def _go_on(self) -> None:
        """Look at all that was found to be called, until nothing new is."""
        pairs = 0
        while self._left or pairs < len(self._objects) * len(self._chains):
            while self._left and len(self._seen) < MOST:
                self._look(*self._left.pop())
            self._left.clear()
            pairs = len(self._objects) * len(self._chains)
            for what in itertools.product(list(self._objects), list(self._chains)):
                self._try(*what)

    def _try(self, known: tuple[str, Any, Any, tuple[str, ...]], chain: tuple[str, ...]) -> None:
        """Note what an object has by these names; of a method, look at what that reads, and those that it overrides."""
        name, around, base, attributes = known
        value = Path(around, base, (*attributes, chain[0])).read()
        if isinstance(value, types.MethodType):
            for kind in type(value.__self__).__mro__:
                fn = vars(kind).get(chain[0])
                if isinstance(fn, types.FunctionType):
                    self._follow(f"{name}.", types.MethodType(fn, value.__self__), {}, False, True)
        elif value is not MISSING:
            self._note(".".join((name, *chain)), around, base, (*attributes, *chain))

    @property
    def variables(self) -> dict[tuple[Any, ...], Variable]:
        """What is to be compared."""
        return {mark: variable for mark, variable in self._found.items() if mark not in self._changed}

    def _follow(self, way: str, fn: Any, roots: dict[str, Any], is_body: bool, is_far: bool) -> None:
        """Look at a function later, too; of a method, the object is the root "" of what it reads."""
        if isinstance(fn, TaskFunction):
            self._follow(way, fn.fn, {}, True, is_far)
        elif isinstance(fn, functools.partial):
            names = fn.func.__code__.co_varnames if isinstance(fn.func, types.FunctionType) else ()
            self._follow(way, fn.func, {**dict(zip(names, fn.args, strict=False)), **fn.keywords}, is_body, is_far)
        elif isinstance(fn, types.MethodType):
            self._follow(way, fn.__func__, {"": fn.__self__}, is_body, is_far)
        elif not isinstance(fn, types.FunctionType):
            inner = wrapped_by(fn)
            is_call = "__wrapped__" not in getattr(fn, "__dict__", {})
            if inner is not None:
                self._follow(way, inner, {"": fn} if is_call else {}, is_body, is_far)
        elif is_of_users(fn.__code__.co_filename) and (fn.__module__ or "").partition(".")[0] not in OPAQUE:
            if "" in roots:
                roots = dict.fromkeys(fn.__code__.co_varnames[: min(fn.__code__.co_argcount, 1)], roots[""])
            mark = id(fn), id(next(iter(roots.values()), None))
            if mark not in self._seen:
                self._seen.add(mark)
                self._left.append((way, fn, roots, is_body, is_far))

    def _look(self, way: str, fn: types.FunctionType, roots: dict[str, Any], is_body: bool, is_far: bool) -> None:
        """Find what one function reaches; those that are not `is_far` have their closures compared elsewhere."""
        for variable in own_variables(way, fn) if is_far else ():
            if not isinstance(variable.content, FUNCTIONS):
                self._found.setdefault((id(variable.cell),), variable)
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        known = {name: content_of(cell) for name, cell in cells} | roots
        self._look_at(way, fn.__code__, fn.__globals__, known, is_body, is_far)

    def _look_at(
        self,
        way: str,
        code: types.CodeType,
        variables: dict[str, Any],
        known: dict[str, Any],
        is_body: bool,
        is_far: bool,
    ) -> None:
        """Find what code reaches, with global variables, and what is `known` of those of functions."""
        for read in reads_of(code):
            around = {"global": variables, "module": sys.modules}.get(read.kind)
            if around is not None:
                value = around.get(read.name, open if read.name == "open" else MISSING)
            else:
                value = known.get(read.name, MISSING)
                if value is MISSING and read.kind != "free" and read.attributes:
                    self._chains[read.attributes] = None
            if value is not MISSING:
                self._walk(way, read, value, around, is_body, is_far)

    def _walk(self, way: str, read: Read, value: Any, around: Any, is_body: bool, is_far: bool) -> None:
        """Go from a variable to the attribute that is read."""
        base = read.name if around is not None else value
        is_ours, count = True, 0
        for name in read.attributes:
            if isinstance(value, (types.ModuleType, type)):
                is_ours = is_ours and is_of_user(value)
            elif not (has_attributes(value) or (isinstance(value, tuple) and hasattr(type(value), "_fields"))):
                break
            value = Path(None, value, (name,)).read()
            count += 1
        attributes, rest = read.attributes[:count], read.attributes[count:]
        for known in (value, Path(None, value, rest).read()):
            self._note_world(known, read, is_body)
        if not is_ours or isinstance(value, (types.ModuleType, ContextCore)):
            return
        name = ".".join((way + read.name, *attributes))
        if isinstance(value, FUNCTIONS) or wrapped_by(value) is not None:
            self._follow(f"{name}.", value, {}, is_body, is_far or around is not None or count > 0)
        if isinstance(value, types.MethodType):  # another one at each reading
            self._objects.append((f"{name}.self", around, base, (*attributes, "__self__")))
            return self._note(f"{name}.self", around, base, (*attributes, "__self__"))
        if isinstance(value, (types.BuiltinFunctionType, type)):
            return None
        if around is not None or attributes:
            self._note(name, around, base, attributes)
        if rest and rest[0] in CHANGING and is_container(value):
            self._changed.add(mark_of_path(around, base, attributes))
        if has_attributes(value) and not isinstance(value, FUNCTIONS):
            self._objects.append((name, around, base, attributes))
        elif type(value) in (list, tuple, dict):
            self._look_into(name, value, is_body)
        return None

    def _look_into(self, name: str, container: Any, is_body: bool) -> None:
        """Look at the objects and functions in a container; which items these are is compared with it."""
        for item in itertools.islice(leaves_of(container), MOST_ITEMS):
            if isinstance(item, FUNCTIONS):
                self._follow(f"an item of {name}.", item, {}, is_body, True)
            if has_attributes(item):
                self._objects.append((f"an item of {name}", None, item, ()))

    def _note_world(self, value: Any, read: Read, is_body: bool) -> None:
        """See whether a value is what makes each call another one."""
        description = description_of_world(value, read)
        if is_body:
            self.world_of_bodies = self.world_of_bodies or description
        else:
            self.world = self.world or description

    def _note(self, name: str, around: Any, base: Any, attributes: tuple[str, ...]) -> None:
        """Remember a name: attributes of an object, or of a global variable, which has a name."""
        mark = mark_of_path(around, base, attributes)
        if mark in self._found:
            return
        path = Path(around, base, attributes)
        known, again = path.read(), path.read()
        if known is again or not has_attributes(known) or key_of(known) == key_of(again):
            self._found[mark] = Variable(
                name, path, True
            )  # else it is made anew at each reading: nothing is known of it


def leaves_of(container: Any, depth: int = 3) -> Iterator[Any]:
    """Yield the items of a list, a tuple or a dict, and those of such items: so many in one another."""
    for item in container.values() if type(container) is dict else container:
        if depth and type(item) in (list, tuple, dict):
            yield from leaves_of(item, depth - 1)
        else:
            yield item


def mark_of_path(around: Any, base: Any, attributes: tuple[str, ...]) -> tuple[Any, ...]:
    """Return what is the same for the same names."""
    return (id(base), attributes) if around is None else (id(around), base, attributes)


def content_of(cell: types.CellType) -> Any:
    """Return what a variable of a closure is; `MISSING` if it is bound later."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def has_attributes(value: Any) -> bool:
    """Return whether a value is an object whose attributes count one by one."""
    kind = type(value)
    if isinstance(value, (DataHandle, ContextCore, types.FunctionType)) or is_container(value):
        return False
    return kind.__module__.partition(".")[0] not in OPAQUE and not hasattr(kind, "__dlpack__")


def is_of_user(value: Any) -> bool:
    """Return whether a module, or a class, is none of a library's."""
    module = sys.modules.get(value.__module__) if isinstance(value, type) else value
    name = getattr(module, "__name__", "")
    if module is None or name == "__main__":
        return True
    file = getattr(module, "__file__", None)
    if file is None:
        return getattr(module, "__spec__", None) is None
    return name.partition(".")[0] not in OPAQUE and is_of_users(file)


def description_of_world(value: Any, read: Read) -> str | None:
    """Return what of the world, which is another one at each call, a value gives; None if it gives none."""
    name = ".".join((read.name, *read.attributes))
    if value is os.environ or value is os.getenv:
        return f"the environment ('{name}')"
    owner = getattr(value, "__self__", None)
    if isinstance(value, types.BuiltinFunctionType) and value.__module__ == "time" and value.__name__ != "sleep":
        return f"the time ('{name}')"
    date = loaded("datetime", "date")
    if isinstance(owner, type) and date is not None and issubclass(owner, date):
        return f"the time ('{name}')" if getattr(value, "__name__", "") in NOW else None
    if owner is not None and isinstance(owner, random_kinds()):
        return f"random state ('{name}')"
    if value is open:
        return f"files ('{name}')"
    if isinstance(owner, contextvars.ContextVar):
        return f"a context variable ('{name}')"
    if read.is_called_plainly and value is not None and value is loaded("numpy.random", "default_rng"):
        return f"random state ('{name}')"
    return None


def random_kinds() -> tuple[Any, ...]:
    """Return the types of random state, of modules that somebody has loaded."""
    return tuple([kind for name in RANDOM if (kind := loaded(*name)) is not None])


def loaded(module: str, name: str) -> Any:
    """Return what a module has by a name; None if nobody has loaded it."""
    return getattr(sys.modules.get(module), name, None)
