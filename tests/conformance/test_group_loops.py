"""Bodies of ``launch`` that wait: cut at their barriers they compute what their threads compute one by one."""

from __future__ import annotations

import importlib.util
import itertools
import os
import random

import numpy as np
import pytest
from helpers import QUICK

import stf
from stf import con, mem, par
from stf.kernels import group_tasks
from stf.kernels.thread_groups import BarrierTask

pytest.importorskip("numba")
if QUICK and (stf.config.pure or os.environ.get("STF_TEST_DEVICES")):
    pytest.skip("it is the same uncompiled, and on the host of a GPU; make test-all shows it", allow_module_level=True)

NUMBERS = itertools.count()
HIERARCHIES = {
    1: [par(3, con(4, mem(64))), par(con(mem(64))), par(2, con[8](mem(64))), par(2, con(2, mem(64), con(3)))],
    0: [con(6, mem(64)), con(2, mem(64), par(3))],
    2: [par(2, par(2, con(4, mem(64)))), par(2, con(2, con(4, mem(64))))],
}


@pytest.fixture
def cpu():
    """A context whose workers share the groups."""
    with stf.context(devices="cpu", workers=2) as ctx:
        yield ctx


@pytest.fixture
def resumed(monkeypatch):
    """Note each body that stays a generator."""
    seen = []
    begin = BarrierTask.__init__

    def noted(self, *given):
        seen.append(self)
        begin(self, *given)

    monkeypatch.setattr(BarrierTask, "__init__", noted)
    return seen


def body_of(text, folder):
    """Return the function `body` of a text, whose source is in a file."""
    path = folder / f"body_{next(NUMBERS)}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.body


def results(ctx, hierarchy, body):
    """Run a body on arrays of its own; return what it wrote."""
    x, y = ctx.logical_data(np.linspace(-1.0, 2.0, 37)), ctx.logical_data_zeros(64)
    z, s = ctx.logical_data_zeros(37, np.int64), ctx.logical_data(np.array(1.5))
    ctx.launch(hierarchy, x.read(), y.rw(), z.rw(), s.read(), args=(3,))(body)
    return ctx.wait(y).tolist(), ctx.wait(z).tolist()


# -- random bodies -------------------------------------------------------------------------------------------------------


class Bodies:
    """Writes bodies without races: a thread writes its own elements, and reads others' between barriers."""

    def __init__(self, seed, level):
        self.pick = random.Random(seed)
        self.level = level
        self.lines = []
        self.loops = 0

    def text(self):
        """Return the source of a body."""
        level = self.level
        self.lines = ["def body(th, x, y, z, s, n):", "    i = th.rank()", f"    me = th.rank({level})"]
        self.lines += [f"    mine = th.storage({level}, np.float64)", f"    width = th.size({level})"]
        self.lines += [
            "    a = x[i % x.size] * s",
            "    b = 0.0" if self.pick.random() < 0.5 else "    b = 0",
            "    k = i",
        ]
        self.sync(1)
        self.block(1, self.pick.randrange(3, 7), True)
        if self.pick.random() < 0.3:
            self.lines += [f"    if i % 3 == {self.pick.randrange(3)}:", "        return"]
        self.lines += ["    y[i] = a + b", "    z[i % z.size] = k if i < z.size else z[i % z.size]"]
        return "import numpy as np\nC = 2.5\n" + "\n".join(self.lines) + "\n"

    def put(self, depth, *lines):
        self.lines += ["    " * depth + line for line in lines]

    def number(self):
        return self.pick.choice(
            ["a", "b", "C", "x[(i + 1) % x.size]", "s", "float(k)", "0.5", "a * C", "b - s", "x.size"]
        )

    def block(self, depth, count, waits):
        """Write statements; `waits`: all threads come here, so barriers may."""
        kinds = ["assign", "branch", "loop", "temporary", "stride"]
        if waits:
            kinds += ["sync", "exchange", "exchange", "uniform loop", "while", "uniform branch", "parameter"]
        for _ in range(count):
            getattr(self, self.pick.choice(kinds).replace(" ", "_"))(depth)

    def assign(self, depth):
        name = self.pick.choice("ab")
        self.put(depth, f"{name} {self.pick.choice(['=', '+=', '-='])} {self.number()} * 0.5 + {self.number()}")
        if self.pick.random() < 0.3:
            self.put(depth, f"k += {self.pick.choice(['n', 'me', 'width', '1'])}")

    def branch(self, depth):
        self.put(depth, f"if {self.pick.choice(['i % 2 == 0', 'a > b', 'k > 3', 'me < width // 2'])}:")
        self.assign(depth + 1)
        if self.pick.random() < 0.5:
            self.put(depth, "else:")
            self.assign(depth + 1)

    def loop(self, depth):
        self.put(depth, f"for j in range({self.pick.choice(['n', 'me', 'k % 4', 'width'])}):")
        if self.pick.random() < 0.3:
            self.put(depth + 1, "if j == 2:", f"    {self.pick.choice(['break', 'continue'])}")
        self.put(depth + 1, "b = b + 0.25 * j * a")

    def temporary(self, depth):
        self.put(depth, f"t = {self.number()}", "a = a - t * 0.125")

    def stride(self, depth):
        begin = self.pick.choice(["th.rank()", "1 + th.rank()", f"th.rank({self.level})"])
        step = "th.size()" if begin != f"th.rank({self.level})" else "width"
        self.put(depth, f"for q in range({begin}, x.size, {step}):", "    b += x[q] * 0.5", "    k += q")

    def sync(self, depth):
        self.put(depth, f"th.sync({self.level})")

    def exchange(self, depth):
        self.put(depth, f"mine[me] = {self.number()}", f"th.sync({self.level})")
        self.put(depth, f"{self.pick.choice('ab')} += mine[(me + {self.pick.randrange(3)}) % width]")
        self.put(depth, f"th.sync({self.level})")

    def uniform_loop(self, depth):
        if depth > 2:
            return
        self.loops += 1
        self.put(depth, f"for u{self.loops} in range({self.pick.choice(['n', '2', 'width'])}):")
        self.exchange(depth + 1)
        self.block(depth + 1, 1, True)

    def _while(self, depth):
        if depth > 2:
            return
        self.loops += 1
        step = f"step{self.loops}"
        self.put(depth, f"{step} = width // 2", f"while {step} > 0:")
        self.put(depth + 1, f"if me < {step}:", f"    mine[me] = a + {step}", f"th.sync({self.level})", f"{step} //= 2")
        self.block(depth + 1, 1, True)
        if self.pick.random() < 0.3:
            self.put(depth + 1, f"if {step} == 1:", "    break")

    def uniform_branch(self, depth):
        if depth > 2:
            return
        self.put(depth, f"if {self.pick.choice(['n > 2', 'width > 3', 's > 1.0'])}:")
        self.exchange(depth + 1)
        self.put(depth, "else:")
        self.exchange(depth + 1)

    def parameter(self, depth):
        if depth == 1:
            self.put(depth, f"n = {self.pick.choice(['n + 1', 'min(n, 2)', 'x.size % 5'])}")


