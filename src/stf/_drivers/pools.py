"""Pools: compiled bodies of streamed tasks, which the workers of a driver run without Python.

A worker that calls Python takes turns with who submits: the GIL is one. Where the body of a task is compiled code, a
worker needs no Python to run it, to know what comes next, and to say that it is done. So such bodies run beside the
program that submits them::

    stream ──a task whose waits are compiled tasks, or over──▶ given ──a worker──▶ its *chain* ──all it waits for is
    done──▶ ready ──a worker──▶ done ──Python is told, when it comes by──▶ let go

The tasks of a stream that are not done are its chain, each after the one before. A task also waits for tasks of other
chains: the first ones with which their streams get to the numbers that it is to wait for. What else comes on a stream
waits until its chain is empty, and what waits for anything but compiled tasks is called from Python itself.

A line of the cache that goes from core to core takes as long as a tenth of a submission. So who submits writes a task
and a count, and reads next to nothing that workers write; they find out what a task waits for.

Python is needed where somebody waits for a number of a stream whom only it can wake, and where a body fails. From then
on, until all tasks are done, Python makes each call itself, which knows what is skipped, and for what. So it does once
somebody calls tasks off.

A worker without work naps some times, if no other one does, and sleeps then. It is called by who has the GIL, or for
tasks: where none is awake, where those that are have much to do, or where who puts tasks waits.

The C is in ``pools.h``, which ``make tsan`` runs with ThreadSanitizer. Uncompiled, no body is compiled code.
"""

from __future__ import annotations

import cython

from stf._support.sync import make_baton


@cython.no_gc
@cython.cclass
class Chain:
    """The tasks of a stream that are not done, and the number that it has got to.

    Parameters
    ----------
    stream : Stream
        Which has it.
    """

    def __cinit__(self, stream):
        self.chain = cython.cast("stf_chain*", stf_line(cython.sizeof(stf_chain), cython.address(self.memory)))
        if self.chain == cython.NULL:
            raise MemoryError
        self.chain.stream = cython.cast(cython.p_void, stream)

    def __dealloc__(self):
        free(self.memory)

    def reached(self):
        """Return the number."""
        return stf_number_of(self.chain)

    def reach(self, number):
        """The stream has got to a number without a task; it has none that is not done."""
        ATOMIC_STORE_LATE(cython.address(self.chain.reached), number)
        return 0


