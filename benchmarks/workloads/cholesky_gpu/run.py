"""The Cholesky factorization in float64 on one GPU beside cuSOLVER, and on several beside cuSOLVERMg.

    python benchmarks/workloads/cholesky_gpu/run.py --sizes 16384,32768 --devices 1,2
    python benchmarks/workloads/cholesky_gpu/run.py --devices 1 --tune

TFLOP/s are n³/3 operations over the median time. The share is of the products of matrices that cuBLAS does in the same
time on as many GPUs (the best of a few sizes, measured in this run). Not timed: making handles, workspaces and the
context, and registering blocks that are on the devices. "host ms" is how much of that it took to submit: where it
comes near the whole, the host holds the GPUs back. "of it" says where that goes, measured in a run of its own
(`host_times.py`): the bodies (cuBLAS through ctypes), waits between streams, copies, the engine. On several GPUs there are
two more rows: with a thread for each GPU that calls bodies (`submit_threads=True`), and with places that stf chooses. From the host all is timed from a matrix in host memory to its
factor there, and the blocks' registration too; cuSOLVER is given the same by one copy each way, cuSOLVERMg by one for
each block column, on a stream for each device.

What bounds it, and how tile and chunk were chosen: docs/design/cholesky-gpu.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # queues of the hardware, which streams share; before CUDA

import argparse
import dataclasses
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "overhead"))

import cusolver
import cusolvermg
import numpy as np
import plan
import stf_tiled
from host_times import HostTimes, TimedKernels, open_timed
from kernels import ArrayKernels, CudaKernels
from matrix import Matrix, relative_error
from report import show_machine

import stf
from stf.devices import lanes as device_lanes

MG_TILES = (256, 512, 1024, 2048)
TUNED = {  # what is tried, in this order; the best so far of the others is kept
    "tile": (512, 768, 1024, 1536, 2048),
    "chunk": (1, 2, 4, 8, 64),
    "inner": (0, 128, 256, 512),
    "urgent": (True, False),
    "whole": (False, True),
    "order": ("right", "left"),
    "lanes": (16, 32, 64),
}
BOUND = 1e-12  # of the relative error


@dataclasses.dataclass(frozen=True)
class Settings:
    """How stf's program is cut and ordered; `lanes` are streams that a context has on a device."""

    tile: int
    chunk: int
    inner: int = 0
    urgent: bool = True
    whole: bool = False
    order: str = "right"
    lanes: int = 16
    threads: bool = False
    auto: bool = False

    def __str__(self) -> str:
        inner = f", inner {self.inner}" if self.inner else ""
        urgent = "" if self.urgent else ", no priorities"
        whole = ", whole" if self.whole else ""
        more = (", a thread each" if self.threads else "") + (", place auto" if self.auto else "")
        return f"tile {self.tile} × {self.chunk}, {self.order}{inner}{urgent}{whole}, {self.lanes} lanes{more}"


@dataclasses.dataclass
class Row:
    """What one contender did with one matrix."""

    who: str
    order: int
    devices: int
    memory: str
    settings: str
    seconds: list[float]
    error: float
    note: str = ""
    submitted: list[float] = dataclasses.field(default_factory=list)
    host_ms: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def median_s(self) -> float:
        return statistics.median(self.seconds) if self.seconds else float("nan")

    @property
    def tflops(self) -> float:
        return self.order**3 / 3 / self.median_s / 1e12


