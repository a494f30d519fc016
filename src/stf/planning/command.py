"""``python -m stf plan script.py --devices 8xH200``: plan a script as it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stf.errors import Error
from stf.planning.plan import plan

if TYPE_CHECKING:
    import argparse

__all__ = ["add_options", "run"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--devices", required=True, help="a number and a kind, such as 8xH200")
    parser.add_argument("--memory", help="bytes of each device, such as 80GB")
    parser.add_argument("--model", help="a file of ctx.calibrate(path), like:KIND, or like:KIND:PATH")
    parser.add_argument("--value", action="append", default=[], metavar="NAME=NUMBER", help="a value that it asks for")
    parser.add_argument("--report", metavar="PATH", help="write the page of the run that was planned")
    parser.add_argument("--compare", metavar="1,2,4,8", help="plan for these numbers of devices, too")
    parser.add_argument("script", help="a Python file; its contexts are on simulated devices")
    parser.add_argument("arguments", nargs="...", help="those of the script")


def run(options: argparse.Namespace) -> int:
    """Print the plan of a script; return the exit status, 1 if the script cannot be planned."""
    try:
        found = plan(
            run_script,
            options.script,
            options.arguments,
            devices=options.devices,
            memory=options.memory,
            model=options.model,
            values=dict(value_of(text) for text in options.value),
        )
        print(found)
        if options.compare:
            print(found.compare([int(count) for count in options.compare.split(",")]))
        if options.report:
            print(found.report(options.report))
    except (Error, OSError) as error:
        print(f"python -m stf plan: error: {error}", file=sys.stderr)
        return 1
    return 0


def run_script(script: str, arguments: Sequence[str]) -> None:
    """Run a script as if Python had been called with it."""
    import runpy

    before = sys.argv
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv = before


def value_of(text: str) -> tuple[str, float]:
    """Return the name and the number of ``"x=0.0"``; ValueError for what is none."""
    name, separator, number = text.partition("=")
    if not name or not separator:
        raise ValueError(f"--value takes NAME=NUMBER, got {text!r}")
    return name, float(number)
