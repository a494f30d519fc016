"""Loans: logical data lent outside tasks."""

from __future__ import annotations

import warnings
from typing import Any

from stf._engine import claims, handover, retiring
from stf._engine.access import drop, must_be_writeable
from stf._support.completion import Shown
from stf._support.sync import must_have_room
from stf.data.composite import CompositeData
from stf.data.logical_data import LogicalData
from stf.errors import CaptureError, PlaceError, TaskStateError
from stf.interop import adapters
from stf.interop.streams import pointer_of
from stf.places.places import DataPlace
from stf.places.table import current_place_code, data_place_code
from stf.tasks.annotations import access_mode
from stf.tasks.checks import must_be_settled, must_not_be_in_a_body
from stf.tasks.task import ContextCore

__all__ = ["Frozen", "freeze"]


def freeze(
    context: ContextCore,
    data: LogicalData | CompositeData,
    mode: str | access_mode = "read",
    data_place: DataPlace | None = None,
) -> Frozen:
    """Lend data outside tasks, until ``unfreeze``.

    Parameters
    ----------
    data : LogicalData or CompositeData
        The data; it must have content, and no open task. Of several arrays, all are lent or none.
    mode : str or access_mode
        ``"read"``: tasks may go on reading. ``"rw"``: no task may use it meanwhile. Calls of other threads that submit
        such a task wait until ``unfreeze``; in the thread that froze the data they are an `AccessError`, since it
        would wait for itself.
    data_place : DataPlace, optional
        Where ``get`` finds it by default; the host's memory, if not given.

    Raises
    ------
    AccessError
        It is frozen already, or split into tiles.
    ValueError
        `mode` is neither ``"read"`` nor ``"rw"``.
    UninitializedDataError
        Nobody has written data that are read.
    TaskStateError
        Something is recorded.
    ContextMismatchError
        Data belong to another context.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu:1") as ctx:
    ...     x = ctx.logical_data(np.arange(3.0), name="x")
    ...     with ctx.freeze(x) as lent:
    ...         print(lent.get().sum())
    3.0
    """
    if isinstance(data, CompositeData):
        return freeze_parts(context, data, mode, data_place)
    must_be_settled(context, data)
    place = DataPlace("host") if data_place is None else data_place
    data_place_code(context, place)
    wanted = {"read": access_mode.read, "rw": access_mode.rw}.get(mode, mode) if isinstance(mode, str) else mode
    if wanted not in (access_mode.read, access_mode.rw):
        raise ValueError(f"freeze takes mode 'read' or 'rw', got {mode!r}")
    if wanted == access_mode.rw and data.core.readonly:
        must_be_writeable(data.core, "cannot be frozen for writing")
    must_have_room()  # for the end of the loan, too
    lent = Frozen(context, data, int(wanted), place)
    try:
        context.engine.patiently(handover.freeze, data.core, int(wanted), lent.loan.holds)
        lent.number = note_loan(context, "freeze", data, int(wanted), 0)
        return lent
    except BaseException:
        if lent.loan.holds:
            lent.unfreeze()  # an interrupt came between
        lent.active = False
        raise


def freeze_parts(context: ContextCore, data: CompositeData, mode: Any, data_place: DataPlace | None) -> Frozen:
    for part in data.parts:
        must_be_settled(context, part)  # before one is lent, which the bodies may write
    parts: dict[int, Frozen] = {}
    try:
        for part in data.parts:
            if part.core.id not in parts:
                parts[part.core.id] = freeze(context, part, mode, data_place)
    except BaseException:
        for lent in parts.values():
            lent.unfreeze()
        raise
    return FrozenParts(data, parts)


def pointer_on_device(context: ContextCore, stream: Any) -> int:
    """Return the address of a caller's stream; on a CPU there is none."""
    pointer = pointer_of(stream)
    if not context.on_cuda:
        raise PlaceError(
            "stream= takes a CUDA stream, and this context runs on the CPU, where get blocks until the array is "
            "valid; leave it out"
        )
    return pointer


