"""Random numbers of a context: each use of a generator by a task has a number, which is counted in the program's order.

The number and the seed make the key of the task, and a key makes all of the task's numbers. So these depend on the
program alone: not on devices, on the cut of the work, or on the order in which tasks run. A recording is made of tasks
whose keys are parameters; each launch takes new numbers for them, in the order of the tasks. So a replayed function has
the numbers that the function has.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any

import numpy as np

from stf._support.completion import Shown
from stf.errors import CaptureError, ContextClosedError, ContextMismatchError
from stf.values import philox
from stf.values.params import DerivedParam, Param

__all__ = ["Draw", "Random", "generator_of", "must_be_of"]

MASK = (1 << 32) - 1
CHUNK = 1 << 15  # elements that NumPy fills at once, so that what it computes stays in a cache


class Draw:
    """What one task gets of a generator.

    Attributes
    ----------
    key : int or Param
        64 bits, as a signed number; of a recorded task a parameter of its graph.
    of : callable or None
        A reference to the context; None in a capsule.
    """

    def __init__(self, key: Any, of: Any = None) -> None:
        self.key, self.of = key, of  # no tuple, in which a parameter would be hidden

    def __reduce__(self) -> Any:
        return Draw, (self.key,)


class Random(Shown):
    """A generator of random numbers whose numbers depend on the program alone; made by `Context.random`.

    A parameter of a task function that is annotated ``stf.Random`` gets a generator of the library of its arrays:
    ``numpy.random.Generator``, ``cupy.random.Generator``, ``torch.Generator``, or a key of JAX. In `parallel_for` a
    body calls ``g.uniform(i)`` or ``g.normal(i)``, which are functions of the element ``i``; ``i`` is a tuple where
    there are several indices. ``g.uniform(i, k)`` is the draw `k` of an element.

    Attributes
    ----------
    seed : int
    name : str

    Examples
    --------
    >>> @stf.task
    ... def walk(x: stf.ReadWrite, g: stf.Random):
    ...     x += g.normal(size=x.shape)
    >>> def positions():
    ...     with stf.context(devices="cpu:2") as ctx:
    ...         rng = ctx.random(42)
    ...         x = ctx.logical_data_zeros(3)
    ...         for step in range(4):
    ...             walk.on(step % 2)(x, rng)
    ...         return x.numpy().copy()
    >>> bool((positions() == positions()).all())
    True
    """

    _stf_injected = "random"
    _shown = ("context", "name", "normal", "seed", "state", "uniform")

    def __init__(self, context: Any, seed: int, name: str) -> None:
        self._context = weakref.ref(context)
        self.seed, self.name = seed, name
        self._key = philox.key_of(seed, name)
        self._calls = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<stf.Random {self.name!r} of seed {self.seed}, used {self._calls} times>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} belongs to its context; save its state, and make another one by ctx.random")

    @property
    def context(self) -> Any:
        """The context that it belongs to.

        Raises
        ------
        ContextClosedError
            It is gone.
        """
        found = self._context()
        if found is None:
            raise ContextClosedError(f"the context of {self!r} is gone; keep a reference to it")
        return found

    @property
    def state(self) -> dict[str, Any]:
        """What continues the numbers in another run: assign it to the state of a generator of the same seed and name.

        Raises
        ------
        ValueError
            The state that is assigned is that of another seed or name.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     rng = ctx.random(1, name="noise")
        ...     rng.uniform(ctx.logical_data_empty(3))
        ...     print(rng.state)
        {'seed': 1, 'name': 'noise', 'calls': 1}
        """
        return {"seed": self.seed, "name": self.name, "calls": self._calls}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        known = {"seed": self.seed, "name": self.name}
        if not isinstance(state, dict) or {**state, **known} != state or not isinstance(state.get("calls"), int):
            raise ValueError(f"{self!r} takes a state of its own seed and name, got {state!r}")
        self._calls = state["calls"]

    def uniform(self, data: Any, low: Any = 0.0, high: Any = 1.0) -> None:
        """Submit a task that fills data with numbers from `low` up to `high`, which is left out.

        Parameters
        ----------
        data : LogicalData
            Of float32 or float64, with up to 4 axes.
        low, high : float

        Raises
        ------
        TypeError
            `data` is no logical data of such numbers.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_empty(1000)
        ...     ctx.random(1).uniform(x, -1.0, 1.0)
        ...     print(bool(abs(x.numpy()).max() <= 1.0))
        True
        """
        self.context._fill_randomly(self, data, "uniform", float(low), float(high) - float(low))

    def normal(self, data: Any, mean: Any = 0.0, std: Any = 1.0) -> None:
        """Submit a task that fills data with normal numbers.

        Parameters
        ----------
        data : LogicalData
            Of float32 or float64, with up to 4 axes.
        mean, std : float

        Raises
        ------
        TypeError
            `data` is no logical data of such numbers.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x = ctx.logical_data_empty(10000)
        ...     ctx.random(1).normal(x, std=2.0)
        ...     print(round(float(x.numpy().std())))
        2
        """
        self.context._fill_randomly(self, data, "normal", float(mean), float(std))

    def draw(self, context: Any = None) -> Draw:
        """Count one use; return what a task gets for it."""
        if context is not None and context is not self.context:
            raise ContextMismatchError(f"{self!r} belongs to {self.context!r}; make another one by ctx.random")
        scope = self.context.engine.scope
        if not scope.runs_once and scope.thread in (0, threading.get_ident()):
            known = [reference() for reference in self.context._graphs.values()]
            mine = (one for one in known if getattr(getattr(one, "_recorder", None), "scope", None) is scope)
            graph = next(mine, None)
            if graph is None:
                raise CaptureError(
                    f"{self!r} is used in {scope.description}, whose tasks would get the same numbers each time; fill "
                    "data by it before, or write the loop in Python"
                )
            return Draw(graph.draw_at_launch(self), self._context)
        with self._lock:
            number = self._calls
            self._calls += 1
        return Draw(self.key_at(number), self._context)

    def key_at(self, number: int) -> int:
        """Return the key of a use: 64 bits as a signed number."""
        high = ((self._key >> 32) + number) & MASK
        bits = high << 32 | self._key & MASK
        return bits - (1 << 64) if bits >> 63 else bits


def must_be_of(draw: Any, context: Any, label: str) -> None:
    """Raise unless an argument is a draw of a generator that belongs to a context."""
    if type(draw) is not Draw:
        raise TypeError(f"a parameter annotated stf.Random, of task '{label}', takes ctx.random(seed), got {draw!r}")
    if draw.of is not None and draw.of() is not context:
        raise ContextMismatchError(f"task '{label}' takes a generator of another context; make one by ctx.random")


def generator_of(library: str | None, ordinal: int, is_remote: bool, key: Any) -> Any:
    """Return the generator of a task in the library of its arrays, with the key of its `Draw`.

    Of a parameter what makes it in a launch, also of a graph around. For CuPy that is a function, which the body's
    stream must be current for: a kernel sets the generator's state. For a remote place it is one, too: a generator that
    travels would be a copy.
    """
    if issubclass(type(key), Param):  # isinstance takes it for a number
        return DerivedParam(functools.partial(generator_of, library, ordinal, is_remote), (key,))
    if is_remote:
        return functools.partial(generator_there, library, ordinal, key)
    bits = key % (1 << 64)
    if library == "cupy":
        return functools.partial(cupy_generator, bits)
    if library == "torch":
        import torch

        device = "cpu" if ordinal < 0 else f"cuda:{ordinal}"
        return torch.Generator(device=device).manual_seed(bits - (1 << 64) if bits >> 63 else bits)
    if library == "jax":
        import jax

        return jax.random.fold_in(jax.random.key(bits & MASK), bits >> 32)
    if library == "numba" and ordinal >= 0:
        raise TypeError("numba has no generator for a GPU; use parallel_for, or arrays='cupy'")
    return np.random.Generator(np.random.Philox(key=bits))


def generator_there(library: str | None, ordinal: int, key: int) -> Any:
    """Return the generator of a task where its body runs, in another process."""
    made = generator_of(library, ordinal, False, key)
    return made() if library == "cupy" else made


def cupy_generator(bits: int) -> Any:
    """Return a generator of CuPy, whose state is set on the current stream."""
    import cupy

    return cupy.random.Generator(cupy.random.Philox4x3210(seed=bits))


def fill_with_numpy(array: Any, key: int, kind: str, first: float, scale: float) -> None:
    """Fill an array of up to 4 axes with the numbers that kernels have for its elements."""
    flat, bits = array.reshape(-1) if array.flags.c_contiguous else np.empty(array.size, array.dtype), key % (1 << 64)
    k0, k1 = np.uint64(bits & MASK), np.uint64(bits >> 32)
    for start in range(0, array.size, CHUNK):
        e = np.arange(start, min(start + CHUNK, array.size), dtype=np.uint64)
        zero = np.zeros_like(e)
        tag = zero + np.uint64((1 << 32) - max(array.ndim, 1))
        if array.ndim < 2:
            counter = [e & np.uint64(MASK), e >> np.uint64(32), zero, tag]
        else:
            counter = [axis.astype(np.uint64) for axis in np.unravel_index(e.astype(np.int64), array.shape)]
            counter = [*counter, *[zero] * (3 - array.ndim), *[tag] * (array.ndim < 4)]
        w = philox.philox(k0, k1, *counter)
        flat[start : start + e.size] = scaled(w, kind, first, scale, array.dtype == np.float32)
    if not array.flags.c_contiguous:
        array[...] = flat.reshape(array.shape)


def scaled(w: Any, kind: str, first: float, scale: float, is_single: bool) -> Any:
    """Return the numbers of words."""
    if kind == "normal":
        return first + scale * philox.normal_from(w[2], w[3])
    u = philox.uniform_from(w[0], w[1])
    if is_single:  # else it might be rounded up to 1
        u = np.floor(u * 16777216.0) / 16777216.0
    return first + scale * u
