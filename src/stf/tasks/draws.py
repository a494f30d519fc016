"""Generators of random numbers among the arguments of task functions."""

from __future__ import annotations

from typing import Any

from stf.values.random_numbers import Draw, Random, generator_of, must_be_of

__all__ = ["check", "count", "generator_at"]


def count(parameters: list[Any], values: list[Any]) -> None:
    """Count a use of each generator among arguments, which is that one's place in the program."""
    for i, (parameter, value) in enumerate(zip(parameters, values, strict=True)):
        if parameter.kind == "random" and isinstance(value, Random):
            values[i] = value.draw()


def check(parameters: list[Any], values: list[Any], context: Any, label: str) -> None:
    """Raise for what is no generator of a task's context."""
    for parameter, value in zip(parameters, values, strict=True):
        if parameter.kind == "random":
            must_be_of(value, context, label)


def generator_at(place: Any, library: str | None, draw: Draw) -> tuple[Any, bool]:
    """Return the generator that a body gets at a place, in a library or in that of the place.

    And whether it is something that makes one when the body runs: for CuPy on the body's stream, for a remote place in
    the process of that.
    """
    library = library or ("cupy" if place.enqueues else "numpy")
    ordinal = place.ordinal if place.enqueues else -1
    return generator_of(library, ordinal, place.is_remote, draw.key), library == "cupy" or place.is_remote
