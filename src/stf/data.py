"""Logical data: what a context knows of the user's arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stf._engine.access import DataHandle, accumulate_access
from stf._engine.failures import site_text
from stf.annotations import access_mode
from stf.errors import ContextClosedError
from stf.interop import adapters
from stf.observe.html import data_html, never_raises
from stf.options import name_of
from stf.reducers import as_reducer

if TYPE_CHECKING:
    from stf.contexts import Context

__all__ = ["CompositeData", "Frozen", "LogicalData", "register_data_interface"]

NAMED_WRITERS = 4


class LogicalData(DataHandle):
    """Data that tasks read and write, wherever they run. Made by a context.

    Attributes
    ----------
    shape, dtype, ndim, size, nbytes, strides
        As of a NumPy array; None for a token.
    name : str or None
        What pictures and messages call it.
    """

    __slots__ = ()

    # -- properties --------------------------------------------------------------------------------------------

    @property
    def context(self) -> Context:
        """The context that it belongs to."""
        context = self.core.engine.context()
        if context is None:
            raise ContextClosedError(f"the context of {self.core.describe()} is gone; keep a reference to it")
        return context

    @property
    def name(self) -> str | None:
        """What pictures and messages call it."""
        return self.core.name

    symbol = name

    def set_symbol(self, name: str) -> LogicalData:
        """Name the data; return it."""
        self.core.name = name_of(name)
        return self

    @property
    def is_token(self) -> bool:
        """Whether it only orders tasks."""
        return self.core.token

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Extents; None for a token."""
        return None if self.core.token else self.core.layout.shape

    @property
    def dtype(self) -> Any:
        """Element type; None for a token."""
        return None if self.core.token else self.core.layout.dtype

    @property
    def strides(self) -> tuple[int, ...] | None:
        """Steps in bytes at home; None for a token."""
        return None if self.core.token else self.core.layout.strides

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape or ())

    @property
    def size(self) -> int:
        """Number of elements."""
        return 0 if self.core.token else math.prod(self.core.layout.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of one packed replica."""
        return 0 if self.core.token else self.core.layout.nbytes

    @property
    def readonly(self) -> bool:
        """Whether it may only be read."""
        return self.core.readonly

    def set_write_back(self, flag: bool) -> LogicalData:
        """Say whether the user's array is refreshed at the end; return the data.

        Raises
        ------
        ValueError
            The data has no array of the user's to refresh.
        """
        if flag and self.core.home is None:
            raise ValueError(
                f"{self.core.describe()} was made from a shape; there is no array to write back to: register one with "
                "ctx.logical_data, or read it with ctx.wait"
            )
        self.core.write_back = bool(flag)
        return self

    # -- accesses ----------------------------------------------------------------------------------------------

    def place_code(self, data_place: Any) -> int:
        """The engine's number of a data place."""
        return self.context.data_place_code(data_place)

    def accumulate(self, op: Any, data_place: Any = None) -> Any:
        """Return an access of a task-level reduction.

        Tasks that accumulate with the same operator may run at the same time: each gets a partial result, filled
        with the operator's neutral element, and combines its contribution into that. The next ordinary access
        combines the partials with each other and with the content from before.

        Parameters
        ----------
        op : Reducer
            ``stf.reducer.sum`` and the like.
        data_place : DataPlace, optional
            As for `read`.
        """
        return accumulate_access(self, as_reducer(op), data_place)

    relaxed = accumulate

    # -- content -----------------------------------------------------------------------------------------------

    def numpy(self) -> Any:
        """Wait for the data and return a copy as a NumPy array; see `Context.wait`."""
        result = self.context.wait(self)
        return np.asarray(result, self.dtype) if self.shape == () and self.core.layout.interface is None else result

    def __float__(self) -> float:
        return float(self.context.wait(self))

    def __int__(self) -> int:
        return int(self.context.wait(self))

    def __complex__(self) -> complex:
        return complex(self.context.wait(self))

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self!r} has no truth value; wait for its content: bool(ctx.wait(l)), or compare with `is None`"
        )

    def write_back(self) -> None:
        """Refresh the user's array now, after the last use; blocks until it is done."""
        self.context.refresh(self)

    def release(self) -> None:
        """Give the data up: written back and freed after its last use. Later accesses are errors."""
        self.context.release(self)

    def accept(self) -> LogicalData:
        """Declare poisoned content good: a failed task's partial writes are kept. Returns the data."""
        self.context.accept(self)
        return self

    def empty_like(self, *, name: str | None = None) -> LogicalData:
        """Return new data of the same shape, dtype and order, with no content."""
        return self.context.empty_with_layout(self.core.layout.packed(), name)

    def tiles(self, shape: int | Sequence[int]) -> Any:
        """Split the data into tiles.

        While tiles live, an access to this data is an `AccessError`; when all are released the data is whole again.

        Parameters
        ----------
        shape : int or sequence of int
            Extents of a tile, one per axis; tiles at the far ends may be smaller.

        Returns
        -------
        numpy.ndarray
            Object array of logical data, one per tile.
        """
        from stf.tiling import split

        return split(self, shape)

    # -- story -------------------------------------------------------------------------------------------------

    def last_writer(self) -> str:
        """Who wrote the present content, for messages; not who failed to, or was skipped."""
        return self.core.version.last_writers()[0][0]

    def history(self) -> str:
        """Return who wrote the data, where it is valid, and which copies it caused and who asked for them.

        Tasks that were to write it since, and failed or were skipped, are named after the one that did.
        """
        core = self.core
        names = core.engine.place_names
        lines = [f"{core.describe()}: written by {self.last_writer()}"]
        later = core.version.last_writers()[1:]
        lines += [f"  not by {writer}: {why}" for writer, why in later[:NAMED_WRITERS]]
        if len(later) > NAMED_WRITERS:
            lines.append(f"  nor by {len(later) - NAMED_WRITERS} tasks after those")
        states = ("no valid content", "shared", "modified")
        for replica in core.version.replicas:
            home = ", the user's array" if replica.home else ""
            lines.append(f"  {names[replica.place]}: {states[replica.state]}{home}")
        for source, target, asked in core.log or ():
            who = f" for task {asked[0]} at {site_text(asked[1], asked[2])}" if asked else ""
            lines.append(f"  copied {names[source]} -> {names[target]}{who}")
        outcome = core.version.outcome
        if outcome is not None and outcome.failed() is not None:
            lines.append(f"  poisoned: {outcome.failed().story()}")
        return "\n".join(lines)

    @never_raises
    def _repr_html_(self) -> str | None:
        return data_html(repr(self).strip("<>"), self.history())

    def __repr__(self) -> str:
        core = self.core
        if core.token:
            return f"<stf token {core.label()}>"
        valid = [core.engine.place_names[r.place] for r in core.version.replicas if r.state]
        where = f"valid on {', '.join(valid)}" if valid else "no content yet"
        return f"<logical data {core.label()} {core.layout.dtype} {core.layout.shape}, {where}>"

    # -- what it is not ----------------------------------------------------------------------------------------

    def _not_an_array(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"logical data {self.core.label()} is not an array: open it in a task (lX.read(), lX.rw()), or wait "
            "for a copy "
            "with lX.numpy()"
        )

    __array__ = __getitem__ = __setitem__ = __iter__ = __len__ = _not_an_array
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _not_an_array
    __matmul__ = __rmatmul__ = __pow__ = __rpow__ = __neg__ = __iadd__ = __imul__ = __isub__ = _not_an_array
    __array_ufunc__ = None


