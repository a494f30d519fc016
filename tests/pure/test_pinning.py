"""The table of registered host memory, with a CUDA that refuses what it would refuse."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest

from stf._drivers.pinning import Pins, table

ITEM = 1000  # bytes


class Registrar:
    """Refuses ranges that overlap, and to undo what is not there; sometimes takes its time, or has no room."""

    def __init__(self, seed, full=0.0):
        self.random = random.Random(seed)
        self.full = full
        self.lock = threading.Lock()
        self.ranges = {}

    def register(self, start, size):
        self.pause()
        with self.lock:
            if self.random.random() < self.full:
                return False
            if any(start < s + n and s < start + size for s, n in self.ranges.items()):
                return False
            self.ranges[start] = size
            return True

    def unregister(self, start):
        self.pause()
        with self.lock:
            del self.ranges[start]

    def pause(self):
        if self.random.random() < 0.3:
            time.sleep(self.random.random() * 1e-4)

    def covers(self, start, size):
        with self.lock:
            return any(s <= start and start + size <= s + n for s, n in self.ranges.items())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("full", [0.0, 0.2])
def test_threads_that_register_what_overlaps(seed, full):
    """What one was told is registered stays so until it lets go; nothing is left in the end."""
    array = np.zeros(40 * ITEM, np.uint8)
    base = array.__array_interface__["data"][0]
    cuda = Registrar(seed, full)
    drivers = [Pins(cuda.register, cuda.unregister) for _ in range(3)]
    errors = []

    def work(number):
        try:
            rng, pins, held = random.Random(10 * seed + number), drivers[number], []
            for _ in range(150):
                if held and rng.random() < 0.5:
                    start, size, owner = held.pop(rng.randrange(len(held)))
                    with table.changed:
                        table.claim(start, start + size)  # while it is extended, it is not there for a moment
                        assert full or cuda.covers(start, size)
                    pins.let_go(start, size, owner)
                else:
                    first = rng.randrange(39)
                    start, size = base + first * ITEM, rng.randint(1, min(8, 40 - first)) * ITEM
                    owner = rng.choice([None, memoryview(array)])
                    if pins.hold(start, size, owner, 1):
                        held.append((start, size, owner))
                    else:
                        assert full
                if rng.random() < 0.1:
                    pins.forget_unused()
            for use in held:
                pins.let_go(*use)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads) and errors == []
    for pins in drivers:
        pins.close()
    assert cuda.ranges == {} and not table.pins and not table.starts and table.unused == 0 and table.changing == []


def test_a_driver_that_ends_leaves_to_others_what_they_use():
    array = np.zeros(100 * ITEM, np.uint8)
    address = array.__array_interface__["data"][0]
    registrars = [Registrar(0), Registrar(1)]
    one, two = (Pins(r.register, r.unregister) for r in registrars)
    assert one.hold(address, array.nbytes, array) == two.hold(address, array.nbytes, array) == 1
    assert [len(r.ranges) for r in registrars] == [1, 0] and (len(one), len(two)) == (1, 0)
    one.close()
    assert [len(r.ranges) for r in registrars] == [0, 1] and (len(one), len(two)) == (0, 1)
    two.let_go(address, array.nbytes, array)
    two.close()
    assert registrars[1].ranges == {} and not table.pins
