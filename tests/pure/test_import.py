"""`import stf` is cheap and loads no library that a program may not need."""

from __future__ import annotations

import ast
import os
import statistics
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import stf
import stf.observe
import stf.placement

LIMIT = 1.5  # times the import of NumPy; about 0.45, compiled or not
FOREIGN = ("numba", "llvmlite", "cuda", "cupy", "torch", "scipy", "matplotlib", "networkx")
SLOW = {  # modules that take milliseconds to load, and that a program of tasks does not need
    "asyncio",
    "concurrent.futures",
    "hashlib",
    "html",
    "json",
    "numpy.random",
    "pathlib",
    "random",
    "subprocess",
    "sysconfig",
    "stf._drivers.wrappers.hostile",
    "stf.data.checkpoints",
    "stf.data.partitioned",
    "stf.graphs.repeated_windows",
    "stf.graphs.replay",
    "stf.graphs.task_graph",
    "stf.kernels.foreign_kernels",
    "stf.kernels.gpu_loops",
    "stf.kernels.launch",
    "stf.kernels.parallel_for",
    "stf.observe.statistics",
    "stf.places.partition",
    "stf.planning.plan",
    "stf.tasks.grid_task",
}
WATCHING = ("stf.observe.dot", "stf.observe.trace", "stf.observe.why", "stf.observe.draw")


def run(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60, env=os.environ | env
    )
    return done.stdout


def test_import_loads_no_foreign_library() -> None:
    loaded = run("import sys, stf; print(*sorted({name.partition('.')[0] for name in sys.modules}))").split()
    assert "stf" in loaded
    assert [name for name in FOREIGN if name in loaded] == []


def test_import_loads_nothing_slow_that_few_need() -> None:
    code = "import sys, numpy; before = set(sys.modules); import stf; print(*set(sys.modules) - before)"
    assert sorted(SLOW & set(run(code).split())) == []


@pytest.mark.parametrize("name", ["parallel_for", "launch", "launch_kernel", "cuda_kernel"])
def test_kernels_are_loaded_when_a_method_is_asked_for(name: str) -> None:
    code = f"""
import inspect, sys, stf
first = stf.Context.{name}
assert first is stf.Context.{name} is vars(stf.Context)[{name!r}], first
assert first.__name__ == {name!r} and first.__doc__
assert "context" in inspect.signature(first).parameters
"""
    run(code)


@pytest.mark.parametrize("package", [stf, stf.observe, stf.placement], ids=lambda package: package.__name__)
def test_each_name_that_is_loaded_late_is_what_type_checkers_see(package: ModuleType) -> None:
    tree = ast.parse(Path(str(package.__file__)).read_text())
    block = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    late = {name for name in package.__all__ if name not in imported_by(tree)}
    seen = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom) and statement.module is not None
        module = f"{package.__name__}.{statement.module}" if statement.level else statement.module
        seen |= {alias.name: module for alias in statement.names}
    assert seen.keys() == late
    for name, module in seen.items():
        assert getattr(package, name) is getattr(sys.modules[module], name)


def imported_by(tree: ast.Module) -> set[str]:
    return {alias.name for n in tree.body if isinstance(n, ast.ImportFrom) for alias in n.names}


def test_import_loads_nothing_that_watches() -> None:
    loaded = run("import sys, stf; print(*sys.modules)").split()
    assert [name for name in WATCHING if name in loaded] == []


def test_what_watches_is_loaded_when_it_is_asked_for() -> None:
    assert run("import stf; print(stf.observe.observer.Observer is stf.observe.Observer)").strip() == "True"
    assert run("import stf; print(hasattr(stf.observe, 'nothing'))").strip() == "False"


def test_import_takes_little_beside_numpy(tmp_path: Path) -> None:
    """Processor time of stf's own modules as a share of NumPy's, in one process: a slow machine slows both.

    Both have their bytecode: where Python may write none, it compiles stf's source in each process, but not NumPy's.
    """
    code = (
        "from time import process_time; start = process_time(); import numpy; middle = process_time(); import stf; "
        "print((process_time() - middle) / (middle - start))"
    )
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    run(code, **bytecode)
    ratios = [float(run(code, **bytecode)) for _ in range(3)]
    assert statistics.median(ratios) < LIMIT, ratios


def test_a_context_without_cuda_loads_nothing_of_it() -> None:
    code = """
import sys, stf
from stf.devices.make import cuda_library
stf.context().finalize()
assert cuda_library() is not None or not [name for name in sys.modules if name.partition(".")[0] == "cuda"]
"""
    run(code, STF_DEVICES="")


INTERRUPTED = """
import itertools, os, signal, stf

def interrupt(*_):
    raise TimeoutError

signal.signal(signal.SIGALRM, interrupt)
told = 0
for _ in range(5):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        list(map(list, itertools.repeat((), 1_000_000)))  # the collector runs in it, and no bytecode
        signal.setitimer(signal.ITIMER_REAL, 0)
    except TimeoutError:
        told += 1
print(told)
"""


def test_what_a_handler_of_signals_raises_arrives() -> None:
    assert run(INTERRUPTED).strip() == "5"
