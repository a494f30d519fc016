"""The devices of contexts, and checks of what is said of them."""

from __future__ import annotations

from typing import Any

from stf.compat.cuda_stf.errors import NoPlaceError
from stf.devices.make import configured_devices

MOST_AXES = 4


def known_device(dev_id: Any) -> int:
    """Return the number of a device that contexts have.

    Raises
    ------
    TypeError
        It is no integer.
    RuntimeError, ValueError
        There is no such device.
    """
    if isinstance(dev_id, bool) or not hasattr(dev_id, "__index__"):
        raise TypeError(f"a device is given by its number, got {dev_id!r}")
    spec = configured_devices()
    if int(dev_id) not in spec.numbers:
        known = ", ".join(map(str, spec.numbers))
        raise NoPlaceError(
            f"invalid device id {int(dev_id)}: {spec.text} has {known}; STF_DEVICES=cpu:4 emulates four devices"
        )
    return int(dev_id)


def is_on_cuda() -> bool:
    """Return whether contexts run on CUDA devices."""
    return bool(configured_devices().driver == "cuda")


def extents(dims: Any, what: str) -> tuple[int, ...]:
    """Return one to four positive extents.

    Raises
    ------
    TypeError
        An extent is no int.
    ValueError
        There are too many, or one is not positive.
    """
    if isinstance(dims, bool):
        raise TypeError(f"{what} are ints, got {dims!r}")
    given = (dims,) if isinstance(dims, int) else tuple(dims)
    if not 1 <= len(given) <= MOST_AXES:
        raise ValueError(f"{what} must have 1 to 4 dimensions, got {len(given)}")
    for extent in given:
        if isinstance(extent, bool) or not hasattr(extent, "__index__"):
            raise TypeError(f"{what} are ints, got {extent!r}")
        if extent <= 0:
            raise ValueError(f"{what} must be positive, got {extent}")
    return tuple(int(extent) for extent in given)
