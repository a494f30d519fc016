"""Which replica goes when memory runs out: always the one that a sort of all data would name, at a cost that stays."""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stf
import stf.testing
from stf._drivers.cpu import CpuDriver
from stf.devices.spec import DeviceSpec
from stf.testing import HostileDriver

N = 16
NBYTES = 8 * N


@stf.task
def add(x: stf.ReadWrite) -> None:
    x += 1


def limited(replicas: int, devices: str = "cpu:1", **options: Any) -> stf.Context:
    return stf.context(devices=devices, memory_limit=replicas * NBYTES, **options)


def arrays(ctx: stf.Context, count: int) -> list[Any]:
    return [ctx.logical_data(np.full(N, float(k)), name=f"X{k}") for k in range(count)]


def evicted(ctx: stf.Context, data: list[Any], place: int = 0) -> list[int]:
    """Return which data have no memory on a device."""
    return [k for k, item in enumerate(data) if replica_at(item, place + 1) is None]


def replica_at(item: Any, place: int) -> Any:
    found = (r for r in item.core.version.replicas if r.place == place and not r.home)
    return next((r for r in found if r.address), None)


def key(version: Any, replica: Any) -> tuple[int, int]:
    """The rank and the last use, which the order is made of."""
    return 0 if replica.state == 0 else 1 if version.valid > 1 else 2, replica.last_use


class Program:
    """A random program on two devices with little room; each eviction is compared with a sort."""

    def __init__(self, ctx: stf.Context, seed: int) -> None:
        self.ctx, self.rng = ctx, random.Random(seed)
        self.data = arrays(ctx, 12)
        self.frozen: dict[int, Any] = {}
        self.graphs: list[tuple[Any, set[int]]] = []
        self.evictions = 0

    def step(self) -> None:
        kinds = {self.run: 20, self.look: 4, self.freeze: 2, self.unfreeze: 2, self.record: 1, self.close: 1}
        self.rng.choices([*kinds, self.renew], [*kinds.values(), 2])[0]()
        self.ctx.check_state()

    def run(self) -> None:
        """Run a task; what it evicts must be the first of those that may go."""
        place = self.rng.randrange(2)
        here = {k: replica_at(item, place + 1) for k, item in enumerate(self.data)}
        modes = {
            k: self.rng.choice(("read", "rw", "write")) for k in self.rng.sample(range(12), self.rng.choice((1, 2)))
        }
        while len(modes) > 1 and any(here[k] and here[k].state == 0 for k in modes):
            modes.popitem()  # an invalid replica of its own may go while the other one is brought
        recorded = {k for _, used in self.graphs for k in used}
        if recorded & set(modes) or any(mode != "read" for k, mode in modes.items() if k in self.frozen):
            return
        stays = {*modes, *self.frozen, *(recorded if place == 0 else ())}
        keys = {k: key(self.data[k].core.version, here[k]) for k in here if here[k] and k not in stays}
        before = self.ctx.statistics().evictions[f"device({place})"]
        with self.ctx.task(place, *[getattr(self.data[k], mode)() for k, mode in modes.items()]):
            pass
        count = self.ctx.statistics().evictions[f"device({place})"] - before
        assert sorted(keys[k] for k in keys if not replica_at(self.data[k], place + 1)) == sorted(keys.values())[:count]
        self.evictions += count

    def look(self) -> None:
        """Make a replica of a data shared."""
        self.rng.choice(self.data).numpy()

    def freeze(self) -> None:
        k = self.rng.randrange(12)
        if k not in self.frozen and len(self.frozen) < 2:
            self.frozen[k] = self.ctx.freeze(self.data[k], "read", stf.data_place.device(0))
            self.frozen[k].get()

    def unfreeze(self) -> None:
        if self.frozen:
            self.frozen.pop(self.rng.choice(list(self.frozen))).unfreeze()

    def record(self) -> None:
        """Record a graph, which keeps what it uses on device 0 while it lives."""
        k = self.rng.randrange(12)
        if not self.graphs and k not in self.frozen:
            graph = self.ctx.task_graph()
            with graph:
                add.on(0)(self.data[k])
            graph.launch()
            self.graphs.append((graph, {k}))

    def close(self) -> None:
        while self.graphs:
            self.graphs.pop()[0].close()
        self.ctx.synchronize()

    def renew(self) -> None:
        """Drop a data, and have a new one."""
        k = self.rng.randrange(12)
        if k not in self.frozen and not any(k in used for _, used in self.graphs):
            self.data[k] = self.ctx.logical_data(np.full(N, float(k)))

    def end(self) -> None:
        self.close()
        while self.frozen:
            self.unfreeze()