class Bench:
    """The runs, on CUDA devices, or with NumPy on emulated ones to try the program."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.on_cuda = options.kernels == "cuda"
        self.xp: Any = np
        if options.library == "cupy":
            import cupy

            self.xp = cupy
        self.kernels: Any = CudaKernels() if self.on_cuda else ArrayKernels()
        self.resources = stf.Resources()
        self.rows: list[Row] = []
        self.peak = 0.0
        self.streams: list[Any] = []  # to measure on; kernels keep handles for them

    # -- stf -------------------------------------------------------------------------------------------------------

    def context(self, devices: int, settings: Settings, times: HostTimes | None = None, observe: Any = False) -> Any:
        device_lanes.LANES_OF_DEVICE = settings.lanes
        where = f"cpu:{devices}" if self.xp is np else "cuda:" + ",".join(map(str, range(devices)))
        options = {"place": "auto" if settings.auto else None, "submit_threads": settings.threads}
        if times is not None:
            return open_timed(where, times, **options)
        return stf.context(devices=where, resources=self.resources, observe=observe, **options)

    def run_stf(self, order: int, devices: int, memory: str, settings: Settings, repeat: int, check: bool) -> Row:
        """Factor `repeat` times after a warm-up."""
        if self.on_cuda:
            self.use(settings)
        matrix = self.matrix(order, settings.tile, devices, memory)
        run = self.once_from_host if matrix.is_on_host else self.once_on_devices
        clocks = []
        with self.context(devices, settings) as ctx:
            if self.on_cuda:
                self.kernels.prepare(ctx, devices, settings.lanes)
            for _ in range(repeat + 1):
                matrix.fill()
                clocks.append(run(ctx, matrix, devices, settings))
                self.kernels.check()
        error = relative_error(matrix) if check else 0.0
        first = f"; first run {1e3 * clocks[0].seconds:.0f} ms"
        seconds, submitted = ([getattr(c, name) for c in clocks[1:]] for name in ("seconds", "submitted"))
        host_ms = self.host_times(run, matrix, devices, settings) if check else {}
        return Row(stf_tiled.NAME, order, devices, memory, str(settings), seconds, error, first, submitted, host_ms)

    def host_times(self, run: Any, matrix: Matrix, devices: int, settings: Settings) -> dict[str, float]:
        """Return where the host's time goes in one more run, in ms, after a warm-up."""
        times, shares = HostTimes(), {}
        kernels, self.kernels = self.kernels, TimedKernels(self.kernels, times)
        try:
            with self.context(devices, settings, times) as ctx:
                if self.on_cuda:
                    kernels.prepare(ctx, devices, settings.lanes)
                for _ in range(2):
                    matrix.fill()
                    times.clear()
                    clock = run(ctx, matrix, devices, settings)
                    kernels.check()
                    shares = times.shares(clock.submitted)
        finally:
            self.kernels = kernels
        return shares

    def use(self, settings: Settings) -> None:
        """Let the kernels be as the settings say."""
        self.kernels.inner, self.kernels.urgent, self.kernels.whole = settings.inner, settings.urgent, settings.whole

    def once_on_devices(self, ctx: Any, matrix: Matrix, devices: int, settings: Settings) -> quiet:
        blocks = stf_tiled.Blocks.register(ctx, matrix.column, matrix.order, settings.tile, settings.chunk)
        ctx.synchronize()
        with quiet() as clock:
            stf_tiled.factor(blocks, self.kernels, devices, settings.order, auto=settings.auto)
            clock.submit()
            ctx.synchronize()
        if settings.auto:  # a block may be elsewhere, and the matrix is filled anew for the next run
            for block in blocks.all():
                block.write_back()
            ctx.synchronize()
        return clock

    def once_from_host(self, ctx: Any, matrix: Matrix, devices: int, settings: Settings) -> quiet:
        def bring_home(block: Any) -> None:  # as soon as it is done, beside all else
            with ctx.task(stf.exec_place.device(0), block.read(stf.data_place.host()), name="home"):
                pass

        with quiet() as clock:
            blocks = stf_tiled.Blocks.register(ctx, matrix.column, matrix.order, settings.tile, settings.chunk)
            stf_tiled.factor(blocks, self.kernels, devices, settings.order, bring_home, settings.auto)
            clock.submit()
            ctx.synchronize()
        return clock

    def matrix(self, order: int, tile: int, devices: int, memory: str) -> Matrix:
        self.free()
        if memory == "device" and self.xp is not np:
            return Matrix(self.xp, order, tile, devices)
        return Matrix(self.xp, order, tile, 1, empty_pinned if memory == "pinned" else empty_pageable)

    def free(self) -> None:
        """Let go of what was allocated for other matrices."""
        gc.collect()
        if self.xp is not np:
            self.xp.get_default_memory_pool().free_all_blocks()

    def draw(self, order: int, devices: int, memory: str, settings: Settings, folder: Path) -> None:
        """Write the timeline, the trace and the report of one run."""
        from stf.observe import draw

        folder.mkdir(parents=True, exist_ok=True)
        matrix = self.matrix(order, settings.tile, devices, memory)
        run = self.once_from_host if matrix.is_on_host else self.once_on_devices
        if self.on_cuda:
            self.use(settings)
        matrix.fill()
        with self.context(devices, settings, observe=True) as ctx:
            run(ctx, matrix, devices, settings)
            trace = ctx.trace()
            name = f"cholesky-{order}-{devices}-{memory}"
            ctx.report(folder / f"{name}.html")
        (folder / f"{name}.json").write_text(json.dumps(trace))
        title = f"Cholesky, n = {order}, {devices} GPU, {memory}: {settings}"
        try:
            draw.timeline(trace, folder / f"{name}.png", title)
        except ImportError as error:
            print(f"  no timeline: {error}")
        print(f"  drawn: {folder / name}.html, .json, .png")

    # -- rivals ----------------------------------------------------------------------------------------------------

    def run_cusolver(self, order: int, memory: str, call: str, repeat: int) -> Row:
        matrix = self.matrix(order, 2048, 1, memory)
        return self.run_rival(cusolver.Factorization(matrix, call), f"cuSOLVER {call}", matrix, 1, memory, "", repeat)

    def run_mg(self, order: int, devices: int, memory: str, tile: int, repeat: int) -> Row:
        matrix = self.matrix(order, tile, devices, memory)
        rival = cusolvermg.Factorization(matrix, devices)
        return self.run_rival(rival, cusolvermg.NAME, matrix, devices, memory, f"tile {tile}", repeat)

    def run_rival(
        self, rival: Any, name: str, matrix: Matrix, devices: int, memory: str, settings: str, repeat: int
    ) -> Row:
        seconds = []
        for _ in range(repeat + 1):
            matrix.fill()
            with quiet() as clock:
                rival.run()
            seconds.append(clock.seconds)
        rival.close()
        return Row(name, matrix.order, devices, memory, settings, seconds[1:], relative_error(matrix))

    def measure_products(self) -> dict[int, float]:
        """TFLOP/s of cuBLAS's product on one device, by size; several at once where one is small."""
        cupy = self.xp
        rates = {}
        for size in (512, 1024, 2048, 8192):
            count = max(1, 4096 // size)
            a, c = cupy.ones((size, size), order="F"), [cupy.ones((size, size), order="F") for _ in range(count)]
            self.streams += [cupy.cuda.Stream(non_blocking=True) for _ in range(4 - len(self.streams))]
            streams = self.streams[:count]
            repeat = max(2, int(2e13 / (2 * size**3 * count)) // 20)
            cupy.cuda.Device(0).synchronize()
            for is_timed in (False, True):
                start = time.perf_counter()
                for _ in range(repeat if is_timed else 1):
                    for i, target in enumerate(c):
                        with streams[i % len(streams)]:
                            self.kernels.gemm(a, 0, a, 0, target)
                cupy.cuda.Device(0).synchronize()
                rates[size] = 2 * size**3 * count * repeat / (time.perf_counter() - start) / 1e12
        self.peak = max(rates.values())
        return rates

    def measure_panels(self) -> None:
        """Print how long the operations of a panel take, alone: what the cost model is made of."""
        cupy = self.xp
        print("\n  tile    potrf, by inner block (µs)                            trsm   syrk   gemm  of one tile (µs)")
        for tile in (512, 1024, 2048):
            a = cupy.asfortranarray(cupy.eye(tile) * tile)
            b = cupy.ones((tile, tile), order="F")
            cells = []
            for inner in (0, 128, 256, 512):
                self.kernels.inner = inner
                cells.append(f"{inner or 'whole'}: {self.microseconds(lambda a=a: self.kernels.potrf(a)):.0f}")
            trsm = self.microseconds(lambda a=a, b=b: self.kernels.trsm(a, b))
            syrk = self.microseconds(lambda b=b, a=a: self.kernels.syrk(b, 0, a))
            gemm = self.microseconds(lambda b=b, a=a: self.kernels.gemm(b, 0, b, 0, a))
            print(f"  {tile:>5}   {'  '.join(cells):<52}  {trsm:>5.0f}  {syrk:>5.0f}  {gemm:>5.0f}")
            self.kernels.infos.clear()

    def microseconds(self, call: Callable[[], None], repeat: int = 20) -> float:
        cupy = self.xp
        self.streams[:] = self.streams or [cupy.cuda.Stream(non_blocking=True)]
        with self.streams[0] as stream:
            call()
            stream.synchronize()
            start = time.perf_counter()
            for _ in range(repeat):
                call()
            stream.synchronize()
        return (time.perf_counter() - start) / repeat * 1e6

    # -- choosing --------------------------------------------------------------------------------------------------

    def tune(self, order: int, devices: int, memory: str, start: Settings, limit_s: float) -> Settings:
        """Change one parameter after the other, as long as there is time; return the best settings."""
        deadline = time.perf_counter() + limit_s
        known: dict[Settings, float] = {}

        def cost(settings: Settings) -> float:
            if settings not in known and time.perf_counter() < deadline:
                row = self.run_stf(order, devices, memory, settings, 2, False)
                known[settings] = min(row.seconds)
                print(f"    {settings!s:<48} {1e3 * known[settings]:>8.2f} ms {row_rate(row):>6.1f}", flush=True)
            return known.get(settings, float("inf"))

        best = start
        for parameter, values in TUNED.items():
            tried = [dataclasses.replace(best, **{parameter: value}) for value in values]
            best = min([best, *tried], key=cost)
        for tile in TUNED["tile"]:  # once more: it depends on all the others
            best = min(best, dataclasses.replace(best, tile=tile), key=cost)
        return best

    # -- the table -------------------------------------------------------------------------------------------------

    def add(self, row: Row) -> Row:
        self.rows.append(row)
        share = f"{row.tflops / self.peak / row.devices:>6.0%}" if self.peak else "      "
        rivals = [
            r.median_s
            for r in self.rows
            if r.who != row.who and r.who != stf_tiled.NAME and matches(r, row) and r.seconds
        ]
        ratio = f"{row.median_s / min(rivals):>6.2f}" if rivals and row.who == stf_tiled.NAME else "      "
        host = f"{1e3 * statistics.median(row.submitted):>8.2f}" if row.submitted else " " * 8
        host += f"  {'/'.join(f'{ms:.1f}' for ms in row.host_ms.values()):<32}"
        wrong = "" if row.error < BOUND else "  WRONG"
        print(
            f"{row.order:>6} {row.devices:>4}  {row.memory:<8} {row.who:<16} {1e3 * row.median_s:>9.2f} "
            f"{1e3 * min(row.seconds):>9.2f} {host} {row.tflops:>8.1f} {share} {ratio}  {row.error:.0e}  "
            f"{row.settings}{row.note}{wrong}".rstrip(),
            flush=True,
        )
        return row

    def attempt(self, run: Callable[[], Row], who: str) -> None:
        """A rival that is not there, or fails, says so and is left out."""
        try:
            self.add(run())
        except (OSError, RuntimeError, ArithmeticError, MemoryError) as error:
            print(f"       {who}: left out, {type(error).__name__}: {error}")

    def close(self) -> None:
        self.kernels.close()
        self.resources.close()


def matches(rival: Row, row: Row) -> bool:
    return (rival.order, rival.devices, rival.memory) == (row.order, row.devices, row.memory)


def row_rate(row: Row) -> float:
    return row.order**3 / 3 / min(row.seconds) / 1e12


class quiet:
    """Time a block with the collector off."""

    def __enter__(self) -> quiet:
        gc.collect()
        gc.disable()
        self.start = time.perf_counter()
        return self

    def submit(self) -> None:
        """Note that everything is submitted."""
        self.submitted = time.perf_counter() - self.start

    def __exit__(self, *exception: object) -> None:
        self.seconds = time.perf_counter() - self.start
        gc.enable()


def empty_pinned(shape: tuple[int, int]) -> Any:
    import cupyx

    return cupyx.empty_pinned(shape, order="F")


def empty_pageable(shape: tuple[int, int]) -> np.ndarray:
    return np.zeros(shape, order="F")  # pages that are there


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    show_machine()
    bench = Bench(options)
    try:
        if bench.on_cuda:
            rates = bench.measure_products()
            print("cuBLAS dgemm, TFLOP/s: " + ", ".join(f"{rate:.1f} at {size}" for size, rate in rates.items()))
            if options.tune:
                bench.measure_panels()
        for devices in options.devices:
            run_devices(bench, options, devices)
    finally:
        bench.close()
        if options.json is not None:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            log = [dataclasses.asdict(row) | {"tflops": row.tflops} for row in bench.rows]
            options.json.write_text(json.dumps({"dgemm_tflops": bench.peak, "rows": log}, indent=1))
    return int(any(not row.error < BOUND for row in bench.rows))


def run_devices(bench: Bench, options: argparse.Namespace, devices: int) -> None:
    """All sizes on so many devices."""
    tuned: Settings | None = None
    for order in options.sizes:
        settings = tuned or settings_of(options, order, devices)
        if options.tune and tuned is None:
            print(f"\n  tuning at n = {order} on {devices}:")
            tuned = settings = bench.tune(order, devices, "device", settings, options.tune_s)
        print(
            "\n     n GPUs  from     who               median ms    min ms  host ms  of it: body/waits/copies/engine  TFLOP/s  share  ratio  error  settings"
        )
        for memory in options.memory:
            if options.rivals:
                run_rivals(bench, options, order, devices, memory)
            mine = settings if memory == "device" else dataclasses.replace(settings, order="left")
            bench.add(bench.run_stf(order, devices, memory, mine, options.repeat, True))
            if devices > 1 and options.variants:
                for change in ({"threads": True}, {"auto": True}):
                    variant = dataclasses.replace(mine, **change)
                    if variant.auto and not (options.tile or options.chunk or options.tune):
                        chosen = plan.choose(order, devices, plan.CHOOSING)
                        variant = dataclasses.replace(variant, tile=chosen.tile, chunk=chosen.chunk)
                    bench.add(bench.run_stf(order, devices, memory, variant, options.repeat, True))
            if options.draw is not None:
                bench.draw(order, devices, memory, mine, options.draw)


def run_rivals(bench: Bench, options: argparse.Namespace, order: int, devices: int, memory: str) -> None:
    if devices == 1:
        for call in ("Dpotrf", "Xpotrf"):
            bench.attempt(lambda c=call: bench.run_cusolver(order, memory, c, options.repeat), f"cuSOLVER {call}")
    else:
        for tile in options.mg_tiles:
            bench.attempt(lambda t=tile: bench.run_mg(order, devices, memory, t, options.repeat), cusolvermg.NAME)


def settings_of(options: argparse.Namespace, order: int, devices: int) -> Settings:
    """What the command line says, and what the cost model chooses where it says nothing."""
    chosen = plan.choose(order, devices)
    return Settings(
        options.tile or chosen.tile,
        options.chunk or chosen.chunk,
        options.inner,
        not options.no_priorities,
        options.whole,
        options.order,
        options.lanes,
    )


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def words(text: str) -> list[str]:
    known = {"device", "pinned", "pageable"}
    if not set(text.split(",")) <= known:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(sorted(known))}, got {text!r}")
    return text.split(",")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--sizes", type=numbers, default=[16384, 32768], help="orders of the matrices (default: 16384,32768)")
    add("--devices", type=numbers, default=[1], help="numbers of GPUs, such as 1,2 (default: 1)")
    add("--memory", type=words, default=["device"], help="where the matrix is: device,pinned,pageable")
    add("--repeat", type=int, default=5, help="runs after the warm-up (default: 5)")
    add("--tile", type=int, help="columns of a block column (default: by the cost model)")
    add("--chunk", type=int, help="tiles of a chunk (default: by the cost model)")
    add("--inner", type=int, default=0, help="block size inside a diagonal block; 0: all of it by cuSOLVER")
    add("--whole", action="store_true", help="update diagonal blocks by dgemm instead of dsyrk")
    add("--order", choices=["right", "left"], default="right", help="order of submission (from the host: left)")
    add("--lanes", type=int, default=16, help="streams of the context on a device (default: 16)")
    add("--no-priorities", action="store_true", help="no streams of higher priority for the panels")
    add("--mg-tiles", type=numbers, default=list(MG_TILES), help="tiles that cuSOLVERMg is tried with")
    add("--no-rivals", dest="rivals", action="store_false", help="only stf")
    add("--no-variants", dest="variants", action="store_false", help="no rows with submit_threads and place='auto'")
    add("--tune", action="store_true", help="search for the best settings at the first size; print kernel times")
    add("--tune-s", type=float, default=100.0, help="seconds that the search may take (default: 100)")
    add("--draw", type=Path, help="write timelines, traces and reports of one run each into this folder")
    add("--json", type=Path, help="write all times here")
    add("--kernels", choices=["cuda", "arrays"], default="cuda", help="arrays: no cuBLAS, to try the program")
    add("--library", choices=["cupy", "numpy"], default="cupy", help="numpy: on emulated devices")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
