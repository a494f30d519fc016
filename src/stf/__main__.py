"""``python -m stf``: versions, devices, what is compiled, every setting.

``python -m stf cache`` shows compiled kernels, ``python -m stf plan script.py --devices 8xH200`` plans a script,
``python -m stf rerun PATH`` runs the task of a capsule alone,
``python -m stf diff script.py --a cpu --b cuda:0`` finds the first task that differs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import platform
import sys

from stf import config
from stf._support import loader
from stf.contexts import rerun
from stf.planning import command, difference

DISTRIBUTIONS = {
    "stf": "sequential-task-flow",
    "numpy": "numpy",
    "numba": "numba",
    "cython": "Cython",
    "cuda.core": "cuda-core",
    "cuda.bindings": "cuda-bindings",
}


def main() -> int:
    """Print what a bug report needs, or what is asked for; return the exit status, 2 if a variable is malformed."""
    parser = argparse.ArgumentParser(prog="python -m stf", description="Show what a bug report needs.")
    pages = parser.add_subparsers(dest="page")
    cache = pages.add_parser("cache", help="show the kernels that are kept on disk")
    cache.add_argument("--clear", action="store_true", help="remove them")
    command.add_options(pages.add_parser("plan", help="say how long a script would take on devices that are not here"))
    difference.add_options(pages.add_parser("diff", help="find the first task that differs between two runs"))
    rerun.add_options(pages.add_parser("rerun", help="run a task alone that ctx.capsule or STF_CAPSULE saved"))
    options = parser.parse_args()
    try:
        config.check()
        if options.page == "cache":
            return _show_cache(options.clear)
        if options.page == "plan":
            return command.run(options)
        if options.page == "diff":
            return difference.run(options)
        if options.page == "rerun":
            return rerun.run(options)
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


def _show_cache(clear: bool) -> int:
    """Print where compiled kernels are kept and how many there are, or remove them."""
    from stf.kernels.compile import cache

    if clear:
        print(f"{cache.clear()} compiled kernels removed from {cache.folder()}")
        return 0
    known = cache.files()
    nbytes = sum(status.st_size for _, status in known)
    print(f"{len(known)} compiled kernels, {nbytes} bytes of {config.cache_size}, in {cache.folder()}")
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
