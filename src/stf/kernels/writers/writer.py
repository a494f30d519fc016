"""What the writers of all languages share: the order of the parts, how Python calls a body, and a GPU's grid.

`head` opens the function and binds what the body gets. `open_axis` and `close_axis` are around the rest, for each axis.
`element` finds the indices, calls the body, and folds what it returns. `tail` gives the results away. Names begin with
``_stf_``, as no variable of a body does.
"""

from __future__ import annotations

import abc
from typing import Any

from stf.kernels.nest import Axis, LoopNest

__all__ = ["GridWriter", "Lines", "PythonWriter", "Writer"]


class Lines:
    """Lines of a program, and how deep the next one is indented."""

    indent = "    "

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def put(self, *lines: str) -> None:
        """Write lines."""
        self.lines += [self.indent * self.depth + line for line in lines]

    def open(self, line: str) -> None:
        """Write the line that begins a block."""
        self.put(line)
        self.depth += 1

    @property
    def text(self) -> str:
        """All that was written."""
        return "\n".join([*self.lines, ""])


class Writer(Lines, abc.ABC):
    """Writes a nest: the order of the parts, which the languages have in common."""

    def __init__(self, nest: LoopNest) -> None:
        super().__init__()
        self.nest = nest
        self.axes: list[Any] = list(range(len(nest.axes)))
        self.results = range(len(nest.results))
        self.extra = [f"_stf_x{i}" for i in range(nest.extra)]

    def written(self) -> str:
        """Write all parts; return the text."""
        self.head()
        for axis in self.axes:
            self.open_axis(axis)
        self.element()
        for axis in reversed(self.axes):
            self.close_axis(axis)
        self.tail()
        return self.text

    @abc.abstractmethod
    def head(self) -> None:
        """Open the function, and bind what the body gets."""

    @abc.abstractmethod
    def open_axis(self, axis: Any) -> None:
        """Open the loop along an axis."""

    @abc.abstractmethod
    def element(self) -> None:
        """Run the body for the element that the loops are at."""

    def close_axis(self, axis: Any) -> None:
        """End the loop along an axis."""
        self.depth -= 1

    @abc.abstractmethod
    def tail(self) -> None:
        """Give the results away."""


class PythonWriter(Writer):
    """Writes Python, with a placeholder for the body, which reads the same `variables` around it."""

    def __init__(self, nest: LoopNest, variables: tuple[str, ...]) -> None:
        super().__init__(nest)
        self.variables = variables
        self.indices = [f"_stf_i{axis}" for axis in range(len(nest.axes))]
        self.given = self.indices if nest.coordinates is None else [f"_stf_c{i}" for i in range(nest.ndim)]
        self.passed = [f"_stf_g{i}" if i < nest.randoms else name for i, name in enumerate(self.extra)]
        self.values = [f"_stf_a{i}" if kind == "array" else f"_stf_v{i}" for i, kind in enumerate(nest.kinds)]

    def bind(self) -> None:
        """Write the placeholder, and what it gets for data that it does not get as arrays."""
        self.put(f"def _stf_body({', '.join([*self.given, *self.values, *self.extra])}):")
        self.put(f"    return ({''.join(f'{name}, ' for name in self.variables)})")
        for i, kind in enumerate(self.nest.kinds):
            if kind != "array":
                found = f"_stf_a{i}[()]" if kind == "value" else f"_stf_reduced{i}({self.reduced_into(i)})"
                self.put(f"_stf_v{i} = {found}")
        self.put(*[f"_stf_g{i} = _stf_random(_stf_x{i})" for i in range(self.nest.randoms)])

    def reduced_into(self, number: int) -> str:
        """Return the name of what elements are combined in for an array that is reduced into."""
        return f"_stf_a{number}"

    def call(self, index: str, lane: str = "") -> None:
        """Run the body for the element whose last index is `index`, and fold what it returns into results of a lane."""
        where = [*self.given[:-1], index]
        if self.nest.coordinates is not None:
            self.put(f"_stf_c = _stf_coords({index}, *_stf_parameters)")
            one = self.nest.ndim == 1
            self.put(*[f"{name} = _stf_c{'' if one else f'[{i}]'}" for i, name in enumerate(self.given)])
            where = self.given
        found = ", ".join(f"_stf_found{i}" for i in self.results)
        self.put(f"{found and f'{found} = '}_stf_body({', '.join([*where, *self.values, *self.passed])})")
        for i in self.results:
            self.put(f"_stf_r{i}{lane} = _stf_op{i}(_stf_r{i}{lane}, _stf_take{i}(_stf_found{i}))")


class GridWriter(Writer):
    """Writes a kernel whose threads each have an element along x, y and z.

    The last axis of a box is along x; of four the first two are along z. `rows` is how many elements along y a thread
    has, beside each other; 0 for as many elements as there are, a grid apart along each axis.
    """

    quotient = "//"

    def __init__(self, nest: LoopNest, rows: int, *more: Any) -> None:
        super().__init__(nest, *more)
        self.rows = rows
        self.count = len(nest.axes)
        extents = [f"_stf_n{i}" for i in range(self.count)]
        if self.count == 4:
            extents[:2] = ["_stf_n0 * _stf_n1"]
        self.axes = list(zip("zyx"[-len(extents) :], extents, strict=True))  # the slowest first

    def index(self, number: int, axis: Axis) -> str:
        """Return where a thread is along an axis of the box."""
        begin = f"_stf_start{number} + " if axis.start is None else f"{axis.start} + " if axis.start else ""
        if self.count == 4 and number < 2:
            counter = f"_stf_kz {'%' if number else self.quotient} _stf_n1"
        else:
            counter = f"_stf_k{'xyz'[self.count - 1 - number]}"
        return f"{begin}{counter}{f' * _stf_step{number}' if axis.is_strided else ''}"
