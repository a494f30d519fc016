"""Where headers and libraries of NVIDIA's package are: nowhere, since stf has none.

A program that compiles against them needs that package, which may be installed beside stf.
"""

from __future__ import annotations

import site
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn


@dataclass
class IncludePaths:
    """Folders of headers; None where they are not found."""

    cuda: Path | None
    libcudacxx: Path | None
    cub: Path | None
    thrust: Path | None
    stf: Path | None

    def as_tuple(self) -> tuple[Path | None, ...]:
        """Return the folders, those of the highest level first."""
        return (self.stf, self.thrust, self.cub, self.libcudacxx, self.cuda)


def iter_site_roots() -> Iterator[Path]:
    """Yield the folders that packages are installed in, each once."""
    folders = [*sys.path, *getattr(site, "getsitepackages", list)()]
    folders.append(getattr(site, "getusersitepackages", str)())
    yield from dict.fromkeys(Path(folder).resolve() for folder in folders)


def refuse(what: str) -> NoReturn:
    """Raise RuntimeError: stf has no C library."""
    raise RuntimeError(
        f"Unable to locate {what}: stf is a library of its own, without C headers; install cuda-stf to compile against "
        "CUDASTF"
    )


def get_stf_include_dir() -> Path:
    """Raise RuntimeError: there are no headers."""
    refuse("the CUDASTF include directory")


def get_include_paths() -> IncludePaths:
    """Raise RuntimeError: there are no headers."""
    refuse("the CUDASTF include directory")


def get_library_dir() -> Path:
    """Raise RuntimeError: there is no C library."""
    refuse("the CUDASTF library")


def get_library_path() -> Path:
    """Raise RuntimeError: there is no C library."""
    refuse("the CUDASTF library")
