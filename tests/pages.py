"""Runs the code of a page, in the order of the page and in one namespace: ``python tests/pages.py docs/tutorial.md``.

A block marked ``python`` runs everywhere. One marked ``py`` begins with ``# needs a GPU, CuPy`` (or Torch, Numba, pandas
...); it runs where these are there. Blocks that need a GPU run with ``--gpu`` alone. A ``text`` block behind a ``python``
block is what that prints, with ``...`` for what differs from run to run.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import ctypes
import doctest
import importlib.util
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^( *)(`{3,})(\S*)[^\n]*\n(.*?)^\1\2[ ]*$", re.DOTALL | re.MULTILINE)
NEEDS = re.compile(r"# needs ([\w., -]+)\n")
MODULES = {
    "CuPy": "cupy", "PyTorch": "torch", "Numba": "numba_cuda", "Triton": "triton", "cuda.tile": "cuda.tile",
    "JAX": "jax", "SciPy": "scipy", "pandas": "pandas", "scikit-learn": "sklearn", "Warp": "warp", "nvmath": "nvmath",
    "KvikIO": "kvikio", "cuda.coop": "cuda.coop._experimental",
}  # fmt: skip
GPUS = {"a GPU": 1, "two GPUs": 2}
COMPARED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    """Code of a page, the line before it, and what it prints, if the page says so."""

    code: str
    line: int
    output: str | None
    needs: tuple[str, ...]


def blocks(page: Path) -> list[Block]:
    """Return the code of a page."""
    text, found = page.read_text(encoding="utf-8"), []
    fences = list(FENCE.finditer(text))
    for fence, following in zip(fences, [*fences, None][1:], strict=True):
        _, _, language, code = fence.groups()
        if language not in ("python", "py"):
            continue
        needs: tuple[str, ...] = ()
        if language == "py":
            match = NEEDS.match(code)
            if match is None and page.name == "README.md":
                continue  # a sketch
            if match is None:
                raise ValueError(f"{page}: a py block begins with '# needs a GPU, CuPy' or its like, got:\n{code}")
            needs = tuple(name.strip() for name in match[1].split(","))
        output = None
        if following is not None and following[3] == "text" and not text[fence.end() : following.start()].strip():
            output = following[4]
        found.append(Block(code, text[: fence.start(4)].count("\n"), output, needs))
    return found


def missing(needs: tuple[str, ...]) -> Iterator[str]:
    """The names among those that a block needs that are not here."""
    for name in needs:
        if name in GPUS:
            if gpus() < GPUS[name]:
                yield name
        elif not is_installed(MODULES[name]):
            yield name


def gpus() -> int:
    """How many CUDA devices there are."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def is_installed(module: str) -> bool:
    """Whether a module is there; its parents are imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def run(page: Path, on_gpus: bool = False) -> None:
    """Run the page; what a block prints is compared with the text behind it."""
    namespace: dict[str, object] = {"__name__": "__main__", "__file__": str(page)}
    if page.parent.name == "reference":
        exec("import numpy as np\nimport stf", namespace)  # as the first page of the reference says
    for block in blocks(page):
        lacks = list(missing(block.needs)) if on_gpus or not set(GPUS) & set(block.needs) else ["--gpu"]
        if lacks:
            print(f"{page.name}:{block.line + 1}: left out, needs {', '.join(lacks)}", file=sys.stderr)
            continue
        code = "\n" * block.line + block.code
        program = compile(code, str(page.resolve()), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            awaits = eval(program, namespace)
            if awaits is not None:
                asyncio.run(awaits)
        if block.output is not None and not same(block.output, printed.getvalue()):
            raise AssertionError(
                f"{page.name}:{block.line + 1} prints\n{printed.getvalue()}\nand the page says\n{block.output}"
            )
        print(printed.getvalue(), end="")


def same(expected: str, got: str) -> bool:
    """Whether a program printed what a page says."""
    return doctest.OutputChecker().check_output(expected, got, COMPARED)


if __name__ == "__main__":
    run(Path(sys.argv[1]), on_gpus="--gpu" in sys.argv[2:])
