"""Memory of the device itself runs out while queued bodies submit: nobody may wait for a body that waits for them.

The driver says no; then the engine waits for pending frees, and for what it evicts. A body that is waited for may itself
be about to submit a task, and needs the engine for that. Each description below ends within seconds, with the task or with an
`OutOfMemoryError`; a watchdog turns a hang into a failure.
"""

from __future__ import annotations

import sys
import threading
import traceback

import numpy as np
import pytest

import stf
import stf._engine.lifetime
import stf.testing
from stf._drivers.cpu import CpuDriver
from stf._drivers.wrappers.wrapping import WrappingDriver
from stf.testing import HostileDriver

N = 16
NBYTES = 8 * N
PATIENCE_S = 10.0


class Refusing(WrappingDriver):
    """Says when memory was refused."""

    def __init__(self, inner):
        super().__init__(inner)
        self.refused = threading.Event()

    def alloc(self, device, nbytes, stream):
        try:
            return super().alloc(device, nbytes, stream)
        except MemoryError:
            self.refused.set()
            raise


class Program:
    """Runs a program on a thread of its own: one that hangs is a failure, and is left behind."""

    def __init__(self, driver, **options):
        self.driver = driver
        self.ctx = stf.testing.context("cpu:1", driver=driver, **options)
        self.errors = []

    def run(self, program):
        thread = threading.Thread(target=self.guard, args=(program,), daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        if thread.is_alive():
            self.ctx._finished = True  # neither the collector nor the exit may wait for it
            stf._engine.lifetime.forget(self.ctx)
            pytest.fail(f"hangs:\n{stacks()}")
        if self.errors:
            raise self.errors[0]
        stf.testing.settle(self.driver)
        stf.testing.check_order(self.ctx.recording)

    def guard(self, program):
        try:
            program(self.ctx)
            self.ctx.check_state()
            self.ctx.finalize()
        except BaseException as error:
            self.errors.append(error)


def stacks():
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, 'worker')}:\n{''.join(traceback.format_stack(frame)[-3:])}"
        for ident, frame in sys._current_frames().items()
    )


def full_device(blocks=1, workers=2):
    return Refusing(CpuDriver(1, False, workers, [blocks * NBYTES]))


def add(x, n=1):
    x += n


# -- a body submits while another thread waits for memory ------------------------------------------------------------


def ask_with(ctx, data):
    with ctx.task(data.rw()) as t:
        add(t.arrays()[0])


def ask_late(ctx, data):
    ctx.task(data.rw())(add)


def ask_fill(ctx, data):
    ctx.fill(data, 1)


def ask_prefetch(ctx, data):
    ctx.prefetch(data, stf.data_place.device(0))
    ask_late(ctx, data)


def ask_freeze(ctx, data):
    with ctx.freeze(data, "rw", stf.data_place.device(0)) as frozen:
        add(frozen.get())


def ask_accumulate(ctx, data):
    ctx.task(data.accumulate(stf.reducer.sum))(add)


def ask_low_level(ctx, data):
    task = ctx.task()
    task.add_deps(data.rw())
    task.start()
    add(task.numpy()[0])
    task.end()


ASKING = [ask_with, ask_late, ask_fill, ask_prefetch, ask_freeze, ask_accumulate, ask_low_level]


@pytest.mark.parametrize("ask", ASKING)
def test_a_body_submits_while_another_thread_waits_for_its_memory(ask):
    driver = full_device()
    X, Y, Z = np.zeros(N), np.zeros(N), np.zeros(N)

    def program(ctx):
        lx, ly, handles = ctx.logical_data(X), ctx.logical_data(Y), [ctx.logical_data(Z)]

        def body(x):
            assert driver.refused.wait(30)
            ctx.task("host", handles[0].rw())(add)
            add(x)

        ctx.task(lx.rw())(body)
        ask(ctx, ly)
        handles.clear()

    Program(driver).run(program)
    assert X.tolist() == Y.tolist() == Z.tolist() == [1] * N


