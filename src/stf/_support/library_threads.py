"""Threads that libraries start inside bodies: BLAS and OpenMP, while workers run.

A worker whose body calls BLAS gets as many threads as the machine has cores, and so does its neighbour: they wait for
each other, and a product in tiles takes several times as long. So while workers of a driver run, each library has the
cores shared among them. Where all workers are idle the libraries have again what they had.

`threadpoolctl` finds the libraries that are loaded. There are two kinds. The number of threads of OpenMP and MKL holds
for the thread that sets it, so each worker sets its own, once. That of OpenBLAS as NumPy has it holds for the process:
it is set when the first worker starts and set back when the last one stops, whichever driver they belong to. A lower
limit of the program's own stays. It is set by the library's functions rather than by `threadpoolctl`, which lets one
thread alone set it, and which lets go of the GIL: whoever waits for the last body must not run on before it is set
back. They are called as C functions, since this happens each time that somebody waits for a task.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys

import cython

_log = logging.getLogger("stf")


class LibraryThreads:
    """The limit of this process.

    `hold` and `release` come in pairs, from whatever thread. They raise where there is no memory.
    """

    def __init__(self):
        self.gate = Gate()
        self.limits = []
        self.modules = 0
        self.of_threads = []
        self.of_process = []

    def hold(self, count):
        """Let each library have at most `count` threads, until `release`."""
        self.gate.enter()
        try:
            self.limits.append(count)
            try:
                self.apply()
            except BaseException:
                self.limits.remove(count)
                raise
        finally:
            self.gate.leave()
        return 0

    def release(self, count):
        """Take back one `hold`."""
        self.gate.enter()
        try:
            self.limits.remove(count)
            self.apply()
        finally:
            self.gate.leave()
        return 0

    def limit_this_thread(self, count):
        """Limit the libraries whose number holds for the thread that calls, and those that were loaded since."""
        self.gate.enter()
        try:
            self.apply()
            for library in self.of_threads:
                if (library.get_num_threads() or 1) > count:
                    library.set_num_threads(count)
        finally:
            self.gate.leave()
        return 0

    def forked(self):
        """In the child of a fork no worker runs."""
        self.gate = Gate()
        self.limits.clear()
        self.apply()

    def apply(self):
        library: OfProcess
        if not self.limits:
            for library in self.of_process:
                library.restore()
            return 0
        if len(sys.modules) != self.modules:
            self.look()
        count: cython.int = self.limits[0] if len(self.limits) == 1 else min(self.limits)
        for library in self.of_process:
            library.limit(count)
        return 0

    def look(self):
        """Look which libraries are loaded."""
        self.modules = len(sys.modules)
        try:
            from threadpoolctl import ThreadpoolController

            libraries = ThreadpoolController().lib_controllers
            known = {library.path: library for library in self.of_process}
            self.of_threads = [library for library in libraries if holds_for_thread(library)]
            found = [library for library in libraries if not holds_for_thread(library)]
            self.of_process = [known.get(library.filepath) or OfProcess(library) for library in found]
        except Exception:
            _log.debug("BLAS is not limited: its libraries could not be looked for", exc_info=True)
        return 0


class OfProcess:
    """A library whose number of threads holds for the process."""

    def __init__(self, library):
        self.path = library.filepath
        functions = ctypes.PyDLL(library.filepath)
        getter = next(name for name in library.check_symbols if "get_num_threads" in name and hasattr(functions, name))
        self.getter = getattr(functions, getter)
        self.setter = getattr(functions, getter.replace("get_num_threads", "set_num_threads"))
        self.get_address = ctypes.cast(self.getter, ctypes.c_void_p).value
        self.set_address = ctypes.cast(self.setter, ctypes.c_void_p).value
        self.is_limited = False
        self.before = self.now = 0

    def get(self):
        if cython.compiled:
            return cython.cast(Getter, self.get_address)()
        return self.getter()

    def set(self, count):
        if cython.compiled:
            cython.cast(Setter, self.set_address)(count)
        else:
            self.setter(count)
        return 0

    def limit(self, count):
        """Let it have at most `count` threads; what somebody else has set meanwhile is what it had before."""
        now: cython.int = self.get()
        if not self.is_limited or self.now != now:
            self.before = now
        self.now = min(count, self.before)
        self.is_limited = True
        if self.now != now:
            self.set(self.now)
        return 0

    def restore(self):
        """Let it have what it had, unless somebody else has set it since."""
        if self.is_limited and self.before != self.now and self.get() == self.now:
            self.set(self.before)
        self.is_limited = False
        return 0


def holds_for_thread(library):
    return library.internal_api in ("openmp", "mkl") or getattr(library, "threading_layer", "") == "openmp"


library_threads = LibraryThreads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=library_threads.forked)
