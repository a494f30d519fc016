"""A library of arrays: what stf asks of each, in one form. `arrays.LIBRARIES` has those that bodies may get arrays of.

=================  ================================================================
what               for
=================  ================================================================
``describer_of``   arrays that users hand in: where their memory is
``over``           what a body on the host gets: an array over memory that NumPy sees
``on_device``      what a body on a device gets: an array over the memory of a replica
``put``            what a body returns: into the array that it was given
``shares_memory``  the same, where results lie in each other's arrays
``copied``         what users wait for on a device, on their ``current_stream`` there
=================  ================================================================
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from stf.errors import PlaceError
from stf.interop.known_arrays import Memory

__all__ = ["Describer", "Library", "import_library"]

Describer = Callable[[Any, bool], Memory]
INSTALL = {
    "cupy": "pip install cupy-cuda13x",
    "torch": "pip install torch",
    "numba": "pip install numba-cuda[cu13]",
    "jax": "pip install jax (on GPUs jax[cuda13])",
}


class Library:
    """A library of arrays; what it does not override, it cannot do or does as NumPy does.

    Attributes
    ----------
    name : str
        What ``arrays=`` calls it; "" if bodies get none of its arrays.
    keeps_arrays : bool
        Whether what is made over the memory of a replica is kept with that; else it is a copy, made each time.
    """

    name = ""
    keeps_arrays = True

    def describer_of(self, kind: type) -> Describer | None:
        """Return what describes the objects of a class, which is of this library; None if they are no arrays."""
        return None

    def over(self, array: np.ndarray[Any, Any]) -> Any:
        """Return an array over the memory of a NumPy array."""
        raise PlaceError(
            f"{self.name} arrays live on a CUDA device and this place is a CPU; use NumPy arrays (t.numpy()) here"
        )

    def on_device(self, replica: Any, ordinal: int, remote: bool) -> Any:
        """Return an array of CUDA device `ordinal` over the memory of a replica, which is elsewhere if `remote`."""
        raise NotImplementedError

    def put(self, value: Any, target: Any) -> None:
        """Store a result, of a shape and a dtype that fit, in an array: on the task's stream, which is current."""
        target[...] = value

    def shares_memory(self, value: Any, target: Any) -> bool:
        """Return whether a result lies in an array of this library's, or in a part of it."""
        return False

    def current_stream(self, ordinal: int) -> int:
        """Return the address of the caller's current stream on a device; 1 is CUDA's default stream."""
        raise NotImplementedError

    def copied(self, array: Any, ordinal: int) -> Any:
        """Return a copy of a device array, on its device, made on the caller's current stream there."""
        raise NotImplementedError


def import_library(name: str) -> Any:
    """Import an array library, or say how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise ImportError(
            f"this task asks for {library} arrays and {library} is not installed: {INSTALL[library]}"
        ) from error
