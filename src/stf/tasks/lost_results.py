"""Results that get lost: what a function computes, and nothing reaches its data.

``def f(x: stf.Read, y: stf.Write): y = 2 * x`` computes an array and drops it; ``2 * x`` alone, with the ``return``
forgotten, never touches ``y``. The bytecode tells, and only what is certain counts: the array that was given is only an
operand before its name is bound anew, or not used at all, and nothing is returned.
"""

from __future__ import annotations

from types import CodeType
from typing import NamedTuple

from stf._support.code_facts import NOTHING, CodeFacts, Step, facts_of, values_in

__all__ = ["LostResults", "lost_results_of", "rebound_in", "untouched_in"]

COMPUTES = frozenset({"+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"})  # a new array each
LIBRARIES = {"np", "numpy", "cp", "cupy", "jnp", "torch"}
NEW_ARRAYS = {  # functions of these that compute a new array from so many arguments, unless they are given one for it
    **dict.fromkeys(("exp", "log", "sqrt", "square", "sin", "cos", "tan", "tanh", "abs", "absolute", "negative"), 1),
    **dict.fromkeys(("relu", "sigmoid", "sign", "floor", "ceil", "isfinite", "isnan", "reciprocal"), 1),
    **dict.fromkeys(("maximum", "minimum", "add", "subtract", "multiply", "divide", "true_divide", "power", "mod"), 2),
    **dict.fromkeys(("matmul", "dot", "hypot", "arctan2", "fmax", "fmin", "logical_and", "logical_or", "outer"), 2),
    **dict.fromkeys(("clip", "clamp", "where"), 3),
    **dict.fromkeys(
        ("cumsum", "sort", "zeros_like", "ones_like", "full_like", "empty_like", "concatenate", "stack"), 1
    ),
}
METHODS = {"clip", "clamp", "copy", "round", "cumsum", "dot", "sum", "mean", "max", "min", "exp", "sqrt", "abs", "relu"}
LOOKERS = {"eval", "exec", "locals", "vars"}


class LostResults(NamedTuple):
    """What the code of a function tells about results that it loses.

    `rebound` are parameters that it binds to something else, with the line; `untouched` those that it never uses, if it
    ends at all; `dropped` are the variables of the first statement that computes something and drops it, and its line,
    or None; it `returns` a value, or not.
    """

    rebound: dict[str, int]
    untouched: frozenset[str]
    dropped: tuple[frozenset[str], int] | None
    returns: bool


def lost_results_of(code: CodeType) -> LostResults:
    """Return what code tells."""
    facts = facts_of(code)
    return LostResults(rebound_in(code), untouched_in(code), dropped_in(facts), facts.returns)


def untouched_in(code: CodeType) -> frozenset[str]:
    """Return the parameters that code never uses, and whose names do not begin with an underscore."""
    facts = facts_of(code)
    if not LOOKERS.isdisjoint(code.co_names) or not any(step.does == "return" for step in facts.steps):
        return frozenset()
    used = {step.name for step in facts.steps if step.of in ("local", "cleared")}
    return frozenset({name for name in facts.parameters if name[0] != "_"} - used - set(code.co_cellvars))


def dropped_in(facts: CodeFacts) -> tuple[frozenset[str], int] | None:
    """Return (variables, line) of the first statement that computes a new array from some, and drops it."""
    for drop in facts.steps:
        value = drop.parts[0] if drop.does == "drop" else NOTHING
        if value.does not in ("compute", "call"):
            continue
        values = list(values_in(value))
        for i, load in enumerate(values):
            method = load.user if load.user.is_load("attribute") else load
            is_its = method.user is value and not any(step.does == "call" for step in values[i:-1])
            if load.is_load("local") and (value.does == "compute" or is_its) and is_operand(load):
                return frozenset(step.name for step in values if step.is_load("local")), load.line
    return None


def rebound_in(code: CodeType) -> dict[str, int]:
    """Return the parameters of a function that it binds to something else and never stores into, with the line where.

    Those whose names begin with an underscore are left out: their author does not use them. So are those that are a
    variable of a comprehension, too.
    """
    facts = facts_of(code)
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    names = {name for name in given if name[0] != "_"} - set(code.co_cellvars)
    if not names or facts.returns or not LOOKERS.isdisjoint(code.co_names):
        return {}
    found: dict[str, int] = {}
    for step in facts.steps:
        if step.of == "cleared":
            names.discard(step.name)
        elif step.of != "local" or step.name not in step.given:
            continue
        elif step.does == "store":
            found.setdefault(step.name, step.line)
        elif step.does == "load" and not is_operand(step):  # it may have been written, or kept
            names.discard(step.name)
    return {name: found[name] for name in given if name in names and name in found}


def description_of_rebound(label: str, name: str, code: CodeType, line: int) -> str:
    """Return the error for a task that binds a parameter, which it is to write, to something else."""
    return (
        f"task '{label}' binds its parameter '{name}' to something else ({code.co_filename}:{line}), so nothing is "
        f"written to its data; write into the array, `{name}[...] = ...`, or return the result, `return ...`"
    )


def description_of_untouched(label: str, name: str) -> str:
    """Return the error for a task that does not use a parameter, which it is to write, and returns nothing."""
    return (
        f"task '{label}' is to write its parameter '{name}', and neither uses it nor returns a value, so nobody would "
        f"write its data; write into the array, `{name}[...] = ...`, return the result, or call the parameter "
        f"'_{name}' if it only orders tasks"
    )


def description_of_dropped(label: str, name: str) -> str:
    """Return the warning for a task that computes something from a parameter, and drops it."""
    return (
        f"task '{label}' computes something from '{name}' and drops it; assign it, `{name}[...] = ...`, change the "
        "array in place, or return the result"
    )


def is_operand(load: Step) -> bool:
    """Return whether a value is computed with, and nothing else: ``y + 1``, ``np.maximum(y, 0)``, ``y.clip(0, 1)``."""
    user = load.user
    if user.does == "compute":
        return user.of != "binary" or user.parts[0] is not load or user.name in COMPUTES
    if user.is_load("attribute"):
        call = user.user
        while call.does == "join":
            call = call.user
        return user.name in METHODS and (call.does != "call" or not call.of)
    callee = user.parts[0] if user.does == "call" and not user.of else load
    library = callee.parts[0] if callee.is_load("attribute") else NOTHING
    is_known = library.is_load("global", "cell") and library.name in LIBRARIES
    return is_known and len(user.parts) - 1 <= NEW_ARRAYS.get(callee.name, 0)
