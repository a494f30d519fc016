"""``python -m stf``: versions, devices, what is compiled, and every setting."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import sys

from stf import config
from stf._support import loader

DISTRIBUTIONS = {
    "stf": "sequential-task-flow",
    "numpy": "numpy",
    "numba": "numba",
    "cython": "Cython",
    "cuda.core": "cuda-core",
    "cuda.bindings": "cuda-bindings",
}


def main() -> int:
    """Print what a bug report needs; return the exit status, 2 if a variable is malformed."""
    try:
        config.check()
        _check_devices()
    except ValueError as error:
        print(f"python -m stf: error: {error}", file=sys.stderr)
        return 2
    _title("Versions")
    _row("python", f"{platform.python_version()} ({platform.system()} {platform.machine()})")
    for name, distribution in DISTRIBUTIONS.items():
        _row(name, _version(distribution))
    _title("Devices")
    for device in _devices():
        print(f"  {device}")
    _title("Compiled modules")
    for name, compiled in loader.compiled_modules().items():
        _row(name, "compiled" if compiled else "Python", width=28)
    _title("Settings")
    config.show()
    return 0


def _check_devices() -> None:
    """Raise ValueError if STF_DEVICES cannot be understood; devices that are not here are for the page to show."""
    from stf.devices.make import configured_devices
    from stf.errors import PlaceError

    with contextlib.suppress(PlaceError):
        configured_devices()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> list[str]:
    try:
        from stf.devices.make import available_devices

        return available_devices()
    except Exception as error:  # a broken driver is what this page is asked about
        return [f"unavailable: {type(error).__name__}: {error}"]


def _title(text: str) -> None:
    print(f"\n{text}")


def _row(name: str, value: str, width: int = 14) -> None:
    print(f"  {name:<{width}} {value}")


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough (| head); the interpreter flushes once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)
