"""What it gains that a thread for each GPU calls its bodies: the same program with and without `submit_threads`.

    python benchmarks/cuda/device_threads.py --devices 1,2,4
    LD_LIBRARY_PATH=build/fakecuda PYTHONPATH=tests/fakecuda FAKECUDA_DEVICES=4 python benchmarks/cuda/device_threads.py

Bodies sleep outside of the GIL, as a library call does that the host spends its time in. So it says the same on the
stand-in for CUDA. "chain" has a data for each device, "crossed" sends each data around all devices, so that each body
waits for one of another device and each task copies. Both forms are timed in turn; the best of `--repeat` counts.
With `--check` it exits with 1 unless several devices take less than 0.75 of one thread's time (2 devices: half is best).
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

import stf

STEPS = 40


@stf.task
def body(x: stf.ReadWrite, sleep_s: float) -> None:
    time.sleep(sleep_s)  # which lets go of the GIL
    x += 1


def run(count: int, has_threads: bool, is_crossed: bool, sleep_s: float) -> float:
    """Return the seconds that the bodies take; raise if a result is wrong."""
    devices = "cuda:" + ",".join(map(str, range(count)))
    with stf.context(devices=devices, submit_threads=has_threads) as ctx:
        data = [ctx.logical_data(np.zeros(1024)) for _ in range(4)]
        for i, x in enumerate(data):
            body.on(i % count)(x, 0.0)
        ctx.synchronize()
        start = time.perf_counter()
        for step in range(STEPS):
            for i, x in enumerate(data):
                body.on((i + (step if is_crossed else 0)) % count)(x, sleep_s)
        ctx.synchronize()
        seconds = time.perf_counter() - start
        for x in data:
            if not (x.numpy() == STEPS + 1).all():
                raise AssertionError(f"a data is {x.numpy()[0]}, and {STEPS + 1} was to come out")
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--devices", default="1,2,4", help="numbers of GPUs (default: 1,2,4)")
    parser.add_argument("--sleep-us", type=float, default=2000, help="how long a body sleeps (default: 2000)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit with 1 if several devices gain too little")
    options = parser.parse_args()
    missed = False
    print(f"{4 * STEPS} bodies of {options.sleep_us:g} us\n\ndevices  program   one thread s   a thread each s   ratio")
    for count in [int(word) for word in options.devices.split(",")]:
        for name in ("chain", "crossed") if count > 1 else ("chain",):
            best = {False: float("inf"), True: float("inf")}
            for _ in range(options.repeat):
                for has_threads in best:
                    seconds = run(count, has_threads, name == "crossed", options.sleep_us * 1e-6)
                    best[has_threads] = min(best[has_threads], seconds)
            ratio = best[True] / best[False]
            missed = missed or (count > 1 and ratio > 0.75)
            print(f"{count:>7}  {name:<8} {best[False]:>13.3f} {best[True]:>17.3f} {ratio:>7.2f}", flush=True)
    return int(options.check and missed)


if __name__ == "__main__":
    sys.exit(main())
