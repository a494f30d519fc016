"""Arrays of NumPy, and of libraries that do as NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np

from stf.errors import PlaceError
from stf.interop.known_arrays import describe_numpy
from stf.interop.libraries import Describer, Library


class NumPy(Library):
    """Arrays of NumPy: what bodies get on a CPU where nothing else is said."""

    name = "numpy"

    def describer_of(self, kind: type) -> Describer | None:
        return describe_numpy if kind is np.ndarray else None

    def over(self, array: np.ndarray[Any, Any]) -> Any:
        return array

    def on_device(self, replica: Any, ordinal: int, remote: bool) -> Any:
        raise PlaceError(
            f"NumPy arrays live in host memory and this task runs on device({ordinal}); use CuPy, torch or Numba "
            "arrays here, or run it with exec_place.host()"
        )

    def shares_memory(self, value: Any, target: Any) -> bool:
        return isinstance(value, np.ndarray) and np.may_share_memory(value, target)
