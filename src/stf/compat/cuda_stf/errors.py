"""Errors that are of two kinds: those that stf raises, and those that programs for `cuda.stf` look for."""

from __future__ import annotations

import stf


class NoPlaceError(stf.PlaceError, RuntimeError):
    """A place that is not there: a ValueError and a RuntimeError."""


class NegativeCountError(ValueError, OverflowError):
    """A count below 0."""


class NotHereError(NotImplementedError):
    """Something that this module does not have; the message names the way that there is."""


def finalized(what: str) -> stf.ContextClosedError:
    """Return the error of a call after finalize."""
    return stf.ContextClosedError(
        f"{what} on a context that has been finalized (context handle is NULL); read data before, or make a new context"
    )
