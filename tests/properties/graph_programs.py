"""Random programs of recorded tasks beside NumPy: graphs launched several times, scopes, loops and branches in each other.

A program is a tree of statements. It is done by stf, in one of several ways to record, and by plain Python on NumPy
arrays; the results are compared after each launch, and at the end with what was written back.

    python tests/properties/graph_programs.py 0 1000        # run programs 0 … 999
    STF_TEST_DEVICES=cuda:0,1 python …                      # on GPUs
    python tests/stress/run.py --recorded --count 50000     # over several processes

On CUDA half of the programs of a process share one `stf.Resources`, and with it the executable graphs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import random
import sys
import time
from typing import NamedTuple

import drivers
import numpy as np
from drivers import ON_CUDA, placed, shared_resources

import stf
from stf._recording import device_graphs

MODULUS = 1009
DEVICES = os.environ.get("STF_TEST_DEVICES")


class Pair(NamedTuple):
    """Data made of two arrays."""

    a: np.ndarray
    b: np.ndarray


stf.register_data_interface(Pair, flatten=tuple, unflatten=lambda _, parts: Pair(*parts))


@stf.task
def mix(x: stf.ReadWrite, y: stf.Read, c):
    x *= 3
    x += y * c
    x %= MODULUS


@stf.task(uses_cuda=False)
def mix_in_graphs(x: stf.ReadWrite, y: stf.Read, c):
    mix.fn(x, y, c)


@stf.task
def blend(x: stf.Write, y: stf.Read, z: stf.Read, c):
    x[...] = (y + z * c) % MODULUS


@stf.task
def reset(x: stf.Write, c):
    x[...] = c


@stf.task
def answer(x: stf.Write, y: stf.Read, c):
    return (y * 5 + c) % MODULUS


@stf.task
def both(x: stf.ReadWrite, y: stf.ReadWrite, c):
    return (x + y * c) % MODULUS, (y + x + 1) % MODULUS


@stf.task
def gather(xs: stf.ReadWrite, *ys: stf.Read, c):
    for x in xs["all"]:
        x *= 2
        for y in ys:
            x += y * c
        x %= MODULUS


@stf.task
def turn(pair: stf.ReadWrite, x: stf.Read, c):
    pair.a[...] = (pair.a * 3 + x * c) % MODULUS
    pair.b[...] = (pair.b + pair.a) % MODULUS


@stf.task
def fold(x: stf.ReadWrite, pair: stf.Read):
    x += pair.a * 2 + pair.b
    x %= MODULUS


@stf.task
def swap(pair: stf.Write, other: stf.Read):
    pair.a[...] = other.b
    pair.b[...] = other.a


@stf.task
def spoil(x: stf.ReadWrite):
    raise ValueError("meant")


@stf.task
def count(x: stf.Accumulate[stf.reducer.sum], y: stf.Read):
    x += y


@stf.task
def increment(s: stf.ReadWrite):
    s += 1


def put(content, x):
    """Write an array."""
    x[...] = content


class Model:
    """The same statements, one after the other, on NumPy arrays."""

    def __init__(self, arrays, pairs, scalars):
        self.arrays, self.pairs, self.scalars, self.factor, self.asked = arrays, pairs, scalars, 1, 1
        self.own = [np.arange(4) + 3, np.arange(4) * 5]  # arrays that are registered where they are used
        self.total = None  # of which nothing is known before something is added
        self.is_total_known = True

    def do(self, tree):
        for statement in tree:
            if self.total is None and statement[0] in ("repeat", "loop", "branch", "below") and starts(statement):
                self.is_total_known = False  # nor by a task that adds to what may have been written
            getattr(self, statement[0])(*statement[1:])

    def asks(self, p, i, j, how):
        if how == 0 and self.asked <= 1:
            return self.reset(p, i, 3)
        for _ in range(self.asked if how in (1, 2) else 1):
            x = self.arrays[i]
            x[...] = (x * 3 + self.arrays[j] * 4) % MODULUS

    def fills(self, i):
        self.arrays[i][...] = self.factor

    def sets(self):
        self.scalars[-1] = (self.scalars[-1] * self.factor + 1) % 11

    def below(self, body, other):
        self.do(body if self.scalars[-1] < self.factor else other)

    def mix(self, _, i, j, c):
        x = self.arrays[i]
        x[...] = (x * 3 + self.arrays[j] * (c * self.factor)) % MODULUS

    def blend(self, _, i, j, k, c):
        self.arrays[i][...] = (self.arrays[j] + self.arrays[k] * c) % MODULUS

    def reset(self, _, i, c):
        self.arrays[i][...] = c

    def answer(self, _, i, j, c):
        self.arrays[i][...] = (self.arrays[j] * 5 + c) % MODULUS

    def both(self, _, i, j, c):
        x, y = self.arrays[i].copy(), self.arrays[j].copy()
        self.arrays[i][...] = (x + y * c) % MODULUS
        self.arrays[j][...] = (y + x + 1) % MODULUS

    def gather(self, _, i, j, k, c):
        self.arrays[i][...] = (self.arrays[i] * 2 + (self.arrays[j] + self.arrays[k]) * c) % MODULUS

    def turn(self, _, q, i, c):
        turn.fn(self.pairs[q], self.arrays[i], c * self.factor)

    def fold(self, _, i, q):
        fold.fn(self.arrays[i], self.pairs[q])

    def swap(self, _, q):
        for part, new in zip(self.pairs[q], reversed([part.copy() for part in self.pairs[1 - q]]), strict=True):
            part[...] = new

    def copies(self, i, j):
        self.arrays[i][...] = self.arrays[j]

    def registers(self, _, e, i, c):
        for x, y in ((self.own[e], self.arrays[i]), (self.arrays[i], self.own[e])):
            x[...] = (x * 3 + y * c) % MODULUS

    def host(self, _, i, j, c):
        self.mix(_, i, j, c)

    def call(self, _, i, j, c):
        self.arrays[i][...] = (self.arrays[i] + self.arrays[j] + c) % MODULUS

    def count(self, _, i, j):
        self.arrays[i][...] = ((self.arrays[i] + 2 * self.arrays[j]) * 3) % MODULUS

    def add(self, _, j):
        self.total = self.arrays[j] + (0 if self.total is None else self.total)

    def start(self, c):
        self.total = np.full(4, c)

    def repeat(self, n, body):
        for _ in range(n):
            self.do(body)

    def loop(self, s, limit, first, body):
        self.scalars[s] = 0
        while first or self.scalars[s] < limit:
            first = False
            self.do(body)
            self.scalars[s] += 1

    def branch(self, s, threshold, body, other):
        self.do(body if self.scalars[s] > threshold else other)

    def scope(self, raises, body):
        if not raises:
            self.do(body)


class Left(Exception):
    """What leaves a scope."""


class Emitter:
    """The statements as tasks."""

    def __init__(self, ctx, data, pairs, scalars, spread, nodes=range(0)):
        self.ctx, self.data, self.pairs, self.scalars = ctx, data, pairs, scalars
        self.spread = spread  # over all devices; else a device may decide about loops itself
        self.nodes = nodes  # which bodies on the host may be nodes of graphs, by their constant
        self.factor = self.asked = 1
        self.own = [np.arange(4) + 3, np.arange(4) * 5]
        self.total = ctx.logical_data_empty(4, np.int64)

    def do(self, tree):
        for statement in tree:
            getattr(self, statement[0])(*statement[1:])

    def do_with(self, factor, tree):
        self.factor = self.asked = factor
        self.do(tree)

    def asks(self, p, i, j, how):
        """What a number must have a value for: a parameter of a replay says so."""
        if how == 0 and self.asked <= 1:
            return self.reset(p, i, 3)
        if how == 2:
            with self.ctx.repeat(self.asked):
                mix.on(self.place(p))(self.data[i], self.data[j], 4)
            return None
        for _ in range(self.asked if how == 1 else 1):
            mix.on(self.place(p))(self.data[i], self.data[j], 4 if isinstance(self.asked, int) else 5)
        return None

    def fills(self, i):
        self.ctx.fill(self.data[i], self.factor)

    def sets(self):
        self.scalars[-1].assign((self.scalars[-1] * self.factor + 1) % 11)

    def below(self, body, other):
        with self.ctx.if_(self.scalars[-1] < self.factor) as branch:
            self.do(body)
        with branch.else_():
            self.do(other)

    def place(self, p):
        if drivers.PLACE == "auto" and p % 3:
            return stf.exec_place.auto()
        return self.ctx.devices[p % len(self.ctx.devices) if self.spread else 0]

    def mix(self, p, i, j, c):
        mix.on(self.place(p))(self.data[i], self.data[j], c * self.factor)

    def blend(self, p, i, j, k, c):
        blend.on(self.place(p))(self.data[i], self.data[j], self.data[k], c)

    def reset(self, p, i, c):
        reset.on(self.place(p))(self.data[i], c)

    def answer(self, p, i, j, c):
        answer.on(self.place(p))(self.data[i], self.data[j], c)

    def both(self, p, i, j, c):
        both.on(self.place(p))(self.data[i], self.data[j], c)

    def gather(self, p, i, j, k, c):
        gather.on(self.place(p))({"all": [self.data[i]]}, self.data[j], self.data[k], c=c)

    def turn(self, p, q, i, c):
        turn.on(self.place(p))(self.pairs[q], self.data[i], c * self.factor)

    def fold(self, p, i, q):
        fold.on(self.place(p))(self.data[i], self.pairs[q])

    def swap(self, p, q):
        swap.on(self.place(p))(self.pairs[q], self.pairs[1 - q])

    def copies(self, i, j):
        self.ctx.copy(self.data[j], self.data[i])

    def registers(self, p, e, i, c):
        """An array that is the caller's again when this returns, unless it is used on."""
        own = self.ctx.logical_data(self.own[e])
        mix.on(self.place(p))(own, self.data[i], c)
        mix.on(self.place(p + 1))(self.data[i], own, c)

    def change_own(self, model, value):
        """Write to the caller's arrays between two launches."""
        self.ctx.synchronize()
        for mine, known in zip(self.own, model.own, strict=True):
            check_home("own", mine, known)
            mine[...] = known[...] = value

    def fail(self, i, launch, model):
        """Launch what may need data that are spoilt; then write all data anew that the user has, as they were."""
        for step in (lambda: spoil(self.data[i]), launch, self.ctx.synchronize, self.ctx.synchronize):
            with contextlib.suppress(stf.TaskFailedError):
                step()
        parts = [part for pair in self.pairs for part in pair.parts]
        contents = [content for pair in model.pairs for content in pair]
        for data, known in zip([*self.data, *parts], [*model.arrays, *contents], strict=True):
            self.ctx.host_launch(data.write())(functools.partial(put, known.copy()))
        for mine, known in zip(self.own, model.own, strict=True):
            self.ctx.host_launch(self.ctx.logical_data(mine).write())(functools.partial(put, known.copy()))
        for scalar, known in zip(self.scalars, model.scalars, strict=True):
            self.ctx.fill(scalar, known)
        self.start(0)
        model.start(0)

    def host(self, _, i, j, c):
        function = mix_in_graphs if c in self.nodes else mix
        function.on(stf.exec_place.host())(self.data[i], self.data[j], c * self.factor)

    def call(self, _, i, j, c):
        def body(x, y):
            x[...] = (x + y + c) % MODULUS

        uses_cuda = c not in self.nodes
        self.ctx.host_launch(self.data[i].rw(), self.data[j].read(), uses_cuda=uses_cuda)(body)

    def count(self, p, i, j):
        count.on(self.place(p))(self.data[i], self.data[j])
        count.on(self.place(p + 1))(self.data[i], self.data[j])
        mix.on(self.place(p))(self.data[i], self.data[j], 0)

    def add(self, p, j):
        count.on(self.place(p))(self.total, self.data[j])

    def start(self, c):
        self.ctx.fill(self.total, c)

    def repeat(self, n, body):
        with self.ctx.repeat(n):
            self.do(body)

    def loop(self, s, limit, first, body):
        reset(self.scalars[s], 0)
        condition = self.scalars[s] < limit
        with self.ctx.while_loop() if first else self.ctx.while_loop(condition) as loop:
            self.do(body)
            increment(self.scalars[s])
            if first:
                loop.continue_while(condition)

    def branch(self, s, threshold, body, other):
        with self.ctx.if_(self.scalars[s] > threshold) as branch:
            self.do(body)
        with branch.else_():
            self.do(other)

    def scope(self, raises, body):
        with contextlib.suppress(Left), self.ctx.graph_scope():
            self.do(body)
            if raises:
                raise Left


