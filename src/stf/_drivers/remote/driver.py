"""The driver of a context whose devices are other processes.

Verbs that are for a worker become commands of its batch, and nobody waits for it. A batch is sent when it has 64
commands, after a millisecond, or when somebody waits. Addresses, streams and bodies are numbers that the client gives.
So the client can go on: what a worker answers is what its streams have reached, and which bodies have failed.

A stream of a worker is a mirror here (see `endpoint`). The client also keeps what it has put on the stream and not yet
heard of. It needs that when a worker is lost::

    worker      there ──gone──▶ lost ──another process in its place, and its streams have nothing left──▶ there
    its streams are mirrors     become streams of this process: the order of everything stays as it was, and what the
                                worker was to do fails, each at its turn
    its memory  numbers that the client gave; whoever takes its place allocates what is in use under the same numbers,
                and the engine takes no replica there for valid before it was written or copied again

A body and a copy between processes have a *trip*: an object that says what they need, and is told how they went
(`QueuedBody.travels`, `coherency.RemoteCopy`). Their numbers are what the workers know of outcomes.

Tried before: a remote call for each task. It costs 1 to 2 ms, a command of a batch 5 to 10 µs.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from stf._drivers.remote.endpoint import CLIENT, Endpoint, Message, error_in
from stf._drivers.remote.functions import Functions, pickled_arguments, plain_call
from stf._drivers.remote.links import CALL, COPY, HOST_CALL, LAST, PARCEL, RECORD, WAIT, RemoteStream, WorkerLink
from stf._drivers.remote.parcels import ParcelsOfWorkers, lose_part
from stf._drivers.remote.surroundings import carried
from stf._drivers.remote.turns import call_in_passing, call_last, lose_call, lose_copy
from stf._drivers.remote.watched import WatchedDriver
from stf._drivers.wrappers.wrapping import WrappingDriver
from stf._port.links import SAME_PLACE, Link
from stf._port.remote_arrays import REMOTE_GPU, owner_of
from stf.errors import PlaceError, WorkerLostError

log = logging.getLogger("stf")
BATCH = 256  # commands
BATCH_S = 1e-3
ALIGNMENT = 64
FIRST_BLOCK = 1 << 48
NOTHING = ("", 0)
NETWORK = Link(1e-3, 1e9)  # 16 MiB between processes of one machine, as it was measured


class Client(Endpoint):
    """The client's end."""

    def __init__(self, driver: RemoteDriver, send: Callable[[int, bytes], None]) -> None:
        super().__init__(CLIENT, driver.inner, send)
        self.remote = driver
        self.receiving = threading.RLock()
        # messages of workers that are for the driver
        self.note_ran, self.note_pong = driver.note_ran, driver.note_pong
        self.note_broken, self.note_missed = driver.note_broken, driver.note_missed

    def handle(self, batch: bytes) -> None:
        with self.receiving:
            super().handle(batch)

    def deliver(self, peer: int, messages: list[Message]) -> None:
        link = self.remote.links[peer - 1]
        with link.lock:
            link.outbox += messages
            self.remote.flush(link)

    def learn(self, number: int, cause: int, content: bytes | None) -> bool:
        is_new = super().learn(number, cause, content)
        if is_new:
            self.remote.note_failed(number, cause, content)
        return is_new

    def reached(self, name: int, sequence: int) -> None:
        self.remote.settle(name, sequence)
        if name in self.streams:
            super().reached(name, sequence)

    def is_called_off(self, tag: int) -> bool:
        keep = self.remote.copies.get(tag)
        return keep is not None and len(keep) > 2 and not hasattr(keep[2], "arrive") and keep[2]() is not None

    def miss(self, peer: int, reason: str) -> None:
        self.remote.note_lost(peer, f"it does not get what it is sent: {reason}")

    def give_up(self, error: BaseException) -> None:
        log.error("this process cannot go on with its workers", exc_info=error)
        for link in self.remote.links:
            self.remote.note_lost(link.worker, f"this process could not send: {type(error).__name__}: {error}")

    def take_turn(self, exchange: int, peer: int, number: int) -> None:
        """Run a call of this process, whose turn has come on a stream of a worker's."""
        body = self.remote.host_calls.pop(number, None)

        def call() -> None:
            try:
                if body is not None:
                    body()
            finally:
                self.post(peer, "end_exchange", exchange)

        self.driver.call(self.remote.calling_stream(), call)


