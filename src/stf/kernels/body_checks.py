"""What is refused before anything is compiled, by a body's instructions: compilers would drop it without a word."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stf._engine.access import WRITE
from stf._support.code_facts import NOTHING, Step, codes_in, facts_of, values_in
from stf.kernels.captured import attribute_names, global_names, is_users_module, variables_read
from stf.tasks.lost_results import rebound_in, untouched_in

__all__ = ["must_be_plain", "must_contribute", "must_not_fail", "must_store", "returns_of"]

WHOLE = (None, ..., slice(None))  # constants of an index, of ``x[:]``
COMPUTES = ("binary", "compare", "unary")
NO_FUNCTION = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@functools.lru_cache(maxsize=1024)
def returns_of(code: types.CodeType) -> tuple[tuple[int, str, int], ...]:
    """For each return of a function its line, and what it returns.

    That is ``"none"``, ``"value"``, ``"tuple"`` with so many items, or ``""`` for what the instructions do not say,
    such as the result of a call.
    """
    found = []
    for step in [step for step in facts_of(code).steps if step.does == "return"]:
        value = step.parts[0]
        is_value = value.does in ("compute", "build") or value.is_load("constant", "local", "cell", "item")
        what = "none" if value.is_none else "tuple" if value.of == "tuple" else "value" if is_value else ""
        found.append((step.line, what, len(value.parts) if what == "tuple" else 0))
    return tuple(found)


def must_contribute(body: types.FunctionType, count: int, where: str) -> None:
    """Raise TypeError unless a body returns what so many reductions take.

    Of what it gets from a call nothing is known here; `contributions` looks at its type.
    """
    for line, what, items in returns_of(body.__code__):
        if count == 0 and what in ("value", "tuple"):
            raise TypeError(
                f"{where} returns a value in line {line}, which nothing takes; store it in an array, or pass a "
                "reduction, lS.reduce(op)"
            )
        if count and what == "none":
            raise TypeError(
                f"{where} returns nothing in line {line}; return what it contributes, and what is neutral for the "
                "operator where that is nothing"
            )
        if count and what == "tuple" and (count == 1 or items != count):
            raise TypeError(f"{where} returns {items} values in line {line}, for {count} scalars that are reduced into")


def must_store(body: types.FunctionType, first: int, items: tuple[Any, ...], where: str, is_one: bool = True) -> None:
    """Raise TypeError for a body that does not write an array as it says: `items` are given from parameter `first` on.

    It binds the parameter to something else, or changes what it only reads, or all of an array for each element; or,
    unless it `is_one` element, each adds to one place, at the same time, so that most of what they add is lost. GPUs
    refuse some of that, too, with words about types.

    Parameters
    ----------
    body : function
    first : int
        Of the parameters that stand for `items`.
    items : tuple of Access or None
        None for arrays that are reduced into.
    where : str
        What messages call the body.
    is_one : bool
        Whether the body runs for one element alone, or finds out by itself what it works on.
    """
    code = body.__code__
    given = dict(zip(code.co_varnames[first : first + len(items)], items, strict=False))
    arrays = {name for name, item in given.items() if item is None or item.mode & WRITE or item.data.core.layout.shape}
    written = {name for name in arrays if given[name] is None or given[name].mode & WRITE}
    for name, line in rebound_in(code).items():
        if name in written:
            raise TypeError(
                f"{where} binds its parameter '{name}' to something else in line {line}, so nothing is written to its "
                f"data; write an element, `{name}[...] = ...`"
            )
    untouched = untouched_in(code)
    for name, item in given.items():
        if name in untouched and item is not None and item.mode == WRITE:
            raise TypeError(
                f"{where} is to write its parameter '{name}', and never uses it, so nothing would write its data; "
                f"write an element, `{name}[...] = ...`, or call the parameter '_{name}' if it only orders tasks"
            )
    for name, line in dropped_from(code, arrays):
        raise TypeError(
            f"{where} computes something from '{name}' in line {line} and drops it; store it, `y[...] = ...`"
        )
    for name, line in changed_in(code):
        if name in arrays - written:
            refuse_read_only(where, name, line)
        if name in written:
            refuse_whole(where, name, line)
    refuse_uses(body, arrays - written, written, where)
    for name, line, is_whole in () if is_one else changed_for_all(code):
        if name not in written or given[name] is None:
            continue
        if not is_whole:
            raise TypeError(
                f"{where} adds to one place of '{name}' in line {line}, for all elements at the same time, which loses "
                "most of it; return what each contributes, and pass a reduction, lS.reduce(stf.reducer.sum)"
            )
        if given[name].data.core.layout.shape:
            refuse_whole(where, name, line)


def refuse_uses(body: types.FunctionType, read: set[str], written: set[str], where: str) -> None:
    """Raise TypeError for a body that computes with all of an array that it writes, or writes one that it does not."""
    around = arrays_around(body)
    for use, name, line in uses_of(body.__code__):
        if use == "compute":
            if name in written:
                raise TypeError(
                    f"{where} computes with all of '{name}' in line {line}, while other elements change it; name an "
                    f"element, `{name}[i]`"
                )
        elif name in read:
            refuse_read_only(where, name, line)
        elif name in around:
            raise TypeError(
                f"{where} writes in line {line} to '{name}', an array around it, of which kernels get a copy; register "
                "it with ctx.logical_data and pass an access"
            )


def dropped_from(code: types.CodeType, arrays: set[str]) -> Iterator[tuple[str, int]]:
    """Return the arrays of whose elements a statement computes a number that nothing takes, and the line."""
    for step in facts_of(code).steps:
        value = step.parts[0] if step.does == "drop" else NOTHING
        if value.does == "compute" and value.of in COMPUTES:
            names = [one.name for one in values_in(value) if one.is_load("local") and one.name in arrays]
            if names:
                yield names[0], value.line


def refuse_whole(where: str, name: str, line: int) -> None:
    """Raise TypeError for a change of a whole array by each element."""
    raise TypeError(
        f"{where} changes all of '{name}' in line {line}, and does so for each element; change one element, "
        f"`{name}[i] = ...`, or return what each contributes, and pass a reduction, lS.reduce(stf.reducer.sum)"
    )


def refuse_read_only(where: str, name: str, line: int) -> None:
    """Raise TypeError for a write to what is only read."""
    raise TypeError(f"{where} writes in line {line} to '{name}', which it only reads; pass it with rw() or write()")


def arrays_around(fn: types.FunctionType) -> set[str]:
    """The variables around a function that hold arrays of NumPy's, unless it has variables of its own of that name."""
    found = dict(cells_of(fn))
    found |= {name: fn.__globals__[name] for name in global_names(fn.__code__) if name in fn.__globals__}
    return {name for name, value in found.items() if type(value) is np.ndarray} - set(fn.__code__.co_varnames)


