"""What the policy of the GIL costs: tasks on a GPU beside a busy Python thread, and beside host bodies in flight.

    python benchmarks/cuda/gil.py
    python benchmarks/cuda/gil.py --check

A call that keeps the GIL costs what it does without that thread; one that gives it up waits for the thread's turn to
end (5 ms by default; here `SWITCH_S`, so that the figures come in seconds). So the cost beside a busy thread, less the
cost alone, counts how often a task gives up the GIL; a program that never does so still loses half of its time to the
thread, by turns. Figures are medians of the microseconds per task over bursts short enough for the launch queue.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import threading
import time

import numpy as np

import stf

BURST, REPEAT = 200, 15
SWITCH_S = 1e-3
MOST_FOR_BODIES = 3.0  # how many times a task may cost beside host bodies in flight
MOST_TURNS = 0.5  # of SWITCH_S, per task, beside a busy thread: tasks do not give up the GIL one by one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default="cuda:0")
    parser.add_argument("--check", action="store_true", help="fail if a bound is broken")
    options = parser.parse_args()
    figures = measure(options.devices)
    show(figures)
    return 1 if options.check and broken(figures) else 0


def measure(devices: str) -> dict[tuple[str, bool, bool], float]:
    """Microseconds per task by (kind, a thread is busy, host bodies are in flight)."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        return {
            (kind, busy, bodies): measure_one(devices, kind, busy, bodies)
            for kind in ("with-block", "launch_kernel")
            for busy in (False, True)
            for bodies in (False, True)
        }
    finally:
        sys.setswitchinterval(before)


def measure_one(devices: str, kind: str, busy: bool, bodies: bool) -> float:
    """The median over bursts of one kind of task."""
    with stf.context(devices=devices) as ctx, busy_thread(busy):
        data = ctx.logical_data(np.zeros(8))
        work = launches(ctx, data) if kind == "launch_kernel" else with_blocks(ctx, data)
        with ctx.task(data.rw()):
            pass
        times = []
        for _ in range(REPEAT + 1):
            with bodies_in_flight(ctx, bodies):
                start = time.perf_counter()
                work(BURST)
                times.append((time.perf_counter() - start) / BURST * 1e6)
            ctx.synchronize()
        return statistics.median(times[1:])


def with_blocks(ctx, data):
    def work(count):
        for _ in range(count):
            with ctx.task(data.rw()):
                pass

    return work


def launches(ctx, data):
    """Launches of a kernel that does nothing."""
    from measuring import load_kernels

    touch, _ = load_kernels()

    def work(count):
        for _ in range(count):
            ctx.launch_kernel(touch, (1, 1), data.rw())

    return work


@contextlib.contextmanager
def busy_thread(busy):
    """A thread that computes in Python, meanwhile."""
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin)
    if busy:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if busy:
            thread.join()


@contextlib.contextmanager
def bodies_in_flight(ctx, bodies):
    """A host body that has begun and does not end, and some that wait for it."""
    go, begun = threading.Event(), threading.Event()
    if bodies:
        token = ctx.token()
        ctx.host_launch(token.rw())(lambda: (begun.set(), go.wait(), None)[-1])
        for _ in range(4):
            ctx.host_launch(token.rw())(lambda: None)
        begun.wait()
    try:
        yield
    finally:
        go.set()


def show(figures) -> None:
    print(f"us per task{'':14}alone   bodies in flight   busy thread   both")
    for kind in ("with-block", "launch_kernel"):
        alone, bodies, busy, both = (figures[kind, b, h] for b in (False, True) for h in (False, True))
        print(f"{kind:22}{alone:8.2f}{bodies:19.2f}{busy:14.2f}{both:7.2f}")


def broken(figures) -> bool:
    """Whether a bound is broken; which one is printed."""
    found = False
    for kind in ("with-block", "launch_kernel"):
        alone = figures[kind, False, False]
        for busy, bodies, most in (
            (False, True, MOST_FOR_BODIES * alone + 1),
            (True, False, alone * 3 + MOST_TURNS * SWITCH_S * 1e6),
        ):
            if figures[kind, busy, bodies] > most:
                print(f"{kind}, {busy=}, {bodies=}: {figures[kind, busy, bodies]:.2f} us, at most {most:.2f}")
                found = True
    return found


if __name__ == "__main__":
    sys.exit(main())
