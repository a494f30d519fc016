"""The page of a run in a browser: what a click, a search and a switch do, and that the numbers are right."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ordering import Order

import stf
from stf.observe import DotRecorder, Statistics, TraceRecorder
from stf.observe.devices import COMPUTE, COPY_IN, STREAMS
from stf.observe.observer import Operation
from stf.observe.report import Report
from stf.observe.run import collect

HOSTILE = '<img src=x onerror=alert(1)></script><script>alert(2)</script>"'


@stf.task
def double(x: stf.ReadWrite) -> None:
    x *= 2


@pytest.fixture(scope="module")
def real_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on two emulated devices, with a failure and a name that is no name."""
    with stf.context(devices="cpu:2", observe=True, name=HOSTILE) as ctx:
        x = ctx.logical_data(np.ones(1000), name=HOSTILE)
        y = ctx.logical_data(np.ones(1000), name="y")
        with ctx.dot_section(HOSTILE):
            double.on(0)(x)
            double.on(1).named(HOSTILE)(x)
            double.on(1)(y)
        fail = ctx.task(y.rw(), name="fail")
        fail(raising)
        double.on(1)(y)
        with pytest.raises(stf.TaskFailedError, match="on purpose"):
            ctx.synchronize()
        y.accept()
        return ctx.report(tmp_path_factory.mktemp("real") / "run.html")


def raising(y: Any) -> None:
    raise ValueError(f"on purpose {HOSTILE}")


class Program:
    """Recorders that are told a program, with the times that the tests want."""

    def __init__(self) -> None:
        self.now = 0
        self.dot, self.trace = DotRecorder(), TraceRecorder(lambda: self.now)
        self.count = 0
        self.orders: defaultdict[int, Order] = defaultdict(Order)

    def tell(self, now: int, what: str, *arguments: Any) -> None:
        self.now = now
        for recorder in (self.dot, self.trace):
            getattr(recorder, what)(*arguments)

    def task(self, now: int, name: str, *uses: tuple[int, int], device: int = 0) -> int:
        self.count += 1
        accesses = [SimpleNamespace(data_id=i, data_name=f"data{i}", mode=mode) for i, mode in uses]
        place = {"place_name": f"device({device})", "device": device, "call_site": f"program.py:{self.count}"}
        waits_for: set[int] = set()
        for data, mode in uses:
            waits_for |= self.orders[data].take(self.count, mode, place["place_name"])
        place["waits_for"] = sorted(waits_for - {self.count})
        common = SimpleNamespace(id=self.count, symbol=name, kind="task", accesses=accesses, **place)
        self.tell(now, "task", common)
        return self.count

    def ran(self, task: int, name: str, start: int, end: int, device: int = 0) -> None:
        self.tell(self.now, "ran", task, name, device, COMPUTE, start, end, "task")

    def page(self, path: Path) -> Path:
        return Report(
            "a <run>", "somewhere", Statistics(tasks={"task": self.count}), collect(self.dot, self.trace)
        ).write(path)


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.fixture
def timed_page(program: Program, tmp_path: Path) -> Path:
    """Two functions on two devices, µs apart, with a gap for each of the causes.

    device 0: [idle 1, host][long 1..7][idle 7..10, after `short` at 8: no work 1, copy 1, start 1][last 10..12]
    """
    long = program.task(1_000, "long", (1, 3))
    short = program.task(1_500, "short", (2, 3), device=1)
    program.tell(1_600, "operation", Operation("alloc", 2, "data2", "device(0)", "device(0)", 800, 3, 1, ()))
    program.tell(1_700, "operation", Operation("copy", 2, "data2", "device(1)", "device(0)", 800, 3, 2, (-1, short)))
    last = program.task(1_800, "last", (1, 3), (2, 1))
    program.ran(long, "long", 2_000, 8_000)
    program.ran(short, "short", 2_000, 9_000, device=1)
    program.tell(1_800, "ran", 0, "copy data2", 0, COPY_IN, 9_100, 10_000, "copy", 2)
    program.ran(last, "last", 11_000, 13_000)
    return program.page(tmp_path / "timed.html")


