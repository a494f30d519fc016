"""What the bodies of kernels written in Python get for the arguments of a task."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

import numpy as np

from stf._engine.access import READ, Access
from stf.kernels.captured import Captured, around_key, linked_files
from stf.kernels.combining import contribution_to
from stf.kernels.cpp_bodies import cpp_text
from stf.kernels.loops import compiler
from stf.kernels.nest import ArrayType, Axis, Contribution, LoopNest
from stf.kernels.reductions import Reduction
from stf.values.params import Param
from stf.values.reducers import reducer

__all__ = [
    "BodySignature",
    "accessed",
    "default_of",
    "expected",
    "is_number",
    "is_returned",
    "kind_of",
    "must_suit",
    "must_take",
]


class BodySignature:
    """What a body takes and returns, for each compiler alike.

    Attributes
    ----------
    body : function
        Takes indices or a hierarchy, what it gets for each of `parameters`, then `extra`.
    captured : Captured
        The variables around it.
    items : tuple of Access or Reduction
        The arguments of the task, without tokens.
    parameters : tuple of Access or Reduction
        Those of them that the body has a parameter for.
    kinds : tuple of str
        What it gets for each of these; see `kind_of`.
    extra : tuple
        Further arguments: numbers, tuples of numbers, parameters of a graph.
    where : str
        What messages call the body.
    """

    def __init__(
        self,
        body: types.FunctionType,
        captured: Captured,
        items: tuple[Any, ...],
        extra: tuple[Any, ...],
        where: str,
    ) -> None:
        self.body, self.captured, self.where = body, captured, where
        self.items, self.extra = items, extra
        self.parameters = tuple([item for item in items if not is_returned(item)])
        self.kinds = tuple(map(kind_of, self.parameters))

    @property
    def in_cpp(self) -> str | None:
        """The body's text, if it is written in C++."""
        return cpp_text(self.body)

    @functools.cached_property
    def results(self) -> tuple[Contribution, ...]:
        """The scalars that the body contributes to by what it returns; TypeError if one has no operator of numbers."""
        return tuple(contribution_to(item) for item in self.items if is_returned(item))

    @property
    def key(self) -> tuple[Any, ...]:
        """Key of what is compiled: the body, and variables around it."""
        order = [(is_returned(item), getattr(item, "op", None)) for item in self.items] if self.in_cpp else ()
        return self.body.__code__, around_key(self.captured), tuple(order)

    def nest(self, axes: tuple[Axis, ...], ndim: int, coordinates: Any = None, randoms: int = 0) -> LoopNest:
        """Return the loops that run the body."""
        return LoopNest(axes, ndim, self.kinds, len(self.extra), self.results, coordinates, randoms)


def accessed(item: Any) -> Any:
    """Return the access of an argument."""
    return item.access if isinstance(item, Reduction) else item


def is_returned(item: Any) -> bool:
    """Return whether a body returns what it contributes to an argument."""
    return isinstance(item, Reduction) and item.access.data.core.layout.shape == ()


def is_number(item: Any) -> bool:
    """Return whether a body gets the number that an argument holds."""
    return isinstance(item, Access) and item.data.core.layout.shape == () and item.mode == READ


def kind_of(item: Any) -> str:
    """What a body gets for an argument: an array, the number in it, or an array that an operator of ours reduces into.

    ``"array"``, ``"value"`` or the name of the operator.
    """
    if isinstance(item, Reduction) and getattr(reducer, item.op.name, None) is item.op:
        return item.op.name
    return "value" if is_number(item) else "array"


def default_of(value: Any) -> Any:
    """Return the number that a parameter of a graph is by default; else the value."""
    return value.default if isinstance(value, Param) else value


def must_take(body: types.FunctionType, count: int, first: str, where: str) -> None:
    """Raise TypeError unless a body takes so many arguments."""
    code = body.__code__
    if code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise TypeError(f"{where} takes *args, **kwargs or keyword-only arguments, which kernels have not; name each")
    given = len(body.__defaults__ or ())
    if given and code.co_argcount - given <= count < code.co_argcount:
        names = ", ".join(code.co_varnames[count : code.co_argcount])
        raise TypeError(f"{where} has default values of parameters, which kernels do not use; give {names} by args=")
    if code.co_argcount != count:
        raise TypeError(
            f"{where} takes {code.co_argcount} arguments and gets {count}: {first}, then the arrays of the "
            "accesses (scalars that are reduced into have none), then args="
        )


def must_suit(signature: BodySignature) -> None:
    """Raise TypeError if a kernel for a CPU cannot have a variable around a body, or one of `args`."""
    compiler()  # which may not be there
    captured, extra, where = signature.captured, signature.extra, signature.where
    if linked_files(signature.body, *extra):
        raise TypeError(
            f"{where} calls functions whose code is for GPUs, as those of cuda.coop; let it run on one, or write "
            "a body without them for the host"
        )
    for value in (*captured.values, *extra):
        if isinstance(value, Param):
            must_be_real(value, where)
    for name, value in zip(captured.names, captured.values, strict=True):
        if not is_known(value):
            raise TypeError(
                f"{where} reads '{name}', which kernels cannot have: {value!r}; they have numbers, arrays, tuples of "
                "these and functions; read what you need of it into a variable before, and import modules globally"
            )
    for value in extra:
        if isinstance(value, np.ndarray) or not is_known(value):
            raise TypeError(
                f"{where} gets {value!r} by args=, which takes numbers, tuples of these, and a graph's parameters by "
                "themselves; register an array with ctx.logical_data and pass an access"
            )


def must_be_real(parameter: Param, where: str) -> None:
    """Raise TypeError for a parameter of a graph that is no number, or a complex one."""
    value = parameter.default
    if not isinstance(value, bool | int | float | np.number | np.bool_) or isinstance(value, np.complexfloating):
        raise TypeError(
            f"{where}: parameter '{parameter.name}' of a graph is {value!r} by default, and kernels take real numbers; "
            "use one, or two for the parts of a complex number"
        )


def is_known(value: Any) -> bool:
    """Return whether kernels for a CPU have such values."""
    import numba

    if isinstance(value, Param | types.FunctionType):
        return True
    if isinstance(value, tuple):
        return all(not isinstance(item, Param) and is_known(item) for item in value)
    try:
        numba.typeof(value)
    except (ValueError, TypeError):
        return False
    return not isinstance(value, dict | list | set)


def expected(item: Any, whole: tuple[int, ...] | None = None) -> Any:
    """Return the type of the array that a body will get, perhaps seen as an array of the shape `whole`."""
    access = accessed(item)
    layout = access.data.core.layout
    if layout.interface is not None:
        raise TypeError(f"parallel_for takes arrays, and {access.data.core.describe()} is none; pass its arrays")
    shape, itemsize = whole or layout.shape, layout.itemsize
    orders = {"C": reversed(range(len(shape))), "F": iter(range(len(shape)))}
    for order, axes in orders.items():
        step, fits = itemsize, True
        for axis in axes:
            fits = fits and (layout.strides[axis] == step or shape[axis] == 1)
            step *= shape[axis]
        if fits or not layout.nbytes:
            return ArrayType(np.dtype(layout.dtype), len(shape), order, access.mode == READ)
    return ArrayType(np.dtype(layout.dtype), len(shape), "A", access.mode == READ)
