"""The product of two matrices by one call."""

from __future__ import annotations

from typing import Any

import contest
import numpy as np


def run(xp: Any, a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the seconds that it took, and the product."""
    x, y = xp.asarray(a), xp.asarray(b)
    with contest.timed(contest.by_hand(xp)) as taken:
        z = x @ y
    return taken.seconds, contest.on_host(xp, z)
