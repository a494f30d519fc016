"""What `devices=` means, and what contexts may share."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from stf._port.place import Place, copies_of
from stf.devices.hardware import KINDS
from stf.errors import PlaceError

if TYPE_CHECKING:
    from stf.observe.statistics import DriverStatistics

__all__ = ["DeviceSpec", "parse_devices", "with_workers"]

log = logging.getLogger("stf")
USUAL_KIND = "H100"  # of simulated devices
MOST_EMULATED = 1024  # devices, each with threads of its own
_has_warned = [False]
keys: dict[Any, int] = {}


def function_key(what: Any) -> int:
    """Return a small number for a device, or for a CUDA context of the user's: kernels have one function in each."""
    return keys.setdefault(what, len(keys) + 1)


@dataclass(frozen=True)
class Cluster:
    """Which engine has the workers of remote devices: "loopback", "ray" or "dask", and how it is asked for them.

    Attributes
    ----------
    engine : str
        Of these.
    client : object
        The user's client of Dask; None for others.
    workers : tuple of str
        Which of Dask's; empty for all.
    threads : int
        Bodies that a worker runs at a time.
    batch, batch_s : int, float
        So many commands are sent at once, or those that have waited for so long.
    environment : tuple of (str, object)
        The ``runtime_env`` of Ray's actors.
    gpus : bool or "auto"
        Whether each worker uses a GPU; "auto": those whose process was given one.
    """

    engine: str
    client: Any = None
    workers: tuple[str, ...] = ()
    threads: int = 1
    batch: int = 64
    batch_s: float = 1e-3
    environment: tuple[tuple[str, Any], ...] = ()
    gpus: bool | str = False


@dataclass(frozen=True)
class DeviceSpec:
    """A kind of driver and its devices; `workers` run bodies on the host, as many as there are cores if it is None."""

    driver: str
    count: int
    shares_host: bool
    capacity: tuple[int, ...] | None = None
    ordinals: tuple[int, ...] | None = None
    workers: int | None = None
    kind: str = ""  # of simulated devices
    cluster: Any = None  # of remote devices: opens the transport to them

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """By which numbers users know the devices: CUDA ordinals, or those of emulated devices."""
        return self.ordinals if self.ordinals is not None else tuple(range(self.count))

    def places(self, driver: Any) -> list[Place]:
        """Return the records of the host and of the devices of a driver."""
        return copies_of(self._places, driver.kind)

    @cached_property
    def _places(self) -> list[Place]:
        devices = [
            Place(i, f"device({number})", number, 0 if self.shares_host else i, function_key(("device", number)))
            for i, number in enumerate(self.numbers, 1)
        ]
        return [Place(0, "host", -1, 0), *devices]

    @cached_property
    def codes(self) -> dict[int | str, int]:
        """The number of the place of each device, and of the host."""
        return {number: place for place, number in enumerate(self.numbers, 1)} | {"host": 0}

    @cached_property
    def text(self) -> str:
        """What asks for it."""
        if self.driver == "sim":
            return f"sim:{self.count}x{self.kind}"
        if self.driver == "remote":
            return f"{self.cluster.engine}:{self.count}{'xgpu' if self.cluster.gpus is True else ''}"
        if self.driver == "cuda":
            return f"cuda:{','.join(map(str, self.numbers))}"
        return "cpu" if self.shares_host else f"cpu:{self.count}"

    def __str__(self) -> str:
        return self.text if self.workers is None else f"{self.text} with {self.workers} workers"


@functools.lru_cache(maxsize=64)
def with_workers(spec: DeviceSpec, workers: int) -> DeviceSpec:
    """Return the same devices with so many workers."""
    return dataclasses.replace(spec, workers=workers)


def parse_devices(devices: Any, source: str = "devices", cuda_devices: Callable[[], int] = lambda: -1) -> DeviceSpec:
    """Understand ``None``, ``"cpu"``, ``"cpu:4"``, ``"cuda"``, ``"cuda:0,2"``, ``"sim:8xH200"`` or ``[0, 2]``.

    `source` gave it; `cuda_devices` counts the CUDA devices, -1 where there is no CUDA at all.

    Raises
    ------
    PlaceError
        The devices are not there.
    ValueError
        The text is none of those.
    """
    if isinstance(devices, DeviceSpec):
        return devices
    return (_parse_text if isinstance(devices, str) else _parse)(devices, source, cuda_devices)