class Frozen:
    """Logical data lent outside tasks, until `unfreeze`. Made by ``ctx.freeze``; also a with-block."""

    def __init__(self, context: Context, data: LogicalData, mode: int, place: Any) -> None:
        self.context = context
        self.data = data
        self.mode = mode
        self.place = place
        self.active = True

    def get(self, data_place: Any = None, stream: Any = None) -> Any:
        """Return the array at a data place (that of the freeze by default), valid for work after this call.

        Parameters
        ----------
        data_place : DataPlace, optional
            Another place is allowed for data frozen for reading.
        stream : stream, optional
            Where the array is going to be used. On a CPU the call blocks until the array is valid.
        """
        return self.context.frozen_view(self, data_place, stream)

    def unfreeze(self, stream: Any = None) -> None:
        """End the loan; later writers come after what `stream` was given."""
        self.context.unfreeze(self, stream)

    def get_access_mode(self) -> access_mode:
        """Return ``access_mode.read`` or ``access_mode.rw``."""
        return access_mode(self.mode)

    def __enter__(self) -> Frozen:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.active:
            self.unfreeze()


# -- custom data ---------------------------------------------------------------------------------------------------

_interfaces: dict[type, tuple[str, Any, Any]] = {}


def register_data_interface(
    kind: type,
    flatten: Callable[[Any], Sequence[Any]] | None = None,
    unflatten: Callable[[Any, Sequence[Any]], Any] | None = None,
    *,
    interface: Any = None,
) -> None:
    """Teach `logical_data` a type.

    Parameters
    ----------
    kind : type
        The type of object to register; subclasses too.
    flatten : callable, optional
        ``flatten(obj)`` gives the arrays that make it up.
    unflatten : callable, optional
        ``unflatten(obj, arrays)`` makes such an object of a task's arrays; `obj` is the registered one.
    interface : object, optional
        The full form, for any format: ``allocate(data_place) -> instance``, ``copy(target, source)``,
        ``view(instance)`` (what a body gets), ``to_host(instance)`` (what `wait` returns), ``nbytes(obj) -> int``.
        It receives the registered object as ``interface(obj)``, once per data.

    Examples
    --------
    >>> import scipy.sparse, stf
    >>> stf.register_data_interface(scipy.sparse.csr_array,
    ...     flatten=lambda a: (a.data, a.indices, a.indptr),
    ...     unflatten=lambda a, parts: scipy.sparse.csr_array(tuple(parts), a.shape, copy=False))
    """
    if (interface is None) == (flatten is None or unflatten is None):
        raise TypeError("register_data_interface takes flatten= and unflatten=, or interface=; got both or neither")
    _interfaces[kind] = ("full", interface, None) if interface is not None else ("simple", flatten, unflatten)


