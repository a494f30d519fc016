"""Loops as bodies of tasks on a CPU: cut over the workers of the context, and what they reduce combined in order."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from stf._port.host_calls import CallTemplate
from stf._port.native import NativeBody, NativeCall, NotNativeError, python_call
from stf._port.remote_arrays import here
from stf.kernels.bounds import Explanation
from stf.kernels.captured import as_known
from stf.kernels.combining import accumulator
from stf.kernels.compile.contributions import error_of
from stf.kernels.loops import CompiledLoop, kind_of, types_of
from stf.kernels.native import native_call
from stf.kernels.nest import ArrayType
from stf.places.partition import Part
from stf.values.reducers import Reducer

__all__ = [
    "LoopTask",
    "NothingToRun",
    "Target",
    "compile_now",
    "cut",
    "is_cut_along_first",
    "key_of",
]

Box = tuple[range, ...]

PIECE_NS = 20_000  # what a piece takes at least: a worker that wakes up for it takes half of that
PIECE_CALL_NS = 80_000  # what the call of a piece takes at most: where a core is slow, and others have the GIL
MAX_DOUBTS = 3  # runs as one piece that took long, after which its pieces are believed
PIECES_EACH = 4  # pieces for each worker, so that none waits long for the last
QUICK = 15  # calls of a short loop, of which the next is measured
UNKNOWN_NS = 2.0  # what an element takes, before it was measured
BLOCK, LARGE_BLOCK = 1 << 16, 1 << 20  # elements whose contributions are added up one after the other, at least
MAX_BLOCKS, MAX_LARGE_BLOCKS = 16, 128
LONG = 64  # elements of a first axis, along which alone a box is cut
MAX_COPIES = 8  # of an array that is reduced into
KEPT_ROOM = 1 << 20  # bytes of such arrays up to which a loop of the driver's keeps these copies


class Target(NamedTuple):
    """A reduction of a loop.

    Attributes
    ----------
    position : int
        Which of the task's arrays it goes into.
    op : Reducer
        The operator.
    accumulates : bool
        The content from before is combined, too.
    """

    position: int
    op: Reducer
    accumulates: bool


class LoopTask:
    """The body of a task: a loop over a part of an index space.

    What is reduced does not depend on the number of workers: it is cut into blocks by the number of elements alone,
    and the blocks' results are combined in order.
    """

    def __init__(
        self,
        loop: CompiledLoop,
        part: Part,
        targets: list[Target],
        arrays: int,
        parameters: tuple[Any, ...],
        explanation: Explanation | None = None,
        views: tuple[Any, ...] = (),
    ) -> None:
        self.loop = loop
        self.views = views
        self.boxes: list[Box] = [tuple(box) for box in part.boxes() if all(map(len, box))]
        self.size = part.size
        self.along_first = is_cut_along_first(part)
        self.targets = targets
        self.arrays = arrays
        self.parameters = parameters
        self.explanation = explanation  # of an index that is out of bounds, where these are checked
        alone = len(self.boxes) == 1 and explanation is None
        self.bounds: Any = tuple(bounds(self.boxes[0])) if alone else None  # of what may be one piece, which is quick
        self.runs = 0  # of that, which were measured
        self.is_in_doubt = False  # calls may be most of what its pieces took: the next run is one piece
        self.doubts = 0  # such runs that took long all the same, one after the other
        self.left = 0  # calls of that with no look at the clock, which takes as long as a short loop
        self.template: Any = None  # of the calls that are one piece, once there were some
        self.neutrals: list[Any] | None = None  # of scalars that one piece reduces into, when that is known
        self.port: Any = None

    def at(self, port: Any) -> LoopTask:
        """Return the same, with the port whose workers help."""
        if port is self.port:
            return self
        if self.port is None:
            self.port = port
            return self
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__, port=port)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the port: another process has workers of its own."""
        return self.__dict__ | {"port": None, "template": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.port = PortHere(here.worker.driver)

    def __call__(self, *values: Any) -> None:
        """Run on the arrays of a task, and further arguments."""
        try:
            if self.left > 0:
                self.left -= 1
                self.loop.call(*self.bounds, *values, *self.parameters)
            else:
                self.work(values)
        except OverflowError:  # of a parameter of a graph that has been an integer of less than 64 bits until now
            known = tuple(as_known(value, "a kernel gets a parameter") for value in values)
            if all(one is other for one, other in zip(known, values, strict=True)):
                raise
            self.work(known)

    def work(self, values: tuple[Any, ...]) -> None:
        """Run, as one piece or in several."""
        values = self.seen(values)
        if self.targets:
            if self.neutrals is not None:
                self.reduce_at_once(self.neutrals, values)
            else:
                self.reduce(list(values[: self.arrays]), values[self.arrays :])
            return
        if self.bounds is not None and (self.is_in_doubt or 0.0 < self.size * self.loop.cost_ns < 2 * PIECE_NS):
            start = perf_counter_ns()
            self.loop.call(*self.bounds, *values, *self.parameters)
            took_ns = perf_counter_ns() - start
            if self.is_in_doubt:
                self.is_in_doubt, self.doubts = False, 0 if took_ns < 2 * PIECE_NS else self.doubts + 1
            self.loop.took(took_ns / self.size)
            self.left = QUICK if self.size * self.loop.cost_ns < PIECE_NS and not self.views else 0
            if self.left and self.template is None and self.runs:
                self.template = self.template_of(values)
            self.runs += 1
            return
        arrays, extra = list(values[: self.arrays]), values[self.arrays :]

        def call(_: int, box: Box) -> None:
            self.call(box, arrays, extra)

        pieces = self.pieces(self.port.max_workers())
        self.run(call, pieces)
        if self.bounds is not None and len(pieces) > 1:
            piece_ns = self.size * self.loop.cost_ns / len(pieces)
            if piece_ns > 4 * PIECE_CALL_NS:
                self.doubts = 0
            self.is_in_doubt = piece_ns < PIECE_CALL_NS and self.doubts < MAX_DOUBTS

    def native(self, values: tuple[Any, ...], workers: int) -> NativeBody:
        """Return the steps of a loop that do what a call with these arguments does, on up to so many workers."""
        if self.explanation is not None:
            raise NotNativeError("checks its indices")
        cost_ns = self.size * (self.loop.cost_ns or UNKNOWN_NS)
        if self.targets:
            return self.native_reduction(values, cost_ns)
        pieces = self.pieces(workers)
        calls = [self.native_call(box, self.seen(values), range(len(values))) for box in pieces]
        return NativeBody([calls] if calls else [], cost_ns / max(len(calls), 1), self.learn)

    def template_of(self, values: tuple[Any, ...]) -> Any:
        """Return what makes compiled calls of it; None if it has arguments that these cannot have."""
        try:
            call = self.native_call(self.boxes[0], values, range(len(values)))
        except NotNativeError:
            return None
        return CallTemplate(call, values, self.arrays, self.size * self.loop.cost_ns)

    def took(self, took_ns: float) -> None:
        """Note how long a compiled call took."""
        self.learn(took_ns)
        if self.size > 1 and took_ns > 2 * PIECE_NS:  # it is cut for the workers from now on
            self.template = None
        elif self.template is not None:
            self.template.took(took_ns)

    def learn(self, took_ns: float) -> None:
        """Note how long all elements took: the least of several calls without the GIL, so it may rise at once."""
        if self.size:
            self.loop.cost_ns = took_ns / self.size

    def native_reduction(self, given: tuple[Any, ...], cost_ns: float) -> NativeBody:
        """Return the steps that run the blocks, and then combine their results."""
        values = self.seen(given)
        arrays = values[: self.arrays]
        if sum(arrays[target.position].nbytes for target in self.targets) > KEPT_ROOM:
            raise NotNativeError("reduces into a large array, for which a loop would keep room")
        blocks, parts = self.blocks_of(arrays)
        if len(blocks) == 1 and all(is_result(target, arrays[target.position], parts) for target in self.targets):
            call = self.native_block(blocks[0], values, parts, 0, True)
            return NativeBody([[call]], cost_ns, self.learn)
        calls = [self.native_block(box, values, parts, number) for number, box in enumerate(blocks)]

        def clear(*_: Any) -> None:
            for target in self.targets:
                target.op.fill(parts[target.position])

        def combine_all(*given: Any) -> None:
            arrays = self.seen(given)
            for target in self.targets:
                combine(target, arrays[target.position], parts[target.position])

        stages = [[python_call(clear, given)]] if any(arrays[i].ndim for i in parts) or not calls else []
        stages += [calls] if calls else []
        stages.append([python_call(combine_all, given)])
        return NativeBody(stages, cost_ns / max(len(calls), 1), self.learn)

    def native_block(
        self, box: Box, values: tuple[Any, ...], parts: dict[int, Any], number: int, is_whole: bool = False
    ) -> NativeCall:
        """Return the step that runs a block; its results are those of the task, if it `is_whole`."""
        arrays = values[: self.arrays]
        inputs = [i for i in range(self.arrays) if i not in parts or arrays[i].ndim]
        own = [parts[i][number] if i in parts else arrays[i] for i in inputs]
        where = [-1 if i in parts else i for i in inputs]
        where += range(self.arrays, len(values))
        results: list[Any] = []
        places = []
        for i in [target.position for target in self.targets if arrays[target.position].ndim == 0]:
            results += [parts[i][0], arrays[i].reshape(1) if is_whole else parts[i]]  # which is neutral now
            places += [-1, i if is_whole else -1]
        results += [number] if results else []
        return self.native_call(box, (*own, *values[self.arrays :]), where, results, places)

    def native_call(
        self,
        box: Box,
        values: tuple[Any, ...],
        positions: Iterable[int],
        results: Sequence[Any] = (),
        places: Sequence[int] = (),
    ) -> NativeCall:
        """Return the step that runs the elements of a box.

        `positions` are where values are among the task's arguments, and `places` where results are.
        """
        around = tuple(bounds(box))
        arguments = (*around, *values, *self.parameters, *results)
        where = [*[-1] * len(around), *positions]
        where += [*[-1] * (len(arguments) - len(results) - len(where)), *places]
        where += [-1] * (len(arguments) - len(where))
        return native_call(self.loop.call, arguments, where)

    def seen(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with arrays as the loop sees them: perhaps as parts of larger ones."""
        if not self.views:
            return values
        pairs = zip(values[: self.arrays], self.views, strict=True)
        return (*[as_part_of(array, *view) if view else array for array, view in pairs], *values[self.arrays :])

    def pieces(self, workers: int) -> list[Box]:
        """Return the boxes, cut for so many workers."""
        cost = self.loop.cost_ns or UNKNOWN_NS
        count = min(PIECES_EACH * workers, int(self.size * cost / PIECE_NS))
        return cut(self.boxes, count, self.along_first) if workers > 1 and count > 1 else self.boxes

    def reduce_at_once(self, neutrals: list[Any], values: tuple[Any, ...]) -> None:
        """Run one block, whose results are those of the scalars."""
        inputs, results = list(values[: self.arrays]), []
        for target, neutral in zip(self.targets, neutrals, strict=True):
            results += [neutral, values[target.position].reshape(1)]
        for target in reversed(self.targets):
            del inputs[target.position]
        self.loop.call(*self.bounds, *inputs, *values[self.arrays :], *self.parameters, *results, 0)

    def blocks_of(self, arrays: Sequence[Any]) -> tuple[list[Box], dict[int, Any]]:
        """Return the boxes of the blocks, and room for their results, by the positions of the reductions."""
        copied = [target for target in self.targets if arrays[target.position].ndim > 0]
        small, large = min(self.size // BLOCK, MAX_BLOCKS), min(self.size // LARGE_BLOCK, MAX_LARGE_BLOCKS)
        count = max(small, large, 1)
        for target in copied:
            least = max(BLOCK, 4 * arrays[target.position].size)
            count = min(count, MAX_COPIES, max(self.size // least, 1))
        blocks = cut(self.boxes, count, self.along_first)
        return blocks, {t.position: parts_of(t, arrays[t.position], max(len(blocks), 1)) for t in self.targets}

    def results_of(self, arrays: Sequence[Any], parts: dict[int, Any]) -> list[Any]:
        """Return what a block gets for the scalars that it reduces into: a neutral number, and room, for each."""
        scalars = [target.position for target in self.targets if arrays[target.position].ndim == 0]
        return [item for position in scalars for item in (parts[position][0], parts[position])]

    def reduce(self, arrays: list[Any], extra: tuple[Any, ...]) -> None:
        """Run blocks, each with results of its own, and combine these."""
        blocks, parts = self.blocks_of(arrays)
        inputs = [i for i in range(len(arrays)) if i not in parts or arrays[i].ndim]
        results = self.results_of(arrays, parts)  # the room is neutral now

        def call(number: int, box: Box) -> None:
            own = [parts[i][number] if i in parts else arrays[i] for i in inputs]
            block = [*results, number] if results else []
            self.call(box, own, extra, block)

        self.run(call, blocks)
        if self.bounds is not None and len(blocks) == 1:
            alone = all(is_result(target, arrays[target.position], parts) for target in self.targets)
            self.neutrals = [parts_of(t, arrays[t.position], 1)[0] for t in self.targets] if alone else None
        for target in self.targets:
            combine(target, arrays[target.position], parts[target.position])

    def call(self, box: Box, arrays: list[Any], extra: tuple[Any, ...], block: Iterable[Any] = ()) -> None:
        """Run the elements of a box on the arrays that the body has parameters for."""
        try:
            self.loop.call(*bounds(box), *arrays, *extra, *self.parameters, *block)
        except IndexError as error:
            if self.explanation is None:
                raise
            raise self.explanation.of(error, box, arrays, extra) from None

    def run(self, call: Callable[[int, Box], None], pieces: list[Box]) -> None:
        """Run the pieces, here and on workers that have nothing else to do; note what an element of the first took."""
        if not self.size:
            return

        def measured(number: int, piece: Box) -> None:
            start = perf_counter_ns()
            call(number, piece)
            if number == 0:
                self.loop.took((perf_counter_ns() - start) / math.prod(map(len, piece)))

        if len(pieces) == 1:
            measured(0, pieces[0])
            return
        job = Job(measured, pieces)
        self.port.share(job, min(len(pieces), self.port.max_workers()) - 1)
        job()
        job.wait()


class ArrayAt:
    """Memory as NumPy's array interface tells of it."""

    def __init__(self, interface: dict[str, Any], base: Any) -> None:
        self.__array_interface__ = interface
        self.base = base


def as_part_of(array: Any, shape: tuple[int, ...], first: tuple[int, ...]) -> Any:
    """Return an array of this shape, in which `array` begins at the index `first`; nothing else of it is there."""
    address, is_readonly = array.__array_interface__["data"]
    address -= sum(index * step for index, step in zip(first, array.strides, strict=True))
    told = {**array.__array_interface__, "shape": shape, "strides": array.strides, "data": (address, is_readonly)}
    found = np.asarray(ArrayAt(told, array))
    return found if found.dtype == array.dtype else found.view(array.dtype)


class PortHere:
    """What a loop asks a port for, on a remote worker."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.share = driver.share

    def max_workers(self) -> int:
        """Return how many bodies run side by side."""
        return int(self.driver.max_workers)


class NothingToRun:
    """The body of a task that is planned, and not run: nothing is compiled for it."""

    def at(self, driver: Any) -> NothingToRun:
        """Return itself."""
        return self

    def __call__(self, *values: Any) -> None:
        """Do nothing."""


class Job:
    """Pieces of work that several threads take, one after the other."""

    def __init__(self, call: Callable[[int, Box], None], pieces: list[Box]) -> None:
        self.call = call
        self.todo = deque(enumerate(pieces))
        self.running = len(self.todo)
        self.lock = threading.Lock()
        self.done = threading.Event()
        self.error: BaseException | None = None

    def __call__(self) -> None:
        """Do pieces until none is left."""
        while True:
            try:
                number, piece = self.todo.popleft()
            except IndexError:
                return
            try:
                if self.error is None:
                    self.call(number, piece)
            except BaseException as error:
                self.error = error
            with self.lock:
                self.running -= 1
                if self.running == 0:
                    self.done.set()

    def wait(self) -> None:
        """Wait until all pieces are done; raise what one of them raised."""
        self.done.wait()
        if self.error is not None:
            raise self.error


def bounds(box: Box) -> Iterator[int]:
    """Start, stop and step of each axis."""
    for axis in box:
        yield axis.start
        yield axis.stop
        yield axis.step


def is_cut_along_first(part: Part) -> bool:
    """Return whether a part is cut along its first axis alone: one box, whose first axis is long enough."""
    return all(isinstance(axis, range) for axis in part) and len(part[0]) >= LONG


def cut(boxes: list[Box], count: int, along_first: bool = False) -> list[Box]:
    """Cut boxes into about `count` pieces of about the same size, each along one axis, perhaps the first."""
    sizes = [math.prod(map(len, box)) for box in boxes]
    whole = sum(sizes)
    found: list[Box] = []
    for box, size in zip(boxes, sizes, strict=True):
        if size:
            found += slabs(box, max(round(count * size / whole), 1), along_first)
    return found


def slabs(box: Box, count: int, along_first: bool) -> Iterator[Box]:
    """The first axis, or the first that is long enough, or else the longest, in `count` parts."""
    longest = max(range(len(box)), key=lambda i: len(box[i]))
    axis = 0 if along_first else next((i for i, along in enumerate(box) if len(along) >= count), longest)
    extent = len(box[axis])
    count = min(count, extent)
    for k in range(count):
        own = box[axis][k * extent // count : (k + 1) * extent // count]
        yield (*box[:axis], own, *box[axis + 1 :])


def parts_of(target: Target, array: Any, count: int) -> Any:
    """Room for the results of so many blocks; of an array that is reduced into neutral copies."""
    kind = accumulator(target.op, array.dtype) if array.ndim == 0 else array.dtype
    room = np.empty((count, *array.shape), kind)
    target.op.fill(room)
    return room


def combine(target: Target, array: Any, parts: Any) -> None:
    """Combine the results of the blocks, in order, into the array of a task."""
    total = parts[0, ...].copy()
    for part in parts[1:]:
        target.op.combine(total, part, total)
    if target.accumulates:
        target.op.combine(total, array.astype(parts.dtype), total)
    array[...] = total.astype(array.dtype)


def is_result(target: Target, array: Any, parts: dict[int, Any]) -> bool:
    """Return whether the result of the only block is that of a task: a scalar of the type that is combined in."""
    return array.ndim == 0 and not target.accumulates and array.dtype == parts[target.position].dtype


def key_of(arguments: list[Any]) -> tuple[Any, ...]:
    """Return what of arguments decides how a loop is compiled."""
    return tuple([a if type(a) is ArrayType else kind_of(a) for a in arguments])


def compile_now(loop: CompiledLoop, arguments: list[Any], where: str) -> None:
    """Compile a loop for the types of its arguments; TypeError with the user's line where that fails."""
    key = key_of(arguments)
    if key in loop.known:
        return
    try:
        loop.call.compile(types_of(arguments))
        loop.known.add(key)
    except NotImplementedError as error:
        raise TypeError(f"{where} cannot be compiled: Numba knows no {error} on a CPU; use another dtype") from None
    except Exception as error:
        raise error_of(error, where) from None