@pytest.mark.parametrize("seed", range(6))
def test_what_goes_is_what_a_sort_of_all_data_would_name(seed: int) -> None:
    with limited(6, "cpu:2") as ctx:
        program = Program(ctx, seed)
        for _ in range(200):
            program.step()
        program.end()
    assert program.evictions > 20


def test_the_least_recently_used_one_goes() -> None:
    with limited(4) as ctx:
        data = arrays(ctx, 8)
        for k in (0, 1, 2, 3, 0, 2, 4, 5):
            add.on(0)(data[k])
        assert evicted(ctx, data) == [1, 3, 6, 7]


@pytest.mark.parametrize(("count", "room"), [(20, 10), (250, 200)])
def test_uses_of_many_data_are_kept_apart(count: int, room: int) -> None:
    """More than what is noted between two choices; the model is a list in the order of last use."""
    rng, recent = random.Random(count), []
    with limited(room) as ctx:
        data = arrays(ctx, count)
        for _ in range(3 * count):
            for _ in range(rng.choice((1, 5, 100))):
                k = rng.choice(recent) if recent and rng.random() < 0.9 else rng.randrange(count)
                recent = [*[other for other in recent if other != k][-room + 1 :], k]
                with ctx.task(0, data[k].rw()):
                    pass
            assert evicted(ctx, data) == sorted(set(range(count)) - set(recent))
        ctx.check_state()
        assert sum(ctx.statistics().evictions.values()) > count


def test_a_copy_of_it_elsewhere_lets_a_replica_go_first_and_its_end_puts_it_back() -> None:
    with limited(3, "cpu:2") as ctx:
        data = arrays(ctx, 8)
        for k in (0, 1, 2):
            add.on(0)(data[k])
        with ctx.task(1, data[1].read()):  # shared now
            pass
        add.on(0)(data[3])
        assert evicted(ctx, data) == [1, 4, 5, 6, 7]
        with ctx.task(1, data[2].read()):
            pass
        for k in (5, 6, 7):  # data[2] goes from the other device, and is the only valid one again
            add.on(1)(data[k])
        add.on(0)(data[4])
        assert evicted(ctx, data) == [0, 1, 5, 6, 7]


def test_what_was_frozen_or_recorded_comes_back_to_where_it_stood() -> None:
    with limited(4) as ctx:
        data = arrays(ctx, 12)
        for k in range(4):
            add.on(0)(data[k])
        frozen = ctx.freeze(data[0], "read", stf.data_place.device(0))
        frozen.get()
        graph = ctx.task_graph()
        with graph:
            add.on(0)(data[1])
        for k in (4, 5, 6):
            add.on(0)(data[k])
        assert {0, 1} & set(evicted(ctx, data)) == set()
        graph.close()
        add.on(0)(data[7])
        assert 1 in evicted(ctx, data)
        frozen.unfreeze()
        add.on(0)(data[8])
        assert 0 in evicted(ctx, data)
        ctx.check_state()


def test_a_task_that_is_taken_back_leaves_the_order_as_it_was() -> None:
    with limited(3) as ctx:
        data = arrays(ctx, 6)
        for k in range(3):
            add.on(0)(data[k])
        with pytest.raises(stf.OutOfMemoryError):
            ctx.task(0, *(item.rw() for item in data[:4])).start()
        ctx.check_state()
        for k in (0, 1, 2, 3):
            add.on(0)(data[k])
        assert evicted(ctx, data) == [0, 4, 5]


def test_nothing_is_kept_before_the_driver_has_no_memory_left() -> None:
    with stf.context(devices=DeviceSpec("cpu", 1, False, (4 * NBYTES,))) as ctx:
        data = arrays(ctx, 8)
        pool = ctx.engine.coherency.pools[1]
        for k in (0, 1, 2, 3, 0, 2):
            add.on(0)(data[k])
        assert pool.order is None and replica_at(data[0], 1).position == 0
        ctx.synchronize()
        add.on(0)(data[4])
        assert pool.order.count == 4 and evicted(ctx, data) == [1, 5, 6, 7]
        ctx.synchronize()
        add.on(0)(data[5])
        assert evicted(ctx, data) == [1, 3, 6, 7]
        ctx.check_state()


