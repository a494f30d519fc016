"""Tasks that return data: the annotation of a result says the shape of new logical data, which a call returns.

What the result will be must be known when the task is submitted, since the next task may use it before this one has
run. So an annotation is one of these: like a parameter (`Like`), dimensions in NumPy's notation of generalized
functions, or a function of the data (`New`). The new data are hidden parameters that the body writes: what it returns
is stored there, as what a body returns for a parameter of ``stf.Write``. So failures, recordings and other places
need no rule of their own.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import re
import sys
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from stf._engine.access import Access, DataHandle, must_have_shape
from stf._port.replicas import Layout
from stf._support.code_facts import facts_of
from stf.interop.dtypes import dtype_of
from stf.interop.memory import layout_for
from stf.tasks.annotations import resolve_annotation
from stf.tasks.last_values import LastValues

__all__ = ["Like", "New", "Result", "Results", "results_of"]

MOST_KNOWN = 64  # shapes and types of arguments, of a function
NOTATION = re.compile(r"\s*(\([^()]*\)(?:\s*,\s*\([^()]*\))*)?\s*->\s*\(([^()]*)\)\s*")


class _Result:
    """What a task returns: new data, whose shape and type follow from what the task reads."""

    def __init__(self, text: str, shape: Any, dtype: Any = None) -> None:
        self.text, self.shape, self.dtype = text, shape, None if dtype is None else dtype_of(dtype)

    def __repr__(self) -> str:
        return self.text

    def layout(self, label: str, named: dict[str, Any]) -> Layout:
        """Return how new data lie, for arguments that are data, by the names of their parameters."""
        raise NotImplementedError


class _Like(_Result):
    def layout(self, label: str, named: dict[str, Any]) -> Layout:
        model = named.get(self.shape)
        if model is None:
            raise TypeError(
                f"task '{label}' returns {self.text}, and has no argument {self.shape!r} of one array; it has "
                f"{sorted(named) or 'none'}"
            )
        return layout_for(model.shape, self.dtype or model.dtype)


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

    def layout(self, label: str, named: dict[str, Any]) -> Layout:
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
        return layout_for(shape, self.dtype or dtype_for(named))


class _Computed(_Result):
    def layout(self, label: str, named: dict[str, Any]) -> Layout:
        names = inspect.signature(self.shape).parameters
        wanted = [name for name in names if name not in named]
        if wanted:
            raise TypeError(
                f"task '{label}' returns {self.text}, whose function asks for {wanted[0]!r}; it takes arguments that "
                f"are data, by their names: {', '.join(named) or 'there are none'}"
            )
        shape = extents_of(self.shape(**{name: named[name] for name in names}), label, self.text)
        return layout_for(shape, self.dtype or dtype_for(named))


class _Open(_Result):
    """Of a shape that the body finds."""

    def layout(self, label: str, named: dict[str, Any]) -> Layout:
        return Layout((), (), None, 1, nbytes=0)

    def __reduce__(self) -> str:  # there is one of them
        return "OPEN"


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
    handle of the task. What the body returns is stored there. A function whose last parameter is named ``out``,
    without an annotation, gets their memory instead, and writes into it.

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

    def __reduce__(self) -> str:  # there is one of them
        return "Like"


class _News:
    """Annotation of a task's result: new data of a shape that follows from the arguments.

    ``stf.New["(m,k),(k,n)->(m,n)"]`` names the axes of each argument that is data, in order, as NumPy's generalized
    functions do, and those of the result; equal names are equal extents. ``stf.New[lambda a: (len(a.shape), 2)]`` is
    called with the data of these parameters. A type may follow; without it, it is that in which NumPy computes with
    the arguments'. A call returns the data, and not a handle of the task.

    ``stf.New`` alone, on a CPU, leaves the shape to the body. Other tasks on the CPU may read the data at once.
    ``lX.shape`` waits for the task; whoever else needs the shape before is told so.

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

    def __reduce__(self) -> str:  # there is one of them
        return "New"


OPEN = _Open("stf.New", None)


Like: Any = _Likes()
New: Any = _News()

if TYPE_CHECKING:  # an array or a number to the body; what a call returns is in the overloads of `TaskFunction`

    class Arrays(Protocol):
        """Arrays of any library."""

        @property
        def shape(self) -> Any: ...

        @property
        def dtype(self) -> Any: ...

    class _OfNobody:
        """What makes `Result` a type that no annotation of a user's is by chance."""

    Result: TypeAlias = Arrays | complex | _OfNobody
