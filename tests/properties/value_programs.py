"""Random programs whose tasks return data, beside the same programs in NumPy, one task at a time.

A program has a few data, each with the array that it should hold. A step calls a task that returns new data (one, a
tuple, a dict), changes data in place, copies, drops what is held, submits from a body, replays a function and holds
what it returned, reads tiles, waits, or lets a task fail. Places and sleeps are random; whatever order the rules leave
open, the values must be those of the serial program.

    python tests/properties/value_programs.py 0 1000 [DEVICES]
"""

import faulthandler
import os
import random
import sys
import time

import numpy as np

import stf

DEVICES = os.environ.get("STF_TEST_DEVICES", "")
MODULUS = 10007
SHAPES = [(4,), (3, 2), (1,), (2, 2, 2)]
STALL_S = 120
MOST_DATA = 8


@stf.task
def scaled(s, pause, a: stf.Read) -> stf.Like["a"]:  # noqa: F821
    time.sleep(pause)
    return (s * a + 1) % MODULUS


@stf.task
def of_view(a: stf.Read) -> stf.Like["a"]:  # noqa: F821
    return (a + 2)[::-1] % MODULUS


@stf.task
def same(a: stf.Read) -> stf.Like["a"]:  # noqa: F821
    return a


@stf.task
def total(a: stf.Read, b: stf.Read) -> stf.Like["a"]:  # noqa: F821
    return (a + 3 * b) % MODULUS


@stf.task
def both(a: stf.Read) -> tuple[stf.Like["a"], stf.New[lambda a: (a.shape[0],)]]:  # noqa: F821
    found = (a + 5) % MODULUS
    return found, found.reshape(found.shape[0], -1).sum(axis=1) % MODULUS


@stf.task
def twins(a: stf.Read) -> {"one": stf.Like["a"], "two": stf.Like["a"]}:  # noqa: F821
    found = (7 * a) % MODULUS
    return {"two": found, "one": found}


@stf.task
def large(a: stf.Read) -> stf.New:
    return a[a % 2 == 0]


@stf.task
def change(n, pause, x: stf.ReadWrite):
    time.sleep(pause)
    x *= n
    x += 1
    x %= MODULUS


@stf.task
def replace(x: stf.Write, a: stf.Read):
    x[...] = a


@stf.task
def fail(a: stf.Read) -> stf.Like["a"]:  # noqa: F821
    raise ValueError("on purpose")


@stf.task
def submit(n, x: stf.Data):
    change(n, 0.0, x)


@stf.replay
def replayed(a, b):
    return total(scaled(2, 0.0, a), b)


