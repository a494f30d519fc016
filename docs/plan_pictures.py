"""Draw the pictures of the page about several GPUs: ``python docs/plan_pictures.py``.

Each is the timeline of a program that `stf.plan` ran on simulated devices, so it needs no GPU, and is the same each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pictures import AMBER, BLUE, GREEN, WHITE, Svg

import stf
from stf._port.links import Link
from stf.observe.durations import Duration

LINK = Link(0.1e-3, 1e9)  # slow, so that copies can be seen
N = 1 << 17  # elements of float64: 1 MiB, and a copy of 1.1 ms
FILLS = {"scale": GREEN, "join": AMBER, "add": GREEN, "combine": AMBER, "fill": WHITE, "factor": AMBER}
Program = Callable[[stf.Context], None]


def body(*arrays: np.ndarray) -> None:
    """Stand for work: the simulator does not run it."""
    arrays[-1][...] = 1.0


def tiles(ctx: stf.Context) -> None:
    """Eight tiles, four for each device; each is changed twice."""
    parts = [ctx.logical_data_zeros(N) for _ in range(8)]
    for _ in range(2):
        for i, part in enumerate(parts):
            ctx.task(i % 2, part.rw(), name="step")(body)


def chains(ctx: stf.Context) -> None:
    """Five chains of tasks, and a task that joins each with the first."""
    data = [ctx.logical_data_zeros(N) for _ in range(5)]
    for _ in range(3):
        for item in data:
            ctx.task("auto", item.rw(), name="step")(body)
    for item in data[1:]:
        ctx.task("auto", data[0].read(), item.rw(), name="join")(body)


def shared(ctx: stf.Context) -> None:
    """A factor that is made on one device and read by tasks on all."""
    factor = ctx.logical_data_empty(N)
    ctx.task(0, factor.write(), name="factor")(body)
    for i in range(8):
        ctx.task(i % 4, factor.read(), ctx.logical_data_zeros(N).rw(), name="scale")(body)


def halos(ctx: stf.Context) -> None:
    """A stencil on the parts of a partitioned array, three steps."""
    place = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
    old, new = (ctx.logical_data(np.zeros(4 * N), data_place=place) for _ in range(2))
    ctx.fill(old, 0.0)
    ctx.fill(new, 0.0)  # where the parts are: nothing comes from the host
    for _ in range(4):
        for a, b in zip(old.parts, new.parts, strict=True):
            ctx.task(a.exec_place, a.read(halo=N // 32), b.rw(), name="smooth")(body)
        old, new = new, old


def sums(ctx: stf.Context) -> None:
    """Partial sums on two devices, which are added up where somebody reads the total."""
    total = ctx.logical_data_zeros(())
    for i in range(6):
        part = ctx.logical_data_zeros(N)
        ctx.task(i % 2, part.read(), total.accumulate(stf.reducer.sum), name="add")(body)
    with ctx.task(0, total.read(), name="use"):
        pass


def planned(program: Program, devices: int, **options: Any) -> stf.Plan:
    """Return the plan of a program, whose tasks take 2 ms each."""

    def run() -> None:
        with stf.context(**options) as ctx:
            program(ctx)

    names = {"step": 2e-3, "join": 2e-3, "scale": 2e-3, "smooth": 2e-3, "add": 2e-3, "factor": 2e-3}
    free = ("fill", "combine", "use", "exchange")
    times = {**names, **dict.fromkeys(free, 0.0)}
    durations = {
        (name, large, kind): Duration(16, s, s, s)
        for name, s in times.items()
        for large in range(48)
        for kind in ("H100", "host")
    }
    ends = [("H100", "H100"), ("host", "H100"), ("H100", "host")]
    return stf.plan(run, devices=f"{devices}xH100", model=stf.Calibration(durations, dict.fromkeys(ends, LINK)))


def draw(name: str, title: str, found: stf.Plan, devices: int) -> None:
    """Draw what each device does: its tasks, and below them the copies that come in."""
    shown = [span for span in found._spans if span.device >= 0 and span.end_s - span.start_s > 1e-5]
    end = max(span.end_s for span in shown)
    scale, row = 480 / end, 52
    picture = Svg(580, 12 + row * devices + 30, title)
    for device in range(devices):
        picture.text(0, 12 + row * device + 22, f"device({device})")
    for span in shown:
        is_copy = span.source != span.device
        x, width = 75 + span.start_s * scale, (span.end_s - span.start_s) * scale
        y = 10 + row * span.device
        fill = WHITE if is_copy else FILLS.get(span.name, BLUE)
        label = span.name if not is_copy and width > 6.5 * len(span.name) + 4 else ""
        where = f"copy from {'the host' if span.source < 0 else f'device({span.source})'}"
        picture.box(x, y + 29 * is_copy, width, 11 if is_copy else 27, fill, label, where if is_copy else span.name)
    bottom = 12 + row * devices
    picture.line(75, bottom, 555, bottom)
    step = max(round(1e3 * end / 8), 1)
    for tick in range(0, int(1e3 * end) + 1, step):
        picture.text(75 + tick * 1e-3 * scale, bottom + 16, f"{tick} ms", anchor="middle", size=11)
    picture.save(name)


def main() -> None:
    draw("tiles.svg", "Tiles that are given out to two devices", planned(tiles, 2), 2)
    draw("auto.svg", "Chains of tasks that stf placed on two devices", planned(chains, 2, place="auto"), 2)
    draw("shared.svg", "A factor is copied once to each of four devices", planned(shared, 4), 4)
    draw("halos.svg", "Parts on four devices, and the edges that are copied", planned(halos, 4), 4)
    draw("sums.svg", "Partial sums on two devices", planned(sums, 2), 2)


if __name__ == "__main__":
    main()
