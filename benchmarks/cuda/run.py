"""Cost per task on a GPU: stf beside the raw driver calls (C) and what users would write by hand, in one run.

``python benchmarks/cuda/run.py`` builds raw.c, runs it, then runs the same cases through stf. Times are the medians of
seven repetitions, in µs per task: submission, and total with the wait for the device. Kernels come in bursts short
enough that a full launch queue is not what is measured. The ratio to a raw case is that of the submissions. Differences
are of cases that ran burst by burst in turn. Hosts are shared, and slow at times: budgets in µs are also held against
what a raw event record took between the bursts of the same row, burst by burst where a row has bursts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flat import MOST_BYTES, WINDOWS
from flat import run as run_flat
from graphs import graph_rows
from launchers import launchers
from loops import WIDTH, chain, cupy_loops, stencil, stencil_steps
from measuring import (
    BURST,
    EMPTY,
    ONE,
    REPEAT,
    SHORT,
    Cost,
    N,
    add,
    cost_of,
    costs_of,
    host,
    judge,
    load_kernels,
    print_table,
    run_raw,
)

import stf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument("--tasks", type=int, default=10_000_000, help="of the run whose memory is watched")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 where a budget is missed by more than the host"
    )
    options = parser.parse_args()
    raw = run_raw()
    rows = [*submission_rows(raw), *launch_rows(raw), *graph_rows(raw), *library_rows(raw), *transfer_rows(raw)]
    rows += memory_rows(options.tasks)
    judge(rows)
    print_table(raw, rows)
    if options.json:
        options.json.write_text(json.dumps({"raw": raw, "stf": rows}, indent=1))
    if options.check and any(row.get("kept") is False and not row.get("kept_at_clock") for row in rows):
        sys.exit(1)


# -- cases -----------------------------------------------------------------------------------------------------------


def submission_rows(raw: dict[str, float]) -> list[dict[str, Any]]:
    """Empty tasks, and tasks of one trivial kernel."""
    touch, touch4 = load_kernels()
    rows = []
    with stf.context(devices="cuda:0") as ctx:
        token, data = ctx.token(), ctx.logical_data(np.zeros(8))
        tokens = [ctx.token() for _ in range(64)]
        rows_of_tokens = [[ctx.token() for _ in range(WIDTH)] for _ in range(2)]
        rows_of_data = [[ctx.logical_data(np.zeros(8)) for _ in range(WIDTH)] for _ in range(2)]

        def tokens64(n: int) -> None:
            for i in range(n):
                with ctx.task(tokens[i & 63].rw()):
                    pass

        steps = list(stencil_steps(rows_of_tokens, N))
        data_steps = list(stencil_steps(rows_of_data, N))

        def chain_kernel(n: int) -> None:
            for _ in range(n):
                ctx.launch_kernel(touch, ONE, data.rw())

        def stencil_kernel(n: int) -> None:
            for a, b, c, d in data_steps[:n]:
                ctx.launch_kernel(touch4, ONE, a.read(), b.read(), c.read(), d.write())

        def settle() -> None:
            ctx.synchronize()

        record = raw["record"]
        # first what needs no memory: once a process has some in stream order, CUDA takes longer for each event and wait
        add(rows, "chain_token", cost_of(chain(ctx, token), settle, N, EMPTY), beside=record, budget_us=0.6)
        add(rows, "tokens64_rw", cost_of(tokens64, settle, N, EMPTY), beside=record)
        add(rows, "stencil_2rows", cost_of(stencil(ctx, steps), settle, N, EMPTY), beside=raw["stencil"], budget_us=1.0)
        with ctx.task(data.rw(), *(d.rw() for row in rows_of_data for d in row)):
            pass
        on_arrays = cost_of(stencil(ctx, data_steps), settle, N, SHORT)
        add(rows, "stencil_2rows_data", on_arrays, beside=raw["stencil_allocated"], budget_us=1.0)
        add(rows, "chain_data", cost_of(chain(ctx, data), settle, N, EMPTY), beside=record, budget_us=0.6)
        add(rows, "chain_kernel", cost_of(chain_kernel, settle), beside=raw["launch"], budget_ratio=1.12)
        add(rows, "stencil_kernel", cost_of(stencil_kernel, settle), beside=raw["launch"], budget_ratio=1.35)
        scalar = ctx.logical_data_zeros(())

        def wait_scalar(n: int) -> None:
            for _ in range(n):
                with ctx.task(scalar.rw()):
                    pass
                ctx.wait(scalar)

        def write_scalar(n: int) -> None:
            for _ in range(n):
                with ctx.task(scalar.rw()):
                    pass

        works = [wait_scalar, write_scalar, host().library.raw_scalar_wait]
        waiting, writing, by_hand = costs_of(works, settle, 4000)
        wait = Cost(*(a - b for a, b in zip(waiting, writing, strict=True)))
        add(rows, "wait_scalar", wait, beside=by_hand.submission, budget_us=1.0, added=True)
    shared = stf.Resources()

    def contexts(resources: stf.Resources | None) -> Callable[[int], None]:
        def run(n: int) -> None:
            for _ in range(n):
                stf.context(devices="cuda:0", resources=resources).finalize()

        return run

    add(rows, "context_with_resources", cost_of(contexts(shared), lambda: None, 2000), budget_us=15)
    add(rows, "context", cost_of(contexts(None), lambda: None, 50, 10))
    shared.close()
    return rows


def launch_rows(raw: dict[str, float]) -> list[dict[str, Any]]:
    """The same trivial kernel by other libraries, with no task around it, and as a task, by `stf.kernel`."""
    rows: list[dict[str, Any]] = []
    for name, (launch, settle, kernel) in launchers().items():
        launch(BURST)
        settle()
        add(rows, f"launch_{name}", cost_of(launch, settle), beside=raw["launch"])
        with stf.context(devices="cuda:0") as ctx:
            data, task = ctx.logical_data(np.zeros(8)), stf.kernel(kernel)[1, 1]

            def tasks(n: int, data: Any = data, task: Any = task) -> None:
                for _ in range(n):
                    task(data.rw())

            add(rows, f"kernel_{name}", cost_of(tasks, ctx.synchronize), beside=raw["launch"])
    return rows


def memory_rows(tasks: int) -> list[dict[str, Any]]:
    """What the process grows by in a long run, per task that is over, in bytes."""
    if tasks < WINDOWS:
        return []
    with stf.context(devices="cuda:0") as ctx:
        windows = run_flat(ctx, tasks // WINDOWS)
    grown = (windows[-1][1] - windows[0][1]) / (tasks * (WINDOWS - 1) / WINDOWS)
    cost = statistics.median(us for us, _ in windows[1:])
    return [
        {
            "case": f"memory_{tasks:.0e}_tasks",
            "us": cost,
            "bytes_per_task": grown,
            "beside": None,
            "ratio": None,
            "budget": f"{grown:.2f} <= {MOST_BYTES:.0f} B",
            "kept": grown <= MOST_BYTES,
        }
    ]


def library_rows(raw: dict[str, float]) -> list[dict[str, Any]]:
    """CuPy in tasks, beside CuPy by hand on an explicit stream."""
    try:
        import cupy
        import cupyx
    except ImportError:
        return []
    rows: list[dict[str, Any]] = []
    with stf.context(devices="cuda:0") as ctx:
        array = cupy.zeros(1024)
        data = ctx.logical_data(array)
        stream = cupy.cuda.Stream(non_blocking=True)
        other = cupy.zeros(1024)

        loops = cupy_loops(ctx, data, other, stream)

        def settle() -> None:
            ctx.synchronize()
            stream.synchronize()

        side_by_side = [loops[name] for name in ("function_cupy", "with_block_cupy", "cupy_by_hand")]
        function, block, hand = costs_of(side_by_side, settle, 10_000)
        add(rows, "function_cupy", function, beside=hand.submission, budget_us=1.5, added=True)
        add(rows, "with_block_cupy", block, beside=hand.submission)
        add(rows, "with_block_cupy_view", cost_of(loops["with_block_cupy_view"], settle), budget_us=1.5)
        add(rows, "cupy_with_stream", cost_of(loops["cupy_with_stream"], settle))  # CuPy's own part of the row before
        raw["cupy_by_hand"] = hand.submission

        def register(array: Any) -> Callable[[int], None]:
            def run(n: int) -> None:
                for _ in range(n):
                    ctx.logical_data(array)

            return run

        pinned, known = cupyx.empty_pinned(1 << 17), np.zeros(1 << 17)
        for array in (pinned, known):  # which is pinned by somebody else, or from here on
            ctx.prefetch(ctx.logical_data(array), stf.data_place.device(0))
        ctx.synchronize()
        add(rows, "register_device_array", cost_of(register(other), settle, 2000), budget_us=2)
        add(rows, "register_pinned_array", cost_of(register(pinned), settle, 2000), budget_us=2)
        add(rows, "register_known_array", cost_of(register(known), settle, 2000), budget_us=2)
    return rows


def transfer_rows(raw: dict[str, float]) -> list[dict[str, Any]]:
    """Transfers of registered arrays, 1 GiB, in GB/s."""
    rows: list[dict[str, Any]] = []
    host = np.ones(1 << 27)
    with stf.context(devices="cuda:0") as ctx:
        data = ctx.logical_data(host)
        rates: dict[str, list[float]] = {"in": [], "out": []}
        for _ in range(REPEAT):
            with ctx.task("host", data.rw()):
                pass
            rates["in"].append(host.nbytes / timed(lambda: ctx.prefetch(data, stf.data_place.device(0)), ctx) / 1e9)
            with ctx.task(data.rw()):
                pass
            rates["out"].append(host.nbytes / timed(data.write_back, ctx) / 1e9)
    for name, key in (("registered_host_to_device", "in"), ("registered_device_to_host", "out")):
        beside = raw["host_to_device_gbps" if key == "in" else "device_to_host_gbps"]
        rate = statistics.median(rates[key])
        row = {"case": name, "gbps": rate, "beside": beside, "ratio": rate / beside}
        rows.append(row | {"budget": ">= 0.95 x", "kept": rate >= 0.95 * beside})
    return rows


def timed(work: Callable[[], object], ctx: stf.Context) -> float:
    ctx.synchronize()
    start = time.perf_counter()
    work()
    ctx.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
