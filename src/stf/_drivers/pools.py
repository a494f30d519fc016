"""Pools: compiled bodies of streamed tasks, which the workers of a driver run without Python.

A worker that calls Python takes turns with who submits: the GIL is one. Where the body of a task is compiled code, a
worker needs no Python to run it, to know what comes next, and to say that it is done. So such bodies run beside the
program that submits them::

    stream ──a task whose waits are compiled tasks, or over──▶ its *chain* ──all it waits for is done──▶ ready ──a
    worker──▶ done ──Python is told, when it comes by──▶ let go

The tasks of a stream that are not done are its chain, each after the one before. A task also waits for tasks of other
chains: the first ones with which their streams get to the numbers that it is to wait for. What else comes on a stream
waits until its chain is empty, and what waits for anything but compiled tasks is called from Python itself.

Python is needed where somebody waits for a number of a stream whom only it can wake, and where a body fails. From then
on, until all tasks are done, Python makes each call itself, which knows what is skipped, and for what. So it does once
somebody calls tasks off.

A worker without work looks for some microseconds, if no other one does, and sleeps. It is called by who has the GIL, or
for tasks: where no thread runs any, where it would take those that do too long, or where who puts tasks waits.

The C is in ``pools.h``, which ``make tsan`` runs with ThreadSanitizer. Uncompiled, no body is compiled code.
"""

from __future__ import annotations

import cython

from stf._support.sync import make_baton


@cython.no_gc
@cython.cclass
class Chain:
    """The tasks of a stream that are not done, and the number that it has got to."""

    def attach(self, reached, stream):
        """Know where the stream has that number, and the stream, which has this."""
        self.chain.reached = reached
        self.chain.stream = stream
        return 0

    def reached(self):
        """Return the number."""
        return stf_number_of(cython.address(self.chain))

    def is_empty(self):
        """Return whether all its tasks are done."""
        return stf_is_empty(cython.address(self.chain))


