"""What parameters of a task function are annotated with: `Read`, `Write`, `ReadWrite`, `Accumulate`, `Stream`."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import types
import typing
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from stf._support.completion import Shown
from stf.interop.arrays import LIBRARIES
from stf.interop.dtypes import dtype_of

if TYPE_CHECKING:
    from stf.tasks.stream_events import StreamEvent

__all__ = ["Accumulate", "Data", "Read", "ReadWrite", "Stream", "Write", "access_mode"]


UNSIZED = (np.flexible, np.datetime64, np.timedelta64)  # each of which is many dtypes


class access_mode(enum.IntFlag):
    """How a task uses its data.

    Examples
    --------
    >>> stf.access_mode.read | stf.access_mode.write == stf.access_mode.rw
    True
    """

    none = 0
    read = 1
    write = 2
    rw = 3
    accumulate = 4


class _Given:
    """Annotation of a parameter that takes data as they are: the body submits tasks with them, and gets no array.

    It is no access: the task comes neither before nor after others that use the data. What the body submits comes
    after all that was submitted by then, as if you had submitted it when the body ran. A wait for the data, such as
    ``lX.numpy()``, waits for such bodies first, and for those that these have given the data to. A task that you submit
    meanwhile, without a wait, comes before what the body submits later. If several bodies submit tasks on the same
    data at a time, their order is open.

    The body runs on the host, and does not wait for data: it submits, and returns.

    Raises
    ------
    TypeError
        The task runs on a device.
    CaptureError
        The task is recorded.

    Examples
    --------
    >>> @stf.task
    ... def increment(x: stf.ReadWrite):
    ...     x += 1
    >>> @stf.task
    ... def repeat(times: stf.Read, x: stf.Data):
    ...     for _ in range(int(times)):
    ...         increment(x)
    >>> with stf.context(devices="cpu") as ctx:
    ...     times, x = ctx.logical_data(np.array(3)), ctx.logical_data_zeros(2)
    ...     repeat(times, x)
    ...     print(x.numpy())
    [3. 3.]
    """

    _stf_data = True

    def __repr__(self) -> str:
        return "stf.Data"

    def __or__(self, other: Any) -> _Given:
        return self

    __ror__ = __or__

    def __call__(self, *_: Any) -> Any:
        raise TypeError("stf.Data is an annotation: write `x: stf.Data`; data are made by ctx.logical_data")


@dataclasses.dataclass(eq=False, repr=False)
class _Mode:
    """An access mode that may carry the library of the arrays, their element type, or an operator.

    With `optional`, None does as well.
    """

    _stf_mode: int
    name: str
    library: str | None = None
    op: Any = None
    optional: bool = False
    element: Any = None

    def __getitem__(self, kind: Any) -> _Mode:
        if self._stf_mode == 4:
            from stf.values.reducers import as_reducer

            return _Mode(4, self.name, None, as_reducer(kind))
        library, element = kind_of_arrays(kind)
        return _Mode(self._stf_mode, self.name, library, element=element)

    def __repr__(self) -> str:
        return f"stf.{self.name}"

    def __or__(self, other: Any) -> Any:
        optional = self.optional or other in (None, type(None))
        return dataclasses.replace(self, optional=optional)

    __ror__ = __or__

    def __call__(self, *_: Any) -> Any:
        raise TypeError(f"stf.{self.name} is an annotation: write `x: stf.{self.name}`")


def kind_of_arrays(kind: Any) -> tuple[str | None, Any]:
    """Return the library whose arrays a type annotation asks for, or None for any, and the type of their elements.

    That is a dtype, an abstract type of NumPy's such as ``np.floating``, or None for any.
    """
    alias = getattr(typing.get_origin(kind), "__value__", None)
    if typing.get_origin(alias) is np.ndarray:  # np.typing.NDArray[np.float32], an alias since NumPy 2.5
        return "numpy", element_of(typing.get_args(kind)[0])
    if typing.get_origin(kind) is np.ndarray:
        return "numpy", element_of((typing.get_args(typing.get_args(kind)[1]) or (Any,))[0])
    if not isinstance(kind, type) and (hasattr(kind, "__array__") or hasattr(kind, "__dlpack__")):
        raise TypeError(f"stf.Read[...] takes a type, got an array ({type(kind).__name__}); give it to the call")
    element = element_of(kind)
    if element is not None:
        return None, element
    root = (getattr(kind, "__module__", "") or "").split(".")[0]
    if root in LIBRARIES and is_type_of_arrays(kind):
        return root, None
    raise TypeError(
        "stf.Read[...] takes an array type of numpy, cupy, torch, numba or jax, or the type of the elements, such as "
        f"np.float32; got {kind!r}"
    )


def element_of(kind: Any) -> Any:
    """Return the type of elements that an annotation asks for; None if it is no such type."""
    if isinstance(kind, type) and issubclass(kind, np.generic):
        is_one = kind in np.sctypeDict.values() or kind.__module__ != "numpy"
        return np.dtype(kind) if is_one and not issubclass(kind, UNSIZED) else kind
    is_one = isinstance(kind, np.dtype) or kind in (float, int, bool, complex)
    if is_one or (type(kind).__module__ == "torch" and type(kind).__name__ == "dtype"):
        return dtype_of(kind)
    if isinstance(kind, type) or not isinstance(getattr(kind, "dtype", None), np.dtype):  # as jax.numpy.float32 has
        return None
    return kind.dtype


def is_type_of_arrays(kind: Any) -> bool:
    """Return whether a class, or one of Numba's types, is of arrays."""
    return (hasattr(kind, "dtype") and hasattr(kind, "shape" if isinstance(kind, type) else "ndim")) or hasattr(
        kind, "__cuda_array_interface__"
    )


