"""Partitioned data: one array whose parts are data at home on the places of a grid.

The user holds the whole (`PartitionedData`) and its parts (`DataPart`). Both are logical data, so whatever takes these
takes them. `Pieces` has what all handles share. It holds plain handles of all data; what users hold are further handles
of the same data, which do not give them up. So a part keeps the whole alive, and nothing is a cycle.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from stf._engine import parts as engine_parts
from stf._engine.access import ACCUMULATE, AFFINE, MODE_NAMES, Access
from stf.data.logical_data import LogicalData
from stf.data.pieces import Pieces
from stf.errors import AccessError, PlaceError, TaskStateError
from stf.places.halos import margins_of
from stf.places.partition import Part, positions_of
from stf.places.places import CompositePlace, Grid
from stf.tasks.checks import must_be_open

__all__ = ["DataPart", "PartitionedData", "Parts", "PartsAccess", "bring_home", "partitioned_form"]

known: weakref.WeakValueDictionary[Any, Pieces] = weakref.WeakValueDictionary()  # by the data that is the whole


class PartitionedData(LogicalData):
    """Logical data whose parts lie on the places of a grid, each with a version of its own.

    Made by ``ctx.logical_data(X, data_place=stf.data_place.composite(grid, part))``. A task may use the whole, as other
    data; then it comes after all tasks on parts. Tasks on parts run side by side.

    Attributes
    ----------
    parts : Parts
        The parts (`DataPart`), in the shape of the grid: an array of NumPy's, with accesses for `launch`.
    grid : Grid
        The places.
    partition : partition
        Which part of the data belongs to which place.

    Examples
    --------
    >>> X = np.zeros(6)
    >>> grid = stf.exec_place.n_devices(2)
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data(X, data_place=stf.data_place.composite(grid, stf.partition("blocked")))
    ...     for p, place in enumerate(grid):
    ...         ctx.task(place, x.parts[p].rw())(lambda a, p=p: a + p)
    ...     print(x.numpy())
    [0. 0. 0. 1. 1. 1.]
    """

    __slots__ = ("_parts", "_pieces")
    _shown = [*LogicalData._shown, "grid", "partition", "parts"]

    def __init__(self, pieces: Pieces) -> None:
        super().__init__(pieces.whole.core)
        self._pieces = pieces
        found = np.empty(pieces.grid.dims, object).view(Parts)
        for k, where in enumerate(positions_of(pieces.grid.dims)):
            found[where] = DataPart(pieces, k, where)
        self._parts = found

    def __del__(self) -> None:
        """Leave the data to the handle that `Pieces` has."""

    @property
    def parts(self) -> Any:
        """The parts, in the shape of the grid."""
        return self._parts

    @property
    def grid(self) -> Any:
        """The places of the parts."""
        return self._pieces.grid

    @property
    def partition(self) -> Any:
        """The partition: which part belongs to which place."""
        return self._pieces.place.partition

    @property
    def data_place(self) -> Any:
        """The composite place over which they lie.

        Examples
        --------
        >>> place = stf.data_place.composite(stf.exec_place.n_devices(2), stf.partition("blocked"))
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     print(ctx.logical_data(np.zeros(4), data_place=place).data_place == place)
        True
        """
        return self._pieces.place

    def read(self, data_place: Any = None) -> Any:
        """Return an access that reads; at their composite place it is to the parts where they lie, as one array.

        Parameters
        ----------
        data_place : data_place, optional
            As of `LogicalData.read`, or the data's own composite place. Where the memories of its devices share no
            address, as those of emulated devices, that means the memory of the place where the task runs.

        Raises
        ------
        TypeError
            `data_place` is no data place.
        PlaceError
            It is another composite place.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     place = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
        ...     x = ctx.logical_data(np.arange(4.0), data_place=place)
        ...     ctx.task(0, x.rw(x.data_place))(lambda x: x + 1)
        ...     print(x.parts[1].numpy())
        [3. 4.]
        """
        return self._access("read", data_place)

    def _access(self, verb: str, data_place: Any) -> Any:
        """Return an access to the data, at a composite place to what lies under one address there."""
        if not isinstance(data_place, CompositePlace):
            return getattr(super(), verb)(data_place)
        window = self._window_at(data_place)
        return getattr(super(), verb)() if window is None else getattr(window, verb)(self._place_of_window())

    def write(self, data_place: Any = None) -> Any:
        """Return an access that overwrites; see `read`.

        Raises
        ------
        AccessError
            The data are read-only.
        TypeError, PlaceError
            As of `read`.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     place = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
        ...     x = ctx.logical_data(np.zeros(4), data_place=place)
        ...     ctx.task(0, x.write(x.data_place))(lambda x: np.arange(4.0))
        ...     print(x.parts[1].numpy())
        [2. 3.]
        """
        return self._access("write", data_place)

    def rw(self, data_place: Any = None) -> Any:
        """Return an access that reads and writes; see `read`.

        Raises
        ------
        AccessError
            The data are read-only.
        TypeError, PlaceError
            As of `read`.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     place = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
        ...     x = ctx.logical_data(np.zeros(4), data_place=place)
        ...     ctx.task(1, x.rw(x.data_place))(lambda x: x + 1)
        ...     print(x.numpy())
        [1. 1. 1. 1.]
        """
        return self._access("rw", data_place)

    def mapping_on(self, grid: Grid) -> Any:
        """Return the composite place if the places of a grid see the data there, under one address; else None."""
        is_seen = "whole" in self._pieces.forms and set(grid.places) <= set(self.grid.places)
        return self._pieces.place if is_seen else None

    def _window_at(self, place: Any) -> LogicalData | None:
        if place != self._pieces.place:
            raise PlaceError(f"{self.core.describe()} lies at {self._pieces.place!r}, got {place!r}; use that")
        form = self._pieces.forms.get("whole")
        return None if form is None else form.handle

    def _place_of_window(self) -> Any:
        owned = (home for home, box in zip(self._pieces.homes, self._pieces.boxes, strict=True) if box.size)
        return next(owned, self._pieces.homes[0])

    def tiles(self, shape: Any) -> Any:
        """Refuse: partitioned data are cut already."""
        raise AccessError(f"{self.core.describe()} is partitioned; use its parts, lX.parts, in place of tiles")

    def ready(self) -> bool:
        """Return whether the newest content of every region is there; see `LogicalData.ready`.

        Raises
        ------
        ContextClosedError
            The context was finalized.
        """
        must_be_open(self.context)
        newer = [part for part in self._pieces.handles if part.core.linked.is_newer_part()]
        asked = newer if len(newer) == len(self._pieces.handles) else [self._pieces.whole, *newer]
        return bool(self.context._are_ready(asked))

    def accept(self) -> PartitionedData:
        """Declare poisoned content good, in all parts and in the whole. Returns the data.

        Raises
        ------
        ContextClosedError
            The context was finalized.
        """
        for part in self._parts.ravel():
            part.accept()
        accept_one(self)
        return self

    def release(self) -> None:
        """Give the data and all parts up; see `LogicalData.release`.

        Raises
        ------
        AccessError
            The data are frozen, or a recorded graph uses them.
        TaskStateError
            A task that uses them is open, or something is recorded.
        ContextClosedError
            The context was finalized.
        """
        self._pieces.release()

    def history(self) -> str:
        """Return the history of the whole and of each part; see `LogicalData.history`."""
        return "\n".join([super().history(), *(handle.history() for handle in self._pieces.handles)])

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, partitioned over {self.grid.dims} by {self.partition!r}>"


class Parts(np.ndarray[Any, Any]):
    """The parts of partitioned data, in the shape of the grid. Get them from ``lX.parts``.

    An array of NumPy's, whose items are `DataPart`. `read`, `write` and `rw` are accesses to all of them, for
    `Context.launch`: each place gets its own part.

    Examples
    --------
    >>> from stf import con, par
    >>> grid = stf.exec_place.n_devices(2)
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data(np.zeros(6), data_place=stf.data_place.composite(grid, stf.partition("blocked")))
    ...     @ctx.launch(par(2, con(2)), x.parts.rw())
    ...     def add(th, x):
    ...         for i in range(th.rank(), x.size, th.size()):
    ...             x[i] += i
    ...     print(x.numpy())
    [0. 1. 2. 0. 1. 2.]
    """

    def read(self, *, halo: Any = None, halo_mode: str = "none") -> PartsAccess:
        """Return an access to each part that reads, perhaps with a halo; see `DataPart.read`.

        Raises
        ------
        TypeError, ValueError, AccessError
            As of `DataPart.read`.
        """
        given: dict[str, Any] = {} if halo is None else {"halo": halo, "halo_mode": halo_mode}
        return PartsAccess("read", self, **given)

    def write(self) -> PartsAccess:
        """Return an access to each part that overwrites; see `DataPart.write`.

        Raises
        ------
        AccessError
            The data are read-only.
        """
        return PartsAccess("write", self)

    def rw(self) -> PartsAccess:
        """Return an access to each part that reads and writes; see `DataPart.rw`.

        Raises
        ------
        AccessError
            The data are read-only.
        """
        return PartsAccess("rw", self)


class PartsAccess:
    """An access to each part of some data, for `Context.launch`. Get one from ``lX.parts.read()`` and the like."""

    __slots__ = ("accesses", "parts", "verb")

    def __init__(self, verb: str, parts: Parts, **given: Any) -> None:
        self.verb, self.parts = verb, list(parts.ravel())
        self.accesses = [getattr(part, verb)(**given) for part in self.parts]

    def __repr__(self) -> str:
        return f"parts.{self.verb}() of {self.parts[0].whole.core.label() if self.parts else 'no parts'}"


class DataPart(LogicalData):
    """A part of partitioned data: logical data at home in the memory of one place. Get one from ``lX.parts``.

    Attributes
    ----------
    whole : PartitionedData
        What it is a part of.
    position : tuple of int
        Its place in the grid.
    exec_place : ExecPlace
        The place whose memory it lies in.
    region : Part
        Which elements of the whole it has.

    Examples
    --------
    >>> grid = stf.exec_place.n_devices(2)
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data(np.arange(6.0), data_place=stf.data_place.composite(grid, stf.partition("blocked")))
    ...     part = x.parts[1]
    ...     print(part.shape, part.position, part.exec_place, part.region)
    ...     ctx.task(part.exec_place, part.read(halo=1))(lambda a: print(a))  # the last element of part 0, and its own
    (3,) (1,) exec_place.device(1) Part(range(3, 6))
    [2. 3. 4. 5.]
    """

    __slots__ = ("_number", "_pieces", "position")
    _shown = [*LogicalData._shown, "exec_place", "position", "region", "whole"]

    def __init__(self, pieces: Pieces, number: int, position: tuple[int, ...]) -> None:
        super().__init__(pieces.handles[number].core)
        self._pieces, self._number, self.position = pieces, number, position

    def __del__(self) -> None:
        """Leave the data to the handle that `Pieces` has."""

    @property
    def whole(self) -> PartitionedData:
        """What it is a part of."""
        return PartitionedData(self._pieces)

    @property
    def exec_place(self) -> Any:
        """The place whose memory it lies in."""
        return self._pieces.grid.places[self._number]

    @property
    def region(self) -> Part:
        """Which elements of the whole it has: for each axis a range, or tiles."""
        return self._pieces.boxes[self._number]

    def read(self, data_place: Any = None, *, halo: Any = None, halo_mode: str = "none") -> Any:
        """Return an access that reads, perhaps with the edges of the neighbours around.

        Parameters
        ----------
        data_place : data_place, optional
            As of `LogicalData.read`.
        halo : int or tuple of int, optional
            How many rows of the neighbours the array has on each side, along each axis. There are none where the whole
            ends. The array lies in the memory of the part's own place.
        halo_mode : str, optional
            ``"periodic"``: beyond the end of the whole its other end follows.

        Raises
        ------
        TypeError, ValueError
            `halo` is no width for each axis, a part is thinner than the halo, or the parts are no blocks.
        AccessError, TaskStateError
            Memory with wider margins is needed, and the part is in use by a task or a recorded graph.
        """
        if halo is None:
            return super().read(data_place)
        if data_place is not None and data_place != self._pieces.homes[self._number]:
            raise PlaceError(
                f"{self.core.describe()} is read with a halo at {self._pieces.homes[self._number]!r}, where it lies, "
                f"got {data_place!r}; leave data_place out"
            )
        handle = self._pieces.padded(self._number, halo, halo_mode)
        return handle.read(self._pieces.homes[self._number])

    def at_indices_of_whole(self, verb: str, halo: tuple[int, ...]) -> Any:
        """Return an access to the part with a halo, and how its array is seen as one of the whole's shape.

        The second is that shape, and the index of the array's first element in it; or None if the array has that shape,
        and only what is part or halo may be used. The result is None if there is no such memory.
        """
        pieces, k = self._pieces, self._number
        if pieces.mapping is not None:
            return getattr(pieces.window_of_indices(k, halo), verb)(pieces.homes[k]), None
        if self.context.on_cuda:
            return None
        starts = tuple(along.start for along in self.region)
        if not any(halo):
            return getattr(self, verb)(), (pieces.shape, starts)
        try:
            access = self.read(halo=halo)
        except (AccessError, TaskStateError):  # memory with wider margins is needed, and the part is in use
            return None
        before = margins_of(self.region, pieces.shape, halo, "none").before
        return access, (pieces.shape, tuple(a - b for a, b in zip(starts, before, strict=True)))

    def write(self, data_place: Any = None, *, halo: Any = None) -> Any:
        """Return an access that overwrites; see `LogicalData.write`.

        Raises
        ------
        AccessError
            A halo is asked for, or the data are read-only.
        TypeError
            `data_place` is no data place.
        """
        self._refuse_halo("write", halo)
        return super().write(data_place)

    def rw(self, data_place: Any = None, *, halo: Any = None) -> Any:
        """Return an access that reads and writes; see `LogicalData.rw`.

        Raises
        ------
        AccessError
            A halo is asked for, or the data are read-only.
        TypeError
            `data_place` is no data place.
        """
        self._refuse_halo("rw", halo)
        return super().rw(data_place)

    def _refuse_halo(self, verb: str, halo: Any) -> None:
        if halo is not None:
            raise AccessError(
                f"{self.core.describe()} has no {verb}(halo=): halos are read. Write the part, and read the neighbours "
                "with read(halo=) in the next step"
            )

    def tiles(self, shape: Any) -> Any:
        """Refuse: a part is cut already."""
        raise AccessError(f"{self.core.describe()} is a part, and has no tiles; use a grid of more places")

    def set_write_back(self, flag: bool) -> DataPart:
        """Refuse: it is the whole that is written back."""
        raise ValueError(f"{self.core.describe()} is a part; say set_write_back of the whole")

    def write_back(self) -> None:
        """Refuse: it is the whole that is written back."""
        raise ValueError(f"{self.core.describe()} is a part; say write_back() of the whole")

    def accept(self) -> DataPart:
        """Declare poisoned content good; see `LogicalData.accept`.

        Raises
        ------
        ContextClosedError
            The context was finalized.
        """
        accept_one(self)
        return self

    def release(self) -> None:
        """Refuse: parts are released with the whole."""
        raise AccessError(f"{self.core.describe()} is a part; release the whole")


# -- making and ending -----------------------------------------------------------------------------------------------


def partitioned_form(context: Any, handle: LogicalData, place: CompositePlace) -> PartitionedData:
    """Return data over a composite place, made of data that were just registered, or are partitioned already."""
    pieces = known.get(handle.core)
    if pieces is not None:
        if pieces.place != place:
            raise PlaceError(f"{handle.core.describe()} is partitioned already, over {pieces.place!r}; got {place!r}")
        return PartitionedData(pieces)
    pieces = known[handle.core] = Pieces(context, handle, place)
    if handle.core.home is not None and not handle.core.readonly:
        if context._kept_parts is None:
            context._kept_parts = []
        context._kept_parts.append(pieces)
    return PartitionedData(pieces)


def known_form(handle: LogicalData) -> Any:
    """Return the handle that users have of data that are partitioned already."""
    pieces = known.get(handle.core)
    return handle if pieces is None else PartitionedData(pieces)


def access_on(access: Any, grid: Grid) -> Any:
    """Return the access that a task on a grid means by one without a data place.

    Data that lie over these places are used there.
    """
    if not isinstance(access, Access) or access.place != AFFINE or access.data.core.token:
        return access
    if access.mode == ACCUMULATE or not isinstance(access.data, LogicalData):
        return access
    data: Any = known_form(access.data)
    if not isinstance(data, PartitionedData) or data.grid.places != grid.places:
        return access
    verb = getattr(data, MODE_NAMES[access.mode])
    found = verb(data.data_place)
    return found if found.place != AFFINE else verb(data._place_of_window())  # gathered there


def bring_home(context: Any) -> None:
    """Refresh the wholes that users look at when a context has ended."""
    for pieces in context._kept_parts or ():
        core = pieces.whole.core
        if core.write_back and not core.released and context.engine.cancelled is None:
            pieces.refresh_whole(None, core.home.place)


def accept_one(handle: LogicalData) -> None:
    """Accept one data: what a copy brought of spoilt content is brought again."""
    is_spoilt = handle._failure() is not None or handle.core.version.may_fail()
    LogicalData.accept(handle)
    if is_spoilt:
        handle.context.engine.patiently(engine_parts.forget_copy, handle.core)
