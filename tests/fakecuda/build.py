"""Builds the stand-in for CUDA's driver library.

``python tests/fakecuda/build.py FOLDER``, then run anything with ``LD_LIBRARY_PATH=FOLDER``, and with tests/fakecuda in
``PYTHONPATH`` for a stand-in for CuPy too. With ``--missing`` it says what there is not to run stf on them, if anything.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("fakecuda.cpp")
INCLUDED = SOURCE.parents[2] / "src" / "stf" / "kernels" / "scalars.cu"
FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-fPIC", "-shared", "-pthread", "-Wl,-soname,libcuda.so.1"]


def build(folder: Path) -> Path:
    """Compile the library into `folder`, unless a newer one is there; return its path."""
    target = folder / "libcuda.so.1"
    if target.exists() and target.stat().st_mtime > max(path.stat().st_mtime for path in (SOURCE, INCLUDED)):
        return target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "libcupti.so.13").unlink(missing_ok=True)  # a link that earlier versions made
    with contextlib.suppress(FileExistsError):
        (folder / "libnvrtc.so.13").symlink_to(target.name)  # the same library
    partial = folder / f"libcuda.{os.getpid()}.tmp"  # others may build, or use what is there
    includes = [f"-I{p}" for p in headers()]
    subprocess.run([*compiler(), *FLAGS, *includes, str(SOURCE), "-o", str(partial), "-ldl"], check=True)
    partial.replace(target)
    return target


def compiler() -> list[str]:
    """Return the command of the C++ compiler: ``$CXX`` or ``c++``."""
    return shlex.split(os.environ.get("CXX") or "c++")


def missing() -> str | None:
    """Say what is not there to build with, if anything."""
    if shutil.which(compiler()[0]) is None:
        return f"a C++ compiler ({compiler()[0]})"
    if not any((folder / "cuda.h").exists() for folder in headers()):
        return "cuda.h (of the nvidia-cuda-runtime wheel)"
    return None


def missing_for_stf() -> str | None:
    """Say what is not there for stf to run on the stand-in, if anything."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "cuda.bindings"
    try:
        is_compiled = importlib.util.find_spec("stf._drivers.cuda.driver") is not None
    except ModuleNotFoundError:  # STF_PURE=1
        is_compiled = False
    if not is_compiled:
        return "stf._drivers.cuda.driver, compiled"
    return missing() if sys.platform == "linux" else "Linux"


def headers() -> list[Path]:
    """Return the include folders of the CUDA wheels (nvidia/cu13/include)."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    return [p for folder in folders for p in sorted(Path(folder).glob("cu*/include"))]


if __name__ == "__main__":
    print(missing_for_stf() or "" if sys.argv[1] == "--missing" else build(Path(sys.argv[1])))
