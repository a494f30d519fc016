"""Every benchmark runs, on a few tasks; what it computes besides times is right."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OVERHEAD = BENCHMARKS / "overhead"


def run(script: Path, *arguments: object) -> str:
    result = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        env=os.environ | {"PYTHONWARNINGS": "error::ResourceWarning"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, f"{script.name}\n{result.stdout}\n{result.stderr}"
    assert "Traceback" not in result.stderr
    return result.stdout


@pytest.fixture
def overhead(monkeypatch):
    """Import a module of ``benchmarks/overhead`` as its scripts do."""
    monkeypatch.syspath_prepend(str(OVERHEAD))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(OVERHEAD)):
            del sys.modules[name]


@pytest.mark.thorough
def test_overhead(tmp_path):
    out = tmp_path / "rows.json"
    run(OVERHEAD / "run.py", "--tasks", 64, "--repeat", 1, "--only", "raw", "stf", "futures", "--json", out)
    rows = json.loads(out.read_text())["rows"]
    cases = ["chain_token", "chain_data", "two_accesses", "tokens64_rw", "stencil_2rows"]
    assert list(dict.fromkeys(row["case"] for row in rows)) == cases
    stf = [row for row in rows if row["kind"] == "stf"]
    assert len(stf) == 4 * len(cases)
    for row in rows:
        assert row["tasks"] == 64
        assert 0 < row["submit_us"] <= row["total_us"]
    if any(row["contender"].startswith("empty compiled") for row in rows):
        assert all(row["ratio"] > 0 for row in rows)


def test_grain(tmp_path):
    out = tmp_path / "points.json"
    run(OVERHEAD / "grain.py", "--sizes", 16, 1024, "--budget-s", 0.001, "--repeat", 1, "--json", out)
    assert [point["size"] for point in json.loads(out.read_text())["points"]] == [16, 1024]


def test_flat(tmp_path):
    out = tmp_path / "windows.json"
    run(OVERHEAD / "flat.py", "--tasks", 200, "--json", out)
    programs = json.loads(out.read_text())
    assert len(programs) == 4
    for windows in programs.values():
        assert [window["tasks"] for window in windows] == list(range(20, 201, 20))


def test_cholesky(tmp_path):
    pytest.importorskip("scipy")
    out = tmp_path / "orders.json"
    run(BENCHMARKS / "workloads/cholesky/run.py", "--orders", 48, "--tile", 16, "--repeat", 1, "--json", out)
    (result,) = json.loads(out.read_text())
    assert result["difference"] < 1e-12


def test_gil(tmp_path):
    out = tmp_path / "gil.json"
    run(OVERHEAD / "gil.py", "--rounds", 1, "--body-s", 0.001, "--json", out)
    found = json.loads(out.read_text())
    assert {"numpy: a @ b", "numba: @njit", "numba: @njit(nogil=True)", "scipy: linalg.cholesky"} <= set(found)
    assert all(row["call_us"] > 0 and row["overlap"] > 0 for row in found.values())


@pytest.mark.thorough
def test_against_measures_every_row(overhead):
    against = overhead("against")
    for name in against.ROWS:
        assert against.ask(against.ROOT, name) > 0, name


def test_against_asks_two_trees_in_turn(overhead, monkeypatch):
    against = overhead("against")
    asked, before = [], Path("before")

    def ask(folder, name):
        asked.append(folder)
        return 2.0 if folder == before else 1.0

    monkeypatch.setattr(against, "ask", ask)
    assert against.compare(before, "wait", 2) == (2.0, 1.0, 0.5)
    assert asked == [against.ROOT, before, before, against.ROOT, against.ROOT, before]
    monkeypatch.setattr(against, "ask", lambda folder, name: None if folder == before else 1.0)
    assert against.compare(before, "wait", 2) is None


def test_predecessors_are_those_of_sequential_task_flow(overhead):
    cases = {case.id: case for case in overhead("cases").CASES}
    assert cases["chain_data"].predecessors(4) == [[], [0], [1], [2]]
    assert cases["two_accesses"].predecessors(3) == [[], [0], [1]]
    assert cases["tokens64_rw"].predecessors(66) == [[]] * 64 + [[0], [1]]
    stencil = cases["stencil_2rows"].predecessors(96)
    assert stencil[:32] == [[]] * 32
    # A task follows the writers of the three that it reads, and the readers, the same three, of what it overwrites.
    assert stencil[32:34] == [[0, 1, 31], [0, 1, 2]]
    assert stencil[65] == [32, 33, 34]


def test_programs_submit_what_they_say(overhead):
    cases = overhead("cases").CASES

    class Recording:
        """Counts as a context, as logical data and as the block of a task."""

        def __init__(self, tasks=None, index=None):
            self.tasks, self.index = tasks, index

        def read(self):
            return self.index, "read"

        def write(self):
            return self.index, "write"

        def rw(self):
            return self.index, "rw"

        def task(self, *accesses):
            self.tasks.append(accesses)
            return self

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

    for case in cases:
        count = case.count(70)
        blocks, calls = [], []
        data = [Recording(index=i) for i in range(case.data_count)]
        case.blocks(Recording(blocks), data, count)
        case.calls(
            lambda *given, into=calls, modes=case.modes: into.append(
                tuple((d.index, mode) for d, mode in zip(given, modes, strict=True))
            ),
            data,
            count,
        )
        reads_and_writes = [
            (
                sorted(i for i, mode in accesses if mode in ("read", "rw")),
                sorted(i for i, mode in accesses if mode in ("write", "rw")),
            )
            for accesses in blocks
        ]
        assert len(blocks) == count
        assert calls == blocks
        assert reads_and_writes == [(sorted(r), sorted(w)) for r, w in case.accesses(count)]


def test_grain_lies_between_two_sizes(overhead):
    grain = overhead("grain")
    points = [grain.Point(0, 0, us, speedup, 0.0) for us, speedup in ((1, 0.2), (10, 0.5), (100, 1.5), (1000, 1.9))]
    assert grain.grain(points, 1.0) == pytest.approx(10**1.5)
    assert grain.grain(points, 0.1) == 1
    assert grain.grain(points, 2.0) == float("inf")


def test_flat_tells_growth(overhead):
    flat = overhead("flat")

    def windows(cpu_us, grown):
        return [flat.Window((i + 1) * 100_000, 1.0, cpu_us(i), 10**8 + grown * i * 100_000) for i in range(10)]

    assert flat.verdict(windows(lambda i: 9.0 if i == 0 else 1.0, 0))[2]
    assert not flat.verdict(windows(lambda i: 1.0 + i / 10, 0))[2]
    assert not flat.verdict(windows(lambda i: 1.0, 16))[2]


def test_pictures_are_drawn(overhead, tmp_path):
    pytest.importorskip("matplotlib")
    chart, bench, grain, flat = (overhead(name) for name in ("chart", "run", "grain", "flat"))
    rows = [
        bench.Row(case, name, kind, 10, [1e-6 * i], [2e-6 * i], float(i))
        for case in ("chain_data", "stencil_2rows")
        for i, (name, kind) in enumerate((("a call", "raw"), ("ours", "stf"), ("theirs", "rival")), 1)
    ]
    points = [grain.Point(0, 0, us, speedup, speedup / 2) for us, speedup in ((1, 0.5), (10, 1.2), (100, 1.9))]
    windows = [flat.Window(i, 1.0, 2.0, 10**8) for i in range(1, 4)]
    chart.draw_overhead(rows, {"ours": 5.0}, tmp_path / "overhead.png")
    chart.draw_grain(points, 2, 7.5, tmp_path / "grain.png")
    chart.draw_flat({"one": windows, "other": windows}, tmp_path / "flat.png")
    for name in ("overhead", "grain", "flat"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_cholesky_for_gpus_on_emulated_devices(tmp_path):
    """The program as it is for GPUs, with NumPy's operations."""
    out = tmp_path / "rows.json"
    script = BENCHMARKS / "workloads" / "cholesky_gpu" / "run.py"
    blocks = ("--tile", 32, "--chunk", 2, "--memory", "device,pageable")
    options = ("--kernels", "arrays", "--library", "numpy", "--no-rivals", "--sizes", "100,128", "--repeat", 1)
    printed = run(script, *options, *blocks, "--devices", "1,2", "--json", out)
    rows = json.loads(out.read_text())["rows"]
    one, two = [(n, 1) for n in (100, 100, 128, 128)], [(n, 2) for n in (100, 128) for _ in range(6)]
    assert [(row["order"], row["devices"]) for row in rows] == one + two
    assert [row["settings"].split("lanes")[1] for row in rows[4:7]] == ["", ", a thread each", ", place auto"]
    assert all(list(row["host_ms"]) == ["body", "waits", "copies", "engine"] for row in rows)
    assert all(min(row["host_ms"].values()) >= 0 < row["host_ms"]["engine"] for row in rows)
    assert all(row["error"] < 1e-14 and len(row["seconds"]) == 1 for row in rows)
    assert all(0 < row["submitted"][0] < row["seconds"][0] for row in rows)
    assert "WRONG" not in printed


