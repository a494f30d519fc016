"""Cost per task on a GPU: stf beside the raw driver calls (C) and what users would write by hand, in one run.

``python benchmarks/cuda/run.py`` builds raw.c, runs it, then runs the same cases through stf. Times are the medians of
seven repetitions, in µs per task: submission, and total with the wait for the device. Kernels come in bursts short
enough that a full launch queue is not what is measured. The ratio to a raw case is that of the submissions. Differences
are of cases that ran burst by burst in turn. Hosts are shared, and slow at times: budgets in µs are also held against
what a raw event record took between the bursts of the same row.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flat import MOST_BYTES, WINDOWS
from flat import run as run_flat
from launchers import launchers
from loops import WIDTH, chain, cupy_loops, stencil, stencil_steps

import stf

HERE = Path(__file__).resolve().parent
BURST, N, REPEAT, LAUNCHES, ROW = 400, 10_000, 7, 200, 8
RECORD_US = 0.135  # of the host that the budgets were set on
ONE = (1, 1)
PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry touch(.param .u64 p) { ret; }
.visible .entry touch4(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) { ret; }
"""


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


# -- the raw driver --------------------------------------------------------------------------------------------------


def build_raw(program: Path, *options: str) -> None:
    compiler = shutil.which("nvcc") or shutil.which("cc")
    if compiler is None:
        sys.exit("neither nvcc nor cc is there to build raw.c with")
    subprocess.run([compiler, "-O2", *options, str(HERE / "raw.c"), "-o", str(program), "-lcuda"], check=True)


def load_raw() -> ctypes.CDLL:
    """raw.c as a library, so that its calls and ours can be measured in turn."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "raw.so"
        build_raw(program, "-shared", *(("-Xcompiler", "-fPIC") if shutil.which("nvcc") else ("-fPIC",)))
        library = ctypes.CDLL(str(program))
    library.raw_graph_launch.restype = library.raw_captures.restype = ctypes.c_double
    library.raw_open()
    return library


class Host:
    """How much longer than on the host of the budgets a raw event record takes, while a row is measured."""

    def __init__(self) -> None:
        self.library = load_raw()
        self.samples: list[float] = []
        self.last = 1.0

    def look(self, count: int = 400) -> None:
        self.library.raw_record(count // 2)  # as warm as what it is compared with
        start = time.perf_counter()
        self.library.raw_record(count)
        self.samples.append((time.perf_counter() - start) / count * 1e6)

    def clock(self) -> float:
        """The factor since the last call; that of the row before if nothing was measured since."""
        if self.samples:
            self.last = max(statistics.median(self.samples) / RECORD_US, 1.0)
            self.samples.clear()
        return self.last


@functools.cache
def host() -> Host:
    return Host()


def run_raw() -> dict[str, float]:
    """Compile and run raw.c; microseconds by case."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "raw"
        build_raw(program)
        lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines)}


class Cost(NamedTuple):
    """Microseconds per item: until the calls return, and until the device is done."""

    submission: float
    total: float


def cost_of(work: Callable[[int], None], settle: Callable[[], None], n: int = N, burst: int = BURST) -> Cost:
    """Median cost per item of `work`, in bursts: a full launch queue is not what is measured."""
    return costs_of([work], settle, n, burst)[0]


