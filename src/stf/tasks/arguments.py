"""Arguments of task functions: what a parameter takes, and what may stand where no data do."""

from __future__ import annotations

import threading

import cython

from stf._engine import host_waits
from stf.errors import ContextClosedError
from stf.tasks.parameters import is_access, wrong_elements
from stf.values.conditions import Expression
from stf.values.containers import items_of
from stf.values.params import refuse_hidden, refuse_reachable, with_params
from stf.values.random_numbers import Random, generator_of, must_be_of


class Parameter:
    """One parameter of a task function: its access mode, or 0; `optional` where None does for data.

    `library` is that of its arrays, `element` the type of their elements; None for any. It `takes_any` access if it has
    no annotation, and this call's argument is one. It `takes_data` if these stay as they are, for the body to submit.
    """

    def __init__(self, name, kind, mode=0, op=None, library=None, optional=False, element=None):
        self.optional = optional
        self.name = name
        self.kind = kind
        self.mode = mode
        self.op = op
        self.library = library
        self.element = element if mode else None
        self.takes_data = mode == 0 and element is not None
        self.takes_any = False


def gives_accesses(parameters, values):
    """Return whether arguments of parameters without an annotation are accesses."""
    i: cython.int
    for i in range(len(values)):
        value = values[i]
        parameter = cython.cast(Parameter, parameters[i])
        if parameter.mode or value is None or type(value) is float or type(value) is int:
            continue
        if is_access(value) or (parameter.kind in ("*", "**") and any(map(is_access, items_of(value)))):
            return True
    return False


def is_plain(value):
    """Return whether an argument is no data, nor made of data."""
    return not (isinstance(value, (DataHandle, Access, Expression, Random)) or hasattr(value, "expand_mode"))


def remedy_for(value):
    """Return what to do about data where a parameter has no access mode."""
    if isinstance(value, Expression):
        return "assign it to zero-dimensional data, which the task reads: s.assign(expression)"
    if isinstance(value, Random):
        return "annotate it stf.Random; the body gets a generator of NumPy, CuPy or torch"
    return (
        "annotate it stf.Read, stf.Write or stf.ReadWrite, or pass an access, such as x.read(); stf.Data, if the body "
        "is to submit tasks with it"
    )


def check_params(engine, values, kinds):
    """Raise for parameters of a graph among a task's arguments where no graph is, or where they are hidden."""
    i: cython.int
    for i in range(len(values)):
        kind = type(values[i])
        if kind is float or kind is int or isinstance(values[i], DataHandle):
            continue
        several: cython.bint = kinds is not None and kinds[i][1] in ("*", "**")
        for item in (values[i] if kind is tuple else items_of(values[i])) if several else (values[i],):
            if isinstance(item, Asked):
                item.must_be_recorded()
        if engine.scope.runs_once:
            continue
        if several:
            values[i] = with_params(values[i])
        if not isinstance(values[i], Asked):
            refuse_hidden((values[i],))
            if engine.scope.patient:
                refuse_reachable(values[i])
    return 0


def with_further(before, parameter, values):
    """Return accesses, and those of the data of ``*args``; None where these are something else, or need a look."""
    if parameter.mode == ACCUMULATE:
        return None
    found: list = []
    for value in values:
        if not isinstance(value, DataHandle) or cython.cast(DataHandle, value).core.is_result:
            return None
        found.append(make_access(cython.cast(DataHandle, value), parameter.mode, None))
    accesses: tuple = before + tuple(found)
    if cython.compiled:
        untrack(accesses)  # as accesses are not tracked either
    return accesses


def flattened(values):
    """Return arguments for a call by position alone: those of ``*args``, which are the last, one by one."""
    found: list = values[: len(values) - 1]
    found.extend(values[len(values) - 1])
    return found


def without_mode(name, parameter: Parameter, value):
    """Return the error for data of task `name` where nobody says how they are used."""
    return TypeError(
        f"parameter '{parameter.name}' of task '{name}' has no access mode, got {value!r}; {remedy_for(value)}"
    )