class RemoteDriver(WrappingDriver):
    """Passes verbs for the host on to a driver of this process, and those for a worker to that.

    Parameters
    ----------
    transport : Transport
        Has the workers: see `transports`.
    threads : int
        Bodies on the host that run at a time.
    batch, batch_s : int, float
        So many commands are sent at once, or those that have waited for so long.
    """

    parcels: Any

    def __init__(self, transport: Any, threads: int, batch: int = BATCH, batch_s: float = BATCH_S) -> None:
        super().__init__(WatchedDriver(transport.count, False, threads))
        self.name = "remote"
        self.batch, self.batch_s = batch, batch_s
        self.transport = transport
        self.links = [WorkerLink(worker) for worker in range(1, transport.count + 1)]
        self.remote: dict[int, RemoteStream] = {}  # by the number of the mirror
        self.by_name: dict[int, RemoteStream] = {}
        self.name_numbers = itertools.count(1)
        self.body_numbers = itertools.count(1)
        self.next_block = FIRST_BLOCK  # of the numbers of bodies that have some in a row
        self.parcels = ParcelsOfWorkers(self)
        self.bodies: dict[int, Any] = {}  # trips that workers have, by number
        self.numbers: dict[int, tuple[int, Any]] = {}  # of outcomes and launches that are open, by id
        self.errors_of: dict[int, Any] = {}  # failures by number, as long as the context lives
        self.failures: dict[int, tuple[int, Any]] = {}  # of this process that workers know, by id
        self.host_outcomes: dict[int, Any] = {}  # of bodies of this process that workers wait for, by number
        self.copies: dict[int, Any] = {}  # what keeps memory of this process for copies, by tag
        self.launch_copies: dict[int, Any] = {}  # by number of the launch
        self.host_calls: dict[int, Any] = {}
        self.spare_streams: list[int] = []
        self.functions = Functions()
        self.blocks: dict[int, tuple[int, int]] = {}
        self.clocks: dict[int, int] = {}  # what is to be added to the clock of a worker
        self.losses_told: dict[tuple[int, int], int] = {}  # (who was told, who is lost): how often
        self.pings: dict[int, tuple[int, int]] = {}  # by worker: when the last one was sent, and the best way so far
        self.lock = threading.RLock()
        self.closed = False
        self.has_commands = threading.Event()
        self.client = Client(self, transport.send)
        transport.start(self)
        self.client.teller.start()
        self.flusher = threading.Thread(target=self.flush_later, name="stf-flusher", daemon=True)
        self.flusher.start()
        for worker in range(1, transport.count + 1):
            self.ping(worker)

    def kind(self, device: int) -> str:
        return REMOTE_GPU if self.transport.has_gpu[device] else "remote cpu"

    def link(self, source: int, target: int) -> Link:
        return SAME_PLACE if source == target else NETWORK

    # -- batches -----------------------------------------------------------------------------------------------

    def command(self, link: WorkerLink, *message: Any) -> None:
        """Add a command to a batch; the lock of the link is held."""
        link.outbox.append(message)
        if len(link.outbox) == 1:
            self.has_commands.set()
        elif len(link.outbox) >= self.batch:
            self.flush(link)

    def flush(self, link: WorkerLink) -> None:
        """Send the batch of a worker."""
        with link.lock:
            batch, link.outbox = link.outbox, []
            if not batch or link.lost is not None:
                return
            if self.host_outcomes:
                self.look_at_host()
            content = self.client.packed(link.worker, batch)
            try:
                self.transport.send(link.worker, content)
            except Exception as error:  # whatever a cluster's engine says
                reason = str(error) or type(error).__name__
                threading.Thread(target=self.note_lost, args=(link.worker, reason), daemon=True).start()

    def flush_all(self) -> None:
        """Send all batches, since somebody waits."""
        for link in self.links:
            if link.outbox:
                self.flush(link)

    def flush_later(self) -> None:
        """Send batches that have waited for a millisecond."""
        while True:
            self.has_commands.wait()
            if self.closed:
                return
            self.has_commands.clear()
            time.sleep(self.batch_s)
            self.flush_all()

    def receive(self, worker: int, content: bytes) -> None:
        """Do what a worker says."""
        try:
            self.client.handle(content)
        except Exception as error:
            log.exception("a message of a worker could not be handled")
            self.note_lost(worker, f"what it said could not be handled: {type(error).__name__}: {error}")

    # -- streams and events ------------------------------------------------------------------------------------

    def stream_create(self, device: int, priority: int = 0) -> int:
        stream = int(self.inner.stream_create(-1, priority))
        name = next(self.name_numbers)
        if device < 0:
            self.client.names[stream] = name
            self.client.streams[name] = stream
            return stream
        link = self.links[device]
        self.remote[stream] = self.by_name[name] = RemoteStream(name, link)
        self.client.streams[name] = stream
        with link.lock:
            if link.lost is None:
                self.command(link, "make_stream", name)
            else:
                self.client.names[stream] = name
        return stream

    def stream_destroy(self, stream: int) -> int:
        remote = self.remote.pop(stream, None)
        name = self.client.names.pop(stream, 0) if remote is None else remote.name
        if remote is not None:
            self.by_name.pop(name, None)
            self.client.names.pop(stream, None)
        self.client.streams.pop(name, None)
        for link in self.links:
            with link.lock:
                if link.lost is None:
                    self.command(link, "drop_stream", name)
        return int(self.inner.stream_destroy(stream))

    def stream_enter(self, stream: int) -> int:
        remote = self.remote.get(stream)
        if remote is not None:
            raise PlaceError(
                f"the body of a with-block cannot travel to {remote.link.name}; write a task function (@stf.task), or "
                "run the block on exec_place.host()"
            )
        self.flush_all()
        return int(self.inner.stream_enter(stream))

    def try_enter(self, stream: int) -> bool:
        return stream not in self.remote and bool(self.inner.try_enter(stream))

    def record(self, stream: int, sequence: int) -> int:
        remote = self.remote.get(stream)
        if remote is None:
            return int(self.inner.record(stream, sequence))
        link = remote.link
        with link.lock:
            remote.last = sequence
            if link.lost is not None:
                return int(self.inner.record(stream, sequence))
            remote.pending.append((RECORD, sequence, None))
            last = link.outbox[-1] if link.outbox else NOTHING
            if last[0] == "call" and last[1] == remote.name and len(last) == 9:
                link.outbox[-1] = (*last, None, sequence)  # one command for a task
            else:
                self.command(link, "record", remote.name, sequence)
        return 0

    def wait_event(self, stream: int, other: int, sequence: int) -> int:
        remote = self.remote.get(stream)
        if remote is None:
            return int(self.inner.wait_event(stream, other, sequence))
        if self.inner.completed(other) >= sequence:
            return 0  # who commands the worker knows it; so it would know of failures before, too
        link, source = remote.link, self.remote.get(other)
        name = self.client.names[other] if source is None else source.name
        if source is None or source.link is not link:
            self.announce(source, name, sequence, link.worker)
        with link.lock:
            if link.lost is not None:
                return int(self.inner.wait_event(stream, other, sequence))
            remote.pending.append((WAIT, other, sequence))
            self.command(link, "wait", remote.name, name, sequence)
        return 0

    def announce(self, source: RemoteStream | None, name: int, sequence: int, worker: int) -> None:
        """Have the owner of a stream tell a worker when it reaches a mark; this process tells it of a lost worker."""
        if source is not None:
            with source.link.lock:
                if source.link.lost is None:
                    self.command(source.link, "note_awaited", name, sequence, worker)
                    return
        self.client.note_awaited(name, sequence, worker)

    def synchronize(self, stream: int, sequence: int, timeout_s: float) -> bool:
        self.flush_all()
        return bool(self.inner.synchronize(stream, sequence, timeout_s))

    def park(self, baton: Any, timeout_s: float) -> bool:  # type: ignore[override]
        self.flush_all()
        return bool(self.inner.park(baton, timeout_s))

    def calling_stream(self) -> int:
        """Return a stream of the host for calls that come from workers."""
        if not self.spare_streams:
            self.spare_streams = [int(self.inner.stream_create(-1)) for _ in range(8)]
        stream = self.spare_streams.pop(0)
        self.spare_streams.append(stream)
        return stream

    # -- memory ------------------------------------------------------------------------------------------------

    def alloc(self, device: int, nbytes: int, stream: int) -> int:
        if device < 0:
            return int(self.inner.alloc(device, nbytes, stream))
        link = self.links[device]
        with link.lock:
            address = link.next_address
            link.next_address += (max(nbytes, 1) + 2 * ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
            link.used += nbytes
            self.blocks[address] = (device, nbytes)
            if link.lost is None:
                self.command(link, "alloc", self.name_there(stream, link), address, nbytes)
        return address

    def name_there(self, stream: int, link: WorkerLink) -> int:
        """Return the name of a stream of a worker's; 0 if it is none of that: what is done then is done in turn."""
        remote = self.remote.get(stream)
        return remote.name if remote is not None and remote.link is link else 0

    def free(self, device: int, address: int, nbytes: int, stream: int) -> int:
        if address >= 0:
            return int(self.inner.free(device, address, nbytes, stream))
        link = self.links[device]
        with link.lock:
            link.used -= nbytes
            del self.blocks[address]
            if link.lost is None:
                self.command(link, "free", self.remote[stream].name, address)
        return 0

    def owner(self, address: int) -> Any:
        return None if address < 0 else self.inner.owner(address)

    def fill(self, stream: int, target: int, strides: Any, shape: Any, pattern: bytes) -> bool:
        remote = self.remote[stream]
        with remote.link.lock:
            if remote.link.lost is None:
                self.command(remote.link, "fill", remote.name, (target, strides, shape, len(pattern)), pattern)
        return True

    def copy(
        self,
        stream: int,
        target: int,
        target_strides: tuple[int, ...],
        source: int,
        source_strides: tuple[int, ...],
        shape: tuple[int, ...],
        itemsize: int,
        keep: Any,
        number: int = 0,
    ) -> int:
        into, out = (target, target_strides, shape, itemsize), (source, source_strides, shape, itemsize)
        to, of = owner_of(target), owner_of(source)
        remote = self.remote.get(stream)
        if to == of == CLIENT:
            if remote is not None:
                raise PlaceError("a copy between arrays of the host is on a stream of a remote worker")
            arguments = (target, target_strides, source, source_strides, shape, itemsize, keep, number)
            return int(self.inner.copy(stream, *arguments))
        trip = keep[2] if len(keep) > 2 and hasattr(keep[2], "arrive") else None
        tag = self.tag_of(trip, keep)
        lost = self.lost_among(to, of)
        if remote is None:
            if lost is not None:
                self.inner.call(stream, functools.partial(lose_copy, self, tag, lost))
                return 0
            name = self.client.names[stream]
            if to == CLIENT:
                self.client.pull(name, into, of, out, tag)
            else:
                self.client.push(name, out, to, into, tag)
            self.inner.call(stream, functools.partial(self.went_well, tag))
            return 0
        link = remote.link
        with link.lock:
            if lost is not None or link.lost is not None:
                self.inner.call(stream, functools.partial(lose_copy, self, tag, lost or link.lost))
                return 0
            remote.pending.append((COPY, tag, None))
            if to == of:
                self.command(link, "copy", remote.name, into, out)
            elif to == link.worker:
                self.command(link, "pull", remote.name, into, of, out, tag)
            elif of == link.worker:
                self.command(link, "push", remote.name, out, to, into, tag)
            else:
                raise PlaceError("a copy is on a stream of a worker that has neither end of it")
        return 0

    def tag_of(self, trip: Any, keep: Any) -> int:
        """Return the number of a copy; one of a launch has that of the launch, which fails with it."""
        group = None if trip is None else trip.group()
        if trip is None:
            tag = next(self.body_numbers)
        elif group is not None:
            tag = self.number_of(group)
            self.launch_copies.setdefault(tag, trip)
            self.host_outcomes.setdefault(tag, group)
            return tag
        else:
            tag = self.number_of(trip.result())
            self.bodies[tag] = trip
        self.copies[tag] = keep
        return tag

    def lost_among(self, *workers: int) -> WorkerLostError | None:
        """Return the error of a worker of these that is lost, if any."""
        return next((lost for each in workers if each and (lost := self.links[each - 1].lost) is not None), None)

    def may_use(self, device: int, other: int, address: int, nbytes: int, owner: Any) -> int:
        return int(device == other)

    # -- bodies ------------------------------------------------------------------------------------------------

    def call(self, stream: int, body: Any) -> int:
        remote = self.remote.get(stream)
        travels = getattr(body, "travels", None) if remote is not None else None
        trip = None if travels is None else travels()
        if trip is None or remote is None:
            return self.call_here(stream, remote, body)
        fn, run, rest = trip
        sent = self.functions.sent(fn)
        number = sent.number
        variables = body.surroundings()
        around = None if variables is None else carried(variables)
        watched = None
        arguments: Any = None if around is not None else plain_call(run, rest)
        if arguments is None:
            arguments, watched = pickled_arguments(run, rest, fn, around, sent.places)
        link = remote.link
        with link.lock:
            is_watched = body.set_out()
            own = next(self.body_numbers)
            result = body.result()
            self.numbers[id(result)] = (own, result)
            self.bodies[own] = body
            if link.lost is not None:
                self.inner.call(stream, functools.partial(lose_call, self, own, link.lost))
                return 0
            inputs = self.inputs_of(body)
            group = body.group()
            grouped = 0 if group is None else self.number_of(group)
            if grouped:
                inputs = (*inputs, grouped)
                if grouped not in self.host_outcomes:
                    self.host_outcomes[grouped] = group
            remote.pending.append((CALL, own, None))
            if number not in link.functions:
                link.functions.add(number)
                self.command(link, "keep_function", number, sent.content)
            self.command(link, "call", remote.name, own, inputs, grouped, number, arguments, watched, bool(is_watched))
        return 0

    def play_parcel(self, stream: int, run: Any) -> int:
        self.parcels.play(stream, self.remote[stream], run)
        return 0

    def call_here(self, stream: int, remote: RemoteStream | None, body: Any) -> int:
        """Call something of this process when a stream gets there, which may be a worker's."""
        is_last = hasattr(body, "ends")
        if is_last:
            body = functools.partial(call_last, self, body)
        if remote is None and is_last:  # it waits for none of the threads that run bodies
            self.client.exchange(stream, CLIENT, functools.partial(call_in_passing, self, body), None, 0)
            return 0
        if remote is None:
            return int(self.inner.call(stream, body))
        link = remote.link
        with link.lock:
            if link.lost is not None:
                return int(self.inner.call(stream, body))
            if is_last:  # nothing on the stream waits for it: it is called before anybody hears of the next mark
                remote.pending.append((LAST, 0, body))
                return 0
            number = next(self.body_numbers)
            self.host_calls[number] = body
            remote.pending.append((HOST_CALL, number, body))
            self.command(link, "ask", remote.name, number)
        return 0

    def number_of(self, outcome: Any) -> int:
        """Return the number by which workers know an outcome, or a launch, that is open."""
        with self.lock:
            known = self.numbers.get(id(outcome))
            if known is None:
                known = self.numbers[id(outcome)] = (next(self.body_numbers), outcome)
            return known[0]

    def number_of_failure(self, failure: Any) -> int:
        """Return the number by which workers know a failure of which this process knows already."""
        with self.lock:
            known = self.failures.get(id(failure))
            if known is not None:
                return known[0]
            number = next(self.body_numbers)
            self.failures[id(failure)] = (number, failure)
            self.errors_of[number] = failure
        self.client.learn(number, number, None)
        return number

    def inputs_of(self, body: Any) -> tuple[int, ...]:
        """Return the numbers of the outcomes that a body waits for, or of the failure that spoils it."""
        found: dict[int, None] = {}
        todo = list(body.needs())
        while todo:
            outcome = todo.pop()
            pending = outcome.pending
            failure = outcome.failed()
            if failure is not None:
                return (self.number_of_failure(failure),)
            if pending:
                number = self.number_of(outcome)
                found[number] = None
                if number not in self.bodies:
                    self.host_outcomes[number] = outcome
            if outcome.sources:
                todo += outcome.sources
        return tuple(found)

    def look_at_host(self) -> None:
        """See which outcomes of this process, which workers wait for, are bad by now."""
        for number, outcome in list(self.host_outcomes.items()):
            failure = outcome.failed()
            if failure is not None:
                self.host_outcomes.pop(number, None)
                self.errors_of.setdefault(number, failure)
                self.client.learn(number, self.number_of_failure(failure), None)
            elif getattr(outcome, "pending", True) is False and not outcome.sources:
                self.host_outcomes.pop(number, None)
                self.numbers.pop(id(outcome), None)

    def note_failed(self, number: int, cause: int, content: bytes | None) -> None:
        """Hear that something has failed, or was skipped for what has."""
        trip = self.bodies.pop(number, None) or self.parcels.trip(number, has_failed=True)
        failure = self.errors_of.get(cause)
        if trip is None:
            if failure is None and cause == number and content is not None and number in self.launch_copies:
                failure = self.launch_copies[number].arrive(error_in(content), None)
            if failure is not None:
                self.errors_of.setdefault(number, failure)
            return
        self.copies.pop(number, None)
        if cause == number:
            failure = trip.arrive(error_in(content) if content is not None else RuntimeError("a body failed"), None)
        else:
            trip.arrive(None, failure)
        self.errors_of[number] = failure
        self.numbers.pop(id(trip.result()), None)

    def note_ran(self, number: int, worker: int, thread: int, start_ns: int, end_ns: int) -> None:
        """Hear when a body ran, by the clock of its worker."""
        trip = self.bodies.get(number) or self.parcels.trip(number)
        if trip is not None:
            shift = self.clocks.get(worker, 0)
            trip.ran(worker << 48 | thread & ((1 << 48) - 1), start_ns + shift, end_ns + shift)

    def settle(self, name: int, sequence: int) -> None:
        """Say that what a stream has passed went well, unless it is known that it did not."""
        remote = self.by_name.get(name)
        if remote is None:
            return
        pending = remote.pending
        while pending:
            with remote.link.lock:
                if not pending or (pending[0][0] == RECORD and pending[0][1] > sequence):
                    return
                kind, number, what = pending.popleft()
            if kind in (CALL, COPY):
                self.went_well(number)
            elif kind == PARCEL:
                self.parcels.went_well(number)
            elif kind == LAST:
                what()
            elif kind == RECORD and number >= sequence:
                return

    def went_well(self, number: int) -> None:
        """End a body or a copy that nobody has heard a failure of."""
        self.copies.pop(number, None)
        trip = self.bodies.pop(number, None)
        if trip is not None:
            self.numbers.pop(id(trip.result()), None)
            trip.arrive(None, None)

    # -- workers that are lost ---------------------------------------------------------------------------------

    def note_broken(self, worker: int, content: bytes) -> None:
        """Hear that a worker could not do a command."""
        error = error_in(content)
        log.error("worker %d could not do a command: %s", worker, "\n".join(getattr(error, "__notes__", ())))
        self.note_lost(worker, f"it could not do a command: {type(error).__name__}: {error}")
        self.transport.end(worker)

    def note_missed(self, worker: int, peer: int, reason: str, losses: int) -> None:
        """Hear that a worker does not reach another one, of which it has heard so often that it is lost."""
        is_there = self.links[peer - 1].lost is None and not self.closed
        if is_there and losses == self.losses_told.get((worker, peer), 0):  # else it was the one before
            self.note_lost(peer, f"worker {worker} cannot reach it: {reason}")
            self.transport.end(peer)

    def note_lost(self, worker: int, reason: str) -> None:
        """A worker is gone: its streams become streams of this process, and what it was to do fails."""
        link = self.links[worker - 1]
        if self.closed:
            return
        with link.lock:
            if link.lost is not None:
                return
            text = f"{link.name} is lost: {reason}; data that only it had are poisoned, write them anew"
            error = WorkerLostError(text, worker=link.name)
            link.outbox, link.functions, link.parcels, link.is_back = [], set(), set(), False
            streams = [(stream, remote) for stream, remote in list(self.remote.items()) if remote.link is link]
            link.lost = error
            for stream, remote in streams:
                self.client.names[stream] = remote.name
                self.take_over(stream, remote, error)
        log.warning("%s", text)
        for watcher in list(self.inner.loss_watchers):
            watcher.lose_worker(worker - 1, error)
        with self.client.receiving:
            self.client.lose(worker, text)
        for other in self.links:
            if other.lost is None:
                key = other.worker, worker
                self.losses_told[key] = self.losses_told.get(key, 0) + 1
                self.client.post(other.worker, "lose", worker, text)

    def take_over(self, stream: int, remote: RemoteStream, error: WorkerLostError) -> None:
        """Put on a stream of this process what a worker was to do; its bodies fail."""
        while remote.pending:
            kind, number, what = remote.pending.popleft()
            if kind == WAIT:
                self.inner.wait_event(stream, number, what)
            elif kind == RECORD:
                self.inner.record(stream, number)
                for link in self.links:
                    if link.lost is None:
                        self.client.note_awaited(remote.name, number, link.worker)
            elif kind == COPY:
                self.inner.call(stream, functools.partial(lose_copy, self, number, error))
            elif kind == HOST_CALL:
                if self.host_calls.pop(number, None) is not None:
                    self.inner.call(stream, what)
            elif kind == LAST:
                self.inner.call(stream, what)
            elif kind == PARCEL:
                self.inner.call(stream, functools.partial(lose_part, self.parcels, number, what, error))
            else:
                self.inner.call(stream, functools.partial(lose_call, self, number, error))

    def note_back(self, worker: int) -> None:
        """Another process has taken the place of a worker that was lost; use it when nothing of before is left."""
        link = self.links[worker - 1]
        with link.lock:
            if link.lost is None or link.is_back or self.closed:
                return
            link.is_back = True
        threading.Thread(target=self.welcome, args=(link,), name="stf-welcome", daemon=True).start()

    def welcome(self, link: WorkerLink) -> None:
        """Wait until nothing is left of a lost worker, and use the one in its place."""
        while link.lost is not None and link.is_back and not self.closed:
            action: Callable[[], bool] = functools.partial(self.resume, link)
            for watcher in list(self.inner.loss_watchers):  # each sees to it that nobody uses the device meanwhile
                action = functools.partial(watcher.regain_worker, link.worker - 1, action)
            if action():
                return
            time.sleep(0.01)

    def resume(self, link: WorkerLink) -> bool:
        """Use a worker again; False if its streams have something left from before."""
        with link.lock:
            if link.lost is None or not link.is_back or self.closed:
                return True
            streams = [(stream, remote) for stream, remote in list(self.remote.items()) if remote.link is link]
            if any(self.inner.completed(stream) < remote.last for stream, remote in streams):
                return False
            link.lost, link.is_back = None, False
            for other in self.links:
                self.losses_told.pop((link.worker, other.worker), None)
            with self.client.lock:
                self.client.told[link.worker] = 0
            for stream, remote in streams:
                self.client.names.pop(stream, None)
                self.command(link, "make_stream", remote.name)
            for address, (device, nbytes) in list(self.blocks.items()):
                if device == link.worker - 1:
                    self.command(link, "alloc", 0, address, nbytes)
            self.flush(link)
        self.ping(link.worker)
        return True

    # -- the rest ----------------------------------------------------------------------------------------------

    def ping(self, worker: int) -> None:
        """Ask a worker what time it is there."""
        link = self.links[worker - 1]
        with link.lock:
            if link.lost is None:
                _, best = self.pings.get(worker, (0, 1 << 62))
                self.pings[worker] = (time.perf_counter_ns(), best)
                self.command(link, "ping", 0)
                self.flush(link)

    def note_pong(self, worker: int, number: int, clock_ns: int) -> None:
        """Hear what time it is on a worker; the shortest of a few ways tells best."""
        now = time.perf_counter_ns()
        sent, best = self.pings[worker]
        if now - sent < best:
            best = now - sent
            self.clocks[worker] = (now + sent) // 2 - clock_ns
        self.pings[worker] = (sent, best)

    def statistics(self) -> tuple[int, int, int, int, list[int]]:
        streams, spare, workers, allocations, used = self.inner.statistics()
        held = [used[0], *(link.used for link in self.links)]
        return streams, spare, workers, allocations + len(self.blocks), held

    def close(self) -> int:
        if self.closed:
            return 0
        self.flush_all()
        self.closed = True
        self.has_commands.set()
        self.transport.close()
        self.inner.tell(None)
        return int(self.inner.close())
