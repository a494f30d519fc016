"""`stf.Resources`: workers and memory that contexts share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from stf._engine import lifetime
from stf._support.completion import Shown
from stf.devices.make import make_driver
from stf.devices.spec import DeviceSpec, driver_statistics
from stf.errors import TaskStateError, not_copied

if TYPE_CHECKING:
    from stf.observe.statistics import ResourceStatistics

__all__ = ["Resources"]


class Resources(Shown):
    """Workers and streams that several contexts share; give it to ``stf.context(resources=...)``.

    It may outlive the contexts; `close` it, or let it be collected, after the last of them.

    Examples
    --------
    >>> shared = stf.Resources()
    >>> for n in range(3):
    ...     with stf.context(devices="cpu:2", resources=shared) as ctx:
    ...         print(ctx.logical_data_full(2, n).numpy())
    [0 0]
    [1 1]
    [2 2]
    >>> shared.close()
    """

    _shown = ["close", "statistics"]

    def __init__(self) -> None:
        self._drivers: dict[DeviceSpec, Any] = {}
        self._lost: list[Any] = []  # drivers that others took the place of
        self._last: tuple[Any, Any, Any] = None, None, None  # a spec, among which drivers, and its driver
        self._lock = threading.Lock()
        lifetime.watch_resources(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise not_copied("stf.Resources", "make another one with stf.Resources()")

    def driver(self, spec: DeviceSpec) -> Any:
        """Return the shared driver for `spec`."""
        known, drivers, driver = self._last
        if known is spec and drivers is self._drivers and not driver.is_lost_by_chance():
            return driver
        with self._lock:
            driver = self._drivers.get(spec)
            if driver is not None and driver.is_lost_by_chance():
                self._lost.append(self._drivers.pop(spec))
                driver = None
            if driver is None:
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
        ...     print(ctx.logical_data_zeros(4).numpy())
        [0. 0. 0. 0.]
        >>> print(shared.statistics())  # doctest: +ELLIPSIS
        cpu:2: 0 streams in use and ... spare, ... workers, 0 allocations
        >>> shared.close()
        """
        from stf.observe.statistics import ResourceStatistics

        drivers = list(self._drivers.items())
        return ResourceStatistics({str(spec): driver_statistics(spec.numbers, driver) for spec, driver in drivers})

    def close(self) -> None:
        """Stop the workers, and give back what was shared.

        Raises
        ------
        TaskStateError
            A context uses them that was not finalized.

        Examples
        --------
        >>> shared = stf.Resources()
        >>> with stf.context(devices="cpu", resources=shared) as ctx:
        ...     pass
        >>> shared.close()
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
