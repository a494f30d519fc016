"""Places, as the engine knows them: a record for each, by number; the host is 0, devices follow, others come later."""

from __future__ import annotations

import cython

NO_PLACE = -2


@cython.final
@cython.cclass
class Place:
    """A place where tasks run or data are.

    Attributes
    ----------
    number : int
        The engine's.
    name : str
        What messages call it.
    ordinal : int
        By which number users know its device; -1 for the host, and for memory that the host can use.
    memory : int
        The number of the place in whose memory its tasks work; `NO_PLACE` where nothing runs.
    functions : int
        Places with the same number share the functions of kernels.
    enqueues : bool
        Bodies there only enqueue work; elsewhere they do it.
    is_callers_stream : bool
        Its work is done where it stands on a stream of the user's.
    kind : str
        The kind of device, such as "cpu" or "H200"; "host", or "" for memory where nothing runs. A body takes as long
        on every place of a kind.
    is_remote : bool
        It is in another process, where bodies travel: its kind begins with "remote".
    is_lost : bool
        That process is gone, and no other has taken its place yet.
    """

    def __init__(self, number, name, ordinal, memory, functions=0, is_callers_stream=False, kind=""):
        self.number, self.name, self.ordinal = number, name, ordinal
        self.memory, self.functions = memory, functions
        self.is_callers_stream = is_callers_stream
        self.kind = kind
        self.is_remote = kind.startswith("remote")


def copy_of(place, kind):
    """Return a record like that of a place, which is of a kind."""
    copy: Place = Place.__new__(Place)
    copy.number, copy.name, copy.ordinal = place.number, place.name, place.ordinal
    copy.memory, copy.functions = place.memory, place.functions
    copy.is_callers_stream = place.is_callers_stream
    copy.kind = kind
    copy.is_remote = kind.startswith("remote")
    return copy


def copies_of(places, kind_of):
    """Return records like these of the host and of devices; ``kind_of(number)`` is the kind of a driver's device."""
    i: cython.int
    copies = [copy_of(places[0], "host")]
    for i in range(1, len(places)):
        copies.append(copy_of(places[i], kind_of(i - 1)))
    return copies