class Loan:
    """What an engine ends, as it releases data that were dropped, where a `Frozen` went that nobody uses.

    If somebody may use its array, the data stay frozen, and those that wait for the end of the loan get an error.
    """

    def __init__(self, core: Any, place: int, users: dict[int, Any]) -> None:
        self.core = self.parent = core  # as a tile's: what is gathered must let it go before it uses the data
        self.place = place
        self.users = users
        self.holds: list[Any] = []  # the data, once they are lent
        self.is_used = False  # somebody may have its array: `get` was called, and nobody said that it is over

    def close_inside(self) -> None:
        """End the loan, by who is inside of the engine."""
        if self.core.released:
            return
        if self.is_used:
            handover.keep_frozen(self.core.engine, self.core)
        else:
            handover.unfreeze(self.core.engine, self.core, self.place, list(self.users))


class Frozen(Shown):
    """Logical data lent outside tasks, until `unfreeze`. Made by ``ctx.freeze``; also a with-block.

    Examples
    --------
    >>> with stf.context(devices="cpu:1") as ctx:
    ...     x = ctx.logical_data(np.ones(3), name="x")
    ...     lent = ctx.freeze(x)
    ...     print(lent.get(), lent.mode, lent.active, lent.data is x)
    ...     lent.unfreeze()
    ...     print(lent.active)
    [1. 1. 1.] 1 True True
    False
    """

    _shown = ["active", "data", "get", "get_access_mode", "mode", "place", "unfreeze"]

    def __init__(self, context: ContextCore, data: Any, mode: int, place: Any) -> None:
        self.context = context
        self.data = data
        self.mode = mode
        self.place = place
        self.active = True
        self.number = 0  # of the operation, for observers
        self.users: dict[int, Any] = {}  # callers' streams that work on it, by address
        self.loan = Loan(getattr(data, "core", None), context.default_code, self.users)

    def __del__(self) -> None:
        loan = getattr(self, "loan", None)
        if loan is None or not loan.holds or not self.active or self.context._finished:
            return
        drop(self.context.engine.dropped, loan)
        claims.wake_one(self.context.engine)
        if loan.is_used:
            warnings.warn(
                f"{self.data!r} was frozen, and what can unfreeze it is gone: no task will write to it; keep what "
                "ctx.freeze returns, and call its unfreeze()",
                ResourceWarning,
                stacklevel=2,
            )

    def get(self, data_place: Any = None, stream: Any = None) -> Any:
        """Return the array at a data place (that of the freeze by default), valid for work after this call.

        Parameters
        ----------
        data_place : DataPlace, optional
            Another place is allowed for data frozen for reading.
        stream : stream, optional
            The caller's CUDA stream that is going to use the array: what comes there waits for the content, and later
            writers wait for what was given to it before `unfreeze`. Without it, the call blocks until the array is
            valid.

        Raises
        ------
        PlaceError
            `stream` is given on a CPU.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     with ctx.freeze(ctx.logical_data(np.ones(3))) as lent:
        ...         print(lent.get(), lent.get(stf.data_place.device(1)))
        [1. 1. 1.] [1. 1. 1.]
        """
        context = self.context
        self._must_be_active()
        pointer = None if stream is None else pointer_on_device(context, stream)
        if pointer is None:
            must_not_be_in_a_body(context, "get of frozen data")
        if data_place is not None and self.mode != access_mode.read and data_place != self.place:
            raise PlaceError(f"{self.data!r} is frozen for rw at {self.place!r} only, got {data_place!r}")
        if self.data.is_token:
            return None
        self.loan.is_used = True
        code = data_place_code(context, self.place if data_place is None else data_place)
        code = context.engine.places[current_place_code(context)].memory if code < 0 else code
        try:
            replica, events = context.engine.patiently(handover.frozen_replica, self.data.core, code, self.mode)
        except CaptureError as reason:
            raise CaptureError(
                f"{self.data.core.describe()}, which is frozen, cannot be had at {data_place or self.place!r} in a "
                f"capture: {reason}; get it where a device has it, or after the graph was launched"
            ) from None
        if pointer is None:
            context.engine.wait_events(events, -1.0)
        else:
            handover.signal_stream(context.engine, code or context.default_code, events, pointer, None)
            self.users[pointer] = stream
        retiring.raise_if_poisoned(self.data.core)
        library = context.arrays or replica.layout.library
        if context.engine.places[code].enqueues and context.engine.places[code].ordinal >= 0:
            return adapters.device_view(replica, library, context.engine.places[code].ordinal)
        return adapters.view(replica, self.mode != access_mode.read, library)

    def unfreeze(self, stream: Any = None) -> None:
        """End the loan; later writers come after what is on `stream` now, and on the streams that `get` was given.

        Raises
        ------
        TaskStateError
            It was called before, or something is recorded.
        ContextClosedError
            The context was finalized.

        Examples
        --------
        >>> with stf.context(devices="cpu:1") as ctx:
        ...     x = ctx.logical_data(np.ones(3))
        ...     lent = ctx.freeze(x, "rw")
        ...     lent.get()[:] = 2.0
        ...     lent.unfreeze()
        ...     print(x.numpy())
        [2. 2. 2.]
        """
        context = self.context
        if not self.active:
            raise TaskStateError(f"{self.data!r} is not frozen; unfreeze was called twice")
        loan = self.loan
        is_used, loan.is_used = loan.is_used, False  # nobody has the array from here on
        try:
            users = dict(self.users)
            if stream is not None:
                users[pointer_on_device(context, stream)] = stream
            self.active = False
            context.engine.patiently(handover.unfreeze, self.data.core, context.default_code, list(users))
        except BaseException as error:
            self.active = True  # a stream that cannot be waited for: another one may be given
            loan.is_used = is_used and not isinstance(error, MemoryError)
            raise
        self.users.clear()
        note_loan(context, "unfreeze", self.data, self.mode, self.number)

    def get_access_mode(self) -> access_mode:
        """Return ``access_mode.read`` or ``access_mode.rw``.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     with ctx.freeze(ctx.logical_data(np.ones(3)), "rw") as lent:
        ...         print(lent.get_access_mode().name)
        rw
        """
        return access_mode(self.mode)

    def _must_be_active(self) -> None:
        if not self.active:
            raise TaskStateError(f"{self.data!r} is not frozen any more; freeze it again")

    def __enter__(self) -> Frozen:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.active:
            self.unfreeze()


