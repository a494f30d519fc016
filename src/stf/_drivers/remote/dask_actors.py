"""Workers that are actors of a Dask cluster.

It goes as with Ray's actors (`ray_actors`), but for two things. Dask runs the methods of a worker's actors on one
thread, so `poll` is a coroutine, which runs on the worker's event loop. And Dask does not start an actor again: when a
process of the cluster is there that has none, the client makes one there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from stf._drivers.remote.ray_actors import compare
from stf._drivers.remote.worker import Worker, facts

log = logging.getLogger("stf")
MOST_IN_FLIGHT = 16  # batches
PATIENCE_S = 0.2


class ActorWorker:
    """What an actor runs: a worker, and what it has to say to the client."""

    def __init__(self, number: int, threads: int) -> None:
        self.number, self.threads = number, threads
        self.worker: Worker | None = None
        self.said: deque[bytes] = deque()
        self.bell: Any = None
        self.home: Any = None
        self.peers: dict[int, tuple[str, str]] = {}
        self.outgoing: dict[int, Any] = {}  # queues of batches, by number of a worker

    async def set_up(self) -> dict[str, str]:
        """Be a worker; return the versions of what is here."""
        from distributed import get_worker

        self.home = get_worker()
        self.loop, self.bell = asyncio.get_running_loop(), asyncio.Event()
        self.worker = Worker(self.number, self.threads, self.send)
        return facts()

    async def meet(self, number: int, key: str, address: str) -> None:
        """Know another worker, or the one in its place."""
        self.peers[number] = key, address

    def carry(self, peer: int, batch: bytes) -> None:
        """Put a batch in the queue for another worker; called on the event loop."""
        if peer not in self.outgoing:
            self.outgoing[peer] = asyncio.Queue()
            self.outgoing[-peer] = self.loop.create_task(self.carry_all(peer))
        self.outgoing[peer].put_nowait(batch)

    async def carry_all(self, peer: int) -> None:
        """Bring another worker its batches, in order."""
        from distributed.protocol import to_serialize

        while True:
            batch = await self.outgoing[peer].get()
            key, address = self.peers[peer]
            try:
                link = self.home.rpc(address)
                await link.actor_execute(function="run", actor=key, args=[to_serialize(batch)], kwargs={})
            except Exception as error:
                log.debug("worker %d does not get a batch: %s", peer, error)  # who hears from it says so

    def send(self, peer: int, batch: bytes) -> None:
        """Send a batch to the client, or to another worker."""
        if peer == 0:
            self.said.append(batch)
            self.loop.call_soon_threadsafe(self.bell.set)
        else:
            self.loop.call_soon_threadsafe(self.carry, peer, batch)

    def run(self, batch: bytes) -> None:
        """Do what came from the client or from another worker."""
        if self.worker is not None:
            self.worker.run(batch)

    async def poll(self) -> list[bytes]:
        """Wait for something to say; return all that there is."""
        if not self.said:
            self.bell.clear()
            if not self.said:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.bell.wait(), 1.0)
        found = []
        while self.said:
            found.append(self.said.popleft())
        return found

    def end(self) -> None:
        """End the process."""
        os._exit(1)

    async def close(self) -> None:
        """End the worker; the process is the cluster's."""
        for number, item in self.outgoing.items():
            if number < 0:  # what carries batches
                item.cancel()
        if self.worker is not None:
            self.worker.close()
            self.worker = None


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
    """

    def __init__(self, client: Any, workers: tuple[str, ...], threads: int) -> None:
        import cloudpickle  # noqa: F401

        self.client, self.threads = client, threads
        self.addresses = list(workers)
        self.count = len(workers)
        self.actors: list[Any] = [None] * self.count
        self.in_flight: list[deque[Any]] = [deque() for _ in range(self.count)]
        self.making = threading.Lock()
        self.closed = False

    def start(
        self,
        receive: Callable[[int, bytes], None],
        lost: Callable[[int, str], None],
        back: Callable[[int], None],
    ) -> None:
        """Start the actors; ``receive(worker, batch)`` gets what they send."""
        self.receive, self.lost, self.back = receive, lost, back
        for number in range(1, self.count + 1):
            self.make(number)
        for number in range(1, self.count + 1):
            threading.Thread(target=self.listen, args=(number,), name="stf-dask", daemon=True).start()

    def make(self, number: int) -> None:
        """Make the actor of a worker, and let it and the others know each other."""
        address = self.addresses[number - 1]
        options: dict[str, Any] = {"workers": [address], "allow_other_workers": False, "pure": False}
        future = self.client.submit(ActorWorker, number, self.threads, actor=True, **options)
        actor = future.result(timeout=30)
        compare(actor.set_up().result(timeout=30), f"Dask worker {address}")
        with self.making:
            self.actors[number - 1] = actor
            for other, peer in enumerate(self.actors, 1):
                if peer is not None and other != number:
                    with contextlib.suppress(Exception):
                        peer.meet(number, actor.key, address).result(timeout=5)
                    actor.meet(other, peer.key, self.addresses[other - 1]).result(timeout=5)

    def listen(self, worker: int) -> None:
        """Hear what a worker says, until the context ends; see to one that has died."""
        while not self.closed:
            try:
                batches = self.actors[worker - 1].poll().result(timeout=10)
            except Exception as error:
                if self.closed:
                    return
                address = self.addresses[worker - 1]
                self.lost(worker, f"Dask's worker {address} does not answer ({type(error).__name__})")
                self.await_restart(worker)
                continue
            for batch in batches:
                self.receive(worker, batch)

    def await_restart(self, worker: int) -> None:
        """Wait until the cluster has a process without an actor, and use that."""
        gone = self.addresses[worker - 1]
        while not self.closed:
            try:
                there = list(self.client.scheduler_info(n_workers=-1)["workers"])
                used = set(self.addresses) - {gone}
                for address in there:
                    if address not in used and address != gone:
                        self.addresses[worker - 1] = address
                        self.in_flight[worker - 1].clear()
                        self.make(worker)
                        self.back(worker)
                        return
            except Exception as error:
                log.debug("no Dask worker in place of %s yet: %s", gone, error)
                self.addresses[worker - 1] = gone
            time.sleep(PATIENCE_S)

    def send(self, worker: int, content: bytes) -> None:
        """Send a batch to a worker; wait while too many are on their way."""
        waiting = self.in_flight[worker - 1]
        if len(waiting) >= MOST_IN_FLIGHT:
            with contextlib.suppress(Exception):  # who listens says so
                waiting.popleft().result(timeout=10)
        waiting.append(self.actors[worker - 1].run(content))

    def end(self, worker: int) -> None:
        """End the process of a worker."""
        self.actors[worker - 1].end()

    def close(self) -> None:
        """End the actors; the cluster stays."""
        self.closed = True
        for actor in self.actors:
            with contextlib.suppress(Exception):
                actor.close().result(timeout=2)
        self.actors = []
