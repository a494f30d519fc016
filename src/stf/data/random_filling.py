"""Generators of random numbers, and data that are filled by them."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from stf._support.arguments import name_of
from stf.data.logical_data import LogicalData
from stf.data.partitioned import PartitionedData
from stf.kernels.parallel_for import parallel_for
from stf.tasks.checks import check_array, must_be_open, task_of_kind
from stf.tasks.placing import settle
from stf.tasks.task import ContextCore
from stf.values.random_numbers import Random, fill_with_numpy

__all__ = ["fill_randomly", "random"]

MOST_AXES = 4


def random(context: ContextCore, seed: int, name: str | None = None) -> Random:
    """Return a generator of random numbers that depend on the program alone.

    The numbers are the same on a CPU and on GPUs, on one device and on several, whatever runs first, and in replayed
    functions. Each task that uses the generator has other numbers. They follow from the seed, the name, and how many
    tasks have used the generator before.

    Parameters
    ----------
    seed : int
        Any integer.
    name : str, optional
        Generators of one seed and other names have other numbers. By default ``"random 1"``, ``"random 2"``, in the
        order of the calls.

    Returns
    -------
    Random
        Pass it to tasks and to `parallel_for`, or fill data by `Random.uniform` and `Random.normal`.

    Raises
    ------
    TypeError
        `seed` is no integer.
    ValueError
        The context has a generator of this seed and name: it would have the same numbers.
    ContextClosedError
        The context was finalized.

    Examples
    --------
    >>> with stf.context(devices="cpu") as ctx:
    ...     rng = ctx.random(42)
    ...     x, y = ctx.logical_data_empty(3), ctx.logical_data_empty(3)
    ...     rng.uniform(x)
    ...     rng.uniform(y)
    ...     print(x.numpy().round(3), y.numpy().round(3))
    [0.209 0.744 0.348] [0.245 0.252 0.951]
    """
    must_be_open(context)
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(f"the seed of ctx.random is an integer, got {seed!r}")
    known = context.randoms
    label = f"random {len(known) + 1}" if name is None else str(name_of(name))
    if (operator.index(seed), label) in known:
        raise ValueError(
            f"{context!r} has a generator {label!r} of seed {seed} already, which would have the same numbers; use "
            "that one, or give another name"
        )
    made = Random(context, operator.index(seed), label)
    known[made.seed, label] = None
    return made


def fill_randomly(context: ContextCore, rng: Random, data: Any, kind: str, first: float, scale: float) -> None:
    """Submit a task that fills data: NumPy's on a host, a kernel on a device; see `Random.uniform`."""
    if not isinstance(data, LogicalData | PartitionedData):
        raise TypeError(f"rng.{kind} fills logical data of one array, got {data!r}")
    check_array(context, data)
    if data.dtype not in (np.float32, np.float64) or data.ndim > MOST_AXES:
        raise TypeError(
            f"rng.{kind} fills data of float32 or float64 with up to {MOST_AXES} axes, got {data!r}; for others, write "
            "a task with a parameter of stf.Random"
        )
    if not isinstance(data, PartitionedData):
        task = task_of_kind(context, "task", [data.write()], kind)
        settle(task)
        if not context.engine.places[task.where].enqueues:
            task.run_queued(fill_with_numpy, (rng.draw().key, kind, first, scale), "numpy")
            return
    body = body_of(kind, data.ndim, data.dtype == np.float32)
    parallel_for(context, data.shape or (1,), data.write(), rng, args=(first, scale), name=kind)(body)


@functools.cache
def body_of(kind: str, ndim: int, is_single: bool) -> Any:
    """Return the body of a kernel that fills an element."""
    indices = [f"i{axis}" for axis in range(max(ndim, 1))]
    where, element = ", ".join(indices), "i0" if ndim < 2 else f"({', '.join(indices)})"
    number = f"g.{kind}({element})"
    if is_single and kind == "uniform":  # else it might be rounded up to 1
        number = f"np.floor({number} * 16777216.0) / 16777216.0"
    text = f"def fill({where}, x, g, first, scale):\n    x[{where if ndim else '()'}] = first + scale * {number}\n"
    namespace: dict[str, Any] = {"np": np}
    exec(text, namespace)
    return namespace["fill"]
