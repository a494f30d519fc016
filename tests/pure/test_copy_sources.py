"""Which replica a copy is read from: the nearest one, and of equally near ones that which served least."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from recorded import Bench

import stf
import stf.testing
from stf._drivers.cpu import CpuDriver
from stf._drivers.wrappers.wrapping import WrappingDriver
from stf._port.links import HOST, Link, peer_link

N = 16


def sent(ctx: stf.Context) -> Counter[str]:
    """Return how many copies each place has made."""
    found: Counter[str] = Counter()
    for (source, _), count in ctx.statistics().copies.items():
        found[source] += count
    return found


def write_at(ctx: stf.Context, place: int, data: Any) -> None:
    with ctx.task(place, data.write()) as t:
        t[0][:] = place


def read_at(ctx: stf.Context, place: int, data: Any) -> None:
    with ctx.task(place, data.read()) as t:
        assert t[0][0] == 0 or t[0][0] == 3


def test_no_device_sends_more_than_three_of_seven() -> None:
    with stf.context(devices="cpu:8") as ctx:
        x = ctx.logical_data_empty(N)
        write_at(ctx, 0, x)
        for place in range(1, 8):
            read_at(ctx, place, x)
        assert sent(ctx) == {"device(0)": 3, "device(1)": 2, "device(2)": 1, "device(3)": 1}


def test_a_broadcast_is_a_tree_and_no_chain() -> None:
    """The longest way from the writer is the number of rounds."""
    with stf.context(devices="cpu:8") as ctx:
        x = ctx.logical_data_empty(N)
        write_at(ctx, 0, x)
        for place in range(1, 8):
            read_at(ctx, place, x)
        source_of = {target: source for source, target in ctx.statistics().copies}

    def depth(place: str) -> int:
        return depth(source_of[place]) + 1 if place in source_of else 0

    assert max(depth(f"device({place})") for place in range(8)) == 3


def test_a_write_begins_anew() -> None:
    with stf.context(devices="cpu:8") as ctx:
        x = ctx.logical_data_empty(N)
        write_at(ctx, 0, x)
        for place in range(1, 8):
            read_at(ctx, place, x)
        first = sent(ctx)
        write_at(ctx, 3, x)
        for place in (0, 1, 2, 4, 5, 6, 7):
            read_at(ctx, place, x)
        assert sorted((sent(ctx) - first).values()) == [1, 1, 2, 3]
        assert (sent(ctx) - first)["device(3)"] == 3


def test_an_array_of_the_users_is_a_source_like_others() -> None:
    with stf.context(devices="cpu:8") as ctx:
        x = ctx.logical_data(np.zeros(N))
        for place in range(8):
            read_at(ctx, place, x)
        assert max(sent(ctx).values()) <= 4 and sent(ctx).total() == 8


class Islands(WrappingDriver):
    """Four devices, two and two of which are near each other."""

    def link(self, source: int, target: int) -> Link:
        return HOST if source < 0 or target < 0 else peer_link(0 if source // 2 == target // 2 else 5)


def test_a_near_source_comes_before_one_that_served_less() -> None:
    ctx = stf.testing.context("cpu:4", driver=Islands(CpuDriver(4, shares_host=False)))
    x, y = ctx.logical_data(np.zeros(N)), ctx.logical_data(np.zeros(N))
    for data in (x, y):
        for place in range(4):
            read_at(ctx, place, data)
    copies = ctx.statistics().copies
    ctx.finalize()
    assert copies["device(0)", "device(1)"] == copies["device(2)", "device(3)"] == 2
    assert copies["host", "device(0)"] == 2 and sum(copies.values()) == 8


def test_the_engine_alone_spreads_what_many_read() -> None:
    bench = Bench(devices=16)
    x = bench.array()
    for place in range(16):
        with bench.task(place, x.read()):
            pass
    counts = Counter(source for source, _ in bench.engine.coherency.copy_counts())
    assert bench.port.copies == 16 and max(counts.values()) == 5  # the host, of 17 that have it in the end


@pytest.mark.parametrize("places", [1, 8])
def test_the_tails_of_a_place_are_those_of_its_own_lanes(places: int) -> None:
    bench = Bench(devices=places, width=4)
    data = [bench.array() for _ in range(4)]
    for place in range(places):
        for item in data:
            with bench.task(place, item.read()):
                pass
    lanes = bench.port.lanes
    for place in range(places + 1):
        assert set(bench.port.lanes_at(place)) == {lane for lane in lanes if lane.place == place}
