"""Rules by which places are chosen: what ``stf.context(placement=...)`` takes."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stf.placement.asking import name_of

__all__ = ["Rule", "eft", "owner", "planned", "rule_of"]

MOVE_WEIGHT = 2.0
PLANNED_WEIGHT = 4.0
WINDOW = 256


@dataclass(frozen=True)
class Rule:
    """How the places of tasks are chosen; `eft`, `planned`, `owner`, or a function of the user's.

    Attributes
    ----------
    move_weight : float
        How much more the time of a copy counts than that of a task.
    is_owner : bool
        A task goes where its output is valid, if it is on a device.
    function : callable or None
        ``function(task, places)`` chooses.
    window : int
        How many tasks are held, and planned together; 0 where each is placed when it is submitted.
    model : Calibration, str, path or None
        How long tasks and copies take.
    """

    move_weight: float = MOVE_WEIGHT
    is_owner: bool = False
    function: Callable[..., Any] | None = None
    window: int = 0
    model: Any = None

    def describe(self) -> str:
        """Return it in words."""
        if self.function is not None:
            return name_of(self.function)
        finish = f"the earliest finish, where copies count {self.move_weight:g} times"
        if self.window:
            return f"a plan of up to {self.window} tasks, the most urgent first: {finish}"
        return f"where its output is valid, else {finish}" if self.is_owner else finish


EARLIEST_FINISH = Rule()


def eft(*, move_weight: float = MOVE_WEIGHT, model: Any = None) -> Rule:
    """Return the rule of the earliest finish: a task goes where it would end first. This is what ``"auto"`` means.

    Parameters
    ----------
    move_weight : float, optional
        How many times the time of a copy counts. With more, tasks follow their data, and wait for each other. With 1
        nothing but the end of the task counts.
    model : Calibration, str or path, optional
        What `Context.calibrate` has measured, or the file of it: how long tasks and copies take from the start. Without
        it a task of which nothing is known counts by the bytes of its data, and tasks are measured as they run: the
        first eight of a function and a size, then one of 64. On a GPU, events around the work of a body measure it.

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
    return Rule(checked(move_weight), model=model)


def planned(window: int = WINDOW, move_weight: float = PLANNED_WEIGHT, *, model: Any = None) -> Rule:
    """Return the rule of the plan: tasks are held, and placed and ordered together, the most urgent first.

    Task functions, kernels and `parallel_for` without a place do not begin in their calls. They begin when so many are
    held, or when anything needs them: a wait, a with-block, a copy, a task that names its place, or 200 µs in which
    nothing is submitted. What is recorded (`Context.task_graph`, `replay`, `Context.graph_scope`) is planned as a
    whole. Values and arguments are those of the call. Results are the same as with any rule; bodies run later than
    their line, and those that share no data run in another order.

    Tasks that take more than 50 µs run one after the other on each device, in the order of the plan.

    Parameters
    ----------
    window : int, optional
        How many tasks are held at most. With fewer than some 200, less is gained.
    move_weight : float, optional
        How many times the time of a copy counts.
    model : Calibration, str or path, optional
        What `Context.calibrate` has measured, or the file of it: how long tasks and copies take from the start. Without
        it a task of which nothing is known counts by the bytes of its data, and tasks are measured as they run: the
        first eight of a function and a size, then one of 64. On a GPU, events around the work of a body measure it.

    Returns
    -------
    Rule
        For ``stf.context(placement=...)``.

    Raises
    ------
    TypeError
        The window is no integer, or the weight no number.
    ValueError
        The window is not positive; the weight is negative, or no finite number.

    Notes
    -----
    A task that cannot begin, as it has no memory or reads what nobody wrote, raises where the window is submitted. The
    error names the task and its line. What the task was to write is poisoned.

    Examples
    --------
    >>> @stf.task
    ... def double(x: stf.ReadWrite):
    ...     x *= 2
    >>> with stf.context(devices="cpu:2", placement=stf.placement.planned()) as ctx:
    ...     data = [ctx.logical_data_ones(3) for _ in range(4)]
    ...     for x in data:
    ...         double(x)  # held
    ...     print(data[0].numpy())  # needs one of them: all are planned, and submitted
    [2. 2. 2.]
    """
    if isinstance(window, bool) or not hasattr(window, "__index__"):
        raise TypeError(f"window is a number of tasks, got {window!r}")
    if operator.index(window) < 1:
        raise ValueError(f"window is a positive number of tasks, got {window!r}; eft() places each when it comes")
    return Rule(checked(move_weight), window=operator.index(window), model=model)


def owner(*, move_weight: float = MOVE_WEIGHT, model: Any = None) -> Rule:
    """Return the rule of the owner: a task goes where the first data that it writes are valid.

    Where they are on no device yet, the earliest finish decides, as `eft` does with that `move_weight` and `model`. So
    the first tasks that write them spread data over the devices, or tasks that name their place do.

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
    return Rule(checked(move_weight), is_owner=True, model=model)


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
        if given in (eft, owner, planned):
            raise TypeError(
                f"placement takes a rule, got the function {given.__name__}; say stf.placement.{given.__name__}()"
            )
        return Rule(function=given)
    raise TypeError(
        "placement is stf.placement.eft(), stf.placement.planned(), stf.placement.owner(), or a function "
        f"choose(task, places), got {given!r}"
    )
