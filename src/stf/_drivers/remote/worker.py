"""A worker: it runs the client's commands, in order, on a driver of its own. They are methods of `Worker`."""

from __future__ import annotations

import bisect
import functools
import operator
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

from stf._drivers.cpu import array_at
from stf._drivers.remote.captures import Binding, Watched, roots_of
from stf._drivers.remote.endpoint import CLIENT, Endpoint, Message, portable, word_of
from stf._drivers.remote.functions import ArgumentReader, read_call
from stf._drivers.remote.kept import KeptPart
from stf._drivers.remote.surroundings import run_within
from stf._drivers.remote.watched import Notice, WatchedDriver
from stf._port.remote_arrays import here


class Worker(Endpoint):
    """An interpreter of commands.

    Parameters
    ----------
    number : int
        Of this worker, from 1.
    threads : int
        How many bodies run at a time.
    send : callable
        ``send(peer, batch)`` sends bytes to the client or to another worker.
    driver : WatchedGpu, optional
        Of a GPU; else the worker's tasks run on its CPU.
    """

    def __init__(self, number: int, threads: int, send: Callable[[int, bytes], None], driver: Any = None) -> None:
        super().__init__(number, driver or WatchedDriver(1, True, threads), send)
        self.starts: list[int] = []  # of memory, as the client knows it, in order
        self.blocks: dict[int, tuple[int, int, Any]] = {}  # (address here, bytes, owner)
        self.functions: dict[int, Any] = {}
        self.captured: dict[int, Watched] = {}
        self.objects: dict[int, list[Any]] = {}  # that functions have brought
        self.losses: dict[int, int] = {}  # how often the client said that another worker is lost
        self.parcels: dict[int, KeptPart] = {}
        self.inner_lanes: set[int] = set()  # names of streams whose marks the client is not told of
        self.inner_marks: set[tuple[int, int]] = set()  # of other streams, of which it is not told either
        self.reading = threading.Lock()
        self.teller.start()

    def run(self, batch: bytes) -> None:
        """Do what came from the client or from another worker."""
        with self.reading:
            here.worker = self
            try:
                self.handle(batch)
            except BaseException as error:  # it does not know any more what the client thinks that it does
                self.post(CLIENT, "note_broken", self.number, portable(error, [traceback.format_exc()]))

    def close(self) -> None:
        """End the threads."""
        self.driver.tell(None)
        self.driver.close()

    def miss(self, peer: int, reason: str) -> None:
        if peer != CLIENT:  # who misses this process itself sees to it
            self.post(CLIENT, "note_missed", self.number, peer, reason, self.losses.get(peer, 0))

    def give_up(self, error: BaseException) -> None:
        self.deliver(CLIENT, [("note_broken", self.number, portable(error, [traceback.format_exc()]))])

    def lose(self, peer: int, reason: str) -> None:
        self.losses[peer] = self.losses.get(peer, 0) + 1
        super().lose(peer, reason)

    # -- streams -----------------------------------------------------------------------------------------------

    def make_stream(self, name: int) -> None:
        """Make a stream of a name."""
        stream = self.driver.stream_create(0)
        self.streams[name] = stream
        self.names[stream] = name

    def drop_stream(self, name: int) -> None:
        """Give a stream, or a mirror, back."""
        stream = self.streams.pop(name, None)
        if stream is not None:
            self.names.pop(stream, None)
            self.awaited.pop(name, None)
            self.driver.stream_destroy(stream)

    def record(self, name: int, sequence: int) -> None:
        """Mark a point of a stream."""
        self.driver.record(self.streams[name], sequence)

    def mark(self, name: int, sequence: int) -> None:
        """Mark a point of a stream, at which a recording begins; nobody else waits for it."""
        self.inner_marks.add((name, sequence))
        self.record(name, sequence)

    def wait(self, name: int, other: int, sequence: int) -> None:
        """Let a stream wait for a mark of another one, which may be another process's."""
        self.driver.wait_event(self.streams[name], self.mirror(other), sequence)

    def tell_reached(self, out: dict[int, list[Message]], stream: int, sequence: int) -> None:
        name = self.names.get(stream)
        if name is not None and (name, sequence) in self.inner_marks:
            self.inner_marks.remove((name, sequence))
        elif name is not None and name not in self.inner_lanes:
            self.add(out, CLIENT, ("reached", name, sequence))
        super().tell_reached(out, stream, sequence)

    # -- memory ------------------------------------------------------------------------------------------------

    def find(self, address: int) -> tuple[int, Any]:
        if address >= 0:
            return address, None
        with self.lock:
            position = bisect.bisect_right(self.starts, address) - 1
            start = self.starts[position] if position >= 0 else 0
            real, nbytes, owner = self.blocks.get(start, (0, 0, None))
        if not start or address > start + nbytes:
            raise LookupError(f"address {address:#x} is not allocated on worker {self.number}")
        return real + address - start, owner

    def array(self, address: int, shape: Any, strides: Any, dtype: Any) -> np.ndarray[Any, Any]:
        """Return the array at an address, which it keeps alive."""
        real, owner = self.find(address)
        array = array_at(real, shape, strides, dtype)
        if array.base is not None and not isinstance(array.base, np.ndarray):
            array.base._stf_owner = owner  # type: ignore[attr-defined]
        return array

    def alloc(self, name: int, address: int, nbytes: int) -> None:
        """Allocate memory, which has that address for the client."""
        real = self.driver.alloc(0, nbytes, self.streams[name] if name else 0)
        with self.lock:
            self.blocks[address] = (real, nbytes, self.driver.owner(real))
            bisect.insort(self.starts, address)

    def free(self, name: int, address: int) -> None:
        """Free memory when the stream gets here; until then others may still ask for its content."""
        real, nbytes, _owner = self.blocks[address]
        self.driver.call(self.streams[name], Notice((self.forget, address)))
        self.driver.free(0, real, nbytes, self.streams[name])

    def forget(self, out: dict[int, list[Message]], address: int) -> None:
        """Know memory no more."""
        with self.lock:
            self.blocks.pop(address)
            del self.starts[bisect.bisect_left(self.starts, address)]

    def copy(self, name: int, target: Any, source: Any) -> None:
        """Copy an array within this worker."""
        to, to_strides, shape, itemsize = target
        start, strides, *_ = source
        (real_target, owner), (real_source, other) = self.find(to), self.find(start)
        keep = (owner, other)
        self.driver.copy(self.streams[name], real_target, to_strides, real_source, strides, shape, itemsize, keep)

    def fill(self, name: int, target: Any, pattern: bytes) -> None:
        """Fill an array with an element."""
        address, strides, shape, itemsize = target
        word = word_of(itemsize)
        array = self.array(address, shape, strides, word)
        fill = functools.partial(operator.setitem, array, ..., np.frombuffer(pattern, word)[0])
        self.driver.call(self.streams[name], fill)

    def ask(self, name: int, number: int) -> None:
        """Let the client call something when the stream gets here."""

        def message(exchange: int) -> Message:
            return "take_turn", exchange, self.number, number

        self.exchange(self.streams[name], CLIENT, message, None, 0)

    # -- bodies ------------------------------------------------------------------------------------------------

    def keep_function(self, number: int, content: bytes) -> None:
        """Keep what bodies call."""
        try:
            fn, self.objects[number] = pickle.loads(content)
            self.captured[number] = Watched(roots_of(fn), protects=True)
            self.functions[number] = fn
        except BaseException as error:
            self.functions[number] = Unreadable(error)

    def call(
        self,
        name: int,
        number: int,
        inputs: tuple[int, ...],
        group: int,
        function: int,
        content: Any,  # bytes, or what `plain_call` makes
        changeable: tuple[tuple[int, str], ...] | None,
        is_watched: bool,
        around: Any = None,
        sequence: int = 0,
    ) -> None:
        """Run a body when its stream gets here, and mark its end, unless that is number 0.

        `changeable` are its arguments that a body can change in place. `around` are the context variables of a launch;
        else the content has them.
        """
        given = []
        try:
            if type(content) is tuple:
                run, rest = read_call(*content)
            elif changeable is None:
                run, rest = pickle.loads(content)
            else:
                run, rest = ArgumentReader(content, self.objects.get(function, [])).load()
                args = rest[2] if run is run_within else rest[0]
                given = [Binding(label, args[i]) for i, label in changeable]
        except BaseException as error:
            run, rest = Unreadable(error), ()
        launch = inputs, group, is_watched, around
        self.driver.call(
            self.streams[name], functools.partial(self.run_call, number, function, run, rest, *launch, given)
        )
        if sequence:
            self.driver.record(self.streams[name], sequence)

    def put_calls(self, name: int, calls: list[tuple[int, int, Any, Any]], first: int, *launch: Any) -> None:
        """Run bodies of a launch one after the other when the stream gets here: each number, function, run and rest."""
        self.driver.call(self.streams[name], functools.partial(self.run_calls, calls, first, *launch))

    def run_calls(self, calls: list[tuple[int, int, Any, Any]], first: int, *launch: Any) -> None:
        """Run bodies, whose numbers count from `first`."""
        for number, function, run, rest in calls:
            self.run_call(first + number, function, run, rest, *launch)

    def run_call(
        self,
        number: int,
        function: int,
        run: Any,
        rest: Any,
        inputs: tuple[int, ...],
        group: int,
        is_watched: bool,
        around: Any,
        given: list[Binding] | None = None,
    ) -> None:
        """Run a body, unless something that it needs has failed; `given` is what it can change in place."""
        fn = self.functions[function]
        if around is not None:
            run, rest = run_within, (around, run, *rest)
        if type(fn) is Unreadable:
            run = fn
        for each in inputs if self.failed else ():
            if each in self.failed:
                self.fail(number, group, self.failed[each], None)
                if type(run) is not Unreadable:
                    run(None, *rest)
                return
        start = time.perf_counter_ns() if is_watched else 0
        try:
            run_watched(fn, run, rest, self.captured.get(function), Watched(given) if given else None)
        except BaseException as error:
            self.fail(number, group, number, error)
        if is_watched:
            ended = threading.get_ident(), start, time.perf_counter_ns()
            self.post(CLIENT, "note_ran", number, self.number, *ended)

    # -- recordings --------------------------------------------------------------------------------------------

    def make_lane(self, name: int) -> None:
        """Make a stream of a recording."""
        self.inner_lanes.add(name)
        self.make_stream(name)

    def parcel(self, number: int, lanes: list[tuple[int, int]], steps: list[Any], is_watched: bool) -> None:
        """Keep what this worker does of a recording."""
        self.parcels[number] = KeptPart(self, lanes, steps, is_watched)

    def unpack(self, number: int, names: list[int]) -> None:
        """Forget it, and the streams of all workers that have a part; it is not here if this process is a new one."""
        self.parcels.pop(number, None)
        for name in names:
            self.drop_stream(name)
            self.inner_lanes.discard(name)

    def play(self, name: int, origin: int, number: int, *rest: Any) -> None:
        """Do the part of a recording after a mark of a stream."""
        self.parcels[number].play(name, origin, *rest)

    # -- the rest ----------------------------------------------------------------------------------------------

    def ping(self, number: int) -> None:
        """Say what time it is here."""
        self.post(CLIENT, "note_pong", self.number, number, time.perf_counter_ns())

    def fail(self, number: int, group: int, cause: int, error: BaseException | None) -> None:
        """Know that a body has failed, or was skipped for one that has; whoever needs it hears of it in time."""
        content = None
        if error is not None:
            text = "".join(traceback.format_tb(error.__traceback__)).rstrip()
            content = portable(error, [f"raised in worker process {os.getpid()} at (most recent call last):\n{text}"])
        self.learn(number, cause, content)
        if group:
            self.learn(group, cause, None)


class Unreadable:
    """What stands for something that could not be unpickled here; a body that needs it fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, *arguments: Any) -> None:
        raise self.error


def run_watched(fn: Any, run: Any, rest: Any, captured: Watched | None, given: Watched | None) -> None:
    """Run a body, and raise TypeError if it has changed something of which this process has a copy."""
    try:
        run(fn, *rest)
    except BaseException as error:
        if captured is not None:
            captured.explain(error)
        raise
    for each in (captured, given):
        if each is not None:
            each.check(fn)


def facts() -> dict[str, str]:
    """Return what has to be the same on client and workers."""
    try:
        version = metadata.version("sequential-task-flow")
    except metadata.PackageNotFoundError:  # the sources, by PYTHONPATH
        version = "unknown"
    return {"Python": ".".join(map(str, sys.version_info[:2])), "NumPy": np.__version__, "stf": version}
