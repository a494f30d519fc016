"""Kernels as parts of one that stays on a device: the bodies of a recorded program, and a loop over their blocks.

A graph of the driver's costs each kernel of it 0.2 to 1 µs, however small it is. Here one launch runs them all. Each of
its blocks has a queue of steps, and a step is some blocks of a kernel that was recorded. It is done when all
steps are that it waits for, which blocks tell each other by words in the device's memory::

    recorded launch ──▶ `LoopBody`: the kernel's text, told which block it is ──▶ one kernel, a branch for each body
                                                                                  │ `_recording.device_loops` gives it
                                                                                  ▼ queues, and a table of arguments

The text of a body is that of the kernel; only the numbers of its block and thread come from a step. So a block of the
loop may have more threads than a kernel had, and the others do nothing; but a kernel whose threads wait for each other
needs as many.

Times on an H200, of 10⁵ steps of 64 elements in a stencil (`benchmarks/cuda/device_loops.py`): 1.3 ms with one column
for each multiprocessor and 0.5 with four; graphs of the driver's take 33 and 23 ms. The bound is the hop: written, seen
by the other block, and its data read are 1.7 µs; so a step in a chain, which stays in its block, takes 0.8. Arguments
are fetched while a step waits, which gains 0.3 of these.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stf._port.native import DEVICE_COPY, DEVICE_FILL, LAUNCH_BYTES, NEAR_WORDS, STEP_WORDS, NotNativeError
from stf.kernels.arguments import ARRAY_FIELDS
from stf.kernels.captured import NotKeptError, text_of
from stf.kernels.compile.addresses import argument_reader, words
from stf.kernels.compile.python import compile_python, intrinsics
from stf.kernels.nest import ArrayType
from stf.kernels.plans import seen_by
from stf.kernels.writers.writer import Lines

__all__ = ["LoopBody"]

GEOMETRY = re.compile(r"_stf_cuda\.(?=(?:blockIdx|gridDim|threadIdx|blockDim)\b)")
HEAD = "def _stf_kernel("
ENTRY = re.compile(rb"(\.entry\s+stf_loop\s*\([^)]*\))\s*\{")
PATIENCE = (1 << 20) - 1  # looks at a word before one at the clock
images: dict[Any, bytes] = {}  # machine code of loops, by their bodies and the device


class Extents(NamedTuple):
    """Three numbers, as a kernel has them."""

    x: Any
    y: Any
    z: Any


class Position(NamedTuple):
    """Which block and thread a body is."""

    blockIdx: Any  # the names of CUDA
    gridDim: Any
    threadIdx: Any
    blockDim: Any


class LoopBody:
    """A kernel as a part of a loop.

    Attributes
    ----------
    text : str
        The kernel's text.
    make : callable
        What makes a function of a text, as the kernel was made.
    parameters : list of ArrayType or dtype
        Of the kernel.
    offsets : list of int
        Where the parts of the arguments lie.
    waits : bool
        Its threads wait for each other.
    key : bytes or None
        What the machine code depends on; None if another process cannot know it.
    reads_cuda : bool
        The user's body reads names of numba.cuda, which tell of the loop's threads and not of its own.
    read_only : frozenset of int
        Where the addresses of arrays lie that it only reads.
    """

    def __init__(
        self, text: str, make: Callable[[str], Any], parameters: list[Any], offsets: list[int], key: Any, body: Any
    ) -> None:
        self.text, self.make, self.parameters, self.offsets = text, make, parameters, offsets
        self.waits = "syncthreads" in text
        self.key = key
        self.read_only = frozenset(
            parts[4]
            for one, parts in zip(parameters, self.parts(), strict=True)
            if isinstance(one, ArrayType) and one.readonly
        )
        self.reads_cuda = body is not None and reads_cuda(body)

    def parts(self) -> list[list[int]]:
        """Return where the parts of each argument lie."""
        found, at = [], 0
        for one in self.parameters:
            count = ARRAY_FIELDS + 2 * one.ndim if isinstance(one, ArrayType) else 1
            found.append(self.offsets[at : at + count])
            at += count
        return found

    def function(self) -> Any:
        """Return the function that also gets its `Position`, first."""
        text = GEOMETRY.sub("_stf_at.", self.text).replace(HEAD, f"{HEAD}_stf_at, ", 1)
        return intrinsics().jit(device=True)(self.make(text))

    def readers(self) -> list[Any]:
        """Return a function for each argument, which reads it from where the arguments of a launch begin."""
        return [
            argument_reader(kind, [LAUNCH_BYTES + offset for offset in parts])
            for kind, parts in zip(kinds_of(self.parameters), self.parts(), strict=True)
        ]

    @staticmethod
    def image(bodies: Sequence[LoopBody], threads: int, capability: tuple[int, int]) -> bytes:
        """Return the machine code of a loop over these bodies, in blocks of so many threads.

        Raises
        ------
        NotNativeError
            It cannot be compiled.
        """
        key = (*map(id, bodies), threads, capability)
        found = images.get(key)
        if found is None:
            text = loop_text(bodies, threads)
            try:
                kept = None if any(body.key is None for body in bodies) else text_of((text, *[b.key for b in bodies]))
            except NotKeptError:
                kept = None

            def made() -> tuple[Any, tuple[Any, ...]]:
                scope = scope_of(bodies)
                exec(compile(text, "<loop on a device>", "exec"), scope)
                return scope["_stf_kernel"], kinds_of([np.dtype(np.int64)] * 7)

            try:
                found = compile_python(made, capability, "stf_loop", kept)
            except Exception as error:
                raise NotNativeError(f"its bodies do not compile as one kernel: {error}") from error
            found = images[key] = with_bound(found, threads)
        return found


def reads_cuda(body: Any) -> bool:
    """Return whether a function, or one that it calls, reads names of numba.cuda; True where that is not known."""
    try:
        return any(is_of_cuda(value) for _, _, value in seen_by(body, set(), None))
    except ValueError:  # a variable around one of them has no value yet
        return True


def is_of_cuda(value: Any) -> bool:
    """Return whether a value is numba.cuda, or comes from there."""
    of = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    found = (of, type(value).__module__)
    return any(isinstance(one, str) and one.startswith(("numba.cuda", "numba_cuda")) for one in found)


def with_bound(image: bytes, threads: int) -> bytes:
    """Return PTX that says how many threads a block has, so that as many get registers; other code as it is."""
    return ENTRY.sub(rb"\1\n.maxntid %d, 1, 1\n{" % threads, image, count=1)


def kinds_of(parameters: list[Any]) -> tuple[Any, ...]:
    """Return the parameters of a kernel as Numba's types."""
    from numba.np.numpy_support import from_dtype

    return tuple(one.numba_type() if isinstance(one, ArrayType) else from_dtype(one) for one in parameters)


