# cython: nonecheck=False
"""A gate lets one thread at a time into a piece of state.

Compiled, it is a flag: the GIL makes test-and-set atomic, since no Python runs in between. The GIL alone would not
do: a garbage collection inside the section may run a foreign finalizer, and that may switch threads. Uncompiled,
threads may switch at every bytecode, so the gate is a real lock.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref

import cython

from stf.errors import TaskStateError

BEGINS: cython.int = 80  # calls that what changes the state may need,
ENDS: cython.int = 40  # that what ends it may need, in the same frame,
STEP_S = 0.0005  # how often a thread looks that has no memory for a lock to wait with
LAUNCHES: cython.int = 160  # and that what launches, or ends, all that was gathered may need, of which some are begins

if not cython.compiled:
    PyThread_get_thread_ident = threading.get_ident
    here = threading.local()
    numbers = itertools.count(1)
    living: weakref.WeakValueDictionary = weakref.WeakValueDictionary()

    class Mark:
        """Of a thread, as long as it lives."""

        def __init__(self):
            self.number = next(numbers)

    def this_thread():
        """Return a number of this thread that no other one ever has."""
        mark = getattr(here, "mark", None)
        if mark is None:
            mark = here.mark = Mark()
            living[mark.number] = mark
        return mark.number

    def is_alive(number):
        """Return whether the thread of a number goes on."""
        return number in living

    def calls_left(wanted):
        """Python does not say how many calls are left; so find out whether so many are."""
        try:
            dive(wanted)
        except RecursionError:
            return 0
        return wanted

    def dive(calls):
        """Call so deep."""
        if calls:
            dive(calls - 1)


def must_have_room(calls=160):
    """Raise RecursionError before anything is changed, rather than half-way, unless so many calls are left."""
    return 0 if calls_left(calls) >= calls else refuse_depth(calls)


def refuse_depth(calls):
    raise RecursionError(
        f"maximum recursion depth exceeded: this call of stf needs up to {calls} calls more; call it from less deep, "
        "or raise the limit with sys.setrecursionlimit"
    )


def make_lock(kind):
    """Return a lock, by ``threading.Lock`` or ``threading.RLock``: where there is no memory for it, MemoryError."""
    try:
        return kind()
    except RecursionError:
        raise
    except RuntimeError as error:  # which CPython says
        raise MemoryError(str(error)) from None


def make_baton():
    """Return a lock that is taken: who acquires it waits until another one releases it."""
    baton = make_lock(threading.Lock)
    baton.acquire()
    return baton


class Turns(threading.Condition):
    """A condition whose lock is given back whatever happens.

    Compiled, no signal is handled in its methods, and they need no memory for the arguments of ``__exit__``.
    """

    def __enter__(self):
        return self.acquire()

    def __exit__(self, kind, error, trace):
        self.release()


class Gate:
    """Mutual exclusion; re-entry by the thread inside is an error, never a deadlock.

    Compiled, its lock is made where two threads meet for the first time: at most gates they never do.
    """

    def __init__(self) -> None:
        self.busy = False
        self.owner = 0
        self.waiters = 0
        self.baton = None
        self.mutex = None if cython.compiled else threading.Lock()

    def enter(self):
        if cython.compiled and not self.busy:
            self.busy = True
            self.owner = PyThread_get_thread_ident()
            return 0
        return self.enter_slow()

    def __enter__(self):
        self.enter()

    def __exit__(self, kind, error, trace):  # no tuple of them, for which there might be no memory
        self.leave()

    def enter_slow(self):
        if self.owner == PyThread_get_thread_ident():
            raise TaskStateError("stf was called from a finalizer that ran inside stf; call it later")
        if cython.compiled:
            self.waiters += 1
            try:
                while self.busy:
                    self.wait_for_turn()
            finally:
                self.waiters -= 1
            self.busy = True
        else:
            self.mutex.acquire()
        self.owner = PyThread_get_thread_ident()
        return 0

    def wait_for_turn(self):
        """Wait until the thread inside leaves, or make the lock for that: without memory for it, look again soon."""
        if self.baton is not None:
            self.baton.acquire()
            return 0
        try:
            baton = make_baton()
            if self.baton is None:  # no other thread was as fast
                self.baton = baton
        except MemoryError:
            time.sleep(STEP_S)
        return 0

    def leave(self):
        self.owner = 0
        if cython.compiled:
            self.busy = False
            if self.waiters and self.baton is not None and self.baton.locked():
                self.baton.release()
        else:
            self.mutex.release()
        return 0

    def reenter(self):
        """Enter again, in a section that was left for a while: an exception that comes meanwhile is raised inside."""
        late = None
        while self.owner != PyThread_get_thread_ident():
            try:
                self.enter()
            except BaseException as error:
                late = error
        if late is not None:
            raise late
        return 0


class NestingGate(Gate):
    """A gate that the thread inside may enter again: a garbage collection may run its finalizers anywhere."""

    def __init__(self) -> None:
        Gate.__init__(self)
        self.depth = 0
        if not cython.compiled:
            self.mutex = threading.RLock()

    def enter(self):
        if not cython.compiled:
            self.mutex.acquire()
            return 0
        if self.owner != PyThread_get_thread_ident():
            Gate.enter(self)
        self.depth += 1
        return 0

    def leave(self):
        if not cython.compiled:
            self.mutex.release()
            return 0
        self.depth -= 1
        return Gate.leave(self) if self.depth == 0 else 0
