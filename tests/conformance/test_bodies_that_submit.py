"""Bodies that submit tasks on data that they are given for that: `stf.Data`."""

import threading

import numpy as np
import pytest

import stf


@stf.task
def add(x: stf.ReadWrite, n):
    x += n


@stf.task
def spread(x: stf.Data, depth):
    add(x, 1)
    if depth:
        for _ in range(2):
            spread.on("host")(x, depth - 1)


def test_a_tree_of_tasks(ctx):
    x = ctx.logical_data(np.zeros(2), write_back=False)
    spread.on("host")(x, 6)
    np.testing.assert_array_equal(x.numpy(), 2**7 - 1)


def test_a_wait_comes_after_what_a_body_submits(ctx):
    latch = threading.Event()

    @stf.task
    def late(x: stf.Data, y: stf.Data):
        latch.wait(60)
        add(x, 1)
        late_child.on("host")({"y": [y]})

    @stf.task
    def late_child(found: stf.Data):
        add(found["y"][0], 2)

    x, y, z = (ctx.logical_data(np.zeros(2), write_back=False) for _ in range(3))
    handle = late.on("host")(x, y)
    add(z, 3)
    np.testing.assert_array_equal(z.numpy(), 3)  # whom nobody was given
    assert not handle.done()
    threading.Timer(0.05, latch.set).start()
    found = ctx.wait({"x": x, "y": y})
    np.testing.assert_array_equal(found["x"], 1)
    np.testing.assert_array_equal(found["y"], 2)


def test_it_is_no_access():
    """The task waits for nobody who uses the data, and they do not wait for it."""
    latch = threading.Event()

    @stf.task
    def submits(x: stf.Data):
        latch.wait(60)
        add(x, 1)

    with stf.context(devices="cpu", workers=2) as ctx:
        x = ctx.logical_data(np.zeros(2), write_back=False)
        submits(x)
        add(x, 10).result(timeout=60)  # before what the body submits
        latch.set()
        np.testing.assert_array_equal(x.numpy(), 11)


def test_the_rule_of_order():
    """What the body submits comes after what was submitted by then, and before what comes after its end."""
    seen = []

    @stf.task
    def note(x: stf.ReadWrite, what):
        seen.append(what)

    @stf.task
    def submits(go: stf.Read, x: stf.Data):
        for i in range(3):
            note(x, i)

    with stf.context(devices="cpu", workers=2) as ctx:
        x, go = ctx.token(), ctx.logical_data(np.zeros(1))
        note(x, "before")
        submits(go, x).result()
        note(x, "after")
    assert seen == ["before", 0, 1, 2, "after"]


def test_an_adaptive_tree(ctx):
    """Intervals are halved until the midpoint rule is good enough; each adds its part to one sum."""

    @stf.task
    def put(total: stf.ReadWrite, value):
        total += value

    @stf.task
    def integrate(low, high, total: stf.Data):
        middle, width = (low + high) / 2, high - low
        whole, halves = width * middle**2, width / 2 * (((low + middle) / 2) ** 2 + ((middle + high) / 2) ** 2)
        if abs(whole - halves) < 1e-7:
            put(total, halves)
        else:
            integrate.on("host")(low, middle, total)
            integrate.on("host")(middle, high, total)

    total = ctx.logical_data(np.zeros(()), write_back=False)
    integrate.on("host")(0.0, 1.0, total)
    assert abs(float(total) - 1 / 3) < 1e-4


def test_new_data_of_a_body_that_submits(ctx):
    @stf.task
    def double(a: stf.Read) -> stf.Like["a"]:  # noqa: F821
        return 2 * a

    @stf.task
    def chain(x: stf.Data, out: stf.Data):
        ctx.copy(double(double(x)), out)

    x, out = ctx.logical_data(np.ones(3)), ctx.logical_data(np.zeros(3), write_back=False)
    chain.on("host")(x, out)
    np.testing.assert_array_equal(out.numpy(), 4.0)


def test_a_body_that_waits_is_refused():
    @stf.task
    def waits(x: stf.Data):
        x.numpy()

    with stf.context(devices="cpu", workers=1) as ctx:
        x = ctx.logical_data(np.zeros(2), write_back=False)
        with pytest.raises(stf.TaskFailedError, match="wait inside the body of a task"):
            waits(x).result()


def test_what_a_failed_body_has_submitted_runs():
    @stf.task
    def fails(x: stf.Data):
        add(x, 1)
        raise ValueError("on purpose")

    with stf.context(devices="cpu:2") as ctx:
        x = ctx.logical_data(np.zeros(2), write_back=False)
        fails.on("host")(x)
        with pytest.raises(stf.TaskFailedError, match="on purpose"):
            x.numpy()
        np.testing.assert_array_equal(x.numpy(), 1)


def test_where_such_a_task_cannot_run(ctx):
    x = ctx.logical_data(np.zeros(2), write_back=False)
    graph = ctx.task_graph()
    with pytest.raises(stf.CaptureError, match=r"'spread'.*stf\.Data.*submit it outside"), graph:
        add(x, 1)
        spread.on("host")(x, 0)
    if ctx.on_cuda:
        with pytest.raises(TypeError, match=r"runs on the host; call it with \.on\('host'\)"):
            spread.on(0)(x, 0)


def test_data_in_a_plain_parameter_say_what_to_write(ctx):
    @stf.task
    def plain(x: stf.Read, other):
        pass

    x = ctx.logical_data(np.zeros(2))
    with pytest.raises(TypeError, match=r"stf\.Data, if the body is to submit tasks with it"):
        plain(x, x)