def texts(page: Any, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def cells_of(page: Any, selector: str) -> list[list[str]]:
    """The cells of a table's rows."""
    rows = page.locator(f"{selector} tbody tr").all_inner_texts()
    return [[cell.strip() for cell in row.split("\t")] for row in rows]


def wait_for_frame(page: Any) -> None:
    """Wait until what was asked for is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))")


def point_of(page: Any, task: int) -> dict[str, float]:
    """Where the middle of a task's bar is on the canvas."""
    return page.evaluate(
        """(task) => {
          const { timeline: t } = stf.page, span = t.model.task.span[task], row = t.rowOfIndex.get(t.model.span.row[span]);
          const x = (t.x(t.model.span.start[span]) + t.x(t.model.span.end[span])) / 2;
          return { x, y: OVERVIEW + RULER + row.top - t.scroll + 8 };
        }""",
        task,
    )


def test_a_click_on_a_bar_says_which_line_asked_for_it(open_page: Callable[..., Any], real_page: Path) -> None:
    page = open_page(real_page)
    page.click("#tab-timeline")
    wait_for_frame(page)
    page.evaluate("stf.page.timeline.reveal(2)")  # it may be narrower than a pixel
    wait_for_frame(page)
    page.locator("#panel-timeline canvas").click(position=point_of(page, 2))
    assert page.locator("#detail h2").inner_text().startswith("double")
    assert page.locator("#detail .source .here").inner_text().strip().endswith("double.on(1)(y)")
    detail = page.locator("#detail").inner_text()
    assert "rw y: float64[1000], 7.81 KiB" in detail and "copy y host → device(1), 7.81 KiB" in detail
    assert "test_report.py:" in detail and "device(1)" in detail
    page.locator("#panel-timeline canvas").press("Escape")
    assert not page.locator("#detail").is_visible()


def test_hostile_names_are_only_text(open_page: Callable[..., Any], real_page: Path) -> None:
    page = open_page(real_page)
    assert page.title() == f"stf: {HOSTILE}"
    for tab in page.locator("#tabs button").all():
        tab.click()
    page.click("#tab-graph")
    page.locator("#panel-graph .node").first.wait_for()
    page.locator("#panel-graph .node", has_text="<img").first.click(force=True)
    assert HOSTILE in page.locator("#detail").inner_text()
    assert page.locator("#stage img, #stage script, #detail img, #detail script").count() == 0
    assert page.locator("script").count() == 10  # two blocks of data, eight files


def test_failures_come_first_and_skips_apart(open_page: Callable[..., Any], real_page: Path) -> None:
    page = open_page(real_page)
    assert texts(page, "#tabs button")[0] == "Failures (1)" and "and 1 skipped" in texts(page, "#cards .bad")[0]
    assert texts(page, "#panel-failures h2") == ["Failed tasks", "Skipped tasks"]
    failed, skipped = cells_of(page, "#panel-failures")
    raised = f"test_report.py:{raising.__code__.co_firstlineno + 1}"
    assert failed[:3] == ["fail", f"ValueError: on purpose {HOSTILE}", raised] and failed[4] == "device(0)"
    assert skipped[0] == "double" and skipped[1].startswith("task 'fail' (test_report.py:") and len(skipped) == 4
    page.locator("#panel-failures tbody tr").first.click()
    assert page.locator("#detail .failure").inner_text() == f"ValueError: on purpose {HOSTILE} raised at {raised}"
    page.locator("#panel-failures tbody tr").last.click()
    assert page.locator("#detail .failure").inner_text().startswith("Skipped: task 'fail' (test_report.py:")
    page.click("#tab-graph")
    page.locator(".node").first.wait_for()
    assert page.locator(".node.failed .name").all_text_contents() == ["fail"]
    assert page.locator(".node.skipped .name").all_text_contents() == ["double"]


def test_the_timeline_zooms_pans_and_comes_back(open_page: Callable[..., Any], timed_page: Path) -> None:
    page = open_page(timed_page)
    canvas = page.locator("#panel-timeline canvas")
    shown = "(() => { const { from, to } = stf.page.timeline; return [from, to]; })()"
    whole = page.evaluate(shown)
    at = point_of(page, 0)
    time = page.evaluate("(x) => stf.page.timeline.timeAt(x)", at["x"])
    canvas.hover(position=at)
    page.mouse.wheel(0, -400)
    zoomed = page.evaluate(shown)
    assert zoomed[1] - zoomed[0] < (whole[1] - whole[0]) * 0.6
    assert page.evaluate("(x) => stf.page.timeline.timeAt(x)", at["x"]) == pytest.approx(time, abs=1)
    box = canvas.bounding_box()
    x, y = box["x"] + at["x"], box["y"] + at["y"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 100, y, steps=3)
    page.mouse.up()
    panned = page.evaluate(shown)
    assert panned[0] < zoomed[0] and panned[1] - panned[0] == pytest.approx(zoomed[1] - zoomed[0])
    assert not page.locator("#detail").is_visible()  # a drag selects nothing
    canvas.press("d")
    assert page.evaluate(shown)[0] > panned[0]
    page.get_by_role("button", name="Whole run").click()
    assert page.evaluate(shown) == whole
    canvas.dblclick(position=at)
    assert page.evaluate(shown)[1] - page.evaluate(shown)[0] < (whole[1] - whole[0])
    canvas.press("0")
    assert page.evaluate(shown) == whole
    canvas.hover(position=at)
    assert texts(page, "#tip b") == ["long"]


def test_a_short_run_that_began_late_fills_the_timeline(
    open_page: Callable[..., Any], program: Program, tmp_path: Path
) -> None:
    """Ten tasks of a microsecond, 30 ms after the program submitted the first; of those far apart, most are shown."""
    for number in range(10):
        task = program.task(number * 1_000, f"step({number})", (1, 3))
        program.ran(task, f"step({number})", 30_000_000 + number * 2_000, 30_001_000 + number * 2_000)
    page = open_page(program.page(tmp_path / "late.html"))
    shown = page.evaluate("[stf.page.timeline.from, stf.page.timeline.to]")
    assert 29_999_000 < shown[0] < 30_000_000 and 30_019_000 < shown[1] < 30_020_000
    page.get_by_role("button", name="Whole run").click()
    assert page.evaluate("stf.page.timeline.from") < 0
    for number, start in enumerate((40_000_000, 40_050_000)):
        program.ran(program.task(11_000 + number, "late", (2, 3)), "late", start, start + 1_000)
    page = open_page(program.page(tmp_path / "apart.html"))
    shown = page.evaluate("[stf.page.timeline.from, stf.page.timeline.to]")
    assert 29_999_000 < shown[0] < 30_000_000 and 30_019_000 < shown[1] < 30_020_000
    assert "2 bars are earlier or later" in page.locator("#panel-timeline").inner_text()
    page.get_by_role("button", name="Whole run").click()
    assert "earlier or later" not in page.locator("#panel-timeline").inner_text()


def test_few_rows_use_the_box_and_many_keep_their_height(
    open_page: Callable[..., Any], program: Program, timed_page: Path, tmp_path: Path
) -> None:
    page = open_page(timed_page)
    wait_for_frame(page)
    assert page.evaluate("stf.page.timeline.laneHeight") == 64
    page.set_viewport_size({"width": 1280, "height": 520})
    wait_for_frame(page)
    lane, height, box = page.evaluate(
        "(({ laneHeight, height, viewHeight }) => [laneHeight, height, viewHeight])(stf.page.timeline)"
    )
    assert 18 < lane < 64 and box - 8 < height <= box
    at = point_of(page, 1)
    page.locator("#panel-timeline canvas").hover(position={"x": at["x"], "y": at["y"] + lane - 12})
    assert texts(page, "#tip b") == ["short"]
    for device in range(60):
        task = program.task(1_000, "wide", (device, 3), device=device)
        program.ran(task, "wide", 2_000, 8_000, device=device)
    page = open_page(program.page(tmp_path / "many.html"))
    wait_for_frame(page)
    assert page.evaluate("stf.page.timeline.laneHeight") == 18


def test_idle_time_is_told_by_cause_and_adds_up(open_page: Callable[..., Any], timed_page: Path) -> None:
    page = open_page(timed_page)
    page.click("#tab-idle")
    rows = [row.split("\t") for row in page.locator("#panel-idle tbody tr").all_inner_texts()]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["device(0)", "8.00 µs", "4.00 µs", "1.00 µs", "0 ns", "1.00 µs", "2.00 µs"],
        ["device(1)", "7.00 µs", "5.00 µs", "4.00 µs", "500 ns", "0 ns", "500 ns"],
    ]
    for unit in page.evaluate("stf.idleTimes(stf.model)"):
        assert unit["busy"] + sum(unit["idle"]) == page.evaluate("stf.model.finish - stf.model.begin") == 12_000
    assert "its inputs" not in page.locator("#panel-idle").inner_text()
    assert "had not submitted it yet" in page.locator("#panel-idle .explained", has_text="the host").get_attribute(
        "title"
    )


