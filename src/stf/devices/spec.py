"""What `devices=` means, and what contexts may share."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stf._engine import lifetime
from stf.errors import PlaceError, TaskStateError, not_copied
from stf.interop.kernel_handles import function_key
from stf.observe.statistics import DriverStatistics, ResourceStatistics

__all__ = ["DeviceSpec", "Resources", "parse_devices"]

log = logging.getLogger("stf")
MOST_EMULATED = 1024  # devices, each with threads of its own
_told = [False]


@dataclass(frozen=True)
class DeviceSpec:
    """A kind of driver and its devices."""

    driver: str
    count: int
    shares_host: bool
    capacity: tuple[int, ...] | None = None
    ordinals: tuple[int, ...] | None = None

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """By which numbers users know the devices: CUDA ordinals, or those of emulated devices."""
        return self.ordinals if self.ordinals is not None else tuple(range(self.count))

    @cached_property
    def place_names(self) -> tuple[str, ...]:
        """What messages call the host and the devices."""
        return ("host", *(f"device({i})" for i in self.numbers))

    @cached_property
    def affine(self) -> tuple[int, ...]:
        """The engine's numbers of the places in whose memory tasks on the host and the devices work."""
        return (0, *(0 if self.shares_host else i + 1 for i in range(self.count)))

    @cached_property
    def function_keys(self) -> tuple[int, ...]:
        """By which numbers kernels know the host and the devices; see `function_key`."""
        return (0, *(function_key(("device", i)) for i in self.numbers))

    @cached_property
    def text(self) -> str:
        """What asks for it."""
        if self.driver == "cuda":
            return f"cuda:{','.join(map(str, self.numbers))}"
        return "cpu" if self.shares_host else f"cpu:{self.count}"

    def __str__(self) -> str:
        return self.text


_parsed: dict[tuple[str, Callable[[], int]], DeviceSpec] = {}  # CUDA devices neither come nor go
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_parsed.clear)  # where CUDA may not work


def parse_devices(devices: Any, source: str = "devices", cuda_devices: Callable[[], int] = lambda: -1) -> DeviceSpec:
    """Understand ``None``, ``"cpu"``, ``"cpu:4"``, ``"cuda"``, ``"cuda:0,2"`` or ``[0, 2]``; `source` gave it.

    `cuda_devices` counts the CUDA devices, -1 where there is no CUDA at all.

    Raises
    ------
    PlaceError
        The devices are not there.
    ValueError
        The text is none of those.
    """
    if isinstance(devices, DeviceSpec):
        return devices
    if not isinstance(devices, str):
        return _parse(devices, source, cuda_devices)
    asked = devices, cuda_devices
    spec = _parsed.get(asked)
    if spec is None:
        spec = _parsed[asked] = _parse(devices, source, cuda_devices)
    return spec


def _parse(devices: Any, source: str, cuda_devices: Callable[[], int]) -> DeviceSpec:
    if devices is None:
        count = cuda_devices()
        if count > 0:
            return on_cuda(tuple(range(count)))
        if not _told[0]:
            _told[0] = True
            log.info("no CUDA %s here: tasks run on the CPU (devices='cpu')", "driver" if count < 0 else "device")
        return DeviceSpec("cpu", 1, True)
    if isinstance(devices, str):
        if devices == "cpu":
            return DeviceSpec("cpu", 1, True)
        match = re.fullmatch(r"cpu:(\d+)", devices)
        if match:
            return emulated(int(match.group(1)), source)
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


def known_on_cuda(numbers: list[int] | None, asked: Any, source: str, count: int) -> DeviceSpec:
    """The CUDA devices with these ordinals, all if None; `count` is how many there are."""
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


class Resources:
    """Workers and streams that several contexts share; give it to ``stf.context(resources=...)``.

    It may outlive the contexts; `close` it, or let it be collected, after the last of them.
    """

    def __init__(self) -> None:
        self._drivers: dict[DeviceSpec, Any] = {}
        self._lost: list[Any] = []  # drivers that others took the place of
        self._last: tuple[Any, Any, Any] = None, None, None  # a spec, among which drivers, and its driver
        self._lock = threading.Lock()
        lifetime.watch_resources(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise not_copied("stf.Resources", "make another one with stf.Resources()")

    def driver(self, spec: DeviceSpec) -> Any:
        """The shared driver for `spec`."""
        known, drivers, driver = self._last
        if known is spec and drivers is self._drivers and not driver.is_lost_by_chance():
            return driver
        with self._lock:
            driver = self._drivers.get(spec)
            if driver is not None and driver.is_lost_by_chance():
                self._lost.append(self._drivers.pop(spec))
                driver = None
            if driver is None:
                from stf.devices.make import make_driver

                driver = self._drivers[spec] = make_driver(spec)
            self._last = spec, self._drivers, driver
        return driver

    def forget_parent(self) -> None:
        """Start anew in the child of a fork, which has none of its parent's threads."""
        self._drivers, self._lost = {}, []
        self._last = None, None, None
        self._lock = threading.Lock()

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
        drivers = {str(spec): (spec.numbers, driver) for spec, driver in list(self._drivers.items())}
        return ResourceStatistics({name: driver_statistics(*known) for name, known in drivers.items()})

    def close(self) -> None:
        """Stop the workers, and give back what was shared.

        Raises
        ------
        TaskStateError
            A context uses them that was not finalized.
        """
        context = lifetime.user_of(self)
        if context is not None:
            raise TaskStateError(f"resources cannot be closed while {context!r} uses them; finalize that first")
        self.stop()

    def stop(self) -> None:
        """What `close` does, whoever uses them."""
        with self._lock:
            drivers, self._drivers = [*self._drivers.values(), *self._lost], {}
            self._lost = []
            self._last = None, None, None
        for driver in drivers:
            driver.close()

    def __del__(self) -> None:
        if getattr(self, "_drivers", None):
            lifetime.collected_resources(self)


def driver_statistics(numbers: tuple[int, ...], driver: Any) -> DriverStatistics:
    """What a driver of devices with these numbers tells, with names for its places."""
    streams, spare, workers, allocations, used = driver.statistics()
    places = ["host", *(f"device({i})" for i in numbers)]
    held = dict(zip(places, used, strict=True))
    return DriverStatistics(streams, spare, workers, allocations, held, *driver.graph_statistics())
