"""Planned queues that threads run without Python: what a recording becomes whose bodies are all compiled code.

A recording that is played costs an event, a queue and a call of Python for each task. Where all bodies are compiled,
a launch needs none of that: its tasks are *steps* in a few *queues*, planned before, and a step is a function, the
place of its arguments in a table, the bytes that it waits for, and the byte that says that it is done.

::

    queue    FREE ──a thread takes it──▶ TAKEN ──its last step is done──▶ OVER ──the next round──▶ FREE
              ▲                            │
              └──── its next step waits ───┘

A thread takes a queue, does steps until one must wait, and goes on with another queue. So any number of threads runs
all queues. The one that leads a launch needs nobody: helpers come when a worker has time, and leave when they find
nothing. They come and go without Python (`pools`): sixteen that took turns with the GIL came so late, and kept the
leader from it for so long, that a launch took twice its time. After a launch they wait a moment for the next one, since
to come takes as long as some hundred steps. First there was a queue for each worker; a launch had to wait until all of
them had come, and one that was in a body of the user's held it up.

The bytes are not cleared between rounds: a round means the other value by *done*. Those of a queue lie together, as its
arguments do, since a line of the cache that several cores write travels between them.

The C is in ``loops.h``, which ``make tsan`` runs with ThreadSanitizer. Uncompiled, one thread does the same
(`plain_loops`).
"""

from __future__ import annotations

import itertools
import os

import cython

from stf._port.native import CALL, COPY, FILL, NOT_RUN

PATIENCE: cython.int = 4000  # pauses of 50 us or more, for a helper that has lost its core


