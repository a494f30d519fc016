"""Capsules: a task alone, with its inputs, its arguments and its body, run again without the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import stf
from stf import config
from stf.contexts.rerun import rerun

FACTOR = 3.0


def helped(x):
    return FACTOR * x


@stf.task
def scale(a, x: stf.ReadWrite, y: stf.Read, *, shift=0.0):
    x[...] = a * helped(x) + y + shift


@stf.task
def total(parts: stf.Read, s: stf.Write):
    s[...] = sum(part.sum() for part in parts)


@stf.task
def new(x: stf.Read) -> stf.Like["x"]:  # noqa: F821, UP037
    return x + 1.0


@stf.task
def fail(x: stf.ReadWrite, n):
    x[...] = -1.0  # what the capsule has is from before
    raise ValueError(f"no {n}")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "one.stf"


@pytest.fixture
def folder(tmp_path):
    config.capsule = str(tmp_path / "failed")
    yield tmp_path / "failed"
    config.capsule = None


def test_a_function_with_what_it_reads(ctx, path):
    x, y = ctx.logical_data(np.arange(3.0), name="x"), ctx.logical_data(np.ones(3), name="y")
    ctx.capsule(scale, path)
    scale.on("host")(2.0, x, y, shift=0.5)
    scale.on("host")(1.0, x, y)
    assert x.numpy().tolist() == [5.5, 23.5, 41.5]
    for devices in "cpu", "cpu:2":
        assert rerun(path, devices)["x"].tolist() == [1.5, 7.5, 13.5]
    told = json.loads(zipfile.ZipFile(path).read("capsule.json"))
    assert (told["name"], told["kind"], told["modes"]) == ("scale", "function", [3, 1])
    assert "def scale" in zipfile.ZipFile(path).read("body.py").decode()


def test_a_function_defined_in_a_function(ctx, path):
    table, half = np.arange(3.0), lambda v: v / 2

    @stf.task
    def local(x: stf.Write, label: str):
        x[...] = half(table) if label == "half" else table

    ctx.capsule("renamed", path)
    local.named("renamed").on("host")(ctx.logical_data_empty(3, name="x"), "half")
    assert rerun(path, "cpu")["x"].tolist() == [0.0, 0.5, 1.0]


def test_containers_results_and_tokens(ctx, path):
    parts = [ctx.logical_data(np.ones(2)), ctx.logical_data(np.ones((2, 2), order="F"))]
    s = ctx.logical_data_zeros((), name="s")
    ctx.capsule(total, path)
    total.on("host")(parts, s)
    assert rerun(path, "cpu")["s"] == 6.0
    ctx.capsule(new, path)
    new.on("host")(parts[0])
    assert [one.tolist() for one in rerun(path, "cpu").values()] == [[2.0, 2.0]]
    ctx.capsule("order", path)
    token = ctx.token()
    ctx.host_launch(token.rw(), parts[0].rw(), args=(4.0,), name="order")(lambda x, a: x.fill(a))
    assert [one.tolist() for one in rerun(path, "cpu").values()] == [[4.0, 4.0]]
    ctx.capsule("block", path)
    ctx.task("host", parts[0].rw(), name="block")(lambda x: x.__iadd__(1.0))
    assert [one.tolist() for one in rerun(path, "cpu").values()] == [[5.0, 5.0]]


def test_kernels(ctx, path, loop):
    pytest.importorskip("numba")
    x, s = ctx.logical_data(np.arange(4.0), name="x"), ctx.logical_data_zeros((), name="s")
    ctx.capsule("body", path)
    offset = 10.0

    def body(i, x, a):
        x[i] = a * x[i] + offset
        return x[i]

    loop(x.shape, x.rw(), s.reduce(stf.reducer.sum), args=(2.0,))(body)
    found = rerun(path, "cpu")
    assert (found["x"].tolist(), float(found["s"])) == ([10.0, 12.0, 14.0, 16.0], 52.0)
    assert x.numpy().tolist() == found["x"].tolist()


def test_threads(ctx, path, threads):
    pytest.importorskip("numba")
    x = ctx.logical_data(np.arange(4.0), name="x")

    def body(th, x):
        for i in range(th.rank(), x.size, th.size()):
            x[i] += 1.0

    ctx.capsule(body, path)
    threads(stf.par(2, stf.con(2)), x.rw())(body)
    assert rerun(path, "cpu")["x"].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_task_that_fails_is_saved_with_what_it_got(folder):
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.arange(3.0), name="x")
        fail(x, 5)
        with pytest.raises(stf.TaskFailedError) as told:
            x.numpy()
        x.accept()
        for _ in range(2):  # the first of each line alone
            fail(x, 6)
        with pytest.raises(stf.TaskFailedError):
            x.numpy()
        x.accept()
    (note,) = told.value.__cause__.__notes__
    found = note.rpartition(" ")[2]
    assert note.startswith("the task is saved, to be run alone: python -m stf rerun")
    with pytest.raises(stf.TaskFailedError, match="no 5"):
        rerun(found, "cpu")
    raw = np.frombuffer(zipfile.ZipFile(found).read("array0.bin"))
    assert raw.tolist() == [0.0, 1.0, 2.0]
    assert len(list(folder.iterdir())) == 2  # two lines


def test_a_nan_is_a_failure(folder):
    with stf.context(devices="cpu", nan="error") as ctx:
        x = ctx.logical_data(np.zeros(2), name="x")

        @stf.task
        def bad(x: stf.ReadWrite):
            x[1] = np.inf

        bad(x)
        with pytest.raises(stf.TaskFailedError, match="wrote inf at 1"):
            x.numpy()
        x.accept()
    (one,) = folder.iterdir()
    assert rerun(one, "cpu")["x"].tolist() == [0.0, np.inf]


def test_what_cannot_be_saved_is_named(ctx, path):
    x = ctx.logical_data(np.ones(2), name="x")

    @stf.task
    def holds(x: stf.Read, lock):
        assert lock is not None

    import threading

    ctx.capsule(holds, path)
    with pytest.raises(TypeError, match="'argument lock' of task 'holds' cannot be saved in a capsule"):
        holds.on("host")(x, threading.Lock())
    assert not path.exists()
    ctx.capsule("block", path)
    with pytest.raises(TypeError, match="is a with-block or launches of compiled kernels, which no capsule can hold"):
        with ctx.task("host", x.read(), name="block"):
            pass
    with pytest.raises(TypeError, match="got the handle"):
        ctx.capsule(scale.on("host")(1.0, x, ctx.logical_data_ones(2)), path)
    with pytest.raises(TypeError, match="takes a task function, the body of a kernel or the name"):
        ctx.capsule(5, path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        ctx.capsule(scale, path / "deeper" / "x.stf")


def test_a_class_of_the_script_needs_cloudpickle(run_python, tmp_path):
    code = """
        class Settings:
            a = 2.0

        @stf.task
        def scale(s, x: stf.ReadWrite):
            x *= s.a

        with stf.context(devices="cpu") as ctx:
            x = ctx.logical_data(np.ones(2), name="x")
            ctx.capsule(scale, "one.stf")
            try:
                scale(Settings(), x)
            except TypeError as error:
                print(error)
    """
    found = run_python(code)
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        assert "'argument s' of task 'scale' cannot be saved" in found.stdout
        assert "the class Settings is defined in the program itself" in found.stdout
    else:
        assert found.stdout == ""


def test_a_task_that_never_comes_is_told(path, caplog):
    with stf.context(devices="cpu") as ctx:
        ctx.capsule("nobody", path)
    assert "no task 'nobody' was submitted" in caplog.text


def test_the_next_call_is_saved_where_tasks_are_held(path):
    """It is neither one that is held when the capsule is asked for, nor one that is planned before it."""
    with stf.context(devices="cpu:2", placement=stf.placement.planned()) as ctx:
        x, y = ctx.logical_data(np.zeros(1), name="x"), ctx.logical_data(np.zeros(1000), name="y")
        one = ctx.logical_data(np.ones(1), name="one")
        scale(1.0, x, one), scale(2.0, x, one)
        ctx.capsule(scale, path)
        scale(3.0, x, one)
        for _ in range(3):
            scale(4.0, y, one)
        assert x.numpy() == 64.0
    assert rerun(path, "cpu")["x"].tolist() == [64.0]


def test_recorded_tasks_have_no_inputs_yet(ctx, path):
    x, y = ctx.logical_data(np.ones(3), name="x"), ctx.logical_data(np.ones(3), name="y")
    ctx.capsule(scale, path)
    g = ctx.task_graph()
    with pytest.raises(stf.CaptureError, match="is recorded, and has no inputs yet"):
        with g:
            scale.on("host")(2.0, x, y)


def test_other_versions(ctx, path):
    x, y = ctx.logical_data(np.ones(3), name="x"), ctx.logical_data(np.ones(3), name="y")
    ctx.capsule(scale, path)
    scale.on("host")(2.0, x, y)

    def changed(**fields):
        other = path.with_name("other.stf")
        with zipfile.ZipFile(path) as one, zipfile.ZipFile(other, "w") as two:
            for name in one.namelist():
                blob = one.read(name)
                two.writestr(name, json.dumps(json.loads(blob) | fields) if name == "capsule.json" else blob)
        return other

    with pytest.raises(ValueError, match=r"was written by stf 0.1, in format 0, and this is stf .* reads format 2"):
        rerun(changed(format=0, stf="0.1"), "cpu")
    with pytest.raises(ValueError, match=r"was written with Python 2.7, whose code Python 3\.\d+ cannot read"):
        rerun(changed(python="2.7"), "cpu")
    path.write_text("no archive")
    with pytest.raises(ValueError, match="is no capsule"):
        rerun(path, "cpu")


def test_the_command_needs_no_program(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        """
import numpy as np, stf

