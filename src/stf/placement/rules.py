"""Rules by which places are chosen: what ``stf.context(placement=...)`` takes."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stf.placement.asking import name_of

__all__ = ["Rule", "eft", "owner", "rule_of"]

MOVE_WEIGHT = 2.0


@dataclass(frozen=True)
class Rule:
    """How the places of tasks are chosen; `eft`, `owner`, or a function of the user's.

    Attributes
    ----------
    move_weight : float
        How much more the time of a copy counts than that of a task.
    is_owner : bool
        A task goes where its output is valid, if it is on a device.
    function : callable or None
        ``function(task, places)`` chooses.
    """

    move_weight: float = MOVE_WEIGHT
    is_owner: bool = False
    function: Callable[..., Any] | None = None

    def describe(self) -> str:
        """Return it in words."""
        if self.function is not None:
            return name_of(self.function)
        finish = f"the earliest finish, where copies count {self.move_weight:g} times"
        return f"where its output is valid, else {finish}" if self.is_owner else finish


EARLIEST_FINISH = Rule()


def eft(*, move_weight: float = MOVE_WEIGHT) -> Rule:
    """Return the rule of the earliest finish: a task goes where it would end first. This is what ``"auto"`` means.

    Parameters
    ----------
    move_weight : float, optional
        How many times the time of a copy counts. With more, tasks follow their data, and wait for each other. With 1
        nothing but the end of the task counts.

    Returns
    -------
    Rule
        For ``stf.context(placement=...)``.

    Raises
    ------
    TypeError
        The weight is no number.
    ValueError
        It is negative, or no finite number.

    Examples
    --------
    >>> with stf.context(devices="cpu:2", placement=stf.placement.eft(move_weight=4)) as ctx:
    ...     x = ctx.logical_data_zeros(3)
    ...     ctx.task(x.rw())(lambda x: x + 1)
    ...     print(x.numpy())
    [1. 1. 1.]
    """
    return Rule(checked(move_weight))


def owner(*, move_weight: float = MOVE_WEIGHT) -> Rule:
    """Return the rule of the owner: a task goes where the first data that it writes are valid.

    Where they are on no device yet, the earliest finish decides, with that `move_weight`. So the first tasks that write
    them spread data over the devices, or tasks that name their place do.

    Returns
    -------
    Rule
        For ``stf.context(placement=...)``.

    Raises
    ------
    TypeError
        The weight is no number.
    ValueError
        It is negative, or no finite number.

    Examples
    --------
    >>> with stf.context(devices="cpu:2", placement=stf.placement.owner()) as ctx:
    ...     x, y = ctx.logical_data_zeros(3), ctx.logical_data_zeros(3)
    ...     ctx.task(1, x.write())(lambda x: x + 1)
    ...     with ctx.task("auto", x.rw(), y.read()) as t:  # here, since x is here
    ...         print(t.place)
    exec_place.device(1)
    """
    return Rule(checked(move_weight), is_owner=True)


def checked(move_weight: Any) -> float:
    """Return a weight, or raise for what is none."""
    if isinstance(move_weight, bool) or not isinstance(move_weight, numbers.Real):
        raise TypeError(f"move_weight is a number, got {move_weight!r}")
    weight = float(move_weight)
    if not 0 <= weight < math.inf:
        raise ValueError(f"move_weight is finite and not negative, got {move_weight!r}")
    return weight


def rule_of(given: Any) -> Rule:
    """Return the rule that ``placement=`` means; raise TypeError for what is none."""
    if given is None:
        return EARLIEST_FINISH
    if isinstance(given, Rule):
        return given
    if callable(given) and not isinstance(given, type):
        if given in (eft, owner):
            raise TypeError(
                f"placement takes a rule, got the function {given.__name__}; say stf.placement.{given.__name__}()"
            )
        return Rule(function=given)
    raise TypeError(
        f"placement is stf.placement.eft(), stf.placement.owner(), or a function choose(task, places), got {given!r}"
    )
