"""Programs of several host threads on shared data; the model repeats the tasks in the order in which they were begun."""

from __future__ import annotations

import random
import threading

import machine  # of which tests/cudatrace replaces `make_recording`
import numpy as np
from arithmetic import ACCUMULATE, READ, REDUCERS, RW, WRITE, apply
from drivers import DEVICES, ON_CUDA, device_count, leave_behind, make_driver, settle, shared_resources
from machine import open_context, prove_order
from model import same
from task_steps import late_body, run_body

import stf
from stf import data_place, exec_place

MODES = [READ, READ, WRITE, RW, RW, ACCUMULATE]
KINDS = ["with", "late", "wait", "within", "own", "prefetch"]


def run_threads(seed):
    program = Threads(seed)
    try:
        program.run()
        program.compare()
    except BaseException as error:
        error.add_note(program.describe())
        leave_behind(program.ctx)
        raise


class Job:
    """A task of one thread: data by number, a mode for each, and how it is submitted.

    `kind` is one of `KINDS`: ``within`` opens a with-block and another task (`inner`) inside it, ``own`` registers
    an array of the thread's own, uses it in this task, and gives it up.
    """

    def __init__(self, name, chosen, modes, ops, number, kind, device, inner=None):
        self.name, self.chosen, self.modes, self.ops, self.number = name, chosen, modes, ops, number
        self.kind, self.device, self.inner = kind, device, inner

    def details(self):
        return self.modes, self.ops, self.number, None

    def __repr__(self):
        inner = f" around {self.inner!r}" if self.inner is not None else ""
        return f"{self.name} {self.kind} on {self.device}: {self.chosen} {self.modes} {self.number}{inner}"


