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


@cython.cclass
class Workers:
    """Workers that rest, the last one first: a chain through themselves, so that nothing is allocated."""

    def push(self, worker):
        """Put a worker first."""
        worker.next_idle = self.first
        self.first = worker
        return 0

    def pop(self):
        """Take the first one out that can come at once, or else the first one; return it, or None."""
        worker = self.first
        while worker is not None and worker.sleeper.is_busy():
            worker = worker.next_idle
        if worker is None:
            worker = self.first
        self.remove(worker)
        return worker

    def remove(self, worker):
        """Take a worker out; return False if it is not there, or None."""
        before: Worker = None
        other = self.first
        while other is not None and other is not worker:
            before, other = other, other.next_idle
        if other is None:
            return False
        if before is None:
            self.first = worker.next_idle
        else:
            before.next_idle = worker.next_idle
        worker.next_idle = None
        return True


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
        self.clear()

    def clear(self):
        """Know none."""
        self.workers = Workers()
        self.count = 0

    def forked(self):
        """In the child of a fork they do not exist, nor does who is inside."""
        self.gate = Gate()
        self.clear()

    def take(self, limit, kind):
        """Return a worker of a kind, or None; libraries have `limit` threads on it, or as many as they like."""
        self.gate.enter()
        try:
            worker = self.workers.first
            while worker is not None and ((worker.limit != limit and worker.limit) or worker.kind != kind):
                worker = worker.next_idle
            if self.workers.remove(worker):
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
            worker.is_kept = True
            self.workers.push(worker)
            self.count += 1
            return True
        finally:
            self.gate.leave()

    def let_go(self):
        """Let all go: before a fork, whose child has them not."""
        while self.count:
            self.gate.enter()
            try:
                gone: Workers = self.workers
                self.clear()
            finally:
                self.gate.leave()
            worker = gone.pop()
            while worker is not None:
                worker.is_kept = False
                worker.sleeper.call()
                worker = gone.pop()


reserve = Reserve(os.cpu_count() or 1)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=reserve.let_go, after_in_child=reserve.forked)
