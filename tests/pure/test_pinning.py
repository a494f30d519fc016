"""The table of registered host memory, with a CUDA that refuses what it would refuse."""

from __future__ import annotations

import random
import threading
import time

import numpy as np
import pytest

import stf
from stf._drivers import pinning
from stf._drivers.pinning import Pins, base_of, table

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


class Slow(Registrar):
    """Takes its time to undo a range, or to make one: until `go` is set. Makes none of the size `refused`."""

    def __init__(self):
        super().__init__(0)
        self.inside, self.go = threading.Event(), threading.Event()
        self.is_slow = self.is_slow_to_make = False
        self.refused = 0

    def wait(self):
        self.inside.set()
        assert self.go.wait(30)

    def register(self, start, size):
        if size == self.refused:
            return False
        if self.is_slow_to_make:
            self.wait()
        return super().register(start, size)

    def unregister(self, start):
        if self.is_slow:
            self.wait()
        super().unregister(start)


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_who_lets_go_while_a_range_grows_is_counted():
    cuda = Slow()
    one, two = (Pins(cuda.register, cuda.unregister) for _ in range(2))
    array = np.zeros(40 * ITEM, np.uint8)
    base = array.__array_interface__["data"][0]
    assert one.hold(base, 10 * ITEM, None, 1)  # memory without an owner
    cuda.is_slow = True
    grows = in_thread(lambda: two.hold(base + 5 * ITEM, 10 * ITEM, None, 1))
    assert cuda.inside.wait(30)
    one.let_go(base, 10 * ITEM, None)  # and waits for nobody
    cuda.is_slow = False
    cuda.go.set()
    grows.join(30)
    assert [pin.users for pin in table.pins.values()] == [{two: 1}]
    two.let_go(base + 5 * ITEM, 10 * ITEM, None)
    assert not table.pins and not cuda.ranges and table.unused == 0


def test_what_kernels_use_in_place_stays_registered_as_it_is():
    cuda = Registrar(0)
    pins = Pins(cuda.register, cuda.unregister)
    array = np.zeros(40 * ITEM, np.uint8)
    base = array.__array_interface__["data"][0]
    assert pins.hold(base, 10 * ITEM, None, 1, in_place=True)
    assert not pins.hold(base + 5 * ITEM, 10 * ITEM, None, 1)
    assert cuda.ranges == {base: 10 * ITEM}
    assert pins.hold(base + ITEM, ITEM, None, 1)  # a part of it
    for offset, count in ((0, 10), (1, 1)):
        pins.let_go(base + offset * ITEM, count * ITEM, None)
    assert pins.hold(base + 5 * ITEM, 10 * ITEM, None, 1)  # nobody uses it there any more
    pins.let_go(base + 5 * ITEM, 10 * ITEM, None)
    assert not table.pins and not cuda.ranges


def test_whose_memory_lasts():
    """As long as the array does: NumPy's own, and what an object gave that holds it. A buffer may be closed before."""
    owned = np.zeros(4)
    exported = np.from_dlpack(owned)
    viewed = stf.view(owned.ctypes.data, 4, np.float64, owner=owned)
    for array in (owned, owned[1:], exported, viewed):
        assert base_of(array, array.ctypes.data, array.nbytes)[2], array
    buffer = bytearray(32)
    raw = stf.view(owned.ctypes.data, 4, np.float64)
    for array in (np.frombuffer(buffer), np.ndarray(4, np.float64, buffer), raw):
        assert not base_of(array, array.ctypes.data, array.nbytes)[2], array


def test_nothing_is_registered_again_for_nobody():
    """The last user lets go while what could not grow is made as it was."""
    cuda = Slow()
    one, two = (Pins(cuda.register, cuda.unregister) for _ in range(2))
    array = np.zeros(40 * ITEM, np.uint8)
    base = array.__array_interface__["data"][0]
    assert one.hold(base, 10 * ITEM, None, 1)
    cuda.refused, cuda.is_slow_to_make = 15 * ITEM, True
    grows = in_thread(lambda: two.hold(base + 5 * ITEM, 10 * ITEM, None, 1))
    assert cuda.inside.wait(30)
    one.let_go(base, 10 * ITEM, None)
    cuda.is_slow_to_make = False
    cuda.go.set()
    grows.join(30)
    assert not table.pins and not cuda.ranges and table.unused == 0