SHIFT = 1.5

class Settings:
    pass

@stf.task
def step(x: stf.ReadWrite, y: stf.Write, n):
    y[...] = x[n] + SHIFT

if __name__ == "__main__":
    with stf.context(devices="cpu") as ctx:
        x, y = ctx.logical_data(np.arange(3.0), name="x"), ctx.logical_data(np.zeros(3), name="y")
        step(x, y, 1)
        step(x, y, 7)
        try:
            y.numpy()
        except stf.TaskFailedError:
            y.accept(), x.accept()
"""
    )
    environment = {**os.environ, "STF_CAPSULE": str(tmp_path / "failed")}
    subprocess.run([sys.executable, str(script)], env=environment, check=True, cwd=tmp_path)
    script.unlink()
    (one,) = (tmp_path / "failed").iterdir()
    command = [sys.executable, "-m", "stf", "rerun", str(one), "--devices", "cpu"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 1
    assert "task 'step'" in found.stdout
    assert "IndexError: index 7 is out of bounds" in found.stderr
    found = subprocess.run([*command, "--pdb"], capture_output=True, text=True, input="p n\nq\n", cwd=tmp_path)
    assert "(Pdb) 7" in found.stdout
    missing = subprocess.run([*command[:4], "nothing.stf"], capture_output=True, text=True, cwd=tmp_path)
    assert missing.returncode == 2
