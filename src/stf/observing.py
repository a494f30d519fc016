"""Seeing what a context does: DOT pictures, traces, statistics."""

from __future__ import annotations

from typing import Any

from stf import config
from stf.observe.statistics import Statistics

DOT_OPTIONS = (
    "ignore_prereqs",
    "color_by_device",
    "remove_data_deps",
    "timing",
    "max_depth",
    "show_fence",
    "keep_redundant",
    "stats_file",
    "keep_freeze",
)


class Observing:
    """What of a context is for looking at it."""

    engine: Any
    name: str | None
    _driver: Any

    def _setup_observers(self, observe: str | bool) -> None:
        if observe not in (False, True, "dot", "trace", None):
            raise ValueError(f"observe is 'dot', 'trace', True or False, got {observe!r}")
        self._dot: Any = None
        self._trace: Any = None
        self._sections = 0
        if observe in (True, "dot") or config.dot_file:
            from stf.observe.dot import DotRecorder

            self._dot = DotRecorder(self.name or "stf")
        if observe in (True, "trace"):
            from stf.observe.trace import TraceRecorder

            self._trace = recorder = TraceRecorder()
            self._driver.watch_copies(
                lambda device, thread, start, end: recorder.ran(0, "copy", device, thread, start, end, "copy")
            )
        active = [o for o in (self._dot, self._trace) if o is not None]
        if active:
            from stf.observe import Observers

            self.engine.observe(active[0] if len(active) == 1 else Observers(*active))

    def dot(self, **options: Any) -> str:
        """Return the task graph so far in the DOT language.

        Parameters
        ----------
        **options
            As the ``STF_DOT_*`` variables, in lower case: ``ignore_prereqs``, ``color_by_device``,
            ``remove_data_deps``, ``timing``, ``max_depth``, ``show_fence``, ``keep_redundant``, ``keep_freeze``.

        Raises
        ------
        RuntimeError
            The context was opened without ``observe="dot"`` and without ``STF_DOT_FILE``.
        """
        if self._dot is None:
            raise RuntimeError("no task graph was recorded; open the context with observe='dot', or set STF_DOT_FILE")
        return self._dot.to_dot(**{name: getattr(config, f"dot_{name}") for name in DOT_OPTIONS} | options)

    def trace(self) -> dict[str, Any]:
        """Return when and where bodies ran, as a Perfetto (Chrome trace) dictionary.

        Raises
        ------
        RuntimeError
            The context was opened without ``observe="trace"``.
        """
        if self._trace is None:
            raise RuntimeError("no trace was recorded; open the context with observe='trace'")
        return self._trace.to_perfetto()

    def dot_section(self, name: str) -> Section:
        """Open a section of the task graph: a with-block, or end it with ``end()``."""
        return Section(self, name)

    def statistics(self) -> Statistics:
        """Return what was done so far: tasks, copies and bytes by place, allocations, evictions."""
        engine = self.engine
        names = engine.place_names
        kinds = {kind: n for kind, n in engine.kinds.items() if n}
        counted = sum(kinds.values())
        pools = engine.coherency.pools
        return Statistics(
            tasks={"task": engine.task_count() - counted} | kinds,
            tasks_by_place={names[p.place]: p.tasks for p in pools},
            copies={(names[s], names[t]): c[0] for (s, t), c in engine.coherency.copies.items()},
            copied_bytes={(names[s], names[t]): c[1] for (s, t), c in engine.coherency.copies.items()},
            allocations={names[p.place]: p.allocations for p in pools},
            allocated_bytes={names[p.place]: p.allocated_bytes for p in pools},
            peak_bytes={names[p.place]: p.peak for p in pools},
            evictions={names[p.place]: p.evictions for p in pools},
            frees={names[p.place]: p.frees for p in pools},
            write_backs={names[0]: engine.coherency.write_backs},
            pending=engine.pending(),
        )

    def _write_pictures(self) -> None:
        if self._dot is not None and config.dot_file:
            with open(config.dot_file, "w", encoding="utf-8") as file:
                file.write(self.dot())


class Section:
    """An open section of the task graph."""

    def __init__(self, owner: Observing, name: str) -> None:
        self._owner: Observing | None = owner
        observer = owner.engine.observer
        if observer is not None:
            observer.section_begin(str(name))

    def end(self) -> None:
        """Close the section; again does nothing."""
        owner, self._owner = self._owner, None
        if owner is not None and owner.engine.observer is not None:
            owner.engine.observer.section_end()

    def __enter__(self) -> Section:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def __del__(self) -> None:
        self.end()


def why(what: Any) -> str:
    return ""
