"""Checkpoints: whole or absent, of one point of the program, and the same bits in another context."""

from __future__ import annotations

import json
import os
import threading

import numpy as np
import pytest
from helpers import together

import stf
from stf.data import checkpoint_files
from stf.errors import AccessError, TaskFailedError, TaskStateError, UninitializedDataError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "state"


def files_of(path):
    return sorted(file for file in os.listdir(path) if file != "index.json")


def host_add(ctx, x, amount=1.0):
    def body(a):
        a += amount

    ctx.host_launch(x.rw())(body)


def test_another_context_gets_the_same_bits(ctx_factory, path):
    X = np.array([[0.1, -0.0, np.nan], [np.inf, 1e-310, 3.0]])
    ctx = ctx_factory()
    x, n = ctx.logical_data(X.copy(), name="x"), ctx.logical_data(np.array(7, np.int32), name="n")
    ctx.checkpoint(path, extra={"step": 42, "noise": ctx.random(3).state, "none": None, "inf": float("inf")})
    ctx.fill(x, 0.0)
    ctx.finalize()

    other = ctx_factory()
    data, extra = other.restore(path)
    assert list(data) == ["x", "n"] and data["x"].name == "x"
    assert data["x"].numpy().tobytes() == X.tobytes()
    assert data["n"].numpy() == 7 and data["n"].dtype == np.int32 and data["n"].shape == ()
    assert extra["step"] == 42 and extra["none"] is None and extra["inf"] == float("inf")
    other.random(3).state = extra["noise"]
    host_add(other, data["x"])
    assert data["x"].numpy()[1, 2] == 4.0
    del n


def test_the_content_is_that_of_the_call(ctx, path):
    x = ctx.logical_data(np.zeros(1000), name="x")
    host_add(ctx, x)
    saved = ctx.checkpoint(path, wait=False)
    for _ in range(3):
        host_add(ctx, x)
    saved.result()
    assert x.numpy()[0] == 4.0
    assert ctx.restore(path)[0]["x"].numpy().tolist() == [1.0] * 1000


def test_writers_wait_for_their_copy_and_not_for_the_disk(ctx_factory, path, monkeypatch):
    """The disk is held up until a task has written the data again."""
    ctx = ctx_factory(workers=4)
    written = threading.Event()
    to_disk = checkpoint_files.to_disk

    def wait_first(file):
        assert written.wait(60)
        to_disk(file)

    monkeypatch.setattr(checkpoint_files, "to_disk", wait_first)
    x = ctx.logical_data(np.zeros(3), name="x")
    saved = ctx.checkpoint(path, wait=False)
    if ctx.engine.gathering is None:  # what is gathered is launched as a whole
        host_add(ctx, x)
        assert x.numpy().tolist() == [1.0, 1.0, 1.0]
        assert not saved.done() and "being written" in repr(saved)
    written.set()
    saved.result(timeout=60)
    assert saved.done() and ctx.restore(path)[0]["x"].numpy().tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("where", ["array", "index", "rename"])
def test_who_stops_in_the_middle_keeps_the_one_before(ctx, path, monkeypatch, where):
    x, y = ctx.logical_data(np.zeros(3), name="x"), ctx.logical_data(np.zeros(3), name="y")
    ctx.checkpoint(path, extra=1)
    before = files_of(path)
    host_add(ctx, x)

    def stop(*args, **options):
        raise OSError("the disk is full")

    if where == "rename":
        monkeypatch.setattr("os.replace", stop)
    elif where == "array":
        monkeypatch.setattr(np.lib.format, "write_array", stop)
    else:
        monkeypatch.setattr(checkpoint_files.json, "dump", stop)
    with pytest.raises(TaskFailedError, match="the disk is full"):
        ctx.checkpoint(path, extra=2)
    monkeypatch.undo()
    assert set(before) <= set(files_of(path))
    data, extra = ctx.restore(path)
    assert extra == 1 and data["x"].numpy().tolist() == [0.0] * 3 and data["y"].numpy().tolist() == [0.0] * 3
    ctx.checkpoint(path, {"x": x, "y": y}, extra=3)
    assert len(files_of(path)) == 2  # nothing of the others is left
    assert ctx.restore(path, data=x)[1] == 3 and x.numpy().tolist() == [1.0] * 3


def test_the_first_one_that_fails_leaves_none(ctx, path, monkeypatch):
    x = ctx.logical_data(np.zeros(3), name="x")

    def stop(*args, **options):
        raise OSError("the disk is full")

    monkeypatch.setattr(checkpoint_files.json, "dump", stop)
    saved = ctx.checkpoint(path, x, wait=False)
    with pytest.raises(TaskFailedError, match="the disk is full"):
        ctx.synchronize()  # who drops the handle is told, too
    assert saved.done()
    with pytest.raises(TaskFailedError):
        saved.result()
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        ctx.restore(path)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        ctx.restore(path.parent, latest=True)


