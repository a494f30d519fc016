"""What the options of a context, and names and times, may be: each check says what was got and what to do."""

from __future__ import annotations

import inspect
import math
import operator
import sys
import warnings
from typing import Any

import numpy as np

from stf._port.late_values import Asked
from stf.devices.spec import Resources

MAX_PENDING = 8192
MOST_PENDING = (1 << 31) - 1  # as the engine counts them


def check_graphs(use_graph: Any, graph: Any, stream: Any) -> None:
    """Raise TypeError unless these options go together."""
    if not isinstance(use_graph, (bool, np.bool_)):
        raise TypeError(f"use_graph is True or False, got {use_graph!r}; devices= says where tasks run")
    if graph is not None and stream is not None:
        raise TypeError("graph= and stream= both say where the work goes; give one of them")


def refuse_generator(decorator: str, fn: Any) -> None:
    """Raise TypeError for a function whose call does not run it."""
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{decorator} decorates an ordinary function, got the coroutine or generator '{fn.__name__}'")


def count_of(count: Any) -> int:
    """How often something is done."""
    if not is_integer(count):
        hint = "; a while_loop may compare data with it: ctx.while_loop(n < a)" if isinstance(count, Asked) else ""
        raise TypeError(f"a number of times is an integer, got {count!r}{hint}")
    if int(count) < 0:
        raise ValueError(f"a number of times is not negative, got {count}")
    return int(count)


def check_resources(resources: Any) -> None:
    """Raise unless `resources` is what contexts share."""
    if resources is not None and not isinstance(resources, Resources):
        raise TypeError(
            f"resources is what contexts share, got {resources!r}; make it once with stf.Resources(), pass it to each"
        )


def pending_limit(max_pending: Any) -> int:
    """How many bodies may be in flight."""
    if max_pending is None:
        return MAX_PENDING
    hint = f"leave it out for {MAX_PENDING:,}"
    if not is_integer(max_pending):
        raise TypeError(f"max_pending is a positive number of tasks, got {max_pending!r}; {hint}")
    if int(max_pending) < 1:
        raise ValueError(f"max_pending is a positive number of tasks, got {max_pending}; {hint}")
    return min(int(max_pending), MOST_PENDING)


def memory_bound(memory_limit: Any) -> int:
    """Bytes that replicas on a device may take; 0 for no bound."""
    if memory_limit is None:
        return 0
    if not is_integer(memory_limit):
        raise TypeError(
            f"memory_limit is a positive number of bytes, got {memory_limit!r}; pass an integer such as 10**9 (only "
            "the variable STF_MEMORY_LIMIT takes text such as 1GB)"
        )
    if int(memory_limit) <= 0:
        raise ValueError(f"memory_limit is a positive number of bytes, got {memory_limit}; leave it out for no limit")
    return min(int(memory_limit), sys.maxsize)


def seconds(timeout: Any) -> float:
    """A time to wait, for the engine: negative where there is no end."""
    if timeout is None:
        return -1.0
    hint = "leave it out to wait as long as it takes"
    try:
        value = math.nan if isinstance(timeout, (str, bytes)) else float(timeout)
    except (TypeError, ValueError):
        value = math.nan
    if math.isnan(value):
        raise TypeError(f"timeout is a number of seconds, got {timeout!r}; {hint}")
    if value < 0:
        raise ValueError(f"timeout is a number of seconds from 0 on, got {timeout!r}; {hint}")
    return -1.0 if math.isinf(value) else value


def name_of(name: Any, symbol: Any = None) -> str | None:
    """The name that ``name=`` or its other spelling ``symbol=`` gives."""
    chosen = symbol if name is None else name
    if chosen is None:
        return None
    if not isinstance(chosen, str):
        refuse_name(chosen)
    return str(chosen)


def refuse_name(name: Any) -> None:
    """Raise for a name that is no text."""
    raise TypeError(f"a name is text, got {name!r}; use name={str(name)!r}")


def truth(name: str, value: Any) -> bool:
    """An option that is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is True or False, got {value!r}")
    return bool(value)


def sequence(name: str, value: Any) -> tuple[Any, ...]:
    """An option that is a list or the like."""
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name}= is a list or tuple, got {value!r}")
    return tuple(value)


def is_integer(value: Any) -> bool:
    """Whether a value counts something; True and False do not."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool)


def warn_bare(label: str, site: str) -> None:
    """A builder that was dropped without a body is a mistake."""
    warnings.warn(
        f"task {label} built at {site} was given no body; call it with one, or use it in a with-block",
        RuntimeWarning,
        stacklevel=2,
    )
