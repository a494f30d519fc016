"""Build of the compiled modules; everything else is in pyproject.toml.

Compiled are the modules ``src/stf/**/NAME.py`` that have a ``NAME.pxd`` beside them (Cython's pure-Python mode), and
the ``.pyx`` files, which need cuda-bindings and the headers of CUDA: those of the nvidia wheels, or of a toolkit.

The first group is all or nothing: a compiled module can't use the C interface of an uncompiled one. Without a C
compiler, stf is installed uncompiled; it works and is slower. A ``.pyx`` that can't be built is left out alone.

``STF_COMPILE=auto`` (default), ``always`` (what fails is an error) or ``never``. ``STF_PROFILE=record``, then ``use``:
GCC lays the code out by what ran in between (``make optimized``). ``STF_CFLAGS`` come after all other flags: ``-O0``
takes half the time, for tests, and ``-O3`` twice, for wheels; a later build without it compiles those modules again.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    import Cython
    from Cython.Build import cythonize
except ImportError:
    Cython = None

ROOT = Path(__file__).resolve().parent
SOURCE = Path("src")
HEADERS = SOURCE / "stf" / "_drivers"  # of C, which modules that use their classes include, too
GENERATED = Path("build") / "cython"
PROFILE = ROOT / "build" / "profile"
DIRECTIVES = {
    "language_level": 3,
    "nonecheck": True,
    "binding": False,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
    "embedsignature.format": "clinic",  # which `inspect.signature` reads
    "infer_types": True,
}
PROFILE_FLAGS = {
    "": [],
    "record": [f"-fprofile-generate={PROFILE}", "-fprofile-update=prefer-atomic"],
    "use": [f"-fprofile-use={PROFILE}", "-fprofile-partial-training", "-Wno-missing-profile"],
}
# The modules that every task or every replayed call passes: half of what the compiler's time goes to.
HOT = {
    f"stf.{package}.{name}"
    for package, names in {
        "_backends": "lanes stream",
        "_drivers": "base loops queues simulated",
        "_drivers.cuda": "callers driver streams submitter work",
        "_engine": "access adoption claims coherency engine eviction_order host_waits outcomes queued_bodies retiring "
        "scope state task versions",
        "_port": "events links replicas",
        "_recording": "device_graphs launch_state launches playback",
        "_support": "constants library_threads sync untracked with_blocks",
        "graphs": "call_pattern launchable",
        "kernels": "arguments launching plans",
        "observe": "durations",
        "placement": "model plans",
        "tasks": "bodies checks functions host_task late_arrays placing pure_calls repeats running task views",
    }.items()
    for name in names.split()
}
# Each module has all functions of the C in our .pxd files, and uses few.
C_FLAGS = ["-g0", "-Wno-unused-function"]
HOT_FLAGS = ["-O2"]
if sys.platform == "linux":
    C_FLAGS += ["-fno-plt"]
    HOT_FLAGS += ["-falign-functions=64"]  # a few percent of a task
COLD_FLAGS = ["-Og"]
MORE_FLAGS = os.environ.get("STF_CFLAGS", "").split()
QUICK = ROOT / "build" / "quick"  # is there while some of the modules in the tree were compiled with other flags

APPEND = "int __Pyx_ListComp_AppendAndDecref(PyObject* list, PyObject* x) {"
FREED_TWICE = """
    int result = PyList_Append(list, x);
    Py_DECREF(x);
"""
REPAIRED = FREED_TWICE.replace("Py_DECREF", "if (result == 0) Py_DECREF")


class BuildExt(build_ext):
    """Translate and compile in parallel; fall back to no compiled module at all; skip what is up to date."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or usable_cores()

    def run(self) -> None:
        self.in_tree = bool(self.inplace or self.editable_mode)  # setuptools resets `inplace` while it builds
        if self.in_tree:
            remove_orphans()
            self.force = self.force or (QUICK.exists() and not MORE_FLAGS)
        super().run()
        if self.in_tree and not MORE_FLAGS:
            QUICK.unlink(missing_ok=True)

    def build_extensions(self) -> None:
        try:
            self.build_group([e for e in self.extensions if not is_pyx(e)])
        except Exception as error:  # distutils, Cython and the compiler each have their own
            self.give_up(self.extensions, f"installed uncompiled, which works and is slower, because {reason(error)}")
            return
        drivers = [e for e in self.extensions if is_pyx(e)]
        try:
            self.build_group(drivers)
            return
        except Exception:
            pass  # which, the next lines find out
        for extension in drivers:
            try:
                self.build_group([extension])
            except Exception as error:
                self.give_up([extension], f"{extension.name} is left out, because {reason(error)}")

    def build_group(self, extensions: list[Extension]) -> None:
        translate(extensions, self.parallel)
        everything, self.extensions = self.extensions, extensions
        try:
            super().build_extensions()
        finally:
            self.extensions = everything

    def build_extension(self, extension: Extension) -> None:
        """Compile, unless an editable install has it in the source tree already."""
        target = Path(self.get_ext_fullpath(extension.name))
        built = self.path_in_sources(extension)
        if self.in_tree and built.exists() and not self.force and not is_older(built, files_of(extension)):
            if built.resolve() != target.resolve():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(built, target)
            return
        if self.in_tree and MORE_FLAGS:
            QUICK.parent.mkdir(exist_ok=True)
            QUICK.touch()
        super().build_extension(extension)

    def give_up(self, extensions: list[Extension], message: str) -> None:
        if mode() == "always":
            raise SystemExit(f"stf: {message}; STF_COMPILE=always makes that an error")
        print(f"stf: {message}", file=sys.stderr)
        for extension in extensions:
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            if self.in_tree:
                self.path_in_sources(extension).unlink(missing_ok=True)
        self.extensions = [e for e in self.extensions if e not in extensions]

    def path_in_sources(self, extension: Extension) -> Path:
        return ROOT / SOURCE / self.get_ext_filename(extension.name)


