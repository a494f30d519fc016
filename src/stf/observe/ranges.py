"""Ranges of NVTX, named after tasks and sections: profilers such as Nsight Systems and Nsight Compute show them."""

from __future__ import annotations

from typing import Any

from .observer import ObservedTask, Observer, ThreadStack

__all__ = ["NvtxRanges"]


class NvtxRanges(Observer):
    """Open a range where a task begins, in the thread that runs its body, and close it where the body has returned.

    Ranges nest in a thread. One that ends before a later one, or in another thread, is closed as soon as it can be.
    """

    def __init__(self) -> None:
        import nvtx

        self._nvtx: Any = nvtx
        self._sections: list[tuple[object, int]] = []  # that are open

    def task(self, task: ObservedTask) -> None:
        if task.kind != "fence" and not task.runs_later:
            self.began(task.id, task.symbol or task.kind)

    def began(self, task_id: int, name: str) -> None:
        self._open((self, task_id), name)

    def ended(self, task_id: int) -> None:
        self._close((self, task_id))

    def withdrawn(self, task_id: int) -> None:
        self._close((self, task_id))

    def section_begin(self, name: str) -> None:
        self._sections.append((id(self._sections), len(self._sections)))
        self._open(self._sections[-1], name)

    def section_end(self) -> None:
        self._close(self._sections.pop())

    def _open(self, key: tuple[object, int], name: str) -> None:
        self._close(key)
        ranges.keys.append(key)
        is_open.add(key)
        self._nvtx.push_range(name)

    def _close(self, key: tuple[object, int]) -> None:
        is_open.discard(key)
        ranges.leave(is_open, self._nvtx.pop_range)


ranges = ThreadStack()
is_open: set[tuple[object, int]] = set()  # of all threads
