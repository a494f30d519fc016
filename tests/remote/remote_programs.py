"""Random programs on remote workers, beside the same program run one task at a time in NumPy.

    python tests/remote/remote_programs.py 17                # program 17
    python tests/remote/remote_programs.py 0 1000            # programs 0 … 999
    STF_TEST_REMOTE=ray:2 python …                    # on another transport; also dask:2, and gpu:2 for loopback:2xgpu

Half of the programs on loopback workers deliver messages late, by up to 2 ms each. Data are vectors of small integers, so
that sums are exact in any order. Bodies fail at random: the model knows which data are poisoned by it.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import traceback
from typing import Any

import numpy as np

import stf
from stf import config

TRANSPORT = os.environ.get("STF_TEST_REMOTE", "loopback")
MODULUS = 1 << 20


class Boom(Exception):
    """What bodies raise."""


@stf.task
def add(a: int, x: stf.Read, y: stf.ReadWrite) -> None:
    y += a * x
    y %= MODULUS


@stf.task
def combine(x: stf.Read, y: stf.Read, z: stf.Write) -> Any:
    return (x + 2 * y) % MODULUS


@stf.task
def fails(x: stf.Read, y: stf.ReadWrite) -> None:
    raise Boom("at random")


@stf.replay
def pattern(places: Any, x: Any, y: Any, z: Any) -> None:
    add.on(places[0])(1, x, y)
    add.on(places[1])(2, y, z)
    add.on(places[0])(3, z, x)


class Program:
    """One random program: each step is done to the context and to the model, and told in `account`."""

    def __init__(self, seed: int, devices: Any) -> None:
        self.random = random.Random(seed)
        self.hostile = seed if seed % 2 and TRANSPORT == "loopback" else None
        self.devices = devices
        self.account: list[str] = []

    def run(self) -> None:
        """Run it; AssertionError where it differs from the model."""
        before, config.hostile = config.hostile, self.hostile
        try:
            context = stf.context(devices=self.devices, use_graph=self.random.random() < 0.2)
        finally:
            config.hostile = before
        count = self.random.randint(2, 5)
        size = self.random.choice([1, 7, 1000])
        self.model = [np.arange(size) % 7 + i for i in range(count)]
        self.poison = [False] * count
        homes = [value.copy() if self.random.random() < 0.5 else None for value in self.model]
        start = [value.copy() for value in self.model]
        with contextlib.suppress(stf.TaskFailedError, ExceptionGroup), context as ctx:
            self.ctx = ctx
            self.data = []
            for i, home in enumerate(homes):
                self.data.append(ctx.logical_data(self.model[i].copy() if home is None else home, name=f"d{i}"))
            for _ in range(self.random.randint(3, 25)):
                self.step()
            for i in range(count):
                self.read(i)
            ctx.check_state()
        for i, home in enumerate(homes):
            if home is not None and not self.poison[i]:
                assert np.array_equal(home, self.model[i]), f"home of d{i}: {home[:4]}, not {self.model[i][:4]}"
            assert start[i].shape == self.model[i].shape

    def place(self) -> Any:
        """Draw a place."""
        devices = len(self.ctx.devices)
        return self.random.choice([*range(devices), *range(devices), "host", "auto" if devices > 1 else 0])

    def pick(self, count: int) -> list[int]:
        """Draw different data."""
        return self.random.sample(range(len(self.model)), min(count, len(self.model)))

    def step(self) -> None:
        """Do something."""
        kinds = [self.add] * 8 + [self.combine] * 4 + [self.accumulate] * 2 + [self.read] * 2 + [self.fill] * 2
        kinds += [self.fail, self.replay, self.replay, self.scope]
        self.random.choice(kinds)()

    def tell(self, text: str) -> None:
        self.account.append(text)

    def add(self) -> None:
        i, j = self.pick(2)
        a, place = self.random.randint(1, 5), self.place()
        self.tell(f"add.on({place!r})({a}, d{i}, d{j})")
        add.on(place)(a, self.data[i], self.data[j])
        self.did_add(a, i, j)

    def did_add(self, a: int, i: int, j: int) -> None:
        self.poison[j] = self.poison[i] or self.poison[j]
        self.model[j] = (self.model[j] + a * self.model[i]) % MODULUS

    def combine(self) -> None:
        if len(self.model) < 3:
            return
        i, j, k = self.pick(3)
        place = self.place()
        self.tell(f"combine.on({place!r})(d{i}, d{j}, d{k})")
        combine.on(place)(self.data[i], self.data[j], self.data[k])
        self.poison[k] = self.poison[i] or self.poison[j]
        self.model[k] = (self.model[i] + 2 * self.model[j]) % MODULUS

    def accumulate(self) -> None:
        i, j = self.pick(2)
        for _ in range(self.random.randint(1, 4)):
            place = self.random.choice(
                [*map(stf.exec_place.device, range(len(self.ctx.devices))), stf.exec_place.host()]
            )
            self.tell(f"d{j} += d{i} at {place}")
            self.ctx.task(place, self.data[i].read(), self.data[j].accumulate(stf.reducer.sum))(lambda x, y: y + x)
            self.poison[j] = self.poison[i] or self.poison[j]
            self.model[j] = self.model[j] + self.model[i]

    def fill(self) -> None:
        (i,) = self.pick(1)
        value = self.random.randint(0, 9)
        self.tell(f"fill(d{i}, {value})")
        self.ctx.fill(self.data[i], value)
        self.model[i] = np.full_like(self.model[i], value)
        self.poison[i] = False

    def fail(self) -> None:
        i, j = self.pick(2)
        place = self.place()
        self.tell(f"fails.on({place!r})(d{i}, d{j})")
        fails.on(place)(self.data[i], self.data[j])
        self.poison[j] = True

    def replay(self) -> None:
        if len(self.model) < 3:
            return
        i, j, k = self.pick(3)
        if any(self.poison[n] for n in (i, j, k)):
            return
        places = (self.place(), self.place())
        if self.random.random() < 0.5:
            places = (0, len(self.ctx.devices) - 1)
        for _ in range(self.random.choice([1, 2, 4, 7])):
            self.tell(f"pattern({places}, d{i}, d{j}, d{k})")
            pattern(places, self.data[i], self.data[j], self.data[k])
            self.did_add(1, i, j)
            self.did_add(2, j, k)
            self.did_add(3, k, i)

    def scope(self) -> None:
        self.tell("graph_scope")
        with self.ctx.graph_scope():
            for _ in range(self.random.randint(1, 3)):
                self.add()

    def read(self, index: int | None = None) -> None:
        i = self.pick(1)[0] if index is None else index
        self.tell(f"read d{i}")
        for _ in range(8):  # a read tells of all failures that nobody was told of
            try:
                found = self.data[i].numpy()
                break
            except (stf.TaskFailedError, ExceptionGroup) as error:
                last = error
        else:
            assert self.poison[i], f"d{i} is good, and cannot be read: {last}"
            return
        assert not self.poison[i], f"d{i} is poisoned, and was read: {found[:4]}"
        assert np.array_equal(found, self.model[i]), f"d{i} is {found[:4]}, not {self.model[i][:4]}"


def run_program(seed: int, devices: Any = None) -> None:
    """Run a program; its account is a note of what it raises."""
    asked = devices or f"{TRANSPORT.partition(':')[0]}:{2 + seed % 2}"
    program = Program(seed, asked)
    try:
        program.run()
    except BaseException as error:
        error.add_note("\n".join([f"program {seed} on {asked}:", *program.account]))
        raise


@contextlib.contextmanager
def devices_of(transport: str) -> Any:
    """Yield the devices of a cluster that lasts, or None."""
    kind, _, count = transport.partition(":")
    if kind == "ray":
        yield f"ray:{count or 2}"
    elif kind == "dask":
        from distributed import Client, LocalCluster

        with LocalCluster(int(count or 2), threads_per_worker=1, dashboard_address=":0") as cluster:
            with Client(cluster) as client:
                yield stf.remote(client)
    elif kind == "gpu":
        yield f"loopback:{count or 2}xgpu"
    else:
        yield None


def main() -> None:
    """Run the programs that the command line names."""
    first = int(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    wrong = 0
    with devices_of(TRANSPORT) as devices:
        for seed in range(first, first + count):
            try:
                run_program(seed, devices)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                wrong += 1
                traceback.print_exc()
    print(f"{count} programs on {TRANSPORT}, {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
