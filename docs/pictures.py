"""Draw the pictures of the pages from programs that run: ``python docs/pictures.py``. Needs Graphviz's ``dot``.

Every picture is legible on light and on dark: boxes have a fill of their own, and what stands outside is mid-grey.
"""

from __future__ import annotations

import html
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import stf

FOLDER = Path(__file__).parent / "pictures"
INK, GREY = "#1d2430", "#757d88"
BLUE, GREEN, RED, AMBER, WHITE = "#cfe2fa", "#cdeccb", "#f6c6c2", "#f9e3ae", "#eceff3"
FONT = "Helvetica, Arial, sans-serif"


class Svg:
    """A drawing of boxes and lines of text."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size = width, height
        self.parts = [f"<title>{html.escape(title)}</title>"]

    def box(self, x: float, y: float, width: float, height: float, fill: str, text: str = "", tip: str = "") -> None:
        title = f"<title>{html.escape(tip)}</title>" if tip else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" fill="{fill}" '
            f'stroke="#8a929e" stroke-width="0.6">{title}</rect>'
        )
        if text:
            self.text(x + width / 2, y + height / 2 + 4, text, INK, "middle")

    def text(self, x: float, y: float, text: str, fill: str = GREY, anchor: str = "start", size: float = 12) -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}" font-size="{size}" '
            f'font-family="{FONT}">{html.escape(text)}</text>'
        )

    def line(self, x0: float, y0: float, x1: float, y1: float) -> None:
        self.parts.append(f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{GREY}" stroke-width="0.8"/>')

    def save(self, name: str) -> None:
        width, height = self.size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        )
        (FOLDER / name).write_text("\n".join([head, *self.parts, "</svg>\n"]))


def draw_graph(dot: str, name: str, fills: dict[str, str] | None = None, direction: str = "LR") -> None:
    """Write a task graph as a picture; `fills` colors the tasks whose label begins so."""
    dot = dot.replace("{", f'{{\n  bgcolor="transparent"; rankdir="{direction}";', 1)
    dot = re.sub(r'color="#5f6670"', f'color="{GREY}"', dot)
    for label, fill in (fills or {}).items():
        dot = re.sub(rf'(label="{label}\b[^\]]*fillcolor=")#\w+', rf"\g<1>{fill}", dot)
    dot = re.sub(r', tooltip="[^"]*"', "", dot)
    done = subprocess.run(["dot", "-Tsvg"], input=dot, capture_output=True, text=True, check=True)
    text = re.sub(r"<\?xml.*?<svg", "<svg", done.stdout, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL).replace("Helvetica,sans-Serif", FONT)
    (FOLDER / name).write_text(text)


@stf.task
def axpy(a: float, x: stf.Read, y: stf.ReadWrite) -> None:
    y += a * x


def first() -> None:
    """Two tasks on two devices, and the copies between them."""
    with stf.context(devices="cpu:2", observe="dot") as ctx:
        x, y = ctx.logical_data(np.ones(5), name="x"), ctx.logical_data(np.zeros(5), name="y")
        axpy(2.0, x, y)
        axpy.on(1)(3.0, x, y)
        ctx.synchronize()
        dot = ctx.dot(ignore_prereqs=False)
    allocations = re.findall(r'"(o\d+)" \[label="alloc', dot)
    lines = [line for line in dot.split("\n") if not any(f'"{name}"' in line for name in allocations)]
    text = re.sub(r", \d+ B", "", "\n".join(lines)).replace('fontsize="8"', 'fontsize="10"')
    text = text.replace('shape="ellipse", style="filled"', 'shape="box", style="filled"')
    draw_graph(text, "first.svg", {"copy": WHITE}, "TB")


def four() -> None:
    """A diamond: two tasks in the middle do not touch each other's data."""
    with stf.context(devices="cpu", observe="dot") as ctx:
        x, a, b, c = (ctx.logical_data_empty(4, name=name) for name in "xabc")
        ctx.task(x.write(), name="make")(lambda x: np.ones(4))
        ctx.task(x.read(), a.write(), name="left")(lambda x, a: x + 1)
        ctx.task(x.read(), b.write(), name="right")(lambda x, b: x + 2)
        ctx.task(a.read(), b.read(), c.write(), name="join")(lambda a, b, c: a + b)
        ctx.synchronize()
        draw_graph(ctx.dot(), "four.svg", {"left": GREEN, "right": GREEN}, "TB")


