"""Errors that are of two kinds: those that stf raises, and those that programs for `cuda.stf` look for."""

from __future__ import annotations

import stf


class NoPlaceError(stf.PlaceError, RuntimeError):
    """A place that is not there: a ValueError and a RuntimeError."""


class NegativeCountError(ValueError, OverflowError):
    """A count below 0."""


class NotHereError(NotImplementedError):
    """Something that this module does not have; the message names the way that there is."""