def check_variadic(name, parameters, kinds, values):
    """Raise TypeError for data among the arguments of ``*args`` or ``**kwargs`` that have no access mode."""
    i: cython.int
    for i in range(len(values)):
        parameter: Parameter = parameters[i]
        if parameter.mode == 0 and not parameter.takes_data and kinds[i][1] in ("*", "**"):
            for item in values[i].values() if kinds[i][1] == "**" else values[i]:
                if not is_plain(item):
                    raise without_mode(name, parameter, item)
    return 0


def check_access(name, parameter: Parameter, access, op):
    """Raise TypeError unless an access that was passed is what the parameter's annotation says, if it has one."""
    if parameter.takes_any:
        return 0
    if access.mode != parameter.mode:
        less = access.mode & ~parameter.mode
        raise TypeError(
            f"parameter '{parameter.name}' of task '{name}' is opened for {'less' if less else 'more'} than "
            f"the access passed: {access!r}; pass the logical data, or change the annotation"
        )
    if op is not parameter.op:
        raise TypeError(
            f"parameter '{parameter.name}' of task '{name}' accumulates with {parameter.op!r}, and the "
            f"access passed with {op!r}; pass the logical data, or change the annotation"
        )
    return 0


def not_data(name, parameter, value):
    """Return the error for an argument of task `name` that is no data, nor a container of them."""
    takes = f"parameter '{parameter.name}' of task '{name}' takes logical data"
    if isinstance(value, TaskCore):
        return TypeError(
            f"{takes}, got a task: a call of a task function returns its handle; pass the data that it writes"
        )
    if threading.get_ident() in host_waits.RUNNING:
        return TypeError(
            f"{takes}, got {type(value).__name__}: the body of a task has arrays; call the function itself there, "
            f"{name}.fn(...)"
        )
    return TypeError(
        f"{takes} (or a list, tuple, dict, dataclass or object of them), got {type(value).__name__}; register the "
        "array with ctx.logical_data"
    )


def refuse_container(task_name, parameter_name):
    """Raise for several data in one parameter that JAX arrays are to be written through."""
    raise TypeError(
        f"parameter '{parameter_name}' of task '{task_name}' holds several data, and JAX arrays are written by what "
        "the body returns; pass each as a parameter of its own"
    )


def check_elements(parameters, values, name):
    """Raise TypeError for data of a call of `name` whose elements are not of the type that an annotation says."""
    i: cython.int
    for i in range(len(values)):
        parameter: Parameter = parameters[i]
        if parameter.element is None:
            continue
        wrong = wrong_elements(values[i], parameter.element)
        if wrong is not None:
            raise TypeError(
                f"parameter '{parameter.name}' of task '{name}' takes elements of type "
                f"{getattr(parameter.element, '__name__', parameter.element)}, got {wrong.core.describe()}; "
                "convert the array, or change the annotation"
            )
    return 0


def refuse_registered(parameters, values, task):
    """Raise AccessError for registered arrays among plain arguments."""
    i: cython.int
    for i in range(len(values)):
        parameter: Parameter = parameters[i]
        if parameter.mode == 0 and type(values[i]) is not float and type(values[i]) is not int:
            refuse_arrays(values[i], parameter.name, task)
    return 0


def check_context(context, core):
    """Return the context of data; raise ContextClosedError if it is gone."""
    if context is None:
        raise ContextClosedError(f"the context of {core.describe()} is gone; keep a reference to it")
    return context


def count_draws(parameters, values):
    """Count a use of each generator among arguments, which is that one's place in the program."""
    for i, (parameter, value) in enumerate(zip(parameters, values, strict=True)):
        if parameter.kind == "random" and isinstance(value, Random):
            values[i] = value.draw()


def check_draws(parameters, values, context, label):
    """Raise for what is no generator of a task's context."""
    for parameter, value in zip(parameters, values, strict=True):
        if parameter.kind == "random":
            must_be_of(value, context, label)


def generator_at(place, library, draw):
    """Return the generator that a body gets at a place, in a library or in that of the place.

    And whether it is something that makes one when the body runs: for CuPy on the body's stream, for a remote place in
    the process of that.
    """
    library = library or ("cupy" if place.enqueues else "numpy")
    ordinal = place.ordinal if place.enqueues else -1
    return generator_of(library, ordinal, place.is_remote, draw.key), library == "cupy" or place.is_remote