@pytest.mark.thorough
def test_what_a_profile_is_made_of():
    assert "300 programs, 0 failed" in run(BENCHMARKS / "cuda" / "train.py")


def test_cost_model_of_cholesky():
    printed = run(BENCHMARKS / "workloads" / "cholesky_gpu" / "plan.py", 4096, 2)
    rates = [float(line.split()[3]) for line in printed.splitlines()[1:]]
    assert len(rates) == 12 and 1 < min(rates) < max(rates) < 2 * 57


def test_out_of_core(tmp_path):
    out = tmp_path / "rows.json"
    script = BENCHMARKS / "workloads" / "out_of_core" / "run.py"
    run(script, "--tiles", 8, "--parts", 0.5, "--orders", "left-looking", "--json", out)
    by_last_use, by_next_use = json.loads(out.read_text())
    assert by_next_use["inward"] <= by_last_use["inward"] and by_next_use["rule"] == "plan"


WORKLOADS = {
    "product": ("--order", 64, "--tile", 16),
    "lu": ("--order", 64, "--tile", 16),
    "stencil": ("--rows", 32, "--columns", 24, "--steps", 6),
    "conjugate_gradient": ("--points", 12, "--steps", 8),
    "weather": ("--cells", 12, "--steps", 3),
}
COPIES = {"stencil": 6 * 2 * 3}  # between four devices: two edges at each border in each step


