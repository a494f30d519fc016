"""One process that takes part in a remote context: the client is number 0, the workers count from 1.

Each process has a driver of its own, and names for the streams of all. A stream of another process is a *mirror*: a
stream that nothing is put on. When its owner says that it has reached a mark, that is recorded on the mirror. So who
waits for an event of another process, waits for one of its own driver.

Who owns a stream tells the client of each mark but those at which recordings begin, and other workers of those that
they wait for: the client knows who waits for whom, and says so to the owner (`note_awaited`).

**Failures** travel ahead of marks. Every batch begins with the failures that its receiver may not know, also with those
that the sender has heard of from others. So whoever hears of a mark knows of all failures that came before it, on
whichever ways, and a body that needs what failed knows of it when its turn comes. A first form told only the client
of failures, and their owner's marks: two batches from two workers can come in any order, and a body that was skipped
then had a cause that nobody knew yet.

A message is the name of a method, and its arguments. A copy between two processes is an *exchange*, which the owner of
the copy's stream begins when the stream gets there:

    into its own memory    ── give ──▶ the source sends the content ── end_exchange ──▶ it is written; go on
    out of its own memory  ── take, with the content ──▶ the target writes it ── end_exchange ──▶ go on

The stream waits for an event meanwhile, and no thread does. An exchange with a process that is gone fails: the copy has
a number, as bodies have, and who reads its target is skipped. One thread, the teller, sends everything: who reads
messages never waits for others to read theirs, so two processes that send each other much cannot get stuck.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stf._drivers.cpu import WORDS, array_at
from stf._drivers.remote.watched import Notice
from stf.errors import WorkerLostError

CLIENT = 0
Message = tuple[Any, ...]
News = tuple[int, int, bytes | None]  # a failure: its number, that of its cause, and the error of a cause


class Endpoint:
    """What client and workers have in common.

    Parameters
    ----------
    number : int
        Of this process.
    driver : WatchedDriver
        Of this process.
    send : callable
        ``send(peer, batch)`` sends bytes to another process.
    """

    def __init__(self, number: int, driver: Any, send: Callable[[int, bytes], None]) -> None:
        self.number = number
        self.driver = driver
        self.send = send
        self.names: dict[int, int] = {}  # of this process's streams, by the number of its driver
        self.streams: dict[int, int] = {}  # streams and mirrors, by name
        self.awaited: dict[int, list[tuple[int, int]]] = {}  # by name: marks that other processes wait for
        self.failures: list[News] = []  # that this process knows, in the order in which it heard of them
        self.told: dict[int, int] = {}  # how many of these another process knows
        self.failed: dict[int, int] = {}  # by number of what failed or was skipped: the first cause
        self.exchanges: dict[int, tuple[int, int, int, Any, int]] = {}
        self.spare: list[tuple[int, int]] = []  # streams that stand for the end of an exchange, and their last mark
        self.last_exchange = time.time_ns()  # so that an answer to a process that is gone is none to the next one
        self.lock = threading.RLock()
        self.teller = threading.Thread(target=self.tell_others, name="stf-teller", daemon=True)

    def handle(self, batch: bytes) -> None:
        """Do what another process asks, in order."""
        news, messages = pickle.loads(batch)
        for item in news:
            self.learn(*item)
        for verb, *arguments in messages:
            getattr(self, verb)(*arguments)

    def packed(self, peer: int, messages: list[Message]) -> bytes:
        """Return a batch for a process, behind the failures that it may not know."""
        with self.lock:
            known = self.told.get(peer, 0)
            news = self.failures[known:]
            self.told[peer] = known + len(news)
        return pickle.dumps((news, messages), 5)

    def deliver(self, peer: int, messages: list[Message]) -> None:
        """Send a batch; the teller does."""
        self.send(peer, self.packed(peer, messages))

    def post(self, peer: int, *message: Any) -> None:
        """Let the teller send a message."""
        self.driver.tell((self.add, peer, message))

    def find(self, address: int) -> tuple[int, Any]:
        """Return where memory of this process is, and what keeps it alive."""
        return address, None

    def resolved(self, what: Any) -> Any:
        """Return an array's description with its address here, and what keeps that alive until its turn comes."""
        address, strides, shape, itemsize = what
        real, owner = self.find(address)
        return real, strides, shape, itemsize, owner

    def mirror(self, name: int) -> int:
        """Return the stream that stands for one of another process, or is it."""
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = self.driver.stream_create(-1)
        return stream

    # -- failures ----------------------------------------------------------------------------------------------

    def learn(self, number: int, cause: int, content: bytes | None) -> bool:
        """Know of a failure; return whether it is new."""
        with self.lock:
            if number in self.failed:
                return False
            self.failed[number] = cause
            self.failures.append((number, cause, content))
        return True

    # -- the teller --------------------------------------------------------------------------------------------

    def tell_others(self) -> None:
        """Send what there is to be told; None is the last of it."""
        is_over = False
        while not is_over:
            out: dict[int, list[Message]] = {}
            try:
                for item in self.driver.listen():
                    if item is None:
                        is_over = True
                    elif type(item[0]) is int:
                        self.tell_reached(out, *item)
                    else:  # a method, and its arguments
                        item[0](out, *item[1:])
            except Exception as error:  # others would wait for what it did not tell
                self.give_up(error)
                return
            for peer, messages in out.items():
                try:
                    self.deliver(peer, without_old_marks(messages))
                except Exception as error:
                    self.miss(peer, f"{type(error).__name__}: {error}")

    def miss(self, peer: int, reason: str) -> None:
        """Say that another process does not get what it is sent."""

    def give_up(self, error: BaseException) -> None:
        """Say that this process cannot go on."""

    def add(self, out: dict[int, list[Message]], peer: int, message: Message) -> None:
        """Send a message with the others."""
        out.setdefault(peer, []).append(message)

    def tell_awaited(self, out: dict[int, list[Message]], name: int, sequence: int, peer: int) -> None:
        """Tell of a mark, or remember who waits for it."""
        stream = self.streams.get(name)
        reached = 0 if stream is None else self.driver.completed(stream)
        if reached >= sequence:
            self.add(out, peer, ("reached", name, reached))
        else:
            self.awaited.setdefault(name, []).append((sequence, peer))

    def tell_reached(self, out: dict[int, list[Message]], stream: int, sequence: int) -> None:
        """Tell of a mark those who wait for it."""
        name = self.names.get(stream)
        if name is None:
            return
        waiting = self.awaited.get(name)
        if waiting:
            for peer in {peer for wanted, peer in waiting if wanted <= sequence}:
                self.add(out, peer, ("reached", name, sequence))
            self.awaited[name] = [pair for pair in waiting if pair[0] > sequence]

    # -- marks of other processes ------------------------------------------------------------------------------

    def note_awaited(self, name: int, sequence: int, peer: int) -> None:
        """Let the teller see to who waits for a mark of this process."""
        self.driver.tell((self.tell_awaited, name, sequence, peer))

    def reached(self, name: int, sequence: int) -> None:
        """Record on a mirror what its owner has reached; who waits for it may come later than the mark."""
        stream = self.mirror(name)
        if self.driver.completed(stream) < sequence:
            self.driver.record(stream, sequence)

    # -- exchanges ---------------------------------------------------------------------------------------------

    def exchange(self, stream: int, peer: int, begin: Callable[[int], Message | None], target: Any, tag: int) -> None:
        """Let a stream send a message to another process when it gets here, and go on when that has answered.

        ``begin(x)`` makes the message of exchange number x; with None there is none, and the stream goes on. `target`
        describes where the content goes that comes with the answer; `tag` is the number of the copy.
        """
        with self.lock:
            self.last_exchange += 1
            number = self.last_exchange
            end, mark = self.spare.pop() if self.spare else (self.driver.stream_create(-1), 0)
            self.exchanges[number] = (end, mark + 1, peer, target, tag)

        def start(out: dict[int, list[Message]]) -> None:
            is_wanted = number in self.exchanges and not self.is_called_off(tag)
            made = begin(number) if is_wanted else None
            if made is not None:
                self.add(out, peer, made)
            else:
                self.end_exchange(number)

        self.driver.call(stream, Notice((start,)))
        self.driver.wait_event(stream, end, mark + 1)

    def is_called_off(self, tag: int) -> bool:
        """Return whether a copy, whose turn has come, is not to be done."""
        return False

    def end_exchange(self, number: int, content: bytes | None = None) -> None:
        """Write what an exchange has brought, and let its stream go on."""
        with self.lock:
            end, mark, _, target, _ = self.exchanges.pop(number, (-1, 0, 0, None, 0))
        if end < 0:
            return
        if content is not None:
            self.write(target, content)
        self.driver.record(end, mark)
        with self.lock:
            self.spare.append((end, mark))

    def give(self, number: int, peer: int, source: Any, tag: int) -> None:
        """Send the content of an array to who asks for it, unless that asks a process that is gone."""
        try:
            content = self.read(source)
        except LookupError:
            return
        self.post(peer, "end_exchange", number, content)

    def take(self, number: int, peer: int, target: Any, content: bytes, tag: int) -> None:
        """Write what another process has sent."""
        if not self.is_called_off(tag):
            self.write(target, content)
        self.post(peer, "end_exchange", number)

    def read(self, what: Any) -> bytes:
        """Return the content of an array of this process."""
        address, strides, shape, itemsize, *_ = what
        real, _owner = self.find(address)
        return array_at(real, shape, strides, word_of(itemsize)).tobytes()

    def write(self, what: Any, content: bytes) -> None:
        """Write an array of this process."""
        address, strides, shape, itemsize, *_ = what
        real, _owner = self.find(address)
        word = word_of(itemsize)
        array_at(real, shape, strides, word)[...] = np.frombuffer(content, word).reshape(shape)

    def pull(self, name: int, target: Any, peer: int, source: Any, tag: int) -> None:
        """Copy an array of another process into one of this one, when a stream of this one gets there."""

        def message(number: int) -> Message:
            return "give", number, self.number, source, tag

        self.exchange(self.streams[name], peer, message, self.resolved(target), tag)

    def push(self, name: int, source: Any, peer: int, target: Any, tag: int) -> None:
        """Copy an array of this process into one of another, when a stream of this one gets there."""
        kept = self.resolved(source)

        def message(number: int) -> Message:
            return "take", number, self.number, target, self.read(kept), tag

        self.exchange(self.streams[name], peer, message, None, tag)

    def lose(self, peer: int, reason: str) -> None:
        """Fail the exchanges with a process that is gone: what they were to bring is not there."""
        with self.lock:
            gone = [(number, each[4]) for number, each in self.exchanges.items() if each[2] == peer]
        for number, tag in gone:
            if tag:
                self.learn(tag, tag, portable(WorkerLostError(reason, worker=f"device({peer - 1})")))
            self.end_exchange(number)


