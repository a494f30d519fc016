"""The hostile driver: it refuses what breaks the rules, shows what would go unseen, and is off unless asked for."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import stf
import stf.testing
from stf import config, data_place, exec_place
from stf._drivers.cpu import CpuDriver
from stf.errors import DriverError
from stf.testing import HostileDriver


@pytest.fixture
def driver() -> HostileDriver:
    driver = HostileDriver(CpuDriver(2, False, 2), 3, delays=False)
    yield driver
    driver.close()


def copy(driver: HostileDriver, stream: int, target: int, source: int) -> None:
    driver.copy(stream, target, (8,), source, (8,), (4,), 8, None)


def test_freed_memory_is_refused(driver: HostileDriver) -> None:
    stream = driver.stream_create(0)
    one, two = driver.alloc(0, 32, stream), driver.alloc(0, 32, stream)
    driver.free(0, one, 32, stream)
    with pytest.raises(DriverError, match=r"ILLEGAL_ADDRESS \(700\).*were freed"):
        copy(driver, stream, two, one)
    with pytest.raises(DriverError, match="are not allocated"):
        driver.free(0, one, 32, stream)
    with pytest.raises(DriverError, match="are not allocated"):
        driver.free(1, two, 32, stream)
    assert len(driver.violations) == 3


def test_arrays_that_reach_out_are_refused(driver: HostileDriver) -> None:
    stream = driver.stream_create(0)
    small = driver.alloc(0, 16, stream)
    with pytest.raises(DriverError, match="reaches out"):
        copy(driver, stream, small, driver.alloc(0, 32, stream))


def test_streams_and_events_are_checked(driver: HostileDriver) -> None:
    one, two = driver.stream_create(0), driver.stream_create(1)
    driver.record(one, 1)
    with pytest.raises(DriverError, match="does not increase"):
        driver.record(one, 1)
    with pytest.raises(DriverError, match="not recorded yet"):
        driver.wait_event(two, one, 2)
    with pytest.raises(DriverError, match="no device 2"):
        driver.stream_create(2)
    driver.synchronize(one, 1, -1.0)
    driver.stream_destroy(one)
    with pytest.raises(DriverError, match=r"INVALID_HANDLE \(400\).*does not exist"):
        driver.record(one, 2)
    driver.call(two, lambda: None)
    with pytest.raises(DriverError, match="not idle"):
        driver.stream_destroy(two)


def test_memory_holds_patterns(driver: HostileDriver) -> None:
    stream = driver.stream_create(0)
    address = driver.alloc(0, 8, stream)
    block = driver.owner(address)
    assert (block == 0xA5).all()
    start = address - block.ctypes.data
    driver.free(0, address, 8, stream)
    driver.record(stream, 1)
    driver.synchronize(stream, 1, -1.0)
    assert (block[start : start + 8] == 0x5A).all()
    block[start] = 1  # a write after the free
    driver.close()
    assert any("written after they were freed" in text for text in driver.violations)


def test_calls_fail_where_they_are_told_to() -> None:
    driver = HostileDriver(CpuDriver(1, False, 1), fail_alloc={2}, fail_copy={1})
    stream = driver.stream_create(0)
    one = driver.alloc(0, 32, stream)
    with pytest.raises(MemoryError, match="allocation 2"):
        driver.alloc(0, 32, stream)
    with pytest.raises(DriverError, match="copy 1"):
        copy(driver, stream, one, driver.alloc(0, 32, stream))
    driver.close()


def test_what_is_known_to_be_complete_may_be_old_and_never_goes_back() -> None:
    driver = HostileDriver(CpuDriver(1, False, 1), 1, delays=False)
    stream = driver.stream_create(0)
    told = []
    for sequence in range(1, 50):
        driver.record(stream, sequence)
        told.append(driver.completed(stream))
    assert told == sorted(told)
    assert told != list(range(1, 50))
    driver.close()


def test_ready_streams_are_shuffled_by_the_seed() -> None:
    def order(seed: int) -> list[int]:
        driver = HostileDriver(CpuDriver(1, False, 1), seed, delays=False)
        latch, seen = threading.Event(), []
        streams = [driver.stream_create(0) for _ in range(8)]
        driver.call(streams[0], latch.wait)
        for i, stream in enumerate(streams):
            driver.call(stream, lambda i=i: seen.append(i))
            driver.record(stream, 1)
        latch.set()
        for stream in streams:
            driver.synchronize(stream, 1, -1.0)
        driver.close()
        return seen

    assert {tuple(order(seed)) for seed in range(6)} != {tuple(order(0))}
    assert sorted(order(1)) == list(range(8))


def test_the_setting_makes_every_context_hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros(3)
    monkeypatch.setattr(config, "hostile", 11)
    with stf.context(devices="cpu:2") as ctx:
        assert isinstance(ctx._driver, HostileDriver) and ctx._driver.seed == 11
        lx = ctx.logical_data(x)
        for device in (0, 1, 0):
            ctx.task(exec_place.device(device), lx.rw())(lambda a: np.add(a, 1, out=a) is None or None)
    assert x.tolist() == [3, 3, 3]
    assert ctx._driver.violations == []


def test_a_copy_that_fails_changes_nothing() -> None:
    x = np.arange(4.0)
    with stf.testing.context("cpu:1", hostile=2, fail_copy={1}) as ctx:
        lx = ctx.logical_data(x)
        with pytest.raises(DriverError, match="copy 1 is to fail"):
            with ctx.task(lx.rw()):
                raise AssertionError("never runs")
        ctx.check_state()
        with ctx.task(lx.rw()) as t:
            t.arrays()[0][:] += 1
    assert x.tolist() == [1, 2, 3, 4]


def test_memory_of_a_device_is_bounded() -> None:
    arrays = [np.full(4, i, "f8") for i in range(4)]
    with stf.testing.context("cpu:1", hostile=5, capacity=64) as ctx:
        data = [ctx.logical_data(a) for a in arrays]
        for _ in range(3):
            for one in data:
                with ctx.task(one.rw()) as t:
                    t.arrays()[0][:] += 1
                ctx.check_state()
        too_much = ctx.logical_data_empty(9)
        with pytest.raises(stf.OutOfMemoryError, match="no room for 72 bytes"):
            with ctx.task(too_much.write()):
                pass
    assert [a[0] for a in arrays] == [3, 4, 5, 6]
    assert ctx.engine.coherency.pools[1].evictions >= 8


def test_a_body_that_writes_what_it_reads_is_named_with_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "validate", True)

    def sneaky(x):
        x.flags.writeable = True
        x[0] = 7

    with stf.context(devices="cpu:1") as ctx:
        lx = ctx.logical_data_empty(3, name="X")
        ctx.task(lx.write(), name="author")(lambda x: x.fill(1))
        ctx.task(lx.read(), name="thief")(sneaky)
        with pytest.raises(stf.TaskFailedError, match="thief.*changed logical data 'X'.*written by task 'author'"):
            ctx.synchronize()


def test_prefetching_under_hostility_moves_the_right_bytes() -> None:
    x = np.arange(24.0).reshape(4, 6)[::2, ::-3]
    expected = x * 2
    with stf.testing.context("cpu:3", hostile=8) as ctx:
        lx = ctx.logical_data(x)
        for device in (2, 0, 1):
            ctx.prefetch(lx, data_place.device(device))
        with ctx.task(exec_place.device(1), lx.rw()) as t:
            t.arrays()[0][...] *= 2
    assert (x == expected).all()
    stf.testing.settle(ctx.driver)
    assert stf.testing.check_order(ctx.recording) > 0
