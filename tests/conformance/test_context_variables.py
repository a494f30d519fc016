"""Context variables of who submits a task: its body sees them on whatever thread it runs."""

from __future__ import annotations

import contextvars
import decimal
import threading
import warnings

import numpy as np
import pytest
from helpers import queued

import stf

WORD: contextvars.ContextVar[str] = contextvars.ContextVar("WORD", default="nothing")


@pytest.fixture
def note(ctx):
    """Submit a task that notes the variable; return what all have noted when they are done."""
    seen, lock = [], threading.Lock()
    token = ctx.token()

    @stf.task
    def look(_token: stf.Read):
        with lock:
            seen.append(WORD.get())
        WORD.set("changed by a body")

    def submit():
        look.on(queued(ctx))(token)

    submit.seen = seen
    submit.token = token
    return submit


def test_each_body_sees_what_was_set_when_it_was_submitted(ctx, note):
    note()
    for word in ("one", "two", "three"):
        reset = WORD.set(word)
        note()
        WORD.reset(reset)
    note()
    ctx.synchronize()
    assert sorted(note.seen) == sorted(["nothing", "one", "two", "three", "nothing"])
    assert WORD.get() == "nothing"


def test_a_launch_has_those_of_its_launch(ctx, note):
    g = ctx.task_graph()
    with g:
        note()
        note()
    for word in ("one", "two"):
        reset = WORD.set(word)
        g.launch()
        WORD.reset(reset)
    g.launch()
    ctx.synchronize()
    assert sorted(note.seen) == sorted(["one"] * 2 + ["two"] * 2 + ["nothing"] * 2)


@pytest.mark.parametrize("builder", ["task", "host_launch"])
def test_numpys_handling_of_errors_is_the_callers(ctx, builder):
    def invert(y):
        y[...] = 1.0 / y

    def submit():
        y = ctx.logical_data(np.zeros(3))
        if builder == "task":
            ctx.task(stf.exec_place.host(), y.rw())(invert)
        else:
            ctx.host_launch(y.rw())(invert)
        ctx.synchronize()

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        submit()
    with np.errstate(divide="raise"), pytest.raises(stf.TaskFailedError, match="FloatingPointError"):
        submit()


def test_decimal_numbers_have_the_callers_precision(ctx):
    seen = []
    with decimal.localcontext() as local:
        local.prec = 5
        ctx.host_launch(ctx.token().read())(lambda: seen.append(decimal.Decimal(1) / 3))
        ctx.synchronize()
    assert seen == [decimal.Decimal("0.33333")]
