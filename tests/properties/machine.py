"""The machine: a context beside the model, the story of what was done to both, and what must hold after each step."""

from __future__ import annotations

import contextlib
import random

from model import Boom, Model, any_tile, same

import stf
import stf.lifetime
import stf.testing
from stf import config

DEVICES = ["cpu", "cpu:2", "cpu:3"]


class Machine(Model):
    """Runs one random program; subclasses have its steps, each a method that draws something, tells and does it."""

    def __init__(self, seed, length=None, calm=None, devices=None):
        self.seed = seed
        rng = random.Random(seed)
        self.length = length or rng.randint(6, 26)
        self.devices = devices or rng.choice(DEVICES)
        hostile = rng.random() < 0.6 if calm is None else not calm
        self.hostile = seed if hostile else None
        tight = self.devices != "cpu" and rng.random() < 0.4
        super().__init__(rng, device_count(self.devices), tight, rng.random() < 0.5)
        self.limit = (9 if self.accumulates else rng.choice([4, 5, 6])) * 128 if self.tight else None
        bounded = self.tight and rng.random() < 0.3
        options = {"memory_limit": self.limit} if self.tight and not bounded else {}
        if rng.random() < 0.2:
            options["max_pending"] = rng.choice([1, 2, 5])
        self.story = [f"seed {seed}: {self.devices}, hostile={self.hostile}, limit={self.limit}, {options}"]
        self.blocking, self.validate = rng.random() < 0.05, rng.random() < 0.1
        self.story[0] += f", blocking={self.blocking}, validate={self.validate}"
        self.workers = rng.choice([1, 2, 4])
        with settings(blocking=self.blocking, validate=self.validate):
            self.ctx = stf.testing.context(
                self.devices,
                hostile=self.hostile,
                capacity=self.limit if bounded else 0,
                workers=self.workers,
                **options,
            )
        self.open = []
        self.untold = set()

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self):
        ctx = self.ctx
        try:
            for _ in range(self.rng.randint(1, 3)):
                self.step_register()
            for _ in range(self.length):
                self.step()
                ctx.check_state()
            self.close()
        except BaseException as error:
            error.add_note("\n".join(self.story))
            self.stop()
            raise
        return self.story

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
        stf.testing.settle(self.ctx.driver)
        stf.testing.check_order(self.ctx.recording)

    def stop(self):
        """After a failure: end what can be ended, so that the next program starts clean."""
        self.ctx._finished = True

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
        driver = self.ctx.driver.inner
        if self.hostile is None or rng.random() > 0.15:
            return self.attempt(action, items)
        self.tell("    (with failing calls)")
        ahead = rng.randint(1, 3)
        if rng.random() < 0.5:
            driver.fail_copy = {driver.copies + ahead}
        else:
            driver.fail_alloc = set(range(driver.allocs + ahead, driver.allocs + ahead + rng.choice([1, 2, 30])))
        try:
            action()
            return True
        except (stf.OutOfMemoryError, stf.DriverError) as error:
            if "is to fail" not in str(error) + str(error.__cause__) and self.limit is None:
                raise
        finally:
            driver.fail_copy = driver.fail_alloc = ()
        self.tell("    (failed, again)")
        self.ctx.check_state()
        return self.attempt(action, items)


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
