"""What run.py measures of recorded tasks: recording, making, launching and renewing graphs, beside the driver's calls."""

from __future__ import annotations

import ctypes
import functools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from measuring import LAUNCHES, ONE, REPEAT, ROW, Cost, N, add, host, load_kernels, median_of

import stf


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
            cost = recording_cost(ctx, recorded, n)
            add(rows, f"graph_chain_kernel_{n}", cost, beside=raw["graph_add"], budget_us=1.0)
        touch_by_hand = launcher_of(touch)
        for n in (100, 1000, 10_000, 100_000):
            captured, by_hand = capture_cost(ctx, blocks, touch_by_hand, n)
            add(rows, f"graph_captured_{n}", Cost(captured), beside=by_hand, budget_us=3)
        add_flatness(rows, "graph_chain_kernel", "graph_captured")
        for n in (100, 1000, 10_000, 100_000):
            add(rows, f"graph_context_{n}", context_cost(touch, n))
        for n in (100, 1000, 10_000, 100_000):
            add(rows, f"graph_chain_token_{n}", token_cost(n), budget_us=3)
        add_flatness(rows, "graph_context", "graph_chain_token")
        for case, (cost, by_hand) in making_costs(ctx, recorded).items():
            add(rows, case, Cost(cost), beside=by_hand, budget_ratio=1.1)
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
        add(rows, "graph_rebound_node", rebinding_cost(ctx, touch, data), beside=raw["graph_renew"], budget_us=0.5)
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


def add_flatness(rows: list[dict[str, Any]], *cases: str) -> None:
    """What a task costs among 100,000 beside one among 100 or 1,000; hosts change by the second, so half of it more."""
    known = {row["case"]: row for row in rows}
    for case in cases:
        many = known[f"{case}_100000"]
        few = min((known[f"{case}_{n}"] for n in (100, 1000)), key=lambda row: row["us"])
        add(rows, f"{case}_flat", Cost(many["us"]), beside=few["us"], budget_ratio=1.5)
        pace = max(many["host"] / few["host"], 1.0)  # of the host, which may have become slower between the two
        rows[-1] |= {"clock": pace, "at_clock": math.nan, "kept_at_clock": many["us"] <= 1.5 * pace * few["us"]}


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
        for _ in range(max(N // n, 2) + 1 if n < 100_000 else 4):
            start = time.perf_counter()
            for i in range(n):
                ctx.launch_kernel(touch, ONE, data[i % 10].rw())
            ctx.submit()
            submitted = time.perf_counter()
            ctx.synchronize()
            costs.append(Cost((submitted - start) / n * 1e6, (time.perf_counter() - start) / n * 1e6))
            host().look()
    return median_of(costs[1:])


def token_cost(n: int) -> Cost:
    """Microseconds per task of a context on graphs: with-blocks that ask for their stream, one after the other."""
    with stf.context(devices="cuda:0", use_graph=True) as ctx:
        token, costs = ctx.token(), []
        for _ in range(max(N // n, REPEAT) + 1 if n < 100_000 else 3):
            start = time.perf_counter()
            for _ in range(n):
                with ctx.task(token.rw()) as t:
                    t.stream_ptr()
            ctx.submit()
            submitted = time.perf_counter()
            ctx.synchronize()
            costs.append(Cost((submitted - start) / n * 1e6, (time.perf_counter() - start) / n * 1e6))
            for _ in range(max(n // 100, 1)):
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
    made, updated, *_ = ctx._driver.graphs.statistics()
    assert made >= REPEAT and updated >= REPEAT, (made, updated)
    return {case: (statistics.median(costs), statistics.median(by_hand[case])) for case, costs in times.items()}


def recording_cost(ctx: Any, recorded: Callable[[int], Any], n: int) -> Cost:
    """Microseconds per task to record graphs of `n`, as many of them as make N tasks a repetition.

    In all: to record one, to have the driver make it, and to launch it once.
    """
    costs = []
    for _ in range(REPEAT if n < 100_000 else 2):
        rounds, spent, in_all = max(N // n, 1), 0.0, 0.0
        for _ in range(rounds):
            ctx.synchronize()
            start = time.perf_counter()
            graph = recorded(n)
            spent += time.perf_counter() - start
            assert graph.handle
            graph.launch()
            ctx.synchronize()
            in_all += time.perf_counter() - start
            graph.close()
            host().look()
        costs.append(Cost(spent / rounds / n * 1e6, in_all / rounds / n * 1e6))
    return median_of(costs)


def launch_costs(ctx: Any, launch: Callable[[], Any]) -> dict[str, tuple[Cost, Cost]]:
    """What a launch costs, in turn with the driver's: (ours, what that takes).

    In rows of a few; and ``"_paused"``, each when the one before is done, so that the host comes back to it. Those of
    one kind come after each other, as in a program: what the host has in its caches is theirs.
    """
    raw = host().library
    for _ in range(10):
        launch()
    times = {"": (1, ROW), "_paused": (ROW, 1)}
    costs: dict[str, tuple[list[Cost], list[Cost]]] = {after: ([], []) for after in times}
    for _ in range(LAUNCHES):
        for after, (rounds, count) in times.items():
            ctx.synchronize()
            for _ in range(rounds):
                start = time.perf_counter()
                for _ in range(count):
                    launch()
                submitted = time.perf_counter()
                ctx.synchronize()
                done = time.perf_counter()
                costs[after][0].append(Cost((submitted - start) / count * 1e6, (done - start) / count * 1e6))
            for _ in range(rounds):
                start = time.perf_counter()
                submission = raw.raw_graph_launch(count)
                raw.raw_settle()
                costs[after][1].append(Cost(submission, (time.perf_counter() - start) / count * 1e6))
        host().look(100)
    return {after: (median_of(ours), median_of(by_hand)) for after, (ours, by_hand) in costs.items()}


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
    return Cost(cost)


def rebinding_cost(ctx: Any, touch: int, data: Any) -> Cost:
    """What other data cost per node that works on them, in launches of which each has others than the last ones."""
    nodes = 200
    others = [ctx.logical_data(np.zeros(8)) for _ in range(9)]
    with ctx.task_graph() as graph:
        for _ in range(nodes):
            ctx.launch_kernel(touch, ONE, data.rw())
    for other in 2 * others:
        graph.launch({data: other})
    times: dict[bool, list[float]] = {False: [], True: []}
    for i in range(4 * REPEAT + 4):
        ctx.synchronize()
        changes = i % 2 == 1
        start = time.perf_counter()
        graph.launch({data: others[(i + 1) // 2 % 9]})
        times[changes].append((time.perf_counter() - start) * 1e6)
        host().look()
    graph.close()
    cost = (statistics.median(times[True][2:]) - statistics.median(times[False][2:])) / nodes
    return Cost(cost)


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
    """An iteration of a loop of one trivial kernel and a condition of a scalar, in microseconds."""
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
