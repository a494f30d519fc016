"""Loops in Python, which Numba compiles for a CPU."""

from __future__ import annotations

from stf.kernels.nest import LoopNest
from stf.kernels.writers.writer import PythonWriter

__all__ = ["LoopWriter"]

LANES = 4  # results that a loop combines side by side, since each waits for the one before


class LoopWriter(PythonWriter):
    """Writes ``_stf_loop(*bounds, *arrays, *extra, *variables, *results)``.

    `bounds` are start, stop and step of each axis. For each operator comes a number to start with and an array of
    results, then the index of these.
    """

    def __init__(self, nest: LoopNest, variables: tuple[str, ...]) -> None:
        super().__init__(nest, variables)
        self.lanes = LANES if nest.results and not nest.axes[-1].is_strided else 1

    def head(self) -> None:
        bounds = [f"_stf_{what}{axis}" for axis in self.axes for what in ("start", "stop", "step")]
        arrays = [f"_stf_a{i}" for i in range(len(self.nest.kinds))]
        space = [] if self.nest.coordinates is None else ["_stf_parameters"]
        results = [f"_stf_{what}{i}" for i in self.results for what in ("neutral", "out")]
        results += ["_stf_block"] if results else []
        self.open(f"def _stf_loop({', '.join([*bounds, *arrays, *self.extra, *self.variables, *space, *results])}):")
        self.bind()
        self.put(*[f"_stf_r{i}_{lane} = _stf_neutral{i}" for i in self.results for lane in range(self.lanes)])

    def open_axis(self, axis: int) -> None:
        first, stop, index, own = f"_stf_first{axis}", f"_stf_stop{axis}", self.indices[axis], self.nest.axes[axis]
        self.put(f"{first} = {f'_stf_start{axis}' if own.start is None else own.start}")
        if own.least is not None:
            self.put(f"{first} = {first} if {first} > {own.least} else {own.least}")
        if self.lanes > 1 and axis == self.axes[-1]:
            self.open(f"for _stf_k in _stf_range(({stop} - {first}) // {self.lanes}):")
            for lane in range(self.lanes):
                self.call(f"{first} + {self.lanes} * _stf_k + {lane}", f"_{lane}")
            self.depth -= 1
            self.put(f"{first} += ({stop} - {first}) // {self.lanes} * {self.lanes} if {stop} > {first} else 0")
        if own.is_strided:
            self.open(f"for {index} in _stf_range({first}, {stop}, _stf_step{axis}):")
        else:  # compilers make vector instructions of numbers that are counted from 0 alone
            self.open(f"for _stf_k{axis} in _stf_range({stop} - {first}):")
            self.put(f"{index} = {first} + _stf_k{axis}")

    def element(self) -> None:
        self.call(self.indices[-1], "_0")

    def tail(self) -> None:
        pairs = [(0, 1), (2, 3), (0, 2)] if self.lanes > 1 else []
        for i in self.results:
            self.put(*[f"_stf_r{i}_{a} = _stf_op{i}(_stf_r{i}_{a}, _stf_r{i}_{b})" for a, b in pairs])
            self.put(f"_stf_out{i}[_stf_block] = _stf_r{i}_0")
