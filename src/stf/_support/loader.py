"""Whether a module of stf runs compiled.

Modules with a ``.pxd`` are compiled where a C compiler was at hand; the ``.py`` stays beside the extension module.
With ``STF_PURE=1``, or without a compiler, every module is loaded from its ``.py``, with what its ``.pxd`` declares
(see `declared`). Importing this module puts that into effect, so ``stf/__init__.py`` imports it before any other module
of stf but `config`.
"""

from __future__ import annotations

import functools
import importlib.machinery
import logging
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from stf import config

if TYPE_CHECKING:
    from pathlib import Path

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_ENGINE = "stf._engine.engine"  # compiled with all others or not at all: see setup.py
_ENGINE_STEM = os.path.join(_PACKAGE, *_ENGINE.split(".")[1:])


def compiled_modules() -> dict[str, bool]:
    """Tell for each module that can be compiled whether it is, as loaded or as it would be loaded.

    Returns
    -------
    dict of str to bool
        By full module name, sorted.

    Examples
    --------
    >>> all(name.startswith("stf.") for name in compiled_modules())
    True
    """
    return {name: _is_compiled(name, path) for name, path in _compilable().items()}


@functools.cache
def log_if_uncompiled() -> None:
    """Say once what it costs that the engine runs uncompiled; at INFO, where that was asked for."""
    if _is_compiled(_ENGINE, _ENGINE_STEM):
        return
    log = logging.getLogger("stf")
    if config.pure:
        log.info("stf runs uncompiled (STF_PURE is set): correct, but a task costs about 40 us instead of 2")
    else:
        log.warning(
            "stf was installed without a C compiler: a task costs about 40 us instead of 2, and GPUs cannot be used; "
            "install a compiler (gcc, and Python's headers) and run pip install again"
        )


class SourceFinder:
    """Finds the modules of stf by their ``.py`` alone."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return where `name` is loaded from, or None to ask the next finder."""
        if not name.startswith("stf."):
            return None
        for folder in path or ():
            spec = _source_finder(folder).find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        if any(_extension_file(os.path.join(folder, name.rpartition(".")[2])) for folder in path or ()):
            raise ModuleNotFoundError(
                f"{name} exists only compiled, and STF_PURE=1 loads nothing compiled; unset STF_PURE",
                name=name,
            )
        return None


@functools.cache
def _source_finder(folder: str) -> importlib.machinery.FileFinder:
    return importlib.machinery.FileFinder(folder, (DeclaringLoader, importlib.machinery.SOURCE_SUFFIXES))


def _compilable() -> dict[str, Path]:
    """Return the modules with a ``.pxd`` beside them, and the ``.pyx`` or what was made of it, without suffix."""
    from pathlib import Path  # 5 ms, which `import stf` goes without

    package = Path(_PACKAGE)
    stems = {p.with_suffix("") for p in package.rglob("*.pxd") if p.with_suffix(".py").exists()}
    stems |= {p.with_suffix("") for p in package.rglob("*.pyx")}
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        stems |= {p.with_name(p.name.split(".")[0]) for p in package.rglob(f"*{suffix}")}
    names = {".".join(("stf", *stem.relative_to(package).parts)): stem for stem in stems}
    return dict(sorted(names.items()))


def _is_compiled(name: str, stem: str | os.PathLike[str]) -> bool:
    module = sys.modules.get(name)
    if module is not None:
        return str(module.__file__).endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    return not config.pure and _extension_file(stem)


def _extension_file(stem: str | os.PathLike[str]) -> bool:
    return any(os.path.exists(f"{stem}{suffix}") for suffix in importlib.machinery.EXTENSION_SUFFIXES)


if not _is_compiled(_ENGINE, _ENGINE_STEM) and SourceFinder not in sys.meta_path:
    from stf._support.declared import DeclaringLoader  # which the compiled form goes without

    sys.meta_path.insert(0, SourceFinder)