def changed_for_all(code: types.CodeType) -> Iterator[tuple[str, int, bool]]:
    """The arrays that a body surely changes at an index that is the same for all elements, before any branch.

    With the line, and whether that is all of the array: ``x[:] = ...``. Else it adds: ``x[0] += ...``, or ``x[0] = x[0]
    + ...``; what it only sets may be a flag.
    """
    read: set[tuple[str, Any]] = set()
    for step in facts_of(code).steps:
        if step.does == "jump" and step.of != "always":
            return  # what comes now may be for some of them alone
        if step.of != "item" or step.does == "delete":
            continue
        array, *index = step.parts[step.does == "store" :]
        constants = [constant_of(part) for part in index]
        if not array.original.is_load("local") or None in constants:
            continue
        place = (array.original.name, tuple(constants))
        if (step.does == "load" and array.does == "copy") or (step.does == "store" and place in read):
            yield array.original.name, array.line, False
        elif step.does == "load":
            read.add(place)
        elif all(one.name in WHOLE for part in index for one in values_in(part) if one.is_load("constant")):
            yield array.original.name, array.line, True


def constant_of(step: Step) -> str | None:
    """Return a constant of an index as a text, also of a slice or a tuple of constants; None for anything else."""
    step = step.original
    if step.is_load("constant"):
        return repr(step.name)
    parts = [constant_of(part) for part in step.parts]
    return f"{step.of}{parts}" if step.of in ("slice", "tuple") and None not in parts else None


def changed_in(code: types.CodeType) -> Iterator[tuple[str, int]]:
    """Return the parameters that a body changes as a whole, by ``x += ...``, and the line."""
    for step in facts_of(code).steps:
        if step.does == "store" and step.of == "local" and step.parts[0].is_in_place and step.name in step.given:
            yield step.name, step.line


def uses_of(code: types.CodeType) -> Iterator[tuple[str, str, int]]:
    """Return what a body does with variables that hold arrays: ``"store"`` or ``"compute"``, the name, and the line.

    It stores by ``x[...] = ...``, and computes with all of an array by ``2 * x``. A parameter counts as long as it may
    be what the body was given.
    """
    for step in facts_of(code).steps:
        is_store = step.does == "store" and step.of == "item"
        if not is_store and (step.does != "compute" or step.of not in COMPUTES or step.is_in_place):  # see `changed_in`
            continue
        for part in step.parts[1:2] if is_store else step.parts:
            one = part.original
            if one.is_load("cell", "global") or (one.is_load("local") and one.name in one.given):
                yield "store" if is_store else "compute", one.name, step.line


def must_draw_once(body: types.FunctionType, generators: tuple[str, ...], where: str) -> None:
    """Raise TypeError if a body draws two numbers for an element, and does not say which: both would be the same."""
    steps = facts_of(body.__code__).steps
    back = [(step.name, step.offset) for step in steps if step.does == "jump" and isinstance(step.name, int)]
    names = generators_by_name(steps, generators)
    methods = methods_by_name(steps, names)
    seen: set[tuple[str, str]] = set()
    for code in codes_in(body.__code__):
        is_inner = code is not body.__code__  # a function in the body, which may be called several times
        visible = {name: owners for name, owners in names.items() if not is_inner or name in code.co_freevars}
        bound = {name: owners for name, owners in methods.items() if not is_inner or name in code.co_freevars}
        for step in facts_of(code).steps:
            if step.does != "call" or len(step.parts) > 2:
                continue
            drawn = {draw for leaf in leaves_of(step) for draw in draws_of(leaf, visible, bound)}
            repeats = is_inner or any(target <= step.offset <= source for target, source in back if target < source)
            if drawn and (repeats or drawn & seen):
                owner, method = min(drawn)
                often = "in a function inside of it" if is_inner else "several times for an element"
                raise TypeError(
                    f"{where} calls {owner}.{method} {often} in line {step.line}, which gives the same number each "
                    f"time; say which draw it is: {owner}.{method}(i, k)"
                )
            seen |= drawn