class FrozenParts(Frozen):
    """The loan of data made of several arrays; `get` returns the object that they make up."""

    def __init__(self, data: CompositeData, parts: dict[int, Frozen]) -> None:
        first = next(iter(parts.values()))
        super().__init__(first.context, data, first.mode, first.place)
        self.parts = parts

    def __del__(self) -> None:
        """Its parts say it."""

    def get(self, data_place: Any = None, stream: Any = None) -> Any:
        """Return the object, made of the arrays at a data place; see `Frozen.get`."""
        self._must_be_active()
        return self.data.rebuild([self.parts[part.core.id].get(data_place, stream) for part in self.data.parts])

    def unfreeze(self, stream: Any = None) -> None:
        """End the loan of every part; later writers come after what `stream` was given."""
        self._must_be_active()
        self.active = False
        for part in self.parts.values():
            part.unfreeze(stream)


def note_loan(context: ContextCore, kind: str, data: LogicalData, mode: int, begun: int) -> int:
    """Show a freeze, or the unfreeze of that number, in the task graph (STF_DOT_KEEP_FREEZE); return its number."""
    if context._dot is None:
        return 0
    number, waits_for = handover.number_loan(context.engine, data.core, mode, begun)
    context._dot.loan(kind, data.core.id, data.name or f"data{data.core.id}", mode, number, waits_for)
    return number