class Threads:
    """One random program of several host threads."""

    def __init__(self, seed):
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.devices = rng.choice(DEVICES)
        self.count = device_count(self.devices)
        self.hostile = seed if rng.random() < 0.6 else None
        self.limit = rng.choice([120, 160, 240]) if self.devices != "cpu" and rng.random() < 0.3 else 0
        bounded = self.limit and rng.random() < 0.5
        options = {"memory_limit": self.limit} if self.limit and not bounded else {}
        if rng.random() < 0.2:
            options["max_pending"] = rng.choice([1, 3])
        self.driver = make_driver(self.devices, self.hostile, rng.choice([1, 2, 4]), self.limit if bounded else 0)
        self.options = dict(options)
        if ON_CUDA:
            options["resources"] = shared_resources()
        self.ctx = open_context(self.devices, self.driver, machine.make_recording(self.driver), **options)
        self.homes = [np.arange(rng.randrange(1, 6), dtype="f8") for _ in range(rng.randint(1, 5))]
        self.handles = [self.ctx.logical_data(home, name=f"d{i}") for i, home in enumerate(self.homes)]
        self.shared = len(self.homes)
        self.jobs = {}
        self.refused = set()
        self.errors = []
        self.lists = [
            [self.job(f"t{thread}.{n}") for n in range(rng.randint(2, 8))] for thread in range(rng.randint(2, 4))
        ]

    # -- drawing ---------------------------------------------------------------------------------------------------

    def job(self, name):
        rng = self.rng
        kind = rng.choice(KINDS)
        chosen = rng.sample(range(self.shared), rng.randint(1, min(3, self.shared)))
        rest = [n for n in range(self.shared) if n not in chosen]
        inner = None
        if kind == "within":
            if rest:
                inner = self.make(f"{name}.inner", rng.sample(rest, 1), rng.choice(["with", "late"]))
            else:
                kind = "with"
        if kind == "own":
            chosen.append(len(self.homes))
            self.homes.append(np.full(3, float(rng.randrange(9))))
        return self.make(name, chosen, kind, inner)

    def make(self, name, chosen, kind, inner=None):
        rng = self.rng
        modes = [rng.choice(MODES) for _ in chosen]
        ops = [rng.choice(["sum", "max"]) if mode == ACCUMULATE else None for mode in modes]
        job = Job(name, chosen, modes, ops, rng.randrange(1000), kind, rng.randrange(self.count), inner)
        self.jobs[name] = job
        return job

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self):
        self.values = [home.copy() for home in self.homes]
        threads = [threading.Thread(target=self.work, args=(jobs,), daemon=True) for jobs in self.lists]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        self.ctx.check_state()
        self.ctx.finalize()

    def work(self, jobs):
        try:
            for job in jobs:
                getattr(self, f"do_{job.kind}")(job, self.accesses(job))
        except BaseException as error:
            self.errors.append(error)

    def accesses(self, job):
        result = []
        for number, mode, op in zip(job.chosen, job.modes, job.ops, strict=True):
            home = self.homes[number]
            handle = self.handles[number] if number < self.shared else self.ctx.logical_data(home, name=f"own{number}")
            if mode == ACCUMULATE:
                result.append(handle.accumulate(REDUCERS[op][0]))
            else:
                result.append({READ: handle.read, WRITE: handle.write, RW: handle.rw}[mode]())
        return result

    def do_late(self, job, accesses):
        self.trying(job, lambda: self.task(job, accesses)(late_body(job.details())))

    def do_own(self, job, accesses):
        """The accesses have the only references to an array of its own: it goes with them, or before."""
        own = accesses[-1].data if job.number % 2 else None
        self.do_late(job, accesses)
        accesses.clear()
        if own is not None:
            own.release()

    def do_with(self, job, accesses):
        self.trying(job, lambda: self.enter(job, accesses))

    def do_within(self, job, accesses):
        self.trying(job, lambda: self.enter(job, accesses))
        if job.name in self.refused:
            self.refused.add(job.inner.name)

    def do_wait(self, job, accesses):
        self.do_with(job, accesses)
        self.ctx.wait(self.handles[job.chosen[0]])

    def do_prefetch(self, job, accesses):
        try:
            self.ctx.prefetch(self.handles[job.chosen[0]], data_place.device(job.device))
        except stf.OutOfMemoryError:
            assert self.limit
        self.do_late(job, accesses)

    def task(self, job, accesses):
        return self.ctx.task(exec_place.device(job.device), *accesses, name=job.name)

    def enter(self, job, accesses):
        with self.task(job, accesses) as t:
            inner = job.inner
            if inner is not None:
                getattr(self, f"do_{inner.kind}")(inner, self.accesses(inner))
            run_body(t.arrays(), job.details())

    def trying(self, job, action):
        """Do a job; it may be refused for want of memory, or, inside another, since a third holds its data."""
        try:
            action()
        except stf.OutOfMemoryError:
            assert self.limit
            self.refused.add(job.name)
        except stf.TaskStateError:
            assert job.name.endswith("inner")
            self.refused.add(job.name)

    # -- comparing -------------------------------------------------------------------------------------------------

    def compare(self):
        recording = self.ctx.recording
        order = [entry[3] for entry in recording.entries if entry[0] == "task" and entry[3] in self.jobs]
        assert sorted(order) == sorted(self.jobs.keys() - self.refused)
        for name in order:
            job = self.jobs[name]
            apply([self.values[c] for c in job.chosen], job.modes, job.ops, job.number)
        for home, value in zip(self.homes, self.values, strict=True):
            recording.host_access(home, False)
            assert same(home, value), f"{home}, expected {value}"
        settle(self.driver)
        prove_order(self.ctx)

    def describe(self):
        lines = [
            f"threads, seed {self.seed}: {self.devices}, hostile={self.hostile}, limit={self.limit}, {self.options}"
        ]
        for number, jobs in enumerate(self.lists):
            lines += [f"thread {number}:", *(f"    {job!r}" for job in jobs)]
        return "\n".join([*lines, f"refused: {sorted(self.refused)}"])
