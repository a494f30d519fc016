"""The report and the trace of runs of three sizes: bytes, seconds to write, and until the page can be used in Chromium.

    python benchmarks/overhead/pages_of_runs.py [--tasks 10,2000,100000]

Without playwright, or a Chromium, the last column is left out.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

import stf

WIDTH = 64  # data; a task reads one and changes another, on the devices in turn


@stf.task
def step(x: stf.Read, y: stf.ReadWrite) -> None:
    pass


def seconds_until_usable(page: Path) -> float | None:
    """What the page says of itself, from the start of its load."""
    browser = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if browser is None:
        return None
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        tab = chromium.new_page()
        tab.goto(page.as_uri())
        tab.locator("body:not(.loading)").wait_for()
        found = float(tab.evaluate("stf.readyAt")) / 1000
        chromium.close()
    return found


def measure(tasks: int, folder: Path) -> str:
    random = np.random.default_rng(0)
    with stf.context(devices="cpu:2", observe=True) as ctx:
        data = [ctx.logical_data_zeros(16, name=f"x{i}") for i in range(WIDTH)]
        for number, (i, j) in enumerate(random.integers(0, WIDTH, (tasks, 2)).tolist()):
            step.on(number % 2)(data[i], data[j if j != i else (j + 1) % WIDTH])
        ctx.synchronize()
        copies = ctx.statistics().total_copies
        start = time.perf_counter()
        page = ctx.report(folder / "run.html")
        written = time.perf_counter() - start
        start = time.perf_counter()
        trace = ctx.trace(folder / "run.pftrace")
        traced = time.perf_counter() - start
    usable = seconds_until_usable(page)
    in_browser = "" if usable is None else f"{usable:10.2f} s"
    sizes = [path.stat().st_size / 1e6 for path in (page, trace)]
    return (
        f"{tasks:8,} {copies:8,} {sizes[0]:8.1f} MB {written:8.2f} s {in_browser}   "
        f"{sizes[1]:6.1f} MB {traced:8.2f} s {1e6 * traced / (tasks + copies):8.1f} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="10,2000,100000")
    options = parser.parse_args()
    print("   tasks   copies      report    written  in Chromium     trace    written  a slice")
    with tempfile.TemporaryDirectory() as folder:
        for tasks in map(int, options.tasks.split(",")):
            print(measure(tasks, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