def test_the_critical_path_is_listed_and_marked(open_page: Callable[..., Any], timed_page: Path) -> None:
    page = open_page(timed_page)
    page.click("#tab-critical")
    steps = page.locator("#panel-critical .table").nth(1).locator("tbody tr")
    assert [row.split("\t")[1].strip() for row in steps.all_inner_texts()] == ["short", "last"]
    assert "2 tasks, 9.00 µs, 75 % of the run" in page.locator("#panel-critical").inner_text()
    steps.nth(1).click()
    assert "a copy of its data; then 1.00 µs until it started" in page.locator("#detail").inner_text()
    page.click("#tab-graph")
    page.locator(".node").first.wait_for()
    assert page.locator(".node.critical .name").all_text_contents() == ["short", "last"]
    assert page.locator(".edge.critical").count() == 1 and page.locator(".edge").count() == 2


def test_a_critical_path_through_every_node_is_not_marked(
    open_page: Callable[..., Any], program: Program, tmp_path: Path
) -> None:
    for step in range(300):
        program.tell(0, "section_begin", f"step {step // 30}") if step % 30 == 0 else None
        for data in (1, 2):
            task = program.task(step, "chain" if data == 1 else "side", (data, 3))
            program.ran(task, "work", step * 1_000, step * 1_000 + (900 if data == 1 else 100), device=data)
        program.tell(0, "section_end") if step % 30 == 29 else None
    page = open_page(program.page(tmp_path / "chain.html"))
    page.click("#tab-graph")
    page.locator(".node").first.wait_for()
    assert page.locator(".node").count() == 10 and page.locator(".critical").count() == 0
    assert (
        "The critical path goes through 10 of 10 nodes, and is not marked." in page.locator("#panel-graph").inner_text()
    )
    assert page.locator(".node .detail", has_text="10 % of the critical path").count() == 10
    page.locator(".node", has_text="step 3").first.click(force=True)
    page.get_by_role("button", name="Show its tasks").click()
    page.locator(".node", has_text="chain").first.wait_for()
    assert page.locator(".node.critical .name").all_text_contents() == ["chain"] * 30
    assert "not marked" not in page.locator("#panel-graph").inner_text()