def extensions() -> list[Extension]:
    """Return one extension per module to compile."""
    if mode() == "never":
        return []
    if Cython is None:
        print(
            "stf: installed uncompiled, which works and is slower, because Cython is not there",
            file=sys.stderr,
        )
        return []
    pure = [p.with_suffix(".py") for p in sorted(SOURCE.rglob("*.pxd"))]
    pure = [p for p in pure if p.exists() and p.stem != "__init__"]
    drivers = sorted(SOURCE.rglob("*.pyx"))
    unknown = HOT.difference(map(module_name, pure + drivers))
    if unknown:
        raise SystemExit(f"stf: HOT in setup.py names {sorted(unknown)}, which are no compiled modules")
    found = [
        Extension(module_name(p), [str(p)], include_dirs=[str(p.parent), str(HEADERS)], depends=headers_of(p))
        for p in pure
    ]
    if importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bindings"):
        found += [
            # C++, because the declarations of cuda.bindings are
            Extension(
                module_name(p),
                [str(p)],
                include_dirs=[str(HEADERS), *cuda_headers()],
                depends=headers_of(p),
                language="c++",
            )
            for p in drivers
        ]
    for extension in found:
        extension.pyx = extension.sources[0].endswith(".pyx")
        extension.extra_compile_args = flags_of(extension.name)
        extension.extra_link_args = profile_flags()
    return found


def flags_of(name: str) -> list[str]:
    """Return the compiler's flags for a module; with a profile GCC knows by itself what counts."""
    if sys.platform == "win32":
        return ["/O2", *MORE_FLAGS]
    level = HOT_FLAGS if name in HOT else COLD_FLAGS
    if profile_flags():
        level = ["-O3", *HOT_FLAGS[1:]]
    return C_FLAGS + level + profile_flags() + MORE_FLAGS


def translate(extensions: list[Extension], processes: int) -> None:
    """Turn the sources of `extensions` into C; what is up to date is left as it is."""
    stamp = GENERATED / "options.txt"
    options = f"Cython {Cython.__version__} {DIRECTIVES}"
    if not (stamp.exists() and stamp.read_text() == options):
        shutil.rmtree(GENERATED, ignore_errors=True)
    done = cythonize(
        extensions,
        build_dir=str(GENERATED),
        compiler_directives=DIRECTIVES,
        include_path=[str(SOURCE)],
        nthreads=processes if len(extensions) > 1 else 0,
        quiet=True,
    )
    sources = {e.name: e.sources for e in done}
    for extension in extensions:
        extension.sources = sources[extension.name]
        repair(Path(extension.sources[0]))
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(options)


def repair(generated: Path) -> None:
    """Let a list comprehension that runs out of memory free its item once; Cython 3.3.1 frees it twice."""
    text = generated.read_text()
    if REPAIRED in text or APPEND not in text:
        return
    if text.count(FREED_TWICE) != 2:
        raise RuntimeError(f"Cython {Cython.__version__} appends to lists in another way: see repair() in setup.py")
    generated.write_text(text.replace(FREED_TWICE, REPAIRED))


def remove_orphans() -> None:
    """Remove extension modules from the source tree whose .pxd or .pyx is gone: they would shadow the .py."""
    for built in [*SOURCE.rglob("*.so"), *SOURCE.rglob("*.pyd")]:
        stem = built.with_name(built.name.split(".")[0])
        if mode() == "never" or not (stem.with_suffix(".pxd").exists() or stem.with_suffix(".pyx").exists()):
            built.unlink()


def cuda_headers() -> list[str]:
    """Return the include folders of the CUDA wheels (nvidia/cu13/include), then that of a toolkit."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    found = [p for folder in folders for p in sorted(Path(folder).glob("cu*/include"))]
    compiler = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    roots += [str(Path(compiler).resolve().parents[1])] if compiler else []
    found += [Path(root) / "include" for root in roots if root]
    return [str(p) for p in found if p.is_dir()]


def mode() -> str:
    value = os.environ.get("STF_COMPILE") or "auto"
    if value not in ("auto", "always", "never"):
        raise SystemExit(f"STF_COMPILE={value!r}: expected auto, always or never")
    return value


def profile_flags() -> list[str]:
    value = os.environ.get("STF_PROFILE") or ""
    if value not in PROFILE_FLAGS:
        raise SystemExit(f"STF_PROFILE={value!r}: expected record or use")
    return PROFILE_FLAGS[value]


def is_pyx(extension: Extension) -> bool:
    return extension.pyx


def is_older(built: Path, sources: list[str]) -> bool:
    newest = max(Path(s).stat().st_mtime for s in [*sources, ROOT / "setup.py"])
    return built.stat().st_mtime < newest


def files_of(extension: Extension) -> list[str]:
    """Return what a module is compiled of."""
    return [*extension.sources, *extension.depends]


def headers_of(module: Path) -> list[str]:
    """Return the headers that a module may include: those of the drivers."""
    return [str(header) for header in sorted(HEADERS.glob("*.h"))] if HEADERS in module.parents else []


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def reason(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, subprocess.CalledProcessError):
            return f"{cause.cmd[0]} failed with exit status {cause.returncode}"
        cause = cause.__cause__ or cause.__context__
    what = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return f"Cython refused {what}" if type(error).__module__.startswith("Cython") else what


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    os.chdir(ROOT)
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildExt})