@pytest.mark.parametrize("name", WORKLOADS)
def test_workload(name, tmp_path):
    """The script itself compares each result with its rival's."""
    pytest.importorskip("numba" if name in ("weather", "conjugate_gradient") else "scipy")
    out = tmp_path / "rows.json"
    script = BENCHMARKS / "workloads" / name / "run.py"
    run(script, *WORKLOADS[name], "--devices", "1,2,4", "--simulate", "1,4", "--repeat", 1, "--json", out)
    rows = {row["name"]: row for row in json.loads(out.read_text())}
    assert [row for row in rows if "stf," in row] == ["stf, cpu:1", "stf, cpu:2", "stf, cpu:4"]
    assert rows["1 simulated"]["copies"] == 0 < rows["4 simulated"]["copies"]
    assert rows["4 simulated"]["copies"] == COPIES.get(name, rows["4 simulated"]["copies"])


def test_predicted_beside_measured():
    """The script compares the copies of plan and run; times on a busy machine are not looked at."""
    printed = run(BENCHMARKS / "workloads" / "placement" / "predicted.py", "--repeat", 1)
    rows = [line.split() for line in printed.splitlines()[1:]]
    assert [row[0] for row in rows] == ["cholesky", "cholesky", "stencil", "stencil", "halo", "halo"]
    assert all(0.2 < float(row[6]) < 2.0 for row in rows)


TASK_BENCH = BENCHMARKS / "task_bench"


@pytest.fixture
def task_bench(monkeypatch):
    """Import a module of ``benchmarks/task_bench`` as its script does."""
    pytest.importorskip("numba")
    monkeypatch.syspath_prepend(str(TASK_BENCH))
    names = [".".join(file.relative_to(TASK_BENCH).with_suffix("").parts) for file in TASK_BENCH.rglob("*.py")]
    mine = {name.removesuffix(".__init__") for name in names}
    for name in mine & set(sys.modules):
        monkeypatch.delitem(sys.modules, name)  # of another benchmark, with the same name
    yield importlib.import_module
    for name in mine:
        sys.modules.pop(name, None)