def test_kernels_of_a_task_lead_to_it(open_page: Callable[..., Any], program: Program, tmp_path: Path) -> None:
    first = program.task(0, "first", (1, 3))
    program.ran(first, "first", 1_000, 9_000)
    for start in (1_000, 5_000):
        program.tell(0, "ran", first, "axpy_kernel", 0, STREAMS - 7, start, start + 3_000, "kernel")
    page = open_page(program.page(tmp_path / "kernels.html"))
    wait_for_frame(page)
    at = point_of(page, 0)
    assert page.evaluate("stf.model.rows.map((row) => row.name)") == ["compute", "stream 7"]
    below = page.evaluate("stf.page.timeline.laneHeight + ROW_GAP")
    page.locator("#panel-timeline canvas").click(position={"x": at["x"] - 150, "y": at["y"] + below})
    assert page.locator("#detail h2").inner_text().startswith("axpy_kernel")
    page.locator("#detail .links button").click()
    assert page.locator("#detail h2").inner_text().startswith("first")
    assert "2 kernels and copies, 6.00 µs" in page.locator("#detail").inner_text()
    page.click("#tab-idle")
    assert "8.00 µs" in page.locator("#panel-idle tbody tr").inner_text()  # kernels are no second work


def test_what_if_plays_the_graph_again(open_page: Callable[..., Any], timed_page: Path) -> None:
    page = open_page(timed_page)
    page.click("#tab-whatIf")

    def times() -> list[str]:
        return [cells[1] for cells in cells_of(page, "#panel-whatIf")]

    # 7 and 2, and a copy of 0.9 between them; 6 fits beside the copy, which takes no worker: a GPU makes it
    assert times()[:2] == ["15.0 µs", "9.90 µs"] and times()[-1] == "9.90 µs"
    page.get_by_label("copies take no time").check()
    assert times()[:2] == ["15.0 µs", "9.00 µs"]
    page.get_by_label("Function", exact=True).select_option(label="short")
    page.get_by_label("Times faster").fill("7")
    assert times()[:2] == ["9.00 µs", "8.00 µs"]
    page.get_by_label("tasks are submitted when they were").check()
    assert times()[:2] == ["9.00 µs", "8.00 µs"]  # all were submitted in the first 0.8 µs


