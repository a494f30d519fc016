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
from stf.kernels.compile.extensions import Extension
from stf.kernels.compile.python import intrinsics
from stf.values import philox

__all__ = ["generator_maker"]

TAGS = [np.uint64((1 << 32) - ndim) for ndim in range(5)]  # in the last word, so that (i, 0) is another element than i
ZERO, MASK, N32 = np.uint64(0), np.uint64(0xFFFFFFFF), np.uint64(32)


def words_at(key: Any, c0: Any, c1: Any, c2: Any, c3: Any, k: Any) -> Any:
    """Return the words of an element: the number of the draw is added to one half of the key."""
    bits = np.uint64(key)
    return philox_of((bits + np.uint64(k)) & MASK, (bits >> N32) & MASK, c0, c1, c2, c3)


philox_of: Any = philox.philox


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


class Family(Extension):
    """The type of generators, and its methods, for one of the compilers."""

    def __init__(self, of_gpu: bool) -> None:
        super().__init__(of_gpu)
        extending, kinds = self.extending, self.types
        if not of_gpu:
            self.jit = functools.partial(self.jit, nogil=True, error_model="numpy")
        jit = self.jit
        scope = compiled_functions(jit, arithmetic_of(of_gpu))
        self.scope = {"np": np, "MASK": MASK, "N32": N32, "ZERO": ZERO, "philox_of": scope["philox"]}

        class Generator(kinds.Type):  # type: ignore[misc,name-defined]
            """The type of a generator, which is made of the key."""

            bits = kinds.int64

            def __init__(self) -> None:
                super().__init__("stf.Random")

        self.made_of(Generator, "bits")
        self.make = self.maker(lambda bits: Generator(), "bits")
        key_in = self.getter("bits", Generator)
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
        indices = list(i) if isinstance(i, self.types.BaseTuple) else [i]
        known = [*indices, *([] if isinstance(k, int) else [k])]
        k_type = getattr(k, "value", k)
        is_known = all(isinstance(one, self.types.Integer) for one in indices) and (
            isinstance(k_type, int) or isinstance(k, self.types.Integer) or type(k).__name__ == "Omitted"
        )
        if not is_known or not 1 <= len(indices) <= 4:
            given = ", ".join(map(str, known))
            raise self.error(
                f"{MARK}it calls {method}({given}){{where}}, which takes the index of an element, or a tuple of 1 to 4 "
                f"of them, and the number of the draw: g.{method}((i, j), k){MARK}"
            )
        words = [f"np.uint64(i[{axis}]) & MASK" for axis in range(len(indices))]
        if len(indices) == 1:  # which may have 64 bits
            one = "np.uint64(i[0])" if isinstance(i, self.types.BaseTuple) else "np.uint64(i)"
            words = [f"{one} & MASK", f"{one} >> N32"]
        words += [*["ZERO"] * (3 - len(words)), *["TAG"] * (len(indices) < 4)]
        scope = {**self.scope, "TAG": TAGS[len(indices)]}
        exec(f"def counter(i):\n    return {', '.join(words)}\n", scope)
        return self.jit(scope["counter"])


family_of = functools.cache(Family)


def generator_maker(of_gpu: bool) -> Any:
    """Return a function for kernels that makes a generator of the key that a kernel gets."""
    return family_of(of_gpu).make