else:

    class Result:
        """New data, for type checkers: ``Annotated[stf.Result, stf.Like["a"]]`` as the annotation of a task's result.

        It is the same to stf as ``stf.Like["a"]``, in which checkers look for a type named ``a``. With it they know
        that a call returns `LogicalData`, or a tuple of up to four of them.

        Raises
        ------
        TypeError
            It is called, or stands without ``stf.Like[...]`` or ``stf.New[...]``.

        Examples
        --------
        >>> from typing import Annotated
        >>> @stf.task
        ... def scale(s: float, a: stf.Read) -> Annotated[stf.Result, stf.Like["a"]]:
        ...     return s * a
        >>> with stf.context(devices="cpu") as ctx:
        ...     print(scale(2.0, ctx.logical_data(np.arange(3.0))).numpy())
        [0. 2. 4.]
        """

        def __new__(cls):
            """Raise TypeError: it is an annotation."""
            raise TypeError('stf.Result is an annotation: write -> Annotated[stf.Result, stf.Like["a"]]')


class Results:
    """What calls of a function return: one new data, or a container of them.

    `kind` is "one", "tuple", "dict", or "fields" of a dataclass or named tuple; `what` are the keys of a dict, or the
    class and the names of its fields.
    """

    def __init__(self, kind: str, what: Any, parts: Sequence[_Result]) -> None:
        self.kind, self.what, self.parts = kind, what, parts
        self.is_open, self.needs_shapes = OPEN in parts, any(part is not OPEN for part in parts)
        self.is_fixed = all(isinstance(part, (_Like, _Dimensions)) for part in parts)
        self.known: dict[tuple[Any, ...], list[Layout]] = {}
        self.takes_out = False  # the function writes into their memory, and returns nothing

    def takes(self, fn: Callable[..., Any], name: str, parameter: inspect.Parameter) -> bool:
        """Return whether a parameter of the function is the memory of its results: ``out``, which no call gives.

        Raises
        ------
        TypeError
            It is not the last parameter, or the body must find its shape, or the function does not use it.
        """
        if name != "out" or parameter.annotation is not parameter.empty or parameter.default is not parameter.empty:
            return False
        label = getattr(fn, "__name__", "body")
        kinds = parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY
        if list(inspect.signature(fn).parameters)[-1] != name or parameter.kind not in kinds:
            raise TypeError(f"task '{label}' takes the memory of its results as 'out'; make it the last parameter")
        if self.is_open:
            raise TypeError(
                f"task '{label}' takes the memory of its results as 'out', whose shape nobody knows before it runs; "
                "say the shape in the annotation of the result, such as stf.Like['a'], or return the array"
            )
        code = getattr(fn, "__code__", None)
        if code is not None and not any(step.name == name for step in facts_of(code).loads("local", "cell")):
            raise TypeError(
                f"task '{label}' does not use 'out', the memory of its results; write `out[...] = ...`, or leave it "
                "out and return the value"
            )
        self.takes_out = True
        return True

    def must_be_in_place(self, result: Any, written: Sequence[Any], fn: Callable[..., Any], given: Any) -> None:
        """Raise TypeError if a function that writes into `out` returns something else, or has bound it anew."""
        if type(result) is tuple and len(result) > 1 and type(result[0]) is LastValues:
            result[0].check(result, given, fn)
            return
        items = list(result) if isinstance(result, (tuple, list)) else [result]
        if result is None or (len(items) == len(written) and all(map(operator.is_, items, written))):
            return
        raise TypeError(
            f"task '{getattr(fn, '__name__', 'body')}' writes into 'out' and returns {type(result).__name__}; return "
            "nothing, or leave 'out' out"
        )

    def likes(self, parameters: Sequence[Any]) -> list[int] | None:
        """Return the positions of the parameters that all new data are like; None if it takes more to say."""
        positions = {parameter.name: i for i, parameter in enumerate(parameters) if parameter.mode}
        if not all(isinstance(part, _Like) and part.dtype is None and part.shape in positions for part in self.parts):
            return None
        return [positions[part.shape] for part in self.parts]

    def layouts(self, label: str, parameters: Sequence[Any], values: Sequence[Any]) -> list[Layout]:
        """Return how new data lie, for a call with these values of the parameters.

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
            if data.core.is_result and data.core.layout.dtype is None and self.needs_shapes:
                raise must_have_shape(data.core)
            if data.core.token:
                raise TypeError(f"task '{label}' returns new data, and {name} is a token, which has no shape")
        if not self.is_fixed:
            return [part.layout(label, named) for part in self.parts]
        key = tuple([(data.core.layout.shape, data.core.layout.dtype) for data in named.values()])
        found = self.known.get(key)
        if found is None:
            found = [part.layout(label, named) for part in self.parts]
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[key] = found
        return found

    def given(self, made: list[Any]) -> Any:
        """Return what a call returns."""
        if self.kind == "one":
            return made[0]
        if self.kind == "tuple":
            return tuple(made)
        if self.kind == "dict":
            return dict(zip(self.what, made, strict=True))
        return self.what[0](**dict(zip(self.what[1], made, strict=True)))

    def items_in(self, result: Any, fn: Any) -> list[Any]:
        """Return the arrays in what a body returned, in order.

        Raises
        ------
        TypeError, ValueError
            It returned something else.
        """
        name = getattr(fn, "__name__", "body")
        if result is None:
            raise TypeError(
                f"task '{name}' returned None this time, and is to return new data; return a value on each way through "
                "the function"
            )
        if self.kind == "one":
            return [result[0] if type(result) is tuple and len(result) == 1 else result]
        if self.kind == "dict":
            if not isinstance(result, dict) or result.keys() != set(self.what):
                got = sorted(map(str, result)) if isinstance(result, dict) else type(result).__name__
                raise TypeError(f"task '{name}' is to return a dict with the keys {list(self.what)}, got {got}")
            return [result[key] for key in self.what]
        if self.kind == "fields" and not isinstance(result, tuple):
            kind, names = self.what
            if not isinstance(result, kind):
                raise TypeError(f"task '{name}' is to return a {kind.__name__}, got {type(result).__name__}")
            return [getattr(result, field) for field in names]
        if not isinstance(result, (tuple, list)) or len(result) != len(self.parts):
            got = f"{len(result)} results" if isinstance(result, (tuple, list)) else type(result).__name__
            raise ValueError(f"task '{name}' is to return {len(self.parts)} results, got {got}")
        return list(result)


def extents_of(shape: Any, label: str, text: str) -> tuple[int, ...]:
    """Return a shape that a function of the user's computed, as a tuple of numbers."""
    items = (shape,) if hasattr(shape, "__index__") else shape
    is_shape = isinstance(items, (tuple, list)) and all(hasattr(n, "__index__") for n in items)
    if not is_shape or any(int(n) < 0 for n in items):
        raise TypeError(f"task '{label}' returns {text}, whose function is to return extents from 0 on, got {shape!r}")
    return tuple([int(n) for n in items])


