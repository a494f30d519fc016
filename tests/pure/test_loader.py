"""Compiled or not: what is loaded, and what is said about it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from stf._support import loader

SOURCES = Path(loader.__file__).parents[1]


def run(code: str, **environment: str) -> str:
    """Run `code` in a fresh interpreter and return what it prints."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("STF_", "CUDASTF_"))}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


IMPORT_ALL = """
import importlib, pathlib, stf
from stf._support import loader
for name, stem in loader._compilable().items():
    if stem.with_suffix(".py").exists():
        print(name, importlib.import_module(name).__file__)
"""


def has_extension(source: Path) -> bool:
    return any(source.with_suffix(suffix).exists() for suffix in EXTENSION_SUFFIXES)


def test_pure_loads_every_module_from_its_source() -> None:
    files = [line.split()[1] for line in run(IMPORT_ALL, STF_PURE="1").splitlines()]
    assert files
    assert all(f.endswith(".py") for f in files)


def test_uncompiled_modules_need_no_cython() -> None:
    blocked = "import sys; sys.modules['cython'] = None\n"
    assert run(blocked + IMPORT_ALL, STF_PURE="1") == run(IMPORT_ALL, STF_PURE="1")


def test_by_default_the_extension_is_loaded_where_there_is_one() -> None:
    for line in run(IMPORT_ALL).splitlines():
        name, file = line.split()
        source = SOURCES.joinpath(*name.split(".")[1:]).with_suffix(".py")
        assert file.endswith(tuple(EXTENSION_SUFFIXES)) == has_extension(source), name


@pytest.mark.parametrize("load_first", [False, True])
def test_compiled_modules_tells_what_is_or_would_be_loaded(load_first: bool) -> None:
    code = (IMPORT_ALL if load_first else "") + "\nfrom stf._support import loader; print(loader.compiled_modules())"
    told = eval(run(code).splitlines()[-1])
    assert list(told) == sorted(told)
    assert {f"stf.{p.stem}" for p in SOURCES.glob("*.pxd")} <= told.keys()
    assert told == {name: has_extension(stem.with_suffix(".py")) for name, stem in loader._compilable().items()}
    assert not any(eval(run(code, STF_PURE="1").splitlines()[-1]).values())


def test_uncompiled_is_said_once_at_info() -> None:
    code = """
import logging, sys
logging.basicConfig(stream=sys.stdout, level="INFO", format="%(name)s %(levelname)s %(message)s")
from stf._support import loader
loader.log_if_uncompiled(); loader.log_if_uncompiled()
"""
    lines = [line for line in run(code, STF_PURE="1").splitlines() if "uncompiled" in line]
    assert len(lines) == 1
    assert lines[0].startswith("stf INFO stf runs uncompiled (STF_PURE is set)")


def test_without_a_compiler_one_line_says_what_it_costs(package: Path) -> None:
    code = "from stf._support import loader; loader.log_if_uncompiled(); loader.log_if_uncompiled()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(package), "STF_PURE": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stderr.splitlines()
    assert (
        "installed without a C compiler: a task costs about 40 us instead of 2" in line and "pip install again" in line
    )


def test_a_context_does_not_walk_over_the_package() -> None:
    """It took 20 ms of the first context."""
    code = """
import sys, stf
from stf._support import loader
listed = []
stf.context(devices="cpu").finalize()
sys.addaudithook(lambda event, args: listed.append(args) if event in ("os.scandir", "os.listdir") else None)
loader.log_if_uncompiled.cache_clear()
stf.context(devices="cpu").finalize()
assert not listed, listed
loader.compiled_modules()
assert listed
"""
    run(code)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return an `stf` of the loader alone, where `both` is source and extension, and `only` an extension."""
    package = tmp_path / "stf"
    package.mkdir()
    (package / "_support").mkdir()
    shutil.copy(SOURCES / "config.py", package)
    for name in ("loader", "declared", "uncompiled"):
        shutil.copy(SOURCES / "_support" / f"{name}.py", package / "_support")
    (package / "_support" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("from stf._support import loader\n")
    (package / "both.py").write_text("answer = 42\n")
    for name in ("both", "only"):
        (package / f"{name}{EXTENSION_SUFFIXES[0]}").write_bytes(b"not a library: an error if it is loaded")
    return tmp_path


def test_the_source_wins_over_an_extension_beside_it(package: Path) -> None:
    code = "import stf.both; print(stf.both.answer)"
    assert run(code, STF_PURE="1", PYTHONPATH=str(package)) == "42"


def test_a_module_without_source_is_an_error_that_says_why(package: Path) -> None:
    code = """
try:
    import stf.only
except ModuleNotFoundError as error:
    print(error)
"""
    told = run(code, STF_PURE="1", PYTHONPATH=str(package))
    assert told == "stf.only exists only compiled, and STF_PURE=1 loads nothing compiled; unset STF_PURE"
