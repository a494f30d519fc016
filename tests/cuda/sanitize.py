"""Random recorded programs under compute-sanitizer: ``python tests/cuda/sanitize.py [programs] [processes]``.

Loops and branches are decided on the host (STF_CONDITIONAL_NODES=0): compute-sanitizer 2025.3.1 ends a while node of
plain CUDA with an illegal address (while_node.cu). It also stands still now and then, where a thread that launches
waits, inside of the driver's lock, for the tool's own thread, and another one creates an event: a program that takes
longer than `STALL_S` is given up, another one takes its place, and how many that were is said.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ["compute-sanitizer", "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "99"]
STALL_S, FIRST_SEED, BATCH = 20, 500_000, 25
ONE_BY_ONE = """
import sys
sys.path.insert(0, "tests/properties")
import graph_programs
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    graph_programs.run_program(seed)
    print("done", seed, flush=True)
"""


def run_batch(first: int, last: int) -> tuple[int, str, str]:
    """Run programs in one process; how many ended, how that went (ok, stuck, failed), and the last lines of output."""
    environment = os.environ | {"STF_CONDITIONAL_NODES": "0", "STF_TEST_DEVICES": "cuda:0"}
    command = [*TOOL, sys.executable, "-c", ONE_BY_ONE, str(first), str(last)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    )
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    done, tail = 0, []
    while True:
        try:
            line = lines.get(timeout=STALL_S)
        except queue.Empty:
            os.killpg(process.pid, 9)
            process.wait()
            return done, "stuck", ""
        if line is None:
            break
        done += line.startswith("done ")
        tail = [*tail[-30:], line]
    return done, "ok" if process.wait() == 0 else "failed", "".join(tail)


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    lock, state = threading.Lock(), {"seed": FIRST_SEED, "done": 0, "stuck": 0}
    failures: list[str] = []

    def work() -> None:
        while True:
            with lock:
                if state["done"] >= wanted or failures or state["stuck"] > wanted:
                    return
                first = state["seed"]
                state["seed"] += BATCH
            done, how, tail = run_batch(first, first + BATCH)
            with lock:
                state["done"] += done
                state["stuck"] += how == "stuck"
                if how == "failed":
                    failures.append(f"programs from {first}:\n{tail}")

    threads = [threading.Thread(target=work) for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        print(failure)
    print(
        f"compute-sanitizer: {state['done']} programs, {len(failures)} failures, {state['stuck']} times the tool stood still"
    )
    sys.exit(1 if failures or state["done"] < wanted else 0)


if __name__ == "__main__":
    main()
