"""Tasks that return data: the annotation of a result says the shape of new logical data, which a call returns.

What the result will be must be known when the task is submitted, since the next task may use it before this one has
run. So an annotation is one of these: like a parameter (`Like`), dimensions in NumPy's notation of generalized
functions, or a function of the data (`New`). The new data are hidden parameters that the body writes: what it returns
is stored there, as what a body returns for a parameter of ``stf.Write``. So failures, recordings and other places
need no rule of their own.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stf._engine.access import Access, DataHandle
from stf.interop import adapters
from stf.interop.dtypes import dtype_of

__all__ = ["Like", "New", "Results", "results_of"]

NOTATION = re.compile(r"\s*(\([^()]*\)(?:\s*,\s*\([^()]*\))*)?\s*->\s*\(([^()]*)\)\s*")


class _Result:
    """What a task returns: new data, whose shape and type follow from what the task reads."""

    def __init__(self, text: str, shape: Any, dtype: Any = None) -> None:
        self.text, self.shape, self.dtype = text, shape, None if dtype is None else dtype_of(dtype)

    def __repr__(self) -> str:
        return self.text

    def make(self, context: Any, label: str, named: dict[str, Any]) -> Any:
        """Return new data, for arguments that are data, by the names of their parameters."""
        raise NotImplementedError


class _Like(_Result):
    def make(self, context: Any, label: str, named: dict[str, Any]) -> Any:
        model = named.get(self.shape)
        if model is None:
            raise TypeError(
                f"task '{label}' returns {self.text}, and has no argument {self.shape!r} of one array; it has "
                f"{sorted(named) or 'none'}"
            )
        return context.logical_data_empty(model.shape, self.dtype or model.dtype)


class _Dimensions(_Result):
    """Dimensions with names: of each argument that is data, and of the result."""

    def __init__(self, text: str, notation: str, dtype: Any) -> None:
        found = NOTATION.fullmatch(notation)
        if found is None:
            raise TypeError(f"stf.New takes dimensions as '(m,k),(k,n)->(m,n)', or a function, got {notation!r}")
        groups = re.findall(r"\(([^()]*)\)", found[1] or "")
        self.inputs = [dimensions_in(group) for group in groups]
        self.notation = notation
        super().__init__(text, dimensions_in(found[2]), dtype)
        known = {name for group in self.inputs for name in group}
        unknown = [name for name in self.shape if not name.isdigit() and name not in known]
        if unknown:
            raise TypeError(f"{text}: dimension {unknown[0]!r} of the result is that of no argument")

    def make(self, context: Any, label: str, named: dict[str, Any]) -> Any:
        if len(named) != len(self.inputs):
            raise ValueError(
                f"task '{label}' returns {self.text}, for {len(self.inputs)} arguments that are data, and got "
                f"{len(named)}: {', '.join(named) or 'none'}"
            )
        extents: dict[str, tuple[int, str]] = {}
        for dimensions, (name, data) in zip(self.inputs, named.items(), strict=True):
            if len(dimensions) != data.ndim:
                raise ValueError(
                    f"task '{label}' takes {name} with {len(dimensions)} axes ({', '.join(dimensions)}), got shape "
                    f"{data.shape}"
                )
            for dimension, extent in zip(dimensions, data.shape, strict=True):
                wanted, whose = extents.setdefault(dimension, (extent, name))
                wanted = int(dimension) if dimension.isdigit() else wanted
                if extent != wanted:
                    what = f"{whose} has {wanted}" if not dimension.isdigit() else f"{wanted} is asked for"
                    raise ValueError(
                        f"task '{label}' ({self.notation}): {name} has {extent} along {dimension!r}, and {what}"
                    )
        shape = tuple([int(name) if name.isdigit() else extents[name][0] for name in self.shape])
        return context.logical_data_empty(shape, self.dtype or dtype_for(named))


class _Computed(_Result):
    def make(self, context: Any, label: str, named: dict[str, Any]) -> Any:
        wanted = [name for name in inspect.signature(self.shape).parameters if name not in named]
        if wanted:
            raise TypeError(
                f"task '{label}' returns {self.text}, whose function asks for {wanted[0]!r}; it takes arguments that "
                f"are data, by their names: {', '.join(named) or 'there are none'}"
            )
        names = inspect.signature(self.shape).parameters
        shape = self.shape(**{name: named[name] for name in names})
        return context.logical_data_empty(shape, self.dtype or dtype_for(named))


def dimensions_in(text: str) -> tuple[str, ...]:
    """Return the names of dimensions, or the numbers, of one array."""
    names = tuple([name.strip() for name in text.split(",") if name.strip()])
    for name in names:
        if not (name.isidentifier() or name.isdigit()):
            raise TypeError(f"stf.New: a dimension is a name or a number, got {name!r}")
    return names


def dtype_for(named: dict[str, Any]) -> Any:
    """Return the type that NumPy computes with data of these types in; float64 without any."""
    kinds = [data.dtype for data in named.values()]
    return np.result_type(*kinds) if kinds else None


class _Likes:
    """Annotation of a task's result: new data with the shape and the type of a parameter's.

    ``stf.Like["a"]``, or ``stf.Like["a", np.float32]`` with a type of its own. A call returns the data, and not a
    handle of the task. What the body returns is stored there.

    Raises
    ------
    TypeError
        It is not followed by the name of a parameter in brackets.

    Examples
    --------
    >>> @stf.task
    ... def scale(s, a: stf.Read) -> stf.Like["a"]:
    ...     return s * a
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data(np.arange(3.0))
    ...     print(scale(2.0, scale(2.0, x)).numpy())
    [0. 4. 8.]
    """

    def __getitem__(self, what: Any) -> _Result:
        name, dtype = what if isinstance(what, tuple) and len(what) == 2 else (what, None)
        if not isinstance(name, str) or not name.isidentifier():
            raise TypeError(f"stf.Like takes the name of a parameter, as stf.Like['a'], got {name!r}")
        return _Like(f"stf.Like[{name!r}]", name, dtype)

    def __repr__(self) -> str:
        return "stf.Like"


class _News:
    """Annotation of a task's result: new data of a shape that follows from the arguments.

    ``stf.New["(m,k),(k,n)->(m,n)"]`` names the axes of each argument that is data, in order, as NumPy's generalized
    functions do, and those of the result; equal names are equal extents. ``stf.New[lambda a: (len(a.shape), 2)]`` is
    called with the data of these parameters. A type may follow; without it, it is that in which NumPy computes with
    the arguments'. A call returns the data, and not a handle of the task.

    Raises
    ------
    TypeError
        It is followed neither by such text in brackets, nor by a function.

    Examples
    --------
    >>> @stf.task
    ... def gemm(a: stf.Read, b: stf.Read) -> stf.New["(m,k),(k,n)->(m,n)"]:
    ...     return a @ b
    >>> with stf.context(devices="cpu") as ctx:
    ...     a, b = ctx.logical_data(np.ones((2, 3))), ctx.logical_data(np.ones((3, 4)))
    ...     print(gemm(a, b).numpy())
    [[3. 3. 3. 3.]
     [3. 3. 3. 3.]]
    """

    def __getitem__(self, what: Any) -> _Result:
        shape, dtype = what if isinstance(what, tuple) and len(what) == 2 else (what, None)
        if isinstance(shape, str):
            return _Dimensions(f"stf.New[{shape!r}]", shape, dtype)
        if callable(shape) and not isinstance(shape, type):
            return _Computed(f"stf.New[{getattr(shape, '__name__', 'function')}]", shape, dtype)
        raise TypeError(f"stf.New takes dimensions as '(m,k),(k,n)->(m,n)', or a function of the data, got {shape!r}")

    def __repr__(self) -> str:
        return "stf.New"


Like: Any = _Likes()
New: Any = _News()


class Results:
    """What calls of a function return: one new data, or a tuple of them."""

    def __init__(self, parts: Sequence[_Result], is_tuple: bool) -> None:
        self.parts, self.is_tuple = parts, is_tuple

    def make(self, context: Any, label: str, parameters: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Return new data for a call with these values of the parameters.

        Raises
        ------
        TypeError, ValueError
            The arguments are no such data, or do not fit each other.
        """
        named: dict[str, Any] = {}
        for parameter, value in zip(parameters, values, strict=False):
            if parameter.mode and isinstance(value, (DataHandle, Access)):
                named[parameter.name] = value if isinstance(value, DataHandle) else value.data
        for name, data in named.items():
            if data.core.token:
                raise TypeError(f"task '{label}' returns new data, and {name} is a token, which has no shape")
        return [part.make(context, label, named) for part in self.parts]

    def given(self, made: list[Any]) -> Any:
        """Return what a call returns."""
        return tuple(made) if self.is_tuple else made[0]


def results_of(fn: Callable[..., Any], label: str) -> Results | None:
    """Return what the annotation of a function's result says of new data; None if it says nothing of them.

    Raises
    ------
    TypeError
        Only some of a tuple are such results.
    """
    annotation = getattr(fn, "__annotations__", {}).get("return")
    while isinstance(annotation, str):
        annotation = adapters.resolve_annotation(fn, annotation)
    if isinstance(annotation, _Result):
        return Results([annotation], False)
    if annotation is Like or annotation is New:
        raise TypeError(
            f"task '{label}' returns {annotation!r}, which says no shape; write {annotation!r}"
            f"{['a'] if annotation is Like else ['(m,k),(k,n)->(m,n)']}"
        )
    parts = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else ()
    if isinstance(annotation, tuple):
        parts = annotation
    if not any(isinstance(part, _Result) for part in parts):
        return None
    for part in parts:
        if not isinstance(part, _Result):
            raise TypeError(f"task '{label}' returns a tuple with {part!r}; each is stf.Like[...] or stf.New[...]")
    return Results(parts, True)
