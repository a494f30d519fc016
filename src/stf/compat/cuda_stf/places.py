"""`exec_place`, `exec_place_grid`, `data_place` and what they share, as names over stf's places."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import stf
from stf.compat.cuda_stf import allocations
from stf.compat.cuda_stf.errors import NoPlaceError, NotHereError
from stf.compat.cuda_stf.machine import extents, is_on_cuda, known_device
from stf.compat.cuda_stf.partitions import as_partition, partition_fn_blocked
from stf.compat.cuda_stf.streams import NO_STREAM, CudaStream, get_stream_pointer
from stf.devices.make import configured_devices, keep_current_context

MOST_PLACES = 64
STREAMS_OF_A_PLACE = 4
GRANULARITIES = ("device", "locality_domain")


class exec_place:
    """Where a task runs: `device`, `host`, `current_device`, or one of the rarer kinds."""

    __slots__ = ("__weakref__", "_affine", "_entered", "_place", "_views")

    _place: Any  # of stf
    _affine: data_place | None  # what affine dependences mean, where that was said
    _views: Any  # kept alive
    _entered: list[contextlib.ExitStack]

    def __init__(self) -> None:
        raise TypeError("places are made by exec_place.device(i), exec_place.host() and the like")

    @classmethod
    def _of(cls, place: Any, affine: data_place | None = None, views: Any = None) -> Any:
        made = cls.__new__(cls)
        made._place, made._affine, made._views, made._entered = place, affine, views, []
        return made

    # -- making ----------------------------------------------------------------------------------------------------

    @staticmethod
    def device(dev_id: int) -> exec_place:
        """Return a device by its number."""
        return exec_place._of(stf.exec_place.device(known_device(dev_id)))

    @staticmethod
    def host() -> exec_place:
        """Return the host."""
        return exec_place._of(stf.exec_place.host())

    @staticmethod
    def current_device() -> exec_place:
        """Return the device that is current when a task is submitted."""
        return exec_place._of(stf.exec_place.current_device())

    @staticmethod
    def locality_domain(dev_id: int, domain_id: int, sm_split: str = "backfill") -> exec_place:
        """Return a domain of a device; without support of the driver, the whole device."""
        return exec_place._of(domain_of(dev_id, domain_id, sm_split))

    @staticmethod
    def green_ctx(view: green_ctx_view, use_green_ctx_data_place: bool = False) -> exec_place:
        """Return the place of a part of a device; its memory is the device's either way."""
        if not isinstance(view, green_ctx_view):
            raise TypeError(f"green_ctx takes a view of a green_context_helper, got {view!r}")
        return exec_place._of(view.helper._places[view.index], views=view)

    @staticmethod
    def from_context(ctx: Any, dev_id: int = -1) -> exec_place:
        """Return the place of a CUDA context of yours, which is kept alive."""
        place = stf.exec_place.from_context(ctx)
        if dev_id not in (-1, place.index):
            raise NoPlaceError(f"the context is one of device {place.index}, got dev_id={dev_id}; leave dev_id out")
        return exec_place._of(place)

    @staticmethod
    def from_handle(handle: int) -> exec_place:
        """Raise: places here have no handles of a C library."""
        raise no_handle("exec_place", handle)

    # -- looking ---------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """``"host"`` or ``"device"``."""
        return "host" if self._place.kind == "host" else "device"

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape of the grid; ``(1,)`` of one place."""
        return tuple(self._place.dims)

    @property
    def size(self) -> int:
        """The number of places."""
        return int(self._place.size)

    @property
    def backing_context(self) -> Any:
        """What `from_context` was given; None elsewhere."""
        return getattr(self._place, "backing_context", None)

    @property
    def affine_data_place(self) -> data_place:
        """The memory of this place."""
        if self._affine is not None:
            return self._affine
        if self.size == 1:
            return data_place._of(self._place[0].affine_data_place)
        try:
            return data_place._of(self._place.affine_data_place)
        except (stf.PlaceError, AttributeError):
            raise RuntimeError(
                "this grid has no affine data place; say set_affine_data_place(data_place.composite(grid, mapper))"
            ) from None

    def set_affine_data_place(self, dplace: data_place) -> None:
        """Say what affine dependences of tasks on this place mean."""
        if not isinstance(dplace, data_place):
            raise TypeError(f"set_affine_data_place takes a data_place, got {dplace!r}")
        self._affine = dplace

    def pick_stream(self, resources: exec_place_resources, for_computation: bool = True) -> CudaStream:
        """Return a stream of this place, which `resources` keep."""
        if not isinstance(resources, exec_place_resources):
            raise TypeError(f"pick_stream requires an exec_place_resources argument, got {resources!r}")
        return resources._stream(self._place[0] if self.size == 1 else self._place, bool(for_computation))

    def get_place(self, idx: int) -> exec_place:
        """Return the place at a linear index."""
        index = idx.__index__()
        if not 0 <= index < self.size:
            raise IndexError(f"sub-place index {index} is out of range: there are {self.size}")
        return exec_place._of(self._place[index], None if self.size > 1 else self._affine, self._views)

    def __getitem__(self, idx: int) -> exec_place:
        return self.get_place(idx)

    def __len__(self) -> int:
        return self.size

    def reshape(self, grid_dims: Any) -> exec_place_grid:
        """Return the same places, in the same order, as a grid of another shape."""
        shape = extents(grid_dims, "grid_dims")
        if math.prod(shape) != self.size:
            raise ValueError(f"cannot reshape a grid of {self.size} places to {shape}")
        return exec_place_grid._of(stf.exec_place.grid(list(self._place), shape), self._affine, self)

    def collapse_axes(self, first_axis: int, last_axis: int) -> exec_place_grid:
        """Return the grid with a range of axes, both ends included, made one."""
        dims = self.dims
        if not 0 <= first_axis <= last_axis < len(dims):
            raise ValueError(
                f"invalid axis range [{first_axis}, {last_axis}] of a grid of shape {dims}; "
                f"0 <= first_axis <= last_axis < {len(dims)}"
            )
        joined = math.prod(dims[first_axis : last_axis + 1])
        return self.reshape((*dims[:first_axis], joined, *dims[last_axis + 1 :]))

    # -- being current ---------------------------------------------------------------------------------------------

    def __enter__(self) -> exec_place:
        place = self._place[0]
        with contextlib.ExitStack() as undone:
            if place.kind != "host" and place.index >= 0 and is_on_cuda():
                undone.enter_context(device_made_current(place.index))
            undone.enter_context(place)
            self._entered.append(undone.pop_all())
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._entered.pop().close()

    def __repr__(self) -> str:
        return f"<{self._place!r}>"


class exec_place_grid(exec_place):
    """Several places in the shape of an array; usable wherever an `exec_place` is."""

    __slots__ = ()

    @property
    def grid_rank(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @staticmethod
    def from_devices(device_ids: Sequence[int]) -> exec_place_grid:
        """Return devices, by their numbers, as a grid; a device may stand there twice."""
        check_count(len(device_ids), "device_ids must contain at least one device")
        return exec_place_grid._of(stf.exec_place.grid([known_device(i) for i in device_ids]))

    @staticmethod
    def create(
        places: Sequence[Any], grid_dims: Any = None, mapper: Any = None, *, data_rank: int | None = None
    ) -> exec_place_grid:
        """Return places as a grid; a `mapper` says which of them has which element of affine data."""
        check_count(len(places), "places must contain at least one place")
        members = [as_exec_place(place) for place in places]
        shape = (len(members),) if grid_dims is None else extents(grid_dims, "grid_dims")
        if math.prod(shape) != len(members):
            raise ValueError(f"grid_dims product ({math.prod(shape)}) must equal the number of places ({len(members)})")
        grid = exec_place_grid._of(stf.exec_place.grid([m._place[0] for m in members], shape), views=members)
        if mapper is not None:
            grid.set_affine_data_place(data_place.composite(grid, mapper, data_rank=data_rank))
        return grid

    @staticmethod
    def machine(granularity: str = "device") -> exec_place_grid:
        """Return all devices, or all their domains."""
        if granularity not in GRANULARITIES:
            raise ValueError(f"granularity is one of {', '.join(GRANULARITIES)}, got {granularity!r}")
        numbers = configured_devices().numbers
        if not numbers:
            raise RuntimeError("there is no device")
        places = [stf.exec_place.device(i) for i in numbers]
        if granularity == "locality_domain":
            places = [domain for i in numbers for domain in domains_of(i)]
        return blocked(exec_place_grid._of(stf.exec_place.grid(places)))

    @staticmethod
    def locality_domains(dev_id: int = 0, sm_split: str = "backfill") -> exec_place_grid:
        """Return the domains of a device; without support of the driver, the whole device."""
        return blocked(exec_place_grid._of(stf.exec_place.grid(domains_of(dev_id, sm_split))))


def blocked(grid: exec_place_grid) -> exec_place_grid:
    """Give a grid of several places memory that is divided along axis 0."""
    if grid.size > 1:
        grid.set_affine_data_place(data_place.composite(grid, partition_fn_blocked()))
    return grid


class data_place:
    """Where data are: `device`, `host`, `managed`, `affine`, or one of the rarer kinds."""

    __slots__ = ("__weakref__", "_grid", "_kind", "_partition", "_place")

    _place: Any  # of stf; None of an affine place
    _kind: str  # of those that stf knows by another name; else empty
    _grid: exec_place | None
    _partition: Any

    def __init__(self) -> None:
        raise TypeError("data places are made by data_place.device(i), data_place.host() and the like")

    @classmethod
    def _of(cls, place: Any, kind: str = "", grid: exec_place | None = None, partition: Any = None) -> data_place:
        made = cls.__new__(cls)
        made._place, made._kind, made._grid, made._partition = place, kind, grid, partition
        return made

    @staticmethod
    def device(dev_id: int) -> data_place:
        """Return the memory of a device."""
        return data_place._of(stf.data_place.device(known_device(dev_id)))

    @staticmethod
    def host() -> data_place:
        """Return the memory of the host."""
        return data_place._of(stf.data_place.host())

    @staticmethod
    def managed() -> data_place:
        """Return memory that host and devices share."""
        return data_place._of(stf.data_place.managed())

    @staticmethod
    def affine() -> data_place:
        """Return the memory of whatever place a task runs at."""
        return data_place._of(None, "affine")

    @staticmethod
    def current_device() -> data_place:
        """Return the memory of the device that is current when a task is submitted."""
        return data_place._of(stf.data_place.current_device())

    @staticmethod
    def locality_domain(dev_id: int, domain_id: int) -> data_place:
        """Return the memory of a domain of a device; without support of the driver, that of the device."""
        return data_place._of(domain_of(dev_id, domain_id).affine_data_place, "locality_domain")

    @staticmethod
    def green_ctx(view: green_ctx_view) -> data_place:
        """Return the memory of the device of a green context."""
        if not isinstance(view, green_ctx_view):
            raise TypeError(f"green_ctx takes a view of a green_context_helper, got {view!r}")
        return data_place._of(stf.data_place.device(view.device_id), "green_ctx")

    @staticmethod
    def replicated(grid: exec_place | None = None) -> data_place:
        """Return the memories of all places of a grid, for reads: each has a copy of its own."""
        if grid is None or grid.size == 1:
            return data_place._of(None if grid is None else grid._place[0].affine_data_place, "replicated", grid)
        return data_place._of(stf.data_place.replicated(grid._place), "replicated", grid)

    @staticmethod
    def composite(grid: exec_place, mapper: Any, *, data_rank: int | None = None) -> data_place:
        """Return memory of several places: a mapper says which of them has which element.

        Parameters
        ----------
        grid : exec_place
            The places. Of one place, the memory is that of the place itself.
        mapper : callable or partition function
            ``mapper(data_coords, data_dims, grid_dims) -> grid_coords``, or what `partition_fn_blocked` returns.
        data_rank : int, optional
            How many coordinates data have; not needed here.
        """
        partition = as_partition(mapper, data_rank)
        if grid.size == 1:
            return data_place._of(grid._place[0].affine_data_place, "composite", grid, partition)
        return data_place._of(stf.data_place.composite(grid._place, partition), "composite", grid, partition)

    @staticmethod
    def composite_cute(grid: exec_place, partition: Any) -> data_place:
        """Return memory of several places, divided by a `cute_partition`."""
        return data_place.composite(grid, partition)

    @staticmethod
    def from_handle(handle: int) -> data_place:
        """Raise: places here have no handles of a C library."""
        raise no_handle("data_place", handle)

    @property
    def kind(self) -> str:
        """What it is, in words."""
        name = repr(self._place).removeprefix("data_place.").removesuffix("()") if self._place is not None else ""
        return f"{self._kind}({name})" if self._kind and name else self._kind or name

    @property
    def device_id(self) -> int:
        """The number of its device; negative where there is none."""
        if self._grid is not None and self._place is not None and self._grid.size == 1:
            return int(self._grid._place[0].index)
        return int(getattr(self._place, "device_id", -1))

    def allocate(self, size_or_dims: Any, stream: Any = None, *, elemsize: int = 1) -> int:
        """Return the address of new memory of so many bytes, or of an array of `elemsize` bytes an element.

        Raises
        ------
        ValueError
            The size is negative.
        MemoryError
            There is not so much, or this place cannot be allocated at.
        """
        return allocations.allocate(self, size_or_dims, stream, elemsize)

    def deallocate(self, ptr: int, nbytes: int, stream: Any = None) -> None:
        """Give memory of `allocate` back, when the work on a stream so far is done."""
        allocations.deallocate(ptr, nbytes, stream)

    @property
    def allocation_is_stream_ordered(self) -> bool:
        """Whether memory comes and goes in the order of a stream: on CUDA devices."""
        return is_on_cuda() and self._kind != "composite" and self.device_id >= 0

    def __repr__(self) -> str:
        return f"<data_place {self.kind}>"


class exec_place_resources:
    """Whose turn it is among the streams of places, which the process keeps; some are for computation."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: dict[Any, int] = {}

    def _stream(self, place: Any, for_computation: bool) -> CudaStream:
        if place.kind == "host" or not is_on_cuda():
            return NO_STREAM
        if place.size > 1:
            place = stf.exec_place.current_device()
        if place.kind == "cuda_stream":
            return CudaStream(get_stream_pointer(place.pick_stream()))
        key = place, for_computation
        pool = place.stream_pool(2 * STREAMS_OF_A_PLACE)[:: 1 if for_computation else -1]  # from either end
        turn = self._turns[key] = self._turns.get(key, -1) + 1
        return CudaStream(get_stream_pointer(pool[turn % STREAMS_OF_A_PLACE]))


