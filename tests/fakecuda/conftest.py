"""Tests that run in a process of their own, on the stand-in for CUDA's driver library and for CuPy."""

from __future__ import annotations

import importlib.util
import inspect
import os
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OURS = ("FAKECUDA_", "STF_")  # variables that only a test sets, but for where compiled kernels are kept

PRELUDE = """
import os, threading
import numpy as np
import pytest
import cupy, fakecuda, stf

@stf.task
def add(x: stf.ReadWrite, n=1):
    x += n

def calls(*names):
    return sum(fakecuda.calls(name) for name in names)

def nothing_left():
    cupy.get_default_memory_pool().free_all_blocks()
    assert fakecuda.leaks() == {}, fakecuda.leaks()

COPIES = "cuMemcpyAsync", "cuMemcpy3DPeerAsync", "cuMemcpyPeerAsync"
"""


def load(name):
    """Import a module of this folder, which is not on the path: it has a CuPy of its own."""
    spec = importlib.util.spec_from_file_location(f"fakecuda_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def builder():
    return load("build")


@pytest.fixture(scope="session")
def library(builder, tmp_path_factory):
    """The folder of the stand-in, which can be built without stf."""
    if what := builder.missing():
        pytest.skip(f"not there: {what}")
    where = os.environ.get("FAKECUDA_FOLDER")  # of a library that is kept
    return builder.build(Path(where) if where else tmp_path_factory.mktemp("fakecuda")).parent


@pytest.fixture(scope="session")
def folder(builder, request):
    """The folder of the stand-in, for stf to run on."""
    if what := builder.missing_for_stf():
        pytest.skip(f"not there: {what}")
    return request.getfixturevalue("library")


@pytest.fixture(scope="session")
def forks(library):
    """What starts processes on the stand-in."""
    forks = load("forks").Forks(
        {k: v for k, v in os.environ.items() if not k.startswith(OURS) or k == "STF_CACHE_DIR"}
        | {"LD_LIBRARY_PATH": str(library)}
    )
    yield forks
    forks.close()


@pytest.fixture
def run(tmp_path, request):
    """Run the body of a function in a process of its own, after the module's ``PRELUDE`` and `before`.

    That is text, or a function whose body it is. Where stf cannot run on the stand-in, a module's tests run all the same
    if its ``NEEDS_STF`` is False.
    """
    folder = request.getfixturevalue("folder" if getattr(request.module, "NEEDS_STF", True) else "library")

    def run(function, before="", **settings):
        import stf

        before = before if isinstance(before, str) else source_of(before)
        environment = {k: v for k, v in os.environ.items() if not k.startswith(OURS) or k == "STF_CACHE_DIR"}
        path = os.pathsep.join([str(HERE), str(Path(stf.__file__).parents[1])])
        environment.update(settings, LD_LIBRARY_PATH=str(folder), PYTHONPATH=path, STF_DEVICES="cuda")
        script = tmp_path / "body.py"  # a file, for the sake of tracebacks
        script.write_text(getattr(request.module, "PRELUDE", PRELUDE) + before + source_of(function))
        done = request.getfixturevalue("forks").run(script, environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def source_of(function):
    """The lines of a function's body."""
    lines = inspect.getsourcelines(function)[0]
    head = next(number for number, line in enumerate(lines) if line.lstrip().startswith("def "))
    return textwrap.dedent("".join(lines[head + 1 :]))


PLAIN = 3  # tests of each module


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """All but the first few of a module, its plain cases, are thorough."""
    seen = {}
    for item in items:
        if item.path.parent == HERE and not item.get_closest_marker("thorough"):
            names = seen.setdefault(item.path, {})
            names.setdefault(item.name, len(names))
            if names[item.name] >= PLAIN:
                item.add_marker(pytest.mark.thorough)
