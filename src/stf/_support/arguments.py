"""Checks of arguments: names, times, numbers and truths. Each error says what was got and what to do."""

from __future__ import annotations

import inspect
import math
import operator
import warnings
from typing import Any

import numpy as np

MOST_PRIORITY = 1 << 20  # beyond what devices have


def refuse_generator(decorator: str, fn: Any) -> None:
    """Raise TypeError for a function whose call does not run it."""
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{decorator} decorates an ordinary function, got the coroutine or generator '{fn.__name__}'")


def seconds(timeout: Any) -> float:
    """Return a time to wait, for the engine: negative where there is no end."""
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
    """Return the name that ``name=`` or its other spelling ``symbol=`` gives."""
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
    """Return an option that is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is True or False, got {value!r}")
    return bool(value)


def sequence(name: str, value: Any) -> tuple[Any, ...]:
    """Return an option that is a list or the like."""
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name}= is a list or tuple, got {value!r}")
    return tuple(value)


def priority_of(value: Any) -> int:
    """Return a priority, or raise TypeError for what is none."""
    if not is_integer(value):
        raise TypeError(f"priority is an integer, and a smaller one comes first, got {value!r}")
    return max(-MOST_PRIORITY, min(int(value), MOST_PRIORITY))


def is_integer(value: Any) -> bool:
    """Return whether a value counts something; True and False do not."""
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