def test_one_worker_takes_as_long_as_all_work_and_copies(
    open_page: Callable[..., Any], program: Program, tmp_path: Path
) -> None:
    """Twenty tasks, each behind a copy that waited for those before it, on two threads."""
    for number in range(20):
        came_in = Operation("copy", number, f"data{number}", "host", "device(0)", 800, number + 1, number + 1, ())
        program.tell(number, "operation", came_in)
        program.task(number, "step", (number, 3))
    for number in range(20):
        begin, worker = number // 2 * 4_000 + 1_000, number % 2
        program.tell(99, "ran", 0, "copy", 0, worker, begin, begin + 1_000, "copy", number + 1)
        program.tell(99, "ran", number + 1, "step", 0, worker, begin + 1_000, begin + 4_000, "task")
    written_back = Operation("copy", 19, "data19", "device(0)", "host", 800, 0, 21, (20,))
    program.tell(90_000, "operation", written_back)
    program.tell(99, "ran", 0, "copy", -1, 0, 91_000, 96_000, "copy", 21)
    page = open_page(program.page(tmp_path / "threads.html"))
    page.click("#tab-whatIf")
    rows = {cells[0]: cells[1] for cells in cells_of(page, "#panel-whatIf")}
    assert rows["1"] == "85.0 µs"  # 20 times 3, 20 times 1, and 5
    assert rows["as in this run: 2"] == "44.0 µs" and rows["any number"] == "9.00 µs"
    assert "Measured: 96.0 µs with at most 2 workers busy at once." in page.locator("#panel-whatIf").inner_text()
    page.get_by_label("copies take no time").check()
    assert cells_of(page, "#panel-whatIf")[0][1] == "60.0 µs"


def test_the_graph_is_searched_by_name_data_and_line(open_page: Callable[..., Any], timed_page: Path) -> None:
    page = open_page(timed_page)
    assert page.evaluate("stf.page.graph === undefined")  # laid out when it is opened
    page.click("#tab-graph")
    page.locator(".node").first.wait_for()
    search = page.get_by_label("Find tasks in the graph")
    for text, left in (("short", 1), ("data2", 2), ("program.py:3", 1), ("data1 last", 1), ("nothing", 0), ("", 3)):
        search.fill(text)
        assert page.locator(".node:not(.dimmed)").count() == left, text
    search.fill("data2")
    search.press("Enter")
    assert page.locator("#detail h2").inner_text().startswith("short")
    page.locator(".node", has_text="last").click(force=True)
    assert page.locator("#detail h2").inner_text().startswith("last")
    page.locator("#detail .links button", has_text="long").click()
    assert page.locator("#detail h2").inner_text().startswith("long")
    page.get_by_role("button", name="In the timeline").click()
    assert page.locator("#panel-timeline").is_visible()


