"""`stf.exec_place` and `stf.data_place`: what makes places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stf.devices.make import configured_devices, default_device_count
from stf.errors import PlaceError
from stf.places.foreign import context_place, green_place, stream_place
from stf.places.partition import as_dims, blocked_partition, check_partition
from stf.places.places import (
    MOST_DEVICES,
    CompositePlace,
    DataPlace,
    ExecPlace,
    Grid,
    ReplicatedPlace,
    as_exec_place,
    check_index,
    contexts,
)

__all__ = ["data_place", "exec_place"]

SM_SPLITS = ("backfill", "aligned", "fine")


class exec_place:
    """Makes execution places.

    Examples
    --------
    >>> stf.exec_place.device(1), stf.exec_place.host()
    (exec_place.device(1), exec_place.host())
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data_ones(3)
    ...     ctx.task(stf.exec_place.device(1), x.rw())(lambda x: x + 1)
    ...     print(x.numpy())
    [2. 2. 2.]
    """

    @staticmethod
    def host() -> ExecPlace:
        """Return the host.

        Examples
        --------
        >>> stf.exec_place.host()
        exec_place.host()
        """
        return ExecPlace("host")

    @staticmethod
    def device(index: int) -> ExecPlace:
        """Return device `index`: the CUDA ordinal, or the number of an emulated device.

        Raises
        ------
        TypeError
            It is no integer.
        PlaceError
            It is negative. A task or an access refuses a device that its context does not have.

        Examples
        --------
        >>> stf.exec_place.device(1)
        exec_place.device(1)
        """
        return ExecPlace("device", check_index(index))

    @staticmethod
    def current_device() -> ExecPlace:
        """Return the device that is current when a task is submitted there.

        Examples
        --------
        >>> stf.exec_place.current_device()
        exec_place.current_device()
        """
        return ExecPlace("current_device")

    @staticmethod
    def auto() -> ExecPlace:
        """Return the place that is chosen for each task when it begins; ``"auto"`` means the same.

        A context of one device has no choice. Where it has several, its rule decides (`stf.context`, `placement`).

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx, stf.exec_place.auto():
        ...     x = ctx.logical_data_ones(3)
        ...     with ctx.task(x.rw()) as t:
        ...         print(t.place)
        exec_place.device(0)
        """
        return ExecPlace("auto")

    @staticmethod
    def cuda_stream(stream: Any) -> ExecPlace:
        """Return a CUDA stream of yours as a place: tasks there run on it, in order with what you put on it.

        Parameters
        ----------
        stream : stream or int
            An object with ``__cuda_stream__``, which is kept alive, or the stream's address.

        Raises
        ------
        TypeError
            It is no stream.
        ValueError
            It is one of CUDA's default streams.
        PlaceError
            CUDA does not know it.

        Examples
        --------
        >>> import cupy as cp  # needs a GPU
        >>> stream = cp.cuda.Stream(non_blocking=True)
        >>> with stf.context(devices="cuda:0") as ctx:
        ...     x = ctx.logical_data(np.ones(4))
        ...     ctx.task(stf.exec_place.cuda_stream(stream), x.rw())(lambda x: x + 1)
        ...     print(x.numpy())
        [2. 2. 2. 2.]
        """
        return stream_place(stream)

    @staticmethod
    def from_context(context: Any) -> ExecPlace:
        """Return a CUDA context of yours as a place: tasks there run on streams made in it.

        Parameters
        ----------
        context : context or int
            A ``cuda.core`` Context or another object with ``.handle``, which is kept alive, or the address of a
            CUcontext. Places from the same context are equal.

        Raises
        ------
        TypeError
            It is no context.
        ValueError
            It is null, or closed.
        PlaceError
            CUDA does not know it.

        Examples
        --------
        >>> from cuda.core import Device  # needs a GPU
        >>> Device(0).set_current()
        >>> place = stf.exec_place.from_context(Device(0).context)
        >>> with stf.context(devices="cuda:0") as ctx:
        ...     x = ctx.logical_data(np.ones(4))
        ...     ctx.task(place, x.rw())(lambda x: x + 1)
        ...     print(x.numpy())
        [2. 2. 2. 2.]
        """
        return context_place(context)

    @staticmethod
    def green_ctx(context: Any) -> ExecPlace:
        """Return a green context of ``cuda.core`` as a place, which has some of a device's multiprocessors.

        `stf.green_places` makes several at once.

        Raises
        ------
        TypeError
            It is no green context.

        Examples
        --------
        >>> (place,) = stf.green_places(8, 1)  # needs a GPU
        >>> with stf.context(devices="cuda:0") as ctx:
        ...     x = ctx.logical_data(np.ones(4))
        ...     ctx.task(place, x.rw())(lambda x: x + 1)
        ...     print(x.numpy())
        [2. 2. 2. 2.]
        """
        return green_place(context)

    @staticmethod
    def locality_domain_count(device: int = 0) -> int:
        """Return how many locality domains a device has: at least 1.

        A domain is the part of a GPU that is near one half of its memory. No driver that stf knows tells them, so a
        device is one domain.

        Raises
        ------
        TypeError
            It is no integer.
        PlaceError
            There is no such device.

        Examples
        --------
        >>> stf.exec_place.locality_domain_count(0)
        1
        """
        return exec_place.locality_domains(device).size

    @staticmethod
    def locality_domains(device: int = 0, sm_split: str = "backfill") -> Grid:
        """Return the locality domains of a device as a grid: the whole device where the driver has none.

        Parameters
        ----------
        device : int
            Its number.
        sm_split : str
            What becomes of multiprocessors that do not divide evenly: ``"backfill"``, ``"aligned"`` or ``"fine"``.

        Raises
        ------
        TypeError
            `device` is no integer.
        PlaceError
            There is no such device.
        ValueError
            There is no such way to split.

        Examples
        --------
        >>> stf.exec_place.locality_domains(0)
        exec_place.grid([exec_place.device(0)], dims=(1,))
        """
        if sm_split not in SM_SPLITS:
            raise ValueError(f"sm_split is one of {', '.join(SM_SPLITS)}, got {sm_split!r}")
        spec = configured_devices()
        if check_index(device) not in spec.numbers:
            raise PlaceError(f"there is no device {device} to have domains; there is {spec.text}")
        return Grid([ExecPlace("device", int(device))])  # CUDA 13.4 is to tell more: a program for domains runs

    @staticmethod
    def locality_domain(device: int, index: int, sm_split: str = "backfill") -> ExecPlace:
        """Return one locality domain of a device; `sm_split` as for `locality_domains`.

        Raises
        ------
        TypeError
            A number is no integer.
        PlaceError
            There is no such device, or it has no such domain.
        ValueError
            There is no such way to split.

        Examples
        --------
        >>> stf.exec_place.locality_domain(0, 0)
        exec_place.device(0)
        """
        domains = exec_place.locality_domains(device, sm_split)
        if check_index(index) >= domains.size:
            raise PlaceError(f"device {device} has {domains.size} locality domains, got domain {index}")
        return domains.places[index]

    @staticmethod
    def all_devices(partition: Any = None) -> Grid:
        """Return all devices of the context whose with-block this is, else of the default context.

        Outside of a with-block that may be more devices than a context has which was opened with fewer: a task there is
        a `PlaceError` that names the device. ``ctx.devices`` are those of a context, wherever you ask.

        Parameters
        ----------
        partition : partition, optional
            As for `grid`.

        Examples
        --------
        >>> with stf.context(devices="cpu:3"):
        ...     print(len(stf.exec_place.all_devices()))
        3
        """
        if contexts():
            return Grid(list(contexts()[-1].devices), None, partition)
        return exec_place.n_devices(default_device_count(), partition)

    @staticmethod
    def n_devices(n: int, partition: Any = None) -> Grid:
        """Return the first `n` devices; `partition` as for `grid`.

        Raises
        ------
        TypeError
            It is no integer.
        PlaceError
            It is not positive.

        Examples
        --------
        >>> stf.exec_place.n_devices(3).size
        3
        """
        if check_index(n) > MOST_DEVICES:
            raise PlaceError(f"no context has more than {MOST_DEVICES} devices, got n_devices({n})")
        return Grid([ExecPlace("device", i) for i in range(n)], None, partition)

    @staticmethod
    def grid(places: Sequence[Any], dims: int | Sequence[int] | None = None, partition: Any = None) -> Grid:
        """Return `places` as a grid.

        Parameters
        ----------
        places : sequence of place
            The members, in C order.
        dims : int or tuple of int, optional
            The shape; by default one axis.
        partition : partition, optional
            How index spaces and data are divided among the members: `blocked_partition` and the like, or an object
            with ``apply(shape, position, grid_dims)`` and ``get_executor(coords, dims, grid_dims)``.

        Raises
        ------
        PlaceError
            The shape does not fit the number of places, or a member is itself a grid of several.
        TypeError
            `partition` lacks ``apply`` or ``get_executor``.

        Examples
        --------
        >>> places = [stf.exec_place.device(i) for i in range(4)]
        >>> stf.exec_place.grid(places, (2, 2)).dims
        (2, 2)
        """
        if not hasattr(places, "__iter__") or isinstance(places, (str, bytes, DataPlace)):
            raise TypeError(f"a grid is made of a list of execution places, got {places!r}")
        members = [as_exec_place(p) for p in places]
        for member in members:
            if isinstance(member, Grid):
                raise PlaceError(f"the members of a grid are single places, got {member!r}; pass its own: [*grid, ...]")
        return Grid(members, None if dims is None else as_dims(dims), partition)


class data_place:
    """Makes data places.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     x = ctx.logical_data_ones(3)
    ...     ctx.task(1, x.read(stf.data_place.device(0)))(lambda x: print(x.sum()))  # read where it lies
    3.0
    """

    @staticmethod
    def host() -> DataPlace:
        """Return host memory.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     x = ctx.logical_data_ones(3)
        ...     ctx.prefetch(x, stf.data_place.host())
        """
        return DataPlace("host")

    @staticmethod
    def device(index: int) -> DataPlace:
        """Return the memory of device `index`.

        Raises
        ------
        TypeError
            It is no integer.
        PlaceError
            It is negative. A task or an access refuses a device that its context does not have.

        Examples
        --------
        >>> stf.data_place.device(1)
        data_place.device(1)
        """
        return DataPlace("device", check_index(index))

    @staticmethod
    def locality_domain(device: int, index: int) -> DataPlace:
        """Return the memory of a locality domain of a device: that of the device where the driver has no domains.

        Raises
        ------
        TypeError
            A number is no integer.
        PlaceError
            There is no such device, or it has no such domain.

        Examples
        --------
        >>> stf.data_place.locality_domain(0, 0)
        data_place.device(0)
        """
        return exec_place.locality_domain(device, index).affine_data_place

    @staticmethod
    def composite(grid: Grid, partition: Any = None) -> DataPlace:
        """Return the memories of a grid, over which data are partitioned: for `Context.logical_data`.

        Parameters
        ----------
        grid : Grid
            The places; each has one part in its memory.
        partition : partition, optional
            Which elements belong to which place: `stf.partition`, `blocked_partition` and the like, or an object of
            your own; by default that of the grid, else blocks along the first axis.

        Raises
        ------
        TypeError
            It is no grid, or `partition` lacks ``apply`` or ``get_executor``.
        PlaceError
            A member of the grid is neither a device nor the host.

        Examples
        --------
        >>> grid = stf.exec_place.n_devices(2)
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     place = stf.data_place.composite(grid, stf.partition("blocked", None))
        ...     x = ctx.logical_data(np.ones((4, 3)), data_place=place)
        ...     print(x.parts.shape, x.parts[0].shape)
        (2,) (2, 3)
        """
        must_be_grid(grid)
        if partition is None:
            partition = grid.partition or blocked_partition()
        for place in grid:
            if place.kind not in ("device", "host"):
                raise PlaceError(f"a composite place is made of devices, or of the host, and {place!r} is neither")
        return CompositePlace(grid, check_partition(partition))

    @staticmethod
    def replicated(grid: Grid) -> DataPlace:
        """Return all memories of a grid: data that are brought there have a copy in each, for reads.

        A task that writes the data makes one copy valid, as always. It is for `Context.prefetch`, and for
        `Context.logical_data`.

        Raises
        ------
        TypeError
            It is no grid.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     x = ctx.logical_data(np.ones(3), data_place=stf.data_place.replicated(ctx.devices))
        ...     ctx.synchronize()
        ...     print(sum(ctx.statistics().copies.values()))
        2
        """
        must_be_grid(grid)
        return ReplicatedPlace(grid)

    @staticmethod
    def managed() -> DataPlace:
        """Return memory that host and devices share; host memory on a CPU.

        Examples
        --------
        >>> with stf.context(devices="cpu:2") as ctx:
        ...     x = ctx.logical_data_ones(3)
        ...     ctx.task(1, x.rw(stf.data_place.managed()))(lambda x: x + 1)
        ...     print(x.numpy())
        [2. 2. 2.]
        """
        return DataPlace("managed")

    @staticmethod
    def affine() -> DataPlace:
        """Return the memory that is natural for the task's place: the default.

        Examples
        --------
        >>> stf.data_place.affine()
        data_place.affine()
        """
        return DataPlace("affine")

    @staticmethod
    def current_device() -> DataPlace:
        """Return the memory of the device that is current when a task is submitted.

        Examples
        --------
        >>> stf.data_place.current_device()
        data_place.current_device()
        """
        return DataPlace("current_device")


def must_be_grid(grid: Any) -> None:
    """Raise TypeError for what is no grid."""
    if not isinstance(grid, Grid):
        raise TypeError(f"a grid of places is needed, got {grid!r}; say stf.exec_place.all_devices()")