def scope_of(bodies: Sequence[LoopBody]) -> dict[str, Any]:
    """Return the global variables of a loop."""
    cuda = intrinsics()
    scope: dict[str, Any] = {f"_stf_{name}": value for name, value in words().items()}
    scope |= {
        "_stf_cuda": cuda,
        "_stf_int32": np.int32,
        "_stf_int64": np.int64,
        "_stf_Extents": Extents,
        "_stf_Position": Position,
    }
    for number, body in enumerate(bodies):
        scope[f"_stf_body{number}"] = body.function()
        scope |= {f"_stf_read{number}_{i}": reader for i, reader in enumerate(body.readers())}
    for name, text in (("_stf_fill", FILL), ("_stf_copy", COPY)):
        exec(text, scope)
        scope[name] = cuda.jit(device=True)(scope[name])
    return scope


# The words of a step, and of what it does, are told in `stf._port.native`.

FILL = """
def _stf_fill(_stf_a, _stf_first, _stf_last, _stf_lane, _stf_lanes):
    _stf_target = _stf_load_word(_stf_a)
    _stf_count = _stf_load_word(_stf_a + 8)
    _stf_begin = _stf_first * _stf_load_word(_stf_a + 16)
    _stf_end = min(_stf_last * _stf_load_word(_stf_a + 16), _stf_count)
    _stf_value = _stf_load_word(_stf_a + 24)
    if _stf_load_word(_stf_a + 32) == 8:
        for _stf_i in range(_stf_begin + _stf_lane, _stf_end, _stf_lanes):
            _stf_store_word(_stf_target + 8 * _stf_i, _stf_value)
    else:
        for _stf_i in range(_stf_begin + _stf_lane, _stf_end, _stf_lanes):
            _stf_store_byte(_stf_target + _stf_i, (_stf_value >> (8 * (_stf_i & 7))) & 255)
"""
COPY = """
def _stf_copy(_stf_a, _stf_first, _stf_last, _stf_lane, _stf_lanes):
    _stf_target = _stf_load_word(_stf_a)
    _stf_source = _stf_load_word(_stf_a + 8)
    _stf_begin = _stf_first * _stf_load_word(_stf_a + 16)
    _stf_unit = _stf_load_word(_stf_a + 24)
    _stf_width = _stf_load_word(_stf_a + 32)
    _stf_rows = _stf_load_word(_stf_a + 40)
    _stf_slices = _stf_load_word(_stf_a + 64)
    _stf_end = min(_stf_last * _stf_load_word(_stf_a + 16), _stf_width * _stf_rows * _stf_slices)
    for _stf_i in range(_stf_begin + _stf_lane, _stf_end, _stf_lanes):
        _stf_row = _stf_i // _stf_width
        _stf_slice = _stf_row // _stf_rows
        _stf_along = (_stf_i - _stf_row * _stf_width) * _stf_unit
        _stf_row -= _stf_slice * _stf_rows
        _stf_to = _stf_target + _stf_along + _stf_row * _stf_load_word(_stf_a + 48)
        _stf_from = _stf_source + _stf_along + _stf_row * _stf_load_word(_stf_a + 56)
        _stf_to += _stf_slice * _stf_load_word(_stf_a + 72)
        _stf_from += _stf_slice * _stf_load_word(_stf_a + 80)
        if _stf_unit == 8:
            _stf_store_word(_stf_to, _stf_load_word(_stf_from))
        else:
            _stf_store_byte(_stf_to, _stf_load_byte(_stf_from))
"""


