"""Programs about the ends of data, tasks, contexts and processes on CUDA; run by test_lifetimes.py, here and on GPUs.

Each is the body of a function and runs in a process of its own, with the names of `PRELUDE`.
"""
# ruff: noqa: F821

from __future__ import annotations

PRELUDE = """
import gc, os, sys, threading, warnings, weakref
import numpy as np
import cupy, stf
from stf.devices.kept import kept

@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n

def total(driver):
    kept.stop()  # drivers at rest
    return sum(driver.leaks())
"""


def dropped_in_any_order():
    """Data, accesses, tasks and views outlive each other in all orders; the context is dropped first or last."""
    import itertools

    for order in itertools.permutations(range(4)):
        X = np.zeros(64)
        ctx = stf.context(devices="cuda:0")
        driver = ctx._driver
        lX = ctx.logical_data(X)
        access = lX.rw()
        with ctx.task(lX.rw()) as task:
            (view,) = task.cupy()
            view += 1
        things = [ctx, lX, access, task]
        del ctx, lX, access, task, view
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for k in order:
                things[k] = None
        gc.collect()
        assert (X == 1).all(), (order, X)
        assert total(driver) == 0, (order, driver.leaks())
    print("done")


def dropped_in_circles():
    """A context, its data and its resources in one circle, which the collector finds: it only takes note."""
    X = np.zeros(64)
    warnings.simplefilter("ignore", ResourceWarning)

    class Holder:
        pass

    holder = Holder()
    holder.me = holder
    holder.resources = stf.Resources()
    holder.ctx = stf.context(devices="cuda:0", resources=holder.resources)
    holder.data = holder.ctx.logical_data(X)
    driver = holder.ctx._driver
    add(holder.data)
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None
    with stf.context(devices="cuda:0"):  # whoever comes next ends what was left
        pass
    assert (X == 1).all() and total(driver) == 0, (X[0], driver.leaks())
    print("done")


def failures_hold_nothing():
    """A body that raised keeps neither its data nor its context alive."""
    warnings.simplefilter("ignore", ResourceWarning)
    gc.disable()

    def broken(x):
        raise RuntimeError("no luck")

    def work():
        ctx = stf.context(devices="cuda:0")
        data = [ctx.logical_data(np.zeros(8)) for _ in range(3)]
        told = []
        try:
            ctx.task(data[0].rw(), name="broken")(broken)
        except stf.TaskFailedError as error:
            told.append(type(error.__cause__).__name__)
        try:
            with ctx.task(data[1].rw()):
                raise KeyError("with")
        except KeyError:
            pass
        try:
            with ctx.task(data[1].read()):
                pass
        except stf.TaskFailedError as error:
            told.append(repr(error.__cause__))
            assert "in work" in error.__cause__.__notes__[0]
        return told, weakref.ref(ctx), ctx._driver

    told, gone, driver = work()
    assert told == ["RuntimeError", "KeyError('with')"], told
    assert gone() is None and total(driver) == 0
    print("done")


def open_at_exit():
    """What is open at exit is written back; a thread, a circle and shared resources are no obstacle."""
    X, Y = np.zeros(64), np.zeros(1 << 16)
    warnings.simplefilter("ignore", ResourceWarning)
    import atexit

    resources = stf.Resources()
    atexit.register(lambda: None)
    one, two = stf.context(devices="cuda:0"), stf.context(devices="cuda:0", resources=resources)
    circle = [two]
    circle.append(circle)
    lX, lY = one.logical_data(X), two.logical_data(Y)
    add(lX), add(lY)
    one.host_launch(lX.rw())(lambda x: np.add(x, 1, out=x))

    class Last:  # collected after stf's own hook, when the module goes
        def __del__(self):
            print(X[0], Y[-1], total(one._driver), total(resources_driver))

    resources_driver = two._driver
    sys.modules["__main__"].last = Last()


def forked():
    """In the child nothing of the parent's is used, whoever was inside at the fork; the parent goes on."""
    X, Y = np.zeros(64), np.zeros(64)
    ctx = stf.context(devices="cuda:0", resources=stf.Resources())
    lX, lY = ctx.logical_data(X), ctx.logical_data(Y)
    add(lX)
    task = ctx.task(lY.rw())
    task.start()
    inside, held, go = threading.Event(), threading.Event(), threading.Event()
    ctx.host_launch(lX.read())(lambda x: (inside.set(), go.wait(), None)[-1])
    inside.wait()

    def hold_the_gate():
        ctx.engine.patiently(lambda engine: (held.set(), go.wait()))

    thread = threading.Thread(target=hold_the_gate)
    thread.start()
    held.wait()
    before = calls()
    pid = os.fork()
    if pid == 0:
        told = []
        attempts = [
            lambda: add(lX),
            lambda: ctx.wait(lX),
            ctx.fence,
            ctx.synchronize,
            task.end,
            lambda: lX.write_back(),
            lambda: lX.release(),
            lambda: ctx.freeze(lX),
            ctx.token,
            lambda: ctx.logical_data(np.ones(1)),
        ]
        for attempt in attempts:
            try:
                attempt()
            except stf.ContextClosedError as error:
                told.append("forked" in str(error))
        try:
            stf.context(devices="cuda:0")
        except stf.DriverError as error:
            told.append("the child of a fork" in str(error))
        with stf.context(devices="cpu") as own:
            add(own.logical_data(Y), 7)
        ctx.finalize()
        del lX, lY, task, ctx
        gc.collect()
        print("child", all(told), len(told), Y[0], calls() - before, flush=True)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    go.set()
    thread.join()
    task.arrays()[0][:] += 3
    task.end()
    add(lX)
    ctx.finalize()
    print("parent", X[0], Y[0])


def lost():
    """A fault costs the context: it says so, and names who may be the cause; all is given back, the host keeps its own."""
    X, Y = np.full(1 << 16, 3.0), np.full(8, 4.0)
    ctx = stf.context(devices="cuda:0")
    lX, lY = ctx.logical_data(X, name="X"), ctx.logical_data(Y, name="Y")
    told = []

    def attempt(action):
        try:
            action()
        except Exception as error:
            while error is not None and not isinstance(error, stf.DriverError):
                error = error.__cause__
            told.extend([error] if error is not None else [])

    with ctx.task(lY.rw(), name="innocent") as t:
        t.cupy()[0][:] += 1
    add(lX)
    ctx.wait(lX), ctx.wait(lY)
    attempt(lambda: fault(ctx, lX))
    for _ in range(3):
        attempt(lambda: ctx.wait(lX))
    attempt(lambda: add(lY))
    attempt(ctx.finalize)
    ctx.finalize()
    assert len(told) >= 4, told
    assert all(isinstance(error, stf.DriverError) for error in told), told
    assert any("guilty" in name for name in told[-1].tasks), told[-1].tasks
    assert "contexts there are lost" in str(told[-1]) and "guilty" in str(told[-1]), str(told[-1])
    assert (X == 4).all() and (Y == 5).all(), (X, Y)  # as they were when last waited for
    assert total(ctx._driver) == 0, ctx._driver.leaks()
    assert [pool.used for pool in ctx.engine.coherency.pools] == [0, 0] and ctx.engine.coherency.data == {}
    print("done")
