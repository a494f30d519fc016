"""Run many random programs over several processes; the last line sums up.

    python tests/stress/run.py --devices cuda:0 --count 100000 --processes 14
    python tests/stress/run.py --devices cpu --count 20000 --first 5000
    python tests/stress/run.py --devices cuda:0 --recorded --count 50000 --processes 18

Process k of P runs the programs first + k, first + k + P, …: each is its seed (tests/properties/programs.py, or with
--recorded graph_programs.py). One that fails is told with its description and the command that runs it alone; one that takes
longer than `STALL_S` ends its process, which says where. Contexts on CUDA share one `stf.Resources` in each process,
which must have given everything back when the process is done. Exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import gc
import importlib
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROPERTIES = HERE.parent / "properties"
STALL_S = 100  # a program takes some hundredths of that
MAX_TOLD = 5  # failures told at length
MAX_FAILURES = 20  # of a process, which then gives up


def main() -> int:
    options = parsed()
    if options.worker is not None:
        return work(options)
    start = time.monotonic()
    results = [None] * options.processes
    threads = [threading.Thread(target=serve, args=(options, k, results)) for k in range(options.processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tell(options, results, time.monotonic() - start)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default=os.environ.get("STF_TEST_DEVICES", "cpu"), help="cpu, cuda:0, cuda:0,1")
    parser.add_argument("--count", type=int, default=1000, help="programs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--processes", type=int, default=max(len(os.sched_getaffinity(0)) - 2, 1))
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long; 0: when all are done")
    parser.add_argument("--recorded", action="store_true", help="programs that are recorded, as graphs")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def module_of(options):
    """The module of the programs."""
    return "graph_programs" if options.recorded else "programs"


# -- the parent --------------------------------------------------------------------------------------------------------


def serve(options, number, results):
    """Start one process and take its results as they come."""
    command = [sys.executable, "-X", "faulthandler", str(Path(__file__).resolve()), f"--worker={number}"]
    for name in ("devices", "count", "first", "processes", "seconds"):
        command.append(f"--{name}={getattr(options, name)}")
    if options.recorded:
        command.append("--recorded")
    path = os.pathsep.join([str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {"STF_CPU_WORKERS": "4"} | os.environ | {"PYTHONPATH": path, "STF_TEST_DEVICES": options.devices}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    result = {"ran": 0, "failed": [], "last": None}
    for line in child.stdout:
        with contextlib.suppress(ValueError):
            result.update(json.loads(line))
    result["status"] = child.wait()
    results[number] = result


def tell(options, results, seconds):
    """Print what failed, and the sum; return the exit status."""
    ran = sum(result["ran"] for result in results)
    failed = [failure for result in results for failure in result["failed"]]
    broken = [(k, result) for k, result in enumerate(results) if result["status"] or result.get("left")]
    alone = f"STF_TEST_DEVICES={options.devices} python {PROPERTIES / module_of(options)}.py"
    for seed, text in failed[:MAX_TOLD]:
        print(f"--- program {seed} failed:\n{text}\n    {alone} {seed}")
    for seed, _ in failed[MAX_TOLD:]:
        print(f"--- program {seed} failed: {alone} {seed}")
    for k, result in broken:
        what = f"left behind {result['left']}" if result.get("left") else f"exited with {result['status']}"
        print(f"--- process {k} {what}, after program {result['last']}")
    print(
        f"{ran:,} of {options.count:,} {'recorded ' if options.recorded else ''}programs on {options.devices} in "
        f"{seconds:.1f} s ({ran / seconds:.0f}/s, {options.processes} processes): {len(failed)} failed, "
        f"{len(broken)} processes broken"
        + (
            ""
            if options.recorded
            else f"; {total(results, 'tasks'):,} tasks, {total(results, 'pairs'):,} pairs ordered"
        )
    )
    return 1 if failed or broken or not ran else 0


def total(results, what):
    return sum(result.get(what, 0) for result in results)


# -- a process ---------------------------------------------------------------------------------------------------------


def work(options):
    """Run every P-th program; print how far it is now and then, and the sum at the end, as JSON."""
    warnings.filterwarnings("ignore", message=".*Peer access has been activated")
    warnings.filterwarnings("error", category=ResourceWarning)
    sys.path[:0] = [str(PROPERTIES), str(HERE.parent)]
    import drivers
    import machine

    run_program = importlib.import_module(module_of(options)).run_program
    result = {"ran": 0, "failed": [], "last": None, "left": ""}
    sys.unraisablehook = functools.partial(note_ignored, result)
    deadline = time.monotonic() + (options.seconds or 1e9)
    told = time.monotonic()
    for seed in range(options.first + options.worker, options.first + options.count, options.processes):
        result["last"] = seed
        faulthandler.dump_traceback_later(STALL_S, exit=True)
        try:
            run_program(seed)
        except BaseException as error:
            result["failed"].append(
                (seed, "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]))
            )
        result["ran"] += 1
        now = time.monotonic()
        if now > told + 1:
            print(json.dumps({key: result[key] for key in ("ran", "failed", "last")}), flush=True)
            told = now
        if now > deadline or len(result["failed"]) >= MAX_FAILURES:
            break
    faulthandler.cancel_dump_traceback_later()
    result |= {"left": what_is_left(drivers), "tasks": machine.TOTALS["tasks"], "pairs": machine.TOTALS["pairs"]}
    print(json.dumps(result), flush=True)
    if result["failed"]:
        os._exit(0)  # what a failed program left may wait forever
    return 0


def note_ignored(result, ignored):
    """An exception that nobody can catch is a failure of the program that runs, or of one before."""
    sys.__unraisablehook__(ignored)
    text = f"{type(ignored.exc_value).__name__}: {ignored.exc_value}, ignored in {ignored.object!r}"
    result["failed"].append((result["last"], text))


def what_is_left(drivers):
    """What the process keeps of CUDA's when all contexts are finalized; "" for nothing."""
    gc.collect()  # what failures hold in circles
    left = drivers.close_shared()
    if "fakecuda" in os.environ.get("PYTHONPATH", ""):
        import cupy
        import fakecuda

        import stf

        for _ in range(20):  # what graphs of the shared resources held goes in the stand-in's own time
            gc.collect()
            stf.context(devices="cuda:0").finalize()  # frees what graphs needed that went after their driver
            cupy.get_default_memory_pool().free_all_blocks()
            if not fakecuda.leaks():
                break
            time.sleep(0.1)
        left |= fakecuda.leaks()
    return str(left) if left else ""


if __name__ == "__main__":
    sys.exit(main())