setattr(Bodies, "while", Bodies._while)


@pytest.mark.parametrize("seed", range(3 if QUICK else 15))
def test_random_bodies_compute_the_same_cut_and_resumed(cpu, resumed, monkeypatch, tmp_path, seed):
    level = seed % 3
    text = Bodies(seed, level).text()
    hierarchy = HIERARCHIES[level][seed // 3 % len(HIERARCHIES[level])]
    found = results(cpu, hierarchy, body_of(text, tmp_path))
    count = len(resumed)
    monkeypatch.setattr(group_tasks, "groups_of", lambda *given: None)
    expected = results(cpu, hierarchy, body_of(text, tmp_path))
    assert len(resumed) == count + 1
    assert repr(found) == repr(expected), text


# -- which are cut ---------------------------------------------------------------------------------------------------------


CUT = {
    "a barrier at the top": """
    y[i] = i
    th.sync(1)
    y[i] += y[th.rank(0) * 4 + 3 - th.rank(1)] * 0
""",
    "a loop of a parameter": """
    a = 0.0
    for r in range(n):
        th.sync(1)
        a += r
    y[i] = a
""",
    "a return behind all barriers": """
    th.sync(1)
    if i > 2:
        return
    y[i] = 1
""",
    "a variable of a loop that some threads do not run": """
    for r in range(i, 4):
        pass
    th.sync(1)
    y[i] = r
""",
    "a return of all threads": """
    if n == 3:
        return
    th.sync(1)
    y[i] = 1
""",
}
RESUMED = {
    "a barrier in a branch that differs": """
    if x[0] < 5:
        th.sync(1)
    y[i] = i
""",
    "a loop whose count is an element": """
    r = z[0]
    while r < 2:
        th.sync(1)
        r += 1
    y[i] = r
""",
    "a return in front of a barrier": """
    if x[0] > 5:
        return
    th.sync(1)
    y[i] = i
""",
    "an array that outlives a barrier": """
    row = x[i:]
    row = x[i + 1:]
    th.sync(1)
    y[i] = row[0]
""",
    "a variable that is declared when it has a value": """
    a = x[i]
    th.sync(1)
    a: float
    y[i] = a
""",
    "a number that changes its type when it has changed before": """
    a = i
    a += n
    th.sync(1)
    if n > 2:
        a = 0.5
    th.sync(1)
    y[i] = a
""",
    "a number of two types that outlives one": """
    a = i
    if n > 2:
        a = x[0]
    th.sync(1)
    y[i] = a
""",
}


@pytest.mark.parametrize("case", [*CUT, *RESUMED])
def test_bodies_that_are_cut_and_bodies_that_are_not(cpu, resumed, monkeypatch, tmp_path, case):
    text = "def body(th, x, y, z, s, n):\n    i = th.rank()" + (CUT | RESUMED)[case]
    found = results(cpu, par(2, con(4)), body_of(text, tmp_path))
    assert bool(resumed) == (case in RESUMED)
    monkeypatch.setattr(group_tasks, "groups_of", lambda *given: None)
    assert found == results(cpu, par(2, con(4)), body_of(text, tmp_path))


def test_groups_are_shared_by_the_workers(cpu, monkeypatch):
    from stf.kernels.loop_tasks import LoopTask

    pieces = []
    run = LoopTask.run
    monkeypatch.setattr(LoopTask, "run", lambda self, call, found: pieces.append(len(found)) or run(self, call, found))
    x = cpu.logical_data(np.arange(float(1 << 18)))
    for _ in range(3):
        cpu.launch(par(1 << 13, con(32)), x.rw())(turn_round)
        cpu.synchronize()
    expected = np.arange(float(1 << 18)).reshape(-1, 32)[:, ::-1].ravel()
    assert (x.numpy() == expected).all()
    assert max(pieces) > 1


def turn_round(th, x):
    i, last = th.rank(), th.size(1) - 1
    other = x[i - th.rank(1) + last - th.rank(1)]
    th.sync(1)
    x[i] = other


def test_an_index_out_of_bounds_is_told_behind_a_barrier(cpu, monkeypatch):
    monkeypatch.setattr(stf.config, "validate", True)
    x = cpu.logical_data_zeros(4)

    @cpu.launch(par(1, con(5)), x.rw())
    def too_far(th, x):
        th.sync(1)
        x[th.rank()] = 1

    with pytest.raises(stf.TaskFailedError, match="out of bounds"):
        cpu.wait(x)


def test_memory_of_groups_that_the_machine_has_not_is_told_at_once(cpu):
    x = cpu.logical_data_zeros(4)

    def body(th, x):
        th.sync(1)
        x[th.rank()] = th.storage(1, np.float64)[0]

    with pytest.raises(ValueError, match=r"need \d+ bytes of memory in all"):
        cpu.launch(par(1, con(4, mem(1 << 60))), x.rw())(body)


def test_a_new_width_compiles_nothing(cpu):
    from stf.kernels import loops

    x = cpu.logical_data(np.arange(8.0))
    cpu.launch(par(2, con(4)), x.rw())(turn_round)
    known = len(loops.loops)
    cpu.launch(par(4, con(2)), x.rw())(turn_round)
    assert len(loops.loops) == known
    assert x.numpy().tolist() == [2, 3, 0, 1, 6, 7, 4, 5]


# -- arrays, and what is compiled in ------------------------------------------------------------------------------------


LOCAL_ARRAYS = {
    "its own of the data": ("own = x * 2", "own[0] = i", "own[0]"),
    "its own of the memory": ("own = mine + 1", "own[0] = i", "own[0]"),
    "its own of a global one": ("own = -TABLE", "own[0] = i", "own[0]"),
    "an element of the memory": ("own = max(mine)", "mine[th.rank(1)] = 50", "own"),
}


@pytest.mark.parametrize("made, changed, read", LOCAL_ARRAYS.values(), ids=LOCAL_ARRAYS)
def test_each_thread_computes_of_arrays_once(cpu, monkeypatch, tmp_path, made, changed, read):
    lines = ["i = th.rank()", "mine = th.storage(1, np.float64)", "mine[th.rank(1)] = i", "th.sync(1)", made]
    lines += ["th.sync(1)", changed, "th.sync(1)", f"y[i] = {read}"]
    text = "import numpy as np\nTABLE = np.arange(4.0)\ndef body(th, x, y, z, s, n):\n    " + "\n    ".join(lines)
    found = results(cpu, par(2, con(4, mem(32))), body_of(text, tmp_path))
    assert found[0][:8] == ([3.0] * 4 + [7.0] * 4 if read == "own" else list(range(8)))
    monkeypatch.setattr(group_tasks, "groups_of", lambda *given: None)
    assert found == results(cpu, par(2, con(4, mem(32))), body_of(text, tmp_path))


def test_a_function_that_returns_another_type_now(cpu, resumed, monkeypatch):
    x, y = cpu.logical_data(np.arange(4)), cpu.logical_data_zeros(4)
    for factor in (2, 0.75):
        monkeypatch.setitem(globals(), "scaled", SCALED[factor])
        cpu.launch(par(1, con(4)), x.read(), y.write())(scale_and_wait)
        assert y.numpy().tolist() == [0.0, factor, 2 * factor, 3 * factor]
    assert not resumed


def twice(value):
    return value * 2


def three_quarters(value):
    return value * 0.75


SCALED = {2: twice, 0.75: three_quarters}
scaled = twice


def scale_and_wait(th, x, y):
    found = scaled(x[th.rank()])
    th.sync(1)
    y[th.rank()] = found
