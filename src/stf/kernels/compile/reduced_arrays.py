"""Arrays that kernels reduce into, as compilers see them: to read and to write an element is to contribute to it.

What other elements of the loop contribute is not known while it runs. So reading gives a mark, which takes a
contribution, as in ``h[i] += 1``. Writing that combines: on a GPU by an atomic operation, on a CPU in a copy that the
piece of the loop has. All else is refused, on both alike: the result would depend on the number of pieces.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from stf.kernels.compile.contributions import HOW, MARK, READ_OF, taker_of
from stf.kernels.compile.extensions import Extension
from stf.kernels.compile.python import intrinsics

__all__ = ["ATOMIC", "atomic_of", "maker_of", "whole_of"]

ATOMIC = {"sum": "add", "minval": "min", "maxval": "max", "bitwise_and": "and_", "bitwise_or": "or_"}
ATOMIC["bitwise_xor"] = "xor"  # operations of a GPU
FORMS: dict[str, tuple[Any, ...]] = {  # functions of an element and a contribution
    "sum": (operator.add, operator.iadd),
    "product": (operator.mul, operator.imul),
    "minval": (min, np.minimum),
    "maxval": (max, np.maximum),
    "logical_and": (np.logical_and, operator.and_, operator.iand),
    "logical_or": (np.logical_or, operator.or_, operator.ior),
    "bitwise_and": (operator.and_, operator.iand, np.bitwise_and),
    "bitwise_or": (operator.or_, operator.ior, np.bitwise_or),
    "bitwise_xor": (operator.xor, operator.ixor, np.bitwise_xor),
}


class Family(Extension):
    """Types and functions for one of the compilers."""

    def __init__(self, of_gpu: bool) -> None:
        super().__init__(of_gpu)
        types = self.types

        class Reduced(types.Type):  # type: ignore[misc,name-defined]
            """The type of such an array."""

            def __init__(self, array: Any, name: str, checks_bounds: bool) -> None:
                super().__init__(f"Reduced_{name}({array}, {checks_bounds})")
                self.array, self.reducer, self.checks_bounds = array, name, checks_bounds

        class Contribution(types.Type):  # type: ignore[misc,name-defined]
            """What an element is to be combined with; None of what was read, to which nothing contributes yet."""

            def __init__(self, value: Any, name: str, dtype: str) -> None:
                super().__init__(f"{READ_OF}{name}({dtype}, {value})")
                self.value, self.reducer, self.dtype = value, name, dtype

        self.Reduced, self.Contribution = Reduced, Contribution
        self.made_of(Reduced, "array")
        self.made_of(Contribution, "value")
        self.whole = self.getter("array", Reduced)
        self.value = self.getter("value", Contribution)
        self.define_items()
        self.define_shapes()
        for name, functions in FORMS.items():
            for function in functions:
                self.define_form(name, function)
        for function in operator.sub, operator.isub:
            self.define_difference(function)

    def contributed(self, reducer: str, dtype: str) -> Any:
        """Return a function for kernels that makes a contribution of a number, or of None."""
        return self.maker(lambda value: self.Contribution(value, reducer, dtype), "value")

    def is_read(self, kind: Any) -> bool:
        """Return whether a contribution is what was read of an element."""
        return isinstance(kind.value, self.types.NoneType)

    def define_items(self) -> None:
        """Reading gives a mark; writing what came of that combines, and nothing else may be written."""
        family, extending = self, self.extending

        @extending.overload(operator.getitem, strict=False)
        def get_item(reduced: Any, index: Any) -> Any:
            if not isinstance(reduced, family.Reduced):
                return None
            family.must_be_element(reduced, index)
            make = family.contributed(reduced.reducer, str(reduced.array.dtype))
            return lambda reduced, index: make(None)

        @extending.overload(operator.setitem, strict=False)
        def set_item(reduced: Any, index: Any, value: Any) -> Any:
            if not isinstance(reduced, family.Reduced):
                return None
            family.must_be_element(reduced, index)
            if not isinstance(value, family.Contribution) or family.is_read(value):
                raise family.error(
                    f"{MARK}it sets{{where}} an element of an array that stf.reducer.{reduced.reducer} reduces into; "
                    f"write `{HOW[reduced.reducer]}`{MARK}"
                )
            combine, whole, number = family.combining(reduced), family.whole, family.value

            def implementation(reduced: Any, index: Any, value: Any) -> Any:
                combine(whole(reduced), index, number(value))

            return implementation

    def must_be_element(self, reduced: Any, index: Any) -> None:
        """Raise TypeError unless an index is of one element."""
        indices = [*index] if isinstance(index, self.types.BaseTuple) else [index]
        integers = all(isinstance(one, self.types.Integer) for one in indices)
        if not integers or len(indices) != reduced.array.ndim:
            raise self.error(
                f"{MARK}it takes{{where}} more than one element of an array that stf.reducer.{reduced.reducer} reduces "
                f"into; give an index for each of its {reduced.array.ndim} axes{MARK}"
            )

    def combining(self, reduced: Any) -> Any:
        """Return a function for kernels that combines an element of an array with a number."""
        from stf.values.reducers import reducer

        op = getattr(reducer, reduced.reducer)
        scope: dict[str, Any] = {"take": self.taker_for(op.name)(str(reduced.array.dtype))}
        if self.of_gpu:
            scope["cuda"] = intrinsics()
            line = f"cuda.atomic.{ATOMIC[op.name]}(array, index, take(value))"
        else:
            scope["op"] = self.jit(op.of_scalars)
            line = "array[index] = op(array[index], take(value))"
        exec(f"def combine(array, index, value):\n    {line}\n", scope)
        return (
            self.jit(scope["combine"]) if self.of_gpu else self.jit(boundscheck=reduced.checks_bounds)(scope["combine"])
        )

    def define_form(self, name: str, function: Any) -> None:
        """A function of an element and a number, or the other way around, is what the number contributes.

        So ``h[i] = h[i] + a + b`` contributes the sum of both.
        """
        from stf.values.reducers import reducer

        family, op = self, self.jit(getattr(reducer, name).of_scalars)
        take, number = self.taker_for(name), self.value

        @self.extending.overload(function, strict=False)
        def applied(one: Any, other: Any) -> Any:
            read, value = (one, other) if family.is_of(one, name) else (other, one)
            if not family.is_of(read, name) or not isinstance(value, family.types.Number | family.types.Boolean):
                return None
            make, first = family.contributed(name, read.dtype), read is one
            if family.is_read(read):
                if first:
                    return lambda one, other: make(other)
                return lambda one, other: make(one)
            into = take(read.dtype)
            if first:
                return lambda one, other: make(op(into(number(one)), into(other)))
            return lambda one, other: make(op(into(number(other)), into(one)))

    def define_difference(self, function: Any) -> None:
        """A difference of an element and a number is a sum with its negative, of the dtype that is combined in."""
        family, take, number = self, self.taker_for("sum"), self.value

        @self.extending.overload(function, strict=False)
        def applied(one: Any, other: Any) -> Any:
            if not family.is_of(one, "sum") or not isinstance(other, family.types.Number | family.types.Boolean):
                return None
            make, into = family.contributed("sum", one.dtype), take(one.dtype)
            zero = np.dtype(one.dtype).type(0)
            if family.is_read(one):
                return lambda one, other: make(zero - into(other))
            return lambda one, other: make(into(number(one)) - into(other))

    def is_of(self, kind: Any, name: str) -> bool:
        """Return whether a type is of what was read of an array, or is to be combined with it, by an operator."""
        return isinstance(kind, self.Contribution) and kind.reducer == name

    def taker_for(self, name: str) -> Any:
        """Return a function that gives, for a dtype, what converts contributions to it."""
        from stf.kernels import combining  # which imports the rules of contributions
        from stf.values.reducers import reducer

        op = getattr(reducer, name)
        return lambda dtype: taker_of(self.of_gpu, combining.taken_by(op, np.dtype(dtype), np.dtype(dtype)))

    def define_shapes(self) -> None:
        """The extents are those of the array."""
        whole, kind = self.whole, self.Reduced

        @self.extending.overload_attribute(kind, "size", strict=False)
        def size_of(reduced: Any) -> Any:
            return lambda reduced: whole(reduced).size

        @self.extending.overload_attribute(kind, "shape", strict=False)
        def shape_of(reduced: Any) -> Any:
            return lambda reduced: whole(reduced).shape

        @self.extending.overload_attribute(kind, "ndim", strict=False)
        def ndim_of(reduced: Any) -> Any:
            return lambda reduced: whole(reduced).ndim

        @self.extending.overload(len, strict=False)
        def length_of(reduced: Any) -> Any:
            return (lambda reduced: len(whole(reduced))) if isinstance(reduced, kind) else None


family_of = functools.cache(Family)


@functools.cache
def maker_of(of_gpu: bool, name: str, checks_bounds: bool = False) -> Any:
    """Return a function for kernels that makes such an array of an array, for the operator of a name."""
    family = family_of(of_gpu)
    return family.maker(lambda array: family.Reduced(array, name, checks_bounds), "array")


@functools.cache
def atomic_of(name: str) -> Any:
    """Return a function for kernels of a GPU that combines an element of an array with another one."""
    scope: dict[str, Any] = {"cuda": intrinsics()}
    exec(f"def combine(array, index, value):\n    cuda.atomic.{ATOMIC[name]}(array, index, value)\n", scope)
    return family_of(True).jit(scope["combine"])


def whole_of(of_gpu: bool) -> Any:
    """Return a function for kernels that gives the array that such an array is made of."""
    return family_of(of_gpu).whole