@pytest.mark.parametrize(("slow", "at"), [(0, "is_slow"), (1, "is_slow_to_make")])
def test_two_drivers_that_share_an_array_end_at_once(slow, at):
    """As the first undoes its range, or as the second one's is made anew."""
    registrars = [Registrar(0), Registrar(1)]
    registrars[slow] = Slow()
    one, two = (Pins(registrar.register, registrar.unregister) for registrar in registrars)
    array = np.zeros(40 * ITEM, np.uint8)
    base = array.__array_interface__["data"][0]
    assert one.hold(base, array.nbytes, array, 1) and two.hold(base, array.nbytes, array, 1)
    setattr(registrars[slow], at, True)
    ends = in_thread(one.close)
    assert registrars[slow].inside.wait(30)
    two.close()
    setattr(registrars[slow], at, False)
    registrars[slow].go.set()
    ends.join(30)
    assert not table.pins and not any(registrar.ranges for registrar in registrars)


def test_what_comes_again_stays_registered_however_large_it_is(monkeypatch):
    """Beyond a bound what nobody uses goes when something else is registered: not for the sake of itself."""
    monkeypatch.setattr(pinning, "UNUSED_LIMIT", 1 << 17)
    cuda, calls = Registrar(0), []
    pins = Pins(lambda *a: calls.append(a[0]) or cuda.register(*a), cuda.unregister)
    one, other = np.zeros(1 << 18, np.uint8), np.zeros(1 << 18, np.uint8)
    (a, n), (b, _) = ((x.__array_interface__["data"][0], x.nbytes) for x in (one, other))
    for _ in range(3):
        for part in (0, n // 2):  # of one array, by views of it
            assert pins.hold(a + part, n // 2, one[part : part + n // 2]) == 1
        for part in (0, n // 2):
            pins.let_go(a + part, n // 2, one[part : part + n // 2])
        assert pins.hold(other.ctypes.data, 8, other[:1].copy()) == 0  # too small to be registered
    assert calls == [a] and table.unused == n
    assert pins.hold(b, n, other) == 1 and calls == [a, b] and list(cuda.ranges) == [b]
    pins.let_go(b, n, other)
    assert pins.hold(a, n, one) == 1 and list(cuda.ranges) == [a]
    pins.let_go(a, n, one)
    pins.close()
    assert not table.pins and not cuda.ranges and table.unused == 0


class Buffer:
    """An array over memory that its owner may close: the next one may be at its address."""

    def __init__(self, array):
        self.array = array
        self.base = None
        self.nbytes = array.nbytes
        self.__array_interface__ = array.__array_interface__ | {"strides": None}


def test_memory_that_is_anothers_by_now_is_registered_anew():
    """Its last user has let go, and nobody has looked since whether the devices are done with it."""
    array, calls = np.zeros(40 * ITEM, np.uint8), []
    base = array.__array_interface__["data"][0]
    cuda = Registrar(0)

    def settle():
        calls.append("settle")
        pins.let_go_later(base, array.nbytes, first)

    pins = Pins(lambda *a: calls.append("register") or cuda.register(*a), cuda.unregister, settle)
    first, second = Buffer(array), Buffer(array)
    assert pins.hold(base, array.nbytes, first, 1)
    assert pins.hold(base, array.nbytes, second, 1)
    assert calls == ["register", "settle", "register"]
    pins.let_go(base, array.nbytes, second)
    assert not table.pins and not cuda.ranges


class Interrupted(Registrar):
    """Ctrl-C comes while CUDA works on a range: Python raises it when that is done."""

    def register(self, start, size):
        assert super().register(start, size)
        raise KeyboardInterrupt

    def unregister(self, start):
        if len(self.ranges) == 2:
            super().unregister(start)
        raise KeyboardInterrupt


def test_what_ctrl_c_interrupts_is_known_as_it_is():
    """A registration that nobody knew of stayed for ever: copies of what was at its addresses later failed."""
    cuda = Interrupted(0)
    pins = Pins(cuda.register, cuda.unregister, registered=cuda.ranges)
    arrays = [np.zeros(10 * ITEM, np.uint8) for _ in range(2)]
    bases = [array.__array_interface__["data"][0] for array in arrays]
    for base, array in zip(bases, arrays, strict=True):
        with pytest.raises(KeyboardInterrupt):
            pins.hold(base, array.nbytes, array, 1)
        assert table.pins.keys() == cuda.ranges.keys()
        assert pins.hold(base, array.nbytes, array, 1)
        pins.let_go(base, array.nbytes, array)
    for _ in range(2):  # the first is undone; the second call is interrupted before
        with pytest.raises(KeyboardInterrupt):
            pins.forget_unused()
        assert table.pins.keys() == cuda.ranges.keys() and len(table.pins) == 1
    assert table.unused == 10 * ITEM and not table.changing
    pins.unregister = super(Interrupted, cuda).unregister
    pins.close()
    assert cuda.ranges == {} and not table.pins and not table.unused