def test_poisoned_data_are_refused_by_name(ctx, path):
    x, y = ctx.logical_data(np.zeros(3), name="x"), ctx.logical_data(np.zeros(3), name="y")
    ctx.checkpoint(path, extra=1)

    def fail(a):
        raise ZeroDivisionError("no luck")

    begin = threading.Event()
    ctx.host_launch(x.rw())(lambda a: begin.wait(60) and None)
    ctx.host_launch(x.rw(), name="fail")(fail)
    if ctx.engine.gathering is None:  # nobody knows yet that it fails
        saved = ctx.checkpoint(path, wait=False)
        begin.set()
        with pytest.raises(TaskFailedError, match=r"checkpoint of .*logical data 'x', which is poisoned: task 'fail'"):
            saved.result()
    begin.set()
    with pytest.raises(TaskFailedError, match="'x'.*no luck"):
        ctx.checkpoint(path)  # now it is known
    ctx.fence().synchronize()
    with pytest.raises(TaskFailedError, match="'x'.*no luck"):
        ctx.checkpoint(path)
    ctx.checkpoint(path, y, extra=2)
    ctx.checkpoint(path.parent / "two", {"x": x.accept()}, extra=3)
    _, extra = ctx.restore(path)
    assert extra == 2


def test_a_restore_makes_poisoned_data_good(ctx, path):
    x = ctx.logical_data(np.full(3, 5.0), name="x")
    ctx.checkpoint(path, x)

    def fail(a):
        a[:] = -1.0
        raise ZeroDivisionError

    ctx.host_launch(x.rw())(fail)
    with pytest.raises(TaskFailedError):
        x.numpy()
    ctx.restore(path, data=x)
    assert x.numpy().tolist() == [5.0] * 3


def test_your_arrays_are_restored_in_place(ctx_factory, path):
    X, Y = np.arange(3.0), np.ones((2, 2))
    ctx = ctx_factory()
    x, y = ctx.logical_data(X, name="x"), ctx.logical_data(Y, name="y")
    ctx.checkpoint(path, {"state": x, "other": y})
    host_add(ctx, x, 10.0)
    host_add(ctx, y, 10.0)
    data, _ = ctx.restore(path, data={"state": x})
    assert data["state"] is x
    ctx.finalize()
    assert X.tolist() == [0.0, 1.0, 2.0] and Y.tolist() == [[11.0, 11.0], [11.0, 11.0]]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "complex64", "bool", "M8[s]", "S5", ">f4"])
def test_dtypes(ctx, path, dtype):
    kind = stf.interop.dtypes.dtype_of(dtype)
    content = np.arange(24 * kind.itemsize, dtype=np.uint8).reshape(2, 3, -1) % 2
    X = np.ascontiguousarray(np.tile(content, (1, 1, 1))).view(kind).copy()
    x = ctx.logical_data(X.copy(), name="x")
    ctx.checkpoint(path)
    data, _ = ctx.restore(path)
    assert data["x"].dtype == kind and data["x"].numpy().tobytes() == X.tobytes()
    ctx.restore(path, data=x)
    assert x.numpy().tobytes() == X.tobytes()


def test_structures_empty_arrays_and_orders(ctx, path):
    pair = np.dtype([("a", "i4"), ("b", "f8", 2)], align=True)
    arrays = {
        "pairs": np.ones(3, pair),
        "none": np.zeros((0, 3)),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "steps": np.arange(12.0)[::2],
        "größe/../x": np.zeros(()),  # no name of a file
    }
    data = {name: ctx.logical_data(array.copy(order="K")) for name, array in arrays.items()}
    ctx.checkpoint(path, data)
    found, _ = ctx.restore(path)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert np.array_equal(np.asarray(found[name].numpy()), array)
    assert found["columns"].strides == (8, 16)
    assert len(files_of(path)) == 5 and os.listdir(path.parent) == ["state"]


def test_numpy_reads_the_files(ctx, path):
    x = ctx.logical_data(np.arange(3.0), name="x")
    ctx.checkpoint(path)
    index = json.loads((path / "index.json").read_text())
    assert index["data"][0]["shape"] == [3] and index["data"][0]["dtype"] == "<f8"
    assert np.load(path / index["data"][0]["file"]).tolist() == x.numpy().tolist()


