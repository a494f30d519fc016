"""Kernels in Python, which numba-cuda compiles for a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from stf.kernels.nest import KernelArgument, LoopNest
from stf.kernels.writers.writer import GridWriter, Lines, PythonWriter

__all__ = ["BLOCK", "NOT_NEGATIVE", "ElementWriter", "combining_text"]

BLOCK = 256  # threads, a power of two
NOT_NEGATIVE = (1 << 62) - 1  # so that the compiler leaves out what Python's negative indices need


class ElementWriter(GridWriter, PythonWriter):
    """Writes ``_stf_kernel(*bounds, *arrays, *results, *numbers)``, of so many `arrays` and these `arguments`."""

    def __init__(
        self, nest: LoopNest, rows: int, variables: tuple[str, ...], arrays: int, arguments: list[KernelArgument]
    ) -> None:
        super().__init__(nest, rows, variables)
        self.arrays, self.arguments = arrays, arguments

    def head(self) -> None:
        arrays = [*[f"_stf_a{i}" for i in range(self.arrays)], *[f"_stf_out{i}" for i in self.results]]
        numbers = [name for one in self.arguments for name in one.names]
        self.open(f"def _stf_kernel({', '.join([*self.nest.bounds, *arrays, *numbers])}):")
        space = [] if self.nest.coordinates is None else ["_stf_parameters"]
        bound = [*self.extra, *self.variables, *space, *[f"_stf_neutral{i}" for i in self.results]]
        named = zip(bound, self.arguments, strict=True)
        self.put(*[f"{name} = {one.text}" for name, one in named if name != one.text])
        self.put(*self.private_copies())
        self.bind()
        for what in "xyz"[: len(self.axes)]:
            times = f"{self.rows} * " if what == "y" and self.rows > 1 else ""
            place = f"{times}_stf_cuda.blockIdx.{what} * _stf_cuda.blockDim.{what} + _stf_cuda.threadIdx.{what}"
            self.put(f"_stf_{what} = ({place}) & {NOT_NEGATIVE}")
            self.put(f"_stf_all_{what} = _stf_cuda.gridDim.{what} * _stf_cuda.blockDim.{what}")
        self.put(*[f"_stf_r{i} = _stf_neutral{i}" for i in self.results])

    def private_copies(self) -> list[str]:
        """Return lines that make the copies of a block, of small arrays that are reduced into."""
        if not self.nest.private:
            return []
        size = "_stf_cuda.blockDim.x * _stf_cuda.blockDim.y * _stf_cuda.blockDim.z"
        lines = [f"_stf_lane = {lane_of(self.count)}", f"_stf_lanes = {size}"]
        for i, room in self.nest.private:
            lines.append(f"_stf_p{i} = _stf_cuda.shared.array({room}, _stf_kind{i})[: _stf_a{i}.size]")
            lines.append(f"for _stf_k in range(_stf_lane, _stf_a{i}.size, _stf_lanes):")
            lines.append(f"    _stf_p{i}[_stf_k] = _stf_zero{i}")
        return [*lines, "_stf_cuda.syncthreads()"]

    def reduced_into(self, number: int) -> str:
        return f"_stf_p{number}" if number in dict(self.nest.private) else super().reduced_into(number)

    def open_axis(self, axis: tuple[str, str]) -> None:
        what, extent = axis
        if what == "y" and self.rows > 1:
            self.open(f"for _stf_row in range({self.rows}):")
            self.put("_stf_ky = _stf_y + _stf_row * _stf_cuda.blockDim.y")
        else:
            self.put(f"_stf_k{what} = _stf_{what}")
        self.open(f"{'if' if self.rows else 'while'} _stf_k{what} < {extent}:")

    def element(self) -> None:
        for number, axis in enumerate(self.nest.axes):
            self.put(f"{self.indices[number]} = {self.index(number, axis)}")
        self.call(self.indices[-1])

    def close_axis(self, axis: tuple[str, str]) -> None:
        what, _ = axis
        if self.rows == 0:
            self.put(f"_stf_k{what} += _stf_all_{what}")
        self.depth -= 2 if what == "y" and self.rows > 1 else 1

    def tail(self) -> None:
        # numba-cuda takes stores to something for dead that is no argument, and that nobody uses later
        self.put(*[f"_stf_whole(_stf_v{i})" for i, _ in self.nest.reduced])
        if self.nest.private:
            self.put("_stf_cuda.syncthreads()")
        for i, _ in self.nest.private:
            self.put(f"for _stf_k in range(_stf_lane, _stf_a{i}.size, _stf_lanes):")
            self.put(f"    if _stf_p{i}[_stf_k] != _stf_zero{i}:")
            self.put(f"        _stf_atomic{i}(_stf_a{i}, _stf_k, _stf_p{i}[_stf_k])")
        if self.results:
            combine_in_block(self, self.results, self.count)
            self.open("if _stf_t == 0:")
            if self.nest.alone:
                write_results(self, self.nest.alone)
                return
            number = "_stf_cuda.blockIdx.y + _stf_cuda.gridDim.y * _stf_cuda.blockIdx.z"
            number = f"_stf_base + _stf_cuda.blockIdx.x + _stf_cuda.gridDim.x * ({number})"
            self.put(*[f"_stf_out{i}[{number}] = _stf_s{i}[0]" for i in self.results])


def lane_of(axes: int) -> str:
    """Return the number of a thread in its block."""
    more = " + _stf_cuda.blockDim.x * (_stf_cuda.threadIdx.y + _stf_cuda.blockDim.y * _stf_cuda.threadIdx.z)"
    return f"_stf_cuda.threadIdx.x{more if axes > 1 else ''}"


def combine_in_block(lines: Lines, results: range, axes: int) -> None:
    """Combine the results of the threads of a block, in a tree."""
    lines.put(f"_stf_t = {lane_of(axes)}")
    for i in results:
        lines.put(f"_stf_s{i} = _stf_cuda.shared.array({BLOCK}, _stf_dtype{i})", f"_stf_s{i}[_stf_t] = _stf_r{i}")
    lines.put("_stf_cuda.syncthreads()", f"_stf_half = {BLOCK // 2}")
    lines.open("while _stf_half > 0:")
    lines.put("if _stf_t < _stf_half:")
    lines.put(
        *[f"    _stf_s{i}[_stf_t] = _stf_op{i}(_stf_s{i}[_stf_t], _stf_s{i}[_stf_t + _stf_half])" for i in results]
    )
    lines.put("_stf_cuda.syncthreads()", "_stf_half //= 2")
    lines.depth -= 1


def combining_text(accumulates: Sequence[bool], neutral: list[KernelArgument]) -> str:
    """Return the text of a kernel of one block that combines the results of blocks into scalars."""
    every, lines = range(len(neutral)), Lines()
    arrays = [f"_stf_{what}{i}" for what in ("a", "out") for i in every]
    lines.open(f"def _stf_kernel({', '.join(['_stf_n', *arrays, *[name for one in neutral for name in one.names]])}):")
    lines.put("_stf_k = _stf_cuda.threadIdx.x", *[f"_stf_r{i} = {one.text}" for i, one in enumerate(neutral)])
    lines.open("while _stf_k < _stf_n:")
    lines.put(*[f"_stf_r{i} = _stf_op{i}(_stf_r{i}, _stf_a{i}[_stf_k])" for i in every], f"_stf_k += {BLOCK}")
    lines.depth -= 1
    combine_in_block(lines, every, 1)
    lines.open("if _stf_t == 0:")
    write_results(lines, accumulates)
    return lines.text


def write_results(lines: Lines, accumulates: Sequence[bool]) -> None:
    """Write what a block combined to scalars, with what was there before where that counts."""
    for i, adds in enumerate(accumulates):
        if adds:
            lines.put(f"_stf_s{i}[0] = _stf_op{i}(_stf_s{i}[0], _stf_out{i}[()])")
        lines.put(f"_stf_out{i}[()] = _stf_s{i}[0]")
