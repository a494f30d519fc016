"""Events as integers: the lane above, the sequence number below."""

from stf._port.events import lane_of, sequence_of


def test_an_event_tells_its_lane_and_its_number():
    for lane, number in ((0, 0), (3, 5), (700, (1 << 43) + 1)):  # also numbers that no C int holds
        event = (lane << 44) | number
        assert (lane_of(event), sequence_of(event)) == (lane, number)