def _parse(devices: Any, source: str, cuda_devices: Callable[[], int]) -> DeviceSpec:
    if devices is None:
        count = cuda_devices()
        if count > 0:
            return on_cuda(tuple(range(count)))
        if not _has_warned[0]:
            _has_warned[0] = True
            log.info("no CUDA %s here: tasks run on the CPU (devices='cpu')", "driver" if count < 0 else "device")
        return DeviceSpec("cpu", 1, True)
    if isinstance(devices, str):
        if devices == "cpu":
            return DeviceSpec("cpu", 1, True)
        match = re.fullmatch(r"cpu:(\d+)", devices)
        if match:
            return emulated(int(match.group(1)), source)
        if devices.startswith("sim:"):
            return simulated(devices.removeprefix("sim:"), source)
        if (found := remote(devices, source)) is not None:
            return found
        match = re.fullmatch(r"cuda(?::(\d+(?:,\d+)*))?", devices)
        if match:
            wanted = match.group(1)
            numbers = None if wanted is None else [int(number) for number in wanted.split(",")]
            return known_on_cuda(numbers, devices, source, cuda_devices())
        raise ValueError(f"{source} is 'cpu', 'cpu:N', 'cuda', 'cuda:0,2' or a list of numbers, got {devices!r}")
    elif not isinstance(devices, Sequence) or not all(hasattr(index, "__index__") for index in devices):
        raise TypeError(
            f"{source} is 'cpu', 'cpu:N', 'cuda', 'cuda:0,2' or a list of numbers, got {devices!r}; N emulated devices "
            "are 'cpu:N'"
        )
    return known_on_cuda([int(index) for index in devices], devices, source, cuda_devices())


_parse_text = functools.cache(_parse)  # CUDA devices neither come nor go
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_parse_text.cache_clear)  # where CUDA may not work


def known_on_cuda(numbers: list[int] | None, asked: Any, source: str, count: int) -> DeviceSpec:
    """Return the CUDA devices with these ordinals, all if None; `count` is how many there are."""
    if count <= 0:
        reason = "there is no CUDA driver here" if count < 0 else "CUDA finds no device here"
        raise PlaceError(f"{source}={asked!r} needs CUDA, and {reason}; use devices='cpu' or STF_DEVICES=cpu")
    chosen = tuple(range(count)) if numbers is None else tuple(numbers)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"{source} names each device once, and at least one, got {asked!r}")
    for number in chosen:
        if not 0 <= number < count:
            raise PlaceError(f"{source}={asked!r} names device {number}; this machine has 0 to {count - 1}")
    return on_cuda(chosen)


def on_cuda(ordinals: tuple[int, ...]) -> DeviceSpec:
    """Those CUDA devices."""
    return DeviceSpec("cuda", len(ordinals), False, None, ordinals)


def emulated(count: int, source: str = "devices") -> DeviceSpec:
    """`count` emulated devices with memories of their own."""
    if count < 1:
        raise ValueError(f"{source}='cpu:N' needs at least one device, got {count}; use 'cpu:1' or more")
    if count > MOST_EMULATED:
        raise ValueError(f"{source}='cpu:N' has at most {MOST_EMULATED} devices, got {count}")
    return DeviceSpec("cpu", count, False)


def simulated(text: str, source: str = "devices", kinds: Collection[str] = KINDS) -> DeviceSpec:
    """Return the devices that ``"8xH200"`` or ``"8"`` means, of one of these kinds, with the memory that they have."""
    match = re.fullmatch(r"(\d+)(?:x(.+))?", text.strip())
    kind = (match.group(2) or USUAL_KIND) if match else ""
    if match is None or kind not in kinds:
        raise ValueError(
            f"{source} of simulated devices is a number and a kind, such as '8xH200', got {text!r}; kinds are "
            f"{', '.join(sorted(kinds))}"
        )
    count = int(match.group(1))
    if not 1 <= count <= MOST_EMULATED:
        raise ValueError(f"{source} has 1 to {MOST_EMULATED} simulated devices, got {count}")
    memory = KINDS[kind].memory_bytes if kind in KINDS else 0
    return DeviceSpec("sim", count, False, (memory,) * count, None, None, kind)


def remote(text: str, source: str = "devices") -> DeviceSpec | None:
    """Return the workers that ``"ray:8"``, or ``"ray:4xgpu"`` means, or ``"loopback:2"`` for tests; else None."""
    match = re.fullmatch(r"(loopback|ray):(\d+)(xgpu)?", text)
    if match is None:
        return None
    count = int(match.group(2))
    if not 1 <= count <= MOST_EMULATED:
        raise ValueError(f"{source} has 1 to {MOST_EMULATED} remote workers, got {count}")
    engine, gpus = match.group(1), match.group(3) is not None
    cluster = Cluster(engine, threads=2 if engine == "loopback" and not gpus else 1, gpus=gpus)
    return DeviceSpec("remote", count, False, cluster=cluster)


def driver_statistics(numbers: tuple[int, ...], driver: Any) -> DriverStatistics:
    """Return what a driver of devices with these numbers tells, with names for its places."""
    from stf.observe.statistics import DriverStatistics

    streams, spare, workers, allocations, used = driver.statistics()
    places = ["host", *(f"device({i})" for i in numbers)]
    held = dict(zip(places, used, strict=True))
    return DriverStatistics(streams, spare, workers, allocations, held, **graph_statistics(driver))


def graph_statistics(driver: Any) -> dict[str, int]:
    """Return what `Graphs.statistics` of a driver does, by the names of statistics; nothing of one without graphs."""
    names = ("graphs_made", "graphs_updated", "graphs_kept", "graphs_kept_bytes", "graph_cache_bytes")
    return {} if driver.graphs is None else dict(zip(names, driver.graphs.statistics(), strict=True))