@cython.no_gc
@cython.cclass
class Pool:
    """Tasks that are not done, and those that are and are still held."""

    def __cinit__(self):
        self.pool.lock = POOL_NEW_LOCK()
        if self.pool.lock == cython.NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.pool.lock != cython.NULL:
            POOL_FREE_LOCK(self.pool.lock)

    # -- a new task: `begin`, what it follows, and `end`; others are shut out meanwhile --------------------------

    def begin(self, call, waits):
        """Begin a task that runs a call's code, after up to so many others; False if there is no memory for it."""
        code = call.compiled
        task = stf_new_task(code.count, waits)
        if task == cython.NULL:
            return False
        memcpy(task.slots, code.slots, code.count * cython.sizeof(cython.longlong))
        task.body = cython.cast("stf_compiled", cython.cast("uintptr_t", code.function))
        task.fate = call.begins()
        task.object = cython.cast(cython.p_void, call)
        task.cost_ns, task.is_timed = code.cost_ns, code.is_timed
        self.next = task
        POOL_ACQUIRE(self.pool.lock)
        return True

    def knows(self, chain, number):
        """Return whether a stream gets to a number with a task."""
        return stf_task_of(cython.address(chain.chain), number) != cython.NULL

    def follow(self, chain, number):
        """Let the new task follow the one with which a stream gets to a number."""
        stf_follow(self.next, stf_task_of(cython.address(chain.chain), number))
        return 0

    def end(self, chain):
        """Put the new task at the end of a chain, or forget it; return whether a worker sees to it that it is run."""
        task = self.next
        self.next = cython.NULL
        has_help: cython.bint = True
        if chain is None:
            free(task)
        else:
            Py_INCREF(cython.cast(object, task.object))
            has_help = stf_put(cython.address(self.pool), cython.address(chain.chain), task)
        POOL_RELEASE(self.pool.lock)
        return has_help

    # -- numbers -----------------------------------------------------------------------------------------------

    def give_number(self, chain, number):
        """Let a stream get to a number with its last task; False if it has none."""
        return stf_give_number(cython.address(self.pool), cython.address(chain.chain), number)

    def want(self, chain, number):
        """Return whether a stream has got to a number; if not, it is one of `next_reached` when tasks get it there."""
        return stf_want(cython.address(self.pool), cython.address(chain.chain), number)

    def want_only(self, chain, number):
        """Want no other number any more, or none, which is 0."""
        stf_want_only(cython.address(self.pool), cython.address(chain.chain), number)
        return 0

    def hold(self, chain):
        """Return whether a chain has tasks; then its stream comes in `next_reached` when it has none."""
        return stf_hold(cython.address(self.pool), cython.address(chain.chain))

    def next_reached(self):
        """Return a stream that has got to what somebody wants, or None."""
        if not stf_has_reached(cython.address(self.pool)):
            return None
        stream = stf_next_reached(cython.address(self.pool))
        return None if stream == cython.NULL else cython.cast(object, stream)

    # -- what Python does ---------------------------------------------------------------------------------------

    def ask_first(self):
        """Let Python make the call of each task that has not begun."""
        stf_ask(cython.address(self.pool))
        return 0

    def change_waiting(self, change):
        """So many threads more, or fewer, wait for numbers: their cores are free for those that run tasks."""
        stf_change_waiting(cython.address(self.pool), change)
        return 0

    def collect(self):
        """Tell the calls whose code has run."""
        if not stf_has_done(cython.address(self.pool)):
            return 0
        task = stf_take_done(cython.address(self.pool))
        if task == cython.NULL:
            return 0
        if self.told == cython.NULL:
            self.told = task
        else:
            self.last_told.next = task
        while task != cython.NULL:
            if task.body != cython.NULL:  # else the call was made itself
                cython.cast(HostCall, task.object).ran_compiled()
            self.last_told = task
            task = task.next
        return 0

    def let_go(self):
        """Hold the calls no longer that were told; no gate is held, since finalizers may run."""
        while self.told != cython.NULL:
            task = self.told
            self.told = task.next
            call = cython.cast(HostCall, task.object)
            if task.is_timed and task.body != cython.NULL:
                call.took(task.took_ns)
            Py_DECREF(call)
            free(task)
        return 0

    def has_ready(self):
        """Return whether a task could be run now."""
        return stf_has_ready(cython.address(self.pool))

    def run_asked(self):
        """Make the calls of tasks that are ready, where Python is to look at each."""
        pool = cython.address(self.pool)
        while stf_asks(pool):
            POOL_ACQUIRE(pool.lock)
            task = stf_take(pool) if pool.asks else cython.NULL
            POOL_RELEASE(pool.lock)
            if task == cython.NULL:
                return 0
            task.body = cython.NULL
            try:
                cython.cast(object, task.object)()
            finally:
                POOL_ACQUIRE(pool.lock)
                stf_finish(pool, task)
                POOL_RELEASE(pool.lock)
        return 0


class Sleeper:
    """How a worker rests."""

    def __cinit__(self):
        self.sleeper.lock = POOL_NEW_LOCK()
        if self.sleeper.lock == cython.NULL:
            raise MemoryError
        POOL_ACQUIRE(self.sleeper.lock)

    def __init__(self):
        if not cython.compiled:
            self.baton = make_baton()

    def __dealloc__(self):
        if self.sleeper.lock != cython.NULL:
            POOL_FREE_LOCK(self.sleeper.lock)

    def call(self):
        """Let the worker come."""
        if cython.compiled:
            stf_call(cython.address(self.sleeper))
        else:
            self.baton.release()
        return 0

    def rest(self, pool):
        """Run tasks of a pool, or of None, until this is called; return True if Python is needed before."""
        needed: cython.int = 0
        if not cython.compiled:
            self.baton.acquire()
            return False
        me = cython.address(self.sleeper)
        tasks = cython.cast("stf_pool*", cython.NULL)
        if pool is not None:
            tasks = cython.address(pool.pool)
        with cython.nogil:
            needed = stf_rest_in(tasks, me)
        return needed


if not cython.compiled:
    del Pool.__cinit__, Pool.__dealloc__, Sleeper.__cinit__, Sleeper.__dealloc__