def test_the_newest(ctx, path):
    x = ctx.logical_data(np.zeros(3), name="x")
    for name, step in (("b", 1), ("c", 2), ("a", 3)):
        ctx.checkpoint(path / name, extra=step, wait=False)
        host_add(ctx, x)
    data, step = ctx.restore(path, latest=True)  # waits for those that are being written
    assert step == 3 and data["x"].numpy().tolist() == [2.0] * 3
    (path / "a" / "index.json").unlink()
    assert ctx.restore(path, latest=True)[1] == 2
    (path / "b" / "index.json").write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        ctx.restore(path, latest=True)


def test_many_in_one_folder_follow_each_other(ctx, path):
    x = ctx.logical_data(np.zeros(3), name="x")
    for step in range(5):
        ctx.checkpoint(path, extra=step, wait=False)
        host_add(ctx, x)
    data, step = ctx.restore(path)
    assert step == 4 and data["x"].numpy().tolist() == [4.0] * 3
    assert len(files_of(path)) == 1


@pytest.mark.parametrize("name", ["index.json", "array"])
def test_each_damaged_byte_is_found(ctx, path, name):
    x = ctx.logical_data(np.arange(3.0), name="x")
    ctx.checkpoint(path, extra={"step": 1234})
    file = path / (name if name == "index.json" else files_of(path)[0])
    whole = file.read_bytes()
    for i in range(0, len(whole), 7):
        file.write_bytes(whole[:i] + bytes([whole[i] ^ 2]) + whole[i + 1 :])
        try:
            _, extra = ctx.restore(path, data=x)
        except ValueError as error:
            assert "damaged" in str(error)
        else:
            assert extra == {"step": 1234} and x.numpy().tolist() == [0.0, 1.0, 2.0]  # white space
    file.write_bytes(whole[:-3])
    with pytest.raises(ValueError, match="damaged"):
        ctx.restore(path)
    if name == "array":
        file.unlink()
        with pytest.raises(ValueError, match=r"damaged.*'x' is missing"):
            ctx.restore(path)


def test_a_damaged_file_changes_nothing(ctx, path):
    x, y = ctx.logical_data(np.zeros(3), name="x"), ctx.logical_data(np.zeros(3), name="y")
    ctx.checkpoint(path)
    host_add(ctx, x)
    file = path / files_of(path)[1]
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(ValueError, match=r"damaged.*'y'"):
        ctx.restore(path, data=[x, y])
    assert x.numpy().tolist() == [1.0] * 3


def test_what_does_not_fit_is_refused(ctx, path):
    x = ctx.logical_data(np.zeros(3), name="x")
    ctx.checkpoint(path)
    with pytest.raises(ValueError, match=r"float64 of shape \(3,\)"):
        ctx.restore(path, data={"x": ctx.logical_data_zeros(4)})
    with pytest.raises(ValueError, match="float32"):
        ctx.restore(path, data={"x": ctx.logical_data_zeros(3, np.float32)})
    with pytest.raises(ValueError, match=r"no data \['y'\], but \['x'\]"):
        ctx.restore(path, data={"y": x})
    with pytest.raises(AccessError):
        ctx.restore(path, data={"x": ctx.logical_data(np.zeros(3), readonly=True)})
    with pytest.raises(FileNotFoundError, match="latest=True"):
        ctx.restore(path.parent)
    with pytest.raises(TypeError, match="register it first"):
        ctx.restore(path, data={"x": np.zeros(3)})


def test_data_that_are_refused(ctx, path):
    x, unnamed = ctx.logical_data(np.zeros(3), name="x"), ctx.logical_data_zeros(3)
    for bad, kind, text in (
        ([unnamed], ValueError, "has none"),
        ([x, ctx.logical_data_ones(3, name="x")], ValueError, "two data of the name 'x'"),
        ({"t": ctx.token()}, TypeError, "token"),
        ({"x": 3}, TypeError, "logical data"),
        ({}, ValueError, "no data"),
        ({"e": ctx.logical_data_empty(3)}, UninitializedDataError, "before"),
    ):
        with pytest.raises(kind, match=text):
            ctx.checkpoint(path, bad)
    assert not path.exists() or files_of(path) == []
    path.parent.mkdir(exist_ok=True)
    file = path.parent / "file"
    file.write_text("")
    with pytest.raises(NotADirectoryError, match="another path"):
        ctx.checkpoint(file, x)
    with ctx.task_graph(), pytest.raises(TaskStateError):
        ctx.checkpoint(path, x)
    tiles = x.tiles(2)
    with pytest.raises(AccessError, match="tiles"):
        ctx.checkpoint(path, x)
    del tiles


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, np.int64(3), np.float64(3), np.zeros(2), {"a": [b"x"]}, 1j, {2}])
def test_extra_comes_back_as_it_was_or_is_refused(ctx, path, value):
    x = ctx.logical_data(np.zeros(3), name="x")
    with pytest.raises(TypeError, match="JSON"):
        ctx.checkpoint(path, x, extra={"value": value})
    given = {"list": [1, [2.5, "ü", True, None]], "big": 2**200, "": {}}
    ctx.checkpoint(path, x, extra=given)
    given["list"].append("later")
    assert ctx.restore(path)[1] == {"list": [1, [2.5, "ü", True, None]], "big": 2**200, "": {}}


