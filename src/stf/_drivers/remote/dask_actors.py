"""Workers that are actors of a Dask cluster.

It goes as with Ray's actors (`ray_actors`), but for three things. Dask runs the methods of a worker's actors on one
thread, so `poll` is a coroutine, which runs on the worker's event loop. Dask does not start an actor again: when a
process of the cluster is there that has none, the client makes one there. And calls of an actor can overtake each
other, or fail while it lives: batches are numbered and sent again (`ordered`), and what a worker says is kept until the
next poll says that it came. A worker that another one cannot reach is lost: its process is ended, so that the cluster
starts one in its place.

Tried before: batches without numbers, where those that failed were written to a log. Whoever waited for one of them did
so for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import deque
from typing import Any

from stf._drivers.remote.gpu_worker import make_worker
from stf._drivers.remote.ordered import ANSWER_S, PAUSES_S, InOrder
from stf._drivers.remote.ray_actors import compare
from stf._drivers.remote.worker import Worker, facts
from stf.errors import WorkerLostError

log = logging.getLogger("stf")
MOST_IN_FLIGHT = 16  # batches
PATIENCE_S = 0.2
START_S = 60.0


class Carrier:
    """Brings another worker its batches, one after the other; runs on the event loop."""

    def __init__(self, owner: ActorWorker, peer: int) -> None:
        self.owner, self.peer = owner, peer
        self.began = time.time_ns()
        self.queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.task = owner.loop.create_task(self.carry_all())

    async def carry_all(self) -> None:
        """Bring all batches; end, and say so, with the first that does not get there."""
        number = 0
        while True:
            batch = await self.queue.get()
            number += 1
            reason = await self.bring(number, batch)
            if reason is not None:
                worker = self.owner.worker
                if worker is not None:
                    worker.miss(self.peer, reason)
                return

    async def bring(self, number: int, batch: bytes) -> str | None:
        """Bring a batch, in several tries; return why it does not get there."""
        from distributed.protocol import to_serialize

        key, address = self.owner.peers[self.peer]
        reason = None
        for pause_s in (*PAUSES_S, 0.0):
            try:
                link = self.owner.home.rpc(address)
                args = [self.owner.number, self.began, number, to_serialize(batch)]
                asked = link.actor_execute(function="run", actor=key, args=args, kwargs={})
                answer = await asyncio.wait_for(asked, ANSWER_S)
                if answer["status"] == "OK":
                    return None
                reason = repr(answer.get("exception"))
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
            await asyncio.sleep(pause_s)
        return reason


class ActorWorker:
    """What an actor runs: a worker, and what it has to say to the client."""

    def __init__(self, number: int, threads: int) -> None:
        self.number, self.threads = number, threads
        self.worker: Worker | None = None
        self.said: deque[bytes] = deque()
        self.heard = 0  # how many of the batches for the client have come there
        self.bell: Any = None
        self.home: Any = None
        self.peers: dict[int, tuple[str, str]] = {}
        self.carriers: dict[int, Carrier] = {}  # by number of a worker

    async def set_up(self, gpus: bool | str) -> tuple[dict[str, str], bool]:
        """Be a worker; return the versions of what is here, and whether it has a GPU."""
        from distributed import get_worker

        has_gpu = bool(os.environ.get("CUDA_VISIBLE_DEVICES")) if gpus == "auto" else bool(gpus)
        if self.worker is None:
            self.home = get_worker()
            self.loop, self.bell = asyncio.get_running_loop(), asyncio.Event()
            self.worker = make_worker(self.number, self.threads, self.send, 0 if has_gpu else None)
            self.inbox = InOrder(self.worker.run)
        return facts(), has_gpu

    async def meet(self, number: int, key: str, address: str) -> None:
        """Know another worker, or the one in its place, which gets nothing of what was for the one before."""
        if self.peers.get(number) != (key, address):
            self.peers[number] = key, address
            carrier = self.carriers.pop(number, None)
            if carrier is not None:
                carrier.task.cancel()

    def carry(self, peer: int, batch: bytes) -> None:
        """Put a batch in the queue for another worker; called on the event loop."""
        if peer not in self.carriers:
            self.carriers[peer] = Carrier(self, peer)
        self.carriers[peer].queue.put_nowait(batch)

    def send(self, peer: int, batch: bytes) -> None:
        """Send a batch to the client, or to another worker."""
        if peer == 0:
            self.said.append(batch)
            self.loop.call_soon_threadsafe(self.bell.set)
        else:
            self.loop.call_soon_threadsafe(self.carry, peer, batch)

    def run(self, sender: int, began: int, number: int, batch: bytes) -> None:
        """Do what came from the client or from another worker."""
        if self.worker is not None:
            self.inbox.put(sender, began, number, batch)

    async def poll(self, heard: int) -> list[bytes]:
        """Wait for something to say; return all that there is after the first batches, which the client has heard."""
        while self.heard < heard and self.said:
            self.said.popleft()
            self.heard += 1
        if not self.said:
            self.bell.clear()
            if not self.said:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.bell.wait(), 1.0)
        return list(self.said)

    def end(self) -> None:
        """End the process."""
        os._exit(1)

    async def close(self) -> None:
        """End the worker; the process is the cluster's."""
        for carrier in self.carriers.values():
            carrier.task.cancel()
        if self.worker is not None:
            self.worker.close()
            self.worker = None


