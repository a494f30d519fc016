"""Workers that are processes of this machine, for tests: a pipe to each, and sockets between them."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from stf.errors import WorkerLostError

PROGRAM = "from stf._drivers.remote.loopback import main; main()"
MOST_DELAY_S = 2e-3
START_S = 60.0
BYE = b""


class Peer:
    """A connection, and a lock for who sends."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.lock = threading.Lock()

    def send(self, content: bytes) -> None:
        """Send bytes."""
        with self.lock:
            self.connection.send_bytes(content)


class Loopback:
    """Worker processes of this machine.

    Parameters
    ----------
    count : int
        How many.
    threads : int
        Bodies that each runs at a time.
    delays : int, optional
        A seed: workers and client deliver messages late, by up to 2 ms each.
    gpus : bool
        Each worker has a GPU of this machine; they take turns at those that there are.
    """

    def __init__(self, count: int, threads: int = 2, delays: int | None = None, gpus: bool = False) -> None:
        self.count = count
        self.threads = threads
        self.delays = delays
        self.has_gpu = [gpus] * count
        self.key = secrets.token_bytes(16)
        self.folder = tempfile.mkdtemp(prefix="stf-")
        self.listener = Listener(os.path.join(self.folder, "0"), "AF_UNIX", backlog=4 * count, authkey=self.key)
        self.listener._listener._socket.settimeout(START_S)  # type: ignore[attr-defined]
        self.peers: list[Peer | None] = [None] * count
        self.processes: list[int] = [0] * count
        self.closed = False

    def start(self, driver: Any) -> None:
        """Start the workers; the driver receives what they send.

        Raises
        ------
        PlaceError
            A worker has no GPU.
        WorkerLostError
            A process was not there in a minute.
        """
        self.driver = driver
        for worker in range(1, self.count + 1):
            self.launch(worker)
        try:
            for _ in range(self.count):
                self.accept()
        except BaseException:
            self.close()
            raise

    def launch(self, worker: int) -> None:
        """Start the process of a worker."""
        setting = (self.folder, self.key, worker, self.count, self.threads, self.delays, self.has_gpu[0])
        self.processes[worker - 1] = nursery().fork(setting)

    def accept(self) -> int:
        """Wait for a worker to say that it is there; return its number."""
        try:
            connection = self.listener.accept()
        except TimeoutError:
            raise WorkerLostError(f"a worker has not started in {START_S:g} s", worker="loopback") from None
        worker = connection.recv()
        if isinstance(worker, BaseException):
            raise worker
        self.peers[worker - 1] = Peer(connection)
        threading.Thread(target=self.read, args=(worker, connection), name="stf-loopback", daemon=True).start()
        return worker

    def read(self, worker: int, connection: Connection) -> None:
        """Read what a worker sends; start another one when it is gone."""
        try:
            for content in received(connection, self.delays):
                self.driver.receive(worker, content)
        except (EOFError, OSError):
            pass
        if self.closed:
            return
        self.end(worker)  # it may have closed its connection and live on
        self.driver.note_lost(worker, f"its process {self.processes[worker - 1]} has ended")
        try:
            if not self.closed:
                self.launch(worker)
                self.driver.note_back(self.accept())
        except (OSError, WorkerLostError):
            if not self.closed:
                raise

    def send(self, worker: int, content: bytes) -> None:
        """Send bytes to a worker."""
        peer = self.peers[worker - 1]
        if peer is None:
            raise OSError("it is not there")
        peer.send(content)

    def end(self, worker: int) -> None:
        """Kill a worker."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.processes[worker - 1], signal.SIGKILL)

    def close(self) -> None:
        """End the workers."""
        self.closed = True
        for peer in self.peers:
            if peer is not None:
                with contextlib.suppress(OSError):
                    peer.send(BYE)
        self.listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def received(connection: Any, delays: int | None) -> Any:
    """Yield what comes on a connection, late if there are delays."""
    chance = None if delays is None else random.Random(delays)
    while True:
        content = connection.recv_bytes()
        if content == BYE:
            return
        if chance is not None and chance.random() < 0.5:
            time.sleep(chance.random() * MOST_DELAY_S)
        yield content


class Nursery:
    """A process that has loaded stf, and forks one for each worker: that takes milliseconds."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

        atexit.register(self.close)

    def close(self) -> None:
        """End it, at the end of the process that started it."""
        if self.pid == os.getpid():
            self.process.communicate()

    def fork(self, setting: tuple[Any, ...]) -> int:
        """Return the number of a new process that is a worker with these settings."""
        content = pickle.dumps((setting, sys.path, dict(os.environ), os.getcwd()))
        assert self.process.stdin is not None and self.process.stdout is not None
        with self.lock:
            self.process.stdin.write(len(content).to_bytes(8, "little") + content)
            self.process.stdin.flush()
            answer = self.process.stdout.read(8)
        if len(answer) < 8:
            raise OSError("the process that starts loopback workers has ended")
        return int.from_bytes(answer, "little")


