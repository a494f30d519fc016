"""Programs of several host threads on shared data."""

from __future__ import annotations

import random
import threading

import numpy as np
from machine import DEVICES, device_count
from model import READ, RW, WRITE, apply, same
from task_steps import late_body, run_body

import stf
import stf.testing
from stf import exec_place


def run_threads(seed):
    """Several threads submit tasks on shared data; the model repeats them in the order in which they were begun."""
    rng = random.Random(seed)
    devices = rng.choice(DEVICES)
    count = device_count(devices)
    hostile = seed if rng.random() < 0.6 else None
    ctx = stf.testing.context(devices, hostile=hostile, workers=rng.choice([1, 2, 4]))
    homes = [np.arange(rng.randrange(1, 6), dtype="f8") for _ in range(rng.randint(1, 5))]
    values = [home.copy() for home in homes]
    handles = [ctx.logical_data(home, name=f"d{i}") for i, home in enumerate(homes)]
    plans = {}
    lists = []
    for thread in range(rng.randint(2, 4)):
        mine = []
        for n in range(rng.randint(2, 8)):
            name = f"t{thread}.{n}"
            chosen = rng.sample(range(len(homes)), rng.randint(1, min(3, len(homes))))
            modes = [rng.choice([READ, WRITE, RW]) for _ in chosen]
            plans[name] = (chosen, modes, rng.randrange(1000))
            mine.append((name, rng.choice(["with", "late", "wait"]), rng.randrange(count)))
        lists.append(mine)
    errors = []

    def body(mine):
        try:
            for name, kind, device in mine:
                chosen, modes, number = plans[name]
                details = (modes, [None] * len(modes), number, None)
                accesses = [
                    {READ: handles[c].read, WRITE: handles[c].write, RW: handles[c].rw}[m]()
                    for c, m in zip(chosen, modes, strict=True)
                ]
                place = exec_place.device(device)
                if kind == "late":
                    ctx.task(place, *accesses, name=name)(late_body(details))
                else:
                    with ctx.task(place, *accesses, name=name) as t:
                        run_body(t.arrays(), details)
                if kind == "wait":
                    ctx.wait(handles[chosen[0]])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(mine,)) for mine in lists]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        if errors:
            raise errors[0]
        ctx.check_state()
        ctx.finalize()
        order = [entry[3] for entry in ctx.recording.entries if entry[0] == "task" and entry[3] in plans]
        assert sorted(order) == sorted(plans)
        for name in order:
            chosen, modes, number = plans[name]
            apply([values[c] for c in chosen], modes, [None] * len(modes), number)
        for home, value in zip(homes, values, strict=True):
            ctx.recording.host_access(home, False)
            assert same(home, value), f"{home}, expected {value}"
        stf.testing.settle(ctx.driver)
        stf.testing.check_order(ctx.recording)
    except BaseException as error:
        error.add_note(f"threads, seed {seed}: {devices}, hostile={hostile}, {plans}")
        ctx._finished = True
        raise