def results_of(fn: Callable[..., Any], label: str) -> Results | None:
    """Return what the annotation of a function's result says of new data; None if it says nothing of them.

    Raises
    ------
    TypeError
        Only some of a container are such results.
    """
    annotation = getattr(fn, "__annotations__", {}).get("return")
    while isinstance(annotation, str):
        annotation = resolve_annotation(fn, annotation)
    annotation = said_in(annotation, label)
    if isinstance(annotation, _Result):
        return Results("one", None, [annotation])
    if annotation is Like:
        raise TypeError(f"task '{label}' returns {annotation!r}, which says no shape; write {annotation!r}['a']")
    kind, what, parts = container_in(annotation, fn)
    parts = [said_in(part, label) for part in parts]
    if not any(isinstance(part, _Result) for part in parts):
        return None
    for part in parts:
        if not isinstance(part, _Result):
            raise TypeError(f"task '{label}' returns a {kind} with {part!r}; each is stf.Like[...] or stf.New[...]")
    return Results("fields" if kind not in ("tuple", "dict") else kind, what, parts)


def said_in(annotation: Any, label: str) -> Any:
    """Return what an annotation says of new data, alone or beside `Result`; the annotation itself if it does not.

    Raises
    ------
    TypeError
        It is `Result`, and nothing is beside it.
    """
    if typing.get_origin(annotation) is typing.Annotated:
        said = [each for each in annotation.__metadata__ if isinstance(each, _Result) or each is New or each is Like]
        annotation = said[0] if said else annotation.__origin__ if annotation.__origin__ is Result else annotation
    if annotation is Result:
        raise TypeError(
            f"task '{label}' returns stf.Result, which says no shape; write Annotated[stf.Result, stf.Like['a']]"
        )
    return OPEN if annotation is New else annotation


def container_in(annotation: Any, fn: Any) -> tuple[str, Any, Sequence[Any]]:
    """Return the kind of a container that an annotation describes, what it takes to build it, and its items."""
    if typing.get_origin(annotation) is tuple:
        return "tuple", None, typing.get_args(annotation)
    if isinstance(annotation, tuple):
        return "tuple", None, annotation
    if isinstance(annotation, dict):
        return "dict", list(annotation), list(annotation.values())
    if not isinstance(annotation, type):
        return "none", None, ()
    is_dict = issubclass(annotation, dict)
    if not (dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields") or is_dict):
        return "none", None, ()
    names = list(getattr(annotation, "__annotations__", {}))
    if dataclasses.is_dataclass(annotation):
        names = [field.name for field in dataclasses.fields(annotation)]
    found = [field_of(annotation, name, fn) for name in names]
    return ("dict", names, found) if is_dict else (annotation.__name__, (annotation, names), found)


def field_of(kind: type, name: str, fn: Any) -> Any:
    """Return the annotation of a field of a class that a function returns."""
    for base in kind.__mro__:
        annotation = inspect.get_annotations(base).get(name)
        if annotation is not None:
            break
    annotation = getattr(annotation, "__forward_arg__", annotation)  # as in a TypedDict
    if not isinstance(annotation, str) or not ("Like" in annotation or "New" in annotation):
        return annotation
    try:
        return resolve_annotation(fn, annotation)
    except TypeError:  # the class is of another module
        return eval(annotation, vars(sys.modules[kind.__module__]))  # the user's own, as typing.get_type_hints does
