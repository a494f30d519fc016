"""The machine: a context beside the model, the story of what was done to both, and what must hold after each step."""

from __future__ import annotations

import contextlib
import random

from model import Boom, Model, any_tile, same

import stf
import stf.lifetime
import stf.testing
from stf import config
from stf._drivers.cpu import CpuDriver
from stf._drivers.wrapping import WrappingDriver
from stf.testing import HostileDriver

DEVICES = ["cpu", "cpu:2", "cpu:3"]
PATIENCE_S = 60.0  # what takes longer hangs


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
        self.story = [f"seed {seed}: {self.devices}, hostile={self.hostile}, limit={self.limit}, {options}"]
        self.blocking, self.validate = rng.random() < 0.05, rng.random() < 0.1
        self.story[0] += f", blocking={self.blocking}, validate={self.validate}"
        self.workers = rng.choice([1, 2, 4]) if shared is None else 2
        self.throttled = "max_pending" in options
        if shared is not None:
            self.driver, self.hostile, options["resources"] = shared.driver, shared.hostile, shared.resources
            self.story[0] += f"; shared: hostile={shared.hostile}"
        else:
            self.driver = make_driver(self.devices, self.hostile, self.workers, self.limit if self.bounded else 0)
        with settings(blocking=self.blocking, validate=self.validate):
            self.ctx = stf.testing.context(self.devices, driver=self.driver, **options)
        self.shares = shared is not None
        self.open = []
        self.untold = set()

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self):
        with self.telling():
            self.start()
            for _ in range(self.length):
                self.turn()
            self.close()
        return self.story

    @contextlib.contextmanager
    def telling(self):
        """What goes wrong is told with the story so far."""
        try:
            yield
        except BaseException as error:
            error.add_note("\n".join(self.story))
            self.stop()
            raise

    def start(self):
        for _ in range(self.rng.randint(1, 3)):
            self.step_register()

    def turn(self):
        self.step()
        self.ctx.check_state()

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
            stf.testing.settle(self.driver)
        stf.testing.check_order(self.ctx.recording)

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
            self.ctx.recording.host_access(item.home, False)
            if item.write_back:
                assert same(item.home, item.value), f"{item.name}: {item.home!r}, expected {item.value!r}"

    def tell(self, text):
        self.story.append(f"  {len(self.story)}. {text}")

    def hear(self, error):
        """Note which failures an exception tells of; each must be one of this program's."""
        for one in error.exceptions if isinstance(error, ExceptionGroup) else [error]:
            if not isinstance(one, stf.TaskFailedError):
                raise error
            name = one.task.strip("'")
            assert name in self.failed, f"{one} tells of a task that did not fail"
            assert isinstance(one.__cause__, Boom), one.__cause__
            self.untold.discard(name)

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
        if self.hostile is None or rng.random() > 0.15:
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


# -- drivers --------------------------------------------------------------------------------------------------------


class Telling(WrappingDriver):
    """A driver that sets the event `refused` when it has no memory, and lets calls of a hostile driver fail.

    `copies` and `allocs` of the hostile driver count its calls.
    """

    def __init__(self, inner):
        super().__init__(inner)
        self.refused = None

    def alloc(self, device, nbytes, stream):
        try:
            return super().alloc(device, nbytes, stream)
        except MemoryError:
            if self.refused is not None:
                self.refused.set()
            raise

    def fail_allocations(self, ahead, count):
        """Let `count` allocations fail, beginning with the next but `ahead` - 1."""
        first = self.inner.allocs + ahead
        self.inner.fail_alloc = range(first, first + count)

    def fail_copies(self, ahead):
        self.inner.fail_copy = {self.inner.copies + ahead}

    def end_failures(self):
        if isinstance(self.inner, HostileDriver):
            self.inner.fail_copy = self.inner.fail_alloc = ()


def make_driver(devices, hostile, workers, capacity=0):
    count = device_count(devices)
    driver = CpuDriver(count, devices == "cpu", workers, [capacity] * count)
    return Telling(driver if hostile is None else HostileDriver(driver, hostile))


def leave_behind(ctx):
    """Let go of a context that may hang."""
    ctx._finished = True
    stf.lifetime.forget(ctx)


def device_count(devices):
    return 1 if devices == "cpu" else int(devices[4:])


@contextlib.contextmanager
def settings(**values):
    """Settings of stf for a while."""
    before = {name: getattr(config, name) for name in values}
    for name, value in values.items():
        setattr(config, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)