def failure() -> None:
    """A task fails; what depends on it is skipped, the rest runs."""
    ran = []

    def body(name: str) -> Callable[..., None]:
        def run(*arrays: np.ndarray) -> None:
            if name == "invert x":
                raise ZeroDivisionError
            ran.append(name)

        return run

    tasks = ["load x", "load y", "invert x", "square y", "use x", "add x, y", "save y"]
    with stf.context(devices="cpu", observe="dot") as ctx:
        x, y, z, u = (ctx.logical_data_zeros(4, name=name) for name in "xyzu")
        accesses = [
            [x.write()], [y.write()], [x.rw()], [y.rw()], [x.read(), u.write()], [x.read(), y.read(), z.write()],
            [y.read()],
        ]  # fmt: skip
        for name, given in zip(tasks, accesses, strict=True):
            ctx.task(*given, name=name)(body(name))
        try:
            ctx.synchronize()
        except stf.Error:
            pass
        fills = {name: GREEN if name in ran else AMBER for name in tasks} | {"invert x": RED}
        draw_graph(ctx.dot(remove_data_deps=True), "failure.svg", fills)


def timeline() -> None:
    """What two devices do: tasks and copies, as they ran."""

    def work(*arrays: np.ndarray) -> None:
        time.sleep(0.004)

    with stf.context(devices="cpu:2", observe="trace") as ctx:
        halves = [ctx.logical_data(np.ones(1 << 17), name=name) for name in ("left", "right")]
        border = ctx.logical_data(np.ones(1 << 16), name="border")
        for step in range(3):
            for device, half in enumerate(halves):
                ctx.task(device, half.rw(), border.read(), name=f"step {step}")(work)
            ctx.task(step % 2, border.rw(), name="border")(work)
        ctx.synchronize()
        events = [event for event in ctx.trace()["traceEvents"] if event["ph"] == "X"]
    begin = min(event["ts"] for event in events)
    end = max(event["ts"] + event["dur"] for event in events)
    picture = Svg(560, 150, "A timeline of two devices")
    scale = 480 / (end - begin)
    for device in (1, 2):
        picture.text(0, 12 + 58 * (device - 1) + 24, f"device({device - 1})")
    for event in events:
        x, width = 70 + (event["ts"] - begin) * scale, max(event["dur"] * scale, 1)
        y = 12 + 58 * (event["pid"] - 1)
        is_copy = event["cat"] == "copy"
        fill = WHITE if is_copy else AMBER if event["name"] == "border" else BLUE
        label = event["name"] if not is_copy and width > 36 else ""
        picture.box(x, y + (10 if is_copy else 0), width, 18 if is_copy else 38, fill, label)
    picture.line(70, 128, 550, 128)
    for tick in range(0, int((end - begin) / 1e3) + 1, 8):
        picture.text(70 + tick * 1e3 * scale, 144, f"{tick} ms", anchor="middle", size=11)
    picture.save("timeline.svg")


