"""`Context.calibrate`: what links and tasks cost here, measured, in a form that a plan takes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stf._port.links import Link
from stf.contexts.observing import read_device_times
from stf.data.creation import logical_data_empty, token
from stf.data.filling import prefetch, submit_fill
from stf.data.waiting import synchronize
from stf.devices.hardware import SUBMIT_S
from stf.observe.durations import Duration, Key, from_records, median, to_records
from stf.places.places import DataPlace
from stf.tasks.checks import must_be_open, must_be_outside
from stf.tasks.task import ContextCore

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Calibration", "calibrate"]

LARGE, SMALL = 4 << 20, 64  # bytes of a copy, for the bandwidth and for the latency
REPEATS = 3
MOST_DEVICES = 8  # between which links are measured
SUBMISSIONS = 200
FORMAT = 1


class Calibration:
    """What links and tasks cost on a machine; made by `Context.calibrate` and by `load`.

    Attributes
    ----------
    durations : dict
        (n, mean, median, 90th percentile) of tasks by (function, size class, kind of device); times in seconds.
    links : dict
        (latency in seconds, bytes per second) of copies by (kind, kind); ``"host"`` is a kind.
    submit_s : float
        What a task costs the thread that submits it, in seconds.

    Examples
    --------
    >>> with stf.context(devices="cpu:2", observe="durations") as ctx:
    ...     x = ctx.logical_data(np.zeros(1000), name="x")
    ...     ctx.task(0, x.rw(), name="double")(lambda x: np.multiply(x, 2, out=x))
    ...     found = ctx.calibrate()
    >>> sorted(found.links)
    [('cpu', 'cpu'), ('cpu', 'host'), ('host', 'cpu')]
    >>> [key for key in found.durations]
    [('double', 12, 'cpu')]
    """

    def __init__(
        self,
        durations: Mapping[Key, Duration] | None = None,
        links: Mapping[tuple[str, str], Link] | None = None,
        submit_s: float = SUBMIT_S,
    ) -> None:
        self.durations, self.links, self.submit_s = dict(durations or {}), dict(links or {}), submit_s

    @property
    def kinds(self) -> list[str]:
        """The kinds of devices that tasks were timed on."""
        return sorted({kind for _, _, kind in self.durations} - {"host"})

    def save(self, path: str | Path) -> Path:
        """Write a JSON file; return its path.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = stf.Calibration().save(pathlib.Path(folder) / "machine.json")
        ...     print(stf.Calibration.load(path))
        <stf.Calibration: 0 durations, 0 links>
        """
        import json

        from stf._support.whole_file import write_whole

        links = [{"from": one, "to": other, **link._asdict()} for (one, other), link in sorted(self.links.items())]
        content = {
            "format": FORMAT,
            "submit_s": self.submit_s,
            "links": links,
            "durations": to_records(self.durations),
        }
        return write_whole(path, json.dumps(content, indent=1))

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Return what `save` has written.

        Raises
        ------
        ValueError
            The file holds no calibration.
        """
        import json
        from pathlib import Path

        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            links = {
                (str(item["from"]), str(item["to"])): Link(float(item["latency_s"]), float(item["bytes_per_s"]))
                for item in content["links"]
            }
            return cls(from_records(content["durations"]), links, float(content["submit_s"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path} holds no calibration of stf: {error!r}; make one with ctx.calibrate(path)"
            ) from None

    def __repr__(self) -> str:
        return f"<stf.Calibration: {len(self.durations)} durations, {len(self.links)} links>"


def calibrate(context: ContextCore, path: str | Path | None = None) -> Calibration:
    """Measure the links of this machine, and take the times of tasks that were kept; `stf.plan` predicts with them.

    It waits for everything first. Links take a few milliseconds each. Tasks are timed in contexts that were opened
    with ``observe="durations"``, or True; in others only the links are measured.

    Parameters
    ----------
    path : str or Path, optional
        Where to write them, as JSON.

    Returns
    -------
    Calibration

    Raises
    ------
    TaskStateError
        It is called inside a task or a recording.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     found = ctx.calibrate()
    ...     print(found.links["host", "cpu"].bytes_per_s > 0)
    True
    """
    must_be_open(context)
    must_be_outside(context, "calibrate")
    synchronize(context)
    read_device_times(context)
    durations = {} if context._durations is None else context._durations.table()
    found = Calibration(durations, measured_links(context), measured_submission(context))
    if path is not None:
        found.save(path)
    return found


def measured_links(context: ContextCore) -> dict[tuple[str, str], Link]:
    """Return the links between places of different memory, by kinds: the median of all pairs."""
    places = [place for place in context.engine.places if place.number == 0 or place.ordinal >= 0]
    places = [place for place in places[: MOST_DEVICES + 1] if place.number == 0 or place.memory != 0]
    found: dict[tuple[str, str], list[Link]] = {}
    for source in places:
        for target in places:
            if source is not target:
                latency_s = measured_copy(context, source, target, SMALL)
                whole_s = measured_copy(context, source, target, LARGE)
                link = Link(latency_s, (LARGE - SMALL) / max(whole_s - latency_s, 1e-9))
                found.setdefault((source.kind, target.kind), []).append(link)
    return {kinds: median_of(links) for kinds, links in found.items()}


def median_of(links: Iterable[Link]) -> Link:
    """Return the link of the median latency and bandwidth."""
    latencies, bandwidths = zip(*links, strict=True)
    return Link(median(sorted(latencies)), median(sorted(bandwidths)))


def measured_copy(context: ContextCore, source: Any, target: Any, nbytes: int) -> float:
    """Return how many seconds a copy takes, from its submission to its end."""
    clock_ns = context._driver.clock_ns
    data = logical_data_empty(context, nbytes, np.uint8, name="calibration")
    where = [
        DataPlace("host") if not place.number else DataPlace("device", place.ordinal) for place in (source, target)
    ]
    times = []
    for value in range(REPEATS + 1):
        submit_fill(context, data, value, where[0], None)
        synchronize(context)
        start = clock_ns()
        prefetch(context, data, where[1])
        synchronize(context)
        times.append((clock_ns() - start) * 1e-9)
    return median(sorted(times[1:]))  # the first one allocates


def measured_submission(context: ContextCore) -> float:
    """Return what a task costs the thread that submits it, in seconds of its CPU time."""
    if context._driver.values is not None:
        return SUBMIT_S
    order = token(context, name="calibration")
    start = time.thread_time_ns()
    for _ in range(SUBMISSIONS):
        context.make_host_task((order.rw(),), "calibration", False).run_queued(nothing, ())
    spent = time.thread_time_ns() - start
    synchronize(context)
    return spent * 1e-9 / SUBMISSIONS


def nothing() -> None:
    """Do nothing."""
