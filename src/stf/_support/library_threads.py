"""Threads that libraries start inside bodies: BLAS and OpenMP, while workers run.

A worker whose body calls BLAS gets as many threads as the machine has cores, and so does its neighbour: they wait for
each other, and a product in tiles takes several times as long. So while workers of a driver run, each library has the
cores shared among them. Where all workers are idle the libraries have again what they had.

`threadpoolctl` finds the libraries that are loaded. There are two kinds. The number of threads of OpenMP and MKL holds
for the thread that sets it, so each worker sets its own, once. That of OpenBLAS as NumPy has it holds for the process:
it is set when the first worker starts and set back when the last one stops, whichever driver they belong to. A lower
limit of the program's own stays. It is set by the library's functions rather than by `threadpoolctl`, which lets one
thread alone set it, and which lets go of the GIL: whoever waits for the last body must not run on before it is set
back.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from typing import Any

_log = logging.getLogger("stf")


class LibraryThreads:
    """The limit of this process.

    `hold` and `release` come in pairs, from whatever thread. They raise where there is no memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: list[int] = []  # of the drivers whose workers run
        self._modules = 0  # how many there were when the libraries were looked for
        self._of_threads: list[Any] = []  # libraries whose number holds for a thread
        self._of_process: list[_OfProcess] = []
        self._changed: dict[_OfProcess, tuple[int, int]] = {}  # threads before, and now

    def hold(self, count: int) -> None:
        """Let each library have at most `count` threads, until `release`."""
        with self._lock:
            self._limits.append(count)
            try:
                self._apply()
            except BaseException:
                self._limits.remove(count)
                raise

    def release(self, count: int) -> None:
        """Take back one `hold`."""
        with self._lock:
            self._limits.remove(count)
            self._apply()

    def limit_this_thread(self, count: int) -> None:
        """Limit the libraries whose number holds for the thread that calls, and those that were loaded since."""
        with self._lock:
            self._apply()
            for library in self._of_threads:
                if (library.get_num_threads() or 1) > count:
                    library.set_num_threads(count)

    def forked(self) -> None:
        """In the child of a fork no worker runs."""
        self._lock = threading.Lock()
        self._limits.clear()
        self._apply()

    def _apply(self) -> None:
        if not self._limits:
            for library, (before, now) in self._changed.items():
                if before != now == library.get():  # nobody else has set it since
                    library.set(before)
            self._changed.clear()
            return
        self._look()
        count = min(self._limits)
        for library in self._of_process:
            now = library.get()
            before, set_to = self._changed.get(library, (now, now))
            if set_to != now:
                before = now
            wanted = min(count, before)
            self._changed[library] = before, wanted
            if wanted != now:
                library.set(wanted)

    def _look(self) -> None:
        if len(sys.modules) == self._modules:
            return
        self._modules = len(sys.modules)
        try:
            from threadpoolctl import ThreadpoolController

            libraries = ThreadpoolController().lib_controllers
            known = {library.path: library for library in self._of_process}
            self._of_threads = [library for library in libraries if _holds_for_thread(library)]
            found = [library for library in libraries if not _holds_for_thread(library)]
            self._of_process = [known.get(library.filepath) or _OfProcess(library) for library in found]
        except Exception:
            _log.debug("BLAS is not limited: its libraries could not be looked for", exc_info=True)


class _OfProcess:
    """A library whose number of threads holds for the process."""

    def __init__(self, library: Any) -> None:
        self.path = library.filepath
        functions = ctypes.PyDLL(library.filepath)
        getter = next(name for name in library.check_symbols if "get_num_threads" in name and hasattr(functions, name))
        self.get = getattr(functions, getter)
        self.set = getattr(functions, getter.replace("get_num_threads", "set_num_threads"))


def _holds_for_thread(library: Any) -> bool:
    return library.internal_api in ("openmp", "mkl") or getattr(library, "threading_layer", "") == "openmp"


library_threads = LibraryThreads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=library_threads.forked)