@cython.no_gc
@cython.cclass
class Pool:
    """Tasks that are not done, and those that are and are still held."""

    def __cinit__(self):
        self.pool = cython.cast("stf_pool*", stf_line(cython.sizeof(stf_pool), cython.address(self.memory)))
        if self.pool == cython.NULL:
            raise MemoryError
        self.pool.lock = POOL_NEW_LOCK()
        if self.pool.lock == cython.NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.pool != cython.NULL and self.pool.done != cython.NULL:
            self.collect()
            self.let_go()
        if self.pool != cython.NULL:
            free(self.pool.given)
            free(self.pool.done)
            if self.pool.lock != cython.NULL:
                POOL_FREE_LOCK(self.pool.lock)
        free(self.memory)

    # -- tasks -------------------------------------------------------------------------------------------------

    def is_used(self):
        """Return whether there ever was a task or a job; before that, no worker rests here."""
        return self.pool.done != cython.NULL

    def begin(self):
        """Be used from now on; return False if there is no memory."""
        size: cython.Py_ssize_t = POOL_ROOM * cython.sizeof(cython.p_void)
        if self.pool.given == cython.NULL:
            self.pool.given = cython.cast("stf_task**", malloc(size))
        if self.pool.given != cython.NULL and self.pool.done == cython.NULL:
            self.pool.done = cython.cast("stf_task**", malloc(size))
        return self.pool.done != cython.NULL

    def has_room(self):
        """Return whether there is room for a task."""
        return self.begin() and stf_has_room(self.pool)

    def task_for(self, call, waits):
        """Return a task that runs a call's code, and may wait for so many numbers; NULL if there is no memory."""
        code = call.compiled
        task = stf_new_task(waits)
        if task != cython.NULL:
            task.slots = code.slots  # which go with the call
            task.body = cython.cast("stf_compiled", cython.cast("uintptr_t", code.function))
            task.fate = call.begins()
            task.object = cython.cast(cython.p_void, call)
            task.cost_ns, task.is_timed = code.cost_ns, code.is_timed
            Py_INCREF(call)
        return task

    def follow(self, task, chain, number):
        """Let a task wait until a stream gets to a number with another one."""
        stf_follow(cython.cast("stf_task*", task), chain.chain, number)
        return 0

    def call_of(self, task):
        """Return the call of a task that is not put, and forget the task."""
        call: object = cython.cast(object, cython.cast("stf_task*", task).object)
        Py_DECREF(call)
        free(task)
        return call

    def may_put(self, task):
        """Return whether the code of a call may run in its place, as far as is known now; nothing is allocated."""
        return cython.cast(HostCall, cython.cast("stf_task*", task).object).may_run_compiled()

    def put(self, chain, number, task):
        """Put a task behind those of a stream, which gets to a number with it; return whether a worker will run it."""
        chain.put = number
        return stf_put(self.pool, chain.chain, number, cython.cast("stf_task*", task))

    # -- jobs ------------------------------------------------------------------------------------------------------

    def end_job(self, job):
        """Let nobody come any more; return whether nobody is there."""
        return stf_end_job(self.pool, job)

    # -- numbers -----------------------------------------------------------------------------------------------

    def want(self, chain, number):
        """Return whether a stream has got to a number; if not, it is one of `next_reached` when tasks get it there."""
        return stf_want(self.pool, chain.chain, number)

    def want_only(self, chain, number):
        """Want no other number any more, or none, which is 0."""
        stf_want_only(self.pool, chain.chain, number)
        return 0

    def next_reached(self):
        """Return a stream that has got to what somebody wants, or None."""
        if not stf_has_reached(self.pool):
            return None
        stream = stf_next_reached(self.pool)
        return None if stream == cython.NULL else cython.cast(object, stream)

    # -- what Python does --------------------------------------------------------------------------------------

    def ask_first(self):
        """Let Python make the call of each task that has not begun."""
        stf_ask(self.pool)
        return 0

    def see_to_ready(self):
        """Let a worker come for tasks that are ready, since somebody asks for them; False if none rests here."""
        return not stf_has_ready(self.pool) or stf_see_to_ready(self.pool)

    def change_waiting(self, change):
        """So many threads more, or fewer, wait for numbers: their cores are free for those that run tasks."""
        stf_change_waiting(self.pool, change)
        return 0

    def collect(self):
        """Tell the calls whose code has run."""
        task = stf_next_done(self.pool)
        while task != cython.NULL:
            if task.body != cython.NULL:  # else the call was made itself
                cython.cast(HostCall, task.object).ran_compiled()
            task.next = cython.NULL
            if self.told == cython.NULL:
                self.told = task
            else:
                self.last_told.next = task
            self.last_told = task
            task = stf_next_done(self.pool)
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
        return stf_has_ready(self.pool)

    def run_asked(self, errors):
        """Make the calls of tasks that are ready, where Python is to look at each; `errors` gets what they raise."""
        while stf_asks(self.pool):
            task = stf_take_asked(self.pool)
            if task == cython.NULL:
                return 0
            task.body = cython.NULL
            try:
                if task.has_failed:
                    cython.cast(HostCall, task.object).call_again()
                else:
                    cython.cast(object, task.object)()
            except BaseException as error:
                errors.append(error)
            finally:
                POOL_ACQUIRE(self.pool.lock)
                stf_finish(self.pool, task)
                POOL_RELEASE(self.pool.lock)
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

    def is_busy(self):
        """Return whether the worker runs a task, and comes after its end."""
        return cython.compiled and stf_is_busy(cython.address(self.sleeper))

    def rest(self, pool):
        """Run tasks of a pool, or of None, until this is called; return True if Python is needed before."""
        needed: cython.int = 0
        if not cython.compiled:
            self.baton.acquire()
            return False
        me = cython.address(self.sleeper)
        tasks = cython.cast("stf_pool*", cython.NULL)
        if pool is not None:
            tasks = pool.pool
        with cython.nogil:
            needed = stf_rest_in(tasks, me)
        return needed


if not cython.compiled:
    del Chain.__cinit__, Chain.__dealloc__, Pool.__cinit__, Pool.__dealloc__, Sleeper.__cinit__, Sleeper.__dealloc__