@functools.cache
def nursery_of(pid: int) -> Nursery:
    """Return the one of this process."""
    return Nursery()


def nursery() -> Nursery:
    """Return the one of this process, a new one if it has ended."""
    found = nursery_of(os.getpid())
    if found.process.poll() is not None:
        nursery_of.cache_clear()
        found = nursery_of(os.getpid())
    return found


def main() -> None:
    """Fork workers, as the client says on the standard input."""
    import stf._drivers.remote.worker  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while len(head := sys.stdin.buffer.read(8)) == 8:
        setting, paths, environment, folder = pickle.loads(sys.stdin.buffer.read(int.from_bytes(head, "little")))
        pid = os.fork()
        if pid == 0:
            os.dup2(2, 1)  # the pipe is the client's
            os.close(0)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sys.path[:] = paths
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
            try:
                serve(*setting)
            finally:
                os._exit(1)
        sys.stdout.buffer.write(pid.to_bytes(8, "little"))
        sys.stdout.buffer.flush()


def serve(folder: str, key: bytes, number: int, count: int, threads: int, delays: int | None, has_gpu: bool) -> None:
    """Be a worker."""
    peers: dict[int, Peer] = {}
    making = threading.Lock()

    def connected(peer: int) -> Peer:
        with making:
            if peer not in peers:
                connection = Client(os.path.join(folder, f"{peer}"), "AF_UNIX", authkey=key)
                connection.send(number)
                peers[peer] = Peer(connection)
            return peers[peer]

    def send(peer: int, content: bytes) -> None:
        try:
            connected(peer).send(content)
        except OSError:
            peers.pop(peer, None)
            if peer == 0:
                os._exit(0)
            connected(peer).send(content)  # another process may have taken its place

    from stf._drivers.remote.gpu_worker import gpus_here, make_worker

    try:
        worker = make_worker(number, threads, send, (number - 1) % max(gpus_here()[0], 1) if has_gpu else None)
    except Exception as error:
        connection = Client(os.path.join(folder, "0"), "AF_UNIX", authkey=key)
        connection.send(error)
        connection.recv_bytes()  # until the client has gone
        os._exit(1)
    own = os.path.join(folder, f"{number}")
    if os.path.exists(own):  # of the one before
        os.unlink(own)
    listener = Listener(own, "AF_UNIX", backlog=4 * count, authkey=key)

    def read(connection: Any, seed: int | None) -> None:
        with contextlib.suppress(EOFError, OSError):
            for content in received(connection, seed):
                worker.run(content)

    def listen() -> None:
        while True:
            connection = listener.accept()
            sender = int(connection.recv())
            seed = None if delays is None else delays + 31 * number + sender
            threading.Thread(target=read, args=(connection, seed), daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    read(connected(0).connection, None if delays is None else delays + number)
    os._exit(0)
