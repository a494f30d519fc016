"""How many lanes a context has at a place: streams of a device, queues of the host.

A CUDA stream costs nothing, but streams share the queues of the hardware: ``CUDA_DEVICE_MAX_CONNECTIONS`` of them, 8
unless the variable says more, 32 at most. Work at the head of a queue that waits for an event holds up every stream
which has that queue. So lanes beyond the queues add waits that no task asked for.

Measured with the tiled Cholesky on four H200s and 32 queues a device (`benchmarks/workloads/cholesky_gpu`, `--lanes`):
with 64 lanes n = 32,768 took 120 to 207 ms and n = 65,536 took 846 ms; with 16 lanes 86 to 95 and 544 to 564 ms.
More than two lanes a queue are never useful, so fewer queues mean fewer lanes.

A lane of the host is no stream: it is a list of bodies that follow each other. Those that wait hold up no others, and
a lane too few would order bodies that are independent. So there the number is that of the most workers.
"""

from __future__ import annotations

import os

from stf.devices.spec import DeviceSpec

__all__ = ["LANES_OF_DEVICE", "LANES_OF_HOST", "lanes_of"]

LANES_OF_DEVICE = 16
LANES_OF_HOST = 64
QUEUES = 8  # of the hardware, where the variable says nothing
LANES_A_QUEUE = 2


def lanes_of(spec: DeviceSpec) -> int:
    """Return how many compute lanes a context has on each of its devices."""
    if spec.driver != "cuda":
        return LANES_OF_HOST
    return min(LANES_OF_DEVICE, LANES_A_QUEUE * queues_of_device())


def queues_of_device() -> int:
    """Return how many queues of the hardware CUDA uses: what it makes of the variable, from 1 to 32."""
    text = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "")
    return min(max(int(text), 1), 32) if text.isdecimal() else QUEUES
