"""Tasks on several places: one stream per place, all within one task."""

from __future__ import annotations

import contextlib
from typing import Any, Self

from stf._engine import outcomes
from stf._engine.access import AFFINE, READ
from stf.errors import DriverError, PlaceError, TaskFailedError
from stf.interop import cuda_arrays, current
from stf.interop.streams import handed_out
from stf.places.places import Grid
from stf.places.table import place_code
from stf.tasks.annotations import Stream
from stf.tasks.bodies import store_results
from stf.tasks.closures import refuse_lost, with_last_values
from stf.tasks.task import Task, body_of
from stf.tasks.views import views_of


class GridTask(Task):
    """A task on a grid, as ``ctx.task(grid, ...)`` returns it: a with-block, with `start` and `end`, or a builder.

    The task is one on the first place, which claims the data. Each place has a lane, a task without data that begins
    after the data are there; the task waits for all lanes at its end.

    Each array is one of the device where it lies, and a read's is read-only. Data in memory of the host's are there
    when `arrays` returns. Until the task ends, the current stream of each device in CuPy and torch is that of the first
    place on it. The addresses are of the data's own memory: which places may use it is for you to say.
    """

    def __init__(self, context: Any, grid: Grid, args: list[Any], name: str | None) -> None:
        self.grid = grid
        self.lanes: list[tuple[Task, int | None]] = []  # of the places while the task is open, with their streams
        self.taken: list[current.Borrowed] = []  # what was current before these streams
        for access in [one for arg in args for one in (arg.expand() if hasattr(arg, "expand") else [arg])]:
            if getattr(access, "place", None) == AFFINE and not access.data.core.token:
                label = f"task{f' {name!r}' if name else ''} runs on {grid.size} places"
                raise PlaceError(
                    f"{label}, and {access.data.core.describe()} has no data place; give it one, as in "
                    "lX.rw(stf.data_place.device(0)), register it over these places, with "
                    "data_place=stf.data_place.composite(grid, part), or loop over the grid, one task each"
                )
        enqueues = [place for place in grid if context.engine.places[place_code(context, place)].enqueues]
        context.prepare(self, ((enqueues or grid.places)[0], *args), name)  # all other places come before its end
        self.find_site_outside()
        self.outside_recordings = True

    def start(self) -> Self:
        """Claim the data and open a lane per place; return the task."""
        super().start()
        try:
            main = self.cuda_stream()
            for place in reversed(self.grid.places):  # the first one's device is current at the end
                lane = self.context.make_task_at((place,), self.symbol)
                lane.kind = "lane"
                lane.outside_recordings = True
                lane.find_site_outside()
                lane.start()
                pointer = lane.cuda_stream()
                self.lanes.insert(0, (lane, pointer))
                if main is not None and pointer is not None:
                    self.engine.port.callers.wait_on(lane.slot, main)
        except BaseException as error:
            self._close(error)
            raise
        return self

    def end(self) -> None:
        """End the task, when every place has done its part."""
        self._close(None)

    def __del__(self) -> None:
        self._give_back()  # it was dropped while it was open; the engine fails it

    def _give_back(self) -> None:
        while self.taken:
            self.taken.pop().give_back()

    def _close(self, error: BaseException | None) -> None:
        self._give_back()
        lanes, self.lanes = self.lanes, []
        for lane, pointer in lanes:
            try:
                if pointer is not None:
                    self.engine.port.callers.wait_on(self.slot, pointer)
            except DriverError as late:  # of a device that is lost
                error = error or late
            lane.end()
        if error is None:
            super().end()
            return
        self.abandon(error)
        if isinstance(error, DriverError):
            raise error

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.lanes:
            self._close(error)

    def __call__(self, *args: Any, **others: Any) -> Any:
        """Run ``fn(*arrays)`` as the task's body, and store what it returns; return the task."""
        if self.body is not None:
            return super().__call__(*args, **others)
        (fn,) = args
        fn = body_of(fn)
        if self.engine.scope.submitted is not None:
            self.engine.scope.submitted.append(fn)
        task: Any = self
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self)
            except TaskFailedError as error:
                outcomes.skip(self.engine, task, error)
                return self
            modes = [
                self.joined_mode(first) if rebuild is None else READ
                for first, _, rebuild in self.groups or [(i, 1, None) for i in range(len(self))]
                if self.replica_of(first) is not None
            ]
            written = [view for i, view in enumerate(views_of(self, None)) if self.is_written(i)]
            owes = refuse_lost(fn, self.symbol or "body", modes)
            arrays = self.arrays()
            store_results(with_last_values(fn, modes)(*arrays), written, fn, arrays, owes)
        self.body = fn
        return self

    def is_written(self, position: int) -> bool:
        """Return whether an array of the task's is one that the body writes."""
        return self.replica_of(position) is not None and self.joined_mode(position) != READ

    @property
    def place(self) -> Grid:
        """The places that it runs on."""
        return self.grid

    @property
    def streams(self) -> list[Stream]:
        """The streams of the places, in the grid's order."""
        self.must_be_open("streams")
        return [Stream(lane.place_name, pointer) for lane, pointer in self.lanes]

    def stream_ptrs(self) -> list[int | None]:
        """Return the addresses of the CUDA streams of the places."""
        self.must_be_open("stream_ptrs")
        return [handed_out(pointer) for _, pointer in self.lanes]

    @property
    def stream(self) -> Stream:
        """The stream of the first place."""
        return self.streams[0]

    def stream_ptr(self) -> int:
        """Return the address of the first place's CUDA stream."""
        self.must_be_open("stream_ptr")
        return self.lanes[0][0].stream_ptr()

    def get_stream(self, index: int = 0) -> Stream:
        """Return the stream of place `index`."""
        return self.streams[index]

    def borrow(self) -> int:
        """Make the streams current, that of the first place on a device last."""
        if not self.taken:
            for lane, pointer in reversed(self.lanes):
                if pointer is not None:
                    self.taken.append(current.Borrowed(pointer, self.engine.places[lane.where].ordinal, True))
        return 0

    def memory_at(self, position: int) -> Any:
        """Return one of the arrays as an object with ``__cuda_array_interface__``; None for a token."""
        replica = self.replica_of(position)
        if replica is None:
            return None
        numbers = [place.ordinal for place in self.engine.places]
        for lane, pointer in self.lanes:
            if pointer is not None and numbers[replica.place] in (-1, numbers[lane.where]):
                self.borrow()
                return cuda_arrays.device_memory(replica, numbers[lane.where], pointer)
        raise PlaceError(f"no place of {self!r} is the CUDA device of this data; use t.arrays() there")

    def __repr__(self) -> str:
        return f"<task {self.label()} on {self.grid.size} places>"
