"""Workers that are actors of a Ray cluster.

Batches for a worker are calls of its actor, and workers call each other. A worker cannot call the client; so the client
always has a call of `poll` open, which returns what the worker has to say as soon as there is something. Ray starts an
actor that has died again: the client finds that out by its poll, and makes it a worker once more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections import deque
from typing import Any

from stf._drivers.remote.gpu_worker import make_worker
from stf._drivers.remote.worker import Worker, facts
from stf.errors import WorkerLostError

log = logging.getLogger("stf")
MOST_IN_FLIGHT = 16  # batches
PATIENCE_S = 0.2
START_S, WARN_S = 300.0, 10.0
ANSWER_S = 30.0  # an actor that does not answer for so long is lost
LOOK_S = 0.5  # how often one looks whether batches have come
MISSING = "remote devices of a Ray cluster need Ray and cloudpickle: pip install 'sequential-task-flow[ray]'"


class ActorWorker:
    """What an actor runs: a worker, and what it has to say to the client."""

    def __init__(self, number: int, threads: int) -> None:
        self.number, self.threads = number, threads
        self.worker: Worker | None = None
        self.said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.peers: list[Any] = []
        self.sent: deque[tuple[int, Any]] = deque()  # (worker, call) that may be on its way
        self.last_look = 0.0

    def set_up(self, peers: list[Any], gpu: int | None) -> dict[str, str]:
        """Be a worker beside others; return the versions of what is here.

        A process that was one already ends: it has streams and memory that nobody knows any more.
        """
        if self.worker is not None:
            self.end()
        self.peers = peers
        self.worker = make_worker(self.number, self.threads, self.send, gpu)
        return facts()

    def send(self, peer: int, batch: bytes) -> None:
        """Send a batch to the client, or to another worker."""
        if peer == 0:
            self.said.put(batch)
        else:
            self.sent.append((peer, self.peers[peer - 1].run.remote(batch)))
            if len(self.sent) > MOST_IN_FLIGHT or time.monotonic() - self.last_look > LOOK_S:
                self.look()

    def look(self) -> None:
        """Say which worker did not get a batch; Ray tells nobody else."""
        import ray

        self.last_look = time.monotonic()
        for _ in range(len(self.sent)):
            try:
                peer, call = self.sent.popleft()
            except IndexError:
                return
            if not ray.wait([call], timeout=0)[0]:
                self.sent.appendleft((peer, call))
                return
            try:
                ray.get(call)
            except Exception as error:
                if self.worker is not None:
                    self.worker.miss(peer, f"{type(error).__name__}: {error}")

    def run(self, batch: bytes) -> None:
        """Do what came from the client or from another worker."""
        if self.worker is not None:  # else it is of those that the one before was to get
            self.worker.run(batch)

    def poll(self) -> list[bytes]:
        """Wait for something to say; return all that there is."""
        if self.sent and time.monotonic() - self.last_look > LOOK_S:
            self.look()
        with contextlib.suppress(queue.Empty):
            found = [self.said.get(timeout=1.0)]
            while not self.said.empty():
                found.append(self.said.get())
            return found
        return []

    def end(self) -> None:
        """End the process; Ray starts another one."""
        os._exit(1)


class RayActors:
    """Actors of the Ray cluster that is there, else of a local one.

    Parameters
    ----------
    count : int
        How many.
    threads : int
        Bodies that each runs at a time.
    environment : dict
        Their ``runtime_env``.
    gpus : bool
        Each has a GPU, which Ray gives it.
    """

    def __init__(self, count: int, threads: int, environment: dict[str, Any], gpus: bool = False) -> None:
        try:
            import cloudpickle  # noqa: F401
            import ray
        except ImportError:
            raise ImportError(MISSING) from None
        self.ray = ray
        self.has_gpu = [gpus] * count
        self.gpu = 0 if gpus else None  # of those that an actor's process sees
        self.count, self.threads, self.environment = count, threads, environment
        self.in_flight: list[deque[Any]] = [deque() for _ in range(count)]
        self.settling = [threading.Lock() for _ in range(count)]
        self.closed = False
        if not ray.is_initialized():
            try:
                ray.init(address="auto", log_to_driver=True, logging_level=logging.WARNING)
            except ConnectionError:
                ray.init(num_cpus=max(count, 1), include_dashboard=False, logging_level=logging.WARNING)
        self.cluster = ray.get_runtime_context().get_node_id()

    def must_be_there(self) -> None:
        """Raise WorkerLostError if Ray was shut down: a call would start it anew, or end this process."""
        ray = self.ray
        if not ray.is_initialized() or ray.get_runtime_context().get_node_id() != self.cluster:
            self.closed = True
            raise WorkerLostError(
                "Ray was shut down while a context had its actors; finalize contexts before ray.shutdown()",
                worker="Ray actor",
            )

    def start(self, driver: Any) -> None:
        """Start the actors; the driver receives what they send."""
        self.driver = driver
        ray = self.ray
        options: dict[str, Any] = {"num_cpus": 1, "max_restarts": -1, "concurrency_groups": {"io": 1}}
        if self.gpu is not None:
            options["num_gpus"] = 1
        if self.environment:
            options["runtime_env"] = self.environment
        kept = ray.method(concurrency_group="io")(ActorWorker.poll)
        actor = ray.remote(**options)(type("StfWorker", (ActorWorker,), {"poll": kept}))
        self.actors = [actor.remote(number, self.threads) for number in range(1, self.count + 1)]
        versions = self.answers([each.set_up.remote(self.actors, self.gpu) for each in self.actors])
        for number, found in enumerate(versions, 1):
            compare(found, f"Ray actor {number}")
        for number in range(1, self.count + 1):
            threading.Thread(target=self.listen, args=(number,), name="stf-ray", daemon=True).start()

    def answers(self, asked: list[Any]) -> list[Any]:
        """Return what new actors answer; say so if Ray has no room for them yet.

        Raises
        ------
        WorkerLostError
            They were not started in five minutes.
        """
        start, late = time.monotonic(), asked
        while late := self.ray.wait(late, num_returns=len(late), timeout=WARN_S)[1]:
            free, waited_s = self.ray.available_resources(), time.monotonic() - start
            text = (
                f"{len(late)} of {self.count} Ray actors have not started in {waited_s:.0f} s; each needs a CPU"
                f"{' and a GPU' if self.gpu is not None else ''}, and {free.get('CPU', 0):g} CPUs and "
                f"{free.get('GPU', 0):g} GPUs are free besides those that Ray holds for them"
            )
            if waited_s > START_S:
                self.close()
                raise WorkerLostError(f"{text}; ask for fewer, or for a larger cluster", worker="Ray actor")
            log.warning("%s; waiting for Ray", text)
        return list(self.ray.get(asked))

    def listen(self, worker: int) -> None:
        """Hear what a worker says, until the context ends; see to one that has died."""
        actor = self.actors[worker - 1]
        asked = actor.poll.remote()
        last_look = time.monotonic()
        while not self.closed:
            try:
                for batch in self.ray.get(asked, timeout=ANSWER_S):
                    self.driver.receive(worker, batch)
                asked = actor.poll.remote()
                if time.monotonic() - last_look > LOOK_S:
                    self.settle(worker, 0)
                    last_look = time.monotonic()
            except Exception as error:
                if self.closed:
                    return
                try:
                    self.must_be_there()
                except WorkerLostError as gone:
                    self.driver.note_lost(worker, str(gone))
                    return
                self.driver.note_lost(worker, f"its actor has died, or does not answer ({type(error).__name__})")
                if isinstance(error, self.ray.exceptions.GetTimeoutError):
                    self.ray.kill(actor, no_restart=False)
                self.await_restart(worker)
                asked = actor.poll.remote()

    def settle(self, worker: int, count: int) -> None:
        """Wait until so many of the batches on their way have come; raise what Ray says if one did not.

        Raises
        ------
        TimeoutError
            They have not come in half a minute.
        """
        with self.settling[worker - 1]:
            waiting = self.in_flight[worker - 1]
            calls = list(waiting)
            if len(calls) < count or not calls:
                return
            timeout_s = ANSWER_S if count else 0
            come, late = self.ray.wait(calls, num_returns=count or len(calls), timeout=timeout_s, fetch_local=False)
            if len(come) < count:
                raise TimeoutError(f"{len(late)} batches have not come in {ANSWER_S:g} s")
            for call in come:
                with contextlib.suppress(ValueError):  # another process has taken the actor's place meanwhile
                    waiting.remove(call)
            self.ray.get(come)

    def await_restart(self, worker: int) -> None:
        """Wait until Ray has started an actor again, and use it."""
        while not self.closed:
            try:
                self.in_flight[worker - 1].clear()
                self.ray.get(self.actors[worker - 1].set_up.remote(self.actors, self.gpu), timeout=START_S)
                self.driver.note_back(worker)
                return
            except Exception as error:
                log.debug("Ray actor %d is not there yet: %s", worker, error)
                time.sleep(PATIENCE_S)

    def send(self, worker: int, content: bytes) -> None:
        """Send a batch to a worker; wait while too many are on their way."""
        self.must_be_there()
        waiting = self.in_flight[worker - 1]
        if len(waiting) >= MOST_IN_FLIGHT:
            try:
                self.settle(worker, MOST_IN_FLIGHT // 2)
            except Exception:
                self.end(worker)  # it has missed something, and may live on
                raise
        waiting.append(self.actors[worker - 1].run.remote(content))

    def end(self, worker: int) -> None:
        """End the process of a worker."""
        self.must_be_there()
        self.actors[worker - 1].end.remote()

    def close(self) -> None:
        """End the actors; where Ray was shut down, they ended with it."""
        try:
            self.must_be_there()
        except WorkerLostError:
            return
        self.closed = True
        for actor in self.actors:
            with contextlib.suppress(Exception):
                self.ray.kill(actor)


def compare(found: dict[str, str], who: str) -> None:
    """Warn of other versions on a worker.

    Raises
    ------
    WorkerLostError
        Its Python cannot run code objects of this one.
    """
    mine = facts()
    rows = [f"{name}: {mine[name]} here, {found.get(name)} there" for name in mine if mine[name] != found.get(name)]
    if not rows:
        return
    text = f"{who} has other versions ({'; '.join(rows)})"
    if mine["Python"] != found.get("Python"):
        raise WorkerLostError(f"{text}; task functions travel as code, so Python has to be the same", worker=who)
    log.warning("%s; install the same ones", text)
