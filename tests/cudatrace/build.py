"""Builds the library that notes the calls of CUDA's driver library (see cudatrace.cpp).

``python tests/cudatrace/build.py FOLDER``; then run a program with ``LD_LIBRARY_PATH=FOLDER`` and
``CUDATRACE_LIBRARY`` set to the true library.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shlex
import shutil
import subprocess
import sys
from os import environ
from pathlib import Path

SOURCE = Path(__file__).with_name("cudatrace.cpp")
FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-fPIC", "-shared", "-pthread", "-Wl,-soname,libcuda.so.1"]
OTHERS = ["fakecuda_counts", "fakecuda_reset_calls", "fakecuda_reset", "fakecuda_add_kernel"]  # of the stand-in


def build(folder: Path) -> Path:
    """Compile the library into `folder`; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    include = next(path for path in headers() if (path / "cuda.h").exists())
    source = SOURCE.read_text()
    own = {match.removesuffix("_v2") for match in re.findall(r"^CUresult (cu\w+)\(", source, re.M)}
    (folder / "forwarded.inc").write_text("".join(f"FORWARD({name})\n" for name in forwarded(include / "cuda.h", own)))
    target = folder / "libcuda.so.1"
    includes = [f"-I{include}", f"-I{folder}"]
    subprocess.run([*compiler(), *FLAGS, *includes, str(SOURCE), "-o", str(target), "-ldl"], check=True)
    return target


def forwarded(header: Path, own: set[str]) -> list[str]:
    """Names of all functions of cuda.h, in all versions, but those that cudatrace.cpp has itself."""
    text = header.read_text()
    current = dict(re.findall(r"#\s*define (cu[A-Z]\w+)\s+(?:__CUDA_API_PT\w+\()?(cu[A-Z]\w+_v\d+)", text))
    names = set(re.findall(r"\b(cu[A-Z]\w+)\s*\(", text)) | set(re.findall(r"\b(cu[A-Z]\w+_v\d+)\b", text))
    names |= {current.get(name, name) for name in names} | set(OTHERS)
    taken = {current.get(name, name) for name in own} | {"cuGetProcAddress", "cuGetProcAddress_v2"}
    return sorted(name for name in names - taken if not name.endswith(("_st", "_t")))


def compiler() -> list[str]:
    """Return the command of the C++ compiler: ``$CXX`` or ``c++``."""
    return shlex.split(environ.get("CXX") or "c++")


def missing() -> str | None:
    """Say what is not there to build with, if anything."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "Linux on x86-64"
    if shutil.which(compiler()[0]) is None:
        return f"a C++ compiler ({compiler()[0]})"
    return None if any((path / "cuda.h").exists() for path in headers()) else "cuda.h"


def headers() -> list[Path]:
    """The include folders of the CUDA wheels, and of a toolkit."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    toolkit = Path(environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
    return [toolkit, *(p for folder in folders for p in sorted(Path(folder).glob("cu*/include")))]


def true_library() -> str | None:
    """The CUDA driver library that a program would load now, but one of ours."""
    folders = [
        *environ.get("LD_LIBRARY_PATH", "").split(":"),
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib/wsl/lib",
    ]
    paths = [Path(folder) / "libcuda.so.1" for folder in folders if folder]
    return next((str(path.resolve()) for path in paths if path.exists()), None)


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
