# cython: annotation_typing=False, binding=True
"""``ctx.parallel_for``: a body for each element of an index space, compiled for the place where it runs."""

from __future__ import annotations

from typing import Any

from stf._engine.access import Access
from stf._support.arguments import name_of, priority_of
from stf.kernels.builders import KernelBuilder
from stf.kernels.elements import Elements
from stf.kernels.index_spaces import space_of, space_of_shape
from stf.kernels.reductions import Reduction
from stf.places.partition import Part, is_partition
from stf.places.places import ExecPlace, partition_on
from stf.tasks.after import accesses_after
from stf.tasks.not_accesses import refuse_data

ELEMENTS: object = Elements()


def parallel_for(
    context: ContextCore,
    *arguments: Any,
    args: Any = (),
    name: str | None = None,
    symbol: str | None = None,
    after: Any = None,
    priority: int = 0,
) -> KernelBuilder:
    """Run a body for each element of an index space; call the result with the body, or use it as a decorator.

    The body is a Python function or a lambda, which Numba compiles for a CPU, and numba-cuda for a GPU. It gets the
    indices, then an array for each access (of a zero-dimensional one that is only read, the number), then `args`.
    Numbers that it reads from its closure or from global variables are arguments of the compiled kernel, as they are
    now: a new value compiles nothing.
    A zero-dimensional reduction has no parameter: the body returns what it contributes, a tuple for several.

    For GPUs, a body may be the text of a C++ lambda, such as ``"[](size_t i, auto x, double a) { x(i) *= a; }"``, which
    NVRTC compiles. It gets numbers by `args` alone, and a reference to a scalar that is reduced into, ``auto& s``.

    The elements are run in any order, and beside each other.

    Parameters
    ----------
    *arguments
        Perhaps a place, or a grid of places and a partition; the index space (a shape such as ``lX.shape``, a box of
        `stf.box`, or an object of a class with ``index_to_coords``); accesses, such as ``lX.rw()``, and reductions,
        ``lS.reduce(op)``. On a grid each place runs its part as a task of its own: parts that only read run beside
        each other, and parts that write the same data follow each other.
    args : sequence, optional
        Further arguments of the body: numbers, tuples of numbers, parameters of a graph.
    name, symbol : str, optional
        The task's name in pictures and messages; the body's name by default.
    after : Event or sequence of Event, optional
        Events of `Context.event` that it comes after.
    priority : int, optional
        Where several tasks could run, a smaller number comes first; see `Context.task`.

    Returns
    -------
    KernelBuilder
        A builder: call it with the body. ``.on(place)`` and ``.set_symbol(name)`` give it back.

    Raises
    ------
    TypeError
        The body takes another number of arguments, or cannot be compiled; the message shows its line.
    ImportError
        The compiler is not there; the message says how to install it.
    PlaceError
        The context does not have that place.
    UninitializedDataError, AccessError, ContextMismatchError, ContextClosedError
        Its data cannot be used so. These come when the task begins.

    Examples
    --------
    >>> import numpy as np, stf
    >>> X, Y, alpha = np.arange(4.0), np.ones(4), 2.0
    >>> with stf.context(devices="cpu") as ctx:
    ...     x, y, s = ctx.logical_data(X), ctx.logical_data(Y), ctx.logical_data_empty((), float)
    ...     @ctx.parallel_for(x.shape, x.read(), y.rw())
    ...     def axpy(i, x, y):
    ...         y[i] += alpha * x[i]
    ...     dot = ctx.parallel_for(x.shape, x.read(), y.read(), s.reduce(stf.reducer.sum))
    ...     _ = dot(lambda i, x, y: x[i] * y[i])
    ...     print(ctx.wait(s))
    34.0
    >>> Y
    array([1., 3., 5., 7.])
    """
    order = 0 if priority == 0 and priority is not False else priority_of(priority)
    if symbol is not None:
        name = name_of(name, symbol)
    if after is not None:
        arguments += accesses_after(after)
    if len(arguments) > 0 and type(arguments[0]) is tuple:
        first = make_builder(context, ELEMENTS, space_like(arguments[0]), arguments[1:], args, name)
        first.task.priority = order
        return first
    rest = list(arguments)
    place = partition = None
    if rest and is_place(rest[0], rest[1:]):
        place = rest.pop(0)
    if place is not None and rest and is_partition(rest[0]):
        partition = partition_on(place, rest.pop(0))
    if not rest or isinstance(rest[0], (Access, Reduction)):
        raise TypeError("parallel_for needs an index space before the accesses: lX.shape, or stf.box(...)")
    for item in (place, rest[0]):
        refuse_data("parallel_for", item)
    space = space_of(rest.pop(0))
    builder = make_builder(context, ELEMENTS, space, tuple(rest), args, name)
    builder.partition = partition
    builder.task.priority = order
    return builder if place is None else builder.on(place)


def space_like(shape):
    """Return the index space of extents."""
    global last
    known = last
    if known[0] is not shape:  # as it is in a loop
        try:
            known = last = (shape, space_of_shape(shape))
        except TypeError:  # it has lists in it
            return space_of(shape)
    return known[1]


last: tuple = (None, None)


def is_place(value, rest):
    """Return whether the first argument says where it runs: an integer does before an index space."""
    if isinstance(value, (ExecPlace, str)):
        return True
    if isinstance(value, (Access, Reduction, Part, tuple, list)) or hasattr(value, "index_to_coords"):
        return False
    return not hasattr(value, "__index__") or (bool(rest) and not isinstance(rest[0], (Access, Reduction)))