def starts(statement):
    """Whether it, or one in it, writes the total."""
    inner = [part for trees in statement[1:] if isinstance(trees, list) for part in trees]
    return statement[0] == "start" or any(map(starts, inner))


def tree(rng, arrays, scalars, depth, used, host, numbers=False):
    """Statements; a loop inside another counts in a scalar of its own.

    `host`: some are done on the host. `numbers`: some ask for the number that each launch is given, or compute with it.
    """
    statements = []
    for _ in range(rng.randint(1, 5)):
        kinds = {
            "mix": 8,
            "blend": 5,
            "reset": 2,
            "answer": 1,
            "both": 1,
            "gather": 1,
            "count": 2,
            "add": 2,
            "start": 0.3,
            "copies": 0.5,
            "turn": 2,
            "fold": 1,
            "swap": 0.5,
            "registers": 0.7,
        }
        if host:
            kinds |= {"host": 2, "call": 1}
        if numbers:
            kinds |= {"asks": 1, "fills": 1, "sets": 1, "below": 1 if depth else 0}
        if depth:
            kinds |= {"repeat": 2, "branch": 2, "scope": 2, "loop": 2 if len(used) < scalars else 0}
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        i, j, k = rng.sample(range(arrays), 3)
        p, c = rng.randrange(3), rng.randrange(7)
        if kind in ("mix", "host", "call", "answer", "both"):
            statements.append((kind, p, i, j, c))
        elif kind in (
            "blend",
            "gather",
            "reset",
            "count",
            "add",
            "start",
            "copies",
            "turn",
            "fold",
            "swap",
            "registers",
        ):
            parts = {
                "blend": (p, i, j, k, c),
                "gather": (p, i, j, k, c),
                "reset": (p, i, c),
                "count": (p, i, j),
                "add": (p, j),
                "start": (c,),
                "copies": (i, j),
                "turn": (p, c % 2, i, c),
                "fold": (p, i, c % 2),
                "swap": (p, c % 2),
                "registers": (p, c % 2, i, c),
            }
            statements.append((kind, *parts[kind]))
        elif kind in ("asks", "fills", "sets"):
            statements.append((kind, *{"asks": (p, i, j, rng.randrange(4)), "fills": (i,), "sets": ()}[kind]))
        elif kind == "below":
            statements.append((kind, *[tree(rng, arrays, scalars, depth - 1, used, host, numbers) for _ in range(2)]))
        elif kind == "repeat":
            statements.append((kind, rng.randint(0, 3), tree(rng, arrays, scalars, depth - 1, used, host, numbers)))
        elif kind == "scope":
            inner = tree(rng, arrays, scalars, depth - 1, used, host, numbers)
            statements.append((kind, rng.random() < 0.3, inner))
        elif kind == "branch":
            s = rng.randrange(scalars)
            bodies = [tree(rng, arrays, scalars, depth - 1, used, host, numbers) for _ in range(2)]
            statements.append((kind, s, rng.randint(-1, 3), *bodies))
        else:
            s = next(n for n in range(scalars) if n not in used)
            first = rng.random() < 0.3
            statements.append(
                (kind, s, rng.randint(0, 3), first, tree(rng, arrays, scalars, depth - 1, {*used, s}, host, numbers))
            )
    return statements