def test_all_data_with_names(ctx, path):
    x, y = ctx.logical_data(np.zeros(4), name="x"), ctx.logical_data_ones(3, name="y")
    others = ctx.token(name="order"), ctx.logical_data_zeros(2)
    gone = ctx.logical_data_zeros(3, name="gone")
    del gone
    ctx.checkpoint(path)
    ctx.checkpoint(path)  # the handles of the first did not give the data up
    assert list(ctx.restore(path)[0]) == ["x", "y"]
    host_add(ctx, y)
    assert y.numpy().tolist() == [2.0] * 3
    del others, x


def test_partitioned_data(ctx, path):
    place = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
    x = ctx.logical_data(np.arange(6.0), data_place=place, name="x")
    host_add(ctx, x.parts[0])
    expected = x.numpy().tolist()
    ctx.checkpoint(path)
    assert list(ctx.restore(path)[0]) == ["x"]
    host_add(ctx, x.parts[0], 100.0)
    ctx.restore(path, data=x)
    assert x.numpy().tolist() == expected
    assert x.parts[0].numpy().tolist() == expected[: x.parts[0].size]


def test_data_made_of_several_arrays_are_refused(ctx, path):
    scipy = pytest.importorskip("scipy.sparse")
    stf.register_data_interface(
        scipy.csr_array,
        flatten=lambda m: (m.data, m.indices, m.indptr),
        unflatten=lambda m, parts: scipy.csr_array(tuple(parts), shape=m.shape),
    )
    a = ctx.logical_data(scipy.eye_array(3, format="csr"), name="A")
    with pytest.raises(TypeError, match="made of several"):
        ctx.checkpoint(path, {"A": a})
    with pytest.raises(TypeError, match="made of several"):
        ctx.restore(path, data={"A": a})


def test_inside_of_a_body(ctx, path):
    x = ctx.logical_data(np.zeros(3), name="x")
    with ctx.task(x.read()), pytest.raises(TaskStateError, match="checkpoint"):
        ctx.checkpoint(path, x)


def test_threads_that_write_to_one_folder(ctx_factory, path):
    """One of them is there in the end, and whole."""
    contexts = [ctx_factory() for _ in range(3)]

    def write(number):
        ctx = contexts[number]
        x = ctx.logical_data(np.full(1000, float(number)), name="x")
        for _ in range(4):
            ctx.checkpoint(path, x, extra=number)

    together(*[lambda number=number: write(number) for number in range(3)])
    data, number = contexts[0].restore(path)
    assert data["x"].numpy().tolist() == [float(number)] * 1000


def test_another_folder_of_the_process_changes_nothing(ctx, tmp_path, monkeypatch):
    x, go = ctx.logical_data(np.zeros(3), name="x"), threading.Event()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    ctx.host_launch(x.rw())(lambda a: go.wait(60) and None)
    saved = ctx.checkpoint("state", wait=False)
    monkeypatch.chdir(tmp_path / "elsewhere")
    go.set()
    saved.result()
    assert os.listdir(tmp_path / "elsewhere") == [] and (tmp_path / "state" / "index.json").exists()


@pytest.mark.at_once("the body runs when the exception comes")
def test_an_exception_that_leaves_the_context_cancels_it(ctx_factory, path):
    pause = threading.Event()
    with pytest.raises(KeyError), ctx_factory() as ctx:

        def wait_for_the_end(a):
            for _ in range(10_000):
                if ctx.engine.cancelled is None:
                    pause.wait(0.001)

        x = ctx.logical_data(np.zeros(3), name="x")
        ctx.host_launch(x.rw())(wait_for_the_end)
        saved = ctx.checkpoint(path, wait=False)
        raise KeyError
    with pytest.raises(TaskFailedError, match="cancelled"):
        saved.result()
    assert not path.exists()


def test_a_plan_writes_nothing(tmp_path):
    def program(ctx):
        x = ctx.logical_data_zeros(3, name="x")
        ctx.checkpoint(tmp_path / "state", x)

    stf.plan(program, devices="1xH200")
    assert os.listdir(tmp_path) == []
