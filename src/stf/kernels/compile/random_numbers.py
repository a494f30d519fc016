"""Random generators as kernels have them: ``g.uniform(i)`` is a function of the generator's key and of an element.

`stf.values.philox` has the arithmetic. A compiler sees the key of a task, in a type of its own, whose methods are
compiled into the kernel.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np

from stf.kernels.compile.contributions import MARK
from stf.kernels.compile.python import intrinsics
from stf.kernels.compile.reduced_arrays import compiler_of
from stf.values import philox

__all__ = ["generator_maker"]

TAGS = [np.uint64((1 << 32) - ndim) for ndim in range(5)]  # in the last word, so that (i, 0) is another element than i
ZERO, MASK, N32 = np.uint64(0), np.uint64(0xFFFFFFFF), np.uint64(32)


def words_at(key: Any, c0: Any, c1: Any, c2: Any, c3: Any, k: Any) -> Any:
    """Return the words of an element: the number of the draw is added to one half of the key."""
    bits = np.uint64(key)
    return philox_of((bits + np.uint64(k)) & MASK, (bits >> N32) & MASK, c0, c1, c2, c3)


def of_one(i: Any) -> Any:
    """Return the counter of an index, which may have 64 bits."""
    e = np.uint64(i)
    return e & MASK, e >> N32, ZERO, TAG


def of_two(i: Any) -> Any:
    """Return the counter of two indices."""
    return np.uint64(i[0]) & MASK, np.uint64(i[1]) & MASK, ZERO, TAG


def of_three(i: Any) -> Any:
    """Return the counter of three indices."""
    return np.uint64(i[0]) & MASK, np.uint64(i[1]) & MASK, np.uint64(i[2]) & MASK, TAG


def of_four(i: Any) -> Any:
    """Return the counter of four indices."""
    return np.uint64(i[0]) & MASK, np.uint64(i[1]) & MASK, np.uint64(i[2]) & MASK, np.uint64(i[3]) & MASK


COUNTERS: tuple[Any, ...] = (of_one, of_two, of_three, of_four)
philox_of: Any = philox.philox
TAG = TAGS[1]


def compiled_functions(jit: Any, arithmetic: dict[str, Any]) -> dict[str, Any]:
    """Return the functions of `philox`, compiled with a compiler's meaning of ``mul``, ``add``, ``where``, ``sqrt``."""
    scope = {**vars(philox), **{name: jit(function) for name, function in arithmetic.items()}}
    for function in philox.FUNCTIONS:
        made = types.FunctionType(function.__code__, scope, function.__name__)  # type: ignore[attr-defined]
        scope[function.__name__] = jit(made)  # type: ignore[attr-defined]
    return scope


def chosen(condition: Any, one: Any, other: Any) -> Any:
    """Return one of two numbers."""
    return one if condition else other


def arithmetic_of(of_gpu: bool) -> dict[str, Any]:
    """Return operations that round each result once."""
    if not of_gpu:
        return {"mul": lambda a, b: a * b, "add": lambda a, b: a + b, "where": chosen, "sqrt": lambda a: np.sqrt(a)}
    intrinsics()
    from numba.cuda import libdevice

    return {
        "mul": lambda a, b: libdevice.dmul_rn(a, b),
        "add": lambda a, b: libdevice.dadd_rn(a, b),
        "where": chosen,
        "sqrt": lambda a: libdevice.dsqrt_rn(a),
    }


class Family:
    """The type of generators, and its methods, for one of the compilers."""

    def __init__(self, of_gpu: bool) -> None:
        extending, kinds, cgutils, models, jit, error = compiler_of(of_gpu)
        if not of_gpu:
            jit = functools.partial(jit, nogil=True, error_model="numpy")
        scope = compiled_functions(jit, arithmetic_of(of_gpu))
        self.scope = {"np": np, "MASK": MASK, "N32": N32, "ZERO": ZERO, "philox_of": scope["philox"]}
        self.jit, self.kinds, self.error = jit, kinds, error

        class Generator(kinds.Type):  # type: ignore[misc,name-defined]
            """The type of a generator."""

            def __init__(self) -> None:
                super().__init__("stf.Random")

        @extending.register_model(Generator)
        class GeneratorModel(models.StructModel):  # type: ignore[misc,name-defined]
            """It is made of the key."""

            def __init__(self, manager: Any, kind: Any) -> None:
                super().__init__(manager, kind, [("key", kinds.int64)])

        kind = Generator()

        @extending.intrinsic
        def make(context: Any, key: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                made = cgutils.create_struct_proxy(kind)(context, builder)
                made.key = args[0]
                return made._getvalue()

            return kind(kinds.int64), code

        @extending.intrinsic
        def key_in(context: Any, generator: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return cgutils.create_struct_proxy(kind)(context, builder, value=args[0]).key

            return kinds.int64(kind), code

        self.make, self.key_in, self.Generator = make, key_in, Generator
        words = jit(types.FunctionType(words_at.__code__, self.scope))

        def let_draw(method: str, first: int) -> None:
            """Let a generator have a method, whose numbers are made of the words from `first` on."""
            number_of = scope[f"{method}_from"]

            @extending.overload_method(Generator, method)
            def drawn_at(generator: Any, i: Any, k: Any = 0) -> Any:
                counter = self.counter_of(i, k, method)

                def implementation(generator: Any, i: Any, k: Any = 0) -> Any:
                    c0, c1, c2, c3 = counter(i)
                    w = words(key_in(generator), c0, c1, c2, c3, k)
                    return number_of(w[first], w[first + 1])

                return implementation

        let_draw("uniform", 0)
        let_draw("normal", 2)

    def counter_of(self, i: Any, k: Any, method: str) -> Any:
        """Return a function that gives the counter of an element; TypeError for what is none."""
        indices = list(i) if isinstance(i, self.kinds.BaseTuple) else [i]
        known = [*indices, *([] if isinstance(k, int) else [k])]
        k_type = getattr(k, "value", k)
        is_known = all(isinstance(one, self.kinds.Integer) for one in indices) and (
            isinstance(k_type, int) or isinstance(k, self.kinds.Integer) or type(k).__name__ == "Omitted"
        )
        if not is_known or not 1 <= len(indices) <= 4:
            given = ", ".join(map(str, known))
            raise self.error(
                f"{MARK}it calls {method}({given}){{where}}, which takes the index of an element, or a tuple of 1 to 4 "
                f"of them, and the number of the draw: g.{method}((i, j), k){MARK}"
            )
        single = not isinstance(i, self.kinds.BaseTuple)
        form = COUNTERS[len(indices) - 1]
        if len(indices) == 1 and not single:
            return self.jit(types.FunctionType(first_of_one.__code__, {**self.scope, "TAG": TAGS[1]}))
        return self.jit(types.FunctionType(form.__code__, {**self.scope, "TAG": TAGS[len(indices)]}))


def first_of_one(i: Any) -> Any:
    """Return the counter of a tuple of one index."""
    e = np.uint64(i[0])
    return e & MASK, e >> N32, ZERO, TAG


family_of = functools.cache(Family)


def generator_maker(of_gpu: bool) -> Any:
    """Return a function for kernels that makes a generator of the key that a kernel gets."""
    return family_of(of_gpu).make
