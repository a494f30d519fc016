"""Bodies that submit tasks on data that they are given for that: `stf.Data`."""

import asyncio
import concurrent.futures
import functools
import threading

import numpy as np
import pytest
from helpers import runs_kernels

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


# -- who reads comes after what bodies submit ----------------------------------------------------------------------------


class Late:
    """A body that submits `add` on data, some time after who reads them has begun to wait."""

    def __init__(self):
        self.latch = threading.Event()

    def submit(self, *data):
        """Submit the body; it goes on a moment later."""
        latch = self.latch

        @stf.task
        def late(found: stf.Data):
            latch.wait(60)
            for x in found:
                add(x, 1)

        handle = late.on("host")(list(data))
        threading.Timer(0.05, latch.set).start()
        return handle


@pytest.fixture
def late():
    return Late()


def zeros(ctx, **others):
    return ctx.logical_data(np.zeros(4), write_back=False, **others)


def partitioned(ctx):
    return zeros(ctx, data_place=stf.data_place.composite(ctx.devices, stf.partition("blocked")))


def test_parts_belong_to_their_whole(ctx, late):
    x = partitioned(ctx)
    late.submit(x)
    np.testing.assert_array_equal(ctx.wait(x.parts.ravel()[0]), 1)


def test_a_whole_belongs_to_its_parts(ctx, late):
    x = partitioned(ctx)
    late.submit(*x.parts.ravel())
    np.testing.assert_array_equal(x.numpy(), 1)


def test_parts_are_brought_home_when_a_context_ends(late):
    X = np.zeros(4)
    with stf.context(devices="cpu:2") as ctx:
        x = ctx.logical_data(X, data_place=stf.data_place.composite(ctx.devices, stf.partition("blocked")))
        late.submit(*x.parts.ravel())
    np.testing.assert_array_equal(X, 1)


def test_tiles_belong_to_their_whole(ctx, late):
    x = zeros(ctx)
    with x.tiles(2) as tiles:
        late.submit(tiles[0])
        np.testing.assert_array_equal(ctx.wait(list(tiles)), [[1, 1], [0, 0]])


def test_data_in_an_object_of_the_users(ctx, late):
    class Mesh:
        def __init__(self, x):
            self.fields = {"x": x}

    latch, x = late.latch, zeros(ctx)

    @stf.task
    def grow(mesh: stf.Data):
        latch.wait(60)
        add(mesh.fields["x"], 1)

    grow.on("host")(Mesh(x))
    threading.Timer(0.05, latch.set).start()
    np.testing.assert_array_equal(x.numpy(), 1)


@pytest.mark.parametrize("how", ["function", "partial", "method", "default", "plain"])
def test_data_in_functions(ctx, late, how):
    latch, x, y = late.latch, zeros(ctx), zeros(ctx)

    class Work:
        def __init__(self, x):
            self.x = x

        def do(self):
            add(self.x, 1)

    def work():
        add(x, 1)

    def with_default(x=x):
        add(x, 1)

    @stf.task
    def calls(work: stf.Data, y: stf.Data):
        latch.wait(60)
        work()

    @stf.task
    def calls_plain(work, y: stf.Data):
        latch.wait(60)
        work()

    given = {"partial": functools.partial(add, x, 1), "method": Work(x).do, "default": with_default}.get(how, work)
    (calls_plain if how == "plain" else calls).on("host")(given, y)
    threading.Timer(0.05, latch.set).start()
    np.testing.assert_array_equal(x.numpy(), 1)


def test_items_that_can_be_read_once_are_refused(ctx):
    with pytest.raises(TypeError, match="'x' is annotated stf.Data and got generator.*pass a list"):
        spread.on("host")((x for x in [zeros(ctx)]), 1)


def test_data_are_completed_when_bodies_have_submitted(ctx, late):
    x, y = zeros(ctx), zeros(ctx)
    late.submit(x)
    add(y, 1)
    found = list(stf.as_completed([x, y], timeout=60))
    assert x.ready() and sorted(map(id, found)) == sorted(map(id, [x, y]))
    if ctx.engine.gathering is None:  # else both may be done with the graph that has the body
        assert found[1] is x
    np.testing.assert_array_equal(x.numpy(), 1)


def frozen(ctx, x, mode):
    with ctx.freeze(x, mode, stf.data_place.host()) as lent:
        return np.array(lent.get())


def fetched(ctx, x):
    ctx.prefetch(x, stf.data_place.host())
    return x.numpy()


READS = {
    "wait": lambda ctx, x: ctx.wait([x])[0],
    "await": lambda ctx, x: asyncio.run(ctx.wait_async(x)),
    "freeze": lambda ctx, x: frozen(ctx, x, "read"),
    "freeze for rw": lambda ctx, x: frozen(ctx, x, "rw"),
    "accept": lambda ctx, x: x.accept().numpy(),
    "prefetch": fetched,
}


@pytest.mark.parametrize("how", READS)
def test_who_reads_waits_first(ctx, late, how):
    x = zeros(ctx)
    late.submit(x)
    np.testing.assert_array_equal(READS[how](ctx, x), 1)