def both() -> None:
    """A task graph beside the timeline of its run on two devices, for the README."""
    fills = {"load": WHITE, "blur": BLUE, "edges": GREEN, "compare": AMBER}
    spent = {"load": 0.006, "blur": 0.012, "edges": 0.009, "compare": 0.006}

    def body(name: str) -> Callable[..., None]:
        return lambda *arrays: time.sleep(spent[name])

    with stf.context(devices="cpu:2", observe=True) as ctx:
        images = [ctx.logical_data_empty(1 << 16, name=name) for name in ("left", "right")]
        masks = [image.empty_like(name=f"{image.name} edges") for image in images]
        for device, (image, mask) in enumerate(zip(images, masks, strict=True)):
            ctx.task(device, image.write(), name="load")(body("load"))
            ctx.task(device, image.rw(), name="blur")(body("blur"))
            ctx.task(device, image.read(), mask.write(), name="edges")(body("edges"))
        ctx.task(0, *[mask.read() for mask in masks], ctx.token().write(), name="compare")(body("compare"))
        ctx.synchronize()
        events = [event for event in ctx.trace()["traceEvents"] if event["ph"] == "X"]
        dot = ctx.dot(remove_data_deps=True)
    draw_graph(dot, "readme.svg", fills, "TB")
    drawn = (FOLDER / "readme.svg").read_text()
    width, height = (float(n) for n in re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', drawn).groups())
    picture = Svg(int(width * 1.33) + 580, int(height * 1.33), "A task graph, and when its tasks ran on two devices")
    inner = re.sub(r'<svg width="[^"]*" height="[^"]*"', f'<svg width="{width * 1.33}" height="{height * 1.33}"', drawn)
    picture.parts.append(inner[inner.index("<svg") :].strip())
    begin = min(event["ts"] for event in events)
    scale = 470 / (max(event["ts"] + event["dur"] for event in events) - begin)
    left, top = width * 1.33 + 100, height * 1.33 / 2 - 70
    for device in (0, 1):
        picture.text(left - 10, top + 62 * device + 24, f"device({device})", anchor="end")
    for event in events:
        name, is_copy = event["name"], event["cat"] == "copy"
        x, y, length = left + (event["ts"] - begin) * scale, top + 62 * (event["pid"] - 1), event["dur"] * scale
        fill = WHITE if is_copy else fills[name]
        picture.box(x, y + 10 * is_copy, max(length, 2), 18 if is_copy else 38, fill, name if length > 36 else "")
    picture.line(left, top + 116, left + 470, top + 116)
    for tick in range(0, int(470 / scale / 1e3) + 1, 10):
        picture.text(left + tick * 1e3 * scale, top + 132, f"{tick} ms", anchor="middle", size=11)
    picture.save("readme.svg")


def data() -> None:
    """Where a logical data object is valid, after each task."""
    columns = ["host", "device(0)", "device(1)"]
    steps = []

    def note(what: str, data: stf.LogicalData) -> None:
        ctx.synchronize()
        states = dict(re.findall(r"^  (host|device\(\d\)): (.*)$", data.history(), re.MULTILINE))
        steps.append((what, [states.get(column, "") for column in columns]))

    with stf.context(devices="cpu:2") as ctx:
        x = ctx.logical_data(np.ones(4), name="x")
        note("x = ctx.logical_data(X)", x)
        ctx.task(0, x.read())(lambda x: None)
        note("read at device(0)", x)
        ctx.task(1, x.rw())(lambda x: x + 1)
        note("read, written at device(1)", x)
        ctx.task(0, x.read())(lambda x: None)
        note("read at device(0)", x)
        x.numpy()
        note("x.numpy()", x)
    picture = Svg(470, 42 + 34 * len(steps), "Where x is valid")
    for index, column in enumerate(columns):
        picture.text(225 + 92 * index, 20, column, anchor="middle")
    for row, (what, states) in enumerate(steps):
        picture.text(0, 54 + 34 * row, what)
        for index, state in enumerate(states):
            valid = state and not state.startswith("no valid")
            fill, text = (GREEN, "valid") if valid else (WHITE, "-")
            if valid and state.startswith("modified"):
                fill, text = AMBER, "only copy"
            picture.box(183 + 92 * index, 36 + 34 * row, 84, 27, fill, text)
    picture.save("data.svg")


def replay() -> None:
    """How long each call of a replayed function takes."""
    times = []

    @stf.replay
    def steps(x: stf.LogicalData, y: stf.LogicalData) -> None:
        for _ in range(100):
            axpy(1.0, x, y)

    with stf.context(devices="cpu") as ctx:
        x, y = ctx.logical_data_ones(16), ctx.logical_data_zeros(16)
        for _ in range(8):
            start = time.perf_counter()
            steps(x, y)
            times.append(1e6 * (time.perf_counter() - start))
            ctx.synchronize()
        steps.close()
    picture = Svg(460, 44 + 26 * len(times), "Time of each call of a replayed function")
    picture.text(0, 16, "call")
    picture.text(110, 16, "time until the call returns")
    kinds = ["runs", "is recorded"] + ["launches"] * (len(times) - 2)
    for row, (kind, spent) in enumerate(zip(kinds, times, strict=True)):
        y = 28 + 26 * row
        picture.text(0, y + 15, f"{row + 1}  {kind}")
        width = 270 * spent / max(times)
        picture.box(110, y, width, 20, {"runs": BLUE, "is recorded": AMBER}.get(kind, GREEN))
        picture.text(116 + width, y + 15, f"{spent:.0f} µs")
    picture.save("replay.svg")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for draw in (first, four, failure, timeline, both, data, replay):
        draw()


if __name__ == "__main__":
    main()
