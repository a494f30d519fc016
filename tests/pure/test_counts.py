"""The budgets in counts of performance.md, on the recorder; and that both forms of the engine decide the same."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import stf


def load() -> ModuleType:
    path = Path(__file__).with_name("recorded.py")
    spec = importlib.util.spec_from_file_location("recorded", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


recorded = load()


@pytest.mark.parametrize("n", [1, 2, 10, 1000])
def test_chain_of_n_tasks_on_one_data(n: int) -> None:
    bench = recorded.chain(n)
    assert bench.counts() == (n + 2, 2, 1, 2)
    assert bench.port.frees == 1


@pytest.mark.parametrize("n", [1, 10, 64, 500])
def test_n_tasks_on_n_data(n: int) -> None:
    assert recorded.independent(n).counts() == (2 * n, n, n, n)


@pytest.mark.parametrize("m", [1, 2, 32, 100])
def test_fork_join(m: int) -> None:
    records, waits, allocs, copies = recorded.fork_join(m).counts()
    assert (records, allocs, copies) == (m + 2, 0, 0)
    assert waits <= 2 * m


@pytest.mark.parametrize("m", [1, 32])
def test_fork_join_with_data(m: int) -> None:
    records, _, allocs, copies = recorded.fork_join(m, data=True).counts()
    assert (allocs, copies) == (m + 1, 0)  # what is written first is not copied in
    assert records == m + 2


@pytest.mark.parametrize("tokens", [True, False])
def test_stencil(tokens: bool) -> None:
    width, steps = 32, 300
    bench = recorded.stencil(width, steps, tokens, log=True)
    records, waits, _, copies = bench.counts()
    tasks = width * steps
    assert records == tasks + copies
    assert copies == (0 if tokens else width)
    assert waits <= 2 * tasks
    assert_no_wait_is_repeated(bench.port.log)


def assert_no_wait_is_repeated(log: list[tuple]) -> None:
    """A lane never waits for what it, or its own past, has waited for."""
    seen: dict[tuple[int, int], int] = {}
    for entry in log:
        if entry[0] == "wait":
            _, lane, other, sequence = entry
            assert lane != other
            assert seen.get((lane, other), 0) < sequence, entry
            seen[lane, other] = sequence


def test_one_task_starts_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits while the first worker still starts does not start another one."""
    monkeypatch.setattr(stf.config, "cpu_workers", 4)
    for _ in range(50):
        with stf.context(devices="cpu") as ctx:
            data = ctx.logical_data_empty(8)
            ctx.host_launch(data.write(), fn=lambda x: x.fill(1))
            ctx.wait(data)
            assert ctx._driver.workers == 1


@pytest.mark.parametrize("name", sorted(recorded.PROGRAMS))
def test_no_program_repeats_a_wait(name: str) -> None:
    assert_no_wait_is_repeated(recorded.PROGRAMS[name](log=True).port.log)


def decisions(pure: bool) -> str:
    path = Path(__file__).with_name("recorded.py")
    source = str(Path(stf.__file__).parents[1])
    environment = {**os.environ, "STF_PURE": str(int(pure)), "PYTHONPATH": source}
    return subprocess.run(
        [sys.executable, str(path)], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_both_forms_decide_the_same() -> None:
    """Where nothing is compiled, both are the same form."""
    compiled, pure = decisions(False), decisions(True)
    assert compiled.count("\n") == len(recorded.PROGRAMS)
    assert compiled == pure