def test_the_order_keeps_room_for_what_is_there() -> None:
    """Thousands of uses and data that come and go, and no more positions than it takes."""
    with limited(500) as ctx:
        data = arrays(ctx, 400)
        for item in data:
            add.on(0)(item)
        order = ctx.engine.coherency.pools[1].order
        assert order.count == 400 and order.room <= 4 * 400
        rng = random.Random(1)
        for _ in range(4000):
            add.on(0)(data[rng.randrange(400)])
        assert order.count == 400 and order.room <= 4 * 400
        ctx.check_state()
        del data[:], item
        ctx.synchronize()
        for _ in range(3):
            add.on(0)(ctx.logical_data(np.zeros(N)))
        ctx.synchronize()
        assert order.count <= 3 and order.room <= 256
        ctx.check_state()


def test_partial_results_take_part_when_a_fold_began_the_order_and_failed() -> None:
    """The host lacks memory for what is folded into, while no version has the partial results."""
    spec, driver = DeviceSpec("cpu", 1, False), HostileDriver(CpuDriver(1, False, 2), delays=False)
    with stf.testing.context(spec, driver=driver) as ctx:
        total, pool = ctx.logical_data_empty(N), ctx.engine.coherency.pools[0]
        for _ in range(2):
            with ctx.task(stf.exec_place.host(), total.accumulate(stf.reducer.sum)) as t:
                t.arrays()[0][:] += 1
        assert pool.order is None and len(pool.partials) >= 1
        driver.fail_alloc = range(driver.allocs + 1, driver.allocs + 31)
        with pytest.raises(stf.OutOfMemoryError):
            total.numpy()
        driver.fail_alloc = ()
        assert pool.order.count == len(pool.partials) >= 1
        ctx.check_state()
        assert total.numpy()[0] == 2
        assert not pool.partials
        ctx.check_state()


def evicting_us(live: int) -> float:
    """Return what a task costs that evicts, with so many data of which half have room."""
    costs = []
    with limited(live // 2) as ctx:
        data = [ctx.logical_data_empty(N) for _ in range(live // 2 + 300)]
        more = [ctx.logical_data_empty(N) for _ in range(live - len(data))]
        for item in data[: live // 2]:
            with ctx.task(0, item.write()):
                pass
        ctx.synchronize()
        for item in data[live // 2 :]:
            start = time.thread_time_ns()
            with ctx.task(0, item.write()):
                pass
            costs.append(time.thread_time_ns() - start)
        assert sum(ctx.statistics().evictions.values()) == 300
        del more
    return statistics.median(costs) / 1e3


def test_a_choice_costs_no_more_with_more_data() -> None:
    """A sort of all data took 25 times as long for 10,000 as for 1,000."""
    assert evicting_us(20_000) < 4 * evicting_us(1_000)


def test_a_shortage_names_the_largest_and_counts_the_rest() -> None:
    with limited(40) as ctx, contextlib.ExitStack() as held:
        for item in arrays(ctx, 39):
            held.enter_context(ctx.task(0, item.read(), name="holder"))
        with pytest.raises(stf.OutOfMemoryError) as caught:
            ctx.task(0, ctx.logical_data_empty(2 * N).write()).start()
        told = str(caught.value)
        assert told.count("(task 'holder')") == 16
        assert f"23 more with {23 * NBYTES} bytes" in told


def shortage_us(live: int) -> float:
    """Return what it costs to say that one array is larger than a device, beside so many data elsewhere."""
    costs = []
    with limited(2) as ctx:
        data = [ctx.logical_data_empty(N) for _ in range(live)]
        big = ctx.logical_data_empty(4 * N)
        for _ in range(20):
            start = time.thread_time_ns()
            with pytest.raises(stf.OutOfMemoryError, match="pinned: nothing"):
                ctx.task(0, big.write()).start()
            costs.append(time.thread_time_ns() - start)
        del data
    return statistics.median(costs) / 1e3


def test_a_shortage_does_not_look_at_data_elsewhere() -> None:
    assert shortage_us(20_000) < 4 * shortage_us(100)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Partial results take part too, and leave with their reduction."""
    yield
    with limited(3) as ctx:

        @stf.task
        def gather(x: stf.Read, total: stf.Accumulate[stf.reducer.sum]) -> None:
            total += x

        total = ctx.logical_data(np.zeros(N))
        gather.on(0)(ctx.logical_data(np.ones(N)), total)
        ctx.check_state()
        assert len(ctx.engine.coherency.pools[1].partials) == 1
        assert total.numpy()[0] == 1
        assert not ctx.engine.coherency.pools[1].partials
