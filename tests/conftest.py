"""What tests of every kind share."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("STF_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "cache"))  # read when stf is imported

import stf
from stf._recording import persistent
from stf.places import stream_pools

sys.path.insert(0, str(Path(__file__).parent))  # the tests import `helpers`

from helpers import QUICK

INHERITED = ("STF_PURE", "STF_CACHE_DIR")
if os.environ.get("STF_TEST_GRAPH_BACKEND") == "persistent":  # what can be a loop is one from its first launch on
    persistent.runs_before = 0


@pytest.fixture(scope="session")
def cuda_device_count() -> int:
    """Count the CUDA devices; skip where there is no driver or no device. A driver that fails is an error."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        driver = ctypes.CDLL(name)
    except OSError:
        pytest.skip(f"no CUDA driver: {name} is not there")
    no_device = 100  # CUDA_ERROR_NO_DEVICE
    status = driver.cuInit(0)
    if status == no_device:
        pytest.skip("no CUDA device")
    assert status == 0, f"cuInit failed with {status}"
    count = ctypes.c_int()
    assert driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value


# -- the quick set -------------------------------------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``thorough`` where STF_TEST_QUICK is set, as `make test` does."""
    if QUICK:
        left_out = [item for item in items if is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_left_out(item)]


def is_left_out(item: pytest.Item) -> bool:
    """Whether `make test` leaves a test out. Of the rows each test has one, on streams or as a graph; uncompiled, streams."""
    if item.get_closest_marker("thorough"):
        return True
    if stf.config.pure:
        return "cpu" in item.name and "stream-cpu" not in item.name
    row = re.search(r"(stream|graph)-c", item.name)
    if row is None:
        return False
    of_streams = any(map(item.get_closest_marker, ("at_once", "not_captured", "uncapturable")))
    has_graph = not of_streams and zlib.crc32(item.originalname.encode()) % 2 == 1
    return (row[1] == "graph") != has_graph


# -- contexts ------------------------------------------------------------------------------------------------------

# Every (backend, driver) that the bodies of tests/conformance and tests/errors run on. `make test` takes two: each backend
# once, and once a device that shares the host's memory; compiled, one of them for each test.
MATRIX = [
    pytest.param({"devices": "cpu"}, id="stream-cpu", marks=pytest.mark.thorough),
    pytest.param({"devices": "cpu:3"}, id="stream-cpu3"),
    pytest.param({"devices": "cpu", "use_graph": True}, id="graph-cpu"),
    pytest.param({"devices": "cpu:3", "use_graph": True}, id="graph-cpu3", marks=pytest.mark.thorough),
]
if os.environ.get("STF_TEST_DEVICES"):  # "cuda": the same tests on GPUs (make gpu-test)
    DEVICES = os.environ["STF_TEST_DEVICES"]
    MATRIX = [
        pytest.param({"devices": DEVICES}, id="stream-cuda"),
        pytest.param({"devices": DEVICES, "use_graph": True}, id="graph-cuda"),
    ]


def stand_in_leaks() -> dict[str, int]:
    """What is alive in the stand-in for CUDA's driver, where the tests run on it, less what our CuPy keeps."""
    try:
        from fakecuda import leaks
    except ImportError:  # it is on the path of those who want it (make fakecuda-test)
        return {}
    alive = leaks()
    cupy = sys.modules.get("cupy")
    if cupy is not None and "allocations" in alive:
        alive["allocations"] -= cupy.get_default_memory_pool().n_blocks
    return {kind: n for kind, n in alive.items() if n}


class ContextFactory:
    """Opens contexts; at the end each is finalized and must have given everything back."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.opened: list[stf.Context] = []

    def __call__(self, **options: Any) -> stf.Context:
        context = stf.context(**(self.options | options))
        self.opened.append(context)
        return context

    @property
    def shares_host(self) -> bool:
        """Whether device(0) works in host memory: then nothing is ever copied."""
        return self.options["devices"] == "cpu"

    @property
    def device_count(self) -> int:
        """How many devices a context has."""
        name = self.options["devices"]
        if name.startswith("cpu"):
            return int(name.partition(":")[2] or 1)
        from stf._drivers.cuda.devices import device_count

        return len(name.partition(":")[2].split(",")) if ":" in name else device_count()

    def close(self) -> None:
        for context in self.opened:
            if context.engine.closed is None:
                context.check_state()
                context.finalize()
            assert list(context.engine.opened()) == []
            assert [pool.used for pool in context.engine.coherency.pools if pool.used] == []
            if context._resources is None:
                assert context._driver.live_allocations == 0
                assert context._driver.errors == []
                if context._driver.name == "cuda":
                    assert context._driver.leaks()[2:] == (0, 0)  # the next one has its streams and events
        if not any(context._resources for context in self.opened):
            stream_pools.forget()  # which the process would keep
            if stand_in_leaks():
                gc.collect()  # of an earlier test: Resources that its traceback held
                stf.context(
                    devices="cuda:0"
                ).finalize()  # and graphs that went after their driver: the next one frees that
            assert stand_in_leaks() == {}


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Expect that a test marked ``uncapturable`` is refused by a graph context on CUDA; no other test may be."""
    outcome = yield
    why = pyfuncitem.get_closest_marker("uncapturable")
    if why is None or "graph-cuda" not in pyfuncitem.name:
        return
    if outcome.excinfo is None:
        outcome.force_exception(pytest.fail.Exception(f"it is captured; it is marked uncapturable: {why.args[0]}"))
    elif is_capture_refused(outcome.excinfo[1]):
        outcome.force_exception(pytest.xfail.Exception(f"it cannot be captured: {why.args[0]}"))


def is_capture_refused(error: BaseException | None) -> bool:
    """Whether an error, or what it comes from, says that a body cannot be captured."""
    while error is not None:
        if isinstance(error, stf.CaptureError):
            return True
        error = error.__cause__ or error.__context__
    return False


@pytest.fixture(params=MATRIX)
def ctx_factory(request: pytest.FixtureRequest) -> Iterator[ContextFactory]:
    """Make contexts on one (backend, driver) after the other."""
    why = request.node.get_closest_marker("at_once")
    if why is not None and request.param.get("use_graph"):
        pytest.skip(f"a graph context gathers tasks: {why.args[0]}")
    why = request.node.get_closest_marker("not_captured")
    if why is not None and "graph-cuda" in request.node.name:
        pytest.skip(f"a graph context on CUDA captures its bodies: {why.args[0]}")
    factory = ContextFactory(request.param)
    yield factory
    factory.close()


@pytest.fixture
def ctx(ctx_factory: ContextFactory) -> stf.Context:
    """A context on one (backend, driver) after the other."""
    return ctx_factory()


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program in a process of its own: ``run_python(code, STF_BLOCKING="1")``."""

    def run(code: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "program.py"
        script.write_text("import numpy as np\nimport stf\n" + textwrap.dedent(code))
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("STF_", "CUDASTF_")) or k in INHERITED}
        where = os.pathsep.join([str(Path(stf.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, *options, str(script)],
            env=inherited | {"PYTHONPATH": where} | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
        )

    return run
