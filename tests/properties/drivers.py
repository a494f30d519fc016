"""The drivers that the programs run on, and how they are made to fail.

On CUDA (STF_TEST_DEVICES=cuda:0,1) all programs of a process share one `stf.Resources`, as they would share a GPU:
a context costs microseconds then. What a program leaves on it shows in the next one, and at the end (`close_shared`).
"""

from __future__ import annotations

import contextlib
import os
import random

import stf
import stf._engine.lifetime
import stf.testing
from stf import config
from stf._drivers.cpu import CpuDriver
from stf._drivers.wrappers.wrapping import WrappingDriver
from stf._recording import persistent
from stf.devices.make import cuda_devices
from stf.devices.spec import parse_devices
from stf.testing import HostileDriver


class Telling(WrappingDriver):
    """A driver that sets the event `refused` when it has no memory, whose calls fail as told; `capacity` bounds it."""

    def __init__(self, inner, capacity=0):
        super().__init__(inner)
        self.refused = None
        self.bound, self.taken = capacity, [0] * (inner.device_count + 1)
        self.allocs = self.copies = 0
        self.failing_allocs = self.failing_copies = ()

    def alloc(self, device, nbytes, stream):
        self.allocs += 1
        try:
            if self.allocs in self.failing_allocs:
                raise MemoryError(f"allocation {self.allocs} is to fail")
            if self.bound and device >= 0 and self.taken[device] + nbytes > self.bound:
                raise MemoryError(f"{nbytes} bytes asked, {self.bound - self.taken[device]} free")
            address = super().alloc(device, nbytes, stream)
        except MemoryError:
            if self.refused is not None:
                self.refused.set()
            raise
        self.taken[device] += nbytes
        return address

    def free(self, device, address, nbytes, stream):
        self.taken[device] -= nbytes
        return super().free(device, address, nbytes, stream)

    def copy(self, stream, *what):
        self.copies += 1
        if self.copies in self.failing_copies:
            text = f"copy {self.copies} is to fail"
            raise stf.DriverError("UNKNOWN", 999, "copy", f"stream {stream}", text)
        return super().copy(stream, *what)

    def fail_allocations(self, ahead, count):
        """Let `count` allocations fail, beginning with the next but `ahead` - 1."""
        first = self.allocs + ahead
        self.failing_allocs = range(first, first + count)

    def fail_copies(self, ahead):
        self.failing_copies = {self.copies + ahead}

    def end_failures(self):
        self.failing_allocs = self.failing_copies = ()


# -- which -------------------------------------------------------------------------------------------------------------


def chosen_devices(asked):
    """The devices that programs choose among: emulated ones, or the first one, two, … of CUDA's."""
    if not asked.startswith("cuda"):
        return ["cpu", "cpu:2", "cpu:3"] if os.environ.get("STF_TEST_PLACE") != "auto" else ["cpu:2", "cpu:3", "cpu:4"]
    count = len(asked.partition(":")[2].split(",")) if ":" in asked else cuda_devices()
    numbers = [str(i) for i in range(count)]
    assert asked in ("cuda", "cuda:" + ",".join(numbers)), f"{asked}: the programs number devices from 0 on"
    return ["cuda:" + ",".join(numbers[:n]) for n in sorted({1, min(count, 2), count})]


if os.environ.get("STF_TEST_GRAPH_BACKEND") == "persistent":  # what can be a loop is one from its first launch on
    persistent.runs_before = 0
DEVICES = chosen_devices(os.environ.get("STF_TEST_DEVICES", "cpu"))
ON_CUDA = DEVICES[0].startswith("cuda")
PLACE = os.environ.get("STF_TEST_PLACE")  # "auto": the places of tasks are chosen, by rules of all kinds
_shared = [None]


def device_count(devices):
    return 1 if devices == "cpu" else int(devices[4:]) if devices.startswith("cpu") else devices.count(",") + 1


def shared_resources():
    """What all programs of this process share on CUDA."""
    if _shared[0] is None:
        _shared[0] = stf.Resources()
    return _shared[0]


def drop_shared():
    """Share no more what a failed program left in an unknown state; it is kept, since its work may go on."""
    if _shared[0] is not None:
        _left.append(_shared[0])
    _shared[0] = None


_left = []


def close_shared():
    """Close what was shared; return what it leaves behind, by driver."""
    resources, _shared[0] = _shared[0], None
    drivers = dict(resources._drivers) if resources is not None else {}
    if resources is not None:
        resources.close()
    return {str(spec): leaks for spec, driver in drivers.items() if any(leaks := driver.leaks())}


def make_driver(devices, hostile, workers, capacity=0):
    count = device_count(devices)
    if devices.startswith("cuda"):
        return Telling(shared_resources().driver(parse_devices(devices, cuda_devices=cuda_devices)), capacity)
    driver = CpuDriver(count, devices == "cpu", workers, [capacity] * count)
    return Telling(driver if hostile is None else HostileDriver(driver, hostile))


def settle(driver):
    """Verify that nothing is left of the programs on a driver, which is closed unless it is CUDA's."""
    if driver.name != "cuda":
        stf.testing.settle(driver)
        return
    assert driver.errors == [], driver.errors
    assert driver.live_allocations == 0, f"{driver.live_allocations} allocations are left"


def leave_behind(ctx):
    """Let go of a context that may hang."""
    ctx._finished = True
    stf._engine.lifetime.forget(ctx)
    drop_shared()


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


def placed(seed):
    """Return what a context is opened with whose tasks have a place that is chosen, by some rule; else nothing.

    A function that chooses at random is a rule, too.
    """
    rng = random.Random(seed + 1)
    rules = [
        stf.placement.eft(),
        stf.placement.eft(move_weight=rng.choice([0.0, 1.0, 4.0])),
        stf.placement.owner(),
        stf.placement.planned(window=rng.choice([2, 8, 256]), move_weight=rng.choice([1, 4])),
        stf.placement.planned(),
        lambda task, places: rng.choice(places),
    ]
    return {"place": "auto", "placement": rng.choice(rules)} if PLACE == "auto" else {}