def find_interface(obj: Any) -> tuple[str, Any, Any] | None:
    """What was registered for the type of `obj`, or for a base of it."""
    for kind in type(obj).__mro__:
        if kind in _interfaces:
            return _interfaces[kind]
    return None


class CompositeAccess:
    """An access to data made of several arrays."""

    def __init__(self, data: CompositeData, mode: int, data_place: Any) -> None:
        self.data = data
        self.parts = data.expand_mode(mode, data_place)
        self.rebuild = data.rebuild

    def expand(self) -> list[Any]:
        """The accesses to its parts."""
        return self.parts


class CompositeData:
    """Logical data made of several arrays, given to tasks as one object."""

    def __init__(
        self, obj: Any, parts: list[LogicalData], unflatten: Callable[[Any, Any], Any], name: str | None
    ) -> None:
        self.obj = obj
        self.parts = parts
        self.unflatten = unflatten
        self._name = name

    def read(self, data_place: Any = None) -> CompositeAccess:
        """Return an access that reads; see `LogicalData.read`."""
        return CompositeAccess(self, 1, data_place)

    def write(self, data_place: Any = None) -> CompositeAccess:
        """Return an access that overwrites; see `LogicalData.write`."""
        return CompositeAccess(self, 2, data_place)

    def rw(self, data_place: Any = None) -> CompositeAccess:
        """Return an access that reads and writes; see `LogicalData.rw`."""
        return CompositeAccess(self, 3, data_place)

    def expand_mode(self, mode: int, data_place: Any = None) -> list[Any]:
        """The accesses to its parts."""
        verbs = {1: LogicalData.read, 2: LogicalData.write, 3: LogicalData.rw}
        if mode not in verbs:
            raise TypeError(f"{self!r} cannot be accumulated into; open it with rw()")
        return [verbs[mode](part, data_place) for part in self.parts]

    def rebuild(self, arrays: Sequence[Any]) -> Any:
        """The object that a body gets."""
        return self.unflatten(self.obj, list(arrays))

    @property
    def context(self) -> Context:
        """The context that it belongs to."""
        return self.parts[0].context

    @property
    def name(self) -> str | None:
        """What messages call it."""
        return self._name

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.parts)

    def numpy(self) -> Any:
        """Wait and return an object made of copies."""
        return self.rebuild([part.numpy() for part in self.parts])

    def write_back(self) -> None:
        """Refresh the user's object now."""
        for part in self.parts:
            part.write_back()

    def release(self) -> None:
        """Give all parts up."""
        for part in self.parts:
            part.release()

    def __repr__(self) -> str:
        return f"<logical data of {type(self.obj).__name__}, {len(self.parts)} arrays>"


def view_for_host(replica: Any, library: str | None) -> Any:
    """What `wait` returns of a host replica: a copy."""
    layout = replica.layout
    if layout.interface is not None:
        return layout.interface.to_host(replica.instance)
    array = adapters.view(replica, False, "numpy")
    if library is not None:
        return adapters.from_numpy(array.copy(), library)
    return array[()].item() if array.ndim == 0 and array.dtype.kind in "biufc" else array.copy()