def run_program(seed):
    """Run one program in the way that its seed says."""
    rng = random.Random(seed)
    arrays, scalars = rng.randint(3, 5), 3
    devices = DEVICES or rng.choice(["cpu", "cpu:2", "cpu:3"])
    start = [np.arange(4) * (n + 1) % MODULUS for n in range(arrays)]
    mine = [a.copy() for a in start]
    my_pairs = [Pair(np.arange(4) + q, np.arange(4) * 2) for q in range(2)]
    model = Model(
        [a.copy() for a in start], [Pair(pair.a.copy(), pair.b.copy()) for pair in my_pairs], [0] * (scalars + 1)
    )
    homes = []  # of data that were made for one launch, and what that makes of them
    host = rng.random() < 0.4
    way = rng.choice(["graph", "graph", "plain", "scope", "replay", "replay"])
    program = tree(rng, arrays, scalars, 3, frozenset(), host, rng.random() < 0.5)
    resources = shared_resources() if ON_CUDA and rng.random() < 0.5 else None
    with stf.context(devices=devices, use_graph=rng.random() < 0.3, resources=resources, **placed(seed)) as ctx:
        data = [ctx.logical_data(a) for a in mine]
        counters = [ctx.logical_data_zeros((), np.int64) for _ in range(scalars + 1)]  # the last is of no loop
        nodes = rng.choice([range(0), range(3), range(7), range(7)])
        emitter = Emitter(ctx, data, [ctx.logical_data(pair) for pair in my_pairs], counters, rng.random() < 0.5, nodes)
        graph, varied = None, True
        if way == "graph":
            graph = ctx.task_graph(f"program {seed}")
            varied = rng.random() < 0.5
            if varied:
                emitter.factor = graph.param("factor", 1)
            with graph:
                emitter.do(program)
        function = stf.replay(lambda parts, factor: emitter.do_with(factor, program))
        device_graphs.OTHERS = rng.choice([1, 1, 4])  # after so many graphs, nodes are changed for other data
        for _ in range(rng.randint(1, 4 if way in ("plain", "scope") else 9)):
            model.factor = rng.choice([1, 1, 2, 3, 5]) if varied else 1
            model.asked = model.factor if graph is None else 1  # parameters of graphs have no values to ask for
            if way in ("graph", "replay") and rng.random() < 0.1:
                launch = graph.launch if graph is not None else functools.partial(function, data, model.factor)
                emitter.fail(rng.randrange(arrays), launch, model)
            if graph is not None:
                order = rng.sample(range(arrays), arrays) if rng.random() < 0.4 else list(range(arrays))
                used = {use.data.id for use in graph._recording.uses}
                others = {data[i]: data[k] for i, k in enumerate(order) if data[i].core.id in used}
                lent = {}
                crossed = rng.random() < 0.3
                if crossed:
                    others |= {
                        pair: other
                        for pair, other in zip(emitter.pairs, reversed(emitter.pairs), strict=True)
                        if pair.parts[0].core.id in used
                    }
                for i in rng.sample(range(arrays), rng.choice([0, 0, 1, 2])):
                    if data[i] in others:
                        lent[i] = model.arrays[order[i]].copy()
                        homes.append((lent[i].copy(), lent[i]))
                        others[data[i]] = ctx.logical_data(homes[-1][0])
                graph.launch(others, **({"factor": model.factor} if varied else {}))
                del others  # and with it the data that were made for this launch
            elif way == "replay":
                function(data, model.factor)
            elif way == "scope":
                emitter.factor = emitter.asked = model.factor
                emitter.scope(False, program)
            else:
                emitter.do_with(model.factor, program)
            before = model.arrays, model.pairs
            if graph is not None:
                model.arrays = [lent.get(i, model.arrays[k]) for i, k in enumerate(order)]
                model.pairs = model.pairs[::-1] if crossed else model.pairs
            model.do(program)
            model.arrays, model.pairs = before
            emitter.factor = model.factor = emitter.asked = model.asked = 1
            between = tree(rng, arrays, scalars, 0, frozenset(), host)
            emitter.do(between)
            model.do(between)
            if rng.random() < 0.5:
                i = rng.randrange(arrays)
                assert data[i].numpy().tolist() == model.arrays[i].tolist(), (seed, way, devices, i, program)
            if rng.random() < 0.3:
                emitter.change_own(model, rng.randrange(MODULUS))
            if rng.random() < 0.2:
                register_again(ctx, data, mine, model.arrays, rng)
            if rng.random() < 0.1:
                register_again(ctx, emitter.pairs, my_pairs, model.pairs, rng)
        for i, known in enumerate(model.arrays):
            assert data[i].numpy().tolist() == known.tolist(), (seed, way, devices, i, program)
        if model.total is not None and model.is_total_known:
            assert emitter.total.numpy().tolist() == model.total.tolist(), (seed, way, devices, "total", program)
        if rng.random() < 0.5 and graph is not None:
            graph.close()
        ctx.check_state()
        function.close()
    for home, known in homes:
        assert home.tolist() == known.tolist(), (seed, way, devices, "lent", program)
    for i, known in enumerate(model.arrays):
        assert mine[i].tolist() == known.tolist(), (seed, way, devices, i, program)
    for own, known in zip(emitter.own, model.own, strict=True):
        assert own.tolist() == known.tolist(), (seed, way, devices, "own", program)
    for pair, known in zip(my_pairs, model.pairs, strict=True):
        assert listed(pair) == listed(known), (seed, way, devices, "pair", program)


def register_again(ctx, data, mine, known, rng):
    """Drop a data, write to what the user has of it, and register that again, which recordings may still hold."""
    i = rng.randrange(len(data))
    data[i] = None
    ctx.synchronize()
    for part, content in zip(parts_of(mine[i]), parts_of(known[i]), strict=True):
        check_home(f"home {i}", part, content)
        part[...] = content[...] = rng.randrange(MODULUS)
    data[i] = ctx.logical_data(mine[i])


def check_home(what, mine, known):
    """That the caller's array holds what it should; if not, whether a moment later it does."""
    found = mine.tolist()
    if found != known.tolist():
        time.sleep(0.1)
        raise AssertionError(f"{what}: {found}, expected {known.tolist()}; a moment later {mine.tolist()}")


def parts_of(value):
    return value if isinstance(value, Pair) else (value,)


def listed(pair):
    return [part.tolist() for part in pair]


STALL_S = 60  # a program takes some hundredths of that

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
