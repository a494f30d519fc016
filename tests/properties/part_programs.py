"""Random programs on partitioned data, beside NumPy: parts, halos, the whole, recordings.

A program is a seed. Each step is done to the context and to plain arrays, which do one step at a time. What bodies read
is compared with what the arrays held at that line of the program.

    python tests/properties/part_programs.py 17            # run program 17
    python tests/properties/part_programs.py 0 1000        # run programs 0 … 999
"""

from __future__ import annotations

import faulthandler
import itertools
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `helpers`, where this is run as a program

from drivers import DEVICES, ON_CUDA, make_driver, settings, settle, shared_resources

import stf
from stf.contexts.context import Context
from stf.devices.make import cuda_devices
from stf.devices.spec import parse_devices

MODULUS = 1 << 20
STALL_S = 60  # a program takes some hundredths of that


class Twice:
    """Partition of a user's: halves of the first axis, the first for the last place, the second for the first one."""

    def apply(self, shape: Any, position: Any, grid_dims: Any) -> Any:
        count = int(np.prod(grid_dims))
        number = int(np.ravel_multi_index(position if isinstance(position, tuple) else (position,), grid_dims))
        extents = [n if isinstance(n, range) else range(n) for n in (shape if isinstance(shape, tuple) else (shape,))]
        half = len(extents[0]) // 2
        first = {count - 1: extents[0][:half], 0: extents[0][half:]}
        own = extents[0] if count == 1 else first.get(number, extents[0][:0])
        return (own, *extents[1:])

    def get_executor(self, coords: Any, dims: Any, grid_dims: Any) -> tuple[int, ...]:
        is_first = coords[0] < dims[0] // 2 and int(np.prod(grid_dims)) > 1
        return tuple(n - 1 if is_first else 0 for n in grid_dims)


class Model:
    """One partitioned data: its handle, its array in the model, and how it is cut."""

    def __init__(self, handle: Any, array: np.ndarray, home: np.ndarray) -> None:
        self.handle, self.array, self.home = handle, array, home
        self.parts = list(handle.parts.ravel())

    def view(self, k: int) -> tuple[Any, ...]:
        """Return the index of part k in the array."""
        return self.parts[k].region.indices()

    def padded(self, k: int, widths: tuple[int, ...], mode: str) -> np.ndarray:
        """Return what a read of part k with a halo gets."""
        rows = []
        for along, extent, width in zip(self.parts[k].region, self.array.shape, widths, strict=True):
            low, high = along.start - width, along.stop + width
            if mode == "none" and len(along) == extent:
                low, high = along.start, along.stop
            if mode == "none":
                low, high = max(low, 0), min(high, extent)
                if along.start == 0:
                    low = 0
                if along.stop == extent:
                    high = extent
            rows.append(np.arange(low, high) % max(extent, 1))
        return self.array[np.ix_(*rows)]

    def allows(self, widths: tuple[int, ...]) -> bool:
        """Return whether all parts are blocks that are as wide as a halo."""
        for part in self.parts:
            for along, extent, width in zip(part.region, self.array.shape, widths, strict=True):
                if not isinstance(along, range) or along.step != 1 or (len(along) < extent and len(along) < width):
                    return False
        return True


