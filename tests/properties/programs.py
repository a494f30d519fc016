"""Random STF programs, run beside a model that does one task at a time in NumPy.

A program is a seed. Each step is drawn from what the model says is possible, done to the context and to the model, and
written to the account that a failure prints. After each step the engine's state is verified; at the end the results are
compared, the recorded order is proven, and nothing may be left over. Draws depend on the model only, never on timing.

    python tests/properties/programs.py 17            # run program 17 and print its description
    python tests/properties/programs.py 0 1000        # run programs 0 … 999
    STF_TEST_DEVICES=cuda:0,1 python …                # on GPUs
    STF_TEST_PLACE=auto python …                      # the places of tasks are chosen
    STF_TEST_GRAPH_BACKEND=persistent python …        # recordings are loops from their first launch on

`model` has the data, `arithmetic` what bodies compute, `machine` the context beside it, `drivers` what it runs on,
`task_steps`, `data_steps` and `nested_steps` what may be done, `threads` the programs of several host threads.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `helpers`, where this is run as a program

from data_steps import DataSteps
from drivers import DEVICES, ON_CUDA, make_driver, settle, shared_resources
from machine import PATIENCE_S
from nested_steps import NestedSteps
from task_steps import TaskSteps
from threads import run_threads

import stf

HAVE_THREADS = os.environ.get("STF_TEST_THREADS") != "0"  # initcheck does not know them (docs/design/recordings.md)


class Program(TaskSteps, NestedSteps, DataSteps):
    """One random program of one thread."""

    def step(self):
        kinds = {
            self.step_register: 8,
            self.step_create: 6,
            self.step_with: 22,
            self.step_late: 30,
            self.step_scope: 12 if self.scoped else 0,
            self.step_start: 6,
            self.step_end: 10 if self.open else 0,
            self.step_wait: 8,
            self.step_small: 6,
            self.step_give_up: 5,
            self.step_write_back: 3,
            self.step_freeze: 5,
            self.step_tiles: 5,
            self.step_join_tiles: 4,
            self.step_heal: 5 if any(i.poison for i in self.items) else 0,
            self.step_whole: 3,
            self.step_mistake: 4,
            # a body that submits waits for the main thread, which may wait for other bodies: they need a worker
            self.step_nested: 5 if self.workers > 1 else 0,
            self.step_again: 0 if self.validate else 3,
        }
        self.rng.choices(list(kinds), list(kinds.values()))[0]()


def run_program(seed):
    """Run one program under a watchdog: one that hangs fails, and is left behind."""
    errors, description = [], []
    thread = threading.Thread(target=guard, args=(seed, description, errors), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    if thread.is_alive():
        for machine in description:
            machine.stop()
        told = "\n".join(line for machine in description for line in machine.description)
        raise AssertionError(f"program {seed} hangs:\n{told}\n{stacks()}")
    if errors:
        raise errors.pop()


def guard(seed, machines, errors):
    """Run one program: every eighth with several host threads (if `HAVE_THREADS`), every eighth in several contexts."""
    try:
        if seed % 8 == 7 and HAVE_THREADS:
            run_threads(seed)
        elif seed % 8 == 3:
            run_together(seed, machines)
        else:
            machines.append(Program(seed))
            machines[0].run()
    except BaseException as error:
        errors.append(error)


def run_together(seed, machines):
    """Several contexts at once take their steps by turns; some share workers and streams."""
    rng = random.Random(seed)
    shares = rng.random() < 0.7 or ON_CUDA
    shared = Shared(rng.choice(DEVICES), seed if rng.random() < 0.6 else None) if shares else None
    for number in range(rng.randint(2, 3)):
        machines.append(Program(seed * 8 + number, rng.randint(3, 9), None, shared and shared.devices, shared))
    with contextlib.ExitStack() as descriptions:
        for machine in machines:
            descriptions.enter_context(machine.telling())
            machine.start()
        turns = [machine for machine in machines for _ in range(machine.length)]
        rng.shuffle(turns)
        for machine in turns:
            machine.turn()
        for machine in rng.sample(machines, len(machines)):
            machine.close()
        if shared is not None:
            shared.close()


class Shared:
    """A driver that several contexts share, and what marks it as shared."""

    def __init__(self, devices, hostile):
        self.devices, self.hostile = devices, hostile
        self.driver = make_driver(devices, hostile, 2)
        self.resources = shared_resources() if ON_CUDA else stf.Resources()

    def close(self):
        if not ON_CUDA:
            self.driver.close()
        settle(self.driver)


def stacks():
    """Where every thread is."""
    return "\n".join(
        f"thread {ident}:\n{''.join(traceback.format_stack(frame)[-4:])}"
        for ident, frame in sys._current_frames().items()
    )


def main():
    first = int(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    failures = 0
    for seed in range(first, first + count):
        try:
            if count == 1 and seed % 8 not in (3, 7):
                print("\n".join(Program(seed).run()))
            else:
                run_program(seed)
        except BaseException as error:
            failures += 1
            if isinstance(error, KeyboardInterrupt):
                raise
            print(f"--- seed {seed}: {type(error).__name__}: {str(error)[:200]}")
            if count == 1:
                traceback.print_exc()
            else:
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"    {where.filename.split('/')[-1]}:{where.lineno} in {where.name}")
    print(f"{count} programs, {failures} failed")
    return failures


if __name__ == "__main__":
    sys.exit(bool(main()))
