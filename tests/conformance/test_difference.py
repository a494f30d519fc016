"""`stf.diff`: the first task whose outputs differ while its inputs agreed."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import stf
from stf.tasks import comparing

WRONG = "cpu:2"


@stf.task
def double(x: stf.Read, y: stf.Write):
    y[...] = 2 * x


@stf.task
def bad(y: stf.ReadWrite, factor):
    y[2] *= factor


@stf.task
def shift(y: stf.ReadWrite, by):
    y += by


def steps(ctx, wrong_at=None, count=6, size=1e-7):
    x, y = ctx.logical_data(np.arange(1.0, 5.0), name="x"), ctx.logical_data_empty(4, name="y")
    ctx.fill(y, 0.0)
    for number in range(count):
        double(x, y)
        shift(y, 1.0)
        if number == wrong_at:
            bad(y, 1 + size if len(ctx.devices) == 2 else 1.0)
        double(y, x)
        shift(x, -1.0)


A, B = {"devices": "cpu"}, {"devices": WRONG}


def test_runs_that_agree():
    assert stf.diff(steps, A, B) is None
    assert stf.diff(steps, A, {"devices": "cpu:3", "hostile": 5}) is None


def test_the_first_task_is_named():
    found = stf.diff(steps, A, B, 3)
    assert (found.kind, found.task, found.number) == ("task", "'bad'", 14)
    assert "test_difference.py" in found.line
    (one,) = found.found
    assert (one.data, one.differing, one.size, one.position) == ("y", 1, 4, (2,))
    assert one.ulp == pytest.approx(1e-7 * one.one / np.spacing(one.other))
    assert found.later > 0
    assert "is the first whose outputs differ while its inputs agreed" in repr(found)
    assert "ulp apart" in repr(found)


@pytest.mark.parametrize("every", [1, 2, 3, 5, 16, 100])
@pytest.mark.parametrize("wrong_at", [None, 0, 3, 5])
def test_a_look_once_in_some_tasks_names_the_same_one(every, wrong_at):
    found, expected = stf.diff(steps, A, B, wrong_at, every=every), stf.diff(steps, A, B, wrong_at)
    if expected is None:
        assert found is None
    else:
        assert (found.kind, found.task, found.number) == (expected.kind, expected.task, expected.number)
        assert found.found == expected.found


def test_every_looks_at_fewer_data(monkeypatch):
    looks = []
    take = comparing.Noted.take
    monkeypatch.setattr(comparing.Noted, "take", lambda self, *what: (looks.append(1), take(self, *what)))
    assert stf.diff(steps, A, B, None, 24) is None
    once_each = len(looks)
    looks.clear()
    assert stf.diff(steps, A, B, None, 24, every=16) is None
    assert len(looks) * 4 < once_each


def test_every_finds_inputs_and_programs_that_differ():
    def inputs(ctx):
        x, y = ctx.logical_data(np.arange(3.0) + len(ctx.devices), name="x"), ctx.logical_data(np.zeros(3), name="y")
        for _ in range(5):
            shift(y, 1.0)
        for _ in range(5):
            shift(x, 1.0)

    def programs(ctx):
        x = ctx.logical_data(np.zeros(3), name="x")
        for _ in range(5 + len(ctx.devices)):
            shift(x, 1.0)

    assert (stf.diff(inputs, A, B, every=4).kind, stf.diff(inputs, A, B, every=4).found) == ("input", ["x"])
    assert stf.diff(programs, A, B, every=4).kind == "program"


def test_every_is_a_positive_number():
    with pytest.raises(TypeError, match="every is a number of tasks"):
        stf.diff(steps, A, B, every="4")
    with pytest.raises(ValueError, match="1 looks at each task"):
        stf.diff(steps, A, B, every=0)


def test_tolerances():
    assert stf.diff(steps, A, B, 3, rtol=1e-3) is None
    assert stf.diff(steps, A, B, 3, rtol=1e-9).task == "'bad'"


@pytest.mark.parametrize("is_block", [False, True])
def test_inputs_that_differ_from_the_start(is_block):
    def program(ctx):
        x = ctx.logical_data(np.arange(3.0) + len(ctx.devices), name="x")
        if not is_block:
            shift(x, 1.0)
            return
        with ctx.task(x.rw(), name="shift") as t:
            t.numpy()[0][...] += 1.0

    found = stf.diff(program, A, B)
    assert (found.kind, found.task, found.found) == ("input", "'shift'", ["x"])
    assert "reads what differs already" in repr(found)


def test_programs_that_differ():
    def program(ctx):
        x = ctx.logical_data(np.arange(3.0), name="x")
        shift(x, 1.0)
        if len(ctx.devices) == 2:
            shift(x, 2.0)

    found = stf.diff(program, A, B)
    assert found.kind == "program"
    assert "is the end of the program in one run, and 'shift'" in repr(found)


def test_an_undeclared_access_shows_in_another_order():
    hidden = np.zeros(3)

    def program():
        hidden[...] = 0.0
        with stf.context(devices="cpu") as ctx:
            x = ctx.logical_data(np.zeros(3), name="x")

            @stf.task
            def reads(x: stf.Write):
                x[...] = hidden + (1.0 if stf.config.blocking else 0.0)

            reads(x)

    found = stf.diff(program, {}, {"blocking": True})
    assert (found.kind, found.task) == ("task", "'reads'")


def test_replayed_functions_and_random_numbers():
    def program(ctx):
        rng, x = ctx.random(5), ctx.logical_data_zeros(8, name="x")

        @stf.replay
        def step(x):
            shift(x, 0.5)

        for _ in range(4):
            rng.normal(x)
            step(x)

    assert stf.diff(program, A, B) is None


def test_scalars_of_single_precision():
    def program(ctx):
        s = ctx.logical_data_zeros((), np.float32, name="s")
        shift(s, 1.0 if len(ctx.devices) == 1 else 1.0 + 2.0**-23)

    (one,) = stf.diff(program, A, B).found
    assert (one.position, one.ulp, one.one) == ((), 1.0, 1.0)


def test_nans_agree():
    def program(ctx):
        x = ctx.logical_data(np.array([np.nan, 1.0]), name="x")
        shift(x, 0.0 if len(ctx.devices) == 1 else np.nan)

    (one,) = stf.diff(program, A, B).found
    assert (one.position, one.differing, one.ulp) == ((1,), 1, np.inf)


def one_of(dtype, values):
    """Return a program whose task writes the first value in one run, and the second in the other."""

    def program(ctx):
        x = ctx.logical_data(np.zeros(1, dtype), name="x")

        @stf.task
        def put(x: stf.Write):
            x[...] = values[len(ctx.devices) - 1]

        put(x)

    return program


INF, NAN = float("inf"), float("nan")
TINY = np.finfo(np.longdouble).eps


@pytest.mark.parametrize("options", [{}, {"rtol": 1e-30}, {"rtol": 0.5, "atol": 2.0}], ids=["exact", "close", "far"])
@pytest.mark.parametrize(
    "dtype, values, is_far",
    [
        *((np.int64, (2**62, 2**62 + 1), False), (np.uint64, (2**63, 2**63 + 1), False)),
        *((np.int64, (-(2**63), 2**63 - 1), True), (np.uint64, (0, 2**64 - 1), True), (np.uint8, (0, 255), True)),
        *((np.float64, (INF, -INF), True), (np.float64, (INF, 1.0), True), (np.float32, (NAN, INF), True)),
        *((np.complex128, (complex(NAN, 1), complex(NAN, 2)), True), (np.complex64, (complex(1, INF), 1), True)),
        *((np.longdouble, (np.longdouble(1), 1 + TINY), False), (np.float64, (1e308, -1e308), True)),
        (np.complex128, (complex(1.5e308, 1.5e308), complex(-1.5e308, 1.5e308)), True),
    ],
)
def test_values_are_compared_in_their_own_precision(dtype, values, is_far, options):
    agrees = options.get("atol") == 2.0 and not is_far
    for pair in (values, values[::-1]):
        found = stf.diff(one_of(dtype, pair), A, B, **options)
        assert (found is None) is agrees


def test_tolerances_are_of_the_larger_value():
    for pair in ((1.0, 2.0), (2.0, 1.0)):
        assert stf.diff(one_of(float, pair), A, B, rtol=0.5) is None
        assert stf.diff(one_of(float, pair), A, B, rtol=0.49).found[0].differing == 1


def test_checksums_leave_out_what_is_no_number():
    one, other = np.ones(3, np.longdouble), np.ones(3, np.longdouble)
    if np.finfo(np.longdouble).nmant == 63:
        other.view(np.uint8)[10:16] = 7
    assert comparing.checksum(one) == comparing.checksum(other)


@pytest.mark.parametrize("kinds", [("i4", "f4"), ("f8", "i8")])
def test_results_of_other_types_differ(kinds):
    def program(ctx):
        kind = kinds[len(ctx.devices) - 1]

        @stf.task
        def made(x: stf.Read) -> stf.New:
            return np.zeros(2, kind)

        made(ctx.logical_data(np.ones(1)))

    (one,) = stf.diff(program, A, B).found
    assert (one.one, one.other) == tuple(f"{np.dtype(kind)} (2,)" for kind in kinds)


def test_tasks_that_return_data():
    @stf.task
    def selected(x: stf.Read) -> stf.New:
        return x[x > 1]

    @stf.task
    def more(x: stf.Read, by) -> stf.Like["x"]:  # noqa: F821, UP037
        return x + by

    def program(ctx, by=0.0):
        x = ctx.logical_data(np.arange(4.0), name="x")
        y = more(more(x, 1.0), by * len(ctx.devices))
        selected(y)

    for options in (B, {"devices": "cpu:2", "hostile": 3}, {"devices": "cpu", "validate": True}):
        assert stf.diff(program, A, options) is None
    assert stf.diff(program, A, B, 1.0).task == "'more'"


def test_who_gets_a_context():
    seen = []
    assert stf.diff(lambda anything: seen.append(type(anything)), A, B) is None
    assert stf.diff(lambda c, n: seen.append((type(c), n)), A, B, 3) is None
    assert stf.diff(lambda n: seen.append(n), A, B, 3) is None
    assert stf.diff(lambda n=5: seen.append(n), A, B) is None
    assert seen[::2] == seen[1::2] == [stf.Context, (stf.Context, 3), 3, 5]
    with pytest.raises(TypeError, match=r"it takes 3: c, n, m. Write stf.diff\(program, a, b, n, m\)"):
        stf.diff(lambda c, n, m: None, A, B)


def test_on_this_driver(ctx_factory):
    devices = ctx_factory().devices
    if not devices or "cuda" not in os.environ.get("STF_TEST_DEVICES", ""):
        pytest.skip("no CUDA device")

    def program(ctx):
        x = ctx.logical_data(np.arange(4.0), name="x")
        shift.on("host")(x, 1.0)

    assert stf.diff(program, A, {"devices": "cuda:0"}) is None


def test_mistakes():
    with pytest.raises(TypeError, match="stf.diff runs a function"):
        stf.diff(5, A, B)
    with pytest.raises(TypeError, match="has no option 'device' of a run; it has devices"):
        stf.diff(steps, {"device": "cpu"}, B)
    with pytest.raises(TypeError, match="takes the options of a run as a dict"):
        stf.diff(steps, "cpu", B)


def test_the_command(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        """
import numpy as np, stf

@stf.task
def root(x: stf.ReadWrite, more):
    x[...] = np.sqrt(x) + more

with stf.context() as ctx:
    x = ctx.logical_data(np.arange(4.0), name="x")
    root(x, 0.0)
    root(x, 1e-9 if len(ctx.devices) == 2 else 0.0)
"""
    )

    def run(*options):
        command = [sys.executable, "-m", "stf", "diff", *options, str(script)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert run("--a", "cpu", "--b", "cpu:3", "--seed-hostile", "7").stdout == "no task differs\n"
    found = run("--a", "cpu", "--b", "cpu:2")
    assert found.returncode == 1
    assert "task 'root' (program.py:11), number 1" in found.stdout, found.stdout + found.stderr
    assert run("--a", "cpu", "--record", "kept").returncode == 0
    assert run("--b", "cpu:2", "--against", "kept").stdout == found.stdout
