"""Native bodies: what of a recorded task runs without Python, as a step of a loop (`_drivers.loops`).

A body is a function ``int(int64_t *slots)``, which finds its arguments behind its first slot, and returns 0. A task may
need several, one stage after the other, and those of a stage in any order, or beside each other. Each launch writes the
slots that depend on its parameters, or on the addresses of its data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

# A loop on a device (`_recording.device_loops`, `kernels.device_loops`) has steps of eight words of four bytes:
#
# 0     the number of a body, or DEVICE_FILL, DEVICE_COPY, DEVICE_NOTHING
# 1, 2  where what it waits for begins, and how many these are
# 3     its own word of those that say what is done; -1 if nobody waits for it
# 4     where its arguments begin, in words of 8 bytes; before those of a kernel come the extents of its grid and blocks
# 5, 6  the first block that it does of a kernel's, and the one behind its last
# 7     how many words of 8 bytes its arguments are; 0 for more than NEAR_WORDS
STEP_WORDS, NEAR_WORDS = 8, 128
LAUNCH_BYTES = 24
DEVICE_FILL, DEVICE_COPY, DEVICE_NOTHING = -1, -2, -3
loop_bodies: dict[int, Any] = {}  # how a loop has a kernel in it, by the address of its function

NOT_RUN = -2  # what a call of a loop tells that looks first whether it is still as planned
FILL, COPY, CALL = "fill", "copy", "call"  # bodies that every driver with loops has


class NotNativeError(Exception):
    """Raised where a task cannot be steps of a loop; the message says what it is."""


class NotThisTimeError(Exception):
    """Raised where a launch cannot be a loop for its values, and the next one may be."""


class Number(NamedTuple):
    """A slot that depends on a parameter: it holds `packed(value)`, which raises NotThisTimeError if that cannot be."""

    slot: int
    argument: int  # of the task's body
    packed: Callable[[Any], int]


class Address(NamedTuple):
    """A slot that holds an address in the memory of an array."""

    slot: int
    argument: int  # of the task's body


class NativeCall(NamedTuple):
    """A step: the address of a function, or the name of one that drivers have; its slots, and which of them change.

    The first slot is the function's own. `step` is the object that a step calls with the GIL.
    """

    body: int | str
    slots: list[int]
    numbers: tuple[Number, ...] = ()
    addresses: tuple[Address, ...] = ()
    step: PythonStep | None = None


class NativeBody(NamedTuple):
    """What a task does: its stages, and about how long a call takes, in ns.

    `learn`, where it is given, is told how long all calls took together: the next plan knows that.
    """

    stages: list[list[NativeCall]]
    cost_ns: float
    learn: Callable[[float], None] | None = None


class PythonStep:
    """A step that calls a function of stf's own with a body's arguments, which takes a few µs and waits for nothing."""

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.fn = fn
        self.args = args
        self.variables: Any = None  # context variables of who launches it, such as NumPy's `errstate`; or None

    def __call__(self) -> None:
        if self.variables is None:
            self.fn(*self.args)
        else:
            self.variables.copy().run(self.fn, *self.args)


PYTHON_NS = 2_000.0  # of such a step, about


def python_call(fn: Callable[..., Any], args: tuple[Any, ...]) -> NativeCall:
    """Return the step that calls a function of Python's."""
    step = PythonStep(fn, args)
    return NativeCall(CALL, [0, id(step)], step=step)


def copies(target: Any, source: Any, addresses: tuple[int, int], cost_ns: float) -> NativeBody:
    """Return the step that copies one replica to another, which takes that long and a ns for each 20 bytes.

    `addresses` are those of both.

    Raises
    ------
    NotNativeError
        They are objects with an interface of their own, or lie so that a copy takes many blocks.
    """
    layout = target.layout
    if layout.interface is not None or source.layout.interface is not None:
        raise NotNativeError("it copies objects with an interface of their own")
    block = block_of(layout.shape, layout.strides, source.layout.strides, layout.itemsize)
    if block is None:
        raise NotNativeError("it copies an array with gaps")
    slots = [0, *addresses, *block]
    call = NativeCall(COPY, slots, addresses=(Address(1, 0), Address(2, 1)))
    return NativeBody([[call]], cost_ns + layout.nbytes / 20)


def block_of(
    shape: tuple[int, ...], target: tuple[int, ...], source: tuple[int, ...], itemsize: int
) -> tuple[int, ...] | None:
    """Return how an array is copied as one block, of two arrays with these strides in bytes; None if it is several.

    That is the width in bytes; rows, and the pitches of both arrays; slices, and theirs.
    """
    if 0 in shape:
        return 0, 0, 0, 0, 0, 0, 0
    axes = sorted(
        [axis for axis in zip(shape, target, source, strict=True) if axis[0] > 1], key=lambda axis: -abs(axis[1])
    )
    width = itemsize
    while axes and axes[-1][1] == axes[-1][2] == width:
        width *= axes.pop()[0]
    if len(axes) > 2:
        return None
    axes = [(1, 0, 0)] * (2 - len(axes)) + axes
    return width, *axes[1], *axes[0]
