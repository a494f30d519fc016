"""What tasks read and wrote, noted in one run of a program and compared in another one.

The first run keeps the content of everything that tasks write, in a folder, and checksums of what they read. The second
run compares each task with its counterpart, which has the same number: tasks are numbered as they are submitted. Then
the first task is known whose outputs differ though its inputs agreed.

The look at a task is one of the checks of `validation`, as that for values that are not finite is. Tasks of the
context's own, such as fills, have no body on some drivers, and are not looked at on any.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Compared", "Found", "Named", "Noted", "Run", "current"]

OWN = ("fill", "copy", "prefetch", "wait")
current: list[Run] = []  # the run that goes on; at most one


class Found(NamedTuple):
    """How the content of one data differs between two runs.

    Attributes
    ----------
    data : str
    differing : int
        Elements that differ by more than the tolerance.
    size : int
        All elements.
    position : tuple of int
        Of the largest difference.
    one, other : object
        The values there.
    ulp : float
        That difference, in units of the last place of the larger value; infinite if one of them is a NaN alone.
    """

    data: str
    differing: int
    size: int
    position: tuple[int, ...]
    one: Any
    other: Any
    ulp: float


class Run:
    """A run of a program whose tasks are noted, or compared with those of an earlier one.

    Parameters
    ----------
    folder : Path
        Of the first run.
    is_first : bool
    devices : str or None
        Where contexts are, whatever they ask for.
    rtol, atol : float
        Tolerances.
    looked : collection of int, optional
        The numbers of the tasks whose data are looked at; of the others only the names of their data are noted. By
        default these are all.
    """

    def __init__(
        self,
        folder: Path,
        is_first: bool,
        devices: Any,
        rtol: float = 0.0,
        atol: float = 0.0,
        looked: Collection[int] | None = None,
    ) -> None:
        self.looked = looked
        self.folder, self.is_first, self.devices, self.rtol, self.atol = folder, is_first, devices, rtol, atol
        self.lock = threading.Lock()
        self.tasks: list[dict[str, Any]] = []
        self.before: list[dict[str, Any]] = []
        if not is_first:
            import json  # which few programs need, and which takes its time

            self.before = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))

    def check_for(self, task: Any, arrays: Any) -> Any:
        """Return the check of a task whose body is made now; None for a task of the context's own."""
        if task.kind in OWN:
            return None
        with self.lock:
            number = len(self.tasks)
            self.tasks.append({"task": task.label(), "line": task.call_site, "place": task.place_name, "ran": False})
        if self.looked is not None and number not in self.looked:
            return Named(self, number, arrays)
        return (Noted if self.is_first else Compared)(self, number, arrays)

    def end(self) -> None:
        """Keep what was noted."""
        if self.is_first:
            import json

            (self.folder / "tasks.json").write_text(json.dumps(self.tasks), encoding="utf-8")


class Noted:
    """Notes what one task reads and writes.

    Parameters
    ----------
    run : Run
    number : int
        Of the task.
    arrays : list
        For each data its name, its mode, and a function that gives its content on the host.
    """

    def __init__(self, run: Run, number: int, arrays: list[tuple[str, int, Any]]) -> None:
        self.run, self.number, self.arrays = run, number, arrays
        self.told = run.tasks[number]
        self.has_begun = False

    def begin(self) -> None:
        """Look at what the task reads; once."""
        if not self.has_begun:
            self.has_begun = True
            self.told["read"] = [[name, checksum(content())] for name, mode, content in self.arrays if mode != 2]

    def start(self) -> None:
        """The task is started by hand, which changes nothing for this."""

    def undo(self) -> None:
        """The body raised, which is told instead."""
        self.told["failed"] = True

    def __call__(self, _task: Any) -> None:
        """Look at what the task wrote."""
        self.told["written"] = [name for name, mode, _ in self.arrays if mode != 1]
        outputs = self.outputs()
        self.told["kinds"] = [f"{content.dtype} {content.shape}" for content in outputs]
        for position, content in enumerate(outputs):
            self.take(position, content)
        self.told["ran"] = True

    def outputs(self) -> list[Any]:
        """Return what the task wrote."""
        return [content() for _, mode, content in self.arrays if mode != 1]

    def take(self, position: int, content: Any) -> None:
        """Keep an output."""
        raw = np.frombuffer(np.asarray(content).tobytes(), np.uint8)  # without gaps, in the order of the indices
        np.save(self.path(position), raw, allow_pickle=False)

    def path(self, position: int) -> Path:
        """Return the file of an output."""
        return self.run.folder / f"{self.number}-{position}.npy"


