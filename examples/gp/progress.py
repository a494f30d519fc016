"""One line on stderr that says how far long work is."""

from __future__ import annotations

import sys
import threading
import time

__all__ = ["Progress"]

_WIDTH = 30


class Progress:
    """A bar that appears when work takes longer than `delay_s`; `advance` may be called from any thread.

    On a terminal the line is redrawn in place; in a log it is written anew every ten seconds.
    """

    def __init__(self, label: str, *, delay_s: float = 1.0, file=None):
        self._label, self._file = label, sys.stderr if file is None else file
        self._is_terminal = self._file.isatty()
        self._period_s = 0.1 if self._is_terminal else 10.0
        self._start = time.perf_counter()
        self._next = self._start + delay_s
        self._fraction = 0.0
        self._drawn = False
        self._lock = threading.Lock()

    def advance(self, fraction: float) -> None:
        """Add a part of the whole, between 0 and 1."""
        with self._lock:
            self._fraction = min(1.0, self._fraction + fraction)
            now = time.perf_counter()
            if now >= self._next:
                self._next = now + self._period_s
                self._draw(now)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind, *exception) -> None:
        if self._drawn:
            done = f"{self._label}: {'stopped' if kind else 'done'} after {time.perf_counter() - self._start:.0f} s\n"
            self._file.write("\r\x1b[K" if self._is_terminal else done)
            self._file.flush()

    def _draw(self, now: float) -> None:
        elapsed_s = now - self._start
        full = round(_WIDTH * self._fraction)
        bar = "#" * full + "." * (_WIDTH - full)
        line = f"{self._label} [{bar}] {self._fraction:4.0%}, {elapsed_s:.0f} s"
        if self._fraction > 0.02:
            line += f", about {elapsed_s * (1.0 / self._fraction - 1.0):.0f} s left"
        self._file.write(f"\r\x1b[K{line}" if self._is_terminal else f"{line}\n")
        self._file.flush()
        self._drawn = True
