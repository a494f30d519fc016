"""`stf.progress`: a line that tells how far a context is, for who watches a program run."""

from __future__ import annotations

import collections
import threading
import time
from types import TracebackType
from typing import Any

from stf._port.events import EventSet
from stf._support import arguments
from stf.contexts.observing import statistics
from stf.observe.statistics import Statistics
from stf.tasks.task import ContextCore

KINDS = ("task", "host_launch")  # what a program submits; fills, copies, waits and parts of grids come with it


class Progress:
    """A progress bar of a context; made by `stf.progress`."""

    def __init__(self, context: ContextCore, total: int | None, interval: float) -> None:
        self._context = context
        self._asked = total
        self._interval = interval
        self._looks: collections.deque[tuple[int, EventSet]] = collections.deque()  # tasks so far, and their events
        self.done = 0  # so many of the program's tasks have run, as far as was seen
        self._start = time.monotonic()
        self._over = threading.Event()
        self._bar = _bar()
        self._row = self._bar.add_task(context.name or "tasks", total=total, tasks="", copied="")
        self._bar.start()
        self._thread = threading.Thread(target=self._watch, name="stf.progress", daemon=True)
        self._thread.start()

    @property
    def total(self) -> int:
        """How many tasks the program has submitted so far, or is to submit."""
        return max(self._asked or 0, count_tasks(statistics(self._context)))

    def update(self) -> None:
        """Look now, and show what is seen."""
        counted = statistics(self._context)
        engine = self._context.engine
        submitted = count_tasks(counted)
        ran = max(submitted - counted.pending, 0)  # at least: what is pending may be a fill
        if engine.closed is not None:
            self._looks.clear()
            self.done = submitted
        else:
            self._looks.append((ran, engine.tails()))
            while self._looks and all(map(engine.is_done, self._looks[0][1].tolist())):
                self.done = max(self.done, self._looks.popleft()[0])
            if not self._context.on_cuda:  # whose bodies tell themselves when they have run
                self.done = max(self.done, ran)
        total = max(self._asked or 0, submitted)
        rate = self.done / max(time.monotonic() - self._start, 1e-9)
        self._bar.update(
            self._row,
            completed=self.done,
            total=total,
            tasks=f"{self.done:,} of {total:,} tasks, {rate:,.0f}/s",
            copied=f"{counted.total_copied_bytes / 1e6:,.1f} MB copied",
        )

    def close(self) -> None:
        """Look once more, and take the bar away; calling it again does nothing."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            self.update()
            self._bar.stop()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _watch(self) -> None:
        while not self._over.wait(self._interval) and self._context.engine.closed is None:
            self.update()
        if not self._over.is_set():
            self.update()
            self._bar.stop()


def count_tasks(counted: Statistics) -> int:
    """Return how many tasks the program has submitted, without those that stf made for them."""
    return sum(counted.tasks.get(kind, 0) for kind in KINDS)


def _bar() -> Any:
    try:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError as error:
        raise ImportError("stf.progress needs rich: pip install rich (in a notebook, ipywidgets too)") from error
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[tasks]}"),
        TextColumn("{task.fields[copied]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, refresh_per_second=10)


def progress(context: ContextCore, total: int | None = None, *, interval: float = 0.1) -> Progress:
    """Show how far a context is: a bar in the terminal, a widget in a notebook.

    A thread looks at the context ten times a second; tasks pay nothing for it. It counts the tasks that the program
    submits. Fills and copies are not counted, nor are waits. Tasks of a GPU count as done when all that was submitted
    with them is, since nobody else tells.

    Parameters
    ----------
    context : Context
        What to watch.
    total : int, optional
        How many tasks there will be; those submitted so far, where it is not given.
    interval : float, optional
        Seconds between two looks.

    Returns
    -------
    Progress
        A with-block; ``done``, ``total``, ``update()`` and ``close()``. It ends with the context.

    Raises
    ------
    ImportError
        The package rich is not installed.

    Examples
    --------
    >>> import numpy as np, stf
    >>> @stf.task
    ... def work(x: stf.ReadWrite):
    ...     x += 1
    >>> with stf.context(devices="cpu") as ctx:
    ...     x = ctx.logical_data(np.zeros(10))
    ...     with stf.progress(ctx, total=100) as bar:
    ...         for _ in range(100):
    ...             work(x)
    ...         ctx.synchronize()
    tasks ... 100 of 100 tasks, ...
    """
    if not isinstance(context, ContextCore):
        raise TypeError(f"progress watches a context, got {type(context).__name__}")
    if total is not None and (not arguments.is_integer(total) or total < 1):
        raise ValueError(f"total is a positive number of tasks, got {total!r}; leave it out if you do not know it")
    if not interval > 0:
        raise ValueError(f"interval is a positive number of seconds, got {interval!r}")
    return Progress(context, None if total is None else int(total), interval)