def test_two_bodies_submit_while_a_third_thread_waits_for_their_memory():
    """The bodies submit on each other's side of the wait, and open a with-block too."""
    driver = full_device(2, workers=3)
    arrays = [np.zeros(N) for _ in range(5)]
    both = threading.Barrier(2, timeout=30)

    def program(ctx):
        data = [ctx.logical_data(a) for a in arrays]
        handles = data[3:]

        def late(x):
            assert driver.refused.wait(30)
            both.wait()
            ctx.task("host", handles[0].rw())(add)
            add(x)

        def inline(x):
            assert driver.refused.wait(30)
            both.wait()
            with ctx.task("host", handles[1].rw()) as t:
                add(t.arrays()[0])
            add(x)

        ctx.task(data[0].rw())(late)
        ctx.task(data[1].rw())(inline)
        with ctx.task(data[2].rw()) as t:
            add(t.arrays()[0])
        del data[3:], handles[:]

    Program(driver).run(program)
    assert [a.tolist() for a in arrays] == [[1] * N] * 5


# -- memory runs out in the body's own submission --------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["late", "with"])
def test_a_body_asks_for_the_memory_that_it_uses_itself(inner):
    """There is one block, and the body's own data has it: it cannot be freed before the body ends."""
    driver = full_device()
    X, Y = np.zeros(N), np.zeros(N)
    told = []

    def program(ctx):
        lx, handles = ctx.logical_data(X), [ctx.logical_data(Y)]

        def body(x):
            add(x)
            try:
                (ask_late if inner == "late" else ask_with)(ctx, handles[0])
            except stf.OutOfMemoryError as error:
                told.append(error)
            add(x)

        ctx.task(lx.rw())(body)
        ctx.synchronize()
        if told:  # the context goes on, and there is room now
            ask_late(ctx, handles[0])
        handles.clear()

    Program(driver).run(program)
    assert X.tolist() == [2] * N and Y.tolist() == [1] * N


@pytest.mark.parametrize("refusals", [1, 2, 10])
def test_an_allocation_fails_in_a_submission_from_a_body(refusals):
    """There is room, but the driver says no for a while: once the body has its own memory, at allocation 2."""
    driver = HostileDriver(CpuDriver(1, False, 2), 3, fail_alloc=range(2, 2 + refusals), delays=False)
    X, Y = np.zeros(N), np.zeros(N)
    told = []

    def program(ctx):
        lx, handles = ctx.logical_data(X), [ctx.logical_data(Y)]

        def body(x):
            try:
                ask_late(ctx, handles[0])
            except stf.OutOfMemoryError as error:
                told.append(error)
                driver.fail_alloc = ()
            add(x)

        ctx.task(lx.rw())(body)
        ctx.synchronize()
        if told:
            ask_late(ctx, handles[0])
        handles.clear()

    Program(driver).run(program)
    assert X.tolist() == Y.tolist() == [1] * N


def test_two_bodies_ask_for_the_memory_that_the_other_uses():
    """Each of two blocks belongs to a running body, and each body asks for a third: at least one is told no."""
    driver = full_device(2, workers=3)
    arrays = [np.zeros(N) for _ in range(4)]
    both = threading.Barrier(2, timeout=30)
    told = []

    def program(ctx):
        data = [ctx.logical_data(a) for a in arrays]
        handles = data[2:]

        def body(x, i):
            both.wait()
            try:
                ask_late(ctx, handles[i])
            except stf.OutOfMemoryError:
                told.append(i)
            add(x)

        for i in range(2):
            ctx.task(data[i].rw())(with_number(body, i))
        ctx.synchronize()
        for i in told:
            ask_late(ctx, handles[i])
        del data[2:], handles[:]

    Program(driver).run(program)
    assert [a.tolist() for a in arrays] == [[1] * N] * 4


def with_number(body, i):
    return lambda x: body(x, i)
