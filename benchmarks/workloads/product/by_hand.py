"""The product of two matrices by one call."""

from __future__ import annotations

from typing import Any


def run(xp: Any, a: Any, b: Any) -> Any:
    """Return the product."""
    return xp.asarray(a) @ xp.asarray(b)
