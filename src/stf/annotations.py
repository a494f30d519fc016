"""What parameters of a task function are annotated with: `Read`, `Write`, `ReadWrite`, `Accumulate`, `Stream`."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any, Union

__all__ = ["Accumulate", "Read", "ReadWrite", "Stream", "Write", "access_mode"]


class access_mode(enum.IntFlag):
    """How a task uses a data."""

    none = 0
    read = 1
    write = 2
    rw = 3
    accumulate = 4


class _Mode:
    """An access mode that may carry the library of the arrays, or an operator; with `optional`, None does as well."""

    def __init__(
        self, mode: int, name: str, library: str | None = None, op: Any = None, optional: bool = False
    ) -> None:
        self.optional = optional
        self._stf_mode = mode
        self.name = name
        self.library = library
        self.op = op

    def __getitem__(self, kind: Any) -> _Mode:
        if self._stf_mode == 4:
            from stf.reducers import as_reducer

            return _Mode(4, self.name, None, as_reducer(kind))
        return _Mode(self._stf_mode, self.name, library_of(kind))

    def __repr__(self) -> str:
        return f"stf.{self.name}"

    def __or__(self, other: Any) -> Any:
        optional = self.optional or other in (None, type(None))
        return _Mode(self._stf_mode, self.name, self.library, self.op, optional)

    __ror__ = __or__

    def __call__(self, *_: Any) -> Any:
        raise TypeError(f"stf.{self.name} is an annotation: write `x: stf.{self.name}`")


def library_of(kind: Any) -> str:
    """The library whose arrays a type annotation asks for."""
    module = getattr(kind, "__module__", "") or ""
    root = module.split(".")[0]
    if root in ("numpy", "cupy", "torch", "numba", "jax"):
        return root
    raise TypeError(f"stf.Read[...] takes an array type of numpy, cupy, torch, numba or jax, got {kind!r}")


if TYPE_CHECKING:  # a parameter is what the body gets: an array of the library that is said, or of any
    from typing_extensions import TypeVar

    _Array = TypeVar("_Array", default=Any)
    _Op = TypeVar("_Op", default=Any)
    Read = Annotated[_Array, "read"]
    Write = Annotated[_Array, "write"]
    ReadWrite = Annotated[_Array, "rw"]
    Accumulate = Union[Any, _Op]  # noqa: UP007  # an alias, which takes an operator
else:
    Read = _Mode(1, "Read")
    Write = _Mode(2, "Write")
    ReadWrite = _Mode(3, "ReadWrite")
    Accumulate = _Mode(4, "Accumulate")


class Stream:
    """The stream that a task's work goes to; what `t.stream` and an annotated parameter give.

    On a CPU there is no stream to enqueue on: the body itself is the work.
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
        """The stream's address, for libraries that take a number."""
        return self.__cuda_stream__()[1]

    def __repr__(self) -> str:
        return f"<stream of a task at {self.place}>"
