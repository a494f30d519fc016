"""Readback of a stream backend: a few bytes that its driver shows the host behind what wrote them."""

from __future__ import annotations


class StreamReadback(Readback):
    """Bytes behind the lanes of a backend.

    Parameters
    ----------
    lanes : list of Lane
        Those of the backend, which adds to them.
    driver : Driver
        What reads.
    """

    def __init__(self, lanes, driver):
        self.lanes = lanes
        self.driver = driver

    def begin(self, slot, replica):
        lane: Lane = self.lanes[slot]
        return self.driver.begin_readback(lane.stream, replica.address, replica.layout.nbytes)

    def end(self, landing, nbytes):
        return self.driver.end_readback(landing, nbytes)
