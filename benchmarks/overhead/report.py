"""Tables in a terminal, and what machine they are of."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence

from contenders import CORES

from stf._support import loader

__all__ = ["print_table", "show_machine"]


def show_machine() -> None:
    """Say what the figures are of: how stf was built, the cores, and how busy the machine is with other work."""
    form = "compiled" if all(loader.compiled_modules().values()) else "uncompiled"
    print(f"stf {form}, {platform.python_implementation()} {platform.python_version()}, {CORES} cores{describe_load()}")
    print()


def describe_load() -> str:
    """Say how much else runs here, and what that means for the times."""
    if not hasattr(os, "getloadavg"):
        return ""
    load = os.getloadavg()[0]
    busy = "; BUSY: other work takes part of the cores, so wall times and speed-ups say little"
    return f", load {load:.1f}{busy if load > CORES / 2 else ''}"


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], sides: str, grouped: bool = True) -> None:
    """Print `rows` under `heads`; `sides` says per column l (left) or r.

    Where `grouped`, rows with the same first word are a group, which has it once.
    """
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    group = None
    for row in [heads, *rows]:
        repeats = grouped and row[0] == group
        if grouped and not repeats and group is not None:
            print()
        group = row[0]
        cells = ["" if repeats else row[0], *row[1:]]
        aligned = [f"{c:{'<' if s == 'l' else '>'}{w}}" for c, s, w in zip(cells, sides, widths, strict=True)]
        print("  ".join(aligned).rstrip())
    sys.stdout.flush()
