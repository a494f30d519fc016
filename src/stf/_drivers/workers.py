"""Workers: the threads that serve the streams of drivers, and where they wait for the next driver."""

from __future__ import annotations

import _thread
import os

import cython


@cython.cclass
class Worker:
    """A thread that serves streams; its `sleeper` is where it rests while it is idle."""

    def __init__(self, driver):
        self.sleeper = Sleeper()
        self.driver = driver
        self.is_new = True
        self.kind = kind_of_thread()


def kind_of_thread(thread=0):
    """Return what a thread has from the one that starts it: the size of its stack, and the cores of that one."""
    stack = _thread.stack_size()  # which sets it, too: to the system's
    if stack:
        _thread.stack_size(stack)
    return stack, os.sched_getaffinity(thread) if hasattr(os, "sched_getaffinity") else None


class Reserve:
    """Workers of drivers that were closed, for the next one: a thread costs more to start than to wake.

    So short contexts cost less. One on whose thread a body has left something is not kept: the next one would see that.
    Nor is one taken where a new thread would have another stack, or other cores. `most` is how many are kept.
    """

    def __init__(self, most):
        self.gate = Gate()
        self.most = most

    def clear(self):
        """Know none."""
        self.first = None
        self.count = 0

    def forked(self):
        """In the child of a fork they do not exist, nor does who is inside."""
        self.gate = Gate()
        self.clear()

    def take(self, limit, kind):
        """Return a worker of a kind, or None; libraries have `limit` threads on it, or as many as they like."""
        before: Worker = None
        self.gate.enter()
        try:
            worker = self.first
            while worker is not None and ((worker.limit != limit and worker.limit) or worker.kind != kind):
                before, worker = worker, worker.next_idle
            if worker is not None:
                if before is None:
                    self.first = worker.next_idle
                else:
                    before.next_idle = worker.next_idle
                worker.next_idle = None
                worker.is_kept = False
                self.count -= 1
            return worker
        finally:
            self.gate.leave()

    def keep(self, worker):
        """Keep a worker that rests, or will; False if it is to go."""
        self.gate.enter()
        try:
            if not worker.is_new or self.count >= self.most:
                return False
            worker.next_idle = self.first
            worker.is_kept = True
            self.first = worker
            self.count += 1
            return True
        finally:
            self.gate.leave()

    def let_go(self):
        """Let all go: before a fork, whose child has them not."""
        while self.count:
            self.gate.enter()
            try:
                worker = self.first
                self.clear()
            finally:
                self.gate.leave()
            while worker is not None:
                following = worker.next_idle
                worker.is_kept = False
                worker.sleeper.call()
                worker = following


reserve = Reserve(os.cpu_count() or 1)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=reserve.let_go, after_in_child=reserve.forked)
