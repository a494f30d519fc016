"""Calls of pure functions (``@stf.task(pure=True)``), which windows of tasks may hold. Compiled."""

from __future__ import annotations

import types

import cython

from stf._port.late_values import is_fixed
from stf.tasks.repeats import KnownCall

FUNCTION: object = types.FunctionType


@cython.final
@cython.cclass
class PureCall(KnownCall):
    """The rest of a call of a pure function, whose task is held until its window is whole."""

    def __call__(self, task):
        self.function.go_on(task, self.fn, list(self.values), self.shapes, True)

    def with_plain(self, plain):
        """Return the same call with other values of arguments that are no data."""
        i: cython.Py_ssize_t
        call: PureCall = PureCall.__new__(PureCall)
        call.function, call.fn, call.shapes = self.function, self.fn, self.shapes
        call.what, call.fixed, call.plain = self.what, self.fixed, plain
        call.values = list(self.values)
        given = iter(plain)
        for i in range(self.function.given):
            if cython.cast(Parameter, self.function.parameters[i]).mode == 0:
                call.values[i] = next(given)
        return call


def pure_call(function, task, fn, values, shapes):
    """Return the rest of a call whose body may be launched again; None if that may do something else in each turn.

    It may where it asks for its task, a stream or random numbers, wraps another function, or takes what can change in
    place. `fn` is the function with its closure as it is now.
    """
    i: cython.Py_ssize_t
    if function.takes_task or not function.movable or function.draws or function.wraps:
        return None
    if cython.cast(Engine, task.engine).has_results and has_open(task):
        return None
    fixed: list = []
    if function.reads:
        fn = function.with_globals(fn)
        fixed.append(function.taken)  # the same object as long as these variables are the same
    if function.closes:
        for cell in fn.__closure__:
            try:
                content = cell.cell_contents
            except ValueError:  # it is bound later
                return None
            if type(content) is not FUNCTION and not is_steady(content):
                return None
            fixed.append(content)
    if shapes is not None:
        for position, shape in shapes.items():
            if shape[0] != "flat":
                return None
            fixed.append((position, *shape))
    plain: list = []
    for i in range(function.given):
        if cython.cast(Parameter, function.parameters[i]).mode == 0:
            if not is_steady(values[i]):
                return None
            plain.append(values[i])
    call: PureCall = PureCall.__new__(PureCall)
    call.function, call.fn, call.values, call.shapes = function, fn, values, shapes
    call.what, call.fixed, call.plain = function.fn.__code__, tuple(fixed), tuple(plain)
    return call


def is_steady(value):
    """Return whether a value cannot change in place."""
    return type(value) is float or type(value) is int or bool(is_fixed(value))
