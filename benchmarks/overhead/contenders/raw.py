"""What stf is measured against: a call of a Python function, and a with-block of compiled objects that do nothing."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import sys
import sysconfig
import tempfile

from . import Contender, Missing, Program, body

__all__ = ["CompiledBlock", "PythonCall"]

SOURCE = pathlib.Path(__file__).parents[1] / "baseline.pyx"
BUILD = pathlib.Path(__file__).parents[3] / "build" / "bench"


class PythonCall(Contender):
    """An empty function, called."""

    name = "Python call"
    kind = "raw"

    def prepare(self, case, count):
        program = Program()
        data = [object() for _ in range(case.data_count)]
        program.submit = lambda: case.calls(body, data, count)
        return program


class CompiledBlock(Contender):
    """The baseline of the budgets."""

    name = "empty compiled with-block"
    kind = "raw"

    def __init__(self):
        self.module = load_baseline()

    def prepare(self, case, count):
        program = Program()
        context = self.module.Context()
        data = [self.module.Data() for _ in range(case.data_count)]
        program.submit = lambda: case.blocks(context, data, count)
        return program


def load_baseline():
    """Import ``baseline.pyx``, compiled as stf is; what is up to date is not compiled again."""
    target = BUILD / f"baseline{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not target.exists() or target.stat().st_mtime < SOURCE.stat().st_mtime:
        compile_baseline(target)
    spec = importlib.util.spec_from_file_location("baseline", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_baseline(target: pathlib.Path) -> None:
    try:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext
    except ImportError as error:
        raise Missing(f"to build it takes Cython and setuptools ({error})") from error
    flags = ["/O2"] if sys.platform == "win32" else ["-O3", "-g0"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            modules = cythonize(
                [Extension("baseline", [str(SOURCE)], extra_compile_args=flags)], build_dir=folder, quiet=True
            )
            command = build_ext(Distribution({"ext_modules": modules}))
            command.build_lib, command.build_temp = folder, os.path.join(folder, "temp")
            command.ensure_finalized()
            command.run()
        except Exception as error:  # Cython, setuptools and the compiler each have their own
            raise Missing(f"it does not compile: {error}") from error
        BUILD.mkdir(parents=True, exist_ok=True)
        fresh = target.with_suffix(f".{os.getpid()}")  # another run may be loading the old one
        shutil.copy2(os.path.join(folder, target.name), fresh)
        os.replace(fresh, target)