if TYPE_CHECKING:  # a parameter is an array to the body, of the library that is said; calls give it logical data
    from typing_extensions import TypeVar

    _Array = TypeVar("_Array", default=np.ndarray[Any, np.dtype[Any]])
    _Op = TypeVar("_Op", default=Any)
    Read: TypeAlias = _Array | Any
    Write: TypeAlias = _Array | Any
    ReadWrite: TypeAlias = _Array | Any
    Accumulate: TypeAlias = Any | _Op
    Data: TypeAlias = Any
else:
    Data = _Given()
    Read = _Mode(1, "Read")
    Write = _Mode(2, "Write")
    ReadWrite = _Mode(3, "ReadWrite")
    Accumulate = _Mode(4, "Accumulate")


def injected_kind(annotation: Any) -> str | None:
    """Return which: ``"stream"`` or ``"task"``, also of ``stf.Stream | None``; None if neither."""
    kind: str | None = getattr(annotation, "_stf_injected", None)
    if kind is None and isinstance(annotation, types.UnionType):
        kinds = [getattr(part, "_stf_injected", None) for part in annotation.__args__]
        kind = next((known for known in kinds if known is not None), None)
    return kind


def inject(kind: str, task: Any) -> Any:
    """Return what such a parameter is given."""
    if kind == "random":
        raise TypeError(
            f"the body of task {task.label()} takes stf.Random, and a task of accesses has no other arguments; call a "
            "task function, as in f(x, rng), or ctx.submit_task(f, x, rng)"
        )
    if kind != "task":
        return task.stream
    task.keep_views()
    return task


def resolve_annotation(fn: Any, text: str) -> Any:
    """Return an annotation given as a string; what cannot be resolved is a plain parameter's."""
    fn = inspect.unwrap(fn)  # of a wrapper such as jax.jit's
    names = dict(getattr(fn, "__globals__", {}))
    closure = getattr(fn, "__closure__", None)
    for name, cell in zip(fn.__code__.co_freevars if closure else (), closure or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue
    if "Like[" in text and hasattr(fn, "__code__"):  # where tools that tidy annotations took the quotes off the name
        names.update({name: name for name in fn.__code__.co_varnames[: fn.__code__.co_argcount]})
    first, *others = text.split(".")
    try:
        if first in names and all(other.isidentifier() for other in others):  # most are; no code is made for these
            return functools.reduce(getattr, others, names[first])
        return eval(text, names)  # the user's own annotation, as typing.get_type_hints does
    except (NameError, AttributeError, SyntaxError):
        if "stf." in text or any(word in text for word in ("Read", "Write", "Accumulate")):
            raise TypeError(
                f"annotation {text!r} of task '{fn.__name__}' cannot be resolved; import its names at module level"
            ) from None
        return None
    except TypeError as error:
        raise TypeError(f"annotation {text!r} of task '{fn.__name__}': {error}") from None


class Stream(Shown):
    """The stream that a task's work goes to; what `t.stream` and an annotated parameter give.

    On a CPU there is no stream to enqueue on: the body itself is the work.

    Examples
    --------
    >>> @stf.task
    ... def where(x: stf.Read, stream: stf.Stream | None = None):
    ...     print(type(stream).__name__)
    >>> with stf.context(devices="cpu") as ctx:
    ...     where(ctx.logical_data_ones(3))
    Stream
    """

    __slots__ = ("__weakref__", "handle", "place")
    _stf_injected = "stream"

    def __init__(self, place: str, handle: Any = None) -> None:
        self.place = place
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol version and the stream's address."""
        if self.handle is None:
            from stf.errors import PlaceError

            raise PlaceError(f"a task at {self.place} has no CUDA stream; work on its arrays directly")
        return (0, int(self.handle))

    def __int__(self) -> int:
        """Return the stream's address, for libraries that take a number."""
        return self.__cuda_stream__()[1]

    def record_event(self) -> StreamEvent:
        """Return an event that is recorded here on the stream: see `StreamEvent`.

        Raises
        ------
        CaptureError
            The task is recorded in a CUDA graph, where an event has no time yet.

        Examples
        --------
        >>> @stf.task
        ... def double(x: stf.ReadWrite, stream: stf.Stream | None = None):
        ...     start = stream.record_event()
        ...     x *= 2
        ...     took_ms.append(start.elapsed_time(stream.record_event()))
        >>> took_ms = []
        >>> with stf.context(devices="cpu") as ctx:
        ...     double(ctx.logical_data_ones(3))
        >>> 0 < took_ms[0] < 1000
        True
        """
        from stf.tasks.stream_events import record_on

        return record_on(None if self.handle is None else int(self.handle), f"a task at {self.place}")

    def __repr__(self) -> str:
        return f"<stream of a task at {self.place}>"
