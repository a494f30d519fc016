"""The backend that stamps the work of tasks: what it marks, what it tells, and when."""

from __future__ import annotations

import numpy as np
import pytest

import stf
from stf._drivers.cpu import CpuDriver
from stf.contexts.context import Context
from stf.devices.spec import parse_devices


class Stamps:
    """Stamps of emulated devices: numbers from 0 on, at ten times that in nanoseconds, once `known` is so far."""

    spans = None

    def __init__(self, devices):
        self.devices = devices
        self.count = self.known = self.collections = 0

    def put(self, stream):
        self.count += 1
        return self.count - 1

    def collect(self):
        self.collections += 1

    def time_ns(self, stamp):
        return 10 * stamp if stamp < self.known else -1


@pytest.fixture
def ctx():
    driver = CpuDriver(2, False, 2)
    driver.stamps = Stamps(2)
    context = Context(parse_devices("cpu:2"), observe="trace", driver=driver)
    yield context
    context.finalize()


def test_tasks_and_copies_are_spans(ctx):
    stamps = ctx._driver.stamps
    x = ctx.logical_data(np.zeros(4), name="x", write_back=False)
    with ctx.task(1, x.rw(), name="first") as t:
        assert stamps.count == 3, "two for the copy, then the task begins"
        t.arrays()
    with ctx.task(1, x.read()):
        pass
    with ctx.task("host", ctx.token().rw()):
        pass
    assert stamps.count == 6
    stamps.known = 5
    assert ctx.engine.port.take() == [((0, "copy x", 2), 1, 1, 0, 10), ((1, "first", 0), 1, 0, 20, 30)]
    assert ctx.engine.port.take() == []
    stamps.known = 6
    assert ctx.engine.port.take() == [((2, "task", 0), 1, 0, 40, 50)]
    collections = stamps.collections
    assert ctx.engine.port.take() == [] and stamps.collections == collections


def test_what_did_not_begin_is_no_span_and_what_failed_is(ctx):
    stamps = ctx._driver.stamps
    x = ctx.logical_data_empty(4)
    with pytest.raises(stf.UninitializedDataError), ctx.task(0, x.read()):
        pass
    assert stamps.count == 0
    with pytest.raises(KeyError), ctx.task(0, x.write(), name="fails"):
        raise KeyError
    x.accept()
    ctx.engine.port.mark(0, (77, "other", 0))
    ctx.engine.port.unmark(78)
    ctx.engine.port.unmark(77)
    with ctx.task(0, x.write(), name="after"):
        pass
    stamps.known = stamps.count
    assert [what[1] for what, *_ in ctx.engine.port.take()] == ["fails", "after"]


def test_a_finalized_context_still_tells(ctx):
    stamps = ctx._driver.stamps
    token = ctx.token()
    with ctx.task(0, token.rw(), name="last"):
        pass
    stamps.known = stamps.count
    ctx.finalize()
    names = [e["name"] for e in ctx.trace()["traceEvents"] if e["ph"] == "X"]
    assert names.count("last") == 2, "by its body on a CPU, and by its stamps"
