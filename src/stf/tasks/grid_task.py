"""Tasks on several places: one stream per place, all within one task."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable
from typing import Any

from stf._engine import outcomes
from stf._engine.access import AFFINE_PLACE, READ_ONLY
from stf.errors import DriverError, PlaceError, TaskFailedError, TaskStateError
from stf.interop import adapters, current
from stf.interop.streams import handed_out
from stf.places.places import Grid
from stf.places.table import place_code
from stf.tasks.annotations import Stream
from stf.tasks.closures import refuse_lost, with_last_values
from stf.tasks.results import store_results
from stf.tasks.views import library_of, no_address


class GridTask:
    """A task on a grid, as ``ctx.task(grid, ...)`` returns it: a with-block, with `start` and `end`, or a builder.

    The task is one on the first place, which claims the data; each place has a lane that begins after the data are
    there, and that the task waits for at its end.

    Attributes
    ----------
    place : Grid
        Where it runs.
    streams : list of Stream
        One per place, in the grid's order, while the task is open.
    """

    def __init__(self, context: Any, grid: Grid, accesses: list[Any], name: str | None) -> None:
        self.borrowed: list[current.Borrowed] = []
        self.groups: list[tuple[int, int, Any]] = []  # where the arrays of each access begin, how many, their whole
        parts: list[Any] = []
        for access in accesses:
            own = access.expand() if hasattr(access, "expand") else [access]
            self.groups.append((len(parts), len(own), getattr(access, "rebuild", None)))
            parts += own
        for access in parts:
            if access.place == AFFINE_PLACE and not access.data.core.token:
                label = f"task{f' {name!r}' if name else ''} runs on {grid.size} places"
                raise PlaceError(
                    f"{label}, and {access.data.core.describe()} has no data place; give it one, as in "
                    "lX.rw(stf.data_place.device(0)), or loop over the grid, one task each"
                )
        for place in grid:
            place_code(context, place)  # or it is none of the context's
        self.place = self.exec_place = grid
        self.context = context
        enqueues = [place for place in grid if context.engine.places[place_code(context, place)].enqueues]
        self.task = context.task((enqueues or grid.places)[0], *parts, name=name)  # all others come before its end
        self.task.find_site_outside()
        self.task.outside_recordings = True
        self.members: list[Any] = []
        self.pointers: list[int | None] = []

    def start(self) -> GridTask:
        """Claim the data and open a lane per place; return the task."""
        self.task.start()
        try:
            main = self.task.cuda_stream()
            for place in self.place:
                self._open_lane(place, main)
        except BaseException as error:
            self._close(error)
            raise
        return self

    def _open_lane(self, place: Any, main: int | None) -> None:
        member = self.context.make_task_at((place,), self.task.symbol)
        member.kind = "lane"
        member.outside_recordings = True
        member.find_site_outside()
        member.start()
        pointer = member.cuda_stream()
        self.members.append(member)
        self.pointers.append(pointer)
        if main is not None and pointer is not None:
            self.context.engine.port.callers.wait_on(member.slot, main)

    def end(self) -> None:
        """End the task, when every place has done its part."""
        if not self.members:
            raise TaskStateError(f"end on task {self.task.label()}, which is not open")
        self._close(None)

    def __del__(self) -> None:
        self._give_back()  # it was dropped while it was open; the engine fails it

    def _give_back(self) -> None:
        while self.borrowed:
            self.borrowed.pop().give_back()

    def _close(self, error: BaseException | None) -> None:
        self._give_back()
        members, self.members = self.members, []
        pointers, self.pointers = self.pointers, []
        for member, pointer in zip(reversed(members), reversed(pointers), strict=True):
            try:
                if pointer is not None:
                    self.context.engine.port.callers.wait_on(self.task.slot, pointer)
            except DriverError as late:  # of a device that is lost
                error = error or late
            member.end()
        if error is None:
            self.task.end()
            return
        self.task.abandon(error)
        if isinstance(error, DriverError):
            raise error

    def __enter__(self) -> GridTask:
        return self.start()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.members:
            self._close(error)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Run ``fn(*arrays)`` as the task's body, and store what it returns; return `fn`."""
        if self.context.engine.scope.submitted is not None:
            self.context.engine.scope.submitted.append(fn)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self)
            except TaskFailedError as error:
                outcomes.skip(self.context.engine, self.task, error)
                return fn
            written = [view[0] for view in self._views(None) if view is not None and view[1]]
            modes = [
                self.task.joined_mode(first) if rebuild is None else READ_ONLY
                for first, _, rebuild in self.groups
                if self.task.replica_of(first) is not None
            ]
            owes = refuse_lost(fn, self.task.symbol or "body", modes)
            arrays = self.arrays()
            store_results(with_last_values(fn, modes)(*arrays), written, fn, arrays, owes)
        return fn

    @property
    def streams(self) -> list[Stream]:
        self._must_be_open("streams")
        return [Stream(m.place_name, p) for m, p in zip(self.members, self.pointers, strict=True)]

    def stream_ptrs(self) -> list[int | None]:
        """Return the addresses of the CUDA streams of the places."""
        self._must_be_open("stream_ptrs")
        return [handed_out(pointer) for pointer in self.pointers]

    @property
    def stream(self) -> Stream:
        """The stream of the first place."""
        return self.streams[0]

    def stream_ptr(self) -> int:
        """Return the address of the first place's CUDA stream."""
        self._must_be_open("stream_ptr")
        return self.members[0].stream_ptr()

    def get_stream(self, index: int = 0) -> Stream:
        """Return the stream of place `index`."""
        return self.streams[index]

    def arrays(self, lib: str | None = None) -> tuple[Any, ...]:
        """Return the task's data, tokens skipped, each as an array of the device where it lies; a read's is read-only.

        Data in memory of the host's are there when this returns. Until the task ends, the current stream of each device
        in CuPy and torch is that of the first place on it.
        """
        return tuple([whole for whole in self._wholes(lib) if whole is not None])

    def _wholes(self, lib: str | None) -> list[Any]:
        """What each access was given: an array, an object made of several; None for a token."""
        views = [None if view is None else view[0] for view in self._views(lib)]
        return [
            views[first] if rebuild is None else rebuild(views[first : first + count])
            for first, count, rebuild in self.groups
        ]

    def _views(self, lib: str | None) -> list[tuple[Any, bool] | None]:
        """(array, whether the task writes it) of all data, those of several arrays apart; None for tokens."""
        self._must_be_open("arrays")
        lib = library_of(self.task, lib or self.context.arrays)
        found = [self._view(index, lib) for index in range(len(self.task))]
        if not self.borrowed:
            self._borrow()
        return found

    def _view(self, index: int, lib: str | None) -> tuple[Any, bool] | None:
        engine, replica = self.context.engine, self.task.replica_of(index)
        if replica is None:
            return None
        is_written = self.task.joined_mode(index) != READ_ONLY
        number = engine.places[replica.place].ordinal
        if engine.places[replica.place].enqueues and number >= 0:
            return adapters.device_view(replica, lib, number), is_written
        if engine.places[self.task.where].enqueues:
            engine.port.drain(self.task.slot)
        return adapters.view(replica, is_written, None if lib == "cupy" else lib), is_written

    def numpy(self) -> tuple[Any, ...]:
        """Return the task's data as NumPy arrays; see `arrays`."""
        return self.arrays("numpy")

    def cupy(self) -> tuple[Any, ...]:
        """Return the task's data as CuPy arrays; see `arrays`."""
        return self.arrays("cupy")

    def torch(self) -> tuple[Any, ...]:
        """Return the task's data as tensors; see `arrays`."""
        return self.arrays("torch")

    def numba(self) -> tuple[Any, ...]:
        """Return the task's data as Numba arrays; see `arrays`."""
        return self.arrays("numba")

    def _borrow(self) -> None:
        """Make the streams current, that of the first place on a device last."""
        for member, pointer in zip(reversed(self.members), reversed(self.pointers), strict=True):
            if pointer is not None:
                ordinal = self.context.engine.places[member.where].ordinal
                self.borrowed.append(current.Borrowed(pointer, ordinal, True))

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: int) -> Any:
        self._must_be_open("indexing")
        return self._wholes(None)[self._check_index(index)]

    def get(self, index: int) -> Any:
        """Return access `index`, as ``t[index]``."""
        return self[index]

    def get_arg(self, index: int) -> int:
        """Return the address of access `index` (tokens counted); which places may use it is for you to say."""
        self._must_be_open("get_arg")
        replica = self.task.replica_of(self._one_at(index))
        if replica is None:
            raise no_address(self.task, index)
        return int(replica.address)

    def get_arg_cai(self, index: int) -> Any:
        """Return access `index` (tokens counted) as an object with ``__cuda_array_interface__`` and DLPack."""
        self._must_be_open("get_arg_cai")
        memory = self._memory(self._one_at(index))
        if memory is None:
            raise no_address(self.task, index)
        return memory

    def args_cai(self) -> tuple[Any, ...]:
        """Return the task's arrays as a tuple of objects with ``__cuda_array_interface__``, tokens skipped."""
        self._must_be_open("args_cai")
        found = [self._memory(position) for position in range(len(self.task))]
        return tuple([memory for memory in found if memory is not None])

    def _memory(self, position: int) -> Any:
        replica = self.task.replica_of(position)
        if replica is None:
            return None
        numbers = [place.ordinal for place in self.context.engine.places]
        for member, pointer in zip(self.members, self.pointers, strict=True):
            if pointer is not None and numbers[replica.place] in (-1, numbers[member.where]):
                if not self.borrowed:
                    self._borrow()
                return adapters.device_memory(replica, numbers[member.where], pointer)
        raise PlaceError(f"no place of {self!r} is the CUDA device of this data; use t.arrays() there")

    def _check_index(self, index: int) -> int:
        """Return a position from the start, or raise IndexError."""
        count, position = len(self.groups), operator.index(index)
        if not -count <= position < count:
            raise IndexError(f"task {self.task.label()} has {count} accesses, got index {index}")
        return position % count

    def _one_at(self, index: int) -> int:
        """Where the array of access `index` stands among all; data made of several arrays have no single one."""
        first, _, rebuild = self.groups[self._check_index(index)]
        if rebuild is not None:
            raise TypeError(adapters.description_of_parts(self.task.label(), index))
        return first

    def set_symbol(self, symbol: str) -> GridTask:
        """Name the task; return it."""
        self.task.set_symbol(symbol)
        return self

    def _must_be_open(self, what: str) -> None:
        if not self.members:
            raise TaskStateError(f"{what} on task {self.task.label()}, which is not open; use it between start and end")

    def __repr__(self) -> str:
        return f"<task {self.task.label()} on {self.place.size} places>"