class ValueProgram:
    """One program; `log` says what it does."""

    def __init__(self, seed: int, devices: str) -> None:
        self.rng = random.Random(seed)
        self.seed, self.log = seed, []
        self.devices = devices or self.rng.choice(["cpu", "cpu:2", "cpu:3"])
        options = {} if self.rng.random() < 0.7 or devices else {"memory_limit": 1 << 12}
        self.ctx = stf.context(devices=self.devices, **options)
        self.held: list[tuple[stf.LogicalData, np.ndarray]] = []

    def run(self) -> None:
        with self.ctx:
            for shape in [self.rng.choice(SHAPES)] * 2 + [self.rng.choice(SHAPES)]:
                values = np.array([self.rng.randrange(100) for _ in range(int(np.prod(shape)))], np.int64)
                array = values.reshape(shape)
                self.hold(self.ctx.logical_data(array.copy(), write_back=False), array)
            for _ in range(self.rng.randint(5, 30)):
                step = self.rng.choice(STEPS)
                self.log.append(step)
                getattr(self, f"step_{step}")()
                while len(self.held) > MOST_DATA:
                    self.step_drop()
            for data, array in self.held:
                np.testing.assert_array_equal(data.numpy(), array)
            self.ctx.check_state()

    def hold(self, data: stf.LogicalData, array: np.ndarray) -> None:
        assert data.shape == array.shape and data.dtype == array.dtype, (data, array)
        self.held.append((data, array))

    def one(self) -> tuple[stf.LogicalData, np.ndarray]:
        return self.rng.choice(self.held)

    def pair(self):
        first = self.one()
        alike = [item for item in self.held if item[1].shape == first[1].shape]
        return first, self.rng.choice(alike)

    def at(self, function):
        places = [None, "host", *range(len(self.ctx.devices))]
        place = self.rng.choice(places)
        self.log[-1] += f" @{place}"
        return function if place is None else function.on(place)

    def pause(self) -> float:
        return self.rng.choice([0.0, 0.0, 0.0, 0.0005])

    def step_scaled(self) -> None:
        data, array = self.one()
        s = self.rng.randrange(5)
        self.hold(self.at(scaled)(s, self.pause(), data), (s * array + 1) % MODULUS)

    def step_view(self) -> None:
        data, array = self.one()
        self.hold(self.at(of_view)(data), (array + 2)[::-1] % MODULUS)

    def step_same(self) -> None:
        data, array = self.one()
        self.hold(self.at(same)(data), array.copy())

    def step_total(self) -> None:
        (a, left), (b, right) = self.pair()
        self.hold(self.at(total)(a, b), (left + 3 * right) % MODULUS)

    def step_both(self) -> None:
        data, array = self.one()
        found, sums = self.at(both)(data)
        expected = (array + 5) % MODULUS
        self.hold(found, expected)
        self.hold(sums, expected.reshape(expected.shape[0], -1).sum(axis=1) % MODULUS)

    def step_twins(self) -> None:
        data, array = self.one()
        found = self.at(twins)(data)
        self.hold(found["one"], 7 * array % MODULUS)
        self.hold(found["two"], 7 * array % MODULUS)

    def step_open(self) -> None:
        """Data whose shape a body finds, and a reader of it."""
        if not self.ctx.engine.adopts:
            return
        data, array = self.one()
        found = large(data)
        if self.rng.random() < 0.5:
            found, expected = large(found), array[array % 2 == 0]
            expected = expected[expected % 2 == 0]
        else:
            expected = array[array % 2 == 0]
        np.testing.assert_array_equal(found.numpy(), expected)
        if expected.size:
            self.hold(found, expected.copy())

    def step_chain(self) -> None:
        """Temporaries that nobody holds."""
        data, array = self.one()
        for _ in range(self.rng.randint(2, 5)):
            data, array = self.at(scaled)(3, self.pause(), data), (3 * array + 1) % MODULUS
        self.hold(data, array)

    def step_change(self) -> None:
        data, array = self.one()
        n = self.rng.randrange(5)
        self.at(change)(n, self.pause(), data)
        array[...] = (array * n + 1) % MODULUS

    def step_submit(self) -> None:
        data, array = self.one()
        submit.on("host")(2, data).result()
        array[...] = (array * 2 + 1) % MODULUS

    def step_replace(self) -> None:
        (a, left), (b, right) = self.pair()
        if a is not b:
            self.at(replace)(a, b)
            left[...] = right

    def step_copy(self) -> None:
        (a, left), (b, right) = self.pair()
        if a is not b:
            self.ctx.copy(a, b)
            right[...] = left

    def step_block(self) -> None:
        data, array = self.one()
        with self.ctx.task(data.rw()) as t:
            t.arrays()[0][...] += 1
        array += 1

    def step_tiles(self) -> None:
        data, array = self.one()
        tiles = data.tiles((1, *array.shape[1:]))
        self.at(change)(3, 0.0, tiles.ravel()[0])
        array[0] = (array[0] * 3 + 1) % MODULUS

    def step_recorded(self) -> None:
        """A graph that reads and writes what was returned before."""
        (a, left), (b, right) = self.pair()
        if a is b:
            return
        graph = self.ctx.task_graph()
        with graph:
            change(2, 0.0, b)
            replace(b, scaled(2, 0.0, a))
        for _ in range(2):
            graph.launch()
            right[...] = (2 * left + 1) % MODULUS
        graph.close()

    def step_replay(self) -> None:
        (a, left), (b, right) = self.pair()
        for _ in range(self.rng.randint(1, 4)):
            self.hold(replayed(a, b), ((2 * left + 1) % MODULUS + 3 * right) % MODULUS)

    def step_fail(self) -> None:
        data, array = self.one()
        bad = scaled.on("host")(2, 0.0, fail.on("host")(data))
        if self.rng.random() < 0.5:
            replace(bad, data)
            self.hold(bad, array.copy())
        try:
            self.ctx.synchronize()
        except stf.TaskFailedError:
            return
        raise AssertionError("nobody told of the failure")

    def step_wait(self) -> None:
        data, array = self.one()
        np.testing.assert_array_equal(data.numpy(), array)

    def step_drop(self) -> None:
        if len(self.held) > 1:
            self.held.pop(self.rng.randrange(len(self.held)))


STEPS = [name.removeprefix("step_") for name in vars(ValueProgram) if name.startswith("step_")]
STEPS += ["scaled", "scaled", "chain", "change", "wait", "total"]


def run_program(seed: int, devices: str = DEVICES) -> None:
    """Run one program; a failure tells what it did."""
    program = ValueProgram(seed, devices)
    try:
        program.run()
    except BaseException as error:
        error.add_note(f"program {seed} on {program.devices}: {', '.join(program.log)}")
        raise


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    for seed in range(first, first + count):
        faulthandler.dump_traceback_later(STALL_S, exit=True)
        run_program(seed, sys.argv[3] if len(sys.argv) > 3 else DEVICES)
    faulthandler.cancel_dump_traceback_later()
    print(f"{count} programs, no mismatch")