def leaves_of(step: Step) -> Iterator[Step]:
    """Return what the first value that a step takes may be, behind copies and jumps."""
    open_steps = list(step.parts[:1])
    while open_steps:
        one = open_steps.pop()
        if one.does in ("copy", "join"):
            open_steps += one.parts
        else:
            yield one


def generators_by_name(steps: Sequence[Step], generators: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the generators that each variable of a body may be: the parameters, and variables that they go to."""
    names = {name: {name} for name in generators}
    for step in steps:
        if step.does == "store" and step.of in ("local", "cell"):
            for leaf in leaves_of(step):
                if leaf.is_load("local", "cell") and leaf.name in names:
                    names[step.name] = names.get(step.name, set()) | names[leaf.name]
    return names


def methods_by_name(steps: Sequence[Step], names: dict[str, set[str]]) -> dict[str, set[tuple[str, str]]]:
    """Return the methods of generators that each variable of a body may be, as after ``u = g.uniform``."""
    methods: dict[str, set[tuple[str, str]]] = {}
    for step in steps:
        if step.does == "store" and step.of in ("local", "cell"):
            methods.setdefault(step.name, set()).update(*(draws_of(leaf, names, methods) for leaf in leaves_of(step)))
    return methods


def draws_of(
    value: Step, names: dict[str, set[str]], methods: dict[str, set[tuple[str, str]]]
) -> Iterator[tuple[str, str]]:
    """Return the generator and the kind of each draw that a value may be: ``g.uniform``, or a variable of it."""
    if value.is_load("attribute") and value.name in ("uniform", "normal"):
        for owner in leaves_of(value):
            if owner.is_load("local", "cell"):
                yield from ((name, value.name) for name in names.get(owner.name, ()))
    elif value.is_load("local", "cell"):
        yield from tuple(methods.get(value.name, ()))


def must_be_plain(body: types.FunctionType, where: str) -> None:
    """Raise TypeError for a body that is more than a function of its arguments, or calls such a function."""
    for fn in functions_of(body, set()):
        who = where if fn is body else f"{where} calls '{fn.__name__}', which"
        if fn.__code__.co_flags & NO_FUNCTION:
            raise TypeError(
                f"{who} is a coroutine or a generator, which kernels cannot run; write it with def, no yield"
            )
        for code in codes_in(fn.__code__):
            for step in facts_of(code).steps:
                is_around = step.of == "global" or (step.of == "cell" and step.name in fn.__code__.co_freevars)
                if step.does == "store" and is_around:
                    raise TypeError(
                        f"{who} assigns to '{step.name}', a variable around it, in line {step.line}, which kernels "
                        "cannot: elements run beside each other; return what each contributes, and pass a reduction, "
                        "lS.reduce(stf.reducer.sum)"
                    )
            names = (*code.co_varnames, *code.co_cellvars, *code.co_freevars, *code.co_names)
            ours = next((name for name in names if name.startswith("_stf_")), None)
            if ours is not None:
                raise TypeError(
                    f"{who} has a variable '{ours}'; names that begin with _stf_ are those of stf, rename it"
                )


def must_not_fail(body: types.FunctionType, where: str) -> None:
    """Raise TypeError if a body, or a function that it calls, raises or catches, which GPUs do not."""
    for fn in functions_of(body, set()):
        for code in codes_in(fn.__code__):
            for step in facts_of(code).steps:
                what = {"raise": "raise or assert", "catch": "try or with"}.get(step.does)
                if what is not None:
                    who = where if fn is body else f"{where} calls '{fn.__name__}', which"
                    raise TypeError(f"{who} has {what}, which GPUs do not; store a flag, or say .on('host')")


def functions_of(fn: types.FunctionType, seen: set[types.FunctionType]) -> Iterator[types.FunctionType]:
    """A function, and those that it calls by global variables and those of its closure."""
    if fn in seen:
        return
    seen.add(fn)
    yield fn
    values = [fn.__globals__.get(name) for name in global_names(fn.__code__)]
    modules = [value for value in values if isinstance(value, types.ModuleType) and is_users_module(value)]
    values += [value for _, value in cells_of(fn)]
    values += [value for one in modules for _, _, value in variables_read(one, attribute_names(fn.__code__))]
    for value in values:
        if isinstance(value, types.FunctionType):
            yield from functions_of(value, seen)


def cells_of(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """The variables of a function's closure that have a value."""
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            yield name, cell.cell_contents
