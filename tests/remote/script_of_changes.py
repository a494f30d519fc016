"""What a script has, whose functions and classes travel by value: bodies that change what travelled with them."""

from __future__ import annotations

import dataclasses
import enum
import functools
from random import Random
from typing import Any, NamedTuple

import numpy as np

import stf

RNG = np.random.default_rng(0)
draw = Random(0).random
LOG: list[float] = []
COUNT = 0
MISSING = object()
WEIGHTS = np.ones(2)


class Counter:
    count = 0
    known: dict[str, float] = {}

    def __init__(self) -> None:
        self.own = 1.0

    def step(self, x: Any) -> None:
        self.own += 1
        x += self.own

    @stf.task
    def add_own(self, x: stf.ReadWrite) -> None:
        x += self.own

    @stf.task
    def count_own(self, x: stf.ReadWrite) -> None:
        self.own += 1
        x += self.own


@dataclasses.dataclass
class Settings:
    factor: float = 2.0
    steps: list[int] = dataclasses.field(default_factory=list)

    @functools.cached_property
    def doubled(self) -> float:
        return 2 * self.factor


class Pair(NamedTuple):
    first: Any
    second: Any


class Color(enum.Flag):
    RED = 1
    BLUE = 2


class Default:
    """A class whose one object says that nothing was given."""


DEFAULT = Default()


def noise() -> Any:
    return RNG.random()


def log(value: float) -> None:
    LOG.append(value)


def count() -> int:
    global COUNT
    COUNT += 1
    return COUNT


def makes() -> int:
    global MADE
    MADE = 1
    return MADE


def is_missing(value: Any) -> bool:
    return value is MISSING


def keeps(value: Any, kept: list[Any] = []) -> int:  # noqa: B006
    kept.append(value)
    return len(kept)


# -- bodies that change something ----------------------------------------------------------------------------------------


@stf.task
def draws_in_helper(x: stf.ReadWrite) -> None:
    x += noise()


@stf.task
def draws_by_method(x: stf.ReadWrite) -> None:
    x += draw()


@stf.task
def logs_in_helper(x: stf.ReadWrite) -> None:
    log(1.0)
    x += 1


@stf.task
def writes_by_name(x: stf.ReadWrite) -> None:
    globals()["BY_NAME"] = 1
    x += 1


@stf.task
def counts_in_helper(x: stf.ReadWrite) -> None:
    x += count()


@stf.task
def makes_a_variable(x: stf.ReadWrite) -> None:
    x += makes()


@stf.task
def changes_a_class(x: stf.ReadWrite) -> None:
    Counter.count += 1
    x += Counter.count


@stf.task
def adds_to_a_class(x: stf.ReadWrite) -> None:
    Counter.new = 1
    x += 1


@stf.task
def adds_to_a_function(x: stf.ReadWrite) -> None:
    noise.calls = 1
    x += 1


@stf.task
def fills_a_dict_of_a_class(x: stf.ReadWrite) -> None:
    Counter.known["a"] = 1.0
    x += len(Counter.known)


@stf.task
def default_of_its_own(x: stf.ReadWrite, seen: list[int] = []) -> None:  # noqa: B006
    seen.append(1)
    x += len(seen)


@stf.task
def default_of_a_helper(x: stf.ReadWrite) -> None:
    x += keeps(1)


@stf.task
def writes_a_captured_array(x: stf.ReadWrite) -> None:
    WEIGHTS[0] = 5.0
    x += WEIGHTS


@stf.task
def appends(x: stf.ReadWrite, what: list[float]) -> None:
    what.append(1.0)
    x += len(what)


@stf.task
def takes_next(x: stf.ReadWrite, what: Any) -> None:
    x += next(what)


@stf.task
def writes_an_item(x: stf.ReadWrite, what: Any) -> None:
    what[0] = 7.0
    x += what[0]


@stf.task
def counts_in_object(x: stf.ReadWrite, what: Any) -> None:
    what.own += 1
    x += what.own


@stf.task
def counts_in_class_of(x: stf.ReadWrite, what: Any) -> None:
    type(what).count += 1
    x += type(what).count


@stf.task
def draws_from(x: stf.ReadWrite, what: Any) -> None:
    x += what.random()


@stf.task
def draws_inside(x: stf.ReadWrite, what: Any) -> None:
    x += what["generator"].random()


# -- bodies that only read -----------------------------------------------------------------------------------------------


@stf.task
def reads_factor(x: stf.ReadWrite, settings: Any) -> None:
    x += settings.factor + 0 * settings.doubled


@stf.task
def adds_pair(x: stf.ReadWrite, pair: stf.Read) -> None:
    if type(pair) is Pair:
        x += pair.first + pair.second


@stf.task
def asks_for_class(x: stf.ReadWrite, one: Any, several: list[Any]) -> None:
    if isinstance(one, Settings) and type(several[0]) is Settings:
        x += one.factor + several[0].factor


@stf.task
def reads_color(x: stf.ReadWrite, color: Any) -> None:
    x += 1 if color is Color.RED else 2 if color == Color.RED | Color.BLUE else 3


@stf.task
def reads_class(x: stf.ReadWrite) -> None:
    x += Counter.count


@stf.task
def asks_default(x: stf.ReadWrite, e: Any = MISSING) -> None:
    x += 10 if e is MISSING else 1


@stf.task
def asks_in_helper(x: stf.ReadWrite, e: Any = MISSING) -> None:
    x += 10 if is_missing(e) else 1


@stf.task
def asks_for_object(x: stf.ReadWrite, e: Any = DEFAULT) -> None:
    x += 10 if e is DEFAULT else 1


@stf.task
def looks_at_nothing(x: stf.ReadWrite, e: Any) -> None:
    x += 10
