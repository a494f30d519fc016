"""What `devices=` means, and what contexts may share."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stf.errors import PlaceError
from stf.observe.statistics import DriverStatistics, ResourceStatistics

__all__ = ["DeviceSpec", "Resources", "parse_devices"]

log = logging.getLogger("stf")
_told = [False]


@dataclass(frozen=True)
class DeviceSpec:
    """A kind of driver and its devices."""

    driver: str
    count: int
    shares_host: bool
    capacity: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return "cpu" if self.shares_host else f"cpu:{self.count}"


def parse_devices(devices: Any, source: str = "devices") -> DeviceSpec:
    """Understand ``None``, ``"cpu"``, ``"cpu:4"``, ``"cuda"``, ``"cuda:0,2"`` or ``[0, 2]``; `source` gave it.

    Raises
    ------
    PlaceError
        The devices are not there.
    ValueError
        The text is none of those.
    """
    if isinstance(devices, DeviceSpec):
        return devices
    if devices is None:
        if not _told[0]:
            _told[0] = True
            log.info("no CUDA driver in this version of stf: tasks run on the CPU (devices='cpu')")
        return DeviceSpec("cpu", 1, True)
    if isinstance(devices, str):
        if devices == "cpu":
            return DeviceSpec("cpu", 1, True)
        match = re.fullmatch(r"cpu:(\d+)", devices)
        if match:
            return emulated(int(match.group(1)), source)
        if not devices.startswith("cuda"):
            raise ValueError(f"{source} is 'cpu', 'cpu:N', 'cuda', 'cuda:0,2' or a list of numbers, got {devices!r}")
    elif not isinstance(devices, Sequence) or not all(hasattr(index, "__index__") for index in devices):
        raise TypeError(
            f"{source} is 'cpu', 'cpu:N', 'cuda', 'cuda:0,2' or a list of numbers, got {devices!r}; N emulated devices "
            "are 'cpu:N'"
        )
    raise PlaceError(
        f"{source}={devices!r} needs CUDA, which this version of stf does not drive yet; use devices='cpu' or "
        "STF_DEVICES=cpu"
    )


def emulated(count: int, source: str = "devices") -> DeviceSpec:
    """`count` emulated devices with memories of their own."""
    if count < 1:
        raise ValueError(f"{source}='cpu:N' needs at least one device, got {count}; use 'cpu:1' or more")
    return DeviceSpec("cpu", count, False)


class Resources:
    """Workers and streams that several contexts share; give it to ``stf.context(resources=...)``.

    It may outlive the contexts; `close` it, or let it be collected, after the last of them.
    """

    def __init__(self) -> None:
        self._drivers: dict[DeviceSpec, Any] = {}
        self._process = os.getpid()

    def driver(self, spec: DeviceSpec) -> Any:
        """The shared driver for `spec`; the child of a fork has none of its parent's threads, and starts anew."""
        self._forget_parent()
        if spec not in self._drivers:
            from stf.contexts import make_driver

            self._drivers[spec] = make_driver(spec)
        return self._drivers[spec]

    def _forget_parent(self) -> None:
        if self._process != os.getpid():
            self._process = os.getpid()
            self._drivers = {}

    def statistics(self) -> ResourceStatistics:
        """Return what the contexts share now: streams, workers, allocations and bytes, by driver.

        Examples
        --------
        >>> import stf
        >>> shared = stf.Resources()
        >>> with stf.context(devices="cpu:2", resources=shared) as ctx:
        ...     ctx.logical_data_zeros(4).numpy()
        array([0., 0., 0., 0.])
        >>> print(shared.statistics())  # doctest: +ELLIPSIS
        cpu:2: 0 streams in use and ... spare, ... workers, 0 allocations
        >>> shared.close()
        """
        self._forget_parent()
        drivers = {str(spec): (spec.count, driver.statistics()) for spec, driver in list(self._drivers.items())}
        return ResourceStatistics({name: driver_statistics(*known) for name, known in drivers.items()})

    def close(self) -> None:
        """Stop the workers; contexts that still use them must be finalized first."""
        for driver in self._drivers.values():
            driver.close()
        self._drivers.clear()

    def __del__(self) -> None:
        self.close()


def driver_statistics(count: int, told: tuple[int, int, int, int, list[int]]) -> DriverStatistics:
    """What a driver of `count` devices told, with names for its places."""
    streams, spare, workers, allocations, used = told
    places = ["host", *(f"device({i})" for i in range(count))]
    return DriverStatistics(streams, spare, workers, allocations, dict(zip(places, used, strict=True)))