class Outbox:
    """What is on its way to an actor: batches that nobody has answered, in the order of their numbers."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.began = time.time_ns()
        self.number = self.heard = 0
        self.waiting: deque[tuple[Any, int, bytes, float]] = deque()
        self.lock = threading.Lock()

    def send(self, batch: bytes) -> None:
        """Send a batch; wait while too many are on their way."""
        if len(self.waiting) >= MOST_IN_FLIGHT:
            self.settle(1)
        self.number += 1
        asked = self.actor.run(0, self.began, self.number, batch)
        self.waiting.append((asked, self.number, batch, time.monotonic()))

    def settle(self, count: int) -> None:
        """See to it that the first batches on their way have come: so many, or all that were answered, or are late.

        Raises
        ------
        OSError
            One did not, in several tries.
        """
        with self.lock:
            while self.waiting:
                asked, number, batch, start = self.waiting[0]
                if count <= 0 and not asked.done() and time.monotonic() - start < ANSWER_S:
                    return
                self.answer("a batch does not get there", asked, "run", 0, self.began, number, batch)
                self.waiting.popleft()
                count -= 1

    def poll(self) -> list[bytes]:
        """Return what the actor says, which may be nothing.

        Raises
        ------
        OSError
            It does not answer, in several tries.
        """
        found: list[bytes] = self.answer("it does not answer", None, "poll", self.heard)
        self.heard += len(found)
        return found

    def answer(self, problem: str, asked: Any, verb: str, *arguments: Any) -> Any:
        """Return what the actor answers, which is asked again, in several tries; OSError if it does not."""
        for pause_s in (*PAUSES_S, None):
            try:
                # a worker that is lost has no methods: they are looked up anew
                call = getattr(self.actor, verb)(*arguments) if asked is None else asked
                return call.result(timeout=ANSWER_S)
            except Exception as error:
                if pause_s is None:
                    raise OSError(f"{problem} ({type(error).__name__}: {error})") from error
                time.sleep(pause_s)
                asked = None
        return None


class DaskActors:
    """Actors on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        The user's.
    workers : tuple of str
        Addresses of the cluster's workers, one for each actor.
    threads : int
        Bodies that each runs at a time.
    gpus : bool or "auto"
        Whether each has a GPU; "auto": those that were given one.
    """

    def __init__(self, client: Any, workers: tuple[str, ...], threads: int, gpus: bool | str = False) -> None:
        import cloudpickle  # noqa: F401

        self.client, self.threads = client, threads
        self.addresses = list(workers)
        self.count = len(workers)
        self.gpus = gpus
        self.has_gpu = [False] * self.count
        self.outboxes: list[Outbox | None] = [None] * self.count
        self.making = threading.Lock()
        self.closed = False

    def start(self, driver: Any) -> None:
        """Start the actors; the driver receives what they send.

        Raises
        ------
        WorkerLostError
            A worker of the cluster does not start its actor in a minute.
        """
        self.driver = driver
        for number in range(1, self.count + 1):
            try:
                self.make(number)
            except TimeoutError as error:
                self.close()
                address = self.addresses[number - 1]
                text = f"Dask's worker {address} has not started an actor in {START_S:g} s"
                raise WorkerLostError(f"{text}; it may run a task, or the machine is busy", worker=address) from error
        for number in range(1, self.count + 1):
            threading.Thread(target=self.listen, args=(number,), name="stf-dask", daemon=True).start()

    def make(self, number: int) -> None:
        """Make the actor of a worker, and let it and the others know each other."""
        address = self.addresses[number - 1]
        options: dict[str, Any] = {"workers": [address], "allow_other_workers": False, "pure": False}
        future = self.client.submit(ActorWorker, number, self.threads, actor=True, **options)
        actor = future.result(timeout=START_S)
        found, self.has_gpu[number - 1] = actor.set_up(self.gpus).result(timeout=START_S)
        compare(found, f"Dask worker {address}")
        with self.making:
            self.outboxes[number - 1] = Outbox(actor)
            for other, peer in enumerate(self.outboxes, 1):
                if peer is not None and other != number:
                    with contextlib.suppress(Exception):  # that one is gone, and meets all when it is back
                        peer.actor.meet(number, actor.key, address).result(timeout=ANSWER_S)
                    actor.meet(other, peer.actor.key, self.addresses[other - 1]).result(timeout=START_S)

    def outbox(self, worker: int) -> Outbox:
        """Return what is on its way to a worker."""
        found = self.outboxes[worker - 1]
        if found is None:
            raise OSError("it is not there")
        return found

    def listen(self, worker: int) -> None:
        """Hear what a worker says, until the context ends; see to one that has died."""
        while not self.closed:
            try:
                outbox = self.outbox(worker)
                for batch in outbox.poll():
                    self.driver.receive(worker, batch)
                outbox.settle(0)
            except OSError as error:
                if self.closed:
                    return
                self.driver.note_lost(worker, f"Dask's worker {self.addresses[worker - 1]} is gone: {error}")
                self.end(worker)  # it may have missed something and live on
                self.await_restart(worker)

    def await_restart(self, worker: int) -> None:
        """Wait until the cluster has a process without an actor, and use that."""
        gone = self.addresses[worker - 1]
        while not self.closed:
            try:
                there = list(self.client.nthreads())
                used = set(self.addresses) - {gone}
                for address in there:
                    if address not in used and address != gone:
                        self.addresses[worker - 1] = address
                        self.make(worker)
                        self.driver.note_back(worker)
                        return
            except Exception as error:
                log.debug("no Dask worker in place of %s yet: %s", gone, error)
                self.addresses[worker - 1] = gone
            time.sleep(PATIENCE_S)

    def send(self, worker: int, content: bytes) -> None:
        """Send a batch to a worker; wait while too many are on their way."""
        self.outbox(worker).send(content)

    def end(self, worker: int) -> None:
        """End the process of a worker."""
        with contextlib.suppress(Exception):
            self.outbox(worker).actor.end()

    def close(self) -> None:
        """End the actors; the cluster stays."""
        self.closed = True
        ends = []
        for outbox in filter(None, self.outboxes):
            with contextlib.suppress(Exception):
                ends.append(outbox.actor.close())
        for end in ends:
            with contextlib.suppress(Exception):
                end.result(timeout=2)
        self.outboxes = [None] * self.count