# Its pool must be there when it is freed.
@cython.no_gc_clear
@cython.cclass
class Loop:
    """Steps in queues, with their table of arguments; one launch at a time.

    Parameters
    ----------
    queues : list of list of tuple
        The steps of each: (body, first slot, waits, number of its byte or -1, numbers). A body is the address of a
        function ``int(int64_t *slots)``, one of `FILL`, `COPY` and `CALL`, or None, where it only orders. `waits` are
        the numbers of bytes. Of `numbers`, each is (slot, word): the slot, counted from the first one, gets that word
        of each launch.
    table : list of int
        The arguments: a body gets the address of its first slot.
    held : object
        What is kept alive with it.
    """

    def __cinit__(self, queues, table, held):
        if not cython.compiled:
            return
        count: cython.longlong = sum([len(queue) for queue in queues])
        waits: cython.longlong = sum([len(step[2]) for queue in queues for step in queue])
        numbers: cython.longlong = sum([len(step[4]) for queue in queues for step in queue])
        words: cython.longlong = (
            max([word for queue in queues for step in queue for _, word in step[4]], default=-1) + 1
        )
        done: cython.longlong = max([step[3] for queue in queues for step in queue], default=0) + 1
        word: cython.Py_ssize_t = cython.sizeof(cython.longlong)
        slots: cython.longlong = len(table) + (len(queues) + 1) * (CACHE_LINE // word)
        self.loop = cython.cast("stf_loop*", stf_line(cython.sizeof(stf_loop), cython.address(self.memory[3])))
        self.job = cython.cast("stf_job*", stf_line(cython.sizeof(stf_job), cython.address(self.memory[4])))
        if self.loop == cython.NULL or self.job == cython.NULL:
            raise MemoryError
        loop = self.loop
        self.table = cython.cast("int64_t*", stf_line(slots * word, cython.address(self.memory[0])))
        self.places = cython.cast("int32_t*", calloc(len(table) + 1, 4))
        loop.steps = cython.cast("stf_step*", calloc(count + 1, cython.sizeof(stf_step)))
        loop.waits = cython.cast("int32_t*", calloc(waits + 1, 4))
        loop.numbers = cython.cast("stf_number*", calloc(numbers + 1, cython.sizeof(stf_number)))
        loop.words = cython.cast("int64_t*", calloc(words + 1, word))
        loop.word_count = words
        loop.done = cython.cast("uint8_t*", stf_line(done + 1, cython.address(self.memory[1])))
        loop.queues = cython.cast("stf_queue*", stf_line(len(queues) * CACHE_LINE, cython.address(self.memory[2])))
        self.clock = cython.cast("int64_t*", calloc(count + 1, word))
        if not (self.table and self.places and loop.steps and loop.waits and loop.numbers and loop.words):
            raise MemoryError
        if not (loop.done and loop.queues and self.clock):
            raise MemoryError
        self.count = count
        self.put_in_order(queues, table)
        self.job.help = stf_help
        self.job.what = loop
        loop.count = len(queues)
        self.put_steps(queues)

    def put_steps(self, queues):
        """Write the steps of all queues."""
        i: cython.longlong
        position: cython.longlong = 0
        wait: cython.longlong = 0
        number: cython.longlong = 0
        loop = self.loop
        for i in range(len(queues)):
            loop.queues[i].first = position
            for body, slot, before, byte, given in queues[i]:
                step = cython.address(loop.steps[position])
                step.slots = self.table + self.places[cython.cast(cython.longlong, slot)]
                step.done = byte
                step.first_wait = wait
                for item in before:
                    loop.waits[wait] = item
                    wait += 1
                step.last_wait = wait
                step.first_number = number
                for own, word in given:
                    loop.numbers[number].slot = own
                    loop.numbers[number].word = word
                    number += 1
                step.last_number = number
                step.body = function_of(body)
                position += 1
            loop.queues[i].last = position
            loop.queues[i].state = LOOP_OVER
        return 0

    def __init__(self, queues, table, held):
        self.measures = False
        self.held = held
        if not cython.compiled:
            import array

            self.table = array.array("q", table)
            self.words = []
            self.steps = [step for queue in queues for step in queue]
            numbers = iter(range(len(self.steps)))
            self.queues = [[next(numbers) for _ in queue] for queue in queues]
            self.rounds = 0
            self.count = len(self.steps)
            self.clock = [0] * self.count

    def __dealloc__(self):
        i: cython.int
        if not cython.compiled or not self.has_ended():
            return
        if self.loop != cython.NULL:
            free(self.loop.steps)
            free(self.loop.waits)
            free(self.loop.numbers)
            free(self.loop.words)
        for i in range(5):
            free(self.memory[i])
        free(self.places)
        free(self.clock)

    def has_ended(self):
        """Let helpers go; return False if one may still use the memory, which is not freed then.

        They go at once. But one may have lost its core for long, and after a fork those of the parent are not here.
        """
        if self.pool is None:
            return True
        if self.forks != stf_count_forks(0):
            return False
        ATOMIC_STORE(cython.address(self.loop.open), LOOP_CLOSED)
        for _ in range(PATIENCE):
            if self.pool.end_job(self.job):
                return True
            stf_pause()
        return False

    def put_in_order(self, queues, table):
        """Copy the table so that arguments lie in the order in which their queue uses them, in lines of its own."""
        i: cython.longlong
        own: cython.longlong
        place: cython.longlong = 0
        per_line: cython.longlong = CACHE_LINE // cython.sizeof(cython.longlong)
        firsts = sorted({step[1] for queue in queues for step in queue if step[0] is not None})
        ends = dict(itertools.pairwise([*firsts, len(table)]))
        for queue in queues:
            for step in queue:
                if step[0] is None:
                    continue
                own = step[1]
                for i in range(own, ends.pop(step[1], own)):  # once
                    self.places[i] = place
                    self.table[place] = table[i]
                    place += 1
            place = (place + per_line - 1) // per_line * per_line
        return 0

    def put(self, slot, value):
        """Put a number, or the bits of one, into a slot of the table; no launch may be open."""
        self.table[self.places[slot] if cython.compiled else slot] = value
        return 0

    def lead(self, words, rounds=1, flag=0):
        """Run the steps so many times, as long as the byte at the address `flag` is true after each, if it is given.

        `words` are those of this launch. Where others launch it, too, one does after the other.

        Returns
        -------
        int
            The number of the step whose body failed first, in the order of the queues; -1 if none did. All steps that
            have not begun then are left out.
        """
        if cython.compiled:
            failed: cython.longlong
            most: cython.longlong = rounds
            call = self.call(words, 0, 0, 0)
            look = cython.cast("uint8_t*", cython.cast("uintptr_t", cython.cast(cython.longlong, flag)))
            with cython.nogil:
                failed = stf_lead(self.loop, call.slots + LOOP_FIRST_WORD, most, look)
            return failed - 1
        from stf._drivers.plain_loops import lead

        self.words = words
        return lead(self, rounds, flag)

    def call(self, words, cost_ns, least_ns, most_ns):
        """Return what a pool calls to `lead` one round, which takes about `cost_ns`; None in the uncompiled form.

        Its `result` is what `lead` returns. After some in a row that took less than `least_ns`, or more than `most_ns`,
        such calls are not run, and fail with `NOT_RUN`, until somebody has said `look_again`.
        """
        i: cython.int
        if not cython.compiled:
            return None
        call: CompiledCall = CompiledCall.__new__(CompiledCall)
        call.count = LOOP_FIRST_WORD + len(words)
        call.slots = cython.cast("int64_t*", calloc(call.count, cython.sizeof(cython.longlong)))
        if call.slots == cython.NULL:
            raise MemoryError
        call.slots[LOOP_ITSELF] = cython.cast(cython.longlong, cython.cast("uintptr_t", self.loop))
        call.slots[LOOP_LEAST_NS], call.slots[LOOP_MOST_NS], call.slots[LOOP_NOT_RUN] = least_ns, most_ns, NOT_RUN
        for i in range(len(words)):
            call.slots[LOOP_FIRST_WORD + i] = words[i]
        call.function = cython.cast(cython.longlong, cython.cast("uintptr_t", stf_launch))
        call.cost_ns, call.is_timed = cost_ns, True
        return call

    def look_again(self):
        """Let calls be run again: the times are known."""
        if cython.compiled:
            self.loop.off = 0
        return 0

    def let_help(self, pool, wanted):
        """Let so many workers of a pool, which is always the same one, help with each launch."""
        loop = self.loop
        self.pool, self.forks = pool, stf_count_forks(0)
        loop.pool, loop.job, loop.share = pool.pool, self.job, stf_share
        loop.wanted = wanted
        return 0

    def helpers(self):
        """Return how many workers help, which includes those that wait for the next launch."""
        return self.loop.present if cython.compiled else 0

    def rounds_run(self):
        """Return how many rounds the last launch has run."""
        return self.loop.rounds if cython.compiled else self.rounds

    def measure(self, wanted):
        """Measure how long each step takes from now on, or do not."""
        self.measures = wanted
        if cython.compiled:
            self.loop.times = self.clock if wanted else cython.NULL
        return 0

    def forget_times(self):
        """Measure anew how long steps take at least."""
        for step in range(self.count):
            self.clock[step] = 0
        return 0

    def times(self):
        """Return how long each step took at least where it was measured, in ns, in the order of the queues."""
        return [self.clock[step] for step in range(self.count)]


def forked():
    """This process is the child of a fork."""
    stf_count_forks(1)


def function_of(body):
    """Return the function of a step; NULL where it only orders."""
    if body is None:
        return cython.cast("stf_body", cython.NULL)
    if body == FILL:
        return cython.cast("stf_body", stf_fill)
    if body == COPY:
        return cython.cast("stf_body", stf_copy)
    if body == CALL:
        return cython.cast("stf_body", stf_call_python)
    return cython.cast("stf_body", cython.cast("uintptr_t", cython.cast(cython.ulonglong, body)))


if not cython.compiled:
    del Loop.__cinit__, Loop.__dealloc__
elif hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forked)


class Loops:
    """The role of a driver whose workers run loops: what `_drivers.roles.Loops` declares."""

    def make(self, queues, table, held):
        """Return a `Loop`."""
        return Loop(queues, table, held)
