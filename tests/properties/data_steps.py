"""Steps that make data, look at them, lend them, split them and give them up; and mistakes, which change nothing."""

from __future__ import annotations

import numpy as np
from arithmetic import RW, WRITE, Pair, content_at, mixed, store_and_wait
from machine import Machine
from model import Item, Plan, Use, depth, frozen_for, same

import stf
from stf import data_place, exec_place


class DataSteps(Machine):
    """What a program may do with data."""

    # -- data ------------------------------------------------------------------------------------------------------

    def step_register(self):
        rng = self.rng
        if len(self.items) > 12:
            return
        name = self.name("d")
        kind = rng.choice(["array", "array", "array", "pair", "token"])
        if kind == "token":
            self.tell(f"{name} = token")
            self.items.append(Item(name, self.ctx.token(name=name), None))
            return
        if kind == "pair":
            homes = [self.home_array() for _ in range(2)]
            self.tell(f"{name} = pair of {[h.shape for h in homes]}")
            pair = self.ctx.logical_data(Pair(*homes), name=name)
            for part, home in zip(pair.parts, homes, strict=True):
                self.items.append(Item(part.name, part, content_at(home), home))
            return
        home = self.home_array()
        readonly = rng.random() < 0.1
        write_back = rng.random() < 0.85
        self.tell(
            f"{name} = logical_data({home.dtype}, {home.shape}, strides {home.strides}, {readonly=}, {write_back=})"
        )
        handle = self.ctx.logical_data(home, name=name, readonly=readonly, write_back=write_back)
        item = Item(name, handle, content_at(home), home)
        item.readonly = readonly
        item.write_back = write_back
        assert self.ctx.logical_data(home) is handle
        self.items.append(item)

    def step_create(self):
        rng = self.rng
        if len(self.items) > 12:
            return
        name, shape, kind = self.name("e"), self.shape(), self.dtype()
        value = np.zeros(shape, kind)
        if rng.random() < 0.6:
            self.tell(f"{name} = logical_data_empty({shape}, {kind})")
            handle = self.ctx.logical_data_empty(shape, kind, name=name)
            self.items.append(Item(name, handle, value, valid=False))
        else:
            self.tell(f"{name} = logical_data_full({shape}, 1, {kind})")
            where = exec_place.device(rng.randrange(self.count)) if rng.random() < 0.5 else None
            made = []

            def action():
                made.append(self.ctx.logical_data_full(shape, 1, kind, name=name, exec_place=where))

            item = Item(name, None, value + np.ones((), kind))
            item.value = np.ones(shape, kind)
            if self.attempt(action, [item]):
                item.handle = made.pop()
                self.items.append(item)

    def step_wait(self):
        item = self.pick(lambda i: i.readable() and not i.tiles and not i.claims and not frozen_for(i, RW))
        if item is None or self.open:
            return
        plainly = not item.token and len(self.description) % 2 == 0
        self.tell(f"wait {item.name}")
        result = []

        def action():
            result[:] = ["raised"]
            try:
                result[:] = [item.handle.numpy() if plainly else self.ctx.wait(item.handle)]
            except (stf.TaskFailedError, ExceptionGroup) as error:
                assert item.poison or self.untold or self.skips, error
                self.hear(error)
            else:
                assert not item.poison, "wait returned poisoned content"

        if self.injecting(action, [item]):
            item.partials = None
            got = result[0]
            if item.token or isinstance(got, str):
                return
            assert np.array_equal(got, item.value), f"{item.name} is {got!r}, expected {item.value!r}"

    def step_write_back(self):
        item = self.pick(lambda i: i.home is not None and self.at_rest(i))
        if item is None or self.open:
            return
        self.tell(f"write_back {item.name}")

        def action():
            try:
                item.handle.write_back()
                self.ctx.wait(item.handle)
            except (stf.TaskFailedError, ExceptionGroup) as error:
                assert item.poison or self.untold or self.skips, error
                self.hear(error)
            else:
                assert not item.poison

        if self.injecting(action, [item]):
            item.partials = None
            if not item.poison and item.known:
                self.look_at(item.home)
                assert same(item.home, item.value), f"{item.name}: {item.home!r}, expected {item.value!r}"

    def step_give_up(self):
        item = self.pick(lambda i: not i.tiles and not i.claims and i.frozen is None)
        if item is None:
            return
        drop = self.rng.random() < 0.5
        self.tell(f"{'del' if drop else 'release'} {item.name}")
        handle = item.handle
        if not drop:
            if not self.attempt(handle.release, [item]):
                return
            handle.release()
        item.handle = handle = None
        self.gone(item)

    def step_again(self):
        """Release an array and register it anew."""
        item = self.pick(lambda i: self.at_rest(i) and i.home is not None and not i.poison and i.known and i.write_back)
        if item is None or item.readonly:
            return
        self.tell(f"release and register again {item.name}")
        if self.attempt(item.handle.release, [item]):
            item.partials = None
            item.handle = self.ctx.logical_data(item.home, name=item.name)

    # -- freezing and tiles ----------------------------------------------------------------------------------------

    def step_freeze(self):
        frozen = [i for i in self.items if i.frozen is not None]
        if frozen and self.rng.random() < 0.6:
            return self.step_unfreeze(self.rng.choice(frozen))
        item = self.pick(lambda i: self.at_rest(i) and i.readable() and not i.poison)
        if item is None or (item.valid is False and item.partials is None):
            return
        mode = "read" if item.readonly else self.rng.choice(["read", "rw"])
        where = self.rng.choice([data_place.host(), *(data_place.device(i) for i in range(self.count))])
        self.tell(f"freeze {item.name} {mode} at {where}")
        made = []
        if self.attempt(lambda: made.append(self.ctx.freeze(item.handle, mode, where)), [item]):
            item.partials = None
            item.frozen = made.pop()

    def step_unfreeze(self, item):
        frozen = item.frozen
        got = []
        self.tell(f"unfreeze {item.name}")
        if not item.claims and self.attempt(lambda: got.append(frozen.get()), [item]):
            view = got.pop()
            assert same(view, item.value), f"frozen {item.name} is {view!r}, expected {item.value!r}"
            self.look_at(view, frozen.mode == RW)
            if frozen.mode == RW:
                item.value[...] = mixed(item.value, 3)
                store_and_wait(view, item.value)
        frozen.unfreeze()
        item.frozen = None

    def step_tiles(self):
        item = self.pick(
            lambda i: self.at_rest(i) and not i.poison and i.known and i.value.size > 1 and not depth(i) > 1
        )
        if item is None or len(self.items) > 14:
            return
        extents = tuple(self.rng.randint(max(1, n // 2), n) for n in item.value.shape)
        self.tell(f"tiles {item.name} {extents}")
        made = []
        if not self.attempt(lambda: made.append(item.handle.tiles(extents)), [item]):
            return
        item.partials = None
        item.keep_previous = False
        tiles = made.pop()
        for index in np.ndindex(tiles.shape):
            window = tuple(slice(i * b, (i + 1) * b) for i, b in zip(index, extents, strict=True))
            tile = Item(tiles[index].name, tiles[index], item.value[window], valid=item.valid)
            tile.parent = item
            tile.readonly = item.readonly
            item.tiles.append(tile)
            self.items.append(tile)

    def step_join_tiles(self):
        item = self.pick(lambda i: i.tiles and all(self.at_rest(t) for t in i.tiles))
        if item is None:
            return
        self.tell(f"join {item.name}")
        for tile in list(item.tiles):
            if self.rng.random() < 0.5:
                tile.handle.release()
            tile.handle = None
            self.gone(tile)

    # -- the rest --------------------------------------------------------------------------------------------------

    def step_heal(self):
        item = self.pick(lambda i: i.poison and self.at_rest(i))
        if item is None:
            return
        if self.rng.random() < 0.5 and item.known:
            self.tell(f"accept {item.name}")
            self.settle_failures(item)
            item.handle.accept()
            item.poison = False
            if item.partials is not None:
                item.known = False
        elif not item.readonly:
            self.tell(f"heal {item.name}")
            plan = Plan(self.name("t"), [Use(item, WRITE)], None, self.rng.randrange(100))
            if self.attempt(lambda: self.submit("builder", plan, False), [item]):
                self.model(plan)

    def settle_failures(self, item):
        """Hear of the failures first: `accept` itself raises nothing."""
        if self.open:
            return
        try:
            self.ctx.synchronize()
        except (stf.TaskFailedError, ExceptionGroup) as error:
            self.hear(error)

    def step_whole(self):
        kind = self.rng.choice(["synchronize", "fence", "check_errors"])
        if self.open:
            return
        self.tell(kind)
        try:
            if kind == "fence":
                fence = self.ctx.fence()
                fence.synchronize()
                assert fence.done
            else:
                getattr(self.ctx, kind)()
        except (stf.TaskFailedError, ExceptionGroup) as error:
            self.hear(error)
        if kind == "synchronize":
            assert not self.untold, f"synchronize did not tell of {self.untold}"

    def step_mistake(self):
        """Something that is refused, and changes nothing."""
        rng = self.rng
        mistakes = []
        for item in self.items:
            handle = item.handle
            if item.tiles:
                mistakes.append((stf.AccessError, "read split", lambda h=handle: self.begin_end(h.read())))
            elif item.frozen is not None:
                if not item.readonly:
                    mistakes.append((stf.AccessError, "write frozen", lambda h=handle: self.begin_end(h.rw())))
            elif item.claims:
                if not item.readonly:
                    mistakes.append((stf.TaskStateError, "conflict", lambda h=handle: self.begin_end(h.write())))
                mistakes.append((stf.TaskStateError, "release open", handle.release))
            elif not item.valid and not item.poison and item.partials is None:
                mistakes.append((stf.UninitializedDataError, "read empty", lambda h=handle: self.begin_end(h.read())))
                if self.ctx.engine.window is None:  # else it is refused later, and poisons the data
                    mistakes.append((stf.UninitializedDataError, "late empty", lambda h=handle: self.late_noop(h.rw())))
                mistakes.append((stf.UninitializedDataError, "freeze empty", lambda h=handle: self.ctx.freeze(h)))
                if item.home is None and item.parent is None and not self.open:
                    mistakes.append((ValueError, "write back", handle.write_back))
            if item.readonly:
                mistakes.append((stf.AccessError, "write read-only", handle.rw))
            if self.open:
                mistakes.append((stf.TaskStateError, "wait inside", lambda h=handle: self.ctx.wait(h)))
        if not mistakes:
            return
        error, what, action = rng.choice(mistakes)
        self.tell(f"mistake: {what}")
        try:
            action()
            self.ctx.engine.submit_held()
        except error:
            return
        raise AssertionError(f"{what} was not refused")

    def begin_end(self, access):
        with self.ctx.task(access):
            pass

    def late_noop(self, access):
        self.ctx.task(access)(lambda *values: None)
