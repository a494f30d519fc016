"""Watches of bodies (STF_VALIDATE, STF_NAN, capsules) and tasks that return data, whose memory comes with the body."""

from __future__ import annotations

import numpy as np
import pytest

import stf
from stf import config
from stf.contexts.rerun import rerun


@stf.task
def more(x: stf.Read) -> stf.Like["x"]:  # noqa: F821, UP037
    return x + 1


@stf.task
def selected(x: stf.Read) -> stf.New:
    return x[x > 1] / 2


@stf.task
def both(x: stf.Read) -> tuple[stf.New, stf.Like["x"]]:  # noqa: F821, UP037
    return x[x > 2], 2 * x


@stf.task
def columns(x: stf.Read) -> stf.New[lambda x: (2, x.shape[0])]:
    return np.array([x, x])


@stf.task
def double(x: stf.ReadWrite):
    x *= 2


@stf.task
def inverted(x: stf.Read) -> tuple[stf.New, stf.Like["x"]]:  # noqa: F821, UP037
    with np.errstate(all="ignore"):
        return x, 1 / x


@stf.task
def spoilt(x: stf.Read) -> stf.New:
    x.flags.writeable = True
    x[0] = 5
    return x * 1


@stf.task
def fails(x: stf.Read) -> stf.New:
    raise ValueError(f"{len(x)} values")


@pytest.fixture(params=["validate", "nan", "both"])
def options(request, monkeypatch):
    monkeypatch.setattr(config, "validate", request.param != "nan")
    return {} if request.param == "validate" else {"nan": "error"}


@pytest.mark.parametrize("devices", ["cpu", "cpu:2"])
def test_results_are_what_they_are(options, devices):
    with stf.context(devices=devices, **options) as ctx:
        x = ctx.logical_data(np.arange(4.0), name="x")
        y = more(x)
        small = selected(y)
        some, twice = both(y)
        double(small)
        double(twice)
        wide = columns(twice)
        assert small.numpy().tolist() == [2, 3, 4]
        assert some.numpy().tolist() == [3, 4]
        assert wide.numpy().tolist() == [[4, 8, 12, 16]] * 2


@pytest.mark.parametrize("devices", ["cpu", "cpu:2"])
def test_values_that_are_not_finite_are_seen(devices):
    with stf.context(devices=devices, nan="error") as ctx:
        some, inverse = inverted(more(ctx.logical_data(np.array([1.0, -1.0]))))
        with pytest.raises(stf.TaskFailedError, match=r"'inverted'.* wrote inf at 1 in .* the first of 1 values"):
            inverse.numpy()
        some.accept()
        inverse.accept()
        found = selected(ctx.logical_data(np.array([3, 4])))  # of integers
        assert found.numpy().tolist() == [1.5, 2.0]


@pytest.mark.parametrize("devices", ["cpu", "cpu:2"])
def test_what_is_only_read_must_not_change(monkeypatch, devices):
    monkeypatch.setattr(config, "validate", True)
    with stf.context(devices=devices) as ctx:
        y = more(ctx.logical_data(np.ones(3)))
        z = spoilt(y)
        with pytest.raises(stf.TaskFailedError, match=r"'spoilt' changed .*written by task 'more'.* only for reading"):
            z.numpy()
        z.accept()


@pytest.mark.parametrize("task, count", [(more, 1), (selected, 1), (both, 2), (columns, 1)])
@pytest.mark.parametrize("is_made", [False, True], ids=["registered", "returned"])
def test_capsules(tmp_path, task, count, is_made):
    path = tmp_path / "one.stf"
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.arange(4.0))
        x = selected(more(x)) if is_made else x
        assert x.shape == ((3,) if is_made else (4,))
        ctx.capsule(task, path)
        made = task(x)
        wanted = [one.numpy() for one in (made if count > 1 else [made])]
    found = list(rerun(path, "cpu").values())
    assert len(found) == count
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and one.tolist() == other.tolist()


def test_capsules_of_tasks_that_fail(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "capsule", str(tmp_path))
    with stf.context(devices="cpu") as ctx:
        made = fails(selected(more(ctx.logical_data(np.arange(4.0)))))
        with pytest.raises(stf.TaskFailedError, match="3 values"):
            made.numpy()
        made.accept()
    (one,) = tmp_path.iterdir()
    with pytest.raises(stf.TaskFailedError, match="3 values"):
        rerun(one, "cpu")
