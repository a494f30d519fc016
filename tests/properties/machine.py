"""The machine: a context beside the model, the account of what was done to both, and what must hold after each step."""

from __future__ import annotations

import contextlib
import random

import numpy as np
from drivers import (
    DEVICES,
    ON_CUDA,
    device_count,
    leave_behind,
    make_driver,
    placed,
    settings,
    settle,
    shared_resources,
)
from model import Boom, Model, any_tile, same

import stf
import stf.testing
from stf.devices.make import cuda_devices
from stf.devices.spec import parse_devices

PATIENCE_S = 60.0  # what takes longer hangs
TOTALS = {"tasks": 0, "pairs": 0}  # of all programs of this process


class Machine(Model):
    """Runs one random program; subclasses have its steps, each a method that draws something, tells and does it."""

    def __init__(self, seed, length=None, calm=None, devices=None, shared=None):
        self.seed = seed
        rng = random.Random(seed)
        self.length = length or rng.randint(6, 26)
        self.devices = devices or rng.choice(DEVICES)
        hostile = rng.random() < 0.6 if calm is None else not calm
        self.hostile = seed if hostile else None
        tight = self.devices != "cpu" and rng.random() < 0.4
        super().__init__(rng, device_count(self.devices), tight, rng.random() < 0.5)
        self.limit = (9 if self.accumulates else rng.choice([4, 5, 6])) * 128 if self.tight else None
        self.bounded = self.tight and rng.random() < 0.3 and shared is None
        options = {"memory_limit": self.limit} if self.tight and not self.bounded else {}
        if rng.random() < 0.2:
            options["max_pending"] = rng.choice([1, 2, 5])
        self.description = [f"seed {seed}: {self.devices}, hostile={self.hostile}, limit={self.limit}, {options}"]
        self.blocking, self.validate = rng.random() < 0.05, rng.random() < 0.1
        self.description[0] += f", blocking={self.blocking}, validate={self.validate}"
        self.workers = rng.choice([1, 2, 4]) if shared is None else 2
        self.throttled = "max_pending" in options
        if shared is not None:
            self.driver, self.hostile, options["resources"] = shared.driver, shared.hostile, shared.resources
            self.description[0] += f"; shared: hostile={shared.hostile}"
        else:
            self.driver = make_driver(self.devices, self.hostile, self.workers, self.limit if self.bounded else 0)
            if ON_CUDA:
                options["resources"] = shared_resources()
        options |= placed(seed)
        recording = make_recording(self.driver)
        self.scoped = seed % 8 == 5 and shared is None and recording is None
        with settings(blocking=self.blocking, validate=self.validate):
            self.ctx = open_context(self.devices, self.driver, Unproven() if self.scoped else recording, **options)
        self.shares = shared is not None
        self.open = []
        self.untold = set()
        self.skips = False  # tasks were skipped since a failure was told, for which it may be told once more

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self):
        with self.telling():
            self.start()
            for _ in range(self.length):
                self.turn()
            self.close()
        return self.description

    @contextlib.contextmanager
    def telling(self):
        """What goes wrong is told with the account so far."""
        try:
            yield
        except BaseException as error:
            error.add_note("\n".join(self.description))
            self.stop()
            raise

    def start(self):
        for _ in range(self.rng.randint(1, 3)):
            self.step_register()

    def turn(self):
        before = outside() if ON_CUDA and not self.open else None
        self.step()
        self.ctx.check_state()
        if before is not None and not self.open:
            assert outside() == before, f"{before} was current, and is {outside()}"

    def close(self):
        while self.open:
            self.step_end()
            self.ctx.check_state()
        for item in self.items:
            if item.frozen is not None:
                item.frozen.unfreeze()
        self.tell("finalize")
        try:
            self.ctx.finalize()
        except (stf.TaskFailedError, ExceptionGroup) as error:
            self.hear(error)
        assert not self.untold, f"failures that nobody was told: {self.untold}"
        self.compare_homes()
        assert not self.ctx.engine.opened(), "tasks are listed as open"
        assert not self.ctx.engine.coherency.data, "data were not forgotten"
        assert all(pool.used == 0 for pool in self.ctx.engine.coherency.pools), "memory is counted as used"
        if not self.shares:
            settle(self.driver)
        if not self.scoped:
            prove_order(self.ctx)

    def stop(self):
        """After a failure the context is left as it is: neither the collector nor the exit may wait for it."""
        leave_behind(self.ctx)

    def compare_homes(self):
        for item in [*self.finished, *self.items]:
            whole = item
            while whole.parent is not None:
                whole = whole.parent
            if whole.home is None or item is not whole or item.poison or not item.known:
                continue
            if any_tile(item, lambda t: t.poison or not t.known or not t.valid):
                continue
            self.look_at(item.home)
            if item.write_back:
                assert same(item.home, item.value), f"{item.name}: {item.home!r}, expected {item.value!r}"

    def look_at(self, array, writes=False):
        """Note that the host uses an array now; those on devices are used in the order of their streams."""
        if isinstance(array, np.ndarray):
            self.ctx.recording.host_access(array, writes)

    def enqueues(self, place):
        """Whether bodies at an execution place run in the call that submits them."""
        return ON_CUDA and (place is None or place.kind != "host")

    def tell(self, text):
        self.description.append(f"  {len(self.description)}. {text}")

    def hear(self, error):
        """Note which failures an exception tells of; each must be one of this program's."""
        for one in error.exceptions if isinstance(error, ExceptionGroup) else [error]:
            if not isinstance(one, stf.TaskFailedError):
                raise error
            assert isinstance(one.__cause__, Boom), one.__cause__
            for label in (one.task, *(label for label, _ in one.others)):
                name = label.strip("'")
                assert name in self.failed, f"{one} tells of a task that did not fail"
                self.untold.discard(name)
            if "was skipped" in str(one):  # what a call raises of its own body tells of no skipped task
                self.skips = False

    def attempt(self, action, items=()):
        """Do something that memory may be too short for; False if it rightly was."""
        try:
            action()
            return True
        except stf.OutOfMemoryError:
            if self.limit is None:
                raise
            needed = sum({id(i): i.nbytes for i in items}.values())
            pinned = sum(i.nbytes for i in self.items if i.claims or i.frozen is not None)
            partials = sum(i.nbytes * 2 * (self.count + 1) for i in self.items if i.partials is not None)
            if needed + pinned + partials <= self.limit:
                raise
            self.tell("    (no room)")
            self.ctx.check_state()
            return False

    def injecting(self, action, items=()):
        """Attempt something; now and then let a copy or allocations fail in it, then do it again."""
        rng = self.rng
        if (self.hostile is None and not ON_CUDA) or rng.random() > 0.15 or self.ctx.engine.window is not None:
            # (a window tells of the failure later, and poisons what the task was to write)
            return self.attempt(action, items)
        self.tell("    (with failing calls)")
        ahead = rng.randint(1, 3)
        if rng.random() < 0.5:
            self.driver.fail_copies(ahead)
        else:
            self.driver.fail_allocations(ahead, rng.choice([1, 2, 30]))
        try:
            action()
            return True
        except (stf.OutOfMemoryError, stf.DriverError) as error:
            if "is to fail" not in str(error) + str(error.__cause__) and self.limit is None:
                raise
        finally:
            self.driver.end_failures()
        self.tell("    (failed, again)")
        self.ctx.check_state()
        return self.attempt(action, items)


def outside():
    """The device that CuPy says is current in this thread, and its current streams."""
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    return cupy.cuda.runtime.getDevice(), *(cupy.cuda.get_current_stream(i).ptr for i in range(count))


def open_context(devices, driver, recording, **options):
    """A context on a driver, whose calls are recorded."""
    spec = parse_devices(devices, cuda_devices=cuda_devices)
    return stf.testing.context(spec, driver=driver, recording=recording, **options)


class Unproven(stf.testing.Recording):
    """A recording of a program with tasks that are recorded themselves: no stream has these, so no order is proven."""

    def task(self, task):
        """Note nothing."""


def make_recording(driver):
    """What the context of a program writes its recording in; tests/cudatrace has another."""
    return None


def prove_order(ctx):
    """Prove the order of what a finalized context did, from its recording."""
    TOTALS["pairs"] += stf.testing.check_order(ctx.recording)
    TOTALS["tasks"] += ctx.engine.next_task - ctx.engine.withdrawn
