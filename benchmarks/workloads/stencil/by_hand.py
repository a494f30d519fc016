"""The stencil with arrays of one device, an operation at a time."""

from __future__ import annotations

from typing import Any

import contest
import numpy as np


def advance(old: Any, new: Any, steps: int) -> Any:
    """Return the grid after so many steps."""
    for _ in range(steps):
        new[1:-1, 1:-1] = (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]) * 0.25
        old, new = new, old
    return old


def run(xp: Any, start: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
    """Return the seconds that so many steps took, after two that were not timed, and the grid."""
    old = advance(xp.array(start), xp.array(start), 2)
    new = old.copy()
    with contest.timed(contest.by_hand(xp)) as taken:
        old = advance(old, new, steps)
    return taken.seconds, contest.on_host(xp, old)
