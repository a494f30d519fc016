"""Forks of the process while another thread compiles.

The compilers have locks, which nobody would release in the child: its first kernel would wait for ever. So a fork waits
until the compilation has ended. Programs that are started anew, as by `subprocess`, do not fork in this sense.
"""

from __future__ import annotations

import functools
import os
import threading

__all__ = ["lock", "watch"]

lock = threading.RLock()  # of numba-cuda's compilation, which changes state of its own; taken before Numba's lock


@functools.cache
def watch() -> None:
    """Have forks wait for Numba; to be called before anything is compiled."""
    from numba.core.compiler_lock import global_compiler_lock as of_numba

    def hold() -> None:
        lock.acquire()
        of_numba.acquire()

    def let_go() -> None:
        of_numba.release()
        lock.release()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=hold, after_in_parent=let_go, after_in_child=let_go)
