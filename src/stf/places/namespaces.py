"""`stf.exec_place` and `stf.data_place`: what makes places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stf.devices.make import default_device_count
from stf.errors import PlaceError
from stf.places.foreign import context_place, green_place, stream_place
from stf.places.partition import as_dims
from stf.places.places import MOST_DEVICES, DataPlace, ExecPlace, Grid, as_exec_place, check_index, contexts

__all__ = ["data_place", "exec_place"]


class exec_place:
    """Makes execution places."""

    @staticmethod
    def host() -> ExecPlace:
        """Return the host."""
        return ExecPlace("host")

    @staticmethod
    def device(index: int) -> ExecPlace:
        """Return device `index`: the CUDA ordinal, or the number of an emulated device."""
        return ExecPlace("device", check_index(index))

    @staticmethod
    def current_device() -> ExecPlace:
        """Return the device that is current when a task is submitted there."""
        return ExecPlace("current_device")

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
        """
        return green_place(context)

    @staticmethod
    def all_devices(partition: Any = None) -> Grid:
        """Return all devices of the context whose with-block this is, else of the default context.

        Parameters
        ----------
        partition : partition, optional
            As for `grid`.
        """
        if contexts():
            return Grid(list(contexts()[-1].devices), None, partition)
        return exec_place.n_devices(default_device_count(), partition)

    @staticmethod
    def n_devices(n: int, partition: Any = None) -> Grid:
        """Return the first `n` devices; `partition` as for `grid`."""
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
        """
        if not hasattr(places, "__iter__") or isinstance(places, (str, bytes, DataPlace)):
            raise TypeError(f"a grid is made of a list of execution places, got {places!r}")
        members = [as_exec_place(p) for p in places]
        for member in members:
            if isinstance(member, Grid):
                raise PlaceError(f"the members of a grid are single places, got {member!r}; pass its own: [*grid, ...]")
        return Grid(members, None if dims is None else as_dims(dims), partition)


class data_place:
    """Makes data places."""

    @staticmethod
    def host() -> DataPlace:
        """Return host memory."""
        return DataPlace("host")

    @staticmethod
    def device(index: int) -> DataPlace:
        """Return the memory of device `index`."""
        return DataPlace("device", check_index(index))

    @staticmethod
    def managed() -> DataPlace:
        """Return memory that host and devices share; host memory on a CPU."""
        return DataPlace("managed")

    @staticmethod
    def affine() -> DataPlace:
        """Return the memory that is natural for the task's place: the default."""
        return DataPlace("affine")

    @staticmethod
    def current_device() -> DataPlace:
        """Return the memory of the device that is current when a task is submitted."""
        return DataPlace("current_device")
