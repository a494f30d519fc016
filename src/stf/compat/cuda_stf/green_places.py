"""`green_places`: parts of a device as places."""

from __future__ import annotations

from stf.compat.cuda_stf.errors import NotHereError
from stf.compat.cuda_stf.places import exec_place, split


def green_places(
    sms_per_place: int, n_places: int | None = None, device_id: int = 0, coscheduled_sm_count: int = 0
) -> list[exec_place]:
    """Return places that have some multiprocessors of a device each; `stf.green_places` does it.

    Raises
    ------
    ValueError
        A number is not positive.
    RuntimeError
        So many do not fit, or there is no CUDA.
    """
    for name, value in (("sms_per_place", sms_per_place), ("n_places", 1 if n_places is None else n_places)):
        if value <= 0:
            raise ValueError(f"{name} must be positive, got {value}")
    if coscheduled_sm_count:
        raise NotHereError(
            "coscheduled_sm_count is not in stf; make contexts with cuda.core: exec_place.from_context()"
        )
    return [exec_place._of(place) for place in split(sms_per_place, n_places, device_id)]
