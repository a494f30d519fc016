"""Checks of single bodies, on when STF_VALIDATE=1: what is only read must not change, what is written must be whole."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from stf.errors import AccessError
from stf.interop import adapters

PATTERN = 0xA5


class Watch:
    """Checksums what a task only reads, prefills what it only writes, and looks again afterwards.

    Parameters
    ----------
    task : Task
        An open task. For a body that runs in place, the watch begins at once.
    """

    def __init__(self, task: Any) -> None:
        self.label = task.label()
        self.read: list[tuple[str, str, Any]] = []
        self.written: list[tuple[str, Any]] = []
        for i, access in enumerate(task.accesses):
            replica = task.replica_of(i)
            if replica is None or replica.layout.interface is not None or access.mode == 4:
                continue
            mode = task.joined_mode(i)
            array = adapters.view(replica, mode != 1, "numpy")
            if mode == 1:
                self.read.append((access.data_name, access.data.last_writer(), array))
            elif mode == 2:
                self.written.append((access.data_name, array))
        self.sums: list[int] = []
        if task.state_name() == "open" and not task.outcome_pending():
            self.begin()

    def begin(self) -> None:
        """Take the checksums and fill what is to be overwritten."""
        self.sums = [checksum(array) for _, _, array in self.read]
        for _, array in self.written:
            prefill(array)

    def __call__(self) -> None:
        """Compare; name the data, the task, and who wrote the data before."""
        for (name, writer, array), before in zip(self.read, self.sums, strict=True):
            if checksum(array) != before:
                raise AccessError(
                    f"task {self.label} changed logical data '{name}' (written by {writer}), which it opened only for "
                    "reading; open it with rw(), or work on a copy"
                )
        for name, array in self.written:
            untouched = count_untouched(array)
            if untouched:
                raise AccessError(
                    f"task {self.label} opened logical data '{name}' with write() and left {untouched} of "
                    f"{array.nbytes} "
                    "bytes untouched; write all of it, or open it with rw()"
                )


def checksum(array: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data) if array.size else 0


def pattern_of(dtype: Any) -> bytes:
    """One element's worth of filler: a NaN with a payload of its own for floats, else 0xA5."""
    kind = np.dtype(dtype)
    if kind.kind == "f" and kind.itemsize == 8:
        return np.uint64(0x7FF8A5A5A5A5A5A5).tobytes()
    if kind.kind == "f" and kind.itemsize == 4:
        return np.uint32(0x7FC0A5A5).tobytes()
    if kind.kind == "c":
        half = pattern_of(np.dtype(f"f{kind.itemsize // 2}"))
        return half + half
    return bytes([PATTERN]) * kind.itemsize


def prefill(array: Any) -> None:
    """Fill with the pattern: NaN where there is one, else the byte 0xA5."""
    raw = np.frombuffer(pattern_of(array.dtype) * array.size, array.dtype)
    array[...] = raw.reshape(array.shape)


def count_untouched(array: Any) -> int:
    """Bytes of elements that still hold the pattern; small elements count only where all of them do."""
    pattern = np.frombuffer(pattern_of(array.dtype), np.uint8)
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(-1, array.itemsize)
    untouched = int((raw == pattern).all(axis=1).sum())
    whole = untouched == array.size
    return untouched * array.itemsize if whole or array.itemsize >= 4 else 0
