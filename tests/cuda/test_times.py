"""When the work of tasks was on a GPU: traces against what is known of it."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import stf

SPIN = r"""
extern "C" __global__ void spin(long long nanoseconds) {
    long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
"""


def spans_of(ctx, category="task"):
    return [e for e in ctx.trace()["traceEvents"] if e["ph"] == "X" and e["cat"] == category]


@pytest.fixture
def spin():
    """Keep the device busy for some microseconds, on the current stream."""
    cupy = pytest.importorskip("cupy")
    kernel = cupy.RawKernel(SPIN, "spin")
    kernel((1,), (1,), (np.int64(1000),))
    cupy.cuda.Device().synchronize()
    return lambda microseconds: kernel((1,), (1,), (np.int64(1000 * microseconds),))


def test_spans_last_as_long_as_the_kernels(spin):
    with stf.context(devices="cuda:0", observe=True) as ctx:
        tokens = [ctx.token() for _ in range(4)]
        for token in tokens:  # so that streams are there
            with ctx.task(token.rw()) as t:
                t.arrays()
        ctx.synchronize()
        begin = time.perf_counter_ns()
        for token in tokens:
            with ctx.task(token.rw(), name="spin") as t:
                t.arrays()
                spin(20_000)
        with ctx.task(*[token.read() for token in tokens], name="after") as t:
            t.arrays()
            spin(1_000)
        ctx.synchronize()
        wall_us = (time.perf_counter_ns() - begin) / 1000
        spins = [e for e in spans_of(ctx) if e["name"] == "spin"]
        after = next(e for e in spans_of(ctx) if e["name"] == "after")
    assert all(20_000 <= e["dur"] < 25_000 for e in spins), spins
    assert 1_000 <= after["dur"] < 5_000
    assert after["ts"] >= max(e["ts"] + e["dur"] for e in spins) - 50
    assert after["ts"] + after["dur"] - min(e["ts"] for e in spins) < wall_us + 100
    assert len({e["tid"] for e in spins}) > 1, "streams run beside each other"


def test_clocks_of_host_and_device_agree(spin):
    """A body on the host runs between two kernels: its span, by the host's clock, must lie between theirs."""
    with stf.context(devices="cuda:0", observe="trace") as ctx:
        token = ctx.token()
        for k in range(5):
            with ctx.task(token.rw(), name=f"before {k}") as t:
                t.arrays()
                spin(500)
            ctx.host_launch(token.rw(), fn=lambda: time.sleep(0.3), name=f"host {k}")
        with ctx.task(token.rw(), name="last") as t:
            t.arrays()
            spin(500)
        ctx.synchronize()
        spans = sorted(spans_of(ctx), key=lambda e: e["ts"])
    assert [e["name"].split()[0] for e in spans] == ["before", "host"] * 5 + ["last"]
    for one, other in itertools.pairwise(spans):
        assert one["ts"] + one["dur"] <= other["ts"] + 50, (one, other)  # microseconds


def test_copies_last_as_long_as_the_link_takes():
    host = np.ones(1 << 27)  # 1 GiB
    with stf.context(devices="cuda:0", observe=True) as ctx:
        x = ctx.logical_data(host, name="x")
        for _ in range(2):
            with ctx.task(x.rw()) as t:
                t.arrays()
            with ctx.task("host", x.rw()):
                pass
        copies = spans_of(ctx, "copy")
    assert len(copies) == 4 and {e["name"] for e in copies} == {"copy x"}
    assert all(5_000 < e["dur"] < 1_000_000 for e in copies), copies  # 1 to 200 GB/s
    rows = {e["args"]["name"] for e in ctx.trace()["traceEvents"] if e["name"] == "thread_name" and e["pid"] == 1}
    assert {"copies in", "copies out"} <= rows


def test_transfers_run_beside_kernels(spin):
    """While one stream computes, arrays come in and go out: none of the three waits for another."""
    incoming, outgoing = np.ones(1 << 26), np.ones(1 << 26)  # 512 MiB each
    with stf.context(devices="cuda:0", observe=True) as ctx:
        a, b, token = ctx.logical_data(incoming, name="a"), ctx.logical_data(outgoing, name="b"), ctx.token()
        with ctx.task(b.rw()) as t:
            t.arrays()
        with ctx.task(token.rw()) as t:
            t.arrays()
        ctx.synchronize()
        with ctx.task(token.rw(), name="spin") as t:
            t.arrays()
            spin(200_000)
        ctx.prefetch(a, stf.data_place.device(0))
        with ctx.task("host", b.read()):
            pass
        ctx.synchronize()
        (kernel,) = [e for e in spans_of(ctx) if e["name"] == "spin"]
        copies = {e["name"]: e for e in spans_of(ctx, "copy") if e["ts"] > kernel["ts"] - 100}
    assert set(copies) == {"copy a", "copy b"}
    for copy in copies.values():
        assert copy["ts"] + copy["dur"] < kernel["ts"] + kernel["dur"] - 50_000, (copy, kernel)


def test_many_tasks_need_few_events():
    with stf.context(devices="cuda:0", observe="trace") as ctx:
        tokens = [ctx.token() for _ in range(32)]
        for i in range(20_000):
            with ctx.task(tokens[i % 32].rw()):
                pass
        ctx.synchronize()
        assert len(spans_of(ctx)) == 20_000
    assert ctx._driver.leaks() == (0, 0, 0, 0)


def test_cupti_tells_which_kernels_a_task_submitted(spin):
    pytest.importorskip("cupti", reason="no cupti-python")
    with stf.context(devices="cuda:0", observe="cupti") as ctx:
        x = ctx.logical_data(np.zeros(1 << 20), name="x")
        with ctx.task(x.rw(), name="two spins") as t:
            t.arrays()
            spin(3_000)
            spin(5_000)
        ctx.synchronize()
        (task,) = (e for e in spans_of(ctx) if e["name"] == "two spins")
        kernels = spans_of(ctx, "kernel")
    spins = sorted((e for e in kernels if e["name"] == "spin"), key=lambda e: e["ts"])
    assert [e["args"]["task"] for e in spins] == [task["args"]["task"]] * 2
    assert all(length <= e["dur"] < length + 500 for e, length in zip(spins, (3_000, 5_000), strict=True)), spins
    assert task["ts"] - 200 <= spins[0]["ts"] and spins[1]["ts"] + spins[1]["dur"] <= task["ts"] + task["dur"] + 200
    copies = [e for e in kernels if e["name"].startswith("memcpy HTOD, 8388608 bytes")]
    assert len(copies) == 1 and copies[0]["args"]["task"] == 0  # the engine's own copy


def test_cupti_tells_the_kernels_of_a_graph_with_each_launch(spin):
    pytest.importorskip("cupti", reason="no cupti-python")
    with stf.context(devices="cuda:0", observe="cupti") as ctx:
        x = ctx.logical_data(np.zeros(8), name="x")
        g = ctx.task_graph(name="twice")
        with g, ctx.task(x.rw()) as t:
            t.arrays()
            spin(2_000)
        for _ in range(2):
            g.launch()
        ctx.synchronize()
        launches = [e["args"]["task"] for e in spans_of(ctx) if e["name"] == "twice"]
        spins = [e["args"]["task"] for e in spans_of(ctx, "kernel") if e["name"] == "spin"]
    assert len(launches) == 2 and spins == launches