def costs_of(
    works: list[Callable[[int], None]], settle: Callable[[], None], n: int = N, burst: int = BURST
) -> list[Cost]:
    """`cost_of` each, burst by burst in turn: what slows the host down for a while then slows all of them."""
    rounds = max(n // burst, 1)
    costs: list[list[Cost]] = [[] for _ in works]
    for repetition in range(REPEAT + 1):
        submission, total = [0.0] * len(works), [0.0] * len(works)
        for _ in range(rounds):
            for i, work in enumerate(works):
                start = time.perf_counter()
                work(burst)
                submission[i] += time.perf_counter() - start
                settle()
                total[i] += time.perf_counter() - start
            host().look()
        if repetition:
            for i, found in enumerate(costs):
                found.append(Cost(submission[i] / (rounds * burst) * 1e6, total[i] / (rounds * burst) * 1e6))
    return [Cost(*(statistics.median(column) for column in zip(*found, strict=True))) for found in costs]


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
        with ctx.task(data.rw(), *(d.rw() for row in rows_of_data for d in row)):
            pass

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

        record, record_wait = raw["record"], raw["record_wait"]
        add(rows, "chain_token", cost_of(chain(ctx, token), settle, N, N), beside=record, budget_us=0.6)
        add(rows, "chain_data", cost_of(chain(ctx, data), settle, N, N), beside=record, budget_us=0.6)
        add(rows, "tokens64_rw", cost_of(tokens64, settle, N, N), beside=record)
        add(rows, "stencil_2rows", cost_of(stencil(ctx, steps), settle, N, N), beside=record_wait, budget_us=1.0)
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


def graph_rows(raw: dict[str, float]) -> list[dict[str, Any]]:
    """A chain of trivial kernels that is recorded once and launched again, beside the driver's graph calls."""
    touch, _ = load_kernels()
    rows: list[dict[str, Any]] = []
    with stf.context(devices="cuda:0") as ctx:
        data = ctx.logical_data(np.zeros(8))
        with ctx.task(data.rw()):
            pass

        def submit(n: int) -> None:
            for _ in range(n):
                ctx.launch_kernel(touch, ONE, data.rw())

        def recorded(n: int) -> Any:
            graph = ctx.task_graph()
            with graph:
                submit(n)
            return graph

        def blocks(n: int) -> None:
            for _ in range(n):
                with ctx.task(data.rw()) as t:
                    touch_by_hand(t.stream.handle)

        for n in (100, 1000, 10_000, 100_000):
            cost = recording_cost(recorded, n)
            add(rows, f"graph_record_{n}", Cost(cost, cost), beside=raw["graph_add"], budget_us=1.0)
        touch_by_hand = launcher_of(touch)
        for n in (100, 1000, 10_000, 100_000):
            cost, by_hand = capture_cost(ctx, blocks, touch_by_hand, n)
            add(rows, f"graph_captured_{n}", Cost(cost, cost), beside=by_hand, budget_us=3)
        for n in (100, 1000, 10_000, 100_000):
            add(rows, f"graph_context_{n}", context_cost(touch, n))
        for case, (cost, by_hand) in making_costs(ctx, recorded).items():
            add(rows, case, Cost(cost, cost), beside=by_hand, budget_ratio=1.1)
        n = 1000
        host().library.raw_graph(n)
        graph = recorded(n)
        launches = launch_costs(ctx, graph.launch)
        total, by_hand = (cost.total / n for cost in launches["_paused"])
        graph.close()
        add(rows, "graph_replay", Cost(total, total), beside=by_hand, budget_ratio=1.05)

        @stf.replay
        def steps(data: Any) -> None:
            submit(n)

        calls = launch_costs(ctx, functools.partial(steps, data))
        steps.close()
        for case, costs in (("graph_launch", launches), ("replay_call", calls)):
            for after, (cost, by_hand) in costs.items():
                add(rows, case + after, cost, beside=by_hand.submission, budget_us=5.0, added=True)
        for case, launch in (("graph_renewed_node", by_parameter), ("replay_renewed_node", by_replay)):
            add(rows, case, renewal_cost(ctx, touch, data, launch), beside=raw["graph_renew"], budget_us=0.5)
        if importlib.util.find_spec("cupy"):  # which computes conditions
            add(rows, "loop_iteration", iteration_cost(ctx, touch, data))
        for case, uses_cuda in (("graph_around_host", True), ("graph_around_node", False)):
            around = ctx.task_graph()
            with around:
                submit(n // 2)
                ctx.host_launch(data.rw(), uses_cuda=uses_cuda)(lambda _: None)
                submit(n // 2)
            for after, (cost, _) in launch_costs(ctx, around.launch).items():
                add(rows, case + after, cost)
            around.close()
        streams = []
        for _ in range(REPEAT):
            start = time.perf_counter()
            submit(n)
            ctx.synchronize()
            streams.append((time.perf_counter() - start) / n * 1e6)
        on_streams = statistics.median(streams)
        add(rows, "graph_beside_streams", Cost(total, total), beside=on_streams, budget_ratio=1 / 3)
    return rows


def launcher_of(function: int) -> Callable[[int], None]:
    """What launches a kernel on a stream with as little Python as can be."""
    launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    argument = ctypes.c_uint64(0)
    arguments = (ctypes.POINTER(ctypes.c_uint64) * 1)(ctypes.pointer(argument))
    address, one, none = ctypes.c_void_p(function), ctypes.c_uint(1), ctypes.c_uint(0)

    def launch_on(stream: int) -> None:
        launch(address, one, one, one, one, one, one, none, ctypes.c_void_p(stream), arguments, None)

    return launch_on


def context_cost(touch: int, n: int) -> Cost:
    """Microseconds per task of a context on graphs, which launches `n` of them at a time: known graphs, and data."""
    with stf.context(devices="cuda:0", use_graph=True) as ctx:
        data = [ctx.logical_data(np.zeros(8)) for _ in range(10)]
        costs = []
        for _ in range(3 if n < 100_000 else 2):
            start = time.perf_counter()
            for i in range(n):
                ctx.launch_kernel(touch, ONE, data[i % 10].rw())
            ctx.submit()
            submitted = time.perf_counter()
            ctx.synchronize()
            costs.append(Cost((submitted - start) / n * 1e6, (time.perf_counter() - start) / n * 1e6))
            host().look()
    return median_of(costs[1:])


def capture_cost(ctx: Any, blocks: Callable[[int], None], launch: Callable[[int], None], n: int) -> tuple[float, float]:
    """What it costs to record a with-block that launches a kernel itself, without that launch; and to capture by hand.

    By hand a kernel is captured, with its launch, into a graph of its own, which is kept as long.
    """
    times = []
    by_hand = []
    for _ in range(REPEAT + 1):
        graph = ctx.task_graph()
        with graph:
            start = time.perf_counter()
            blocks(n)
            recorded = time.perf_counter() - start
        graph.close()
        with ctx.task_graph() as other, ctx.task(ctx.token().rw()) as t:
            stream = t.stream.handle
            start = time.perf_counter()
            for _ in range(n):
                launch(stream)
            times.append((recorded - (time.perf_counter() - start)) / n * 1e6)
        other.close()
        by_hand.append(host().library.raw_captures(n))
        host().look()
    return statistics.median(times[1:]), statistics.median(by_hand[1:])


def making_costs(ctx: Any, recorded: Callable[[int], Any]) -> dict[str, tuple[float, float]]:
    """What the first launch as one graph costs more than the next, per node: of a new shape, and of a known one.

    In turn with the driver's: (ours, what that takes).
    """
    times: dict[str, list[float]] = {"graph_instantiate": [], "graph_update": []}
    by_hand: dict[str, list[float]] = {case: [] for case in times}
    made_by_hand = (ctypes.c_double * 2)()
    for i in range(2 * REPEAT):
        n = 1000 + i // 2
        graph = recorded(n)
        graph.launch()  # as it was recorded: the next one is a graph
        assert graph.handle
        spent = []
        for _ in range(12):
            ctx.synchronize()
            start = time.perf_counter()
            graph.launch()
            spent.append(time.perf_counter() - start)
        first, next_ = spent[0], statistics.median(spent[1:])
        graph.close()
        ctx.synchronize()
        times["graph_update" if i % 2 else "graph_instantiate"].append((first - next_) / n * 1e6)
        host().library.raw_graph_making(n, made_by_hand)
        for case, cost in zip(by_hand, made_by_hand, strict=True):
            by_hand[case].append(cost)
    made, updated, *_ = ctx._driver.graph_statistics()
    assert made >= REPEAT and updated >= REPEAT, (made, updated)
    return {case: (statistics.median(costs), statistics.median(by_hand[case])) for case, costs in times.items()}


def recording_cost(recorded: Callable[[int], Any], n: int) -> float:
    """Microseconds per task to record graphs of `n`, as many of them as make N tasks a repetition."""
    costs = []
    for _ in range(REPEAT if n < 100_000 else 2):
        rounds, spent = max(N // n, 1), 0.0
        for _ in range(rounds):
            start = time.perf_counter()
            graph = recorded(n)
            spent += time.perf_counter() - start
            graph.close()
            host().look()
        costs.append(spent / rounds / n * 1e6)
    return statistics.median(costs)


def launch_costs(ctx: Any, launch: Callable[[], Any]) -> dict[str, tuple[Cost, Cost]]:
    """What a launch costs, in turn with the driver's: (ours, what that takes).

    In rows of a few; and ``"_paused"``, each when the one before is done, so that the host comes back to it.
    """
    raw = host().library
    for _ in range(10):
        launch()
    counts = {"": ROW, "_paused": 1}
    costs: dict[str, tuple[list[Cost], list[Cost]]] = {after: ([], []) for after in counts}
    for _ in range(LAUNCHES):
        for after, count in counts.items():
            ctx.synchronize()
            start = time.perf_counter()
            for _ in range(count):
                launch()
            submitted = time.perf_counter()
            ctx.synchronize()
            done = time.perf_counter()
            costs[after][0].append(Cost((submitted - start) / count * 1e6, (done - start) / count * 1e6))
            start = time.perf_counter()
            submission = raw.raw_graph_launch(count)
            raw.raw_settle()
            costs[after][1].append(Cost(submission, (time.perf_counter() - start) / count * 1e6))
        host().look(100)
    return {after: (median_of(ours), median_of(by_hand)) for after, (ours, by_hand) in costs.items()}


def median_of(costs: list[Cost]) -> Cost:
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def renewal_cost(ctx: Any, touch: int, data: Any, launches: Callable[..., Callable[[int], None]]) -> Cost:
    """What a number costs per node that takes it, in launches where it changes."""
    nodes = 200
    others = [ctx.logical_data(np.zeros(8)) for _ in range(2)]
    addresses = []
    for known in (data, *others):
        with ctx.task(known.rw()) as t:
            addresses.append(t.get_arg(0))
    launch = launches(ctx, data, lambda where: [ctx.launch_kernel(touch, ONE, where) for _ in range(nodes)])
    for address in 2 * addresses:
        launch(address)
    times: dict[bool, list[float]] = {False: [], True: []}
    for i in range(4 * REPEAT + 4):
        ctx.synchronize()
        changes = i % 2 == 1
        start = time.perf_counter()
        launch(addresses[(i // 2) % 2])
        times[not changes].append((time.perf_counter() - start) * 1e6)
        host().look()
    cost = (statistics.median(times[True][2:]) - statistics.median(times[False][2:])) / nodes
    return Cost(cost, cost)


def by_parameter(ctx: Any, data: Any, submit: Callable[[Any], Any]) -> Callable[[int], None]:
    """A recorded graph with a parameter."""
    graph = ctx.task_graph()
    where = graph.param("where", 0)
    with graph:
        submit(where)
    return lambda address: graph.launch(where=address)


def by_replay(ctx: Any, data: Any, submit: Callable[[Any], Any]) -> Callable[[int], None]:
    """A replayed function with a number."""

    @stf.replay
    def steps(known: Any, where: int) -> None:
        submit(where)

    return functools.partial(steps, data)


def iteration_cost(ctx: Any, touch: int, data: Any) -> Cost:
    """An iteration of a loop of one trivial kernel, whose condition is computed by CuPy, in microseconds."""
    flag, count = ctx.logical_data(np.array(1.0)), 1000
    spent = []
    for _ in range(REPEAT):
        ctx.synchronize()
        start = time.perf_counter()
        with ctx.while_loop(flag > 0.0, max_iterations=count):
            ctx.launch_kernel(touch, ONE, data.rw())
        submitted = time.perf_counter()
        ctx.synchronize()
        spent.append(((submitted - start) / count * 1e6, (time.perf_counter() - start) / count * 1e6))
    return Cost(*(statistics.median(column) for column in zip(*spent, strict=True)))


def library_rows(raw: dict[str, float]) -> list[dict[str, Any]]:
    """CuPy in tasks, beside CuPy by hand on an explicit stream."""
    try:
        import cupy
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

        pinned = np.zeros(1 << 17)
        ctx.prefetch(ctx.logical_data(pinned), stf.data_place.device(0))  # pinned from here on
        add(rows, "register_device_array", cost_of(register(other), settle, 2000), budget_us=2)
        add(rows, "register_pinned_array", cost_of(register(pinned), settle, 2000), budget_us=2)
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


def load_kernels() -> tuple[int, int]:
    """Two kernels that do nothing, as addresses of their functions."""
    from cuda.bindings import driver

    def done(result: tuple[object, ...]) -> object:
        assert result[0] == driver.CUresult.CUDA_SUCCESS, result[0]
        return result[1] if len(result) > 1 else None

    done(driver.cuInit(0))
    context = done(driver.cuDevicePrimaryCtxRetain(done(driver.cuDeviceGet(0))))
    done(driver.cuCtxSetCurrent(context))
    module = done(driver.cuModuleLoadData(PTX.encode() + b"\0"))
    names = (b"touch", b"touch4")
    return tuple(int(done(driver.cuModuleGetFunction(module, name))) for name in names)  # type: ignore[call-overload, return-value]


# -- the table -------------------------------------------------------------------------------------------------------


def add(
    rows: list[dict[str, Any]],
    case: str,
    cost: Cost,
    beside: float | None = None,
    budget_us: float | None = None,
    budget_ratio: float | None = None,
    added: bool = False,
) -> None:
    """One row: the figure, what it stands beside, and its budget: in µs (beyond the raw case if `added`) or a ratio."""
    us, clock = cost.submission, host().clock()
    row = {"case": case, "us": us, "total_us": cost.total, "beside": beside, "ratio": us / beside if beside else None}
    if budget_us is not None:
        base = beside if added and beside else 0.0
        row |= {
            "budget": f"<= {base + budget_us:.2f} us",
            "base_us": base,
            "budget_us": budget_us,
            "clock": clock,
        }
    elif budget_ratio is not None:
        row |= {"budget": f"<= {budget_ratio:.3g} x", "kept": us <= budget_ratio * beside if beside else None}
    rows.append(row)


def judge(rows: list[dict[str, Any]]) -> None:
    """Say which budgets in µs are kept, as they are and for a host whose driver calls take `clock` times as long."""
    for row in rows:
        if "budget_us" in row:
            beyond = row["us"] - row["base_us"]
            row["kept"] = beyond <= row["budget_us"]
            row["kept_at_clock"] = beyond <= row["clock"] * row["budget_us"]


def verdict(row: dict[str, Any]) -> str:
    if row.get("kept") is None:
        return ""
    if row["kept"]:
        return "kept"
    return (
        f"missed; x {row['clock']:.2f}: {'kept' if row['kept_at_clock'] else 'missed'}" if "clock" in row else "missed"
    )


def print_table(raw: dict[str, float], rows: list[dict[str, Any]]) -> None:
    print("raw driver (C):", ", ".join(f"{name} {value:.2f}" for name, value in raw.items()))
    print(f"{'case':28}{'stf':>10}{'total':>10}{'beside':>10}{'ratio':>8}  budget")
    for row in rows:
        figure = f"{row['us']:.3f}" if "us" in row else f"{row['gbps']:.1f} GB/s"
        total = f"{row['total_us']:.3f}" if "total_us" in row else ""
        beside = f"{row['beside']:.3f}" if row["beside"] else ""
        ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
        budget = row.get("budget", "")
        print(f"{row['case']:28}{figure:>10}{total:>10}{beside:>10}{ratio:>8}  {budget:14}{verdict(row)}".rstrip())


if __name__ == "__main__":
    main()
