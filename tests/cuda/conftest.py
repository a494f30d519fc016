"""Tests here need one CUDA device."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stf


@pytest.fixture(autouse=True, scope="session")
def _cuda(cuda_device_count: int) -> None:
    if cuda_device_count < 1:
        pytest.skip("no CUDA device")


os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes most of the device for itself
sys.path.insert(0, str(Path(__file__).parent))  # for the Triton kernel, whose source Triton reads

# -- one step in every way that a context has ------------------------------------------------------------------------

Prepare = Callable[[stf.Context], tuple[Callable[[], Any], Callable[[int], Any]]]
TIMES = 3
found: list[str] = []  # how each step of a library got to the device, for the end of the run


@pytest.fixture(params=["streams", "task_graph", "graph context"])
def run(request: pytest.FixtureRequest) -> Callable[[Prepare], None]:
    """Run a step of a library on streams, as a recorded graph, or in a graph context, and check it each time.

    `prepare` gets a context, and returns a step, which submits tasks, and a check of the results after so many steps.
    The end of the run tells of each step whether CUDA captured it, or why it did not.
    """
    name = f"{request.node.path.stem.removeprefix('test_')}: {request.node.name}"

    def run_it(prepare: Prepare) -> None:
        with stf.context(devices="cuda:0", use_graph=request.param == "graph context") as ctx:
            step, check = prepare(ctx)
            if request.param == "task_graph":
                with ctx.task_graph() as graph:
                    step()
                step = graph.launch
            try:
                for count in range(1, TIMES + 1):
                    step()
                    check(count)
            except stf.CaptureError as error:
                assert request.param == "graph context", error  # which says so; a recorded one runs it between graphs
                found.append(f"{name}: REFUSED: {first_line(error)}")
                return
            if request.param == "task_graph":
                found.append(f"{name}: {how_it_ran(graph._recording)}")
        if request.param == "streams":
            assert ctx._driver.leaks()[2:] == (0, 0)  # the next one has its streams and events

    return run_it


def how_it_ran(recording: Any) -> str:
    """Return whether the driver has a graph of a recording, and else why not."""
    if recording.graph.graph is not None:
        return "captured"
    from stf._recording import segments

    why = "; ".join(segments.reasons(recording).values()) or str(recording.graph.refusal)
    return f"BETWEEN GRAPHS: {why}"


def first_line(error: BaseException) -> str:
    """Return the beginning of a message."""
    return str(error).partition("\n")[0][:300]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell how the steps of libraries got to the device, and what those raised that failed: a line each, in ASCII."""
    for line in found:
        terminalreporter.write_line(f"library {line}")
    for outcome in ("failed", "error"):
        for report in terminalreporter.stats.get(outcome, ()):
            crash = getattr(report.longrepr, "reprcrash", None)
            message = str(report.longrepr) if crash is None else f"{crash.path}:{crash.lineno}: {crash.message}"
            terminalreporter.write_line(f"library {outcome.upper()} {report.nodeid}: {ascii(message)[:600]}")
