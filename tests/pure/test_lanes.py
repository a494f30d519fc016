"""How many lanes a context has at a place, by what the hardware's queues carry."""

import pytest

from stf.devices import lanes
from stf.devices.spec import parse_devices


def spec_of(text):
    return parse_devices(text, "a test", lambda: 8)


@pytest.mark.parametrize(
    ("connections", "count"),
    [(None, 16), ("8", 16), ("32", 16), ("64", 16), ("4", 8), ("1", 2), ("0", 2), ("many", 16), ("", 16)],
)
def test_a_device_has_two_lanes_for_each_queue_and_16_at_most(monkeypatch, connections, count):
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    if connections is not None:
        monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections)
    assert lanes.lanes_of(spec_of("cuda:0,1")) == count


def test_emulated_devices_have_as_many_as_the_host():
    assert lanes.lanes_of(spec_of("cpu:4")) == lanes.lanes_of(spec_of("cpu")) == lanes.LANES_OF_HOST