def loop_text(bodies: Sequence[LoopBody], threads: int) -> str:
    """Return the text of a loop.

    Its arguments are addresses: of each block's first and last step, of the steps, of what these wait for, of the words
    that say what is done, of the table of arguments, and of its own two words. The last is how long a block waits, in
    ns, before it stops the device with an error: a loop that is wrong hangs nobody.
    """
    lines = Lines()
    put = lines.put
    lines.open("def _stf_kernel(_stf_queues, _stf_steps, _stf_waits, _stf_done, _stf_table, _stf_state, _stf_limit):")
    put("_stf_lane = _stf_cuda.threadIdx.x")
    put(f"_stf_near = _stf_cuda.shared.array({2 * STEP_WORDS}, _stf_int32)")  # this step and the next
    put("_stf_value = _stf_int32(_stf_load(_stf_state) + 1)", "_stf_queue = _stf_queues + 8 * _stf_cuda.blockIdx.x")
    put("_stf_p = _stf_load(_stf_queue)", "_stf_last = _stf_load(_stf_queue + 4)")
    put(f"if _stf_lane < {STEP_WORDS} and _stf_p < _stf_last:")
    put(f"    _stf_near[_stf_lane] = _stf_load(_stf_steps + {4 * STEP_WORDS} * _stf_p + 4 * _stf_lane)")
    put(f"_stf_given = _stf_cuda.shared.array({NEAR_WORDS}, _stf_int64)", "_stf_cuda.syncthreads()", "_stf_now = 0")
    lines.open("while _stf_p < _stf_last:")
    put("_stf_a = _stf_table + 8 * _stf_near[_stf_now + 4]")
    lines.open(f"for _stf_k in range(_stf_lane, _stf_near[_stf_now + 7], {threads}):")  # while the step has to wait
    put("_stf_given[_stf_k] = _stf_load_word(_stf_a + 8 * _stf_k)")
    lines.depth -= 1
    lines.open(f"for _stf_k in range(_stf_lane, _stf_near[_stf_now + 2], {threads}):")
    put("_stf_byte = _stf_done + 4 * _stf_load(_stf_waits + 4 * (_stf_near[_stf_now + 1] + _stf_k))", "_stf_looks = 0")
    put("_stf_since = _stf_limit - _stf_limit")
    lines.open("while _stf_acquire(_stf_byte) != _stf_value:")
    put("_stf_looks += 1", f"if _stf_looks & {PATIENCE} == 0:")
    put("    if _stf_since == 0:", "        _stf_since = _stf_clock()")
    put("    elif _stf_clock() - _stf_since > _stf_limit:", "        _stf_trap()")
    lines.depth -= 2
    put(f"_stf_k = _stf_lane - {threads - STEP_WORDS}", "if _stf_k >= 0 and _stf_p + 1 < _stf_last:")
    put(
        f"    _stf_near[({STEP_WORDS} - _stf_now) + _stf_k] = "
        f"_stf_load(_stf_steps + {4 * STEP_WORDS} * (_stf_p + 1) + 4 * _stf_k)"
    )
    put("_stf_cuda.syncthreads()")
    put("_stf_kind = _stf_near[_stf_now]", "_stf_mine = _stf_near[_stf_now + 3]")
    put("if _stf_near[_stf_now + 7] > 0:", "    _stf_a = _stf_address(_stf_given)")
    put("_stf_first = _stf_near[_stf_now + 5]", "_stf_end = _stf_near[_stf_now + 6]")
    for number, body in enumerate(bodies):
        lines.open(f"{'el' if number else ''}if _stf_kind == {number}:")
        call_body(lines, number, body)
        lines.depth -= 1
    branch = "elif" if bodies else "if"
    for kind, name in ((DEVICE_FILL, "fill"), (DEVICE_COPY, "copy")):
        put(f"{branch} _stf_kind == {kind}:")
        put(f"    _stf_{name}(_stf_a, _stf_first, _stf_end, _stf_lane, {threads})")
        branch = "elif"
    put("_stf_cuda.syncthreads()", "if _stf_lane == 0 and _stf_mine >= 0:")
    put("    _stf_release(_stf_done + 4 * _stf_mine, _stf_value)")
    put(f"_stf_now = {STEP_WORDS} - _stf_now", "_stf_p += 1")
    lines.depth -= 1
    lines.open("if _stf_lane == 0 and _stf_count(_stf_state + 4) == _stf_cuda.gridDim.x - 1:")
    put("_stf_store(_stf_state + 4, 0)", "_stf_store(_stf_state, _stf_value)")  # the last block of all
    return lines.text