def without_old_marks(messages: list[Message]) -> list[Message]:
    """Return messages with one mark of each stream, its last.

    That need not come last: who asks for a mark hears of all that the stream has reached, and of the rest later.
    """
    latest: dict[int, Message] = {}
    for each in messages:
        if each[0] == "reached" and (each[1] not in latest or latest[each[1]][2] <= each[2]):
            latest[each[1]] = each
    if len(latest) == len(messages):
        return messages
    return [each for each in messages if each[0] != "reached" or latest[each[1]] is each]


def word_of(itemsize: int) -> np.dtype[Any]:
    """Return a dtype of that size, whose bits are copied as they are."""
    return np.dtype(WORDS.get(itemsize) or (np.void, itemsize))


def portable(error: BaseException, notes: list[str] | None = None) -> bytes:
    """Return an exception as bytes; one that says the same, where it cannot be pickled."""
    notes = [*getattr(error, "__notes__", ()), *(notes or ())]
    try:
        content = pickle.dumps((error.with_traceback(None), notes))
        pickle.loads(content)
        return content
    except BaseException:
        return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), notes))


def error_in(content: bytes) -> BaseException:
    """Return an exception that came as bytes."""
    try:
        error, notes = pickle.loads(content)
        if not getattr(error, "__notes__", None):
            for note in notes:
                error.add_note(note)
    except BaseException as reason:
        return RuntimeError(f"a body failed on a worker, and its error cannot be read here: {reason}")
    return error  # type: ignore[no-any-return]
