"""Logical data: what a context knows of the user's arrays."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from stf import config
from stf._engine import adoption, recording_caches, retiring
from stf._engine.access import DataHandle, accumulate_access, handle_type, shared
from stf._port.replicas import Layout
from stf._support.arguments import name_of, truth
from stf._support.completion import Shown, public
from stf.data.assigning import assign
from stf.errors import ContextClosedError
from stf.interop import adapters
from stf.interop.dtypes import is_narrow
from stf.kernels.reductions import Reduction, reduction
from stf.observe.html import data_html, never_raises
from stf.places.table import data_place_code
from stf.tasks import validation
from stf.tasks.checks import must_be_open, must_be_outside, must_be_settled, must_not_be_in_a_body
from stf.tasks.task import ContextCore
from stf.values.conditions import Expression, Scalar, Value, is_operand, itself
from stf.values.reducers import as_reducer

if TYPE_CHECKING:
    from stf.data.tiles import Tiles

__all__ = ["LogicalData"]

NAMED_WRITERS = 4


class LogicalData(Shown, Scalar, DataHandle):
    """Data that tasks read and write, wherever they run. Made by a context.

    Attributes
    ----------
    shape, dtype, ndim, size, nbytes, strides
        As of a NumPy array; None for a token.
    name : str or None
        Its name in pictures and messages.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data(np.ones((2, 3)), name="x")
    ...     print(x.name, x.shape, x.dtype, x.ndim, x.size, x.nbytes, x.strides)
    ...     print(x.is_token, x.readonly, x.context is ctx)
    ...     print(x.numpy().sum())
    x (2, 3) float64 2 6 48 (24, 8)
    False False True
    6.0
    """

    __slots__ = ()

    # -- properties --------------------------------------------------------------------------------------------

    @property
    def context(self) -> Any:
        """The context that it belongs to."""
        context = self.core.engine.context()
        if context is None:
            raise ContextClosedError(f"the context of {self.core.describe()} is gone; keep a reference to it")
        return context

    @property
    def name(self) -> str | None:
        """Its name in pictures and messages.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     print(ctx.logical_data_ones(3, name="x").name)
        x
        """
        return self.core.name

    symbol = name

    def set_symbol(self, name: str) -> LogicalData:
        """Name the data; return it.

        Raises
        ------
        TypeError
            The name is no text.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     print(ctx.logical_data_ones(3).set_symbol("x").name)
        x
        """
        self.core.name = name_of(name)
        return self

    @property
    def is_token(self) -> bool:
        """Whether it only orders tasks."""
        return self.core.token

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Extents; None for a token."""
        return None if self.core.token else know_layout(self).shape

    @property
    def dtype(self) -> Any:
        """Element type; None for a token."""
        return None if self.core.token else know_layout(self).dtype

    @property
    def strides(self) -> tuple[int, ...] | None:
        """Steps in bytes at home; None for a token."""
        return None if self.core.token else know_layout(self).strides

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape or ())

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape or ()) if not self.core.token else 0

    @property
    def nbytes(self) -> int:
        """Bytes of one packed replica."""
        return 0 if self.core.token else int(know_layout(self).nbytes)

    @property
    def readonly(self) -> bool:
        """Whether it may only be read."""
        core = self.core
        return core.readonly and not (shared[0] and core.span is not None and core.span.book.is_shared(core))

    def set_write_back(self, flag: bool) -> LogicalData:
        """Say whether the user's array is refreshed at the end; return the data.

        Raises
        ------
        ValueError
            The data has no array of the user's to refresh, or is a tile and shall not be refreshed: it is what it was
            cut from that is.

        Examples
        --------
        >>> X = np.zeros(3)
        >>> with stf.context(devices="cpu:1") as ctx:
        ...     x = ctx.logical_data(X).set_write_back(False)
        ...     ctx.task(x.rw())(lambda x: x + 1)
        >>> X
        array([0., 0., 0.])
        """
        flag = truth("set_write_back's flag", flag)
        if not flag and self.core.parent is not None:
            raise ValueError(
                f"{self.core.describe()} is a tile: its content is part of {self.core.parent.describe()}; set it there"
            )
        if flag and self.core.home is None:
            raise ValueError(
                f"{self.core.describe()} was made from a shape; there is no array to write back to: register one with "
                "ctx.logical_data, or read it with ctx.wait"
            )
        self.core.write_back = flag
        return self

    # -- accesses ----------------------------------------------------------------------------------------------

    def place_code(self, data_place: Any) -> int:
        """Return the engine's number of a data place."""
        return data_place_code(self.context, data_place)

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

        Raises
        ------
        TypeError
            `op` is no operator, is not defined for the dtype, or the data are a token.
        AccessError
            The data are read-only.

        Examples
        --------
        >>> @stf.task
        ... def count(values: stf.Read, total: stf.Accumulate[stf.reducer.sum]):
        ...     total += values.sum()
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     values, total = ctx.logical_data_ones(10), ctx.logical_data_zeros(())
        ...     for device in range(2):
        ...         count.on(device)(values, total)
        ...     ctx.task(values.read(), total.accumulate(stf.reducer.sum))(lambda v, t: t + v.max())
        ...     print(ctx.wait(total))
        21.0
        """
        return accumulate_access(self, as_reducer(op), data_place)

    relaxed = accumulate

    def reduce(self, op: Any, data_place: Any = None, *, accumulate: bool = False) -> Reduction:
        """Return a reduction, for `Context.parallel_for`: what each element contributes is combined into the data.

        The body returns what it contributes to zero-dimensional data. Other data are a parameter of the body, which
        combines into their elements, as in ``h[bin] += 1``.

        Parameters
        ----------
        op : Reducer
            ``stf.reducer.sum`` and the like.
        data_place : DataPlace, optional
            As for `read`.
        accumulate : bool, optional
            Combine with the content from before, too; else that is overwritten.

        Raises
        ------
        TypeError
            `op` is no operator, is not defined for the dtype, or the data are a token.
        AccessError
            The data are read-only.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x, s = ctx.logical_data(np.arange(5.0)), ctx.logical_data_empty(())
        ...     ctx.parallel_for(x.shape, x.read(), s.reduce(stf.reducer.maxval))(lambda i, x: x[i])
        ...     print(ctx.wait(s))
        4.0
        """
        return reduction(self, op, data_place, accumulate)

    # -- content -----------------------------------------------------------------------------------------------

    def numpy(self) -> np.ndarray[Any, Any]:
        """Wait for the data and return a copy as a NumPy array; see `Context.wait`.

        Raises
        ------
        TaskFailedError
            A task failed that was to write it, or another one whose failure was not told yet.
        UninitializedDataError
            Nobody has written data that are read.
        AccessError
            The data are split into tiles, or released.
        TaskStateError
            It is called inside a task or a recording.
        ContextClosedError
            The context was finalized.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     x = ctx.logical_data_ones(3)
        ...     ctx.task(x.rw())(lambda x: x + 1)
        ...     print(x.numpy())
        [2. 2. 2.]
        """
        result = self.context.wait(self)
        return np.asarray(result, self.dtype) if self.shape == () and self.core.layout.interface is None else result

    def ready(self) -> bool:
        """Return whether the content is there, or known to be poisoned; nothing is waited for.

        Raises
        ------
        ContextClosedError
            The context was finalized.

        Examples
        --------
        >>> import numpy as np, stf
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data(np.zeros(3))
        ...     print(x.ready(), ctx.logical_data_empty(3).ready())
        True False
        """
        return bool(self.context._are_ready([self]))

    def __await__(self) -> Generator[Any, Any, np.ndarray[Any, Any]]:
        return self.context.wait_async(self).__await__()

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
        """Refresh your array, when the tasks that were submitted so far have written the data.

        The call returns at once. Wait for the data, or synchronize, before you look at the array. A task that fails
        leaves the array as it is.

        Raises
        ------
        TaskFailedError
            A task that was to write the data has failed already.
        ContextClosedError
            The context was finalized.

        Examples
        --------
        >>> import numpy as np, stf
        >>> X = np.zeros(3)
        >>> with stf.context(devices="cpu:1") as ctx:
        ...     x = ctx.logical_data(X)
        ...     ctx.fill(x, 2.0)
        ...     x.write_back()
        ...     print(ctx.wait(x), X)
        [2. 2. 2.] [2. 2. 2.]
        """
        context, core = self.context, self.core
        must_be_outside(context, "write_back")
        must_be_settled(context, self)
        if core.home is None:
            raise ValueError(f"{core.describe()} was made from a shape; there is no array to write back to")
        context.engine.patiently(retiring.refresh, core)
        retiring.raise_if_poisoned(core)

    def release(self) -> None:
        """Give the data up: written back and freed after its last use. Later accesses are errors.

        Raises
        ------
        AccessError
            The data are frozen, or tiles of them live.
        TaskStateError
            A task that uses them is open, or something is recorded.
        ContextClosedError
            The context was finalized.

        Examples
        --------
        >>> X = np.zeros(3)
        >>> with stf.context(devices="cpu:1") as ctx:
        ...     x = ctx.logical_data(X)
        ...     ctx.fill(x, 1.0)
        ...     x.release()
        ...     ctx.synchronize()
        ...     print(X)
        [1. 1. 1.]
        """
        context, engine = self.context, self.core.engine
        must_be_settled(context, self)
        recording_caches.give_up_recordings(engine, self.core)
        if config.validate:
            validation.await_home(engine, self.core)
        engine.patiently(retiring.release_data, self.core)

    def accept(self) -> LogicalData:
        """Declare poisoned content good: a failed task's partial writes are kept. Returns the data.

        Raises
        ------
        ContextClosedError
            The context was finalized.

        Examples
        --------
        >>> def half_done(x):
        ...     x[0] = 1.0
        ...     raise ValueError("stopped half-way")
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_zeros(2, name="x")
        ...     ctx.task(x.rw(), name="half_done")(half_done)
        ...     try:
        ...         x.numpy()
        ...     except stf.TaskFailedError:
        ...         print(x.accept().numpy())
        [1. 0.]
        """
        context = self.context
        must_not_be_in_a_body(context, "accept")
        must_be_settled(context, self)
        context.engine.patiently(retiring.accept, self.core)
        return self

    def empty_like(self, *, name: str | None = None, symbol: str | None = None) -> LogicalData:
        """Return new data of the same shape, dtype and order, with no content; of a token, a token.

        Raises
        ------
        ContextClosedError
            The context was finalized.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_ones((2, 3), np.float32)
        ...     y = x.empty_like(name="y")
        ...     print(y.name, y.shape, y.dtype)
        ...     ctx.copy(x, y)
        y (2, 3) float32
        """
        context, chosen = self.context, name_of(name, symbol)
        if self.is_token:
            return context.token(name=chosen)
        layout = know_layout(self).packed()
        must_be_open(context)
        return new_handle(context.engine, layout, chosen)

    @overload
    def tiles(self, shape: int | tuple[int]) -> Tiles[LogicalData, LogicalData]: ...
    @overload
    def tiles(self, shape: tuple[int, int]) -> Tiles[LogicalData, Tiles[LogicalData, LogicalData]]: ...
    @overload
    def tiles(self, shape: Sequence[int]) -> Tiles[LogicalData, Any]: ...
    def tiles(self, shape: Any) -> Any:
        """Split the data into tiles.

        While tiles live, an access to this data is an `AccessError`; when all are released the data is whole again.

        Parameters
        ----------
        shape : int or sequence of int
            Extents of a tile, one per axis; tiles at the far ends may be smaller.

        Returns
        -------
        numpy.ndarray
            Object array of logical data, one per tile; also a with-block, which releases them at its end. Type
            checkers know it as ``Tiles[tile, row]``.

        Raises
        ------
        TypeError
            An extent is no integer, or the data are a token.
        ValueError
            There is not one positive extent for each axis.
        AccessError
            The data are frozen, released, or split already.
        TaskStateError
            Something is recorded.
        ContextClosedError
            The context was finalized.

        Examples
        --------
        >>> import numpy as np, stf
        >>> @stf.task
        ... def add_one(x: stf.ReadWrite):
        ...     x += 1
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data(np.zeros((4, 4)))
        ...     with x.tiles((2, 2)) as tiles:
        ...         add_one(tiles[0, 1])
        ...     print(x.numpy().sum())
        4.0
        """
        from stf.data.tiles import split

        return split(self, shape)

    # -- description -------------------------------------------------------------------------------------------------

    def last_writer(self) -> str:
        """Return who wrote the present content, for messages; not who failed to, or was skipped.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_ones(3, name="x")
        ...     ctx.task(x.rw(), name="step")(lambda x: x + 1)
        ...     ctx.synchronize()
        ...     print("step" in x.last_writer())
        True
        """
        return self.core.version.last_writers()[0][0]

    def _failure(self) -> Any:
        """Return what spoiled the content, as far as is known now; None if nothing did."""
        version = self.core.version
        return version.outcome.failed() if version.is_poisoned() else None

    def history(self) -> str:
        """Return who wrote the data, where it is valid, and which copies it caused and who asked for them.

        Tasks that were to write it since, and failed or were skipped, are named after the one that did.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     x = ctx.logical_data_ones(3, name="x")
        ...     ctx.task(1, x.rw(), name="step")(lambda x: x + 1)
        ...     ctx.synchronize()
        ...     print("step" in x.history())
        True
        """
        core = self.core
        names = [place.name for place in core.engine.places]
        lines = [f"{core.describe()}: written by {self.last_writer()}"]
        later = core.version.last_writers()[1:]
        lines += [f"  not by {writer}: {why}" for writer, why in later[:NAMED_WRITERS]]
        if len(later) > NAMED_WRITERS:
            lines.append(f"  nor by {len(later) - NAMED_WRITERS} tasks after those")
        states = ("no valid content", "shared", "modified")
        for replica in core.version.replicas:
            home = ", the user's array" if replica.home else ""
            lines.append(f"  {names[replica.place]}: {states[replica.state]}{home}")
        lines += [f"  {copy.describe(names)}" for copy in core.log or ()]
        failure = self._failure()
        if failure is not None:
            lines.append(f"  poisoned: {failure.describe()}")
        return "\n".join(lines)

    @never_raises
    def _repr_html_(self) -> str | None:
        return data_html(repr(self).strip("<>"), self.history())

    def __repr__(self) -> str:
        core = self.core
        failure = self._failure()
        spoilt = "" if failure is None else f", poisoned: {failure.describe().splitlines()[0]}"
        if core.token:
            return f"<stf token {core.label()}{spoilt}>"
        valid = [core.engine.places[r.place].name for r in core.version.replicas if r.state]
        where = "no content yet" if core.version.partials is None else "content is made when it is used"
        where = f"valid on {', '.join(valid)}" if valid else where
        if core.layout.dtype is None:
            return f"<{core.describe()}{spoilt}>"
        return f"<logical data {core.label()} {core.layout.dtype} {core.layout.shape}, {spoilt[2:] or where}>"

    # -- what it is not ----------------------------------------------------------------------------------------

    def _not_an_array(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"logical data {self.core.label()} is not an array: open it in a task (lX.read(), lX.rw()), or wait "
            "for a copy "
            "with lX.numpy()"
        )

    __array__ = __getitem__ = __setitem__ = __iter__ = __len__ = _not_an_array
    __matmul__ = __rmatmul__ = _not_an_array
    __iadd__ = __imul__ = __isub__ = __itruediv__ = __ifloordiv__ = __imod__ = __ipow__ = _not_an_array
    __iand__ = __ior__ = __ixor__ = _not_an_array

    def _not_scalar(self) -> Any:
        """Arithmetic and comparisons are of scalars alone."""
        if self.is_token or self.core.layout.nbytes != self.core.layout.itemsize:
            return self._not_an_array()
        return NotImplemented

    # -- arithmetic of scalars ---------------------------------------------------------------------------------

    def assign(self, value: Any) -> LogicalData:
        """Compute an expression of scalars into this data, as one task: ``alpha.assign(rs / pAp)``.

        Parameters
        ----------
        value : expression, LogicalData or number
            Arithmetic (``+ - * / // % **``, ``abs``, functions of NumPy's such as ``np.sqrt``) of zero-dimensional or
            one-element data and numbers; those may be parameters of a graph.

        Returns
        -------
        LogicalData
            The data itself.

        Raises
        ------
        TypeError
            `value`, or this data, is no scalar, or `value` has a dtype that this data do not hold without loss, such as
            a float for integers, or int64 for int32. Floats may be rounded, and integers to floats.
        OverflowError
            A number is beyond the range of this data.
        UninitializedDataError
            Nobody has written data that are read.
        AccessError
            The data are read-only.
        ContextMismatchError
            Data belong to another context.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     a, b = ctx.logical_data(np.array(3.0)), ctx.logical_data(np.array(4.0))
        ...     length = ctx.logical_data_empty(())
        ...     length.assign(np.sqrt(a * a + b * b))
        ...     print(ctx.wait(length))
        5.0
        """
        if not is_operand(self):
            raise TypeError(f"assign computes one number, which {self.core.describe()} does not hold; write a task")
        if not is_operand(value):
            raise TypeError(f"assign takes an expression of scalar data and numbers, got {type(value).__name__}")
        expression = value if isinstance(value, Expression) else Value(itself, value)
        assign(self.context, self, expression)
        return self

    _shown = ["read", "rw", "write", *public(dir(), "place_code")]


handle_type.append(LogicalData)

OF_HANDLES = {  # what handles of tasks have, and users of futures try on the data that a task returns
    "result": "numpy() waits for the data and returns a copy",
    "exception": "numpy() raises what its task failed with",
    "done": "ready() says whether the data are there",
    "add_done_callback": "stf.as_completed([...]), or await, tells when the data are there",
    "_condition": "concurrent.futures waits for handles of tasks; for data there is stf.as_completed([...])",
}


def not_of_data(name: str, remedy: str) -> property:
    """Return an attribute that data have not, which says what to write."""

    def refuse(self: LogicalData) -> Any:
        raise AttributeError(f"logical data have no '{name}': {remedy}", name=name, obj=self)

    return property(refuse)


for name, remedy in OF_HANDLES.items():
    setattr(LogicalData, name, not_of_data(name, remedy))


def know_layout(data: Any) -> Any:
    """Return how data lie; wait for the task that finds it."""
    core = data.core
    if core.is_result and core.layout.dtype is None:
        context: ContextCore = data.context
        must_be_outside(context, "a wait for the shape of data", False, waits_for_one=True)
        context.engine.patiently(adoption.know_layout, core)
        retiring.raise_if_poisoned(core)
    return core.layout


def view_for_host(replica: Any, library: str | None) -> Any:
    """Return what `wait` returns of a host replica: a copy."""
    layout = replica.layout
    if layout.interface is not None:
        return layout.interface.to_host(replica.instance)
    array = adapters.view(replica, False, "numpy")
    if library is not None:
        return adapters.from_numpy(array.copy(), library)
    return copy_of(array)


def copy_of(array: Any) -> Any:
    """Return a copy of a NumPy array; a number of Python's without axes."""
    if array.ndim == 0 and is_narrow(array.dtype):
        return float(array)
    return array[()].item() if array.ndim == 0 and array.dtype.kind in "biufc" else array.copy()


def new_handle(engine: Any, layout: Layout | None, name: str | None, token: bool = False) -> LogicalData:
    """New data that nobody has used; without a layout, a token."""
    core = engine.new_data(layout, name, token)
    try:
        return LogicalData(core)
    except BaseException:
        engine.forget_new(core)
        raise
