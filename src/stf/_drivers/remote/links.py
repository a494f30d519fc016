"""What the client knows of a worker, and of a stream there."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from stf._drivers.remote.endpoint import Message
from stf._port.remote_arrays import first_address
from stf.errors import WorkerLostError

RECORD, WAIT, CALL, COPY, HOST_CALL, PARCEL, LAST = range(7)  # of what is pending on a stream


class WorkerLink:
    """The commands for one worker.

    `outbox` are those that were not sent, `functions` the numbers of what the worker can call, `used` the bytes that
    are allocated there.
    """

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.name = f"device({worker - 1})"
        self.outbox: list[Message] = []
        self.lock = threading.RLock()
        self.next_address = first_address(worker)
        self.functions: set[int] = set()
        self.parcels: set[int] = set()  # that it keeps
        self.used = 0
        self.lost: WorkerLostError | None = None
        self.is_back = False


class RemoteStream:
    """What the client knows of a stream of a worker: `pending` was put on it and is not known to be over."""

    __slots__ = ("last", "link", "name", "pending")

    def __init__(self, name: int, link: WorkerLink) -> None:
        self.name = name
        self.link = link
        self.last = 0  # the last mark
        self.pending: deque[tuple[int, Any, Any]] = deque()