def test_patterns_of_task_bench(task_bench):
    graph_of = task_bench("patterns").Graph
    assert graph_of("stencil_1d", 4).row(1) == [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3]]
    assert graph_of("stencil_1d_periodic", 4).row(7) == [[0, 1, 3], [0, 1, 2], [1, 2, 3], [0, 2, 3]]
    assert [graph_of("fft", 4).row(step)[0] for step in range(4)] == [[], [0, 1], [0, 2], [0, 1]]
    assert [graph_of("tree", 4).row(step) for step in range(3)] == [[[]], [[0], [0]], [[0], [0], [1], [1]]]
    assert graph_of("spread", 10).row(2)[9] == [2, 4, 6, 8, 9]
    assert graph_of("nearest", 8).row(1)[4] == [2, 3, 4, 5, 6]
    assert graph_of("all_to_all", 3).row(5) == [[0, 1, 2]] * 3
    drawn = graph_of("random_nearest", 32)
    assert drawn.row(1) == graph_of("random_nearest", 32).row(1) != drawn.row(2)
    for pattern in task_bench("patterns").PATTERNS:
        graph = graph_of(pattern, 6)
        steps = graph.steps_for(300)
        assert (steps - graph.first) % graph.period == 0 and graph.period % 2 == 0
        assert graph.count(steps) == sum(len(graph.row(step)) for step in range(steps)) >= 2 * graph.period
        assert graph.row(graph.first) == graph.row(graph.first + graph.period)
        for step in range(1, steps):
            assert all(0 <= i < len(graph.row(step - 1)) for inputs in graph.row(step) for i in inputs)


def test_task_bench_computes_what_numpy_does(task_bench, monkeypatch):
    """Every pattern on every runner that is installed; those in other processes run one pattern."""
    metg, patterns, runners, script = map(task_bench, ("metg", "patterns", "runners", "run"))
    ran = set()
    for made in script.RUNNERS:
        if made.name in ("Ray", "dask.distributed"):
            continue
        for pattern in patterns.PATTERNS:
            try:
                runner = made(patterns.Graph(pattern, 4), "cpu")
            except runners.Missing:
                break
            metg.check(runner, 16)
            ran.add(made.name)
            if made.name == "concurrent.futures":
                runner.last[0][0].result()[2] += 1
                with pytest.raises(AssertionError, match="checksums"):
                    metg.must_be(runner.graph, runner.graph.first + 3 * runner.graph.period, 16, runner.rows(), "it")
            runner.close()
    assert ran >= {"stf, streamed", "stf, kernels", "stf, task_graph", "stf, @stf.replay", "concurrent.futures"}


def test_task_bench_is_measured(task_bench, tmp_path):
    out, picture = tmp_path / "curves.json", tmp_path / "curves.png"
    options = ("--patterns", "stencil_1d", "--runners", "streamed", "futures", "--width", 4, "--budget-s", 0.001)
    printed = run(TASK_BENCH / "run.py", *options, "--repeat", 1, "--json", out)
    assert "METG(50 %), us" in printed
    curves = json.loads(out.read_text())["curves"]
    assert [curve["runner"] for curve in curves] == ["stf, streamed", "concurrent.futures"]
    assert all(point["granularity_us"] > 0 < point["efficiency"] for curve in curves for point in curve["points"])
    again, cores = task_bench("run").read_json(out)
    assert cores >= 1 and [curve.metg_us for curve in again] == [curve["metg_us"] for curve in curves]
    pytest.importorskip("matplotlib")
    curve_of, point_of = task_bench("metg").Curve, task_bench("metg").Point
    points = [point_of(i, 2, 8, 0.1, us, part, 1.0) for i, (us, part) in enumerate(((4.0, 0.25), (16.0, 0.75)))]
    curves = [curve_of("fft", name, kind, points) for name, kind in (("one", "stf"), ("other", "peer"))]
    assert curves[0].metg_us == pytest.approx(8.0)
    task_bench("chart").draw(curves, 2, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