class async_resources:
    """Streams and memory that contexts share: ``context(handle=async_resources())``."""

    __slots__ = ("__weakref__", "_resources")

    def __init__(self) -> None:
        self._resources = stf.Resources()

    def __repr__(self) -> str:
        return f"async_resources(handle={id(self._resources):#x})"


# -- parts of devices ------------------------------------------------------------------------------------------------


class green_ctx_view:
    """One part of a device that was split."""

    __slots__ = ("helper", "index")

    def __init__(self, helper: green_context_helper, index: int) -> None:
        self.helper = helper
        self.index = index

    @property
    def device_id(self) -> int:
        """The number of the device."""
        return self.helper.device_id

    def __repr__(self) -> str:
        return f"green_ctx_view(device_id={self.device_id}, index={self.index})"


class green_context_helper:
    """A device that is split into parts of `sm_count` multiprocessors each."""

    def __init__(self, sm_count: int, dev_id: int = 0) -> None:
        if isinstance(sm_count, bool) or not isinstance(sm_count, int) or sm_count < 1:
            raise ValueError(f"sm_count must be a positive integer, got {sm_count!r}")
        self.device_id = dev_id
        self._places = split(sm_count, None, dev_id)

    def get_count(self) -> int:
        """Return the number of parts."""
        return len(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def get_view(self, idx: int) -> green_ctx_view:
        """Return one of the parts."""
        if not 0 <= idx < len(self._places):
            raise IndexError(f"green_ctx index {idx} is out of range: there are {len(self._places)}")
        return green_ctx_view(self, idx)

    def __repr__(self) -> str:
        return f"green_context_helper(device_id={self.device_id}, count={len(self._places)})"


def split(sms: int, count: int | None, dev_id: int) -> list[Any]:
    """Return green contexts of a device as places.

    Raises
    ------
    RuntimeError
        They do not fit, or there is no CUDA.
    """
    if not is_on_cuda():
        raise NoPlaceError(f"green contexts are parts of CUDA devices, and this is {configured_devices().text}")
    known_device(dev_id)
    try:
        return list(stf.green_places(sms, count, dev_id))
    except (stf.PlaceError, ImportError) as error:
        raise NoPlaceError(str(error)) from error


def domains_of(dev_id: int, sm_split: str = "backfill") -> list[Any]:
    """Return the domains of a device, as stf has them; the whole device where it has none."""
    return list(stf.exec_place.locality_domains(known_device(dev_id), sm_split))


def locality_domain_count(dev_id: int = 0) -> int:
    """Return the number of domains of a device: at least 1.

    Raises
    ------
    ValueError
        There is no such device.
    """
    return len(domains_of(dev_id))


def domain_of(dev_id: int, domain_id: int, sm_split: str = "backfill") -> Any:
    """Return a domain of a device; ValueError and RuntimeError if there is no such."""
    domains = domains_of(dev_id, sm_split)
    if not 0 <= domain_id < len(domains):
        raise NoPlaceError(f"device {dev_id} has {len(domains)} locality domains, got domain {domain_id}")
    return domains[domain_id]


def check_count(count: int, message: str) -> None:
    """Raise ValueError for no places, and for too many."""
    if count == 0:
        raise ValueError(message)
    if count > MOST_PLACES:
        raise ValueError(f"at most {MOST_PLACES} places supported, got {count}")


def as_exec_place(thing: Any) -> exec_place:
    """Return an `exec_place`, or what an object says that it is one.

    Raises
    ------
    TypeError
        It is none.
    """
    if isinstance(thing, exec_place):
        return thing
    if not hasattr(thing, "_as_stf_exec_place"):
        raise TypeError(f"an exec_place is needed, got {thing!r}")
    found = thing._as_stf_exec_place()
    if not isinstance(found, exec_place):
        raise TypeError(f"_as_stf_exec_place() must return an exec_place, got {found!r}")
    return found


def machine_init() -> None:
    """Do nothing: contexts set the machine up."""


def no_handle(name: str, handle: int) -> Exception:
    """Return the error for a handle of NVIDIA's C library."""
    if handle == 0:
        return ValueError(f"{name}.from_handle received a null handle")
    return NotHereError(
        f"{name}.from_handle takes a handle of NVIDIA's C library, which stf does not use; use device()"
    )


@contextlib.contextmanager
def device_made_current(ordinal: int) -> Iterator[None]:
    """Make a CUDA device current in this thread, and after it the one that was before."""
    from cuda.core import Device

    with keep_current_context():
        Device(ordinal).set_current()
        yield
