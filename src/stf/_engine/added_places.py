"""Places that a context comes to know after it was made: memories that all share, and streams and contexts of users."""

from __future__ import annotations

from typing import Any

from stf._engine.coherency import Pool

NO_PLACE = -2


def add_place(engine: Any, known: dict[Any, int], key: Any, name: str, number: int, device: int, **options: Any) -> int:
    """Know one more place, unless it is `known` by its `key`; return the engine's number of it.

    Parameters
    ----------
    number : int
        By which users know its device; -1 for memory that the host can use.
    device : int
        The driver's number of that.
    affine : int, optional
        The data place of what runs there; for a memory, where nothing runs, none.
    origin : tuple, optional
        What the port makes its lanes of.
    function_key : object, optional
        Places with the same key share the functions of kernels.
    """
    if key in known:
        return known[key]
    place = int(engine.root.add_place(device, options.get("origin")))
    engine.place_names.append(name)
    engine.place_numbers.append(number)
    engine.affine.append(options.get("affine", NO_PLACE))
    engine.function_keys.append(options.get("function_key", 0))
    if options.get("origin", ("",))[0] == "stream":
        engine.callers_streams.add(place)
    engine.coherency.place_names.append(name)
    engine.coherency.pools.append(Pool(place))
    known[key] = place
    return place
