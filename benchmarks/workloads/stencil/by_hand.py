"""The stencil with arrays of one device, an operation at a time."""

from __future__ import annotations

from typing import Any


def run(xp: Any, start: Any, steps: int) -> Any:
    """Return the grid after so many steps."""
    old = xp.array(start)
    new = old.copy()
    for _ in range(steps):
        new[1:-1, 1:-1] = (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]) * 0.25
        old, new = new, old
    return old