def test_light_and_dark(open_page: Callable[..., Any], timed_page: Path) -> None:
    back = "getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(255, 255, 255)", "rgb(21, 24, 29)"
    page = open_page(timed_page, color_scheme="light")
    assert page.evaluate(back) == light
    page.click("#theme")
    assert page.evaluate(back) == dark and page.evaluate("stf.color('page')") == dark
    page.click("#theme")
    assert page.evaluate(back) == light
    page = open_page(timed_page, color_scheme="dark")
    assert page.evaluate(back) == dark
    page.click("#theme")
    assert page.evaluate(back) == light


def test_tables_are_sorted_by_their_heads(open_page: Callable[..., Any], timed_page: Path) -> None:
    page = open_page(timed_page)
    page.click("#tab-time")

    def column(number: int) -> list[str]:
        return [row.split("\t")[number].strip() for row in page.locator("#panel-time tbody tr").all_inner_texts()]

    assert column(0) == ["short", "long", "last"]  # by total time
    page.get_by_role("button", name="function", exact=True).click()
    assert column(0) == ["last", "long", "short"]
    page.get_by_label("by line").check()
    assert sorted(column(0)) == ["program.py:1", "program.py:2", "program.py:3"]
    page.locator("#panel-time tbody tr", has_text="program.py:2").click()
    assert page.locator("#panel-timeline").is_visible() and "1 found" in page.locator("#panel-timeline").inner_text()


def test_many_tasks_are_grouped_and_opened(open_page: Callable[..., Any], program: Program, tmp_path: Path) -> None:
    for step in range(12):
        program.tell(0, "section_begin", f"step {step}")
        for number in range(50):
            task = program.task(step * 1_000 + number, f"work({number})", (number, 3))
            program.ran(
                task, f"work({number})", step * 10_000 + number * 100, step * 10_000 + number * 100 + 90, number % 2
            )
        program.tell(0, "section_end")
    page = open_page(program.page(tmp_path / "many.html"))
    page.click("#tab-graph")
    page.locator(".node").first.wait_for()
    assert page.locator(".node").count() == 12 and page.locator(".edge").count() == 11
    assert (
        "600 tasks are too many to read: each section is one node."
        in page.locator("#panel-graph .note").all_inner_texts()[1]
    )
    page.locator(".node", has_text="step 3").first.click(force=True)
    page.get_by_role("button", name="Show its tasks").click()
    page.locator(".node", has_text="work(7)").wait_for()
    assert page.locator(".node").count() == 50 and texts(page, ".trail b") == ["step 3"]
    page.locator(".trail button").click()
    page.locator(".node", has_text="step 11").wait_for()
    page.get_by_label("What is one node").select_option(label="a node is a function and level")
    page.locator(".node", has_text="work").first.wait_for()
    assert page.locator(".node").count() == 12 and "50 tasks" in page.locator(".node").first.text_content()
    page.evaluate("stf.page.showInGraph(599)")
    page.locator(".node.selected").wait_for()
    assert "work(49)" in page.locator(".node.selected").text_content()


def test_an_empty_run(open_page: Callable[..., Any], program: Program, tmp_path: Path) -> None:
    page = open_page(program.page(tmp_path / "empty.html"))
    for tab in page.locator("#tabs button").all():
        tab.click()
    shown = page.locator("#stage").evaluate("(stage) => stage.textContent")
    for text in ("No task has run.", "Nothing has run.", "No tasks.", "No copies.", "Nothing was allocated."):
        assert text in shown


def test_a_notebook_shows_the_page_in_a_frame(open_page: Callable[..., Any], tmp_path: Path) -> None:
    gate = threading.Event()
    with stf.context(devices="cpu", observe=True) as ctx:
        ctx.task(ctx.logical_data(np.zeros(2)).rw(), name="in a notebook")(lambda x: gate.set())
        ctx.synchronize()
        cell = tmp_path / "cell.html"
        cell.write_text(f"<!DOCTYPE html><title>cell</title><body>{ctx.report()._repr_html_()}", encoding="utf-8")
    frame = open_page(cell).frame_locator("iframe")
    frame.locator("body:not(.loading)").wait_for()
    frame.locator("#tab-time").click()
    assert "in a notebook" in frame.locator("#panel-time").inner_text()
