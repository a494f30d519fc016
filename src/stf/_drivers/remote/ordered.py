"""Batches in order, each once, over a way that may bring them twice, late, or not at all.

Dask has several connections between two processes. A batch that was sent later can be there first. One that nobody has
answered may have been done. So who sends numbers its batches from 1, and sends again what was not answered. Who
receives does each once, in the order of the numbers. Beside the number goes when the sender began to count: another
process in its place counts from 1 again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

PAUSES_S = (0.05, 0.2, 1.0)  # before a batch is sent again
ANSWER_S = 10.0  # how long one try may take


class InOrder:
    """Hands the batches of each sender on, in order.

    Parameters
    ----------
    take : callable
        ``take(batch)`` gets the bytes.
    """

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.take = take
        self.began: dict[int, int] = {}
        self.following: dict[int, int] = {}
        self.early: dict[int, dict[int, bytes]] = {}
        self.lock = threading.Lock()

    def put(self, sender: int, began: int, number: int, batch: bytes) -> None:
        """Take a batch when its turn comes; not one that was there before."""
        with self.lock:
            if began < self.began.get(sender, began):
                return  # of a process that is gone
            if began != self.began.get(sender):
                self.began[sender], self.following[sender], self.early[sender] = began, 1, {}
            early = self.early[sender]
            if number >= self.following[sender]:
                early[number] = batch
            while self.following[sender] in early:
                self.following[sender] += 1
                self.take(early.pop(self.following[sender] - 1))