class PartProgram:
    """One random program."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        rng = self.rng
        self.count = rng.randint(1, min(2, len(DEVICES)) if ON_CUDA else 4)
        self.devices = DEVICES[self.count - 1] if ON_CUDA else f"cpu:{self.count}"
        self.graph = rng.random() < 0.3
        self.hostile = seed if rng.random() < 0.4 else None
        self.validate = rng.random() < 0.4
        self.log: list[str] = []
        self.checks: list[Any] = []
        self.outs: list[Any] = []
        self.recording = False

    def run(self) -> None:
        driver = make_driver(self.devices, None if ON_CUDA else self.hostile, 2)
        try:
            with settings(validate=self.validate):
                self.run_on(driver)
        except BaseException as error:
            error.add_note(f"program {self.seed} on {self.devices}:\n" + "\n".join(self.log))
            raise
        settle(driver)

    def run_on(self, driver: Any) -> None:
        spec = parse_devices(self.devices, cuda_devices=cuda_devices)
        limit = self.rng.choice([None, None, 1 << 14])
        shared = shared_resources() if ON_CUDA else None
        context = Context(spec, shared, memory_limit=limit, driver=driver, use_graph=self.graph)
        with context as self.ctx:
            self.data = [self.make(i) for i in range(self.rng.randint(1, 3))]
            for _ in range(self.rng.randint(4, 24)):
                self.step()
                if self.validate and not self.graph:
                    self.ctx.check_state()
            if self.rng.random() < 0.2:
                model = self.rng.choice(self.data)
                self.log.append("release")
                self.data.remove(model)
                model.handle.release()
                self.ctx.synchronize()
                self.must_be(model.home, model.array, "home after release")
            for out, wanted, what in self.outs:
                self.must_be(self.ctx.wait(out), wanted, what)
            self.outs.clear()
            homes = [(model.home, model.array) for model in self.data]
            del self.data
        for home, known in homes:
            self.must_be(home, known, "home")
        for got, wanted, what in self.checks:
            assert got, f"{what} never ran"
            for value in got:
                self.must_be(value, wanted, what)

    def must_be(self, found: np.ndarray, wanted: np.ndarray, what: str) -> None:
        assert found.shape == wanted.shape and (found == wanted).all(), f"{what}: {found.tolist()}, {wanted.tolist()}"

    # -- data --------------------------------------------------------------------------------------------------

    def make(self, number: int) -> Model:
        rng = self.rng
        ndim = rng.randint(1, 2)
        shape = tuple(rng.randint(1, 12) for _ in range(ndim))
        places = [stf.exec_place.device(i) for i in range(self.count)] * rng.randint(1, 2 if self.count < 3 else 1)
        n = len(places)
        dims = rng.choice([(n,), *([(2, n // 2)] if n % 2 == 0 else [])])
        grid = stf.exec_place.grid(places, dims)
        policies = ["blocked", "blocked", "blocked", "cyclic", ("block_cyclic", rng.randint(1, 3))]
        axes: list[Any] = [rng.choice(policies) for _ in range(ndim)]
        while sum(axis is not None for axis in axes) > len(dims):
            axes[rng.randrange(ndim)] = None
        others = [stf.blocked_partition(ndim - 1), stf.cyclic_partition(), stf.null_partition, Twice()]
        part = stf.partition(*axes) if rng.random() < 0.75 else rng.choice(others)
        home = np.array([rng.randrange(MODULUS) for _ in range(int(np.prod(shape)))], np.int64).reshape(shape)
        if ndim == 2 and rng.random() < 0.3:
            home = np.asfortranarray(home)
        if rng.random() < 0.2:
            home = np.repeat(home, 2, axis=0)[::2]
        handle = self.ctx.logical_data(home, data_place=stf.data_place.composite(grid, part), name=f"X{number}")
        self.log.append(f"X{number}: {shape} over {dims} by {part!r}, places {[p.index for p in places]}")
        owned = np.zeros(shape, int)
        model = Model(handle, home.copy(), home)
        for k in range(len(model.parts)):
            owned[model.view(k)] += 1
        assert (owned == 1).all(), "an element has not one owner"
        return model

    def place(self) -> Any:
        return stf.exec_place.device(self.rng.randrange(self.count))

    def place_for(self, part: Any) -> Any:
        return part.exec_place if self.rng.random() < 0.7 else self.place()

    def halo(self, model: Model) -> tuple[Any, tuple[int, ...], str] | None:
        """Return a halo that a data allows: as a user says it, as widths, and its mode."""
        rng, ndim = self.rng, model.array.ndim
        given: Any = rng.randint(0, 2) if rng.random() < 0.5 else tuple(rng.randint(0, 2) for _ in range(ndim))
        widths = given if isinstance(given, tuple) else (given,) * ndim
        mode = rng.choice(["none", "none", "periodic"])
        fits = model.allows(widths) and all(w <= n for w, n in zip(widths, model.array.shape, strict=True))
        return (given, widths, mode) if fits else None

    # -- steps -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        kinds = {
            self.step_part: 20,
            self.step_read_part: 8,
            self.step_halo: 14,
            self.step_add: 14,
            self.step_whole: 8,
            self.step_read_whole: 5,
            self.step_fill: 4,
            self.step_copy: 3,
            self.step_wait: 4,
            self.step_freeze: 3,
            self.step_prefetch: 2,
            self.step_mistake: 3,
            self.step_graph: 5,
            self.step_scope: 0 if self.graph else 3,
        }
        rng.choices(list(kinds), list(kinds.values()))[0]()

    def pick(self) -> tuple[Model, int]:
        model = self.rng.choice(self.data)
        return model, self.rng.randrange(len(model.parts))

    def step_part(self) -> None:
        model, k = self.pick()
        value, part = self.rng.randrange(100), model.parts[k]
        place = self.place_for(part)
        index = model.view(k)
        if self.rng.random() < 0.3:
            self.log.append(f"{part.name} = {value} at {place}")

            def overwrite(a: Any) -> None:
                a[...] = value

            self.ctx.task(place, part.write())(overwrite)
            model.array[index] = value
            return
        self.log.append(f"{part.name} += {value} at {place}")

        def update(a: Any) -> None:
            a[...] = (a * 3 + value) % MODULUS

        self.ctx.task(place, part.rw())(update)
        model.array[index] = (model.array[index] * 3 + value) % MODULUS

    def check(self, access: Any, place: Any, wanted: np.ndarray, what: str) -> None:
        if self.recording:
            return
        self.log.append(f"{what} at {place}")
        if ON_CUDA:
            out = self.ctx.logical_data_empty(wanted.shape, np.int64)

            def keep(a: Any, o: Any) -> None:
                o[...] = a

            self.ctx.task(place, access, out.write())(keep)
            self.outs.append((out, wanted.copy(), what))
            return
        got: list[np.ndarray] = []
        self.checks.append((got, wanted.copy(), what))
        self.ctx.task(place, access)(lambda a: got.append(a.copy()))

    def step_read_part(self) -> None:
        model, k = self.pick()
        part = model.parts[k]
        self.check(part.read(), self.place_for(part), model.array[model.view(k)], f"read {part.name}")

    def step_halo(self) -> None:
        model, k = self.pick()
        found = self.halo(model)
        if found is None:
            return
        given, widths, mode = found
        part = model.parts[k]
        what = f"read {part.name} with halo {given} {mode}"
        place = self.place_for(part) if not ON_CUDA else part.exec_place
        self.check(part.read(halo=given, halo_mode=mode), place, model.padded(k, widths, mode), what)

    def step_add(self) -> None:
        """Add the sum of a padded part to another part."""
        source, k = self.pick()
        target, m = self.pick()
        found = self.halo(source)
        if found is None or (source is target):
            return
        given, widths, mode = found
        one, other = source.parts[k], target.parts[m]

        def add(a: Any, b: Any) -> None:
            b[...] = (b + a.sum()) % MODULUS

        place = one.exec_place
        self.log.append(f"{other.name} += sum of {one.name} with halo {given} {mode} at {place}")
        self.ctx.task(place, one.read(halo=given, halo_mode=mode), other.rw())(add)
        index = target.view(m)
        target.array[index] = (target.array[index] + source.padded(k, widths, mode).sum()) % MODULUS

    def step_whole(self) -> None:
        if self.recording:
            return
        model = self.rng.choice(self.data)
        value, place = self.rng.randrange(100), self.place()
        where = self.rng.choice([None, model.handle.data_place])  # as one array over the parts, or gathered
        if self.rng.random() < 0.3:
            self.log.append(f"{model.handle.name} = {value} at {place}, {where}")

            def overwrite(a: Any) -> None:
                a[...] = value

            self.ctx.task(place, model.handle.write(where))(overwrite)
            model.array[...] = value
            return
        self.log.append(f"{model.handle.name} += {value} at {place}, {where}")

        def update(a: Any) -> None:
            a[...] = (a * 5 + value) % MODULUS

        self.ctx.task(place, model.handle.rw(where))(update)
        model.array[...] = (model.array * 5 + value) % MODULUS

    def step_read_whole(self) -> None:
        model = self.rng.choice(self.data)
        where = self.rng.choice([None, model.handle.data_place])
        self.check(model.handle.read(where), self.place(), model.array, f"read {model.handle.name} at {where}")

    def step_fill(self) -> None:
        model, k = self.pick()
        value = self.rng.randrange(100)
        if self.rng.random() < 0.5 and not self.recording:
            self.log.append(f"fill {model.handle.name} with {value}")
            self.ctx.fill(model.handle, value)
            model.array[...] = value
            return
        self.log.append(f"fill {model.parts[k].name} with {value}")
        self.ctx.fill(model.parts[k], value)
        model.array[model.view(k)] = value

    def step_copy(self) -> None:
        pairs = [(a, b) for a, b in itertools.permutations(self.data, 2) if a.array.shape == b.array.shape]
        if not pairs or self.recording:
            return
        one, other = self.rng.choice(pairs)
        self.log.append(f"copy {one.handle.name} to {other.handle.name}")
        self.ctx.copy(one.handle, other.handle)
        other.array[...] = one.array

    def step_wait(self) -> None:
        if self.recording:
            return
        model, k = self.pick()
        self.log.append(f"wait for {model.handle.name} and part {k}")
        if self.rng.random() < 0.5:
            self.must_be(self.ctx.wait(model.handle), model.array, "wait")
        else:
            self.must_be(self.ctx.wait(model.parts[k]), model.array[model.view(k)], "wait for a part")

    def step_freeze(self) -> None:
        if self.recording:
            return
        model, k = self.pick()
        whole, writes = self.rng.random() < 0.5, self.rng.random() < 0.5
        data = model.handle if whole else model.parts[k]
        index = (Ellipsis,) if whole else model.view(k)
        self.log.append(f"freeze {data.name} {'rw' if writes else 'read'}")
        with self.ctx.freeze(data, "rw" if writes else "read") as lent:
            array = lent.get()
            self.must_be(np.asarray(array), model.array[index], "frozen")
            if writes:
                array[...] = array + 1
                model.array[index] += 1

    def step_prefetch(self) -> None:
        model, k = self.pick()
        if self.recording:
            return
        self.log.append(f"prefetch {model.handle.name}")
        data = model.handle if self.rng.random() < 0.5 else model.parts[k]
        places = [*map(stf.data_place.device, range(self.count)), stf.data_place.host()]
        self.ctx.prefetch(
            data, self.rng.choice([*places, *([model.handle.data_place] if data is model.handle else [])])
        )

    def step_mistake(self) -> None:
        """Do what is refused, and changes nothing."""
        model, k = self.pick()
        if self.recording:
            return
        part, other = model.parts[k], model.parts[-1]
        self.log.append(f"mistake with {part.name}")
        for wrong in (
            lambda: part.write(halo=1),
            lambda: part.tiles(1),
            lambda: self.ctx.task(part.rw(), model.handle.read()).__enter__(),
        ):
            try:
                wrong()
            except (stf.AccessError, stf.TaskStateError):
                continue
            raise AssertionError("a mistake was taken")
        with self.ctx.task(other.rw()):
            try:
                with self.ctx.task(model.handle.read()):
                    raise AssertionError("the whole was read while a part is written")
            except stf.TaskStateError:
                pass

    def repeated(self, record: Any, launches: int) -> None:
        """Record some steps, and do them in the model as often as they are launched."""
        state = self.rng.getstate()
        before = [model.array.copy() for model in self.data]
        self.recording = True
        try:
            with record:
                for _ in range(self.rng.randint(1, 5)):
                    self.step_in_recording()
            end = self.rng.getstate()
            if launches == 1:
                return
            for model, array in zip(self.data, before, strict=True):
                model.array[...] = array
            steps, self.ctx, log = self.ctx, Nobody(), self.log
            self.log = []
            try:
                for _ in range(launches):
                    self.rng.setstate(state)
                    for _ in range(self.rng.randint(1, 5)):
                        self.step_in_recording()
            finally:
                self.ctx, self.log = steps, log
                self.rng.setstate(end)
        finally:
            self.recording = False

    def step_in_recording(self) -> None:
        self.rng.choice([self.step_part, self.step_add, self.step_fill])()

    def use_all(self) -> None:
        """Let all parts have content and margins, which is done outside of recordings."""
        for model in self.data:
            for part in model.parts:
                self.ctx.task(part.exec_place, part.read())(lambda a: None)
                for mode in ("none", "periodic"):
                    for widths in itertools.product((2, 1, 0), repeat=model.array.ndim):  # the widest first
                        if model.allows(widths) and all(w <= n for w, n in zip(widths, model.array.shape, strict=True)):
                            part.read(halo=widths, halo_mode=mode)

    def step_graph(self) -> None:
        if self.recording:
            return
        self.use_all()
        graph = self.ctx.task_graph()
        launches = self.rng.randint(2, 3)
        self.log.append(f"record, and launch {launches} times:")
        self.repeated(graph, launches)
        for _ in range(launches):
            graph.launch()
        self.log.append("end of what is recorded")
        graph.close()

    def step_scope(self) -> None:
        if self.recording:
            return
        self.use_all()
        self.log.append("graph_scope:")
        self.repeated(self.ctx.graph_scope(), 1)
        self.log.append("end of it")


class Nobody:
    """A context that does nothing, for a model that goes on alone."""

    def task(self, *_: Any) -> Any:
        return lambda body: body

    def fill(self, *_: Any) -> None:
        pass


def run_program(seed: int) -> None:
    """Run one program."""
    PartProgram(seed).run()


if __name__ == "__main__":
    first, last = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else int(sys.argv[1]) + 1
    for seed in range(first, last):
        faulthandler.dump_traceback_later(STALL_S, exit=True)  # one that hangs says where
        try:
            run_program(seed)
        except BaseException:
            print(f"program {seed}", file=sys.stderr)
            raise
    faulthandler.cancel_dump_traceback_later()
    print(f"{last - first} programs, no mismatch")
