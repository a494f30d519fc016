"""Where tasks run and where data are: `exec_place`, `data_place`, and grids of places."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from stf._support.completion import Shown, public
from stf.devices.make import configured_devices
from stf.errors import PlaceError

if TYPE_CHECKING:
    from stf.places.attributes import PlaceAttributes
    from stf.places.partition import Part

active_places = [0]  # how many with-blocks of places are open, in all threads

__all__ = ["CompositePlace", "DataPlace", "ExecPlace", "Grid", "ReplicatedPlace"]

MOST_DEVICES = 1024  # of a context


class AnyPlace(Shown):
    """A place, which is known by what it says: equal ones are as good as the same one."""

    __slots__ = ("index", "kind")
    _maker = ""  # as users call what makes it

    def __init__(self, kind: str, index: int = -1) -> None:
        self.kind = kind
        self.index = index

    def _value(self) -> tuple[Any, ...]:
        return self.kind, self.index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._value() == other._value()

    def __hash__(self) -> int:
        return hash(self._value())

    def __repr__(self) -> str:
        return f"{self._maker}.{self.kind}({self.index if self.kind == 'device' else ''})"


class DataPlace(AnyPlace):
    """A memory. Get one from `data_place`.

    Attributes
    ----------
    kind : str
        ``"host"``, ``"device"``, ``"managed"``, ``"affine"`` or ``"current_device"``.
    index : int
        Device number; -1 where there is none.

    Examples
    --------
    >>> stf.data_place.device(1).device_id, stf.data_place.host().device_id
    (1, -1)
    """

    __slots__ = ()
    _maker = "data_place"
    _shown = ["allocate", "allocation_is_stream_ordered", "device_id", "index", "kind"]

    @property
    def device_id(self) -> int:
        """The device number; -1 for memory that is not a device's.

        Examples
        --------
        >>> stf.data_place.device(2).device_id
        2
        """
        return self.index

    @property
    def allocation_is_stream_ordered(self) -> bool:
        """True if memory of `allocate` comes and goes in the order of a stream: that of a CUDA device.

        Examples
        --------
        >>> stf.data_place.host().allocation_is_stream_ordered
        False
        """
        return self.kind in ("device", "current_device") and is_on_cuda()

    def allocate(self, shape: Any, dtype: Any = None, stream: Any = None) -> Any:
        """Return a new array in this memory, outside of any context.

        Parameters
        ----------
        shape : int or tuple of int
            Extents.
        dtype : dtype, optional
            Element type. Without it, `shape` is a number of bytes, and the array is of uint8.
        stream : int or object with ``__cuda_stream__``, optional
            CUDA stream in whose order the memory of a device comes and goes. Without it, it is there at once, and goes
            when the device is idle.

        Returns
        -------
        OwnedArray
            Its content is undefined. ``ctx.logical_data`` takes it without a copy.

        Raises
        ------
        OutOfMemoryError
            There is not so much memory.
        PlaceError
            The place is no memory of its own, or there is no such device here.
        TypeError, ValueError
            An extent is no integer, or is negative; a tuple of extents has no dtype; it is no stream.

        Examples
        --------
        >>> array = stf.data_place.host().allocate((2, 3), "float64")
        >>> array.copy_to_device(np.ones((2, 3)))
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data(array)
        ...     ctx.task(x.rw())(lambda x: x + 1)
        >>> print(array.copy_to_host().sum())
        12.0
        """
        from stf.places.owned import allocate

        return allocate(self, shape, dtype, stream, is_on_cuda())


class ExecPlace(AnyPlace):
    """Where a task runs: the host or a device. Get one from `exec_place`.

    Usable in a with-block: tasks without a place of their own run there.

    Examples
    --------
    >>> place = stf.exec_place.device(1)
    >>> place == stf.exec_place.device(1), place.size, place.affine_data_place
    (True, 1, data_place.device(1))
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data_ones(3)
    ...     with place:  # tasks inside run there, if they do not say otherwise
    ...         ctx.task(x.rw())(lambda x: x + 1)
    ...     print(x.numpy())
    [2. 2. 2.]
    """

    __slots__ = ("affine", "ask_priorities")
    _maker = "exec_place"

    def __init__(self, kind: str, index: int = -1, affine: DataPlace | None = None) -> None:
        super().__init__(kind, index)
        self.affine = affine
        self.ask_priorities: Any = None  # of a device of a context: says what it has

    size = 1
    dims: tuple[int, ...] = (1,)

    def get_dims(self) -> tuple[int, ...]:
        """Return the shape of the grid of places; ``(1,)`` for one place.

        Examples
        --------
        >>> stf.exec_place.n_devices(4).reshape(2, 2).get_dims()
        (2, 2)
        """
        return self.dims

    def get_dim(self, axis: int) -> int:
        """Return the number of places along `axis`.

        Raises
        ------
        IndexError
            There is no such axis.

        Examples
        --------
        >>> stf.exec_place.n_devices(4).reshape(2, 2).get_dim(0)
        2
        """
        if not -len(self.dims) <= axis < len(self.dims):
            raise IndexError(f"axis {axis} of {self!r}, which has {len(self.dims)}; its shape is {self.dims}")
        return self.dims[axis]

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> ExecPlace:
        if index in (0, -1, (0,)):
            return self
        raise IndexError(f"{self!r} is one place; got index {index}")

    def __iter__(self) -> Iterator[ExecPlace]:
        yield self

    def reshape(self, *dims: Any) -> Grid:
        """Return the same places as a grid of another shape.

        Raises
        ------
        PlaceError
            That shape has another number of places.

        Examples
        --------
        >>> stf.exec_place.host().reshape(1, 1).dims
        (1, 1)
        """
        return Grid([self]).reshape(*dims)

    def pick_stream(self) -> Any:
        """Return a CUDA stream of this place for work of yours: one of a few, in turn.

        The process keeps them, so they outlive contexts. No context works on them; a place of one,
        ``exec_place.cuda_stream(stream)``, lets a context do so.

        Returns
        -------
        cuda.core.Stream
            It does not wait for the default stream. Of a place that is a stream, that one; of the host, a stream of the
            current device, for callbacks.

        Raises
        ------
        PlaceError
            The place has no CUDA streams: it is on a CPU and there is no CUDA device, or it is several places.

        Examples
        --------
        >>> stream = stf.exec_place.device(0).pick_stream()  # needs a GPU
        >>> with stf.context(devices="cuda:0") as ctx:
        ...     x = ctx.logical_data(np.ones(4))
        ...     ctx.task(stf.exec_place.cuda_stream(stream), x.rw())(lambda x: x + 1)
        ...     print(x.numpy())
        [2. 2. 2. 2.]
        """
        from stf.places.stream_pools import pick_stream

        return pick_stream(self)

    def stream_pool(self, n: int) -> tuple[Any, ...]:
        """Return `n` CUDA streams of this place for work of yours: the same ones each time.

        `pick_stream` gives the first of them. The process keeps them, so they outlive contexts.

        Parameters
        ----------
        n : int
            How many, from 1 to 1,024.

        Returns
        -------
        tuple of cuda.core.Stream

        Raises
        ------
        PlaceError
            The place has no CUDA streams, or it is one stream.
        ValueError
            `n` is no such number.

        Examples
        --------
        >>> pool = stf.exec_place.device(0).stream_pool(3)  # needs a GPU
        >>> pool == stf.exec_place.device(0).stream_pool(3)
        True
        """
        from stf.places.stream_pools import stream_pool

        return stream_pool(self, n)

    @property
    def affine_data_place(self) -> DataPlace:
        """The memory that is natural for this place.

        Examples
        --------
        >>> stf.exec_place.host().affine_data_place
        data_place.host()
        """
        if self.affine is not None:
            return self.affine
        if self.kind == "auto":
            return DataPlace("affine")
        return DataPlace("host") if self.kind == "host" else DataPlace(self.kind, self.index)

    @property
    def attributes(self) -> PlaceAttributes:
        """The hardware of a device or of the host.

        Raises
        ------
        PlaceError
            The place is no single device and not the host, or there is no such device here.

        Examples
        --------
        >>> stf.exec_place.host().attributes.cores > 0
        True
        """
        from stf.places.attributes import attributes_of

        return attributes_of(self, is_on_cuda())

    @property
    def priorities(self) -> tuple[int, int]:
        """The lowest and the highest priority that tasks have on a device of a context; a smaller number is higher.

        ``(0, 0)`` says that it has none. See `Context.task`.

        Raises
        ------
        PlaceError
            It is no device of a context.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     print(ctx.devices[0].priorities)
        (0, -5)
        """
        if self.ask_priorities is None:
            raise PlaceError(f"{self!r} is of no context, whose devices have priorities; ask ctx.devices[0].priorities")
        lowest, highest = self.ask_priorities()
        return int(lowest), int(highest)

    _shown = public(dir(), "dims", "size")

    def __getstate__(self) -> Any:
        state = super().__getstate__()  # type: ignore[misc]
        if isinstance(state, tuple):
            state[1].pop("ask_priorities", None)
            state[1]["ask_priorities"] = None
        return state

    def __enter__(self) -> ExecPlace:
        defaults().append(self)
        with _counting:
            active_places[0] += 1
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with _counting:
            active_places[0] -= 1
        defaults().pop()


class Grid(ExecPlace):
    """Several places in the shape of an array, in C order.

    Parameters
    ----------
    places : sequence of ExecPlace
        The members.
    dims : tuple of int, optional
        The shape; by default one axis.
    partition : partition, optional
        How index spaces and data are divided among the places: `blocked_partition` and the like, or an object with
        ``apply(shape, position, grid_dims)`` and ``get_executor(coords, dims, grid_dims)``.

    Examples
    --------
    >>> grid = stf.exec_place.n_devices(4).reshape(2, 2)
    >>> grid.size, grid.dims, grid[1, 0], len(grid)
    (4, (2, 2), exec_place.device(2), 4)
    """

    __slots__ = ("dims", "partition", "places")

    def __init__(self, places: Sequence[ExecPlace], dims: tuple[int, ...] | None = None, partition: Any = None) -> None:
        super().__init__("grid")
        self.partition = None if partition is None else partition_on(self, partition)
        self.places = tuple(places)
        self.dims = dims if dims is not None else (len(self.places),)
        if not self.places:
            raise PlaceError("a grid needs at least one place, got none")
        if math.prod(self.dims) != len(self.places):
            raise PlaceError(
                f"a grid of shape {self.dims} has {math.prod(self.dims)} places, got {len(self.places)}; make "
                "them equal"
            )

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of places."""
        return len(self.places)

    def __getitem__(self, index: Any) -> ExecPlace:
        if isinstance(index, tuple):
            if len(index) != len(self.dims):
                raise IndexError(f"a grid of shape {self.dims} takes {len(self.dims)} indices, got {index}")
            flat = 0
            for i, n in zip(index, self.dims, strict=True):
                if not -n <= i < n:
                    raise IndexError(f"index {index} is outside a grid of shape {self.dims}")
                flat = flat * n + i % n
            return self.places[flat]
        if hasattr(index, "__index__") and not -len(self.places) <= index < len(self.places):
            raise IndexError(f"a grid of {len(self.places)} places has no place {index}")
        return self.places[index]

    def __iter__(self) -> Iterator[ExecPlace]:
        return iter(self.places)

    def reshape(self, *dims: Any) -> Grid:
        """Return the same places, in the same order, as a grid of another shape; one extent may be -1.

        Raises
        ------
        PlaceError
            That shape has another number of places.
        TypeError, ValueError
            An extent is no int, or is negative.

        Examples
        --------
        >>> stf.exec_place.n_devices(6).reshape(2, -1).dims
        (2, 3)
        """
        shape = extents_of(dims)
        rest = -math.prod(shape)
        if shape.count(-1) == 1 and rest and len(self.places) % rest == 0:
            shape = tuple(len(self.places) // rest if n == -1 else n for n in shape)
        return Grid(self.places, shape, self.partition)

    def collapse_axes(self, first: int, last: int) -> Grid:
        """Return the same places with the axes from `first` to `last`, both included, taken together in C order.

        Raises
        ------
        IndexError
            The grid has no such axes, or `last` comes before `first`.

        Examples
        --------
        >>> stf.exec_place.n_devices(8).reshape(2, 2, 2).collapse_axes(0, 1).dims
        (4, 2)
        """
        first, last = check_index(first), check_index(last)
        if not first <= last < len(self.dims):
            raise IndexError(
                f"axes {first} to {last} of a grid of shape {self.dims}; it has the axes 0 to {len(self.dims) - 1}"
            )
        dims = (*self.dims[:first], math.prod(self.dims[first : last + 1]), *self.dims[last + 1 :])
        return Grid(self.places, dims, self.partition)

    def with_partition(self, partition: Any) -> Grid:
        """Return the same grid with another partition; None takes it off.

        Raises
        ------
        TypeError
            `partition` lacks ``apply`` or ``get_executor``.

        Examples
        --------
        >>> grid = stf.exec_place.n_devices(2).with_partition(stf.cyclic_partition())
        >>> [len(part[0]) for place, part in grid.parts(5)]
        [3, 2]
        """
        return Grid(self.places, self.dims, partition)

    def parts(self, shape: Any) -> list[tuple[ExecPlace, Part]]:
        """Return each place with its part of an index space, in C order; parts may be empty.

        Parameters
        ----------
        shape : int, tuple of int, tuple of slice or range
            Extents, or bounds.

        Raises
        ------
        PlaceError
            The grid has no partition.
        TypeError, ValueError
            An extent is no integer, or is negative.

        Examples
        --------
        >>> grid = stf.exec_place.n_devices(2).with_partition(stf.blocked_partition())
        >>> grid.parts(5)
        [(exec_place.device(0), Part(range(0, 3))), (exec_place.device(1), Part(range(3, 5)))]
        """
        partition = self._must_have_partition()
        from stf.places.partition import part_of, positions_of

        return [(self[at], part_of(partition, shape, at, self.dims)) for at in positions_of(self.dims)]

    def owner(self, coords: Any, shape: Any) -> ExecPlace:
        """Return the place that an element of a space of extents `shape` belongs to.

        Raises
        ------
        PlaceError
            The grid has no partition.
        IndexError
            The element is outside of the space.
        TypeError
            It is no integer, and no tuple of integers.

        Examples
        --------
        >>> grid = stf.exec_place.n_devices(2).with_partition(stf.blocked_partition())
        >>> grid.owner(3, 5)
        exec_place.device(1)
        """
        from stf.places.partition import executor_of

        return self[executor_of(self._must_have_partition(), coords, shape, self.dims)]

    def _must_have_partition(self) -> Any:
        if self.partition is None:
            raise PlaceError(f"{self!r} has no partition; give it one: grid.with_partition(stf.blocked_partition())")
        return self.partition

    @property
    def affine_data_place(self) -> DataPlace:
        """The memory of the only member; of several members with a partition their composite place.

        Raises
        ------
        PlaceError
            The places have several memories, and the grid has no partition.

        Examples
        --------
        >>> stf.exec_place.n_devices(1).affine_data_place
        data_place.device(0)
        >>> stf.exec_place.n_devices(2, stf.partition("blocked")).affine_data_place
        data_place.composite(exec_place.grid([exec_place.device(0), exec_place.device(1)], dims=(2,)), \
partition('blocked'))
        """
        if len(self.places) == 1:
            return self.places[0].affine_data_place
        if self.partition is None:
            raise PlaceError(
                f"{self!r} has several memories; ask one of its places, or give a data place per access; with a "
                "partition they are one composite place"
            )
        return CompositePlace(self, self.partition)

    _shown = ["get_dim", "get_dims", "pick_stream", "stream_pool", *public(dir())]

    def _value(self) -> tuple[Any, ...]:
        return self.places, self.dims, self.partition

    def __repr__(self) -> str:
        partition = "" if self.partition is None else f", partition={self.partition!r}"
        return f"exec_place.grid({list(self.places)}, dims={self.dims}{partition})"


class CompositePlace(DataPlace):
    """The memories of a grid, over which data are partitioned. Get one from ``data_place.composite(grid, part)``.

    Attributes
    ----------
    grid : Grid
        Its places; one part lies in the memory of each.
    partition : partition
        Which part of the data belongs to which of them.
    """

    __slots__ = ("grid", "partition")

    def __init__(self, grid: Grid, partition: Any) -> None:
        super().__init__("composite")
        self.grid, self.partition = grid, partition

    def _value(self) -> tuple[Any, ...]:
        return self.grid.places, self.grid.dims, self.partition

    def __repr__(self) -> str:
        return f"data_place.composite({self.grid.with_partition(None)!r}, {self.partition!r})"


class ReplicatedPlace(DataPlace):
    """All memories of a grid. Get one from ``data_place.replicated(grid)``.

    Attributes
    ----------
    grid : Grid
        The places, each of which gets a copy.
    """

    __slots__ = ("grid",)

    def __init__(self, grid: Grid) -> None:
        super().__init__("replicated")
        self.grid = grid

    def _value(self) -> tuple[Any, ...]:
        return (self.grid,)

    def __repr__(self) -> str:
        return f"data_place.replicated({self.grid!r})"


def is_on_cuda() -> bool:
    """Return whether devices are CUDA's: those of the context whose with-block this is, else of the default one."""
    if _state.contexts:
        return bool(_state.contexts[-1].on_cuda)
    return configured_devices().driver == "cuda"


def extents_of(dims: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the extents in ``reshape(2, 2)`` and ``reshape((2, 2))``, -1 among them."""
    from stf.places.partition import as_dims

    given = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    as_dims([0 if isinstance(n, (int, np.integer)) and n == -1 else n for n in given])
    return tuple(int(n) for n in given)


class _State(threading.local):
    def __init__(self) -> None:
        self.defaults: list[ExecPlace] = []
        self.contexts: list[Any] = []


_state = _State()
_counting = threading.Lock()


def defaults() -> list[ExecPlace]:
    """Return the places whose with-blocks this thread is in."""
    return _state.defaults


def contexts() -> list[Any]:
    """Return the contexts whose with-blocks this thread is in."""
    return _state.contexts


def check_index(index: Any) -> int:
    """Return a non-negative integer, and no bool."""
    if isinstance(index, (bool, type)) or not hasattr(index, "__index__"):
        raise TypeError(f"a device number is an integer, got {index!r}")
    if index < 0:
        raise PlaceError(f"a device number is not negative, got {index}")
    return int(index)


def must_be_data_place(thing: Any) -> None:
    """Refuse what is no data place."""
    if isinstance(thing, ExecPlace):
        raise TypeError(f"a data place is needed, got the execution place {thing!r}; use its affine_data_place")
    if not isinstance(thing, DataPlace):
        raise TypeError(f"a data place is needed, got {thing!r}; use data_place.host() or data_place.device(i)")


def is_auto(thing: Any) -> bool:
    """Return whether what users call a place is the one that is chosen for each task."""
    return thing.kind == "auto" if type(thing) is ExecPlace else type(thing) is str and thing == "auto"


def partition_on(place: Any, partition: Any) -> Any:
    """Return the partition that a user gives beside a place, which must be a grid."""
    if not isinstance(place, Grid):
        raise TypeError(f"a partition is for a grid of places, got {place!r}; say stf.exec_place.all_devices()")
    from stf.places.partition import check_partition

    return check_partition(partition)


def as_exec_place(thing: Any) -> ExecPlace:
    """Turn what users call a place into one: an int, ``"host"``, ``"auto"``, devices of torch, CuPy and cuda.core."""
    if isinstance(thing, ExecPlace):
        return thing
    if isinstance(thing, DataPlace):
        raise TypeError(f"an execution place is needed, got the data place {thing!r}; use exec_place or data_place=")
    if isinstance(thing, str) and thing in ("host", "auto"):
        return ExecPlace(thing)
    if isinstance(thing, (int, np.integer)) and not isinstance(thing, bool):
        return ExecPlace("device", check_index(int(thing)))
    if type(thing).__module__ == "torch" and hasattr(thing, "index"):
        return ExecPlace("host") if thing.type == "cpu" else ExecPlace("device", thing.index or 0)
    for attribute in ("device_id", "id"):
        if isinstance(getattr(thing, attribute, None), int) and type(thing).__name__ == "Device":
            return ExecPlace("device", check_index(getattr(thing, attribute)))
    raise TypeError(
        f"an execution place is needed, got {thing!r}; give exec_place.device(i), exec_place.host(), a number, "
        '"host" or "auto"'
    )
