"""Drivers of contexts that have ended, for the next context on the same devices.

A driver's streams and pools cost 0.5 ms to make on one GPU and 27 ms on two, where each pool's memory is mapped for the
other device (H200). Libraries keep memory and handles by stream: CuPy and PyTorch start anew on new ones. So a driver
that nobody uses rests here: it has its streams and threads, and a little memory in each of its pools.

One context at a time has it. It is closed instead where data are still alive on it, work may still run, or a device was
lost; at exit all are closed. With `stf.config.reuse_devices` off, none rests.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

from stf._engine import lifetime

MOST = 2  # drivers that rest at the same time: each has threads


class KeptDrivers:
    """Drivers at rest, by what they were made of; the last one put there is the last."""

    def __init__(self) -> None:
        self.drivers: list[tuple[Hashable, Any]] = []
        self.lock = threading.Lock()
        lifetime.watch_resources(self)

    def take(self, key: Hashable) -> Any:
        """Return a driver made of `key`, which is the caller's now; None if none rests."""
        with self.lock:
            at = next((i for i, (known, _) in enumerate(self.drivers) if known == key), -1)
            driver = self.drivers.pop(at)[1] if at >= 0 else None
        if driver is None:
            return None
        works = False
        try:
            works = driver.resume()
        finally:  # nobody else has it
            if not works:
                close(driver)
        return driver if works else None

    def keep(self, key: Hashable, driver: Any) -> None:
        """Let a driver rest; the one that has rested longest is closed where there are too many."""
        while len(self.drivers) >= MOST:
            with self.lock:
                oldest = self.drivers.pop(0)[1] if len(self.drivers) >= MOST else None
            if oldest is not None:
                close(oldest)
        with self.lock:
            self.drivers.append((key, driver))

    def stop(self) -> None:
        """Close all."""
        while self.drivers:
            close(self.drivers.pop()[1])

    def forget_parent(self) -> None:
        """Start anew in the child of a fork, which has none of its parent's threads."""
        self.drivers = []
        self.lock = threading.Lock()


def close(driver: Any) -> None:
    """Close a driver; where that lacked memory, again."""
    try:
        driver.close()
    except (MemoryError, RecursionError):
        driver.close()


kept = KeptDrivers()
