"""The loops of a kernel as data: what runs for which elements, whatever language it is written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stf.kernels.captured import code_key
from stf.kernels.compile.contributions import TakenContribution

__all__ = ["ArrayType", "Axis", "Contribution", "KernelArgument", "LoopNest"]


class ArrayType(NamedTuple):
    """The dtype, number of axes and order of an array, and whether it may be written to."""

    dtype: np.dtype[Any]
    ndim: int
    order: str
    readonly: bool

    def numba_type(self) -> Any:
        """Return the same as Numba's type."""
        from numba import types as kinds
        from numba.np import numpy_support

        return kinds.Array(numpy_support.from_dtype(self.dtype), self.ndim, self.order, readonly=self.readonly)


class KernelArgument(NamedTuple):
    """A value of the body's as parameters of a kernel.

    Attributes
    ----------
    text : str
        The expression that builds it of them.
    names : tuple of str
        The parameters.
    values : tuple
        Numbers, or parameters of a graph.
    constants : tuple of (str, object)
        What the expression names besides, which is compiled in.
    """

    text: str
    names: tuple[str, ...]
    values: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...] = ()


class Contribution(NamedTuple):
    """How a kernel combines what a body returns for a scalar.

    Attributes
    ----------
    item : Reduction
    function : callable
        The operator on two numbers, to be compiled.
    dtype : dtype
        What is combined in.
    taken : TakenContribution
        How contributions are converted to that.
    """

    item: Any
    function: Callable[[Any, Any], Any]
    dtype: np.dtype[Any]
    taken: TakenContribution

    @property
    def neutral(self) -> Any:
        """The number that changes nothing."""
        return np.asarray(self.item.op.neutral(self.dtype), self.dtype)[()]

    @property
    def partials(self) -> ArrayType:
        """The type of an array of results of blocks."""
        return ArrayType(self.dtype, 1, "C", False)


class Axis(NamedTuple):
    """One loop.

    Attributes
    ----------
    start : int or None
        Where it begins, if that is compiled in. A compiler that knows it leaves out what Python's negative indices need
        in ``x[i - 1]``, and makes vector instructions: a third of the time.
    least : int or None
        Where it begins at least, if pieces of it are run: that does the same.
    is_strided : bool
        Whether it may have another step than 1, which compilers do not turn into vector instructions.
    """

    start: int | None
    least: int | None = None
    is_strided: bool = False


class LoopNest(NamedTuple):
    """Loops, of which one kernel is compiled for all bodies and boxes that are alike.

    Attributes
    ----------
    axes : tuple of Axis
        The outermost first.
    ndim : int
        How many indices the body gets.
    kinds : tuple of str
        For each argument that stands for data: ``"array"``, ``"value"`` for the element of a zero-dimensional one, or
        the name of the operator that reduces into the array.
    extra : int
        How many further arguments the body gets.
    results : tuple of Contribution
        What the body returns.
    coordinates : callable or None
        A user's function from the number of an element, along one axis, to its indices.
    randoms : int
        How many of the further arguments, the first, are keys of generators of random numbers.
    private : tuple of (int, int)
        Arrays that are reduced into of which each block of a GPU has a copy in shared memory, with room for so many
        elements.
    alone : tuple of bool
        Where one block of a GPU has all elements and so writes the results itself: for each, whether what was there
        before counts.
    """

    axes: tuple[Axis, ...]
    ndim: int
    kinds: tuple[str, ...]
    extra: int = 0
    results: tuple[Contribution, ...] = ()
    coordinates: Callable[..., Any] | None = None
    randoms: int = 0
    private: tuple[tuple[int, int], ...] = ()
    alone: tuple[bool, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Key of what is compiled; equal for functions that are compiled to the same."""
        results = [(code_key(result.function), result.taken) for result in self.results]
        coordinates = () if self.coordinates is None else code_key(self.coordinates)
        of_gpus = self.randoms, self.private, self.alone
        return self.axes, self.ndim, self.kinds, self.extra, tuple(results), coordinates, *of_gpus

    @property
    def reduced(self) -> list[tuple[int, str]]:
        """The arrays that are reduced into, and the names of the operators."""
        return [(i, kind) for i, kind in enumerate(self.kinds) if kind not in ("array", "value")]

    @property
    def bounds(self) -> list[str]:
        """The integers that a kernel of a GPU gets first.

        These are for each axis its start, if that is not compiled in, its extent, and its step, if there are steps;
        then where the results of the blocks of this launch begin.
        """
        found = []
        for i, axis in enumerate(self.axes):
            found += [f"_stf_start{i}"] if axis.start is None else []
            found += [f"_stf_n{i}"] + ([f"_stf_step{i}"] if axis.is_strided else [])
        return found + (["_stf_base"] if self.results and not self.alone else [])