class Named(Noted):
    """Notes what one task writes, and not its content."""

    def begin(self) -> None:
        """Look at nothing."""

    def outputs(self) -> list[Any]:
        """Return nothing of what the task wrote."""
        return []


class Compared(Noted):
    """Compares what one task reads and writes with what it did before."""

    def take(self, position: int, content: Any) -> None:
        """Compare an output."""
        path = self.path(position)
        if not path.exists():
            return
        before = np.load(path)
        name = self.told["written"][position]
        one, other = [told["kinds"][position] for told in (self.run.before[self.number], self.told)]
        if one != other:
            self.told.setdefault("found", []).append(Found(name, content.size, content.size, (), one, other, np.inf))
            return
        earlier = before.view(content.dtype).reshape(content.shape) if content.size else content
        found = difference(name, earlier, np.asarray(content, order="C"), self.run.rtol, self.run.atol)
        if found is not None:
            self.told.setdefault("found", []).append(found)


def checksum(content: Any) -> int:
    """Return a checksum of what is in an array, whatever its strides are."""
    array = np.asarray(content)
    raw = array.tobytes()
    if array.dtype.kind in "fc" and array.real.dtype == np.longdouble and np.finfo(np.longdouble).nmant == 63:
        size = array.real.dtype.itemsize  # of which ten bytes are the number; the others hold anything
        raw = np.frombuffer(raw, np.uint8).reshape(-1, size)[:, :10].tobytes()
    return zlib.crc32(raw)


def difference(name: str, one: Any, other: Any, rtol: float, atol: float) -> Found | None:
    """Return how two arrays of a dtype differ; None if they agree within the tolerances.

    Values agree if they differ by at most ``atol + rtol * max(abs(one), abs(other))``. Infinities and NaN agree with
    themselves alone.
    """
    if one.tobytes() == other.tobytes():
        return None
    if one.dtype.kind not in "fciub":
        return Found(name, one.size, one.size, (), "other bytes", "", np.inf)
    with np.errstate(all="ignore"):
        same = are_equal(one, other)
        if one.dtype.kind in "fc":
            gap, largest, unit = distance_of_floats(one, other)
        else:
            gap, largest = distance_of_integers(one, other)
            unit = 1.0
        wrong = ~same & ~((gap <= atol + rtol * largest) & np.isfinite(gap))
        if not wrong.any():
            return None
        ulp = np.where(wrong, (gap / unit).astype(np.float64), -1.0)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(ulp)), ulp.shape))
    return Found(name, int(wrong.sum()), one.size, index, one[index].item(), other[index].item(), float(ulp[index]))


def are_equal(one: Any, other: Any) -> Any:
    """Return where two arrays of a dtype are equal; NaN is equal to NaN, in each part of a complex number alone."""
    if one.dtype.kind == "c":
        return are_equal(one.real, other.real) & are_equal(one.imag, other.imag)
    return np.asarray((one == other) | ((one != one) & (other != other)))


def distance_of_floats(one: Any, other: Any) -> tuple[Any, Any, Any]:
    """Return distances, the larger magnitudes, and the units in their last place; infinite where a value is not finite.

    They are computed in float64, or in long doubles, where these are compared.
    """
    wide = np.result_type(one.dtype, np.complex128 if one.dtype.kind == "c" else np.float64)
    a, b = one.astype(wide), other.astype(wide)
    largest = np.maximum(np.abs(a), np.abs(b))
    gap = np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), np.inf)
    largest = np.minimum(largest, np.finfo(largest.dtype).max)  # of a complex number it may be beyond that
    real = one.real.dtype.type
    kept = largest.astype(real)
    return gap, largest, np.spacing(np.where(np.isfinite(kept), kept, real(1))).astype(largest.dtype)


def distance_of_integers(one: Any, other: Any) -> tuple[Any, Any]:
    """Return exact distances and the larger magnitudes, as long doubles, which hold all of 64 bits where they are wide.

    The distance of any two integers is below 2**64, so that the wrapping difference of 64 bits without a sign is it.
    """
    wide = np.int64 if one.dtype.kind == "i" else np.uint64
    a, b = one.astype(wide), other.astype(wide)
    high, low = np.maximum(a, b).astype(np.uint64), np.minimum(a, b).astype(np.uint64)
    gap = (high - low).astype(np.longdouble)
    return gap, np.maximum(np.abs(a.astype(np.longdouble)), np.abs(b.astype(np.longdouble)))
