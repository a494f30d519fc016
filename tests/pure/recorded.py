"""Programs on the recorder: the engine's decisions, without a driver. Run it to print the decisions of each."""

from __future__ import annotations

import numpy as np

from stf._engine import ends
from stf._engine.access import DataHandle
from stf._engine.engine import Engine
from stf._port.place import Place
from stf._port.replicas import Layout
from stf.tasks.task import ContextCore
from stf.testing import Recorder

FLOATS = Layout((4,), (8,), np.dtype("f8"), 8)


class Bench(ContextCore):
    """A context on a recorder: device ``i`` has memory of its own; the host is place 0."""

    def __init__(self, devices: int = 1, log: bool = False, width: int = 64) -> None:
        self.port = Recorder(devices + 1, width, log)
        places = [Place(0, "host", -1, 0), *(Place(i + 1, f"device({i})", i, i + 1) for i in range(devices))]
        engine = Engine(self.port, places, [0] * (devices + 1))
        self.attach(engine, 1, {i: i + 1 for i in range(devices)} | {"host": 0})
        self.homes = 0

    def array(self) -> DataHandle:
        """Data with a home in host memory."""
        core = self.engine.new_data(FLOATS)
        self.homes += 1
        self.engine.set_home(core, 0, 1 << 30 | self.homes << 8, None)
        return DataHandle(core)

    def token(self) -> DataHandle:
        return DataHandle(self.engine.new_data(None, None, True))

    def empty_task(self, *accesses: object) -> None:
        with self.task(*accesses):
            pass

    def counts(self) -> tuple[int, int, int, int]:
        """Records, waits, allocations, copies."""
        port = self.port
        return (port.records, port.waits, port.allocs, port.copies)


def chain(n: int, log: bool = False) -> Bench:
    """A chain of n tasks on one data, and its way home."""
    bench = Bench(log=log)
    data = bench.array()
    for _ in range(n):
        bench.empty_task(data.rw())
    ends.retire_all(bench.engine)
    return bench


def independent(n: int, log: bool = False) -> Bench:
    """n tasks on n data."""
    bench = Bench(log=log)
    data = [bench.array() for _ in range(n)]
    for one in data:
        bench.empty_task(one.read())
    return bench


def fork_join(m: int, data: bool = False, log: bool = False) -> Bench:
    """One task, m that follow it, one that follows them."""
    bench = Bench(log=log)
    make = bench.array if data else bench.token
    root, leaves = make(), [make() for _ in range(m)]
    bench.empty_task(root.write())
    for leaf in leaves:
        bench.empty_task(root.read(), leaf.write())
    bench.empty_task(*(leaf.read() for leaf in leaves))
    return bench


def stencil(width: int, steps: int, tokens: bool = True, log: bool = False) -> Bench:
    """Two rows; each task reads three neighbours in one and writes one in the other."""
    bench = Bench(log=log)
    rows = [[bench.token() if tokens else bench.array() for _ in range(width)] for _ in range(2)]
    for t in range(steps):
        old, new = rows[t % 2], rows[(t + 1) % 2]
        for i in range(width):
            reads = {max(i - 1, 0), i, min(i + 1, width - 1)}
            bench.empty_task(*(old[k].read() for k in sorted(reads)), new[i].write())
    return bench


def two_devices(log: bool = False) -> Bench:
    """Replicas on two devices, written in turn."""
    bench = Bench(2, log=log)
    a, b = bench.array(), bench.array()
    for i in range(6):
        bench.empty_task(i % 2, a.rw(), b.read())
        bench.empty_task(1 - i % 2, b.rw())
        bench.empty_task("host", a.read())
    ends.retire_all(bench.engine)
    return bench


PROGRAMS = {
    "chain": lambda log=False: chain(20, log),
    "independent": lambda log=False: independent(8, log),
    "fork_join": lambda log=False: fork_join(6, True, log),
    "stencil": lambda log=False: stencil(8, 6, False, log),
    "two_devices": lambda log=False: two_devices(log),
}


if __name__ == "__main__":
    from stf import config

    for name, program in PROGRAMS.items():
        bench = program(log=True)
        print(name, bench.counts(), bench.port.log)
    print("pure", bool(config.pure), file=__import__("sys").stderr)
