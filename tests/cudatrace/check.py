"""Prove the order of random programs on CUDA from the calls that CUDA's driver library gets.

    python tests/cudatrace/check.py --devices cuda:0 --count 1000
    python tests/cudatrace/check.py --devices cuda:0 --planted    # a program each of whose waits is swallowed in turn
    python tests/cudatrace/check.py --count 1 --first 5 --drop 3  # swallow the third wait of program 5

It builds cudatrace.cpp, and starts itself again with that library in place of the true one.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
STALL_S = 40  # a program takes some hundredths of that; where it is then is printed
FOUND = 9  # exit status of a program in which a wait was found missing
HOLD_US = 300_000  # for which the first task holds up the others
NEEDED = 5  # waits of `fork_and_join` that no other wait implies
FOLDER = HERE.parents[1] / "build" / "cudatrace"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", default=os.environ.get("STF_TEST_DEVICES", "cuda:0"))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long; 0: when all are done")
    parser.add_argument("--drop", type=int, default=0, help="swallow this wait of each program")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--library", type=Path, help="built before; by default it is built here")
    options = parser.parse_args()
    if "CUDATRACE_LIBRARY" not in os.environ:
        start_again(options)
    sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "properties")]
    return planted(options) if options.planted else programs(options)


def start_again(options) -> NoReturn:
    """Run this with our library in place of the true one."""
    sys.path.insert(0, str(HERE))
    import build

    folder = options.library or build.build(FOLDER).parent
    path = os.pathsep.join([str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    libraries = os.pathsep.join([str(folder), os.environ.get("LD_LIBRARY_PATH", "")])
    environment = os.environ | {
        "CUDATRACE_LIBRARY": build.true_library(),
        "LD_LIBRARY_PATH": libraries,
        "PYTHONPATH": path,
        "STF_TEST_DEVICES": options.devices,
    }
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def programs(options) -> int:
    """Random programs, one after the other."""
    import machine
    from calls import OrderError, Trace
    from programs import run_program

    trace = Trace()
    machine.make_recording = trace.recording
    failed = pairs = waits = ran = 0
    deadline = time.monotonic() + (options.seconds or 1e9)
    for seed in range(options.first, options.first + options.count):
        faulthandler.dump_traceback_later(STALL_S)
        trace.start()
        trace.drop(options.drop)
        try:
            run_program(seed)
        except Exception as error:  # with --drop the results may be wrong, too
            print(f"program {seed}: {type(error).__name__}: {str(error)[:200]}")
            failed += not options.drop
        waits += trace.drop(0)
        try:
            pairs += trace.check()
        except OrderError as error:
            print(f"program {seed}: {error}")
            failed += 1
            trace.order.blocks.clear()  # what it freed was not read
        ran += 1
        if time.monotonic() > deadline:
            break
    faulthandler.cancel_dump_traceback_later()
    what = f"{ran:,} of {options.count:,} programs on {options.devices}"
    print(f"{what}: {pairs:,} pairs, {waits:,} waits of streams; {failed} failed")
    return 1 if failed else 0


def planted(options) -> int:
    """A program most of whose waits are needed: run it whole, then with each of them missing, in a process of its own.

    A missing wait may have CUDA refuse the rest of the program; what was noted by then is looked at.
    """
    from calls import OrderError, Trace

    if options.drop:
        status = 0
        try:
            fork_and_join(Trace(), options.devices, options.drop)
        except OrderError as error:
            print(error, flush=True)
            status = FOUND if "is not ordered after" in str(error) else 1
        os._exit(status)  # the context may be left open, and its error at exit is none of the check's
    waits = fork_and_join(Trace(), options.devices, 0)
    found, implied = [], []
    for k in range(1, waits + 1):
        status = subprocess.call([sys.executable, *sys.argv, f"--drop={k}"], stdout=subprocess.DEVNULL)
        assert status in (0, FOUND), f"wait {k}: exit status {status}"
        (found if status else implied).append(k)
    print(f"{waits} waits of streams: found that they miss {found}, implied by others {implied}")
    return 0 if len(found) >= NEEDED else 1


def fork_and_join(trace, devices, drop):
    """Trace `submit` without its wait number `drop`; raise OrderError, or return how many waits there were."""
    import ctypes

    import stf
    import stf.testing
    from stf.devices.make import cuda_devices, make_driver
    from stf.devices.spec import parse_devices

    cuda = ctypes.CDLL("libcuda.so.1")
    usleep = ctypes.CDLL(None).usleep
    spec = parse_devices(devices, cuda_devices=cuda_devices)
    driver = make_driver(spec)
    ctx = stf.testing.context(spec, driver=driver, recording=trace.recording(driver))
    trace.start()
    trace.drop(drop)

    def task(name, *accesses):
        with ctx.task(stf.exec_place.device(0), *accesses, name=name) as t:
            stream = ctypes.c_void_p(t.stream_ptr())
            pointers = [ctypes.c_uint64(t.get_arg(i)) for i in range(len(accesses))]
            if len(pointers) == 1:
                assert cuda.cuMemsetD8Async(pointers[0], 1, ctypes.c_size_t(64), stream) == 0
            if name == "first":  # nothing ends before all is submitted: stf leaves out waits for what it saw end
                assert cuda.cuLaunchHostFunc(stream, usleep, ctypes.c_void_p(HOLD_US)) == 0
            for source in pointers[:-1]:
                assert cuda.cuMemcpyDtoDAsync_v2(pointers[-1], source, ctypes.c_size_t(64), stream) == 0

    try:
        submit(ctx, task)
    except Exception:
        if not drop:
            raise
    waits = trace.drop(0)
    trace.check()
    return waits


def submit(ctx, task):
    """Two copies of one array, joined by a third task; the array is written again, and the host looks."""
    import numpy as np

    la, lb, lc, ld = (ctx.logical_data_empty(64, np.uint8, name=name) for name in "abcd")
    task("first", la.write())
    task("left", la.read(), lb.write())
    task("right", la.read(), lc.write())
    task("join", lb.read(), lc.read(), ld.write())
    task("again", ld.read(), la.rw())
    task("last", lb.rw())
    for data in (la, ld):
        ctx.host_launch(data.read())(lambda x: None)
    ctx.finalize()


if __name__ == "__main__":
    sys.exit(main())
