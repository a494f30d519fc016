"""Protection: registered arrays that their user cannot write to while they belong to tasks (``STF_VALIDATE``)."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Protected", "may_be_writeable_again", "protected"]

protected: set[int] = set()  # the addresses of the arrays that are read-only for now


class Protected:
    """Keeps an array read-only for its user as long as this lives, and views of it that are taken meanwhile for good.

    Other arrays over the same memory stay as they are.
    """

    def __init__(self, array: Any) -> None:
        self.array = array
        protected.add(id(array))
        array.flags.writeable = False

    def __del__(self) -> None:
        protected.discard(id(self.array))
        self.array.flags.writeable = True


def may_be_writeable_again(array: Any) -> bool:
    """Return whether NumPy lets a writeable array be read-only for a while: it looks at who owns the memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    if array.base is None:
        return True
    try:
        view = memoryview(array.base)
    except TypeError:  # a tensor, a capsule of DLPack's
        return False
    return not view.readonly and view.c_contiguous