@pytest.mark.parametrize("how", ["write_back", "release", "synchronize"])
def test_the_users_array(late, how):
    X = np.zeros(4)
    with stf.context(devices="cpu:2") as ctx:
        x = ctx.logical_data(X)
        late.submit(x)
        if how == "synchronize":
            ctx.synchronize()
            x.write_back()
        else:
            getattr(x, how)()
        ctx.synchronize()
        np.testing.assert_array_equal(X, 1)


def test_a_checkpoint(ctx, late, tmp_path):
    x = ctx.logical_data(np.zeros(4), name="x", write_back=False)
    late.submit(x)
    ctx.checkpoint(tmp_path / "state")
    add(x, 5)
    Late().submit(x)
    ctx.restore(tmp_path / "state", data=x)
    np.testing.assert_array_equal(x.numpy(), 1)


def test_frozen_data_are_read_as_they_are(ctx):
    """A body that is to write them fails; who reads them meanwhile does not wait for it."""
    latch, x = threading.Event(), zeros(ctx)

    @stf.task
    def waits(x: stf.Data):
        latch.wait(60)

    with ctx.freeze(x):
        waits.on("host")(x)
        np.testing.assert_array_equal(x.numpy(), 0)
        latch.set()


def test_ready_is_false_until_bodies_have_submitted(ctx):
    latch, x = threading.Event(), zeros(ctx)

    @stf.task
    def waits(x: stf.Data):
        latch.wait(60)

    handle = waits.on("host")(x)
    assert not x.ready()
    latch.set()
    handle.result()
    assert x.ready()


# -- handles of bodies that submit others --------------------------------------------------------------------------------


def by_callback(handle):
    told = threading.Event()
    handle.add_done_callback(lambda _: told.set())
    assert told.wait(60)


async def awaited(handle):
    await handle


WAITS = {
    "result": lambda ctx, handle: handle.result(timeout=60),
    "exception": lambda ctx, handle: handle.exception(),
    "await": lambda ctx, handle: asyncio.run(awaited(handle)),
    "callback": lambda ctx, handle: by_callback(handle),
    "futures": lambda ctx, handle: concurrent.futures.wait([handle], timeout=60),
    "as_completed": lambda ctx, handle: list(stf.as_completed([handle])),
    "synchronize": lambda ctx, handle: ctx.synchronize(timeout=60),
}


@pytest.mark.parametrize("how", WAITS)
def test_a_handle_is_done_when_nested_bodies_are(ctx, how):
    latch = threading.Event()

    @stf.task
    def nested(x: stf.Data, depth):
        if depth:
            nested.on("host")(x, depth - 1)
        else:
            latch.wait(60)
            add(x, 1)

    x = zeros(ctx)
    handle = nested.on("host")(x, 3)
    threading.Timer(0.05, latch.set).start()
    WAITS[how](ctx, handle)
    assert handle.done()
    ctx.fill(x, 0.0)  # after what they submit
    np.testing.assert_array_equal(x.numpy(), 0)


def test_a_handle_tells_when_time_is_up_in_a_nested_body(ctx):
    latch = threading.Event()

    @stf.task
    def inner(x: stf.Data):
        latch.wait(60)

    @stf.task
    def outer(x: stf.Data):
        inner.on("host")(x)

    handle = outer.on("host")(zeros(ctx))
    with pytest.raises(TimeoutError, match=r"'outer' .*was still running after 0\.01 s"):
        handle.result(timeout=0.01)
    with pytest.raises(TimeoutError, match="still running"):
        ctx.synchronize(timeout=0.01)
    assert not handle.done() and handle.running()
    latch.set()
    handle.result(timeout=60)


def test_a_call_that_fails_in_a_body_is_waited_for_by_nobody(ctx):
    @stf.task
    def inner(x: stf.Data, y: stf.Read):
        pass

    @stf.task
    def outer(x: stf.Data, y: stf.Data):
        with pytest.raises(stf.UninitializedDataError):
            inner.on("host")(x, y)

    x, y = zeros(ctx), ctx.logical_data_empty(4)
    outer.on("host")(x, y).result(timeout=60)
    assert x.ready()
    np.testing.assert_array_equal(x.numpy(), 0)


def test_what_is_known_of_bodies_is_forgotten(ctx):
    from stf.tasks import handles, lent

    x = zeros(ctx)
    for _ in range(3):
        spread.on("host")(x, 4).result()
    x.numpy()
    assert ctx.engine not in lent.BORROWERS
    spread.on("host")(x, 4)
    ctx.finalize()
    assert ctx.engine not in lent.BORROWERS
    assert not [task for task in handles.NESTED if task.engine is ctx.engine]


STEP = 1.0


def grow(x):
    @x.context.parallel_for(x.shape, x.rw())
    def more(i, x):
        x[i] += STEP


@stf.task
def grow_twice(x: stf.Data):
    grow(x)
    if STEP == 1.0:
        grow(x)


def test_functions_that_a_body_calls_submit_loops(ctx):
    if not runs_kernels(ctx):
        pytest.skip("no kernels here")
    x = ctx.logical_data(np.zeros(3), write_back=False)
    for _ in range(2):
        grow_twice.on("host")(x)
    np.testing.assert_array_equal(x.numpy(), 4.0)
