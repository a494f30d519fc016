"""`stf.progress`: what it counts, what it shows, and when it ends."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import stf

rich_console = pytest.importorskip("rich.console")
HOST = stf.exec_place.host()


@stf.task(arrays="numpy")
def increment(x: stf.ReadWrite) -> None:
    x += 1


def test_it_counts_tasks_that_have_run(ctx, lX, capsys):
    gate = threading.Event()

    @stf.task(arrays="numpy")
    def held(x: stf.ReadWrite) -> None:
        assert gate.wait(30)

    with stf.progress(ctx, total=7, interval=0.01) as bar:
        for _ in range(3):
            increment.on(HOST)(lX)
        held.on(HOST)(lX)
        for _ in range(2):
            increment.on(HOST)(lX)
        bar.update()
        assert bar.total == 7 and bar.done < 6
        gate.set()
        ctx.synchronize()
        bar.update()
        assert bar.done == 6
    bar.close()
    shown = capsys.readouterr().out
    assert "6 of 7 tasks" in shown and "MB copied" in shown


def test_what_stf_does_for_the_tasks_is_not_counted(ctx, capsys):
    with stf.progress(ctx, total=20, interval=0.01) as bar:
        data = [ctx.logical_data_zeros(8) for _ in range(19)]  # each is filled
        for x in data:
            increment.on(HOST)(x)
        ctx.host_launch(data[0].read(), fn=lambda x: None)
        ctx.copy(data[0], data[1])
        ctx.prefetch(data[2], stf.data_place.device(0))
        assert ctx.wait(data[1])[0] == 1
        ctx.synchronize()
        bar.update()
        assert (bar.done, bar.total) == (20, 20) and ctx.statistics().total_tasks > 40
    assert "20 of 20 tasks" in capsys.readouterr().out


def test_it_ends_with_the_context(ctx_factory, capsys):
    with ctx_factory(name="solver") as ctx:
        bar = stf.progress(ctx, interval=0.01)
        increment.on(HOST)(ctx.logical_data(np.zeros(3)))
    bar._thread.join(30)
    assert not bar._thread.is_alive() and bar.done == bar.total
    assert "solver" in capsys.readouterr().out
    bar.close()


def test_what_it_refuses(ctx, lX, monkeypatch):
    with pytest.raises(TypeError, match="progress watches a context, got LogicalData"):
        stf.progress(lX)
    with pytest.raises(ValueError, match="total is a positive number of tasks, got 0"):
        stf.progress(ctx, 0)
    with pytest.raises(ValueError, match="interval is a positive number"):
        stf.progress(ctx, interval=0)
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with pytest.raises(ImportError, match="pip install rich"):
        stf.progress(ctx)