def call_body(lines: Lines, number: int, body: LoopBody) -> None:
    """Write the calls of a body, for each of the blocks of a step."""
    put = lines.put
    for i, name in enumerate(("gx", "gy", "gz", "bx", "by", "bz")):
        put(f"_stf_{name} = _stf_load(_stf_a + {4 * i})")
    put("_stf_ty = 0", "_stf_tz = 0", "_stf_tx = _stf_lane")
    put("if _stf_by * _stf_bz > 1:", "    _stf_ty = _stf_tx // _stf_bx", "    _stf_tx -= _stf_ty * _stf_bx")
    put("    _stf_tz = _stf_ty // _stf_by", "    _stf_ty -= _stf_tz * _stf_by")
    lines.open("if _stf_lane < _stf_bx * _stf_by * _stf_bz:")
    lines.open("for _stf_b in range(_stf_first, _stf_end):")
    put("_stf_y = 0", "_stf_z = 0", "_stf_x = _stf_b")
    put("if _stf_gy * _stf_gz > 1:", "    _stf_y = _stf_x // _stf_gx", "    _stf_x -= _stf_y * _stf_gx")
    put("    _stf_z = _stf_y // _stf_gy", "    _stf_y -= _stf_z * _stf_gy")
    at = ", ".join(f"_stf_Extents(_stf_{of}x, _stf_{of}y, _stf_{of}z)" for of in ("", "g", "t", "b"))
    arguments = "".join(f", _stf_read{number}_{i}(_stf_a)" for i in range(len(body.parameters)))
    put(f"_stf_body{number}(_stf_Position({at}){arguments})")
    if body.waits:
        put("_stf_cuda.syncthreads()")  # what threads share in a block is free again
    lines.depth -= 2
