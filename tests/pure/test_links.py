"""The table of links: what a copy costs between two data places, and the order of the static classes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import stf
from stf._drivers.cpu import CpuDriver
from stf._port.links import BEST_PEER, HOST, MEMORY, MOST_RANKS, SAME_PLACE, THROUGH_HOST, Link, Links, peer_link

SIZES = [0, 8, 1 << 16, 1 << 20, 1 << 30]


def test_a_cost_is_latency_and_bytes_over_bandwidth() -> None:
    assert Link(5e-6, 40e9).cost_s(40_000) == pytest.approx(6e-6)
    assert SAME_PLACE.cost_s(1 << 30) == 0.0


@pytest.mark.parametrize("nbytes", SIZES)
def test_the_classes_are_in_order_for_every_size(nbytes: int) -> None:
    classes = [SAME_PLACE, *map(peer_link, range(MOST_RANKS + 1)), HOST, THROUGH_HOST]
    costs = [link.cost_s(nbytes) for link in classes]
    assert costs == sorted(costs) and len(set(costs)) == len(costs)


def test_ranks_that_cuda_does_not_have_are_the_nearest_ones() -> None:
    assert peer_link(-3) == peer_link(0) == BEST_PEER and peer_link(1000) == peer_link(MOST_RANKS)


def test_the_table_asks_a_driver_once_for_each_pair() -> None:
    class Asked:
        count = 0

        def link(self, source: int, target: int) -> Link:
            self.count += 1
            return Link(source + 2.0, 1.0 if target < 0 else math.inf)

    source, numbers = Asked(), [-1, 0, 1]
    links = Links(source, numbers)
    assert links.cost_s(1, 2, 7) == links.cost_s(1, 2, 9) == 2.0 and source.count == 1
    assert links.cost_s(2, 0, 7) == 10.0 and links.link(2, 0) == Link(3.0, 1.0)
    numbers.append(-2)
    assert links.cost_s(3, 1, 7) == 0.0 and source.count == 3


def test_places_without_a_driver_are_alike() -> None:
    links = Links()
    assert links.link(0, 0) == SAME_PLACE and links.link(0, 1) == links.link(2, 1) == MEMORY


def test_emulated_devices_and_the_host_are_equally_near() -> None:
    driver = CpuDriver(2, False)
    assert driver.link(0, 0) == SAME_PLACE and driver.link(-1, 0) == driver.link(1, 0) == MEMORY
    driver.close()


def test_places_say_their_kind() -> None:
    with stf.context(devices="cpu:2") as ctx:
        x = ctx.logical_data(np.zeros(3))
        ctx.fill(x, 1.0)
        assert [place.kind for place in ctx.engine.places] == ["host", "cpu", "cpu"]
